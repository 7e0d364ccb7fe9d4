"""Exercise room, a hand-in under check: its runs in the tracer, and what they have shown so far."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gpudays import exercise_tricks, verify
from gpudays.course.steps import Size, label
from gpudays.exercise_gates import Exercise
from gpudays.exercise_report import Ratio
from gpudays.ptx.model import Finding, KernelTrap, LaunchError, Touch, UnsupportedInstruction
from gpudays.ptx.parser import PtxSyntaxError
from gpudays.runs import Runs


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


class Caught(Exception):
    """The tracer found a mistake: carries the finding, and how many others there are."""


def traced(attempt: Attempt, kernel: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, size: Size) -> None:
    """One launch in the tracer; notes which buffers it used, and raises what it found."""
    where = f"{kernel} at {label(size)}"
    try:
        result = attempt.student.trace(kernel, a, b, c, size)
    except (LaunchError, UnsupportedInstruction, KernelTrap, PtxSyntaxError) as problem:
        raise Caught(f"{where}: {problem}", "") from problem
    if result.findings:
        raise Caught(f"{where}: {_told(attempt.student.source, result.findings)}", result.findings[0].kind)
    attempt.touched.setdefault(kernel, set()).update(result.touched)


def _told(source: str, findings: list[Finding]) -> str:
    """The first finding with the student's line, and how many others there are."""
    first = findings[0]
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    kind = "" if first.message.startswith(first.kind) else f"{first.kind}: "
    return "\n".join([f"{kind}{first.message}{more}", *lines_of(source, first.line, first.other_line or 0)])


def lines_of(source: str, *numbers: int) -> list[str]:
    """Lines of the source with their numbers, each once."""
    lines = source.splitlines()
    return [f"{n:5d} | {lines[n - 1]}" for n in dict.fromkeys(numbers) if 0 < n <= len(lines)]


def other_tile(attempt: Attempt, kernel: str) -> str:
    """What is wrong with the kernel's tile, for the audit to tell: such a kernel's blocks cannot be sampled."""
    tile = attempt.exercise.tiles.get(kernel)
    if tile and kernel not in attempt.other_tiles:
        size = attempt.exercise.sizes[0]
        attempt.other_tiles[kernel] = exercise_tricks.other_tile(attempt.student, kernel, tile, size)
    return attempt.other_tiles.get(kernel, "")


def large_sizes(exercise: Exercise) -> list[Size]:
    """Sizes that the tracer runs only a sample of."""
    return [size for size in exercise.sizes if max(size) > exercise.whole_up_to]


def sizes_told(sizes: tuple[Size, ...] | list[Size]) -> str:
    return ", ".join(str(label(size)) for size in sizes)
