"""A made-up class, graded: each hand-in stops where it should, again and in any order, and nothing stops the run.

The order of speed needs a card: ``python -m pytest tests/test_grade.py -m gpu`` grades the whole class there.
"""

import csv
import functools
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpudays import checking, grading
from gpudays.cli import app
from gpudays.exercise_report import FAILED, NOT_GATED, NOT_WRITTEN, PASSED, STAGES

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/submissions"))
import made_up  # noqa: E402

CLASS = made_up.everyone()
FEW = [student for student in CLASS if student.name in ("solution", "stub", "no-first-barrier", "notebook", "prose")]


@pytest.fixture(scope="module", autouse=True)
def sandboxes_end_with_the_last_test():
    yield
    grading.close_sandboxes()


@functools.cache
def pool(jobs: int) -> ThreadPoolExecutor:
    """Threads that keep their sandboxes from one test to the next, as those of one run do for its hand-ins."""
    return ThreadPoolExecutor(jobs)


def graded(folder: Path, output: Path, jobs: int = 2, day: str = "day43", **options) -> list[grading.Graded]:
    return grading.grade(folder, day, output, pool(jobs), **options)


@pytest.fixture(scope="module")
def everyone(tmp_path_factory) -> dict[str, grading.Graded]:
    """The whole class without a GPU, by name."""
    folder = tmp_path_factory.mktemp("class")
    rows = graded(made_up.write(folder / "submissions", CLASS), folder / "grades.csv")
    return {row.student: row for row in rows}


def stopped_at(row: grading.Graded):
    return next((stage for stage in row.report.stages if stage.status in (FAILED, NOT_WRITTEN)), None)


def test_the_class_is_large_and_varied():
    names = [student.name for student in CLASS]
    assert len(CLASS) >= 40 and len(set(names)) == len(names)
    assert {student.stage for student in CLASS} == {"", *STAGES[:4]}


@pytest.mark.parametrize("student", made_up.right(), ids=lambda student: student.name)
def test_a_right_one_passes_in_any_style(everyone, student):
    assert everyone[student.name].report.passed, repr(everyone[student.name].report)


@pytest.mark.parametrize("student", made_up.wrong(), ids=lambda student: student.name)
def test_a_wrong_one_stops_at_the_stage_that_says_why(everyone, student):
    stage = stopped_at(everyone[student.name])
    assert stage is not None, repr(everyone[student.name].report)
    assert (stage.name, student.said in "\n".join(stage.seen)) == (student.stage, True), "\n".join(stage.seen)


def test_each_one_lists_all_ratios_and_takes_little(everyone):
    for row in everyone.values():
        asked = [] if not row.used.cpu_seconds else row.report.ratios
        assert len(asked) in (0, 12), row.student
    used = [row.used for row in everyone.values()]
    assert max(one.peak_mib for one in used) < 1024
    print(f"{sum(one.cpu_seconds for one in used) / len(used):.2f} s of CPU each, {max(one.peak_mib for one in used)}")


# ---- the files, again and in any order -------------------------------------------------------------------------------


def written(folder: Path) -> dict[str, str]:
    """What a run leaves, but for what a check took."""
    out = {p.name: p.read_text() for p in folder.glob("*.csv")}
    for path in sorted((folder / "grades").iterdir()):
        if path.suffix == ".json":
            data = json.loads(path.read_text())
            del data["used"]
            out[path.name] = json.dumps(data)
        else:
            out[path.name] = path.read_text()
    return out


def test_a_run_is_resumed_and_only_what_changed_is_done_again(tmp_path):
    folder = made_up.write(tmp_path / "submissions", FEW[:2])
    first = graded(folder, tmp_path / "grades.csv", 1)
    assert [row.fresh for row in first] == [True, True]
    made_up.write(folder, FEW)
    rows = graded(folder, tmp_path / "grades.csv", 1)
    assert {row.student for row in rows if row.fresh} == {student.name for student in FEW[2:]}
    (folder / "stub.cu").write_text(made_up.SOURCE)
    rows = graded(folder, tmp_path / "grades.csv", 1)
    assert [row.student for row in rows if row.fresh] == ["stub"]
    assert next(row for row in rows if row.student == "stub").report.passed
    (tmp_path / "grades/solution.json").write_text("{ damaged")
    assert [row.student for row in graded(folder, tmp_path / "grades.csv", 1) if row.fresh] == ["solution"]


def test_the_same_files_in_any_order(tmp_path):
    one, other, some = tmp_path / "one", tmp_path / "other", FEW[:3]
    graded(made_up.write(one / "submissions", some), one / "grades.csv", 2)
    for count in range(1, len(some) + 1):  # the last student first, one at a time
        graded(made_up.write(other / "submissions", some[-count:]), other / "grades.csv", 1)
    assert written(one) == written(other)


