"""Submission room: one zip with what is handed in — the kernels, the ratios, the machine and one sentence.

The three sectors per request come from the tracer. Both speed-ups are measured here on a GPU; without one they are read
from the table that the day's program writes with ``--csv`` on a machine that has one.
"""

from __future__ import annotations

import csv
import json
import platform
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from gpudays import checking, gpu, measurements, profiles
from gpudays.checking import SENTENCE, program_name
from gpudays.course.steps import Size, label
from gpudays.exercise_gates import EXERCISES, Exercise
from gpudays.exercise_report import Report
from gpudays.extract import Extracted
from gpudays.metrics import TIME
from gpudays.ptx.model import GLOBAL_LD_REQUESTS, GLOBAL_LD_SECTORS, LaunchError
from gpudays.runs import Runs

WORDS = 4  # fewer are no sentence


class Incomplete(RuntimeError):
    """A submission that lacks something; the message lists all of it."""


@dataclass
class Submission:
    """What is handed in; empty where it is missing.

    Attributes:
        day: "day43", …
        file: the name of the student's file in the zip.
        source: its text.
        speedups: by step, "matmulStridedRows → matmulCoalescedCols at 512".
        sectors_per_request: by kernel, as the tracer counts at the day's first size.
        machine: where the times were measured.
        sentence: which step they would have skipped, and why.
        report: the check's, without a GPU's order of speed.
        missing: what is not there, a line each.
    """

    day: str
    file: str = ""
    source: str = ""
    speedups: dict[str, float] = field(default_factory=dict)
    sectors_per_request: dict[str, float] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)
    sentence: str = ""
    report: Report | None = None
    missing: list[str] = field(default_factory=list)


def collect(day: str, path: Path, sentence: str = "", times: Path | None = None) -> Submission:
    """Put together what is handed in.

    Args:
        day: "day43", …
        path: the student's file, or the folder with it (and perhaps ``sentence.txt``).
        sentence: which step they would have skipped, and why; "" to read it from ``sentence.txt``.
        times: a timing table (``kernel``, ``n``, ``ms_median`` or ``ms_mean``, ``card``), for machines without a GPU.

    Raises:
        checking.NoExercise: the day has no exercise.
    """
    made, exercise = Submission(day), EXERCISES.get(day)
    given = checking.given(day)
    folder = path if path.is_dir() else path.parent
    made.sentence = " ".join((sentence or _read_sentence(folder)).split())
    if len(made.sentence.split()) < WORDS:
        made.missing.append(
            f"the sentence: which step would you have skipped, and why? (--sentence, or {folder / SENTENCE})"
        )
    source = path / program_name(day) if (path / program_name(day)).is_file() else path
    found = checking.read(day, source)
    if isinstance(found, Report):
        made.missing.append(f"the kernels: {found.stages[0].seen[0]}")
        return made
    made.file, made.source = program_name(day), found.source if source.is_dir() else _text(source, found)
    student, page = Runs(found.source, exercise.day), Runs(given, exercise.day)
    try:
        made.sectors_per_request = _sectors(exercise, student, page)
    except Exception as problem:  # whatever keeps a kernel from running is the student's to see
        made.missing.append(f"the sectors per request: {problem}\n(`gpudays check {day} {source}` says more)")
        return made
    _add_times(made, exercise, student, page, times)
    return made


