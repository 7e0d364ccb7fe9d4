"""Tracer, room 11: what compiled code asks of Python while it runs, and what is found wrong.

Compiled code calls back for everything rare: a pattern of addresses not seen before, an access that does not fit its
buffer, two threads that may race, a barrier that not everyone has reached. Nothing raised here can cross machine code:
it is kept in `error`, the launch is stopped, and launch.py raises it.
"""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING

import numpy as np

from gpudays.ptx import layout as at
from gpudays.ptx import printing
from gpudays.ptx.global_races import is_strong, report_global
from gpudays.ptx.memory_ir import SPACES
from gpudays.ptx.model import Finding, KernelTrap, Touch
from gpudays.ptx.parser import Address
from gpudays.ptx.provenance import UNKNOWN
from gpudays.ptx.shapes import cost_of, costs, lanes_of

if TYPE_CHECKING:
    from gpudays.ptx.launch import Buffer, Machine

_P, _I32, _I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
MAX_FAULTS = 500  # faulty requests after which a share of the launch is abandoned: a GPU stops at the first
WARP_BUDGET = 50_000_000  # instructions one warp may run when the caller sets no budget


def _guarded(fallback):
    """An exception becomes `error` and a stop; `fallback(self)` is what compiled code gets."""

    def wrap(method):
        @functools.wraps(method)
        def call(self, *args):
            try:
                return method(self, *args)
            except BaseException as error:
                if self.error is None:
                    self.error = error
                self.stop()
                return fallback(self)

        return call

    return wrap