def test_a_killed_run_goes_on(tmp_path):
    folder = made_up.write(tmp_path / "submissions", FEW)
    command = [sys.executable, "-m", "gpudays", "grade", str(folder), "--day", "day43", "--no-gpu", "--jobs", "1"]
    command += ["--output", str(tmp_path / "grades.csv")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        while running.poll() is None and len(list((tmp_path / "grades").glob("[!.]*.json"))) < 2:  # prose is read only
            time.sleep(0.05)
        running.kill()
    before = {path.stem for path in (tmp_path / "grades").glob("[!.]*.json")}
    grading._checker.cache_clear()  # as a new process would
    rows = graded(folder, tmp_path / "grades.csv", 1)
    assert before and {row.student for row in rows if not row.fresh} == before
    assert len(rows) == len(FEW)


def test_the_csv_and_the_reports(tmp_path):
    folder = made_up.write(tmp_path / "submissions", FEW)
    ran = CliRunner().invoke(
        app, ["grade", str(folder), "--day", "day43", "--output", str(tmp_path / "grades.csv"), "--no-gpu"]
    )
    assert ran.exit_code == 0 and "5 students: 2 passed, 3 not" in ran.stdout
    rows = {row["student"]: row for row in csv.DictReader((tmp_path / "grades.csv").open())}
    assert list(rows) == sorted(rows) and rows["solution"]["points"] == rows["solution"]["out_of"] == "85"
    assert rows["solution"]["order of speed"] == "" and rows["stub"]["points"] == "0"
    assert {row["out_of"] for row in rows.values()} == {"85"}
    assert rows["no-first-barrier"]["stopped_at"] == "safe in the tracer" and "race" in rows["no-first-barrier"]["why"]
    page = (tmp_path / "grades/no-first-barrier.md").read_text()
    assert "| safe in the tracer | failed | 0 of 20 |" in page and "Hint: " in page and "speed-up" in page
    assert CliRunner().invoke(app, ["grade", str(tmp_path / "absent"), "--day", "day43"]).exit_code == 2
    assert CliRunner().invoke(app, ["grade", str(folder), "--day", "day1"]).exit_code == 2


def test_a_lost_check_is_a_row_and_is_tried_again(tmp_path):
    class Lost(ThreadPoolExecutor):
        def submit(self, *_, **__):
            return super().submit(lambda: 1 / 0)

    folder = made_up.write(tmp_path / "submissions", FEW[:1])
    with Lost(1) as lost:
        rows = grading.grade(folder, "day43", tmp_path / "grades.csv", lost)
    assert "the check was lost: ZeroDivisionError" in rows[0].report.stages[0].seen[0]
    assert graded(folder, tmp_path / "grades.csv", 1)[0].report.passed


def test_names_are_never_shared(tmp_path):
    (tmp_path / "ada").mkdir()
    for name in ("ada.cu", "ada.ipynb", "bob.cu", ".hidden.cu", "readme.md"):
        (tmp_path / name).write_text("")
    assert [one.student for one in grading.submissions(tmp_path)] == ["ada", "ada.cu", "ada.ipynb", "bob"]


def test_the_other_days_are_graded(tmp_path):
    (tmp_path / "submissions").mkdir()
    text = (ROOT / "code/day16-tiled-matmul/matmul_tiled.cu").read_text()
    (tmp_path / "submissions/right.cu").write_text(text)
    swapped = made_up.changed(text, ("a[row * k + aCol]", "a[row * n + aCol]"))
    (tmp_path / "submissions/leading-dimension.cu").write_text(swapped)
    rows = {row.student: row for row in graded(tmp_path / "submissions", tmp_path / "grades.csv", 1, "day16")}
    assert rows["right"].report.passed, repr(rows["right"].report)
    assert stopped_at(rows["leading-dimension"]).name in ("safe in the tracer", "correct")
    with pytest.raises(checking.NoExercise):
        checking.given("day99")


# ---- on a card: the same class with the order of speed gated ---------------------------------------------------------


@pytest.mark.gpu
def test_the_whole_class_on_a_card(tmp_path):
    folder = made_up.write(tmp_path / "submissions", CLASS)
    started = time.monotonic()
    rows = {row.student: row for row in graded(folder, tmp_path / "grades.csv", 8, card="here")}
    print(f"\n{(time.monotonic() - started) / len(rows):.2f} s a hand-in on the card, 8 at a time")
    for student in CLASS:
        stage = stopped_at(rows[student.name])
        last = rows[student.name].report.stages[-1]
        if student.stage:
            assert stage is not None, student.name
            assert stage.name in (student.stage, "order of speed"), (student.name, stage)
        elif student.name not in made_up.SLOW:
            assert stage is None and last.status == PASSED, (student.name, stage)
        assert last.status != NOT_GATED, student.name


@pytest.mark.gpu
def test_a_kernel_that_ruins_the_cards_context_ruins_no_one_elses(tmp_path):
    """Writes far outside at 1024 only, where the tracer runs a sample: the card faults, the next one passes."""
    store = "c[row * n + col] = sum;"
    far = made_up.changed(
        made_up.STEP3, (store, f"{store}\n    if (n == 1024 && row == 500 && col == 3) c[1ull << 40] = 1.0f;")
    )
    faulty = made_up.one("a-fault", made_up.HEAD + made_up.STEP2 + far)
    folder = made_up.write(tmp_path / "submissions", [faulty, made_up.one("b-right", made_up.SOURCE)])
    rows = graded(folder, tmp_path / "grades.csv", 1, card="here")
    assert stopped_at(rows[0]).name == "correct" and "outside its buffers" in stopped_at(rows[0]).seen[0]
    assert rows[1].report.passed
