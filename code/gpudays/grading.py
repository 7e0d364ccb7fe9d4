"""Grading room: a folder of hand-ins becomes one CSV and a report for each student.

Each student's report is on disk as soon as it is there, with a fingerprint of what was checked and by what: a run that
was killed goes on where it stopped, and a later run does only what is new or has changed.
"""

from __future__ import annotations

import atexit
import csv
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from gpudays import checking, exercise_report, nvrtc
from gpudays.exercise_gates import EXERCISES, beyond
from gpudays.exercise_report import FAILED, NOT_WRITTEN, STAGES, Report
from gpudays.extract import KINDS
from gpudays.sandbox import Job, Sandbox, Used

COLUMNS = ("student", "passed", "points", "out_of", *STAGES, "stopped_at", "why")
IGNORED = ("__MACOSX", "__pycache__")


@dataclass(frozen=True)
class Submission:
    """One student's hand-in: the name (of its file without ending, or of its folder), where it lies."""

    student: str
    path: Path


@dataclass(frozen=True)
class Graded:
    """One row of the class: a report, whether it was made now or taken from an earlier run, and what making it took."""

    student: str
    report: Report
    fresh: bool
    used: Used = field(default_factory=Used)


def submissions(folder: Path) -> list[Submission]:
    """The hand-ins of a folder, by name.

    Raises:
        NotADirectoryError: it is none.
    """
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder with one file or folder for each student")
    found = [p for p in sorted(folder.iterdir()) if not p.name.startswith(".") and p.name not in IGNORED]
    found = [p for p in found if p.is_dir() or p.suffix.lower() in KINDS]
    names = [p.name if p.is_dir() else p.stem for p in found]
    return [
        Submission(path.name if names.count(name) > 1 else name, path) for name, path in zip(names, found, strict=True)
    ]


def grade(
    folder: Path,
    day: str,
    output: Path,
    executor: Executor,
    card: str = "",
    tell: Callable[[Graded, int, int], None] = lambda graded, done, total: None,
) -> list[Graded]:
    """Grade a class.

    Args:
        folder: one file or folder a student.
        day: "day43", …
        output: the CSV to write; reports go into the folder of the same name without ``.csv``.
        executor: where checks run: threads that each have a sandbox process, or a Dask cluster's.
        card: the GPU to use by its name, "" for none: a report of another machine is not taken over.
        tell: called after each student with the row, how many are done, and how many there are.

    Returns:
        The rows, by student.

    Raises:
        NotADirectoryError: ``folder`` is none.
        checking.NoExercise: the day has no exercise.
    """
    given, everyone = checking.given(day), submissions(folder)
    reports, rows = output.with_suffix(""), {}
    reports.mkdir(parents=True, exist_ok=True)
    pending = {}
    try:
        for one in everyone:
            mark = fingerprint(one.path, day, card)
            if kept := _kept(reports, one.student, mark):
                rows[one.student] = kept
                tell(kept, len(rows), len(everyone))
                continue
            read = checking.read(day, one.path, bool(card))
            if isinstance(read, Report):
                rows[one.student] = _keep(reports, Graded(one.student, read, True), mark)
                tell(rows[one.student], len(rows), len(everyone))
                continue
            notes = [f"read from {read.where}", *read.notes]
            pending[executor.submit(check_one, Job(day, read.source, given, bool(card)))] = one.student, mark, notes
        for done in as_completed(pending):
            student, mark, notes = pending.pop(done)
            rows[student] = _keep(reports, *_result(done, Job(day, "", "", bool(card)), student, mark, notes))
            tell(rows[student], len(rows), len(everyone))
    finally:
        for left in pending:
            left.cancel()
        ordered = [rows[name] for name in sorted(rows)]
        write_csv(output, ordered)
    return ordered


