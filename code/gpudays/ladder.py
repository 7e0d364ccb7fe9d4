"""Ladder room: the session of Day 44: steps 1 to 6 and cuBLAS on one bench, the sweep, where the time goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from gpudays import exercise, gpu, ladder_files, ladder_tables, measurements, metrics, profiler, profiles, verify
from gpudays.course import day44, tiles
from gpudays.course.evidence import Evidence
from gpudays.course.steps import DAY43, DAY44, Size, Step, label, square
from gpudays.kernels_in_pages import kernel_text
from gpudays.machine import Machine, look
from gpudays.ptx import model
from gpudays.runs import Runs
from gpudays.session import FEW_REPEATS, Session, WrongAnswer
from gpudays.tables import Shown

SLOW_FROM = 4096  # from this size on steps 1 to 3 are timed with few repeats: a launch takes long and hardly varies
PER_THREAD = (model.LOADS_PER_THREAD, model.STORES_PER_THREAD)
NOTES = "code/day44-matmul-2/NOTES.md"
TRACED_ARCH = "sm_75"  # what the tracer runs here: the oldest card, whose step 6 copies through registers


class Ladder(Session):
    """Day 44's page on one machine. The steps of Day 43 stand at the foot of its ladder."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(DAY44, machine)
        self.learn(_counters_only(profiles.shipped(DAY43.profiles).table))
        for read in (ladder_files.sweep_times, ladder_files.transplant_times):
            self.learn(read(profiles.folder(DAY44.profiles), machine.shipped_figures.card))
        self.first_steps = Runs(first_steps_source(), DAY43)
        self.traced = measurements.empty()
        self._checked: set[tuple[str, str, Size]] = set()

    @property
    def checked(self) -> tuple[Step, ...]:
        """Steps 4 to 6, and step 6 for small matrices."""
        return (*self.day.steps, *self.day.sweep)

    @property
    def arch(self) -> str:
        """The architecture whose figures the page shows: this card's, the shipped one's, or else the tracer's."""
        if self.machine.card:
            return self.machine.card.arch
        return str((self.machine.shipped_figures.machine or {}).get("arch", TRACED_ARCH))

    def evidence(self) -> Evidence:
        """This page's card. What it counted itself comes before what was traced: ptxas reads shared memory otherwise
        than the PTX says, and step 6 is another kernel on another card."""
        order = ("live", "shipped", "traced")
        return Evidence(self.measured, self.machine.card_name, order, self.machine.l2_bytes)

    def compile(self, source: str) -> Shown:
        """Compile, and show each step's tiles and what they take of a multiprocessor: here, or on a T4 and an H200.

        Raises:
            CompileError: shows NVRTC's messages against the source's lines.
        """
        card = self.machine.card
        return ladder_tables.resources(self.runs(source), [card.arch] if card else ["sm_75", "sm_90"])

    def tiles(self, source: str, arch: str | None = None) -> dict[str, tiles.Tiles]:
        """The tile sizes in a source, by kernel (default: for the card whose figures are shown)."""
        return {step.kernel: tiles.declared(source, step.kernel, arch or self.arch) for step in self.checked}

    # ---- time --------------------------------------------------------------------------------------------------------

    def race(self, source: str, sizes: Sequence[int] = day44.LADDER_SIZES) -> Shown:
        """Time steps 1 to 6 and cuBLAS (FP32, TF32 off), each checked first; without a card the shipped times.

        Raises:
            WrongAnswer: a kernel is wrong.
        """
        if self.machine.card:
            few = [step.kernel for step in DAY43.steps]
            for size in map(square, sizes):
                runs = {s.kernel: self.first_steps if s in DAY43.steps else self.runs(source) for s in day44.TIMED}
                repeats = dict.fromkeys(few, FEW_REPEATS) if size[0] >= SLOW_FROM else {}
                self._time_beside_cublas({name: (of, name) for name, of in runs.items()}, size, repeats)
        how = (
            f"CUDA events, {self.day.warmups} warm-ups, median of {self.day.repeats}, one run, checked first; cuBLAS "
            "before and after, the faster counts. Step 6 with the better of its rows of tiles, large or small."
        )
        return ladder_tables.fractions(self.evidence(), sizes, how)

    def _time_beside_cublas(
        self, kernels: Mapping[str, tuple[Runs, str]], size: Size, repeats: Mapping[str, int] | None = None
    ) -> None:
        """Check kernels, time them between two timings of cuBLAS, and learn the times under the names given.

        The faster of cuBLAS's two medians counts, so that a card still slow from idling makes no kernel look better.
        """
        for runs, kernel in kernels.values():
            self._check(runs, kernel, size)
        ceilings = [self._cublas(size)]
        timings = {n: runs.time(kernel, size, (repeats or {}).get(n)) for n, (runs, kernel) in kernels.items()}
        ceilings.append(self._cublas(size))
        ceiling = min(ceilings, key=lambda timing: timing.median)
        timings[day44.CUBLAS] = ceiling
        self.learn(measurements.concat([self._times(name, size, t, ceiling) for name, t in timings.items()]))

    def _cublas(self, size: Size) -> gpu.Timing:
        return gpu.time_cublas(*size, warm_ups=self.day.warmups, repeats=self.day.repeats)

    def _check(self, runs: Runs, kernel: str, size: Size) -> None:
        if (runs.source, kernel, size) in self._checked:
            return
        report = verify.verify(lambda a, b, c, s: runs.launch(kernel, a, b, c, s), [size], kernel, twice=False)
        if report.problems:
            raise WrongAnswer(str(report.problems[0]))
        self._checked.add((runs.source, kernel, size))

    def _times(self, name: str, size: Size, timing: gpu.Timing, ceiling: gpu.Timing) -> pd.DataFrame:
        """A timing and its fraction of cuBLAS, of the same run, as measurements."""
        values = {
            metrics.TIME: timing.median,
            metrics.TIME_MIN: timing.min,
            metrics.TIME_MAX: timing.max,
            metrics.FRACTION_OF_CUBLAS: ceiling.median / timing.median,
        }
        return measurements.table(name, label(size), values, "live", self.machine.card.name)

    def two_rows(self, sizes: Sequence[int] = day44.LADDER_SIZES) -> Shown:
        """Step 6 with its tiles for large matrices and with those for small ones, at every size."""
        return ladder_tables.two_rows(self.evidence(), sizes)

    # ---- count -------------------------------------------------------------------------------------------------------

    def trace(self, source: str, n: int) -> Shown:
        """Count steps 3 to 6 in the tracer: one block of each, times the number of blocks.

        At a size that all tiles divide every block issues the same accesses, so that the product is exact.

        Raises:
            ValueError: some tile does not divide n.
        """
        found = []
        for step in day44.STEPS[2:]:
            runs = self.runs(source) if step in DAY44.steps else self.first_steps
            found.append(_one_block(runs, step.kernel, square(n)))
            if step.kernel != day44.WARPS or self._same_step_6(source):
                self.learn(found[-1])
        self.traced = measurements.with_derived(measurements.concat(found))
        return ladder_tables.counts(self.traced, n, TRACED_ARCH)

    def beside(self, n: int) -> Shown:
        """What the tracer counted beside what the card did."""
        traced = Evidence(self.traced, "", ("traced",))
        card = Evidence(self.measured, self.machine.card_name, ("live", "shipped"))
        return ladder_tables.beside(traced, card, n)

    def _same_step_6(self, source: str) -> bool:
        """Whether step 6 on the card whose figures are shown is the one that was traced."""
        theirs, ours = (tiles.declared(source, day44.WARPS, arch) for arch in (self.arch, TRACED_ARCH))
        asynchronous = int("".join(filter(str.isdigit, self.arch))) >= 80  # cp.async takes the place of plain loads
        return theirs == ours and not asynchronous

    def count(self, source: str, sizes: Sequence[int]) -> None:
        """Count steps 3 to 6 live through ``ncu`` where the driver allows it; print a line that says what happened."""
        if not self.machine.counters.allowed:
            print(self.machine.counters.line)
            return
        matrices = {n: (*verify.inputs(square(n)), np.empty((n, n), np.float32)) for n in sizes}
        try:
            for runs, steps in ((self.first_steps, DAY43.steps[2:]), (self.runs(source), DAY44.steps)):
                launches = [_launch(runs, step.kernel, matrices[n]) for n in sizes for step in steps]
                self.learn(profiler.count(runs.source, launches, profiler.METRICS + metrics.EXPLAINING))
        except profiler.ProfilerRefused as refused:
            print(refused)
            return
        print(f"{len(day44.STEPS[2:]) * len(sizes)} launches counted live: {self.machine.counters.line}")

    def waits(self, n: int) -> Shown:
        """How busy the FP32 pipe and the issue slots were, and what the warps waited for."""
        return ladder_tables.waits(self.evidence(), n)

    def share_of_stores(self, n: int) -> str:
        """How many of step 5's shared wavefronts are stores, and how many of those are conflicts, as traced."""
        evidence = Evidence(self.traced, "", ("traced",))
        return ladder_tables.share_of_stores(evidence, n)

    # ---- sweep -------------------------------------------------------------------------------------------------------

    def sweep(self, source: str, n: int = day44.LARGE[0]) -> Shown:
        """Compile step 4 for every patch of the sweep; time each on a card, or else show the shipped times.

        Args:
            source: step 4 alone, or the whole source: all of it is compiled for each patch.
            n: the size, a multiple of every tile.

        Raises:
            WrongAnswer: a kernel is wrong.
        """
        cuts = {day44.swept(patch): cut for patch, cut in day44.SWEEP.items()}
        self._time_cuts(source, day44.REGISTERS, cuts, square(n))
        return ladder_tables.sweep(source, self.arch, self.evidence(), n)

    @property
    def homes(self) -> list[str]:
        """The architectures whose rows of the launch table are compared: the tracer's, and this card's."""
        return [TRACED_ARCH, self.arch if self.arch != TRACED_ARCH else "sm_90"]

    def transplanted(self, source: str, n: int = day44.LARGE[1]) -> Shown:
        """Step 6 with the tiles that its launch table has for another card: registers there and here, speed here.

        Raises:
            WrongAnswer: a kernel is wrong.
        """
        homes = self.homes
        cuts = {day44.transplant(home): tiles.declared(source, day44.WARPS, home) for home in homes}
        self._time_cuts(source, day44.WARPS, cuts, square(n))
        return ladder_tables.transplanted(source, homes, self.evidence(), n)

    def check(self, student: str, baseline: str = "") -> exercise.Report:
        """Check the exercise; step 3 of Day 43 is the baseline."""
        return super().check(student, baseline or self.first_steps.source)

    def _time_cuts(self, source: str, kernel: str, cuts: Mapping[str, tiles.Tiles], size: Size) -> None:
        """On a card: check and time a kernel with several tile sizes, and learn the times under the names given."""
        if not self.machine.card:
            return
        changed = {name: Runs(tiles.with_tiles(source, kernel, cut), DAY44) for name, cut in cuts.items()}
        self._time_beside_cublas({name: (runs, kernel) for name, runs in changed.items()}, size)


