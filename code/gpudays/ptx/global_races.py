"""Tracer, room 11: races in global memory — the records of watched buffers, and what to say of two that clash.

Blocks of a grid run in any order, so two blocks that touch one place, one of them writing, race. Atomics do not race
with each other; accesses marked volatile, relaxed, acquire or release are taken to be meant. A kernel with both fences
and global atomics may order its blocks by them ("the last block adds up"): then only races inside a block are told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpudays.ptx import layout as at
from gpudays.ptx.parser import Instruction

if TYPE_CHECKING:
    from gpudays.ptx.checks import Observer
    from gpudays.ptx.launch import Buffer, Machine

WATCH_LIMIT = 32 << 20  # bytes of buffers written; beyond that their records would fill the memory
_STRONG = {"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"}


def is_strong(i: Instruction) -> bool:
    """Whether a plain load or store is marked as one of those that threads may use to talk to each other."""
    return i.parts[0] in ("ld", "st") and bool(_STRONG & set(i.parts))


class GlobalRecords:
    """Per watched buffer, by its first address: int64[cells] of last writes and of last reads."""

    def __init__(self, buffers: list[Buffer], cell: int):
        self.cell = cell
        self.by_low = {
            b.low: np.zeros((2, (b.high - b.low) // cell + 2), np.int64)
            for b in buffers
            if b.watched and b.high > b.low
        }

    def of(self, buffer: Buffer) -> np.ndarray | None:
        return self.by_low.get(buffer.low)


def races_between(machines: list[Machine]) -> bool:
    """Whether blocks that ran on different OS threads touched one cell, one of them writing."""
    if machines[0].kernel.use.orders:
        return False
    for low in machines[0].global_records.by_low:
        records = [m.global_records.by_low[low] for m in machines]
        for n, (writes, reads) in enumerate(records):
            for other_writes, other_reads in records[n + 1 :]:
                atomic = writes & other_writes & at.ATOMIC_MARK
                if ((writes != 0) & (other_writes != 0) & (atomic == 0)).any():
                    return True
                if ((writes != 0) & (other_reads != 0)).any() or ((reads != 0) & (other_writes != 0)).any():
                    return True
    return False


def report_global(o: Observer, warp: int, pointer: int, cell: int, mine: int, op: int) -> None:
    """Compare an access with the records of its cell, and report what nothing orders."""
    low = int(o.m.sites[o.site_number(pointer)].view(np.int64)[at.LOW // 8])
    writes, reads = o.m.global_records.by_low[low]
    wrote = int(writes[cell])
    if wrote and not (op == 2 and wrote & at.ATOMIC_MARK):
        _compare(o, warp, pointer, (low, cell), mine, op, wrote, "wrote")
    if op and reads[cell]:
        _compare(o, warp, pointer, (low, cell), mine, op, int(reads[cell]), "read")


def _compare(o: Observer, warp: int, pointer: int, place, mine: int, op: int, record: int, did: str) -> None:
    memory = o.m.memory.view(np.int64)
    tick, number, who = record >> 32, record >> 16 & 0x7FFF, record & 0xFFFF
    me = mine & 0xFFFF
    if _is_guess(o, pointer, op, number, did):
        return
    foreign = who == at.MANY_BLOCKS or tick < int(memory[at.BLOCK_TICK // 8])
    if foreign and o.m.kernel.use.orders:
        return
    if not foreign and _ordered(o, memory, warp, me, tick, who):
        return
    other = o.m.kernel.code.sites[number]
    site, (low, cell) = o.site(pointer), place
    buffer = next(b for b in o.m.launch.buffers if b.low == low)
    thread = o.first_thread(me)
    verb = ("write" if op else "read") + ("s" if me < at.MANY else "")
    where = f"byte {cell * o.m.global_records.cell} of {buffer.name}"
    o.report(
        "global-race", site.instruction.line, thread,
        f"global-race: {o.name_threads(me)} {verb} {where} that {_whose(o, tick, who, foreign)} {did} in line "
        f"{other.instruction.line}, with nothing to order them",
        other.instruction.line,
    )  # fmt: skip


def _is_guess(o: Observer, pointer: int, op: int, number: int, did: str) -> bool:
    """A loop around `atomicCAS` starts with a plain read; a stale value costs it one more turn."""
    here, there = o.site(pointer).instruction, o.m.kernel.code.sites[number].instruction
    return ("cas" in there.parts and op == 0) or ("cas" in here.parts and did == "read")


def _ordered(o: Observer, memory: np.ndarray, warp: int, me: int, tick: int, who: int) -> bool:
    """Whether a barrier lies between this access and an earlier one of the same block, or it is the thread's own."""
    seen = int(memory[at.FULL_TICK // 8])
    if who != at.MANY_WARPS:
        other = who - at.MANY if who >= at.MANY else who >> 5
        seen = max(seen, int(memory[at.ORDER // 8 + warp * at.LANES + other]))
    return tick < seen or (who == me and me < at.MANY)


def _whose(o: Observer, tick: int, who: int, foreign: bool) -> str:
    if who == at.MANY_BLOCKS:
        return "several blocks"
    if not foreign:
        return o.name_threads(who)
    started = int(o.m.memory.view(np.int64)[at.BLOCKS_STARTED // 8])
    index = int(np.searchsorted(o.m.block_ticks[:started], tick, "right")) - 1
    linear = int(o.m.blocks[index])
    x, y, _ = o.m.launch.grid
    return f"block {(linear % x, linear // x % y, linear // (x * y))}"
