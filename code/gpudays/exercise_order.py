"""Exercise room, the order of speed: times on the card, the page's own baseline just before the student's kernels."""

from __future__ import annotations

from gpudays import exercise_ratios, gpu, turns
from gpudays.course.steps import Size, label
from gpudays.exercise_attempt import Attempt
from gpudays.exercise_gates import Order
from gpudays.exercise_report import FAILED, NOT_GATED, PASSED, Ratio, Stage
from gpudays.ptx.model import LaunchError


def order_of_speed(name: str, attempt: Attempt) -> Stage:
    """Times on the card, the baseline first, in this process; without a card the order is not gated."""
    orders = attempt.exercise.orders
    if not orders:
        return Stage(name, NOT_GATED, ("this day gates no order",))
    if not attempt.on_gpu:
        for order in orders:
            for size in (*order.gated, *order.reported):
                what, needs = exercise_ratios.speedup(order, size), exercise_ratios.needs(order, size)
                attempt.ratios.append(Ratio(what, None, needs, f"{NOT_GATED}: no GPU"))
        return Stage(name, NOT_GATED, (f"not gated: no GPU ({gpu.why_no_gpu()})",))
    sizes = dict.fromkeys(size for order in orders for size in (*order.gated, *order.reported))
    try:
        with turns.turn():
            times = {size: _times(attempt, size) for size in sizes}
    except (LaunchError, gpu.GpuFault) as problem:
        return Stage(name, FAILED, (str(problem),), "the tracer ran the same kernel in a sample only, or for less long")
    failures = [line for order in orders for size in sizes if (line := _gate(attempt, order, size, times[size]))]
    seen = [f"at {label(size)}: " + ", ".join(f"{k} {t}" for k, t in of.items()) for size, of in times.items()]
    hint = "read the sectors per request and the loads per thread together with the time" if failures else ""
    reached = PASSED if any(order.gated for order in orders) else NOT_GATED
    return Stage(name, FAILED if failures else reached, (*failures, *seen), hint)


def _times(attempt: Attempt, size: Size) -> dict[str, gpu.Timing]:
    """The baseline, and right after it the student's kernels."""
    base = attempt.exercise.baseline
    found = {base: attempt.baseline.time(base, size)}
    return found | {kernel: attempt.student.time(kernel, size) for kernel in attempt.exercise.kernels}


def _gate(attempt: Attempt, order: Order, size: Size, times: dict[str, gpu.Timing]) -> str:
    """Adds the ratio to the report; a line if a gated one fails, else ""."""
    if size not in (*order.gated, *order.reported):
        return ""
    ratio = times[order.slower].median / times[order.faster].median
    gated = size in order.gated
    status = NOT_GATED if not gated else PASSED if ratio > order.at_least else FAILED
    what = exercise_ratios.speedup(order, size)
    attempt.ratios.append(Ratio(what, ratio, exercise_ratios.needs(order, size), status))
    return "" if status != FAILED else f"{what} is {ratio:.2f}, and has to be above {order.at_least:g}"
