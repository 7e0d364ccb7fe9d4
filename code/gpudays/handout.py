"""Handout room: a day's exercise as students get it: notebook and program with stubs, tests, and what graders expect.

The notebook is the exercise of the day's page: its text, hints and stub, without the solution. Its cells carry
nbgrader's metadata, also in the MyST text beside it. A plain ``pytest`` in the folder is the autograder.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import jupytext
import nbformat
from jupytext.config import load_jupytext_configuration_file
from nbformat import NotebookNode

from gpudays import checking, cuda_syntax, first_cell, notebooks
from gpudays.checking import SENTENCE, program_name
from gpudays.course.steps import DAYS
from gpudays.exercise_gates import EXERCISES
from gpudays.exercise_report import POINTS

SOLUTION = re.compile(r"<details>\s*<summary>Solution</summary>.*?</details>\n*", re.DOTALL)
STUDENT = re.compile(r'^student = r"""\n(.*?)"""$', re.DOTALL | re.MULTILINE)
STUB = "    // Your code."


class HandoutError(RuntimeError):
    """A page or program that no handout can be made of; the message names it and what is missing."""


def write(root: Path, day: str, out: Path) -> list[Path]:
    """Write a day's handout.

    Args:
        root: the course's checkout.
        day: "day43", …
        out: the folder, made if need be; files of an earlier handout are replaced.

    Returns:
        What was written.

    Raises:
        checking.NoExercise: the day has no exercise.
        HandoutError: its page has no exercise section or no solution that could be taken out.
    """
    checking.given(day)
    out.mkdir(parents=True, exist_ok=True)
    address, branch = notebooks.repository(root)
    texts = {
        program_name(day): _program(root, day),
        f"test_{day}.py": _tests(day),
        SENTENCE: "",
        "README.md": _readme(day),
    }
    if address:
        texts[".github/workflows/classroom.yml"] = _workflow(address, branch)
    written = []
    for name, text in texts.items():
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        written.append(path)
    if '#include "common/' in texts[program_name(day)]:
        written.append(Path(shutil.copytree(root / "code/common", out / "common", dirs_exist_ok=True)))
    return [*written, *_write_notebook(root, exercise_notebook(root, day), out / Path(EXERCISES[day].day.page).stem)]


# ---- the program -----------------------------------------------------------------------------------------------------


def _program(root: Path, day: str) -> str:
    """The day's program with stubs; where the exercise has other launches than the program, the page's own stub."""
    exercise = EXERCISES[day]
    if DAYS.get(day) is exercise.day:
        text = cuda_syntax.stubbed((root / exercise.day.program).read_text("utf-8"), exercise.baseline, STUB)
        return text.replace('#include "../common/', '#include "common/')
    return f"// {exercise.day.title}: your kernels.\n" + _student_string(root, day)


def _student_string(root: Path, day: str) -> str:
    page = root / EXERCISES[day].day.page
    found = STUDENT.search(page.read_text("utf-8")) if page.is_file() else None
    if not found:
        raise HandoutError(f'{page}: no cell with student = r""" … """, which the handout is made of')
    return found[1]


# ---- the notebook ----------------------------------------------------------------------------------------------------


def exercise_notebook(root: Path, day: str) -> NotebookNode:
    """The exercise of a day's page as a notebook for students, with nbgrader's metadata.

    Raises:
        HandoutError: as `write` does.
    """
    page = root / EXERCISES[day].day.page
    if not page.is_file():
        raise HandoutError(f"{page}: no such page")
    source = notebooks.read_source(root, page)
    cells = [_first(source, page), _given_cell(day)]
    solved = False
    for kind, text in _section(source, page):
        if kind == "code" and STUDENT.search(text):
            cells.append(_cell("code", text, f"{day}-student", solution=True))
        elif kind == "code":
            cells += _checks(day)
        else:
            left = SOLUTION.sub("", text)
            solved = solved or left != text
            if left.strip():
                cells.append(_cell("markdown", left.strip(), f"{day}-text-{len(cells)}"))
    if not solved:
        raise HandoutError(f"{page}: its exercise has no <details> with the summary Solution to take out")
    question = "**Which step would you have skipped, and why?** One sentence:"
    cells.append(_cell("markdown", question, f"{day}-sentence", solution=True, points=0))
    title = page.read_text("utf-8").split("\n# ", 1)[1].split("\n", 1)[0]
    cells.insert(0, _cell("markdown", f"# {title}: exercise", f"{day}-title"))
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=source.metadata)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"{day}-handout-{number}"
    return notebook


def _section(source: NotebookNode, page: Path) -> list[tuple[str, str]]:
    """(kind, text) of the page's exercise, from its heading to the next."""
    pieces = [
        (cell.cell_type, text)
        for cell in source.cells
        for text in (re.split(r"(?m)^(?=## )", cell.source) if cell.cell_type == "markdown" else [cell.source])
    ]
    heads = [n for n, (kind, text) in enumerate(pieces) if kind == "markdown" and text.startswith("## ")]
    start = next((n for n in heads if pieces[n][1].startswith("## Exercise")), None)
    if start is None:
        raise HandoutError(f"{page}: no section that begins with '## Exercise'")
    return pieces[start : next((n for n in heads if n > start), len(pieces))]


