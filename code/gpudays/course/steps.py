"""Steps room: each day as a table: its kernels in the order a reader meets them, how each is launched, at which sizes.

A size is (m, n, k): C is m × n, the inner dimension is k, all matrices row-major floats. Square days write one number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from gpudays import measurements
from gpudays.course import tiles
from gpudays.course.models import TILE, ceil_div, naive_loads_per_thread, tiled_loads_per_thread
from gpudays.course.tiles import Tiles

Size = tuple[int, int, int]
Grid = tuple[int, int]


@dataclass(frozen=True)
class Step:
    """One kernel of a day.

    Attributes:
        number: its place in the ladder; what figures and tables call "step 2".
        kernel: the name of its entry.
        title: what changed against the step before, in a few words.
        grid: gridDim (x, y) for a size.
        loads_per_thread: floats that a thread reads from global memory, on paper, for an inner dimension k.
        sectors_per_request: 32-byte sectors of a mean global load request, on paper.
        block: blockDim.
        shared_bytes: dynamic shared memory.
        tile: columns and rows of C that a block computes, where a thread computes more than one element.
    """

    number: int
    kernel: str
    title: str
    grid: Callable[[Size], Grid]
    loads_per_thread: Callable[[int], int]
    sectors_per_request: float
    block: tuple[int, int] = (TILE, TILE)
    shared_bytes: int = 0
    tile: tuple[int, int] | None = None

    @property
    def covers(self) -> tuple[int, int]:
        """Columns and rows of C that a block computes, in the order of its x and y."""
        return self.tile or self.block


@dataclass(frozen=True)
class Day:
    """A day of the course.

    Attributes:
        name: as the command line writes it, "day43".
        title: the page's.
        steps: the kernels, in order.
        sizes: what the page measures; each (m, n, k).
        odd_sizes: sizes at which whole blocks do not fit, for checks.
        scalars: the kernel arguments after A, B and C, as NumPy scalars of the declared width.
        program: the standalone program, relative to the top of the repository.
        page: the page's MyST source, relative to the top of the repository.
        profiles: folder of the shipped profiles under ``content/profiles``.
        sweep: kernels that the page compares besides its ladder, such as other tile sizes of one kernel.
        warmups, repeats: launches before and during a timing.
        launched: for days whose sources declare their tile sizes: the step with the launch that (step, source,
            architecture) needs; None: the step as the table has it.
    """

    name: str
    title: str
    steps: tuple[Step, ...]
    sizes: tuple[Size, ...]
    odd_sizes: tuple[Size, ...]
    scalars: Callable[[Size], list[np.generic]]
    program: str
    page: str
    profiles: str
    sweep: tuple[Step, ...] = ()
    warmups: int = 3
    repeats: int = 10
    launched: Callable[[Step, str, str], Step] | None = None
    by_kernel: dict[str, Step] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_kernel", {step.kernel: step for step in (*self.sweep, *self.steps)})

    def step(self, kernel: str) -> Step:
        """The step of a kernel's name.

        Raises:
            KeyError: this day has no such kernel; the message lists those it has.
        """
        if kernel not in self.by_kernel:
            raise KeyError(f"{self.name} has no kernel {kernel!r}: it has {', '.join(self.by_kernel)}")
        return self.by_kernel[kernel]

    def launch(self, kernel: str, source: str, arch: str) -> Step:
        """The step of a kernel's name with the launch that a source needs on an architecture.

        Raises:
            KeyError: as `step` does.
        """
        step = self.step(kernel)
        return self.launched(step, source, arch) if self.launched else step


def square(n: int) -> Size:
    """(n, n, n)."""
    return (n, n, n)


def label(size: Size) -> int | str:
    """A size as the measurements table writes it: 512 for a square, "35x19x79" (m x n x k) for anything else."""
    return measurements.size_label(*size)


def rows_from_y(tile: int = TILE) -> Callable[[Size], Grid]:
    """The usual grid: x over the columns of C, y over its rows."""
    return lambda size: (ceil_div(size[1], tile), ceil_div(size[0], tile))


def tiled(number: int, kernel: str, title: str, tile: int = TILE) -> Step:
    """A kernel whose tile × tile blocks stage tiles of A and B; of 8 floats and more, a tile row is whole sectors."""
    return Step(number, kernel, title, rows_from_y(tile), lambda k: tiled_loads_per_thread(k, tile), 4.0, (tile, tile))


def rows_from_x(tile: int = TILE) -> Callable[[Size], Grid]:
    """The grid of the one kernel that swaps them: x over the rows of C, y over its columns."""
    return lambda size: (ceil_div(size[0], tile), ceil_div(size[1], tile))


def patched(number: int, kernel: str, title: str, cut: Tiles, sectors: float) -> Step:
    """A kernel whose threads compute a patch of outputs each, from tiles of A and B in shared memory."""
    block, tile = (cut.threads, 1), (cut.bn, cut.bm)
    return Step(number, kernel, title, cut.grid, cut.loads_per_thread, sectors, block, tile=tile)


def as_declared(step: Step, source: str, arch: str) -> Step:
    """The step launched as the tile sizes in its source ask for.

    Raises:
        tiles.TilesNotDeclared: the source does not say them.
    """
    cut = tiles.declared(source, step.kernel, arch)
    block, tile = (cut.threads, 1), (cut.bn, cut.bm)
    return replace(step, grid=cut.grid, loads_per_thread=cut.loads_per_thread, block=block, tile=tile)


DAY43 = Day(
    name="day43",
    title="Day 43 · Optimizing matrix multiply, part 1",
    steps=(
        Step(1, "matmulStridedRows", "x picks the row", rows_from_x(), naive_loads_per_thread, 8.5),
        Step(2, "matmulCoalescedCols", "two index lines swapped", rows_from_y(), naive_loads_per_thread, 2.0),
        Step(3, "matmulTiled", "tiles in shared memory", rows_from_y(), tiled_loads_per_thread, 4.0),
    ),
    sizes=(square(512), square(1024)),
    odd_sizes=(square(1), square(15), square(17), square(260)),
    scalars=lambda size: [np.uint64(size[1])],
    program="code/day43-matmul-1/matmul_steps.cu",
    page="book/day43-matmul-1.md",
    profiles="optimizing-matmul-1",
)

DAY16 = Day(
    name="day16",
    title="Day 16 · Tiled matrix multiply",
    steps=(
        Step(1, "matmulNaive", "one thread per output", rows_from_y(), naive_loads_per_thread, 2.0),
        tiled(2, "matmulTiled", "tiles in shared memory"),
    ),
    sizes=(square(256), square(512)),
    odd_sizes=((35, 79, 19), (1, 1, 1), (17, 1, 33)),
    scalars=lambda size: [np.int32(side) for side in size],
    program="code/day16-tiled-matmul/matmul_tiled.cu",
    page="book/day16-tiled-matmul.md",
    profiles="tiled-matmul",
    sweep=(
        tiled(1, "matmulTiled8", "TILE = 8", 8),
        tiled(2, "matmulTiled", "TILE = 16"),
        tiled(3, "matmulTiled32", "TILE = 32", 32),
    ),
)

# The tiles that stand here are an older card's; what is launched is read from the source, for the card it is for.
DAY44 = Day(
    name="day44",
    title="Day 44 · Optimizing matrix multiply, part 2",
    steps=(
        patched(4, "matmulRegisterTile", "a patch of outputs per thread", Tiles(128, 128, 16, 8, 8), 4.0),
        patched(5, "matmulVectorLoads", "128 bits at a time", Tiles(128, 64, 16, 8, 8), 16.0),
        patched(6, "matmulWarpTiled", "warp tiles, loads ahead", Tiles(128, 128, 8, 8, 8, 32, 64, 2, 2), 16.0),
    ),
    sizes=(square(1024), square(4096)),
    odd_sizes=(square(1), square(17), square(130), square(260)),
    scalars=lambda size: [np.uint64(size[1])],
    program="code/day44-matmul-2/matmul_registers.cu",
    page="book/day44-matmul-2.md",
    profiles="optimizing-matmul-2",
    sweep=(
        patched(6, "matmulWarpTiledSmall", "step 6 for small matrices", Tiles(64, 64, 8, 8, 4, 32, 32, 2, 4), 16.0),
    ),
    launched=as_declared,
)

DAYS: dict[str, Day] = {day.name: day for day in (DAY16, DAY43, DAY44)}
