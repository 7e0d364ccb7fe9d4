"""The site room: real Jupyter Book builds of a three-page course, made to fail in the ways that builds fail."""

import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from gpudays import first_cell, notebooks, site

ROOT = Path(__file__).parents[1]
PAGE = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
    format_version: 0.13
kernelspec:
  display_name: Python 3 (ipykernel)
  language: python
  name: python3
---

# A tiny day

A request costs $\\frac{17}{2}$ sectors.

```{code-cell} ipython3
import answer

print("the answer is", answer.VALUE)
```
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A checkout with a first page, one day, the real configuration and the real package; built once."""
    root = tmp_path_factory.mktemp("course")
    for name in ("book", "content"):
        (root / name).mkdir()
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "code/gpudays", root / "code/gpudays", ignore=ignored)
    (root / "book/images").mkdir(parents=True)
    for name in ("_config.yml", "jupytext.toml", "requirements.txt", "book/images/favicon.svg"):
        shutil.copy(ROOT / name, root / name)
    (root / "_toc.yml").write_text(
        "format: jb-book\nroot: book/intro\nchapters:\n  - file: book/tiny\n  - file: book/other\n"
    )
    (root / "book/intro.md").write_text("# A course\n\nWords.\n")
    (root / "book/tiny.md").write_text(PAGE)
    (root / "book/other.md").write_text(PAGE.replace("A tiny day", "Another").replace("the answer is", "and here"))
    (root / "code/answer.py").write_text("VALUE = 41\n")
    for page in notebooks.pages(root):
        notebooks.stamp(root, page)
        notebooks.sync(root, page)
    site.build(root, reuse=False)
    return root


def html(root, name="book/tiny"):
    return (root / f"_build/html/{name}.html").read_text("utf-8")


def test_the_page_was_run_and_its_formula_needs_no_script(course):
    assert "the answer is 41" in html(course)
    assert "and here 41" in html(course, "book/other")
    assert "<mfrac>" in html(course)
    assert not re.search(r'<(script|link)[^>]+(src|href)="https?:', html(course))


def test_without_a_repository_there_is_nothing_to_press_that_leads_nowhere(course):
    assert "colab.research" not in html(course)
    assert "mybinder" not in html(course)
    assert "github.com/None" not in html(course)


def test_nothing_changed_builds_nothing(course, capfd):
    site.build(course, reuse=True)
    assert capfd.readouterr().out.strip() == "Nothing has changed since the site was built."


def test_a_page_that_fails_keeps_the_good_site_and_says_why(course, capfd):
    before = html(course)
    (course / "code/answer.py").write_text("VALUE = undefined_name\n")
    with pytest.raises(site.SiteError, match="previous one stays"):
        site.build(course, reuse=True)
    assert "undefined_name" in capfd.readouterr().out
    assert html(course) == before
    (course / "code/answer.py").write_text("VALUE = 41\n")


def test_where_processes_cannot_share_locks_the_pages_wait_for_jupyter_book(course, tmp_path, capfd, monkeypatch):
    class Executor:
        def run_and_cache(self, **_):
            raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("jupyter_cache.executors.load_executor", lambda *_: Executor())
    site.execute_ahead(course, tmp_path / "cache")
    said = capfd.readouterr().out
    assert "one after another instead: [Errno 13] Permission denied" in said and "executed\n" not in said


def test_a_warning_is_an_error_in_a_build_from_nothing(course):
    intro = course / "book/intro.md"
    good = intro.read_text()
    intro.write_text(good + "\n[nowhere](no-such-page.md)\n")
    with pytest.raises(site.SiteError):
        site.build(course, reuse=False)
    intro.write_text(good)


# ---- a second build, of a course that has changed ------------------------------------------------------------------


def kept(course, name, text):
    """A page as a test has just executed it."""
    page = course / f"book/{name}.md"
    notebook = notebooks.read_source(course, page)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, 1):
        cell.execution_count = number
    code[-1].outputs = [nbformat.v4.new_output("stream", text=text)]
    site.keep_executed(course, page, notebook)


@pytest.fixture(scope="module")
def changed(course):
    """The course in a repository, with another answer in its package, and with two pages kept by their tests: one of
    them since."""
    config = course / "_config.yml"
    config.write_text(re.sub(r'  url: ""', "  url: https://github.com/OWNER/REPOSITORY", config.read_text()))
    for page in notebooks.pages(course):
        assert notebooks.stamp(course, page)
        notebooks.sync(course, page)
    kept(course, "other", "kept too early\n")
    (course / "code/answer.py").write_text("VALUE = 42\n")
    kept(course, "tiny", "kept by its test\n")
    site.build(course, reuse=False)
    return course


def test_a_change_in_the_package_reaches_the_page(changed):
    """Jupyter Book's own cache sees the page's cells only, and those are the same."""
    assert "and here 42" in html(changed, "book/other") and "kept too early" not in html(changed, "book/other")


def test_what_a_page_s_test_executed_is_not_executed_again(changed):
    assert "kept by its test" in html(changed) and "the answer is 42" not in html(changed)
    assert "highlight-ipython3" in html(changed) and "highlight-python " not in html(changed)


def test_other_code_is_executed_whatever_was_kept(changed, tmp_path, capfd, monkeypatch):
    executed = []
    executor = SimpleNamespace(
        run_and_cache=lambda filter_pks, timeout: executed.append(filter_pks) or SimpleNamespace(succeeded=[])
    )
    monkeypatch.setattr("jupyter_cache.executors.load_executor", lambda *_: executor)
    page = changed / "book/tiny.md"
    good = page.read_text()
    page.write_text(good.replace("import answer", "import answer  # otherwise"))
    site.execute_ahead(changed, tmp_path / "cache")
    page.write_text(good)
    assert [len(pages) for pages in executed] == [2] and "executed it" not in capfd.readouterr().out
    site.execute_ahead(changed, tmp_path / "another")  # leaves one page, which Jupyter Book executes
    assert len(executed) == 1 and "tiny: as its test executed it" in capfd.readouterr().out


def test_once_the_repository_is_set_the_buttons_open_the_notebook(changed):
    page = changed / "book/tiny.md"
    assert "https://colab.research.google.com/github/OWNER/REPOSITORY/blob/main/book/tiny.ipynb" in html(changed)
    assert "https://mybinder.org/v2/gh/OWNER/REPOSITORY/main?urlpath=lab/tree/book/tiny.ipynb" in html(changed)
    assert 'href="https://github.com/OWNER/REPOSITORY"' in html(changed)
    assert first_cell.cell_source("https://github.com/OWNER/REPOSITORY", "main") in page.read_text()
