"""Sandbox room: each check in a process of its own, with a limit of time and of memory.

A server process (``python -m gpudays.sandbox``) has everything imported and the page's own kernels counted. For each
job it forks a child, which checks one hand-in and ends. Whatever happens to the child — a crash, an endless loop, a
fault that makes the GPU unusable for its process — ends with it. A job on a GPU gets a new process instead of a forked
one: a driver that the parent has started, as NVRTC's cache does, does not work in a fork. Jobs go in and answers come
out as lines of JSON: {"stage": …} as each begins, {"report": …} or {"stopped": …}, and at last {"used": …}. Where a
system cannot fork (Windows) the server itself checks, without limits.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

from gpudays import exercise_report, turns
from gpudays.exercise_gates import EXERCISES, beyond
from gpudays.exercise_report import STAGES, Report
from gpudays.ptx import engine

SECONDS = 120.0
ONE = "one"  # the argument of a process that works on a single job
CARD_SECONDS = 30  # of them in one go on the card, while others wait for it
MEMORY_BYTES = 1 << 30  # on top of what is imported; a GPU's driver maps far more, so that it is not limited there


@dataclass(frozen=True)
class Job:
    """One check: the day, the hand-in's kernels, the page's own, whether to use the GPU."""

    day: str
    source: str
    baseline: str
    on_gpu: bool = False
    seconds: float = SECONDS
    memory_bytes: int = MEMORY_BYTES


@dataclass(frozen=True)
class Used:
    """What a check took: CPU time in seconds of all its threads, and the most memory that it held, in MiB."""

    cpu_seconds: float = 0.0
    peak_mib: float = 0.0


class Sandbox:
    """A server, started at its first job; to be used by one thread, and closed.

    Attributes:
        used: what the last check took.
        threads: on how many threads the tracer may run (None: as many as the machine has cores).
    """

    def __init__(self, threads: int | None = None) -> None:
        self.used, self.threads = Used(), threads
        self._server: subprocess.Popen | None = None
        self._errors = None

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self, job: Job, begin: Callable[[str], None] = lambda stage: None) -> Report:
        """Check one hand-in; whatever stops the check is in the report.

        Args:
            job: what to check.
            begin: called with each stage's name as it begins.
        """
        server, stage, report = self._started(), STAGES[0], None
        out_of_reach = beyond(EXERCISES[job.day], job.on_gpu)
        self.used = Used()
        try:
            server.stdin.write(json.dumps(job.__dict__) + "\n")
            server.stdin.flush()
            for line in server.stdout:
                answer = json.loads(line)
                if "stage" in answer:
                    stage = answer["stage"]
                    begin(stage)
                elif "report" in answer:
                    report = exercise_report.from_dict(answer["report"])
                elif "stopped" in answer:
                    report = exercise_report.stopped(job.day, stage, answer["stopped"], beyond=out_of_reach)
                else:
                    self.used = Used(**answer["used"])
                    return report
        except (BrokenPipeError, json.JSONDecodeError):
            pass
        why = f"the process that checks ended: {self._last_words()}"
        self.close()
        return exercise_report.stopped(job.day, stage, why, beyond=out_of_reach)

    def close(self) -> None:
        """End the server; a child that is still at work ends with it."""
        if self._server is not None:
            with contextlib.suppress(BrokenPipeError):
                self._server.stdin.close()
            try:
                self._server.wait(5)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
            self._server.stdout.close()
            self._errors.close()
            self._server = None

    def _started(self) -> subprocess.Popen:
        if self._server is None or self._server.poll() is not None:
            self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (close() closes it)
            limits = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            if self.threads:
                limits[engine.THREADS] = str(self.threads)
            self._server = subprocess.Popen(
                [sys.executable, "-m", "gpudays.sandbox"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self._errors, text=True, env=os.environ | limits, start_new_session=True,
            )  # fmt: skip
        return self._server

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return lines[-1] if lines else "it said nothing"


# ---- the server ------------------------------------------------------------------------------------------------------


def serve() -> None:
    """Answer jobs from standard input until it ends."""
    out = _answers()
    for number, line in enumerate(sys.stdin):
        job = Job(**json.loads(line))
        try:
            if not job.on_gpu:
                _warm(job, many=number > 0)
        except Exception as problem:  # the page's own source: every job would fail alike
            _say(out, stopped=f"the page's own kernels cannot be checked: {problem}")
            _say(out, used={})
            continue
        if not hasattr(os, "fork"):
            _work(job, out)
            _say(out, used={})
            continue
        read, write = os.pipe()
        if job.on_gpu:
            child = _new_process(line, write)
        elif (child := os.fork()) == 0:
            _child(job, read, write)
        os.close(write)
        if not _watch(job, child, read, out):
            return


def _warm(job: Job, many: bool) -> None:
    """Count what every hand-in is held against, kept for all; where there are many, have the tracer ready for them."""
    from gpudays import exercise, exercise_ratios

    asked = exercise.EXERCISES[job.day]
    given = exercise.given(job.day, job.baseline)
    for kernel in (asked.baseline, *asked.kernels) if many else ():
        with contextlib.suppress(LookupError):  # a page need not have the kernel that is to be written
            given.prepare(kernel)
    given.traced(asked.baseline, asked.sizes[0])
    exercise_ratios.beside_shipped(asked, lambda kernel, size: 0.0)


def _child(job: Job, read: int, write: int) -> None:
    """Work on a job and end; never returns."""
    code = 1
    try:
        os.close(read)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _limit_memory(job.memory_bytes)
        with os.fdopen(write, "w") as out:
            _work(job, out)
        code = 0
    finally:
        os._exit(code)


def _new_process(line: str, write: int) -> int:
    """Start a process of its own for one job, which writes its answers to ``write``; its process number."""
    with tempfile.TemporaryFile() as job:
        job.write(line.encode())
        job.seek(0)
        ends = [(os.POSIX_SPAWN_DUP2, job.fileno(), 0), (os.POSIX_SPAWN_DUP2, write, 1)]
        command = [sys.executable, "-m", "gpudays.sandbox", ONE]
        return os.posix_spawn(sys.executable, command, os.environ, file_actions=ends)


def work_on_one() -> None:
    """Work on the one job on standard input, as a process started for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    turns.limit = CARD_SECONDS
    _work(Job(**json.loads(sys.stdin.readline())), _answers())
    os._exit(0)  # a driver in trouble can hang an orderly end


