"""Day 44 on paper: what a patch of outputs costs shared memory and registers, and the ceiling that follows.

The predictions that rest on it stand in ``day44_predictions``.
"""

from __future__ import annotations

import numpy as np

from gpudays.course.geometry import FLOAT_BYTES, WARP_SIZE, count_wavefronts, warp_lanes
from gpudays.course.steps import DAY43, DAY44, Day, Size, Step, rows_from_y, square, tiled
from gpudays.course.tiles import MACROS, Tiles

KERNELS = tuple(step.kernel for step in (*DAY43.steps, *DAY44.steps))
TILED, REGISTERS, VECTORS, WARPS = KERNELS[2:]
STEPS = (*DAY43.steps, *DAY44.steps)
WARPS_SMALL = DAY44.sweep[0].kernel  # step 6 for matrices that large tiles would cut into too few blocks
CUBLAS = "cuBLAS"
TIMED = (*STEPS, *DAY44.sweep)  # step 6 twice: with its large tiles and with its small ones
LADDER_SIZES = (512, 1024, 2048, 4096)
LARGE = (2048, 4096)  # where the last step is held against cuBLAS

# Multiply-adds in float32 that an SM issues in a cycle, for one thread each. Source: CUDA C++ Programming Guide,
# "Throughput of Native Arithmetic Instructions", row "32-bit floating-point add, multiply, multiply-add".
FP32_LANES = {"sm_75": 64, "sm_80": 64, "sm_86": 128, "sm_89": 128, "sm_90": 128, "sm_100": 128, "sm_120": 128}
# TFLOP/s in float32 without tensor cores, from the makers' data sheets: "NVIDIA H200 Tensor Core GPU" (67, SXM),
# "NVIDIA T4" (8.1).
PUBLISHED_PEAK = {"NVIDIA H200": 67.0, "Tesla T4": 8.1}

# Outputs per thread of the sweep, rows × columns: blocks of 16 × 16 threads, 16 steps of k at a time.
SWEEP = {
    f"{tm}×{tn}": Tiles(16 * tm, 16 * tn, 16, tm, tn)
    for tm, tn in ((1, 1), (2, 2), (2, 4), (4, 4), (8, 4), (8, 8), (16, 8), (16, 16))
}

EXERCISE_TILE = 64  # rows and columns of C that a block of the exercise computes
EXERCISE_WAVEFRONTS = 0.75  # bound on shared wavefronts per multiply-add: 4 × 4 patches take 0.5, step 3 takes 2

# The exercise's own launches: step 3, and a step 4 that keeps its block of 16 × 16 threads, each with 4 × 4 outputs.
EXERCISE: Day = Day(
    name="day44",
    title=DAY44.title,
    steps=(
        tiled(3, TILED, "tiles in shared memory"),
        Step(
            4, REGISTERS, "a patch of outputs per thread", rows_from_y(EXERCISE_TILE),
            lambda k: 8 * -(-k // 16), 4.0, tile=(EXERCISE_TILE, EXERCISE_TILE),
        ),
    ),
    sizes=(square(256), square(2048)),
    odd_sizes=DAY44.odd_sizes,
    scalars=DAY44.scalars,
    program=DAY44.program,
    page=DAY44.page,
    profiles=DAY44.profiles,
)  # fmt: skip


def swept(patch: str) -> str:
    """What the sweep's kernel of a patch is called in the measurements table: "matmulRegisterTile, 8×8"."""
    return f"{REGISTERS}, {patch}"


def transplant(home: str) -> str:
    """What step 6 with the tiles of another architecture is called in the measurements table."""
    return f"{WARPS}, row of {home}"


def multiply_adds(size: Size) -> int:
    """Warp-wide multiply-adds of C = A·B at whole tiles: m·n·k products, 32 to an instruction."""
    return size[0] * size[1] * size[2] // WARP_SIZE


def tiled_wavefronts_per_fma() -> float:
    """Step 3: each multiply-add reads two words from shared memory, each read one wavefront."""
    lanes = warp_lanes((16, 16))
    return float(count_wavefronts(lanes.y * 16) + count_wavefronts(lanes.x))


def scalar_wavefronts_per_fma(cut: Tiles) -> float:
    """Step 4: for each k a thread reads tm words of A and tn of B, one by one, for tm·tn multiply-adds."""
    row, col = _patches(cut)
    of_a, of_b = count_wavefronts(row * cut.bk), count_wavefronts(col)
    return (cut.tm * of_a + cut.tn * of_b) / cut.outputs


def wide_wavefronts_per_fma(cut: Tiles) -> float:
    """Steps 5 and 6: the same words, four in one read, A's tile transposed so that its four are neighbours."""
    row, col = _patches(cut)
    wide = 4 * FLOAT_BYTES
    of_a, of_b = count_wavefronts(4 * row, wide), count_wavefronts(4 * col, wide)
    return (cut.tm // 4 * of_a + cut.tn // 4 * of_b) / cut.outputs


def wavefronts_per_fma(kernel: str, cut: Tiles | None = None) -> float:
    """Shared wavefronts for each warp-wide multiply-add on paper: of step 3 without tiles, of steps 4 to 6 with.

    Raises:
        KeyError: a kernel that uses no shared memory.
    """
    if kernel == TILED:
        return tiled_wavefronts_per_fma()
    if kernel not in MACROS or cut is None:
        raise KeyError(f"{kernel} has no tiles whose wavefronts could be told")
    return scalar_wavefronts_per_fma(cut) if kernel == REGISTERS else wide_wavefronts_per_fma(cut)


def _patches(cut: Tiles) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each lane's patch, counted in patches: lanes run along the columns first."""
    lane, columns = np.arange(WARP_SIZE), cut.lanes[1]
    return lane // columns, lane % columns


def fma_per_cycle(arch: str) -> int:
    """Warp-wide multiply-adds that an SM can issue in a cycle: 2 where it has 64 FP32 lanes, 4 where it has 128.

    Raises:
        ValueError: no figure for this architecture.
    """
    lanes = FP32_LANES.get(arch.rstrip("af"))
    if lanes is None:
        raise ValueError(f"no FP32 throughput for {arch}; there is for {', '.join(FP32_LANES)}")
    return lanes // WARP_SIZE


def ceiling(wavefronts: float, arch: str) -> float:
    """The share of the FP32 peak that shared memory allows, at one wavefront a cycle: above 1 it is not the limit."""
    return 1 / (wavefronts * fma_per_cycle(arch))


def outputs_of(kernel: str, cut: Tiles, thread: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns, in its block's tile, of the elements of C that a thread computes: tm rows, tn columns.

    Step 4 takes every (bm/tm)-th row; steps 5 and 6 take groups of four, so that a group is one 128-bit access.
    """
    if kernel == REGISTERS:
        down, across = cut.bm // cut.tm, cut.bn // cut.tn
        return thread // across + np.arange(cut.tm) * down, thread % across + np.arange(cut.tn) * across
    height, width = (cut.wm, cut.wn) if cut.wm else (cut.bm, cut.bn)
    down, across = height // cut.tm, width // cut.tn  # patches below and beside each other in that tile
    tile, lane = divmod(thread, down * across)
    top, left = tile // (cut.bn // width) * height, tile % (cut.bn // width) * width
    row, col = np.arange(cut.tm), np.arange(cut.tn)
    rows = row // 4 * 4 * down + lane // across * 4 + row % 4
    cols = col // 4 * 4 * across + lane % across * 4 + col % 4
    return top + rows, left + cols
