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
from gpudays.ptx.global_races import report_global
from gpudays.ptx.memory_ir import SPACES
from gpudays.ptx.misfits import Access, plain_name
from gpudays.ptx.model import Finding, KernelTrap, Touch
from gpudays.ptx.shapes import cost_of, lanes_of

if TYPE_CHECKING:
    from gpudays.ptx.launch import Buffer, Machine

_P, _I32, _I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
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
