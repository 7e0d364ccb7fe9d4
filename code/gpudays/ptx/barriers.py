"""Tracer, room 11: barriers that are not simply reached by the whole block.

A barrier opens when all threads that it wants have arrived: the count it names, or else every thread of the block that
has not ended. (Threads that have ended do not hold a GPU up, but a block that loses threads before a barrier is worth a
finding.) Source: NVIDIA, "Parallel Thread Execution ISA", "bar, barrier".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpudays.ptx import layout as at

if TYPE_CHECKING:
    from gpudays.ptx.checks import Observer


def open_barriers(o: Observer) -> int:
    """Let the warps go on that can; 0 to continue the block, 1 to give it up."""
    words = o.m.warps.view(np.int32)
    status = words[:, at.STATUS // 4]
    waiting = status == at.AT_BARRIER
    opened = False
    for number in sorted(set(words[waiting, at.BARRIER_ID // 4].tolist())):
        here = np.flatnonzero(waiting & (words[:, at.BARRIER_ID // 4] == number))
        count = int(words[here[0], at.BARRIER_COUNT // 4])
        living = np.flatnonzero(status != at.GONE)
        everyone = len(here) == len(living)
        if (count and len(here) * at.LANES >= count) or (not count and everyone):
            _open(o, words, here, number, whole=everyone)
            opened = True
    if opened or (status == 0).any():
        return 0
    for w in np.flatnonzero(waiting):
        line, number = int(words[w, at.BARRIER_LINE // 4]), int(words[w, at.BARRIER_ID // 4])
        thread = int(w) * at.LANES
        o.report(
            "barrier", line, thread,
            f"barrier: warp {w} waits for ever at barrier {number}: the threads that it waits for have ended or wait "
            "elsewhere (a GPU would hang)",
        )  # fmt: skip
    return 1


def _open(o: Observer, words: np.ndarray, here: np.ndarray, number: int, whole: bool) -> None:
    """Open barrier `number` for the warps `here`; `whole` if no living warp is missing."""
    memory = o.m.memory.view(np.int64)
    memory[at.TICK // 8] += 1
    tick = memory[at.TICK // 8]
    if whole:
        memory[at.FULL_TICK // 8] = tick
        memory[at.NOTE_COUNT // 8] = 0
    if whole and not int(words[here[0], at.BARRIER_COUNT // 4]):
        _missing(o, words, here)
    order = memory[at.ORDER // 8 : at.ORDER // 8 + at.LANES * at.LANES].reshape(at.LANES, at.LANES)
    seen = order[here].max(axis=0)
    seen[here] = tick
    order[here] = seen
    place = (at.BARRIERS + at.BARRIER_SIZE * number) // 8
    memory[place + 1], memory[place] = memory[place], 0
    words[here, at.STATUS // 4] = 0
    words[here, at.BLOCKED // 4] = 0


def _missing(o: Observer, words: np.ndarray, here: np.ndarray) -> None:
    """Some threads ended before a barrier that the rest of the block waits at."""
    live = words[:, at.LIVE // 4].view(np.uint32)
    full = words[:, at.FULL // 4].view(np.uint32)
    gone = full & ~live
    if not gone.any():
        return
    warp = int(np.flatnonzero(gone)[0])
    bits = int(gone[warp])
    thread = warp * at.LANES + (bits & -bits).bit_length() - 1
    number = sum(int(g).bit_count() for g in gone)
    line = int(words[here[0], at.BARRIER_LINE // 4])
    o.report(
        "barrier", line, thread,
        f"barrier: thread {o.thread(thread)} and {number - 1} more had returned before this barrier, which the rest of "
        "the block waits at",
    )  # fmt: skip
