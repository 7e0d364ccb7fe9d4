"""The same class on a Dask cluster: a real scheduler and two workers, one of which is killed midway."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("distributed")

sys.path.insert(0, str(Path(__file__).parent / "submissions"))
import made_up

NAMES = ("solution", "padded", "stub", "no-first-barrier", "accumulates", "c-as-scratch", "prose")
FEW = [student for student in made_up.everyone() if student.name in NAMES]


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen]:
    """A program that is ended with the block."""
    quiet = os.environ | {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=quiet) as program:
        try:
            yield program
        finally:
            program.kill()


@contextmanager
def cluster() -> Iterator[tuple[str, list[subprocess.Popen]]]:
    """A scheduler's address and its two workers, each a process without a nanny that would start it again."""
    module = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    with running(*module, "--host", "127.0.0.1") as scheduler:
        address = next(found[0] for line in scheduler.stdout if (found := re.search(r"tcp://[\d.]+:\d+", line)))
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny"]
        with running(*worker, "--no-dashboard") as one, running(*worker, "--no-dashboard") as other:
            yield address, [one, other]


def grade(folder: Path, output: Path, *options: str) -> list[str]:
    command = [sys.executable, "-m", "gpudays", "grade", str(folder), "--day", "day43", "--no-gpu"]
    return [*command, "--output", str(output), *options]


def reports(output: Path) -> set[str]:
    return {path.stem for path in output.with_suffix("").glob("[!.]*.json")}


def test_a_worker_is_killed_midway_and_the_grades_are_the_same(tmp_path):
    folder = made_up.write(tmp_path / "submissions", FEW)
    here, there = tmp_path / "here.csv", tmp_path / "there.csv"
    assert subprocess.run(grade(folder, here, "--jobs", "1"), check=False, capture_output=True).returncode == 0
    with cluster() as (address, workers), running(*grade(folder, there, "--scheduler", address)) as grading:
        while grading.poll() is None and len(reports(there)) < 3:  # prose needs no worker, so two jobs are done
            time.sleep(0.02)
        assert grading.poll() is None, grading.stdout.read()
        before = reports(there)
        workers[0].send_signal(signal.SIGKILL)
        said = grading.communicate(timeout=300)[0]
        assert grading.returncode == 0, said
        assert workers[1].poll() is None
    assert len(before) < len(FEW) == len(reports(there))
    assert there.read_text() == here.read_text()
    for name in reports(here):
        one, other = (json.loads((out.with_suffix("") / f"{name}.json").read_text()) for out in (here, there))
        assert one["report"] == other["report"]


def test_no_scheduler_is_told(tmp_path):
    folder = made_up.write(tmp_path / "submissions", FEW[:1])
    command = grade(folder, tmp_path / "grades.csv", "--scheduler", "tcp://127.0.0.1:9")
    quick = os.environ | {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "1s"}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=quick)
    assert ran.returncode == 2 and "tcp://127.0.0.1:9" in ran.stderr
