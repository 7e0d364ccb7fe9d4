"""``gpudays check`` and the sandbox: verdicts, exit statuses, and hand-ins that would take the checker with them."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpudays import checking, exercise_report
from gpudays.cli import app
from gpudays.exercise_report import FAILED, NOT_RUN, PASSED, STAGES
from gpudays.sandbox import Job, Sandbox

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/submissions"))
import made_up  # noqa: E402

SOLUTION = ROOT / "code/day43-matmul-1/matmul_steps.cu"
GIVEN = checking.given("day43")


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as made:
        yield made


def run(*arguments: str):
    return CliRunner().invoke(app, ["check", *arguments])


def test_the_days_program_passes_with_exit_status_0():
    ran = run("day43", str(SOLUTION), "--no-gpu", "--json")
    report = json.loads(ran.stdout)
    assert ran.exit_code == 0 and report["passed"]
    assert report["points"] == report["out_of"] == 85 and [s["points"] for s in report["stages"]] == [10, 20, 30, 25, 0]
    shipped = [ratio for ratio in report["ratios"] if "beside the shipped report" in ratio["ratio"]]
    assert [ratio["value"] for ratio in shipped] == [8.5, 2.0, 4.0]
    assert all(ratio["status"] == "equal" and "shipped" in ratio["needs"] for ratio in shipped)


def test_a_wrong_one_exits_with_1_and_lists_the_ratios_it_did_not_reach(tmp_path):
    path = tmp_path / "my_steps.cu"
    path.write_text(SOLUTION.read_text().replace("float sum = 0.0f;", "float sum = 0.0f", 1))
    ran = run("day43", str(path), "--no-gpu")
    assert ran.exit_code == 1
    assert "found and compiles:  failed" in ran.stdout and "not passed, 0 of 85 points" in ran.stdout
    assert ran.stdout.count("not run") == 4 + 12  # stages, and every ratio of the day
    line = SOLUTION.read_text().splitlines().index("    float sum = 0.0f;") + 1
    assert f"{line} |     float sum = 0.0f" in ran.stdout  # as the student's file counts, not the kernels alone


def test_a_missing_file_is_a_verdict_and_a_missing_day_is_not(tmp_path):
    assert run("day43", str(tmp_path / "absent.cu")).exit_code == 1
    ran = run("day99", str(SOLUTION))
    assert ran.exit_code == 2 and "day43" in ran.stderr


def test_day16_is_checked_too(sandbox):
    report = checking.check("day16", ROOT / "code/day16-tiled-matmul/matmul_tiled.cu", sandbox, on_gpu=False)
    assert report.passed, repr(report)


def failed(sandbox: Sandbox, source: str):
    report = sandbox.check(Job("day43", source, GIVEN, False))
    return next(stage for stage in report.stages if stage.status == FAILED)


def test_a_failure_names_the_line_to_look_at(sandbox):
    line = GIVEN.splitlines().index("    if (row < n && col < n) c[row * n + col] = sum;") + 1
    stage = failed(
        sandbox,
        made_up.changed(
            GIVEN,
            ("if (row < n && col < n) c[row * n + col] = sum", "if (row < n && col < n) c[row * n + col] = 2 * sum"),
        ),
    )
    assert stage.name == "correct" and f"c is written here:\n{line:5d} |     if (row < n" in "\n".join(stage.seen)
    copy = made_up.HEAD + made_up.STEP2 + made_up.AS_STEP3
    line = max(n for n, text in enumerate(copy.splitlines(), 1) if "sum +=" in text)
    stage = failed(sandbox, copy)
    assert stage.name == "audit" and f"most requests are made here:\n{line:5d} |     for (size_t k" in stage.seen[0]
    assert all(stage.hint for stage in (stage, failed(sandbox, GIVEN + "x")))


# ---- the sandbox -----------------------------------------------------------------------------------------------------


def test_stages_are_told_as_they_begin(sandbox):
    begun = []
    sandbox.check(Job("day43", GIVEN, GIVEN, False), begun.append)
    assert begun == list(STAGES)


def test_time_runs_out(sandbox):
    started = time.monotonic()
    report = sandbox.check(Job("day43", GIVEN + "// slow", GIVEN, False, seconds=0.05))
    assert time.monotonic() - started < 30
    failed = next(stage for stage in report.stages if stage.status == FAILED)
    assert "longer than 0.05 seconds" in failed.seen[0]
    assert sandbox.check(Job("day43", GIVEN, GIVEN, False)).passed  # the next one is not touched


def test_memory_runs_out(sandbox):
    report = sandbox.check(Job("day43", GIVEN + "// large", GIVEN, False, memory_bytes=1 << 20))
    assert (
        not report.passed and sandbox.used.peak_mib < 1024 and sandbox.check(Job("day43", GIVEN, GIVEN, False)).passed
    )


def test_a_crash_is_a_verdict():
    code = "import os, signal\nfrom gpudays import exercise, sandbox\n"
    code += "exercise.check = lambda *_: os.kill(os.getpid(), signal.SIGSEGV)\nsandbox.serve()\n"
    job = json.dumps(Job("day43", GIVEN, GIVEN, False).__dict__) + "\n"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as ran:
        for _ in range(2):
            ran.stdin.write(job)
            ran.stdin.flush()
            assert "SIGSEGV" in json.loads(ran.stdout.readline())["stopped"]
            assert json.loads(ran.stdout.readline())["used"]["peak_mib"] > 1


def test_a_server_that_ends_is_told_and_started_again():
    with Sandbox() as box:
        assert box.check(Job("day43", GIVEN, GIVEN, False)).passed
        box._server.kill()
        box._server.wait()
        assert box.check(Job("day43", GIVEN, GIVEN, False)).passed
    with Sandbox() as box:
        box._started().kill()
        report = box.check(Job("day43", GIVEN, GIVEN, False))
        assert report.passed or "the process that checks ended" in report.stages[0].seen[0]


TURN = """
import sys, time
from gpudays import turns
turns.limit = int(sys.argv[1])
with turns.turn():
    print("in", flush=True)
    time.sleep(float(sys.argv[2]))
    print("out", flush=True)
"""


def test_checks_take_turns_on_a_card(tmp_path):
    said = tmp_path / "said"
    with said.open("w") as file:
        taking = [subprocess.Popen([sys.executable, "-c", TURN, "60", "0.5"], stdout=file) for _ in range(3)]
        assert [one.wait() for one in taking] == [0, 0, 0]
    assert said.read_text().split() == ["in", "out"] * 3


def test_a_turn_that_does_not_end_ends_its_process():
    ran = subprocess.run([sys.executable, "-c", TURN, "1", "60"], capture_output=True, text=True, check=False)
    assert ran.returncode == -signal.SIGALRM and ran.stdout == "in\n"


def test_a_stopped_check_keeps_the_stages_before_it():
    report = exercise_report.stopped("day43", "audit", "why")
    assert [stage.status for stage in report.stages] == [PASSED, PASSED, PASSED, FAILED, NOT_RUN]
    assert report.points == 60 and exercise_report.from_dict(report.as_dict()) == report
    page = report.as_markdown("ada")
    assert "# ada" in page and "| audit | failed | 0 of 25 |" in page and "why" in page