def _result(done, job: Job, student: str, mark: str, notes: list[str]) -> tuple[Graded, str]:
    """What a job gave. One that was lost on its way is a row too, without a mark: the next run tries it again."""
    try:
        report, used = done.result()
    except Exception as problem:  # a lost worker raises what its cluster raises
        why = f"the check was lost: {type(problem).__name__}: {problem}"
        out_of_reach = beyond(EXERCISES[job.day], job.on_gpu)
        return Graded(student, exercise_report.stopped(job.day, STAGES[0], why, "grade again", out_of_reach), True), ""
    return Graded(student, exercise_report.from_dict(report).noted(*notes), True, used), mark


# ---- one check, wherever it runs -------------------------------------------------------------------------------------

_mine = threading.local()
_all: list[Sandbox] = []


def check_one(job: Job) -> tuple[dict, Used]:
    """Check one hand-in in this thread's sandbox: the report as plain data, and what it took."""
    if not hasattr(_mine, "sandbox"):
        _mine.sandbox = Sandbox(threads=1)  # hand-ins are checked side by side
        _all.append(_mine.sandbox)
    report = _mine.sandbox.check(job)
    return report.as_dict(), _mine.sandbox.used


@atexit.register
def close_sandboxes() -> None:
    """End the sandboxes of all threads."""
    while _all:
        _all.pop().close()


# ---- what is kept ----------------------------------------------------------------------------------------------------


def fingerprint(path: Path, day: str, card: str) -> str:
    """A hash of a hand-in's files, the day, the machine's card and everything that checks."""
    digest = hashlib.sha256(f"{day}\0{card}\0{_checker()}".encode())
    for file in _files(path):
        digest.update(file.relative_to(path).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    return iter([path] if path.is_file() else sorted(f for f in path.rglob("*") if f.is_file()))


@lru_cache(maxsize=1)
def _checker() -> str:
    """A hash of this package and the compiler's version."""
    digest = hashlib.sha256(repr(nvrtc.version()).encode())
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _kept(reports: Path, student: str, mark: str) -> Graded | None:
    """An earlier run's report, if it is of the same files; one that cannot be read is made again."""
    try:
        data = json.loads((reports / f"{student}.json").read_text("utf-8"))
        if data["fingerprint"] != mark:
            return None
        return Graded(student, exercise_report.from_dict(data["report"]), False, Used(**data["used"]))
    except (FileNotFoundError, json.JSONDecodeError, KeyError, TypeError):
        return None


def _keep(reports: Path, graded: Graded, mark: str) -> Graded:
    """Write a student's report; the JSON comes last and in one piece, so that what is marked is whole."""
    page, data = reports / f"{graded.student}.md", reports / f"{graded.student}.json"
    page.write_text(graded.report.as_markdown(f"{graded.report.day}: {graded.student}"), "utf-8")
    whole = {"student": graded.student, "fingerprint": mark, "used": graded.used.__dict__}
    text = json.dumps(whole | {"report": graded.report.as_dict()}, indent=2, ensure_ascii=False)
    fresh = data.with_name(f".{data.name}.{os.getpid()}")
    fresh.write_text(text + "\n", "utf-8")
    fresh.replace(data)
    return graded


def write_csv(output: Path, rows: list[Graded]) -> None:
    """The class as one table: points for each stage; empty where this machine cannot gate it."""
    fresh = output.with_name(f".{output.name}.{os.getpid()}")
    with fresh.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for row in rows:
            table.writerow(_row(row))
    fresh.replace(output)


def _row(row: Graded) -> list[object]:
    report = row.report
    stop = next((s for s in report.stages if s.status in (FAILED, NOT_WRITTEN)), None)
    points = ["" if stage.name in report.beyond else stage.points for stage in report.stages]
    why = " ".join(stop.seen[0].split())[:200] if stop and stop.seen else ""
    verdict = "yes" if report.passed else "no"
    return [row.student, verdict, report.points, report.out_of, *points, stop.name if stop else "", why]
