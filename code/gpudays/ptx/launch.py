"""Tracer, room 11: one launch — arguments become device buffers, blocks run, findings and counts come back."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gpudays.ptx import layout as at
from gpudays.ptx.checks import Observer
from gpudays.ptx.global_races import WATCH_LIMIT, GlobalRecords, races_between
from gpudays.ptx.kernel import ARGUMENT_BASE, CompiledKernel
from gpudays.ptx.model import BUFFER_ALIGNMENT, Finding, LaunchError, Touch
from gpudays.ptx.provenance import UNKNOWN

ALLOWANCE = 2_000_000  # instructions that a warp may run before others of its block get a turn
CHUNK_SECONDS = 0.25  # how long compiled code runs before Python looks at signals
# A launch begins on one thread. Others join where that would take longer: each has to meet every address pattern anew.
SHARE_SECONDS = 0.05
TELLING_BLOCKS = 4  # in a piece, before its time says anything: Python settles the first accesses


@dataclass
class Buffer:
    """A piece of device memory: `low` ≤ address < `high`, held at host address `host`.

    `index` is the position among the launch's arguments (−1 for a module's variable), `name` its parameter's or
    variable's name, `array` the bytes themselves.
    """

    low: int
    high: int
    host: int
    index: int
    name: str
    array: np.ndarray
    watched: bool = False


@dataclass
class Outcome:
    """What a launch gave: counters per memory site and per basic block, findings, blocks run, buffers used."""

    site_counts: np.ndarray  # int64[sites, 4]: cost, conflicts, requests, active lanes
    block_counts: np.ndarray  # int64[basic blocks, 2]: warps, lanes
    findings: list[Finding]
    blocks_run: int
    seconds: float
    printed: str = ""
    stopped: bool = False
    touched: list[Touch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Launch:
    """A checked launch: `arguments` are arrays and scalars in the kernel's order; grid and block are (x, y, z)."""

    kernel: CompiledKernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: Sequence
    dynamic_shared: int = 0
    blocks: np.ndarray | None = None  # linear indices, all if None
    budget: int | None = None
    threads: int = 2
    names: Sequence[str] = ()
    buffers: list[Buffer] = field(default_factory=list)

    def run(self) -> Outcome:
        """Run the blocks and write the arrays back. Raises what a callback raised."""
        started = time.perf_counter()
        params = self._bind()
        watched = sum(b.high - b.low for b in self.buffers if b.watched)
        notes = []
        if watched > WATCH_LIMIT:
            notes.append(
                f"global memory was not watched for races: the kernel writes {watched >> 20} MiB, and records are kept "
                f"of {WATCH_LIMIT >> 20} at most"
            )
            for b in self.buffers:
                b.watched = False
        order = self.blocks if self.blocks is not None else np.arange(int(np.prod(self.grid, dtype=np.int64)))
        order = np.ascontiguousarray(order, np.int64)
        machines = self._run_on(order, params, 1 if self.kernel.use.atomics else self.threads)
        for machine in machines:
            if machine.observer.error is not None:
                raise machine.observer.error
        self._write_back()
        outcome = self._gather(machines, time.perf_counter() - started)
        outcome.notes += notes
        return outcome

    def _run_on(self, order: np.ndarray, params: np.ndarray, threads: int) -> list[Machine]:
        """Run the blocks, on up to so many OS threads where one would take long. Where blocks of different threads
        race, the findings and results are those of a second run, on one thread, so that they are always the same."""
        before = [b.array.copy() for b in self.buffers if b.watched] if threads > 1 else []
        machines = [Machine(self, params, order)]
        machines[0].run(SHARE_SECONDS if threads > 1 else None)
        machines += [Machine(self, params, part) for part in machines[0].share(threads)]
        if len(machines) == 1:
            return machines
        _run_all(machines)
        if races_between(machines):
            for b, old in zip((b for b in self.buffers if b.watched), before, strict=True):
                b.array[:] = old
            machines = [Machine(self, params, order)]
            machines[0].run()
        return machines

    # -- arguments

    def _bind(self) -> np.ndarray:
        """Place arrays in device memory; give the parameter block's bytes."""
        self.buffers, self._copies = [], []
        params = np.zeros(self.kernel.param_bytes + 16, np.uint8)
        next_ = ARGUMENT_BASE
        for n, (p, value) in enumerate(zip(self.kernel.function.params, self.arguments, strict=True)):
            offset = self.kernel.param_offsets[p.name]
            if isinstance(value, np.ndarray):
                array = self._own(value)
                name = self.names[n] if n < len(self.names) else f"argument {n}"
                low = next_
                self.buffers.append(
                    Buffer(low, low + array.nbytes, array.ctypes.data, n, name, array, self._watched({p.name}))
                )
                next_ = (low + array.nbytes + BUFFER_ALIGNMENT) // BUFFER_ALIGNMENT * BUFFER_ALIGNMENT
                raw = np.array([low], np.uint64).view(np.uint8)
            else:
                raw = np.frombuffer(np.asarray(value).tobytes(), np.uint8)
            params[offset : offset + len(raw)] = raw
        for variable, address in self.kernel.variables:
            self.buffers.append(self._variable(variable, address))
        return params

    def _watched(self, names: set[str]) -> bool:
        """Whether the kernel may write the memory behind one of `names`."""
        return bool(self.kernel.use.written & (names | {UNKNOWN}))

    def _own(self, value: np.ndarray) -> np.ndarray:
        """Bytes that can be read and written in place; a copy where the array's own cannot."""
        if value.flags.c_contiguous and value.flags.writeable:
            return value.reshape(-1).view(np.uint8)
        copy = np.ascontiguousarray(value).reshape(-1).copy()
        self._copies.append((value, copy))
        return copy.view(np.uint8)

    def _write_back(self) -> None:
        for original, copy in self._copies:
            if original.flags.writeable:
                original[...] = copy.reshape(original.shape)

    def _variable(self, variable, address: int) -> Buffer:
        data = np.zeros(max(variable.size, 1), np.uint8)
        if variable.data is not None:
            data[: len(variable.data)] = np.frombuffer(variable.data, np.uint8)
        for offset, symbol in variable.addresses:
            if symbol.name not in self.kernel.addresses:
                raise LaunchError(
                    f"{variable.name} holds the address of {symbol.name}, which the tracer does not place"
                )
            target = self.kernel.addresses[symbol.name][1] + symbol.offset
            data[offset : offset + 8] = np.array([target], np.uint64).view(np.uint8)
        return Buffer(address, address + variable.size, data.ctypes.data, -1, variable.name, data,
                      variable.space == "global" and self._watched({variable.name}))  # fmt: skip

    # -- results

    def _gather(self, machines: list[Machine], seconds: float) -> Outcome:
        sites = sum(m.site_counts() for m in machines)
        counts = sum(m.block_counts for m in machines)
        findings = _merge([f for m in machines for f in m.observer.findings()])
        stopped = any(m.observer.stopped for m in machines)
        printed = "".join(text for m in machines for text in m.observer.printed)
        touched = {key: touch for m in reversed(machines) for key, touch in m.observer.touched.items()}
        return Outcome(
            sites, counts, findings, sum(m.blocks_done for m in machines), seconds, printed, stopped,
            [touched[key] for key in sorted(touched)],
        )  # fmt: skip


