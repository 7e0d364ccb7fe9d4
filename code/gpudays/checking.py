"""Checking room: from what a student hands in to the report: extracted, checked in a sandbox, told."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from gpudays import cuda_syntax, exercise_report, gpu, kernels_in_pages, profiles
from gpudays.compiler import KernelNotFound
from gpudays.course.steps import DAYS
from gpudays.exercise_gates import EXERCISES, beyond
from gpudays.exercise_report import STAGES, Report
from gpudays.extract import Extracted, NothingToCheck, extract
from gpudays.runs import ParameterError, Runs
from gpudays.sandbox import Job, Sandbox

SENTENCE = "sentence.txt"  # where a student writes which step they would have skipped


class NoExercise(LookupError):
    """What a check needs is not here: the day's exercise, its program, or the parser; the message says what to do."""


def program_name(day: str) -> str:
    """The file that students write and hand in."""
    exercise = EXERCISES[day]
    return Path(exercise.day.program).name if DAYS.get(day) is exercise.day else "my_steps.cu"


@lru_cache(maxsize=8)
def given(day: str) -> str:
    """The page's own kernels with the day's baseline among them: from its program, or from an earlier day's.

    Raises:
        NoExercise: the day has no exercise, or its program is not here.
    """
    if day not in EXERCISES:
        raise NoExercise(f"{day} has no exercise: there is one for {', '.join(EXERCISES)}")
    asked, home = EXERCISES[day], profiles.home()
    if home is None:
        raise NoExercise("the course's folder is not here: work in a checkout of it, or set GPUDAYS_HOME")
    for program in dict.fromkeys((asked.day.program, *(d.program for d in DAYS.values()))):
        if not (home / program).is_file():
            continue
        text = kernels_in_pages.kernel_text(home / program)
        if asked.baseline not in text:
            continue
        try:
            Runs(text, asked.day).signature(asked.baseline)
        except (KernelNotFound, ParameterError):
            continue
        return text
    raise NoExercise(f"no program of the course has {asked.baseline}, which {day} is held against")


def read(day: str, path: Path, on_gpu: bool = False) -> Extracted | Report:
    """The kernels of a hand-in, or the report that says why there are none.

    Args:
        day: "day43", …
        path: a file or folder.
        on_gpu: whether the check would use a GPU, which decides how many points there are.

    Raises:
        NoExercise: the day has no exercise, or tree-sitter is not installed.
    """
    if day not in EXERCISES:
        raise NoExercise(f"{day} has no exercise: there is one for {', '.join(EXERCISES)}")
    try:
        return extract(path, EXERCISES[day].kernels)
    except cuda_syntax.MissingParser as problem:
        raise NoExercise(str(problem)) from problem
    except NothingToCheck as problem:
        why = str(problem)
    except RecursionError:
        why = f"{path.name}: nested too deeply to be read"
    return exercise_report.stopped(day, STAGES[0], why, beyond=beyond(EXERCISES[day], on_gpu))


def check(
    day: str,
    path: Path,
    sandbox: Sandbox,
    on_gpu: bool | None = None,
    begin: Callable[[str], None] = lambda stage: None,
) -> Report:
    """Check what is in a file or folder.

    Args:
        day: "day43", …
        path: a .cu file, a notebook, a zip, or a folder with one.
        sandbox: where it is run.
        on_gpu: use the card (default: if there is one).
        begin: called with each stage's name as it begins.

    Raises:
        NoExercise: the day has no exercise.
    """
    on_gpu = gpu.device() is not None if on_gpu is None else on_gpu
    found = read(day, path, on_gpu)
    if isinstance(found, Report):
        return found
    report = sandbox.check(Job(day, found.source, given(day), on_gpu), begin)
    return report.noted(f"read from {found.where}", *found.notes)
