"""Exercise room: checks what a student wrote, stage by stage, and says what to look at.

found and compiles → safe in the tracer → correct → audit → order of speed. A stage that fails ends the check: what
comes after it is not run, and says so. The days' demands stand in ``exercise_gates``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from gpudays import compiler, exercise_patch, exercise_ratios, exercise_tricks, gpu, turns, verify
from gpudays.compiler import CompileError
from gpudays.course import evidence as ev
from gpudays.course.steps import Size, label
from gpudays.exercise_gates import EXERCISES, Exercise, Order
from gpudays.exercise_report import FAILED, NOT_GATED, NOT_RUN, NOT_WRITTEN, PASSED, STAGES, Ratio, Report, Stage
from gpudays.ptx.model import (
    GLOBAL_LD_REQUESTS,
    GLOBAL_LD_SECTORS,
    SHARED_LD_REQUESTS,
    Finding,
    KernelTrap,
    LaunchError,
    Touch,
    UnsupportedInstruction,
)
from gpudays.ptx.parser import PtxSyntaxError
from gpudays.runs import ParameterError, Runs, sample_blocks, verify_sample


@dataclass
class Attempt:
    """A hand-in under check: the student's runs, the page's own runs for the baseline, what was found so far."""

    exercise: Exercise
    student: Runs
    baseline: Runs
    on_gpu: bool
    ratios: list[Ratio] = field(default_factory=list)
    small: dict[str, verify.Report] = field(default_factory=dict)
    touched: dict[str, set[Touch]] = field(default_factory=dict)
    other_tiles: dict[str, str] = field(default_factory=dict)

    @property
    def small_sizes(self) -> tuple[Size, ...]:
        """The day's small sizes, and one that is drawn for this hand-in."""
        drawn = exercise_tricks.drawn_size(self.student.source, self.exercise.day)
        return (*self.exercise.small_sizes, drawn)

    @property
    def seed(self) -> int:
        """Of the matrices and of the samples of blocks."""
        return exercise_tricks.seed(self.student.source)


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
    for name, run in zip(STAGES, (_found, _safe, _correct, _audit, _order), strict=True):
        stopped = next((s for s in stages if s.status in (FAILED, NOT_WRITTEN)), None)
        if not stopped:
            begin(name)
        stages.append(Stage(name, NOT_RUN, (f"because of: {stopped.name}",)) if stopped else run(name, attempt))
    return Report(day, tuple(stages), exercise_ratios.complete(exercise, attempt.ratios))


@lru_cache(maxsize=8)
def given(day: str, baseline: str) -> Runs:
    """The runs of the page's own source, kept: what it counts is counted once for a class."""
    return Runs(baseline, EXERCISES[day].day)


# ---- found and compiles ----------------------------------------------------------------------------------------------


def _found(name: str, attempt: Attempt) -> Stage:
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


# ---- safe in the tracer ----------------------------------------------------------------------------------------------

HINTS = {
    "out-of-bounds": "which threads lie outside the matrix at this size, and what keeps them from reading or writing?",
    "misaligned": "a float4 needs an address that is a multiple of 16 bytes: at which n is every row's start one?",
    "shared-race": "between writing a tile and reading it, and between reading it and overwriting it, all have to wait",
    "global-race": "two threads write the same element: which element is whose?",
    "uninitialized-shared": "is every element of the tile written at this size, also by threads outside the matrix?",
    "barrier": "every thread of the block has to reach every __syncthreads(): look for a return or an if before it",
    "budget": "which loop never ends at this size?",
}


class _Caught(Exception):
    """The tracer found a mistake: carries the finding, and how many others there are."""


def _safe(name: str, attempt: Attempt) -> Stage:
    """Whole launches at small and odd sizes: bounds, alignment, races, barriers, unwritten tiles, endless loops.

    The answers are kept for the next stage.
    """
    for kernel in attempt.exercise.kernels:

        def run(a: np.ndarray, b: np.ndarray, c: np.ndarray, size: Size, kernel: str = kernel) -> None:
            _traced(attempt, kernel, a, b, c, size)

        try:
            attempt.small[kernel] = verify.verify(run, attempt.small_sizes, kernel, attempt.seed)
        except _Caught as caught:
            return _unsafe(name, attempt, kernel, *caught.args)
    return Stage(name, PASSED, (f"no finding at {_sizes(attempt.small_sizes)}",))