def _answers():
    """Standard output, for answers alone: what a library prints there is none, and goes to the errors."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return out


def _limit_memory(more: int) -> None:
    """Allow this process so many bytes more than it has, where the system can."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            has = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (has + more, has + more))
    except (ImportError, OSError, ValueError):
        return


def _work(job: Job, out) -> None:
    from gpudays import exercise

    try:
        report = exercise.check(job.day, job.source, job.baseline, job.on_gpu, lambda stage: _say(out, stage=stage))
        _say(out, report=report.as_dict())
    except MemoryError:
        _say(out, stopped=f"it needs more memory than the {job.memory_bytes >> 20} MiB that a check may use")
    except Exception as problem:  # a hand-in that the check did not foresee is still a graded row
        _say(out, stopped=f"the check cannot go on: {type(problem).__name__}: {problem}")


def _say(out, **answer: object) -> None:
    out.write(json.dumps(answer) + "\n")
    out.flush()


def _watch(job: Job, child: int, read: int, out) -> bool:
    """Pass on what a child says until it ends or its time is up; False when nobody listens any more."""
    deadline, done, rest = time.monotonic() + job.seconds, False, b""
    try:
        while True:
            ready, _, _ = select.select([read, 0], [], [], max(0.0, deadline - time.monotonic()))
            if read not in ready:
                os.kill(child, signal.SIGKILL)
                _, used = _ended(child)
                if 0 in ready:  # the other side has gone
                    return False
                _say(out, stopped=f"it took longer than {job.seconds:g} seconds; a right kernel takes a few")
                _say(out, used=used)
                return True
            data = os.read(read, 1 << 16)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                done = done or b'"stage"' not in line[:8]
                out.write(line.decode() + "\n")
            out.flush()
    finally:
        os.close(read)
    status, used = _ended(child)
    if not done:
        how = signal.Signals(-os.waitstatus_to_exitcode(status)).name if os.WIFSIGNALED(status) else "no word"
        slow = f": a kernel ran on the card for more than {CARD_SECONDS} seconds" if how == "SIGALRM" else ""
        _say(out, stopped=f"the check's process ended with {how}{slow}")
    _say(out, used=used)
    return True


def _ended(child: int) -> tuple[int, dict[str, float]]:
    """Wait for a child: its status, and what it used."""
    _, status, usage = os.wait4(child, 0)
    per_mib = 1 << 20 if sys.platform == "darwin" else 1 << 10  # macOS counts bytes, Linux KiB
    return status, {"cpu_seconds": usage.ru_utime + usage.ru_stime, "peak_mib": usage.ru_maxrss / per_mib}


if __name__ == "__main__":
    work_on_one() if sys.argv[1:] == [ONE] else serve()