def write(made: Submission, output: Path) -> None:
    """Write the zip.

    Raises:
        Incomplete: something is missing; nothing is written.
    """
    if made.missing:
        lines = "\n".join(f"  - {line}" for line in made.missing)
        raise Incomplete(f"{made.day} is not complete, and nothing was written. Missing:\n{lines}")
    data = {
        "day": made.day, "speedups": made.speedups, "sectors_per_request": made.sectors_per_request,
        "machine": made.machine, "sentence": made.sentence,
    }  # fmt: skip
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(made.file, made.source)
        archive.writestr("submission.json", json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def _read_sentence(folder: Path) -> str:
    path = folder / SENTENCE
    return path.read_text("utf-8") if path.is_file() else ""


def _text(source: Path, found: Extracted) -> str:
    """A program as the student wrote it; of a notebook or zip, its kernels."""
    return source.read_text("utf-8", errors="replace") if source.suffix.startswith(".cu") else found.source


# ---- the figures -----------------------------------------------------------------------------------------------------


def _kernels(exercise: Exercise) -> tuple[str, ...]:
    return (exercise.baseline, *exercise.kernels)


def _sectors(exercise: Exercise, student: Runs, page: Runs) -> dict[str, float]:
    """Sectors per load request of the given kernel and the student's, traced at the day's first size."""
    found = {}
    for kernel in _kernels(exercise):
        runs = page if kernel == exercise.baseline else student
        total = runs.traced(kernel, exercise.sizes[0]).total
        requests = total[GLOBAL_LD_REQUESTS]
        if not requests:
            raise ValueError(f"{kernel} reads nothing from global memory: is it written?")
        found[kernel] = round(total[GLOBAL_LD_SECTORS] / requests, 4)
    return found


def _add_times(made: Submission, exercise: Exercise, student: Runs, page: Runs, times: Path | None) -> None:
    """Both speed-ups at the day's sizes and the machine: measured here, or from a table."""
    card = gpu.device()
    measured: Mapping[tuple[str, Size], float] = {}
    if times is not None:
        measured, made.machine = _from_table(made, exercise, times)
    elif card is not None:
        try:
            measured = _measured(exercise, student, page)
        except (gpu.GpuFault, LaunchError) as problem:
            made.missing.append(f"the speed-ups: {problem}")
            return
        made.machine = {"card": str(card), "system": platform.platform(), "times": "measured by gpudays submit"}
    else:
        made.missing.append(
            f"the speed-ups: there is no GPU here ({gpu.why_no_gpu()}). Run your program with --csv times.csv where "
            "there is one, and give --times times.csv"
        )
        return
    for size in exercise.sizes:
        for before, after in pairwise(_kernels(exercise)):
            pair = [measured.get((kernel, size)) for kernel in (before, after)]
            if all(pair):
                made.speedups[f"{before} → {after} at {label(size)}"] = round(pair[0] / pair[1], 4)
            else:
                made.missing.append(f"the speed-up {before} → {after} at {label(size)}: no times of both")
    if not made.machine.get("card"):
        made.missing.append("the machine: the table of times has no column card")


def _measured(exercise: Exercise, student: Runs, page: Runs) -> dict[tuple[str, Size], float]:
    """Median times on this card, in ms."""
    return {
        (kernel, size): (page if kernel == exercise.baseline else student).time(kernel, size).median
        for size in exercise.sizes
        for kernel in _kernels(exercise)
    }


def _from_table(
    made: Submission, exercise: Exercise, times: Path
) -> tuple[dict[tuple[str, Size], float], dict[str, str]]:
    """Times in ms by kernel and size, and the machine, from a program's table."""
    try:
        with times.open(encoding="utf-8", newline="") as file:
            cards = sorted({row.get("card") or "" for row in csv.DictReader(file)})
        table = profiles.read_timing(times, "live", next(filter(None, cards), "not told"))
    except (OSError, profiles.ProfileError) as problem:
        made.missing.append(f"the times: {problem}")
        return {}, {}
    rows = table[table["metric"] == TIME]
    found = {(row.kernel, row.n): float(row.value) for row in rows.itertuples()}
    by_size = {
        (kernel, size): found[kernel, measurements.size_label(*size)]
        for kernel in _kernels(exercise)
        for size in exercise.sizes
        if (kernel, measurements.size_label(*size)) in found
    }
    return by_size, {"card": cards[0] if cards else "", "times": f"read from {times.name}"}