def _merge(findings: list[Finding]) -> list[Finding]:
    """One finding per kind, line and other line: the first block's, with the counts added."""
    by_key: dict[tuple, Finding] = {}
    for f in findings:
        key = (f.kind, f.line, f.other_line, f.message.split(":")[0])
        old = by_key.get(key)
        by_key[key] = f if old is None else Finding(**{**old.__dict__, "count": old.count + f.count})
    return list(by_key.values())


class Machine:
    """The memory that compiled code works on, for one OS thread's share of the blocks."""

    def __init__(self, launch: Launch, params: np.ndarray, blocks: np.ndarray):
        kernel = launch.kernel
        self.launch, self.kernel, self.blocks = launch, kernel, blocks
        self.blocks_done = 0
        threads = int(np.prod(launch.block))
        n_warps = -(-threads // at.LANES)
        self.memory = _aligned(at.MACHINE_SIZE)
        self.sites = _aligned(max(1, len(kernel.code.sites)) * at.SITE_SIZE).reshape(-1, at.SITE_SIZE)
        self.warps = _aligned(n_warps * kernel.code.warp_bytes).reshape(n_warps, -1)
        self.block_counts = np.zeros((len(kernel.graph.blocks), 2), np.int64)
        shared = kernel.shared_bytes + launch.dynamic_shared
        self.shared = _aligned(shared + 64)
        self.notes = _aligned(at.NOTE_SIZE * (at.NOTE_LIMIT + 1))
        self.verified = np.zeros((len(kernel.code.sites) + 1, at.LANES * at.VERIFIED_SIZE), np.uint8)
        self.records = np.zeros((2, shared // kernel.cell + 2), np.int64)
        self.local = _aligned(n_warps * at.LANES * kernel.local_bytes + 64)
        self.params = params
        self.shapes = _aligned(at.SHAPE_LIMIT * at.SHAPE_SIZE)
        self.table = np.zeros(1 << at.TABLE_BITS, np.int64)
        self.global_records = GlobalRecords(launch.buffers, kernel.global_cell)
        self.block_ticks = np.zeros(len(blocks) + 1, np.int64)
        places = [(b.low, b.high, b.host) for b in launch.buffers[: at.BUFFER_LIMIT]]
        self.buffers = np.array(places, np.int64).reshape(-1, at.BUFFER_SIZE // 8)
        self.observer = Observer(self)
        self._fill(threads, n_warps, shared)

    def _fill(self, threads: int, n_warps: int, shared: int) -> None:
        launch, i32, i64 = self.launch, self.memory.view(np.int32), self.memory.view(np.int64)
        i32[at.NTID // 4 : at.NTID // 4 + 3] = launch.block
        i32[at.NCTAID // 4 : at.NCTAID // 4 + 3] = launch.grid
        i32[at.N_WARPS // 4], i32[at.N_THREADS // 4] = n_warps, threads
        i32[at.SHARED_DYNAMIC // 4] = launch.dynamic_shared
        pointers = {
            at.SHARED: self.shared, at.WRITES: self.records[0], at.READS: self.records[1], at.PARAMS: self.params,
            at.SITES: self.sites, at.WARPS: self.warps, at.BLOCK_COUNTS: self.block_counts,
            at.NOTES: self.notes, at.SHAPES: self.shapes, at.TABLE: self.table,
            at.BLOCK_TICKS: self.block_ticks, at.BUFFERS: self.buffers,
        }  # fmt: skip
        for place, array in pointers.items():
            i64[place // 8] = array.ctypes.data
        i64[at.SHARED_SIZE // 8] = shared
        i64[at.BUFFER_COUNT // 8] = len(self.buffers)
        i64[at.ALLOWANCE // 8] = min(ALLOWANCE, launch.budget or ALLOWANCE)
        sites, numbers = self.sites.view(np.int64), np.arange(len(self.sites))
        sites[:, at.SITE_ID // 8] = numbers
        sites[:, at.VERIFIED // 8] = self.verified.ctypes.data + self.verified.shape[1] * numbers
        for place, function in self.observer.callbacks.items():
            i64[place // 8] = ctypes.cast(function, ctypes.c_void_p).value
        index = np.arange(n_warps * at.LANES)
        x, y, _ = launch.block
        tid = np.stack([index % x, index // x % y, index // (x * y)]).astype(np.int32)
        words = self.warps.view(np.int32)
        for axis in range(3):
            start = at.TID // 4 + axis * at.LANES
            words[:, start : start + at.LANES] = tid[axis].reshape(n_warps, at.LANES)
        words[:, at.WARP_ID // 4] = np.arange(n_warps)
        step = at.LANES * self.kernel.local_bytes
        self.warps.view(np.int64)[:, at.LOCAL // 8] = self.local.ctypes.data + step * np.arange(n_warps)

    def run(self, patience: float | None = None) -> None:
        """Run this share in pieces, so that Ctrl-C is noticed.

        Args:
            patience: come back before the end if what is left seems to take longer, in seconds.
        """
        size = 1
        while self.blocks_done < len(self.blocks) and not self.observer.stopped:
            piece = self.blocks[self.blocks_done : self.blocks_done + size]
            started = time.perf_counter()
            code = self.kernel.native.code  # kept while it runs: another thread may put better code in its place
            code.run(self.memory.ctypes.data, piece.ctypes.data, len(piece))
            taken = time.perf_counter() - started
            self.blocks_done += len(piece)
            left = taken / len(piece) * (len(self.blocks) - self.blocks_done)
            self.kernel.native.ran(taken, left)
            if patience is not None and size >= TELLING_BLOCKS and left > patience:
                return
            if taken < CHUNK_SECONDS / 2:
                size *= 2

    def share(self, machines: int) -> list[np.ndarray]:
        """Give away, of the blocks that are left, the shares of all but this one of so many machines; may be none."""
        if self.observer.stopped:
            return []
        mine, *others = np.array_split(self.blocks[self.blocks_done :], machines)
        self.blocks = self.blocks[: self.blocks_done + len(mine)]
        return [part for part in others if len(part)]

    def site_counts(self) -> np.ndarray:
        columns = [at.COST // 8, at.CONFLICTS // 8, at.REQUESTS // 8, at.ACTIVE_LANES // 8]
        return self.sites.view(np.int64)[:, columns].copy()


def _run_all(machines: list[Machine]) -> None:
    """Each machine on an OS thread of its own, the first on this one."""
    others = [threading.Thread(target=m.run, daemon=True) for m in machines[1:]]
    for t in others:
        t.start()
    try:
        machines[0].run()
    except BaseException:
        for m in machines:
            m.observer.stop()
        raise
    finally:
        for t in others:
            t.join()


def _aligned(size: int) -> np.ndarray:
    """Zeroed bytes at a 64-byte boundary."""
    raw = np.zeros(size + 64, np.uint8)
    skip = -raw.ctypes.data % 64
    return raw[skip : skip + size]