def _first(source: NotebookNode, page: Path) -> NotebookNode:
    """The cell that finds or fetches the course."""
    for cell in source.cells:
        if cell.cell_type == "code" and cell.source.startswith(first_cell.MARK):
            return _cell("code", cell.source, "first", tags=list(first_cell.TAGS))
    raise HandoutError(f"{page}: no first cell that fetches the course; run `gpudays stamp`")


def _given_cell(day: str) -> NotebookNode:
    text = f'from gpudays import checking, exercise\n\ngiven = checking.given("{day}")  # the page\'s own kernels'
    return _cell("code", text, f"{day}-given")


def _checks(day: str) -> list[NotebookNode]:
    """The check, and a graded cell for each stage."""
    tags = ["nbval-ignore-output"]
    run = f'report = exercise.check("{day}", student, given)\nreport'
    cells = [_cell("code", run, f"{day}-check", tags=tags)]
    for stage, points in POINTS.items():
        name = f"{day}-{stage.replace(' ', '-')}"
        cells.append(_cell("code", f'report.require("{stage}")', name, points=points))
    return cells


def _cell(
    kind: str,
    text: str,
    grade_id: str,
    solution: bool = False,
    points: int | None = None,
    tags: list[str] | None = None,
) -> NotebookNode:
    """A cell with nbgrader's metadata (version 3): what students write is a solution, what has points is graded."""
    made = nbformat.v4.new_code_cell(text) if kind == "code" else nbformat.v4.new_markdown_cell(text)
    graded = points is not None
    marks = {"grade": graded, "grade_id": grade_id, "locked": not solution, "schema_version": 3, "solution": solution}
    made.metadata["nbgrader"] = marks | {"task": False} | ({"points": points} if graded else {})
    if tags:
        made.metadata["tags"] = tags
    return made


def _write_notebook(root: Path, notebook: NotebookNode, stem: Path) -> list[Path]:
    """The notebook and the MyST text beside it, paired as the course's own pages are."""
    config = load_jupytext_configuration_file(str(root / "jupytext.toml"))
    text, page = stem.with_suffix(".md"), stem.with_suffix(".ipynb")
    nbformat.write(notebook, page)
    jupytext.write(notebook, text, fmt="md:myst", config=config)
    return [text, page]


# ---- tests and texts -------------------------------------------------------------------------------------------------


def _tests(day: str) -> str:
    return f'''"""The autograder: run `pytest` in this folder. One test for each stage of the check."""

from pathlib import Path

import pytest

from gpudays import checking
from gpudays.exercise_report import NOT_GATED, STAGES
from gpudays.sandbox import Sandbox

FILE = Path(__file__).with_name("{program_name(day)}")


@pytest.fixture(scope="module")
def report():
    with Sandbox() as sandbox:
        return checking.check("{day}", FILE, sandbox)


@pytest.mark.parametrize("stage", STAGES)
def test_stage(report, stage):
    report.require(stage)
    found = next(one for one in report.stages if one.name == stage)
    if found.status == NOT_GATED:
        pytest.skip(found.seen[0])
'''


def _readme(day: str) -> str:
    exercise, program = EXERCISES[day], program_name(day)
    wanted = " and ".join(f"`{kernel}`" for kernel in exercise.kernels)
    return f"""# {exercise.day.title}: exercise

Write {wanted} in `{program}`, or in the notebook. `{exercise.baseline}` is given.

| to do | command |
| --- | --- |
| check what you have | `gpudays check {day} {program}` |
| run the tests that grade it | `pytest` |
| pack what you hand in | `gpudays submit {day}` |

`gpudays submit` also wants one sentence in `{SENTENCE}`: which step would you have skipped, and why?
"""


def _workflow(address: str, branch: str) -> str:
    return f"""name: Autograding
on: [push, workflow_dispatch]
permissions:
  contents: read
jobs:
  grade:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.11"
      - run: git clone --depth 1 --branch {branch} {address} "$RUNNER_TEMP/course"
      - run: python -m pip install -e "$RUNNER_TEMP/course[cpu,check]" pytest
      - run: python -m pytest -q
"""
