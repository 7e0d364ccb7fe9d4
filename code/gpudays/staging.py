"""Staging room: what one block brings into its tiles in one tile step, and which banks its warps use; from addresses.

Everything here is read off the compiled kernel by ``gpudays.trace_accesses``; nothing is reckoned from the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import gpudays
from gpudays import verify
from gpudays.course.geometry import FLOAT_BYTES, WARP_SIZE
from gpudays.course.models import ceil_div
from gpudays.course.steps import Size
from gpudays.ptx import accounting
from gpudays.ptx.model import BANKS, Access
from gpudays.runs import Runs

TILES = ("tileA", "tileB")  # in the order in which the kernels write them


@dataclass(frozen=True)
class Staged:
    """What one block reads from A and from B in one tile step.

    Attributes:
        size: (m, n, k).
        block: its (x, y).
        tile_step: from 0.
        tile: side of the tiles.
        elements: for "A" and "B" an int array (floats, 3): row, column, and the warp that reads it.
    """

    size: Size
    block: tuple[int, int]
    tile_step: int
    tile: int
    elements: dict[str, np.ndarray]

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of each matrix."""
        m, n, k = self.size
        return {"A": (m, k), "B": (k, n), "C": (m, n)}

    @property
    def corners(self) -> dict[str, tuple[int, int]]:
        """Row and column where each tile begins, whether or not it lies inside its matrix."""
        (x, y), start = self.block, self.tile_step * self.tile
        return {"A": (y * self.tile, start), "B": (start, x * self.tile), "C": (y * self.tile, x * self.tile)}

    @property
    def zeros(self) -> int:
        """Tile elements that nothing is read for: the kernel writes 0 there."""
        return 2 * self.tile**2 - sum(len(floats) for floats in self.elements.values())


def staged(runs: Runs, kernel: str, size: Size, block: tuple[int, int], tile_step: int) -> Staged:
    """Run one block, look at every warp, and keep what it reads from A and B in one tile step.

    Args:
        runs: the source and its day.
        kernel: a tiled one: in each tile step it stores into its two tiles, once each.
        size: (m, n, k).
        block: (x, y) in the grid.
        tile_step: from 0.

    Raises:
        ValueError: the grid has no such block, or K no such tile step; says which there are.
    """
    step = runs.step(kernel)
    grid, tile = step.grid(size), step.block[0]
    steps = ceil_div(size[2], tile)
    if not (0 <= block[0] < grid[0] and 0 <= block[1] < grid[1] and 0 <= tile_step < steps):
        last = f"blocks (0, 0) to ({grid[0] - 1}, {grid[1] - 1}) and tile steps 0 to {steps - 1}"
        raise ValueError(f"no block {block} with a tile step {tile_step}: at {verify.label(size)} there are {last}")
    found: dict[str, list[np.ndarray]] = {"A": [], "B": []}
    enough = (tile_step + 1) * (2 * len(TILES) + 2 * tile)  # loads, stores and the reads of each product, step by step
    for warp in range(ceil_div(tile * tile, WARP_SIZE)):
        for access in _of_step(_accesses(runs, kernel, size, block, warp, enough), tile_step):
            if access.space == "global" and access.buffer in (0, 1):
                matrix, width = (("A", size[2]), ("B", size[1]))[access.buffer]
                row, col = np.divmod(access.offsets[access.active] // FLOAT_BYTES, width)
                found[matrix].append(np.stack([row, col, np.full_like(row, warp)], axis=1))
    nothing = np.empty((0, 3), np.int64)
    return Staged(size, block, tile_step, tile, {name: np.concatenate([nothing, *f]) for name, f in found.items()})


@dataclass(frozen=True)
class BankUse:
    """One shared-memory request of one warp.

    Attributes:
        name: "write tileA", "read tileB", …
        words: 4-byte word of each active lane, counted from the row of 32 banks in which the lowest one lies.
        wavefronts: the turns that the request takes.
    """

    name: str
    words: np.ndarray
    wavefronts: int


def bank_use(runs: Runs, kernel: str, size: Size, warp: int = 0) -> list[BankUse]:
    """The first write and the first read of each tile by one warp of block (0, 0)."""
    both = runs.program.resources()[runs.signature(kernel).name].shared_bytes
    found: dict[str, BankUse] = {}
    for access in _accesses(runs, kernel, size, (0, 0), warp, limit=4 * len(TILES)):
        if access.space == "shared":
            second = access.offsets[access.active].min() >= both // 2
            name = f"{'write' if access.op == 'st' else 'read'} {TILES[int(second)]}"
            found.setdefault(name, _bank_use(name, access))
    order = [f"{op} {tile}" for op in ("write", "read") for tile in TILES]
    return [found[name] for name in order if name in found]


def _bank_use(name: str, access: Access) -> BankUse:
    turns = accounting.shared_wavefronts(access.addresses[None], access.width, access.active[None], access.op)
    words = access.offsets[access.active] // FLOAT_BYTES
    return BankUse(name, words - words.min() // BANKS * BANKS, int(turns[0]))


def _accesses(runs: Runs, kernel: str, size: Size, block: tuple[int, int], warp: int, limit: int) -> list[Access]:
    """The first accesses of one warp of one block, in order."""
    step = runs.step(kernel)
    a, b = verify.inputs(size)
    return gpudays.trace_accesses(
        runs.source,
        kernel,
        grid=step.grid(size),
        block=step.block,
        args=[a, b, np.empty(size[:2], np.float32), *runs.arguments(kernel, size)],
        at_block=(*block, 0),
        warp=warp,
        limit=limit,
        arch=runs.arch,
    )


def _of_step(accesses: Sequence[Access], tile_step: int) -> Iterator[Access]:
    """The accesses of one tile step: each ends its staging with the second of two stores into shared memory."""
    stores = 0
    for access in accesses:
        if stores // len(TILES) == tile_step:
            yield access
        stores += access.space == "shared" and access.op == "st"
