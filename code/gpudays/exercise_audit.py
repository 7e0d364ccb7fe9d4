"""Exercise room, the audit: what the tracer and ptxas count, held against what the day asks for."""

from __future__ import annotations

import numpy as np

from gpudays import exercise_patch, exercise_ratios, exercise_tricks, verify
from gpudays.course import evidence as ev
from gpudays.course.steps import Size, label
from gpudays.exercise_attempt import Attempt, large_sizes, lines_of, other_tile
from gpudays.exercise_report import FAILED, NOT_GATED, PASSED, Ratio, Stage
from gpudays.ptx.model import GLOBAL_LD_REQUESTS, GLOBAL_LD_SECTORS, SHARED_LD_REQUESTS
from gpudays.runs import Runs, sample_blocks


def audit(name: str, attempt: Attempt) -> Stage:
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
        tile = other_tile(attempt, kernel)
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
    total = _counted(attempt.student, kernel, size, whole=size not in large_sizes(attempt.exercise))
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
    shown = lines_of(attempt.student.source, most[0]) if most else []
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