def _traced(attempt: Attempt, kernel: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, size: Size) -> None:
    """One launch in the tracer; notes which buffers it used, and raises what it found."""
    where = f"{kernel} at {label(size)}"
    try:
        result = attempt.student.trace(kernel, a, b, c, size)
    except (LaunchError, UnsupportedInstruction, KernelTrap, PtxSyntaxError) as problem:
        raise _Caught(f"{where}: {problem}", "") from problem
    if result.findings:
        raise _Caught(f"{where}: {_told(attempt.student.source, result.findings)}", result.findings[0].kind)
    attempt.touched.setdefault(kernel, set()).update(result.touched)


def _unsafe(name: str, attempt: Attempt, kernel: str, seen: str, kind: str) -> Stage:
    """The stage's failure; a larger tile than the day's explains an unwritten one."""
    notes = [seen]
    if kind in ("uninitialized-shared", "out-of-bounds", "shared-race") and (
        tile := attempt.exercise.tiles.get(kernel)
    ):
        notes += filter(None, [exercise_tricks.other_shared(attempt.student, kernel, tile)])
    return Stage(name, FAILED, tuple(notes), HINTS.get(kind, ""))


def _told(source: str, findings: list[Finding]) -> str:
    """The first finding with the student's line, and how many others there are."""
    first = findings[0]
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    kind = "" if first.message.startswith(first.kind) else f"{first.kind}: "
    return "\n".join([f"{kind}{first.message}{more}", *_shown(source, first.line, first.other_line or 0)])


def _shown(source: str, *numbers: int) -> list[str]:
    """Lines of the source with their numbers, each once."""
    lines = source.splitlines()
    return [f"{n:5d} | {lines[n - 1]}" for n in dict.fromkeys(numbers) if 0 < n <= len(lines)]


# ---- correct ---------------------------------------------------------------------------------------------------------


def _correct(name: str, attempt: Attempt) -> Stage:
    """Right at the small and odd sizes, and at the day's sizes on the card or in the tracer."""
    seen = []
    for kernel in attempt.exercise.kernels:
        found = list(attempt.small[kernel].problems)
        if not found and (left := exercise_tricks.outlasting(kernel, attempt.touched[kernel])):
            return Stage(name, FAILED, (left,), "what a kernel computes goes into c, and nowhere else")
        if not found:
            try:
                problems, line = (_on_card if attempt.on_gpu else _on_cpu)(attempt, kernel)
            except _Caught as caught:
                return _unsafe(name, attempt, kernel, *caught.args)
            found, seen = problems, [*seen, line]
        if found:
            return Stage(name, FAILED, (*map(str, found), *_where_written(attempt, kernel)), _hint_wrong(found[0]))
    return Stage(name, PASSED, (*seen, f"and at {_sizes(attempt.small_sizes)} in the tracer"))


def _where_written(attempt: Attempt, kernel: str) -> list[str]:
    """The lines that write C: where to begin to look."""
    lines = sorted({t.line for t in attempt.touched[kernel] if t.buffer == 2 and t.op != "ld"})
    return ["\n".join(["c is written here:", *_shown(attempt.student.source, *lines)])] if lines else []


def _on_card(attempt: Attempt, kernel: str) -> tuple[list[verify.Problem], str]:
    """The day's sizes on the GPU: problems, and what was tried."""

    def run(a: np.ndarray, b: np.ndarray, c: np.ndarray, size: Size) -> None:
        attempt.student.launch(kernel, a, b, c, size)

    sizes = attempt.exercise.sizes
    try:
        with turns.turn():
            report = verify.verify(run, sizes, kernel, attempt.seed)
    except (LaunchError, gpu.GpuFault) as problem:
        return [verify.Problem("wrong", kernel, sizes[0], str(problem))], ""
    return list(report.problems), f"{kernel}: right at {_sizes(sizes)} on the GPU"


