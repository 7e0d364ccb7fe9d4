"""Session room: what makes a page's cell a few lines. It picks live, traced, shipped or published, and says which.

``start("day43")`` gives the ``lab`` of a page. Everything it learns goes into one measurements table, from which the
tables, the figures and the grades are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd

import gpudays
from gpudays import (
    exercise,
    figures,
    gpu,
    kernels_in_pages,
    measurements,
    metrics,
    page_tables,
    profiler,
    profiles,
    verify,
)
from gpudays.course.evidence import Evidence, describe
from gpudays.course.models import size_past_l2
from gpudays.course.predictions import Verdict
from gpudays.course.steps import DAYS, Day, Size, Step, label, square
from gpudays.machine import Machine, look
from gpudays.runs import Runs, verify_sample
from gpudays.tables import Shown

WHOLE_UP_TO = 512  # what the tracer verifies whole; above, a sample of blocks
FEW_REPEATS = 3  # for sizes past the L2, where a launch takes long and hardly varies
FIRST_ACCESSES = 16  # of a warp: its first loads of A and of B are among them


class Predicted(Protocol):
    """A day's predictions: what :meth:`Session.grade` needs of them."""

    def grade(self, evidence: Evidence) -> list[Verdict]: ...


class WrongAnswer(AssertionError):
    """A kernel of the page is wrong; the message names kernel, size, row, column, got and expected."""