class Observer:
    """The callbacks of one machine, and its findings."""

    def __init__(self, machine: Machine):
        self.m = machine
        self.error: BaseException | None = None
        self.stopped = False
        self.printed: list[str] = []
        self.faults = 0
        self.found: dict[tuple, list] = {}
        self.touched: dict[tuple[str, int, str], Touch] = {}
        self.pending: list[tuple] = []
        self.spent: dict[tuple[int, int], int] = {}
        self._keep = _callbacks(self)

    @property
    def callbacks(self) -> dict[int, object]:
        return self._keep

    def stop(self) -> None:
        """Abandon the launch at the next opportunity."""
        self.stopped = True
        self.m.memory.view(np.int32)[at.STOP // 4] = 1

    # -- findings

    def report(self, kind: str, line: int, thread: int, message: str, other: int | None = None) -> None:
        """Note a finding; the same kind at the same lines is counted, the first one told."""
        key = (kind, line, other, message.split(":")[0])
        if key in self.found:
            self.found[key][1] += 1
            return
        block = self.block()
        self.found[key] = [Finding(kind, line, block, self.thread(thread), message, other), 1]

    def touch(self, site, buffer: Buffer) -> None:
        """Note that an instruction uses a buffer; a site that knows its buffer does not ask again."""
        key = (site.op, buffer.index, buffer.name)
        if key not in self.touched:
            self.touched[key] = Touch(site.op, buffer.index, plain_name(buffer.name), site.instruction.line)

    def findings(self) -> list[Finding]:
        """What was found, each thing once."""
        return [Finding(**{**f.__dict__, "count": n}) for f, n in self.found.values()]

    def block(self) -> tuple[int, int, int]:
        return tuple(int(v) for v in self.m.memory.view(np.int32)[at.CTAID // 4 : at.CTAID // 4 + 3])

    def thread(self, index: int) -> tuple[int, int, int]:
        x, y, _ = self.m.launch.block
        return index % x, index // x % y, index // (x * y)

    def site(self, pointer: int):
        return self.m.kernel.code.sites[self.site_number(pointer)]

    def site_number(self, pointer: int) -> int:
        return (pointer - self.m.sites.ctypes.data) // at.SITE_SIZE

    def warp_number(self, pointer: int) -> int:
        return (pointer - self.m.warps.ctypes.data) // self.m.kernel.code.warp_bytes

    # -- costs

    @_guarded(lambda self: 0)
    def on_cost(self, shape, position, row):
        return cost_of(shape, position, row)

    # -- accesses that do not simply fit

    @_guarded(lambda self: 0)
    def on_access(self, _machine, warp, site, base, delta, mask, space):
        active = lanes_of(mask & 0xFFFFFFFF)
        numbers = np.ctypeslib.as_array((_I64 * at.LANES).from_address(delta))
        with np.errstate(over="ignore"):
            addresses = np.where(active, np.int64(base) + numbers, 0)
        if space == at.SAME_CELL:
            return self.same_cell(warp, site, addresses, active)
        access = Access(self, warp, site, addresses, active, SPACES[space])
        return access.settle()

    def same_cell(self, warp: int, pointer: int, addresses: np.ndarray, active: np.ndarray) -> int:
        """Lanes of one store that write one cell: a race unless they write the same value."""
        site = self.site(pointer)
        staged = self.staged(site.width)
        first: dict[int, int] = {}
        for lane in np.flatnonzero(active):
            other = first.setdefault(int(addresses[lane]), int(lane))
            if not np.array_equal(staged[lane], staged[other]):
                thread = self.warp_number(warp) * at.LANES
                self.report(
                    "shared-race", site.instruction.line, thread + int(lane),
                    f"shared-race: threads {self.thread(thread + other)} and {self.thread(thread + int(lane))} write "
                    f"different values to byte {addresses[lane]} of shared memory in the same instruction",
                    site.instruction.line,
                )  # fmt: skip
        return 0

    def staged(self, width: int) -> np.ndarray:
        """The values on their way to memory: uint8[32, width]."""
        stage = self.m.memory[at.STAGE : at.STAGE_2]
        part = 4 if width % 4 == 0 else width
        rows = stage.reshape(4, at.STAGE_ROW)[:, : at.LANES * part]
        return np.concatenate([r.reshape(at.LANES, part) for r in rows[: width // part]], axis=1)

    # -- races

    @_guarded(lambda self: None)
    def on_race(self, _machine, warp, pointer, cell, mine, op):
        memory = self.m.memory.view(np.int64)
        is_store, is_atomic = op != 0, op >= 2
        wrote = int(self.m.records[0][cell])
        if op != 1 and wrote >> 32 < memory[at.BLOCK_TICK // 8]:
            self.uninitialized(warp, pointer, cell, mine)
        elif not (is_atomic and wrote & at.ATOMIC_MARK):
            self.compare(wrote, "wrote", mine, cell, pointer, warp, is_store)
        if is_store:
            self.compare(self.m.records[1][cell], "read", mine, cell, pointer, warp, is_store)

    def uninitialized(self, warp: int, pointer: int, cell: int, mine: int) -> None:
        """Held back until the next barrier or the block's end: a write in between makes it a race instead."""
        line = self.site(pointer).instruction.line
        thread, offset = self.first_thread(mine & 0xFFFF), cell * self.m.kernel.cell
        message = (
            f"uninitialized-shared: {self.name_threads(mine & 0xFFFF)} {self.reads(mine)} byte {offset} of shared "
            f"memory{self.variable_at(offset)}, which no thread of the block has written"
        )
        self.pending.append((cell, line, thread, message))
        self.m.memory.view(np.int32)[at.PENDING // 4] = 1

    def settle_pending(self) -> None:
        """Report reads of unwritten cells: called at the next barrier, or when the block has ended."""
        born = self.m.memory.view(np.int64)[at.BLOCK_TICK // 8]
        for cell, line, thread, message in self.pending:
            if self.m.records[0][cell] >> 32 < born:
                self.report("uninitialized-shared", line, thread, message)
        self.pending = []
        self.m.memory.view(np.int32)[at.PENDING // 4] = 0

    def reads(self, mine: int) -> str:
        return "read" if mine & 0xFFFF >= at.MANY else "reads"

    def first_thread(self, who: int) -> int:
        """A thread's number; for several of a warp, the warp's first."""
        if who == at.MANY_WARPS:
            return 0
        return (who - at.MANY) * at.LANES if who >= at.MANY else who

    def variable_at(self, offset: int) -> str:
        """ " (in tileA, 12 bytes in)" for an offset in shared memory."""
        best = None
        for name, (space, start) in self.m.kernel.addresses.items():
            if space == "shared" and start <= offset and (best is None or start > best[1]):
                best = (name, start)
        return f" ({plain_name(best[0])}+{offset - best[1]})" if best else ""

    def compare(self, record: int, did: str, mine: int, cell: int, pointer: int, warp: int, is_store: int) -> None:
        """Report a race between this access and the record of an earlier one, unless something orders them."""
        record, mine = int(record), int(mine)
        tick, number, who = record >> 32, record >> 16 & 0x7FFF, record & 0xFFFF
        me = mine & 0xFFFF
        memory = self.m.memory.view(np.int64)
        my_warp = self.warp_number(warp)
        seen = int(memory[at.FULL_TICK // 8])
        if who != at.MANY_WARPS:
            other_warp = who - at.MANY if who >= at.MANY else who >> 5
            seen = max(seen, int(memory[at.ORDER // 8 + my_warp * at.LANES + other_warp]))
        if tick < seen or (who == me and me < at.MANY):
            return
        site = self.site(pointer)
        if is_store and did == "wrote" and self.writes_same(site, cell, me):
            return
        other = self.m.kernel.code.sites[number]
        thread = self.first_thread(me)
        offset = cell * self.m.kernel.cell
        verb = ("write" if is_store else "read") + ("s" if me < at.MANY else "")
        self.report(
            "shared-race", site.instruction.line, thread,
            f"shared-race: {self.name_threads(me)} {verb} byte {offset} of shared memory{self.variable_at(offset)} "
            f"that {self.name_threads(who)} {did} in line {other.instruction.line}, with no barrier between them",
            other.instruction.line,
        )  # fmt: skip

    @_guarded(lambda self: None)
    def on_global_race(self, _machine, warp, pointer, cell, mine, op):
        report_global(self, self.warp_number(warp), pointer, cell, mine, op)

    def name_threads(self, who: int) -> str:
        """A thread, or several, in words."""
        if who == at.MANY_WARPS:
            return "threads of several warps"
        if who >= at.MANY:
            return f"several threads of warp {who - at.MANY}"
        return f"thread {self.thread(who)}"

    def writes_same(self, site, cell: int, me: int) -> bool:
        """Whether a store puts the value that is there already (all threads setting one flag is no race)."""
        if site.width != self.m.kernel.cell or site.op != "st":
            return False
        lane = me & 31 if me < at.MANY else 0
        start = cell * self.m.kernel.cell
        return np.array_equal(self.staged(site.width)[lane], self.m.shared[start : start + site.width])

    # -- barriers, budgets

    @_guarded(lambda self: 1)
    def on_event(self, _machine, warp, event, block, active):
        from gpudays.ptx.semantics import EVENTS

        lane = int(np.flatnonzero(lanes_of(active & 0xFFFFFFFF))[0])
        thread = self.warp_number(warp) * at.LANES + lane
        end = self.m.kernel.graph.blocks[block].end_instruction
        line = end.line if end is not None else 0
        if EVENTS[event] == "divergent-barrier":
            self.report(
                "barrier", line, thread,
                f"barrier: thread {self.thread(thread)} waits at a barrier that other threads of its warp have not "
                "reached: it stands in divergent code",
            )  # fmt: skip
            return 0
        raise KernelTrap("trap", line, self.block(), self.thread(thread))

    # -- printf and assert

    @_guarded(lambda self: None)
    def on_print(self, _machine, warp, mask, line):
        formats, arguments = self.m.memory[at.STAGE : at.STAGE + 2 * at.STAGE_ROW].view(np.int64).reshape(2, at.LANES)
        for lane in np.flatnonzero(lanes_of(mask & 0xFFFFFFFF)):
            thread = self.warp_number(warp) * at.LANES + int(lane)
            text = printing.text_at(self, int(formats[lane]))
            self.printed.append(printing.formatted(self, text, int(arguments[lane]), thread))

    @_guarded(lambda self: None)
    def on_assert(self, _machine, warp, mask, line):
        message = int(self.m.memory[at.STAGE : at.STAGE_2].view(np.int64)[0])
        lane = int(np.flatnonzero(lanes_of(mask & 0xFFFFFFFF))[0])
        thread = self.warp_number(warp) * at.LANES + lane
        what = f"assertion {printing.text_at(self, message)} failed"
        raise KernelTrap(what, line, self.block(), self.thread(thread))

    @_guarded(lambda self: None)
    def on_pause(self, _machine, warp, result):
        """A warp has used its allowance (it may go on later), or has been stopped."""
        words = (ctypes.c_int32 * (at.REGISTERS // 4)).from_address(warp)
        if result == at.STOPPED:
            self.stop()
            words[at.STATUS // 4] = at.GONE
            return
        memory = self.m.memory.view(np.int64)
        key = (int(memory[at.BLOCK_ID // 8]), self.warp_number(warp))
        allowance = int(memory[at.ALLOWANCE // 8])
        self.spent[key] = self.spent.get(key, 0) + allowance
        limit = self.m.launch.budget or WARP_BUDGET
        if self.spent[key] >= limit:
            thread = key[1] * at.LANES
            block = self.m.kernel.graph.blocks[words[at.PC // 4]]
            line = next((i.line for i in block.instructions if i.line), 0)
            self.report(
                "budget", line, thread,
                f"budget: warp {key[1]} has run {limit:,} instructions and is still in the loop at line {line}: it may "
                "never end",
            )  # fmt: skip
            self.stop()
            words[at.STATUS // 4] = at.GONE
        ctypes.c_int64.from_address(warp + at.WARP_BUDGET).value = allowance

    @_guarded(lambda self: 1)
    def on_barrier(self, _machine):
        """Not all warps wait at barrier 0: open what can be opened, or say that nobody can go on."""
        from gpudays.ptx.barriers import open_barriers

        self.settle_pending()
        return 1 if self.stopped else open_barriers(self)


class Access:
    """One request that did not simply fit the buffer of its site."""

    def __init__(self, observer: Observer, warp: int, pointer: int, addresses, active, space: str):
        self.o, self.warp, self.pointer, self.space = observer, observer.warp_number(warp), pointer, space
        self.addresses, self.active = addresses, active
        self.site = observer.site(pointer)
        self.width = self.site.width

    def settle(self) -> int:
        """1: the site now knows the buffer, go on. 0: the request has been done here, lane by lane."""
        aligned = self.addresses % self.width == 0
        homes = self.homes()
        wanted = [homes[lane] for lane in np.flatnonzero(self.active)]
        if aligned[self.active].all() and wanted and all(h is not None and h is wanted[0] for h in wanted):
            if self.space != "global":
                raise AssertionError("a fitting access was taken for a misfit")
            self.remember(wanted[0])
            return 1
        good = np.array([h is not None for h in homes]) & aligned & self.active
        if self.site.op == "ld":  # a load that fails gives 0
            self.o.m.memory[at.STAGE : at.STAGE_2] = 0
        if self.site.op in ("ld", "st"):
            self.copy(good, homes)
        else:  # where some lanes of an atomic fail, none of them takes effect
            self.o.m.memory[at.STAGE_2 : at.STAGE_2 + at.STAGE_ROW] = 0
        for lane in np.flatnonzero(self.active & ~good):
            if aligned[lane]:
                self.outside(int(lane))
            else:
                self.misaligned(int(lane))
        self.account(good)
        if (self.active & ~good).any():
            self.o.faults += 1
            if self.o.faults >= MAX_FAULTS:
                self.o.stop()
        return 0

    def homes(self) -> list:
        """For each lane the buffer or window that holds the whole of its access, or None."""
        if self.space != "global":
            inside = self.active & (self.addresses >= 0) & (self.addresses <= self.size() - self.width)
            return ["window" if on else None for on in inside]
        homes: list = [None] * at.LANES
        for b in self.o.m.launch.buffers:
            # Not address + width: that sum wraps for a wild pointer.
            inside = self.active & (self.addresses >= b.low) & (self.addresses <= b.high - self.width)
            if inside.any():
                self.o.touch(self.site, b)
                for lane in np.flatnonzero(inside):
                    homes[lane] = b
        return homes

    def size(self) -> int:
        if self.space == "shared":
            return int(self.o.m.memory.view(np.int64)[at.SHARED_SIZE // 8])
        return self.o.m.kernel.local_bytes

    def remember(self, buffer: Buffer) -> None:
        words = self.o.m.sites[self.o.site_number(self.pointer)].view(np.int64)
        words[at.LOW // 8], words[at.HIGH // 8] = buffer.low, buffer.high
        words[at.SHIFT // 8] = buffer.host - buffer.low
        records = None if is_strong(self.site.instruction) else self.o.m.global_records.of(buffer)
        if records is not None:
            words[at.GLOBAL_WRITES // 8], words[at.GLOBAL_READS // 8] = (r.ctypes.data for r in records)
        else:
            words[at.GLOBAL_WRITES // 8] = 0

    def host(self, lane: int, home) -> int:
        address = int(self.addresses[lane])
        m = self.o.m
        if self.space == "global":
            return home.host + address - home.low
        if self.space == "shared":
            return m.shared.ctypes.data + address
        return m.local.ctypes.data + (self.warp * at.LANES + lane) * m.kernel.local_bytes + address

    def copy(self, good: np.ndarray, homes: list) -> None:
        """Move the lanes' bytes between memory and the staging area, where all of an access lies in one place.

        Lanes of one global buffer move together: requests that straddle buffers are what compilers make of
        `inside ? matrix[i] : 0`, where the 0 has an address too.
        """
        lanes = np.flatnonzero(good)
        for home in {id(homes[lane]): homes[lane] for lane in lanes}.values():
            mine = np.array([lane for lane in lanes if homes[lane] is home])
            if self.space != "global":
                for lane in mine:
                    self.move(mine=np.array([lane]), host=self.host(int(lane), home), size=self.width, at_=[0])
            else:
                self.move(mine, home.host, home.high - home.low, self.addresses[mine] - home.low)

    def move(self, mine: np.ndarray, host: int, size: int, at_) -> None:
        """Move lanes' bytes from or to offsets `at_` in `size` bytes at `host`; stores in the order of the lanes."""
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(host))
        count = self.components()
        part = self.width // count
        stage = self.o.m.memory[at.STAGE : at.STAGE_2].reshape(4, at.STAGE_ROW)
        for c in range(count):
            rows = stage[c, : at.LANES * part].reshape(at.LANES, part)
            where = np.asarray(at_, np.int64)[:, None] + np.arange(c * part, (c + 1) * part)
            if self.site.op == "ld":
                rows[mine] = memory[where]
            else:
                memory[where] = rows[mine]

    def components(self) -> int:
        i = self.site.instruction
        if i.parts[0] == "cp":
            return self.width // 4
        return next((int(p[1:]) for p in i.parts if p in ("v2", "v4", "v8")), 1)

    def account(self, good: np.ndarray) -> None:
        words = self.o.m.sites[self.o.site_number(self.pointer)].view(np.int64)
        words[at.REQUESTS // 8] += 1
        words[at.ACTIVE_LANES // 8] += int(self.active.sum())
        if good.any():
            kind = self.space if self.space != "shared" else f"shared.{self.site.op}"
            words[at.COST // 8] += costs(kind, self.width, self.addresses, good)
            if self.space == "shared":
                words[at.CONFLICTS // 8] += costs(f"conflicts.{self.site.op}", self.width, self.addresses, good)

    # -- what to say

    def verb(self) -> str:
        return "reads" if self.site.op == "ld" else "writes"

    def misaligned(self, lane: int) -> None:
        thread = self.warp * at.LANES + lane
        address = int(self.addresses[lane])
        self.o.report(
            "misaligned", self.site.instruction.line, thread,
            f"misaligned: thread {self.o.thread(thread)} {self.verb()} {self.width} bytes at {self.where(address)}, "
            f"which is {address % self.width} past a multiple of {self.width}",
        )  # fmt: skip

    def outside(self, lane: int) -> None:
        thread = self.warp * at.LANES + lane
        address = int(self.addresses[lane])
        self.o.report(
            "out-of-bounds", self.site.instruction.line, thread,
            f"out-of-bounds: thread {self.o.thread(thread)} {self.verb()} {self.width} bytes at {self.where(address)}",
        )  # fmt: skip

    def meant(self, buffers: list[Buffer]) -> Buffer | None:
        """The only buffer that this instruction's address can have been computed from, if there is just one."""
        names = set().union(
            *(self.o.m.kernel.origin.address(o) for o in self.site.instruction.operands if isinstance(o, Address))
        )
        params = [p.name for p in self.o.m.kernel.function.params]
        found = [b for b in buffers if (params[b.index] if b.index >= 0 else b.name) in names]
        return found[0] if len(found) == 1 and UNKNOWN not in names else None

    def where(self, address: int) -> str:
        """An address in the words of the buffer that was meant, or of the nearest."""
        if self.space != "global":
            size = self.size()
            return f"byte {address} of {self.space} memory, which has {size} bytes"
        buffers = self.o.m.launch.buffers
        if not buffers:
            return f"address {address:#x}; the launch has no buffer"
        near = self.meant(buffers) or min(buffers, key=lambda b: max(b.low - address, address - b.high + 1, 0))
        size = near.high - near.low
        what = f"{near.name} ({size} bytes)"
        if address + self.width <= near.low:
            return f"address {address:#x}, {near.low - address} bytes before the start of {what}"
        if address >= near.high:
            return f"address {address:#x}, {address - near.high} bytes past the end of {what}"
        if address + self.width > near.high:
            return f"byte {address - near.low} of {what}: it runs {address + self.width - near.high} bytes past the end"
        return f"byte {address - near.low} of {what}"


def plain_name(symbol: str) -> str:
    """`tileA` from a mangled local name such as `_ZZ11matmulTiledE5tileA`; others as they are."""
    if symbol.startswith("_ZZ"):
        tail = symbol.rsplit("E", 1)[-1]
        digits = "".join(c for c in tail[:3] if c.isdigit())
        if digits and tail.startswith(digits):
            return tail[len(digits) : len(digits) + int(digits)]
    return symbol


def _callbacks(o: Observer) -> dict[int, object]:
    """The C functions, by their place in the machine."""
    kinds = {
        at.ON_ACCESS: (o.on_access, _I32, (_P, _P, _P, _I64, _P, _I32, _I32)),
        at.ON_COST: (o.on_cost, _I32, (_P, _I64, _I64)),
        at.ON_EVENT: (o.on_event, _I32, (_P, _P, _I32, _I32, _I32)),
        at.ON_RACE: (o.on_race, None, (_P, _P, _P, _I64, _I64, _I32)),
        at.ON_BARRIER: (o.on_barrier, _I32, (_P,)),
        at.ON_GLOBAL_RACE: (o.on_global_race, None, (_P, _P, _P, _I64, _I64, _I32)),
        at.ON_PRINT: (o.on_print, None, (_P, _P, _I32, _I32)),
        at.ON_ASSERT: (o.on_assert, None, (_P, _P, _I32, _I32)),
        at.ON_PAUSE: (o.on_pause, None, (_P, _P, _I32)),
    }
    return {place: ctypes.CFUNCTYPE(result, *arguments)(f) for place, (f, result, arguments) in kinds.items()}
