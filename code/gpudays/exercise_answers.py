"""Exercise room, are the answers right: safe in the tracer, then correct at every size."""

from __future__ import annotations

import numpy as np

from gpudays import exercise_tricks, gpu, turns, verify
from gpudays.course.steps import Size, label
from gpudays.exercise_attempt import Attempt, Caught, large_sizes, lines_of, other_tile, sizes_told, traced
from gpudays.exercise_report import FAILED, PASSED, Stage
from gpudays.ptx.model import LaunchError
from gpudays.runs import verify_sample

HINTS = {
    "out-of-bounds": "which threads lie outside the matrix at this size, and what keeps them from reading or writing?",
    "misaligned": "a float4 needs an address that is a multiple of 16 bytes: at which n is every row's start one?",
    "shared-race": "between writing a tile and reading it, and between reading it and overwriting it, all have to wait",
    "global-race": "two threads write the same element: which element is whose?",
    "uninitialized-shared": "is every element of the tile written at this size, also by threads outside the matrix?",
    "barrier": "every thread of the block has to reach every __syncthreads(): look for a return or an if before it",
    "outlasting": "what a kernel computes goes into c, and nowhere else",
    "budget": "which loop never ends at this size?",
}


def is_safe(name: str, attempt: Attempt) -> Stage:
    """Whole launches at small and odd sizes: bounds, alignment, races, barriers, unwritten tiles, endless loops.

    The answers are kept for the next stage.
    """
    for kernel in attempt.exercise.kernels:

        def run(a: np.ndarray, b: np.ndarray, c: np.ndarray, size: Size, kernel: str = kernel) -> None:
            traced(attempt, kernel, a, b, c, size)

        try:
            attempt.small[kernel] = verify.verify(run, attempt.small_sizes, kernel, attempt.seed)
        except Caught as caught:
            return _unsafe(name, attempt, kernel, *caught.args)
    return Stage(name, PASSED, (f"no finding at {sizes_told(attempt.small_sizes)}",))


def _unsafe(name: str, attempt: Attempt, kernel: str, seen: str, kind: str) -> Stage:
    """The stage's failure; a larger tile than the day's explains an unwritten one."""
    notes = [seen]
    if kind in ("uninitialized-shared", "out-of-bounds", "shared-race") and (
        tile := attempt.exercise.tiles.get(kernel)
    ):
        notes += filter(None, [exercise_tricks.other_shared(attempt.student, kernel, tile)])
    return Stage(name, FAILED, tuple(notes), HINTS.get(kind, ""))


def is_correct(name: str, attempt: Attempt) -> Stage:
    """Right at the small and odd sizes, and at the day's sizes on the card or in the tracer."""
    seen = []
    for kernel in attempt.exercise.kernels:
        found = list(attempt.small[kernel].problems)
        try:
            for at_the_days_sizes in (_in_tracer, _on_card) if attempt.on_gpu else (_in_tracer,):
                if found:
                    break
                _check_outlasting(attempt, kernel)  # beforehand, since it explains what comes out wrong
                found, line = at_the_days_sizes(attempt, kernel)
                seen.append(line)
            if not found:
                _check_outlasting(attempt, kernel)
        except Caught as caught:
            return _unsafe(name, attempt, kernel, *caught.args)
        if found:
            return Stage(name, FAILED, (*map(str, found), *_where_written(attempt, kernel)), _hint_wrong(found[0]))
    return Stage(name, PASSED, (*seen, f"and at {sizes_told(attempt.small_sizes)} in the tracer"))


def _check_outlasting(attempt: Attempt, kernel: str) -> None:
    """Raise Caught if any launch so far left something behind for the next one."""
    if left := exercise_tricks.outlasting(kernel, attempt.touched[kernel]):
        raise Caught(left, "outlasting")


def _where_written(attempt: Attempt, kernel: str) -> list[str]:
    """The lines that write C: where to begin to look."""
    lines = sorted({t.line for t in attempt.touched[kernel] if t.buffer == 2 and t.op != "ld"})
    return ["\n".join(["c is written here:", *lines_of(attempt.student.source, *lines)])] if lines else []


def _on_card(attempt: Attempt, kernel: str) -> tuple[list[verify.Problem], str]:
    """The day's sizes on the GPU: problems, and what was tried."""

    def run(a: np.ndarray, b: np.ndarray, c: np.ndarray, size: Size) -> None:
        attempt.student.launch(kernel, a, b, c, size)

    sizes = attempt.exercise.sizes
    attempt.student.step_on_card(kernel)  # finds the card: what takes long is done before the turn begins
    try:
        with turns.turn():
            report = verify.verify(run, sizes, kernel, attempt.seed)
    except (LaunchError, gpu.GpuFault) as problem:
        return [verify.Problem("wrong", kernel, sizes[0], str(problem))], ""
    return list(report.problems), f"{kernel}: right at {sizes_told(sizes)} on the GPU"


def _in_tracer(attempt: Attempt, kernel: str) -> tuple[list[verify.Problem], str]:
    """The day's sizes in the tracer, the large ones in a sample of blocks: problems, and what was tried."""

    def run(a: np.ndarray, b: np.ndarray, c: np.ndarray, size: Size) -> None:
        traced(attempt, kernel, a, b, c, size)

    large = large_sizes(attempt.exercise)
    whole = [size for size in attempt.exercise.sizes if size not in large]
    problems = list(verify.verify(run, whole, kernel, attempt.seed, twice=False).problems)
    line = f"{kernel}: right at {sizes_told(whole)} in the tracer"
    for size in large if not problems and not other_tile(attempt, kernel) else ():
        problems, _, blocks = verify_sample(
            attempt.student, kernel, size, seed=attempt.seed,
            seen=lambda result: attempt.touched[kernel].update(result.touched),
        )  # fmt: skip
        line += f", at {label(size)} in a sample of {blocks} blocks"
    return problems, line


def _hint_wrong(problem: verify.Problem) -> str:
    if problem.kind == "never-written":
        return "which thread is to write that element, and does it get there?"
    if problem.kind == "accumulates":
        return "sum in a register that starts at 0.0f, and store it once"
    if problem.kind == "inputs-modified":
        return "a and b are inputs: write only to c"
    if problem.row is not None:
        return f"follow the thread that computes row {problem.row}, column {problem.col} through its first round"
    return ""
