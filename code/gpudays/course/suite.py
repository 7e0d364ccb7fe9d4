"""Suite room: the classic optimisation study as a table: kernels 0 to 5, how each is launched, which sizes each takes.

The kernels stand in ``code/optimizer/optimizer.cu`` (1 to 4) and ``cpu_loop.cpp`` (0); 5 is cuBLAS. The days' own steps
can be put on the same bench: they take squares only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpudays.course.models import TILE, ceil_div, naive_loads_per_thread, tiled_loads_per_thread
from gpudays.course.steps import DAY43, DAY44, Day, Size, Step, rows_from_y, square, tiled

PROGRAM = "code/optimizer/optimizer.cu"
CPU_SOURCE = "code/optimizer/cpu_loop.cpp"
CPU, CUBLAS = "matmulCpu", "cublasSgemm"
BENCH_SIZES = (square(256), square(1024), square(4096))
VERIFY_SIZES = ((35, 79, 19), (1, 1, 1), (17, 1, 33), (36, 80, 20), square(33), square(256))

# What the published benchmark calls the kernels. Its third loads float4 behind checks, as ours; its text is not known.
PUBLISHED = {
    "0 CPU baseline": CPU,
    "1 GPU naive": "matmulNaive",
    "2 shared-memory tiling": "matmulTiled",
    "3 vectorized loads": "matmulVectorGuarded",
    "4 thread coarsening": "matmulCoarsened2x2",
    "5 cuBLAS": CUBLAS,
}


def coarsened(number: int, rows: int, cols: int) -> Step:
    """Kernel 4 with rows × cols outputs per thread: a block of 16 × 16 threads computes (16·rows) × (16·cols)."""
    return Step(
        number, f"matmulCoarsened{rows}x{cols}", f"{rows} × {cols} outputs per thread",
        lambda size: (ceil_div(size[1], TILE * cols), ceil_div(size[0], TILE * rows)),
        lambda k: (rows + cols) * ceil_div(k, TILE), 4.0, tile=(TILE * cols, TILE * rows),
    )  # fmt: skip


SUITE = Day(
    name="optimizer",
    title="The optimisation suite",
    steps=(
        Step(1, "matmulNaive", "one thread per output", rows_from_y(), naive_loads_per_thread, 2.0),
        tiled(2, "matmulTiled", "tiles in shared memory"),
        Step(3, "matmulVectorGuarded", "float4 behind checks", rows_from_y(), tiled_loads_per_thread, 16.0),
        Step(3, "matmulVectorFast", "float4 without checks", rows_from_y(), tiled_loads_per_thread, 16.0),
        coarsened(4, 2, 2),
    ),
    sizes=BENCH_SIZES,
    odd_sizes=VERIFY_SIZES[:5],
    scalars=lambda size: [np.int32(side) for side in size],
    program=PROGRAM,
    page="book/optimisation-notes.md",
    profiles="optimizer",
    sweep=tuple(coarsened(4, *shape) for shape in ((1, 1), (1, 2), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8))),
    warmups=10,
    repeats=100,
)


def _any(size: Size) -> str:
    return ""


def _multiples_of_4(size: Size) -> str:
    return "" if size[1] % 4 == 0 and size[2] % 4 == 0 else "N and K have to be multiples of 4"


def _square(size: Size) -> str:
    return "" if size[0] == size[1] == size[2] else "it takes square matrices only"


@dataclass(frozen=True)
class Entry:
    """One kernel on the bench.

    Attributes:
        key: what the command line calls it: "0" to "5", "3f", "step1" to "step6".
        kernel: its name.
        title: what it does, in a few words.
        day: where its launch is described; None for the CPU loop and cuBLAS.
        refuses: why it does not take a size (m, n, k), or "".
    """

    key: str
    kernel: str
    title: str
    day: Day | None = None
    refuses: Callable[[Size], str] = _any

    @property
    def label(self) -> str:
        """Its name in tables: the kernel's, with the step where two kernels of the bench share one."""
        return f"{self.key} {self.kernel}" if self.key.startswith("step") else self.kernel


def _suite() -> list[Entry]:
    keys = ("1", "2", "3", "3f", "4")
    fast = {"3f": _multiples_of_4}
    found = [Entry("0", CPU, "three loops on one CPU thread")]
    found += [
        Entry(key, step.kernel, step.title, SUITE, fast.get(key, _any))
        for key, step in zip(keys, SUITE.steps, strict=True)
    ]
    return [*found, Entry("5", CUBLAS, "cuBLAS in FP32, TF32 off")]


def _ladder() -> list[Entry]:
    return [
        Entry(f"step{step.number}", step.kernel, step.title, day, _square)
        for day in (DAY43, DAY44)
        for step in day.steps
    ]


ENTRIES: dict[str, Entry] = {entry.key: entry for entry in (*_suite(), *_ladder())}
KEYS = tuple(entry.key for entry in _suite())


def entry(key: str) -> Entry:
    """The entry that the command line means: a key, or a kernel's name of the suite.

    Raises:
        KeyError: none is called so; the message lists the keys.
    """
    if key in ENTRIES:
        return ENTRIES[key]
    for found in ENTRIES.values():
        if found.kernel == key:
            return found
    known = ", ".join(f"{e.key} ({e.kernel})" for e in ENTRIES.values())
    raise KeyError(f"no kernel {key!r} on the bench; it has {known}")
