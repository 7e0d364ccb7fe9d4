"""The handout: solutions out, stubs in; every check fails on the stub and passes on the solution."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest
from typer.testing import CliRunner

from gpudays import checking, exercise, handout, notebooks
from gpudays.cli import app
from gpudays.exercise_gates import EXERCISES
from gpudays.exercise_report import NOT_WRITTEN, POINTS, STAGES
from gpudays.extract import extract
from gpudays.sandbox import Sandbox

ROOT = Path(__file__).parents[1]
DAYS = list(EXERCISES)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    made = {day: tmp_path_factory.mktemp(day) / "out" for day in DAYS}
    for day, out in made.items():
        ran = CliRunner().invoke(app, ["handout", day, str(out)])
        assert ran.exit_code == 0, ran.output
    return made


def solution(day: str) -> str:
    """The solution on the day's page, below what the page gives."""
    page = (ROOT / EXERCISES[day].day.page).read_text("utf-8")
    found = re.search(r"<summary>Solution</summary>\s*```cuda\n(.*?)```", page, re.DOTALL)
    return handout._student_string(ROOT, day) + found[1]


def pytest_in(folder: Path) -> tuple[int, dict[str, int]]:
    """The exit status of a plain pytest in a folder, and its counts."""
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=folder, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return ran.returncode, {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped)", ran.stdout)}


def test_a_plain_pytest_is_the_autograder(folders, tmp_path):
    folder = Path(shutil.copytree(folders["day43"], tmp_path / "day43"))
    assert pytest_in(folder) == (1, {"failed": len(STAGES)})
    (folder / checking.program_name("day43")).write_text(solution("day43"))
    status, counts = pytest_in(folder)
    assert status == 0 and "failed" not in counts and sum(counts.values()) == len(STAGES), counts


@pytest.mark.parametrize("day", DAYS)
def test_every_check_fails_on_the_stub_and_passes_on_the_solution(folders, day, tmp_path):
    """As the handed-out test calls them, stage by stage."""
    folder = Path(shutil.copytree(folders[day], tmp_path / day))
    file = folder / checking.program_name(day)
    assert f'checking.check("{day}", FILE, sandbox)' in (folder / f"test_{day}.py").read_text("utf-8")
    with Sandbox() as sandbox:
        stub = checking.check(day, file, sandbox)
        file.write_text(solution(day))
        solved = checking.check(day, file, sandbox)
    for stage in STAGES:
        with pytest.raises(AssertionError, match=stage):
            stub.require(stage)
        solved.require(stage)


@pytest.mark.parametrize("day", DAYS)
def test_the_solution_is_nowhere_in_it(folders, day):
    text = "\n".join(p.read_text("utf-8") for p in folders[day].iterdir() if p.is_file())
    lines = {line.strip() for line in solution(day).splitlines()} - {
        line.strip() for line in checking.given(day).splitlines() if day == "day44"
    }
    given = handout._student_string(ROOT, day)
    telling = {line for line in lines if len(line) > 40 and line not in given and "__global__" not in line}
    telling = {line for line in telling if not line.startswith("//") and "const float* __restrict__" not in line}
    assert telling and not [line for line in telling if line in text]
    assert "Solution</summary>" not in text and text.count("<details>") >= 2  # the hints stay


@pytest.mark.parametrize("day", DAYS)
def test_nbgrader_finds_its_metadata_in_both_of_the_pair(folders, day):
    stem = folders[day] / Path(EXERCISES[day].day.page).stem
    pair = [nbformat.read(stem.with_suffix(".ipynb"), 4), jupytext.read(stem.with_suffix(".md"))]
    marks = [[(cell.cell_type, dict(cell.metadata.get("nbgrader", {}))) for cell in book.cells] for book in pair]
    assert marks[0] == marks[1]
    assert [cell.source for cell in pair[0].cells] == [cell.source for cell in pair[1].cells]
    ids = [mark["grade_id"] for _, mark in marks[0]]
    assert len(set(ids)) == len(ids) and all(mark["schema_version"] == 3 for _, mark in marks[0])
    graded = [mark for _, mark in marks[0] if mark["grade"]]
    assert [mark["points"] for mark in graded] == [*POINTS.values(), 0] and sum(POINTS.values()) == 100
    written = [kind for kind, mark in marks[0] if mark["solution"]]
    assert written == ["code", "markdown"] and all(mark["locked"] != mark["solution"] for _, mark in marks[0])
    nbformat.validate(pair[0])


def test_the_notebook_runs_and_its_graded_cells_fail_on_the_stub(folders):
    book = nbformat.read(folders["day43"] / "day43-matmul-1.ipynb", 4)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    names: dict[str, object] = {}
    for cell in code:
        if not cell.metadata["nbgrader"]["grade"]:
            exec(cell.source, names)
    assert names["report"].stages[0].status == NOT_WRITTEN
    for cell in code:
        if cell.metadata["nbgrader"]["grade"]:
            with pytest.raises(AssertionError, match="day43: not passed"):
                exec(cell.source, names)
    names["student"] = solution("day43")
    names["report"] = exercise.check("day43", names["student"], names["given"], on_gpu=False)
    for cell in code:
        if cell.metadata["nbgrader"]["grade"]:
            exec(cell.source, names)


def test_the_stubs_leave_a_whole_program(folders):
    text = (folders["day43"] / "matmul_steps.cu").read_text()
    assert text.count("// Your code.") == 2 and "int main(" in text and "../common" not in text
    assert (folders["day43"] / "common/checking.cuh").is_file()
    assert extract(folders["day43"] / "matmul_steps.cu", ["matmulTiled"]).names[0] == "matmulStridedRows"
    nvcc = shutil.which("nvcc")
    if nvcc:
        command = [nvcc, "-std=c++17", "-arch=sm_75", "-c", "-o", "/dev/null", "matmul_steps.cu"]
        ran = subprocess.run(command, cwd=folders["day43"], capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr


def test_a_repository_brings_the_workflow(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "repository", lambda root: ("https://example.org/course", "main"))
    handout.write(ROOT, "day43", tmp_path)
    text = (tmp_path / ".github/workflows/classroom.yml").read_text()
    assert "--branch main https://example.org/course" in text and "pytest" in text


def test_what_is_missing_is_told(tmp_path):
    ran = CliRunner().invoke(app, ["handout", "day99", str(tmp_path)])
    assert ran.exit_code == 2 and "day43" in ran.stderr
    with pytest.raises(handout.HandoutError, match="no such page"):
        handout.exercise_notebook(tmp_path, "day43")
