"""Exercise room: checks what a student wrote, stage by stage, and says what to look at.

found and compiles → safe in the tracer → correct → audit → order of speed. A stage that fails ends the check: what
comes after it is not run, and says so. The days' demands stand in ``exercise_gates``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gpudays import compiler, exercise_ratios, gpu
from gpudays.compiler import CompileError
from gpudays.exercise_answers import is_correct, is_safe
from gpudays.exercise_attempt import Attempt
from gpudays.exercise_audit import audit
from gpudays.exercise_gates import EXERCISES, beyond
from gpudays.exercise_order import order_of_speed
from gpudays.exercise_report import FAILED, NOT_RUN, NOT_WRITTEN, PASSED, STAGES, Report, Stage
from gpudays.runs import ParameterError, Runs


def check(
    day: str,
    source: str,
    baseline: str,
    on_gpu: bool | None = None,
    begin: Callable[[str], None] = lambda stage: None,
) -> Report:
    """Check a hand-in.

    Args:
        day: "day43", …
        source: the student's CUDA C++, kernels only.
        baseline: the page's own source, whose first kernel is the baseline.
        on_gpu: verify and time on the card (default: if there is one).
        begin: called with each stage's name as it begins, for progress.

    Returns:
        The report; a bad hand-in is a report too, never an exception.

    Raises:
        KeyError: the day has no exercise.
    """
    if day not in EXERCISES:
        raise KeyError(f"{day} has no exercise: there is one for {', '.join(EXERCISES)}")
    exercise = EXERCISES[day]
    on_gpu = gpu.device() is not None if on_gpu is None else on_gpu
    attempt = Attempt(exercise, Runs(source, exercise.day), given(day, baseline), on_gpu)
    stages: list[Stage] = []
    for name, run in zip(STAGES, (is_found, is_safe, is_correct, audit, order_of_speed), strict=True):
        stopped = next((s for s in stages if s.status in (FAILED, NOT_WRITTEN)), None)
        if not stopped:
            begin(name)
        stages.append(Stage(name, NOT_RUN, (f"because of: {stopped.name}",)) if stopped else run(name, attempt))
    return Report(day, tuple(stages), exercise_ratios.complete(exercise, attempt.ratios), beyond(exercise, on_gpu))


@lru_cache(maxsize=8)
def given(day: str, baseline: str) -> Runs:
    """The runs of the page's own source, kept: what it counts is counted once for a class."""
    return Runs(baseline, EXERCISES[day].day)


def is_found(name: str, attempt: Attempt) -> Stage:
    """Does it compile, are the kernels there, have they the right parameters."""
    try:
        kernels = attempt.student.program.kernels
    except CompileError as problem:
        return Stage(name, FAILED, (str(problem),), "start with the first message: later ones often follow from it")
    wanted = attempt.exercise.kernels
    missing, notes = [], []
    for kernel in wanted:
        try:
            notes += [attempt.student.signature(kernel).note, _launched(attempt, kernel)]
        except compiler.KernelNotFound as problem:
            missing.append((kernel, str(problem)))
        except ParameterError as problem:
            return Stage(name, FAILED, (str(problem),), "keep the parameters of the page's kernel")
    if len(missing) == len(wanted) and len(kernels) <= 1:
        return Stage(name, NOT_WRITTEN, (f"to write: {', '.join(wanted)}",))
    empty = [kernel for kernel in wanted if not missing and attempt.student.is_empty(kernel)]
    if empty:
        return Stage(name, NOT_WRITTEN, (f"to write: {', '.join(empty)}",))
    if missing:
        return Stage(name, FAILED, tuple(text for _, text in missing), "the check finds kernels by their names")
    return Stage(name, PASSED, (f"found {', '.join(wanted)}", *filter(None, notes)))


def _launched(attempt: Attempt, kernel: str) -> str:
    """A note where a kernel gets its threads in another shape than the page's."""
    page, here = attempt.exercise.day.step(kernel).block, attempt.student.step(kernel).block
    if page == here or attempt.exercise.day.launched:
        return ""
    return f"{kernel} reads no threadIdx.y: launched with {here[0]} × {here[1]} threads, not {page[0]} × {page[1]}"