def _on_cpu(attempt: Attempt, kernel: str) -> tuple[list[verify.Problem], str]:
    """The day's sizes in the tracer, the large ones in a sample of blocks: problems, and what was tried."""

    def run(a: np.ndarray, b: np.ndarray, c: np.ndarray, size: Size) -> None:
        _traced(attempt, kernel, a, b, c, size)

    large = _large(attempt.exercise)
    whole = [size for size in attempt.exercise.sizes if size not in large]
    problems = list(verify.verify(run, whole, kernel, attempt.seed, twice=False).problems)
    line = f"{kernel}: right at {_sizes(whole)} in the tracer"
    for size in large if not problems and not _other_tile(attempt, kernel) else ():
        problems, _, blocks = verify_sample(attempt.student, kernel, size, seed=attempt.seed)
        line += f", at {label(size)} in a sample of {blocks} blocks"
    return problems, line


def _other_tile(attempt: Attempt, kernel: str) -> str:
    """What is wrong with the kernel's tile, for the audit to tell: such a kernel's blocks cannot be sampled."""
    tile = attempt.exercise.tiles.get(kernel)
    if tile and kernel not in attempt.other_tiles:
        size = attempt.exercise.sizes[0]
        attempt.other_tiles[kernel] = exercise_tricks.other_tile(attempt.student, kernel, tile, size)
    return attempt.other_tiles.get(kernel, "")


def _large(exercise: Exercise) -> list[Size]:
    """Sizes that the tracer runs only a sample of."""
    return [size for size in exercise.sizes if max(size) > exercise.whole_up_to]


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


# ---- audit -----------------------------------------------------------------------------------------------------------


def _audit(name: str, attempt: Attempt) -> Stage:
    """Floats loaded per thread, sectors per request, spills, shared wavefronts: as the tracer and ptxas count them."""
    exercise = attempt.exercise
    failures, seen = [], []
    for kernel, limit in exercise.loads.items():
        for size in exercise.sizes:
            failed, line = _loads(attempt, kernel, size, limit(size[2]))
            (failures if failed else seen).append(line)
    hint = "what a thread's neighbours have loaded already, it can read from shared memory" if failures else ""
    for problem, advice in _misused(attempt):
        failures.append(problem)
        hint = hint or advice
    for fails, line, advice in _patches(attempt):
        (failures if fails else seen).append(line)
        hint = hint or (advice if fails else "")
    for fewer, than in exercise.fewer_sectors:
        failures += _fewer_sectors(attempt, fewer, than, exercise.sizes[0])
    attempt.ratios += exercise_ratios.beside_shipped(exercise, lambda kernel, size: _sectors(attempt, kernel, size))
    return Stage(name, FAILED if failures else PASSED, (*failures, *seen), hint)


def _misused(attempt: Attempt) -> list[tuple[str, str]]:
    """Kernels that read C or have another tile than the day's: what was seen, and a hint."""
    found = []
    for kernel in attempt.exercise.kernels:
        scratch = exercise_tricks.scratch(kernel, attempt.touched[kernel])
        found += [(scratch, "sum in a register that starts at 0.0f, and store it once")] if scratch else []
        tile = _other_tile(attempt, kernel)
        found += [(tile, "a larger tile loads less: the comparison is of kernels with the same block")] if tile else []
    return found


def _patches(attempt: Attempt) -> list[exercise_patch.Line]:
    """Spilled registers and shared wavefronts, where the day asks for them."""
    exercise, ratios = attempt.exercise, attempt.ratios
    pairs = [(kernel, arch) for kernel in exercise.kernels for arch in exercise.no_spill]
    found = [exercise_patch.spills(attempt.student, kernel, arch, ratios) for kernel, arch in pairs]
    for kernel, bound in exercise.wavefronts.items():
        found.append(exercise_patch.wavefronts(attempt.student, kernel, exercise.sizes[0], bound, ratios))
    return found