class Session:
    """One page on one machine.

    Attributes:
        day: the day's table.
        machine: what this machine has and allows.
        measured: everything known so far: kernel, n, metric, value, unit, source, card.
    """

    def __init__(self, day: Day, machine: Machine) -> None:
        self.day, self.machine = day, machine
        self.measured = measurements.concat([machine.shipped, machine.published])
        self._runs: dict[str, Runs] = {}
        self._right: set[tuple[str, Size]] = set()

    @property
    def steps(self) -> tuple[Step, ...]:
        """The day's kernels, in order."""
        return self.day.steps

    @property
    def checked(self) -> tuple[Step, ...]:
        """The kernels that `verify` holds against float64."""
        return self.day.steps

    @property
    def size_past_l2(self) -> int:
        """The first power of two whose matrices exceed twice this card's L2; at least the day's largest size."""
        largest = self.day.sizes[-1][0]
        return max(largest, size_past_l2(self.machine.l2_bytes)) if self.machine.l2_bytes else largest

    def allows(self) -> None:
        """Print the line that says what this machine allows, and why."""
        print(self.machine.line)

    def compile(self, source: str) -> Shown:
        """Compile, and show what each kernel takes of a multiprocessor: on this card, or on a T4 and an H200.

        Raises:
            CompileError: shows NVRTC's messages against the source's lines.
        """
        card = self.machine.card
        return page_tables.resources(self.runs(source).program, self.day, [card.arch] if card else ["sm_75", "sm_90"])

    def program(self) -> str:
        """The kernels of the day's standalone program, which its page holds too; for another day to compare with.

        Raises:
            KernelTextError: the program is not there, as where the course is not a whole checkout.
        """
        return kernels_in_pages.kernel_text((profiles.home() or Path()) / self.day.program)

    def runs(self, source: str) -> Runs:
        """The runs of a source, kept from cell to cell."""
        return self._runs.setdefault(source, Runs(source, self.day))

    # ---- verify ------------------------------------------------------------------------------------------------------

    def verify(self, source: str, sizes: Sequence[int | Size]) -> Shown:
        """Hold every kernel of the day against float64, on the card or else in the tracer.

        Raises:
            WrongAnswer: one is wrong.
        """
        rows = [self._verified(source, step.kernel, _size(size)) for size in sizes for step in self.checked]
        columns = ["N", "kernel", "checked", "relative error", "allowed", "verdict"]
        frame = pd.DataFrame(rows, columns=columns)
        formats = {"relative error": ".1e", "allowed": ".1e"}
        source_line = f"live, {self.machine.card.name}" if self.machine.card else "traced"
        return Shown(frame.astype({"N": str}), source_line, formats)

    def _verified(self, source: str, kernel: str, size: Size) -> tuple[object, ...]:
        runs, how = self.runs(source), "every element"
        if self.machine.card:
            report = verify.verify(lambda a, b, c, s: runs.launch(kernel, a, b, c, s), [size], kernel)
            problems, worst = report.problems, report.worst_error
            rows = len(verify.checked_rows(size))
            how = how if rows == size[0] else f"{rows} rows of C"
        elif max(size) <= WHOLE_UP_TO:
            report = verify.verify(
                lambda a, b, c, s: self._trace(runs, kernel, a, b, c, s), [size], kernel, twice=False
            )
            problems, worst, how = report.problems, report.worst_error, "every element"
        else:
            problems, worst, blocks = verify_sample(runs, kernel, size)
            grid = runs.step(kernel).grid(size)
            how = f"{blocks} of {grid[0] * grid[1]:,} blocks"
        if problems:
            raise WrongAnswer(str(problems[0]))
        self._right.add((source, size))
        return label(size), kernel, how, worst, verify.tolerance(size[2]), "right"

    def _trace(self, runs: Runs, kernel: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, size: Size) -> None:
        """Run whole in the tracer; a finding is an error here, since the page's kernels are to have none."""
        result = runs.trace(kernel, a, b, c, size)
        if result.findings:
            raise WrongAnswer(f"{kernel} at {label(size)}: {result.findings[0].message}")

    # ---- time --------------------------------------------------------------------------------------------------------

    def time(self, source: str, sizes: Sequence[int | Size]) -> Shown:
        """Time every kernel with CUDA events, verified first; without a card the shipped times."""
        sizes = list(dict.fromkeys(map(_size, sizes)))
        if not self.machine.card:
            return page_tables.times(self.evidence(), self.day, sizes, self._how(sizes))
        tables = []
        for size in sizes:
            if (source, size) not in self._right:
                self.verify(source, [size])
            repeats = None if size in self.day.sizes else FEW_REPEATS
            for step in self.steps:
                timing = self.runs(source).time(step.kernel, size, repeats)
                tables.append(self._timed(step, size, timing))
        self.learn(measurements.concat(tables))
        return page_tables.times(self.evidence(), self.day, sizes, self._how(sizes))

    def _how(self, sizes: Sequence[Size]) -> str:
        """How the times were taken, for the line below their table; what is unlike the first is named by its size."""
        at: dict[str, list[str]] = {}
        for size in sizes:
            if taken := self._taken(size):
                at.setdefault(taken, []).append(str(label(size)))
        first, *others = at or ("no launches",)
        how = f"CUDA events, {first} launches after {self.day.warmups} warm-ups"
        unlike = "".join(f"; {taken} at {', '.join(at[taken])}" for taken in others)
        shipped = "" if self.machine.card else f"; {self.machine.shipped_figures.origin}"
        return f"{how}{unlike}{shipped}."

    def _taken(self, size: Size) -> str:
        """The average that stands for a size: "median of 10"; "" where there is none.

        The standalone programs write a mean beside the median, or nothing but a mean; `gpudays time` writes no mean.
        """
        if self.machine.card:
            return f"median of {self.day.repeats if size in self.day.sizes else FEW_REPEATS}"
        time, mean = (
            self.evidence().get(self.steps[0].kernel, label(size), m) for m in (metrics.TIME, metrics.TIME_MEAN)
        )
        if time is None:
            return ""
        if mean is None:
            return f"median of {FEW_REPEATS}"
        return f"{'mean' if mean.value == time.value else 'median'} of {self.day.repeats}"

    def _timed(self, step: Step, size: Size, timing: gpu.Timing) -> pd.DataFrame:
        values = {metrics.TIME: timing.median, metrics.TIME_MIN: timing.min, metrics.TIME_MAX: timing.max}
        return measurements.table(step.kernel, label(size), values, "live", self.machine.card.name)

    def speedups(self, sizes: Sequence[int]) -> Shown:
        """How many times faster each step is than the one before, by the times of this page's card."""
        return page_tables.speedups(self.evidence(), self.steps, list(dict.fromkeys(sizes)), self.day.name)

    # ---- count -------------------------------------------------------------------------------------------------------

    def trace(self, source: str, sizes: Sequence[int | Size]) -> Shown:
        """Count every kernel in the tracer, whole launches: loads per thread, requests, sectors."""
        runs, tables = self.runs(source), []
        for size in map(_size, sizes):
            for step in self.steps:
                total = dict(runs.traced(step.kernel, size).total)
                tables.append(measurements.table(step.kernel, label(size), total, "traced"))
        self.learn(measurements.concat(tables))
        return page_tables.traced(self.measured, self.day, [_size(size) for size in sizes])

    def count(self, source: str, sizes: Sequence[int | Size]) -> None:
        """Count live through ``ncu`` where the driver allows it; print one line that says what happened."""
        if not self.machine.counters.allowed:
            print(self.machine.counters.line)
            return
        launches = []
        for size in map(_size, sizes):
            a, b = verify.inputs(size)
            c = np.full(size[:2], np.nan, np.float32)
            for step in self.steps:
                args = [a, b, c, *self.runs(source).arguments(step.kernel, size)]
                launches.append(
                    profiler.Launch(step.kernel, label(size), step.grid(size), step.block, args, step.shared_bytes)
                )
        try:
            self.learn(profiler.count(source, launches))
            print(f"{len(launches)} launches counted live: {self.machine.counters.line}")
        except profiler.ProfilerRefused as refused:
            print(refused)

    def agreement(self, sizes: Sequence[int | Size]) -> Shown:
        """Requests and sectors, traced beside the card's own counters: live, or shipped."""
        return page_tables.agreement(self.measured, self.machine.card_name, self.day, [_size(size) for size in sizes])

    def six_rows(self, n: int) -> Shown:
        """The counters of one size beside the published card's."""
        return page_tables.six_rows(self.evidence(), self.published(), self.steps, n)

    def first_loads(self, source: str, n: int) -> list[figures.WarpLoad]:
        """What the first warp of block (0, 0) reads with its first load of A and of B in each step, traced.

        Raises:
            LookupError: a kernel whose first warp loads nothing from one of them.
        """
        found, size = [], square(n)
        a, b = verify.inputs(size)
        for step in self.steps:
            args = [a, b, np.empty(size[:2], np.float32), *self.runs(source).arguments(step.kernel, size)]
            accesses = gpudays.trace_accesses(
                source, step.kernel, grid=step.grid(size), block=step.block, args=args, limit=FIRST_ACCESSES
            )
            for place, matrix in enumerate("AB"):
                found.append(
                    figures.WarpLoad(f"step {step.number}", matrix, *_first_load(accesses, place, step.kernel))
                )
        return found

    # ---- grade and draw ----------------------------------------------------------------------------------------------

    def learn(self, table: pd.DataFrame) -> None:
        """Add measurements; a figure measured again replaces the older one of the same source and card."""
        both = measurements.concat([self.measured, measurements.with_derived(table)])
        keys = ["kernel", "n", "metric", "source", "card"]
        self.measured = both.drop_duplicates(keys, keep="last", ignore_index=True)

    def evidence(self) -> Evidence:
        """This page's card: the machine's own, or the one whose figures are shipped."""
        return Evidence(self.measured, self.machine.card_name, l2_bytes=self.machine.l2_bytes)

    def on_card(self) -> Evidence:
        """What only a card can count: this machine's where its counters were read, else the shipped card's."""
        own = Evidence(self.measured, self.machine.card_name, ("live", "shipped"), self.machine.l2_bytes)
        if own.sizes(metrics.L2_HIT_RATE):
            return own
        theirs = self.machine.shipped_figures
        return Evidence(self.measured, theirs.card, ("shipped",), int((theirs.machine or {}).get("l2_bytes", 0)))

    def published(self) -> Evidence:
        """Someone else's card."""
        return Evidence(self.measured, self.machine.published_card, ("published",), self.machine.published_l2_bytes)

    def grade(self, predicted: Predicted, on: str = "here") -> Shown:
        """The predictions held against this page's card, or ``on="published"`` against the published one.

        Raises:
            ValueError: ``on`` is neither.
        """
        if on not in ("here", "published"):
            raise ValueError(f"on={on!r}: predictions are graded on 'here' or on 'published'")
        evidence = self.evidence() if on == "here" else self.published()
        return page_tables.verdicts(predicted.grade(evidence), evidence)

    def lines(self, sizes: Sequence[int]) -> list[figures.Series]:
        """The series of the ratio plots: this page's card at these sizes, and the published card where it has any."""
        here, other = self.evidence(), self.published()
        theirs = [n for n in dict.fromkeys(sizes) if n in other.sizes(metrics.TIME)]
        return figures.series(here, list(dict.fromkeys(sizes))) + figures.series(other, theirs)

    def sources(self) -> str:
        """Every source that the page has used so far, in words."""
        return describe(set(zip(self.measured["source"], self.measured["card"], strict=True)))

    def check(self, student: str, baseline: str) -> exercise.Report:
        """Check the day's exercise: the student's source against the page's."""
        return exercise.check(self.day.name, student, baseline)


def start(day: str) -> Session:
    """Begin a page.

    Raises:
        KeyError: no such day; the message lists them.
    """
    if day not in DAYS:
        raise KeyError(f"no day is called {day!r}: there are {', '.join(DAYS)}")
    return Session(DAYS[day], look(DAYS[day]))


def _size(size: int | Size) -> Size:
    return square(size) if isinstance(size, int) else tuple(size)


def _first_load(accesses: Sequence[object], buffer: int, kernel: str) -> tuple[np.ndarray, int]:
    """Offsets and width of the first global load of one buffer."""
    for access in accesses:
        if access.op == "ld" and access.space == "global" and access.buffer == buffer:
            return np.asarray(access.offsets)[np.asarray(access.active, dtype=bool)], access.width
    raise LookupError(f"the first warp of {kernel} loads nothing from its argument {buffer}")
