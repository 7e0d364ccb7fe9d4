"""Exercise room, what a check guards against: answers by heart, variables that outlast a launch, another tile.

Every hand-in is tried on matrices, at a size and in blocks that are drawn from its own text: always the same for the
same text, and known to nobody before it is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from gpudays import verify
from gpudays.course.geometry import FLOAT_BYTES
from gpudays.course.steps import Day, Size, label, square
from gpudays.ptx.model import Touch
from gpudays.runs import Runs, sample_blocks

WRITES = ("st", "atom", "red")
PADDING = 4  # floats after each row of a tile, which keep columns in different banks
BUFFERS = 2  # a tile may be there twice: one is read while the next one comes in


def seed(source: str) -> int:
    """The seed that a hand-in's matrices and blocks are drawn with."""
    return int.from_bytes(hashlib.sha256(source.encode()).digest()[:4], "big")


def drawn_size(source: str, day: Day) -> Size:
    """An odd size for this hand-in, that no whole block fits: (n, n, n) on square days, else (m, n, k)."""
    sides = [65 + 2 * int(s) for s in np.random.default_rng(seed(source)).integers(0, 32, 3)]  # odd, 65 to 127
    return square(sides[0]) if len(day.scalars((1, 1, 1))) == 1 else (sides[0], sides[1], sides[2])


def outlasting(kernel: str, touched: Iterable[Touch]) -> str:
    """Whether a kernel leaves something behind for its next launch, or writes into its inputs; "" if it does not."""
    for touch in touched:
        if touch.op in WRITES and touch.buffer == -1:
            return (
                f"{kernel}, line {touch.line}: writes the variable {touch.name}, which keeps its value from one launch "
                "to the next. A result must depend on a, b and n alone"
            )
        if touch.op in WRITES and touch.buffer in (0, 1):
            return f"{kernel}, line {touch.line}: writes into its input {'ab'[touch.buffer]}"
    return ""


def scratch(kernel: str, touched: Iterable[Touch]) -> str:
    """Whether a kernel reads C, which is for its results only; "" if it does not."""
    reads = next((t for t in touched if t.buffer == 2 and t.op != "st"), None)
    return f"{kernel}, line {reads.line}: reads c, which is there for the result only" if reads else ""


def other_tile(runs: Runs, kernel: str, tile: int, size: Size) -> str:
    """Whether a kernel computes other patches than tile × tile, or stages larger ones; "" if it does not.

    Args:
        runs: the hand-in.
        kernel: launched with tile × tile threads, one for each element of its block's patch of C.
        tile: the side.
        size: whose sides the tile divides.
    """
    if staged := other_shared(runs, kernel, tile):
        return staged
    a, b = verify.inputs(size)
    for block in sample_blocks(runs.step(kernel).grid(size), 4, seed(runs.source)):
        c = np.full(size[:2], np.nan, np.float32)
        runs.trace(kernel, a, b, c, size, [block])
        rows, columns = np.nonzero(~np.isnan(c))
        spans = [np.ptp(side) + 1 if len(side) else 0 for side in (rows, columns)]
        if len(rows) != tile * tile or spans != [tile, tile]:
            return (
                f"{kernel} at {label(size)}: block {block[:2]} computes {len(rows):,} elements of C in {spans[0]} rows "
                f"and {spans[1]} columns. A block of {tile} × {tile} threads is to compute {tile} × {tile}"
            )
    return ""


def other_shared(runs: Runs, kernel: str, tile: int) -> str:
    """Whether a kernel's static shared memory is larger than its two tiles can be; "" if it is not."""
    shared = runs.shared_bytes(kernel)
    plain, most = 2 * tile * tile * FLOAT_BYTES, BUFFERS * 2 * tile * (tile + PADDING) * FLOAT_BYTES
    if shared <= most:
        return ""
    return (
        f"{kernel} keeps {shared:,} bytes in shared memory. Two tiles of {tile} × {tile} floats are {plain:,}, "
        f"{most:,} with padding and twice: the tile is to stay {tile}"
    )
