"""Exercise room, the ratios of a report: all that a day asks for, also where a check stopped before it came to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gpudays import measurements, metrics, profiles
from gpudays.course.evidence import Evidence
from gpudays.course.steps import DAYS, Size, label
from gpudays.exercise_gates import Exercise, Order
from gpudays.exercise_report import NOT_GATED, NOT_RUN, Ratio

CLOSE = 0.02  # a figure is the shipped one within two percent: a card's counters differ by that much among launches


def loads(kernel: str, size: Size) -> str:
    """What a ratio is called: floats loaded per thread."""
    return f"{kernel} at {label(size)}: floats loaded per thread"


def sectors(kernel: str, size: Size) -> str:
    """What a ratio is called: sectors per request."""
    return f"{kernel} at {label(size)}: sectors per request"


def shipped(kernel: str, size: Size) -> str:
    """What a ratio is called: sectors per request beside the shipped report's."""
    return f"{sectors(kernel, size)}, beside the shipped report"


def speedup(order: Order, size: Size) -> str:
    """What a ratio is called: a speed-up."""
    return f"{order.slower} → {order.faster} at {label(size)}: speed-up"


def needs(order: Order, size: Size) -> str:
    """What a speed-up has to be."""
    return f"above {order.at_least:g}" if size in order.gated else "reported only"


def complete(exercise: Exercise, found: list[Ratio]) -> tuple[Ratio, ...]:
    """The ratios that were found, and in their places those that the check did not come to."""
    left = {ratio.what: ratio for ratio in found}
    rows = [left.pop(what, Ratio(what, None, wanted, NOT_RUN)) for what, wanted in _planned(exercise)]
    return (*rows, *left.values())


def _planned(exercise: Exercise) -> list[tuple[str, str]]:
    """What each ratio of the day is called and has to be, in the order of the report."""
    rows = [
        (loads(kernel, size), f"at most {limit(size[2])}")
        for kernel, limit in exercise.loads.items()
        for size in exercise.sizes
    ]
    rows += [(sectors(fewer, exercise.sizes[0]), f"below that of {than}") for fewer, than in exercise.fewer_sectors]
    if _comparable(exercise):
        rows += [(shipped(kernel, exercise.sizes[0]), "equal") for kernel in (exercise.baseline, *exercise.kernels)]
    for order in exercise.orders:
        rows += [(speedup(order, size), needs(order, size)) for size in (*order.gated, *order.reported)]
    return rows


def beside_shipped(exercise: Exercise, counted: Callable[[str, Size], float]) -> list[Ratio]:
    """Sectors per request of the day's kernels at its first size, beside the shipped report's; never gated.

    Args:
        exercise: the day's.
        counted: sectors per request of a kernel of the hand-in (or of the given one) at a size.
    """
    if not _comparable(exercise):
        return []
    size, rows = exercise.sizes[0], []
    evidence = _shipped(exercise.day.profiles)
    for kernel in (exercise.baseline, *exercise.kernels):
        ours, theirs = counted(kernel, size), evidence.get(kernel, label(size), metrics.SECTORS_PER_REQUEST)
        if theirs is None:
            rows.append(Ratio(shipped(kernel, size), ours, "no shipped report", NOT_GATED))
            continue
        same = abs(ours - theirs.value) <= CLOSE * theirs.value
        wanted = f"{theirs.value:.2f} ({theirs.source}, {theirs.card})"
        rows.append(Ratio(shipped(kernel, size), ours, wanted, "equal" if same else "differs"))
    return rows


def _comparable(exercise: Exercise) -> bool:
    """Whether the shipped reports are of the launches that the exercise makes."""
    return DAYS.get(exercise.day.name) is exercise.day


@lru_cache(maxsize=8)
def _shipped(folder: str) -> Evidence:
    figures = profiles.shipped(folder)
    return Evidence(measurements.with_derived(figures.table), figures.card, ("shipped",))
