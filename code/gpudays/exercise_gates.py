"""Gates room: what each day's exercise has to meet, as a table. How it is checked stands in ``exercise``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpudays.course import day44
from gpudays.course.models import load_limit
from gpudays.course.predictions import MORE
from gpudays.course.steps import DAY16, DAY43, Day, Size, square


@dataclass(frozen=True)
class Order:
    """One kernel has to be faster than another, on a GPU.

    Attributes:
        faster, slower: kernel names; ``slower`` may be the day's baseline.
        gated: sizes at which it has to be.
        reported: sizes at which the ratio is only reported.
        at_least: the speed-up that the gated sizes must exceed: by default what two runs of one kernel do not show.
    """

    faster: str
    slower: str
    gated: tuple[Size, ...]
    reported: tuple[Size, ...] = ()
    at_least: float = MORE


@dataclass(frozen=True)
class Exercise:
    """What is handed in on a day and what is asked of it.

    Attributes:
        day: the day; its steps give launch, arguments and titles.
        baseline: the kernel that the page gives, timed from the page's own source just before the student's.
        kernels: the kernels to write, in order.
        small_sizes: whole, in the tracer, for bounds, races and barriers: small and odd ones.
        sizes: verified: on a GPU there; else in the tracer, whole up to ``whole_up_to`` and a sample of blocks above.
        whole_up_to: the largest m (and n and k) that the tracer runs whole.
        loads: for a kernel, the most floats that a thread may read from global memory, as a function of k.
        fewer_sectors: pairs of kernels (fewer, than): sectors per load request, gated where there is no GPU.
        orders: who has to be faster.
        tiles: for a kernel, the side of its tiles and of the patch that a block computes, which is to stay.
        untiled: what the kernel is called that still reads every operand from global memory.
        no_spill: architectures on which the kernels may spill no register.
        wavefronts: for a kernel, the most shared wavefronts for each multiply-add, at the first of ``sizes``.
    """

    day: Day
    baseline: str
    kernels: tuple[str, ...]
    small_sizes: tuple[Size, ...]
    sizes: tuple[Size, ...]
    whole_up_to: int = 512
    loads: Mapping[str, Callable[[int], int]] = field(default_factory=dict)
    fewer_sectors: tuple[tuple[str, str], ...] = ()
    orders: tuple[Order, ...] = ()
    tiles: Mapping[str, int] = field(default_factory=dict)
    untiled: str = "step 2"
    no_spill: tuple[str, ...] = ()
    wavefronts: Mapping[str, float] = field(default_factory=dict)


def beyond(exercise: Exercise, on_gpu: bool) -> tuple[str, ...]:
    """The stages that cannot be gated: the order of speed without a GPU, or on a day that asks for none."""
    gated = on_gpu and any(order.gated for order in exercise.orders)
    return () if gated else ("order of speed",)


EXERCISES: dict[str, Exercise] = {
    "day16": Exercise(
        day=DAY16,
        baseline="matmulNaive",
        kernels=("matmulTiled",),
        small_sizes=((1, 1, 1), (17, 1, 33), (16, 16, 16), (35, 79, 19), (35, 19, 79), (20, 50, 3)),
        sizes=(square(256), (300, 260, 500)),
        loads={"matmulTiled": load_limit},
        orders=(Order("matmulTiled", "matmulNaive", gated=(), reported=(square(256), square(512))),),
        tiles={"matmulTiled": 16},
        untiled="matmulNaive",
    ),
    "day43": Exercise(
        day=DAY43,
        baseline="matmulStridedRows",
        kernels=("matmulCoalescedCols", "matmulTiled"),
        small_sizes=tuple(square(n) for n in (1, 15, 16, 17, 33, 35, 64, 260)),
        sizes=(square(512), square(1024)),
        loads={"matmulTiled": load_limit},
        tiles={"matmulTiled": 16},
        fewer_sectors=(("matmulCoalescedCols", "matmulStridedRows"),),
        orders=(
            Order("matmulCoalescedCols", "matmulStridedRows", gated=(square(512), square(1024))),
            Order("matmulTiled", "matmulCoalescedCols", gated=(square(1024),), reported=(square(512),)),
            Order("matmulTiled", "matmulStridedRows", gated=(), reported=(square(512), square(1024))),
        ),
    ),
    "day44": Exercise(
        day=day44.EXERCISE,
        baseline=day44.TILED,
        kernels=(day44.REGISTERS,),
        small_sizes=tuple(square(n) for n in (1, 15, 17, 63, 64, 100)),
        sizes=day44.EXERCISE.sizes,
        no_spill=("sm_75",),
        wavefronts={day44.REGISTERS: day44.EXERCISE_WAVEFRONTS},
        orders=(Order(day44.REGISTERS, day44.TILED, gated=(square(2048),), reported=(square(256),), at_least=2.0),),
    ),
}