def _loads(attempt: Attempt, kernel: str, size: Size, allowed: int) -> tuple[bool, str]:
    """Whether a kernel loads too much, and the line that says how much."""
    total = _counted(attempt.student, kernel, size, whole=size not in _large(attempt.exercise))
    loads = float(total[ev.LOADS])
    failed, where = loads > allowed, f"{kernel} at {label(size)}"
    status = FAILED if failed else PASSED
    attempt.ratios.append(Ratio(exercise_ratios.loads(kernel, size), loads, f"at most {allowed}", status))
    line = f"{where} loads {loads:,.6g} floats per thread from global memory (at most {allowed})"
    if not failed:
        return False, line
    why = _why_so_many(loads, total, size, attempt.exercise.untiled)
    return True, f"{line}. {why}{_most_of(attempt, kernel, GLOBAL_LD_REQUESTS, 'requests')}"


def _most_of(attempt: Attempt, kernel: str, metric: str, what: str) -> str:
    """The line that makes most of a metric, at the day's first size."""
    rows = attempt.student.traced(kernel, attempt.exercise.sizes[0]).rows
    most = max((row for row in rows if row[1] == metric and row[0]), key=lambda row: row[2], default=None)
    shown = _shown(attempt.student.source, most[0]) if most else []
    return "\n".join(["", f"most {what} are made here:", *shown]) if shown else ""


def _counted(runs: Runs, kernel: str, size: Size, whole: bool) -> dict[str, float]:
    """The tracer's totals of a launch, or of a few of its blocks."""
    if whole:
        return runs.traced(kernel, size).total
    a, b = verify.inputs(size)
    blocks = sample_blocks(runs.step(kernel).grid(size), count=8)
    return runs.trace(kernel, a, b, np.full(size[:2], np.nan, np.float32), size, blocks).total


def _why_so_many(loads: float, total: dict[str, float], size: Size, untiled: str) -> str:
    shared = total[SHARED_LD_REQUESTS]
    if loads >= 2 * size[2] or not shared:
        reuse = "reads shared memory, but not instead" if shared else "reads nothing from shared memory"
        full = f"That is 2 × {size[2]}: every" if loads >= 2 * size[2] else "Every"
        return f"{full} operand still comes from global memory, as in {untiled}; the kernel {reuse}"
    return "More than one float of A and one of B per tile step, and 8 to spare"


def _fewer_sectors(attempt: Attempt, fewer: str, than: str, size: Size) -> list[str]:
    """The ratio of sectors per request of two kernels; gated only where no clock can gate the order."""
    ours, theirs = _sectors(attempt, fewer, size), _sectors(attempt, than, size)
    fails = ours >= theirs and not attempt.on_gpu
    needs = f"below {theirs:.2f} of {than}" + (" (gated by time here)" if attempt.on_gpu else "")
    status = FAILED if fails else PASSED if ours < theirs else NOT_GATED
    where = _most_of(attempt, fewer, GLOBAL_LD_SECTORS, "sectors") if fails else ""
    attempt.ratios.append(Ratio(exercise_ratios.sectors(fewer, size), ours, needs, status))
    return [f"{fewer} costs {ours:.2f} sectors per request, {than} {theirs:.2f}: not coalesced{where}"] if fails else []


def _sectors(attempt: Attempt, kernel: str, size: Size) -> float:
    """Sectors per load request of a kernel; the baseline's from the page's own source."""
    runs = attempt.baseline if kernel == attempt.exercise.baseline else attempt.student
    total = runs.traced(kernel, size).total
    return total[GLOBAL_LD_SECTORS] / total[GLOBAL_LD_REQUESTS] if total[GLOBAL_LD_REQUESTS] else 0.0


# ---- order of speed --------------------------------------------------------------------------------------------------


def _order(name: str, attempt: Attempt) -> Stage:
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
    return Stage(name, FAILED if failures else PASSED, (*failures, *seen), hint)


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


def _sizes(sizes: tuple[Size, ...] | list[Size]) -> str:
    return ", ".join(str(label(size)) for size in sizes)