def experiments(*numbers: int) -> Shown:
    """What was tried on the way to step 6, by number, from the notes that were kept: expected, and what came out.

    Raises:
        ProfileError: the notes are not here, or have no such experiment.
    """
    path = (profiles.home() or Path()) / NOTES
    source = f"shipped, NVIDIA H200; {NOTES}, fractions of cuBLAS in the same run"
    return Shown(ladder_files.experiments(path, numbers), source)


def public_kernels() -> pd.DataFrame:
    """How kernels that others published did on the course's card, beside what they claim for their own."""
    return ladder_files.public_kernels(profiles.folder(DAY44.profiles))


def start() -> Ladder:
    """Begin Day 44's page."""
    return Ladder(look(DAY44))


def first_steps_source() -> str:
    """The kernels of Day 43, from its program.

    Raises:
        FileNotFoundError: the course's files are not beside its package.
    """
    place = profiles.home()
    if place is None:
        raise FileNotFoundError(f"{DAY43.program} is not here: steps 1 to 3 come from the course's own files")
    return kernel_text(place / DAY43.program)


def _counters_only(table: pd.DataFrame) -> pd.DataFrame:
    """Another day's shipped figures without its times: those of this page are of one run."""
    clock = [name for name, metric in metrics.METRICS.items() if metric.decided_by == "clock"]
    return table[~table["metric"].isin(clock)]


def _launch(runs: Runs, kernel: str, matrices: Sequence[np.ndarray]) -> profiler.Launch:
    """A launch on this card with these A, B and C."""
    step, size = runs.step_on_card(kernel), square(len(matrices[0]))
    args = [*matrices, *runs.arguments(kernel, size)]
    return profiler.Launch(kernel, label(size), step.grid(size), step.block, args, step.shared_bytes)


def _one_block(runs: Runs, kernel: str, size: Size) -> pd.DataFrame:
    """What a launch counts, from one of its blocks, which are all alike."""
    step = runs.step(kernel)
    if size[1] % step.covers[0] or size[0] % step.covers[1]:
        raise ValueError(
            f"{kernel} has tiles of {step.covers[1]} × {step.covers[0]}, which do not divide {label(size)}"
        )
    a, b = verify.inputs(size)
    result = runs.trace(kernel, a, b, np.full(size[:2], np.nan, np.float32), size, [(0, 0, 0)])
    times = {name: 1 if name in PER_THREAD else result.blocks_total for name in result.total}
    values = {name: value * times[name] for name, value in result.total.items()}
    return measurements.table(kernel, label(size), values, "traced")
