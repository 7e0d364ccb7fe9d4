"""The pages' room: pairing, outputs kept and dropped, execution, stamping; on a page of three cells."""

import shutil
from pathlib import Path

import nbformat
import pytest
from test_site import PAGE

from gpudays import first_cell, notebooks


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """A checkout of one page that counts, with its notebook executed."""
    root = tmp_path_factory.mktemp("course")
    (root / "book").mkdir()
    (root / "code/gpudays").mkdir(parents=True)
    (root / "_config.yml").write_text('repository:\n  url: ""\n  branch: main\n')
    (root / "jupytext.toml").write_text('formats = "md:myst,ipynb"\ncell_metadata_filter = "tags,mystnb,-all"\n')
    page = root / "book/tiny.md"
    page.write_text(PAGE.replace('import answer\n\nprint("the answer is", answer.VALUE)', "x = 6\nx * 7"))
    notebooks.sync(root, page)
    notebooks.execute(root, page)
    return root


@pytest.fixture
def page(executed, tmp_path):
    """The page in a copy of its checkout."""
    return Path(shutil.copytree(executed, tmp_path / "course")) / "book/tiny.md"


def root(page):
    return page.parents[1]


def notebook(page):
    return nbformat.read(page.with_suffix(".ipynb"), as_version=4)


def code(page):
    return [cell for cell in notebook(page).cells if cell.cell_type == "code"]


def test_executed_cells_hold_their_outputs_and_the_notebook_its_fingerprint(page):
    assert code(page)[0].outputs[0].data["text/plain"] == "42"
    assert notebook(page).metadata["gpudays"]["executed"] == notebooks.fingerprint(notebook(page))
    nbformat.validate(notebook(page))


def test_syncing_an_unchanged_page_changes_nothing(page):
    assert not notebooks.sync(root(page), page)


def test_words_may_change_and_outputs_stay(page):
    page.write_text(page.read_text().replace("A request costs", "A request may cost"))
    assert notebooks.sync(root(page), page)
    assert code(page)[0].outputs[0].data["text/plain"] == "42"


def test_an_output_whose_code_changed_is_dropped(page):
    page.write_text(page.read_text().replace("x * 7", "x * 8"))
    notebooks.sync(root(page), page)
    assert code(page)[0].outputs == []
    assert code(page)[0].execution_count is None
    assert notebook(page).metadata["gpudays"]["executed"] != notebooks.fingerprint(notebook(page))


def test_a_notebook_that_fails_keeps_what_it_had(page):
    page.write_text(page.read_text() + "\n```{code-cell} ipython3\n1 / 0\n```\n")
    notebooks.sync(root(page), page)
    before = page.with_suffix(".ipynb").read_bytes()
    with pytest.raises(notebooks.PageError, match=r"tiny\.ipynb stopped(.|\n)*ZeroDivisionError"):
        notebooks.execute(root(page), page)
    assert page.with_suffix(".ipynb").read_bytes() == before


def test_stamping_puts_the_cell_first_and_keeps_the_outputs(page):
    assert notebooks.stamp(root(page), page)
    assert not notebooks.stamp(root(page), page)
    notebooks.sync(root(page), page)
    first, second = code(page)
    assert first.source == first_cell.cell_source("", "main")
    assert first.metadata["tags"] == first_cell.TAGS
    assert second.outputs[0].data["text/plain"] == "42"


def test_stamping_an_address_does_not_make_an_executed_page_stale(page):
    notebooks.stamp(root(page), page)
    notebooks.sync(root(page), page)
    notebooks.execute(root(page), page)
    (root(page) / "_config.yml").write_text("repository:\n  url: file:///elsewhere\n  branch: trunk\n")
    assert notebooks.stamp(root(page), page)
    notebooks.sync(root(page), page)
    assert '"file:///elsewhere", "trunk"' in code(page)[0].source
    assert notebook(page).metadata["gpudays"]["executed"] == notebooks.fingerprint(notebook(page))
    assert all(cell.execution_count for cell in code(page))


def test_an_unknown_page_is_named_with_those_there_are(page):
    with pytest.raises(notebooks.PageError, match=r"no page is called day99; there are: tiny"):
        notebooks.pages(root(page), ["day99"])


def test_setup_pages_and_citation_name_the_repository_and_lose_it_again(page):
    (root(page) / "book/setup").mkdir()
    setup, citation = root(page) / "book/setup/gpu.md", root(page) / "CITATION.cff"
    setup.write_text("    git clone REPOSITORY matmul-days\n")
    citation.write_text("title: a course\n")
    config = root(page) / "_config.yml"
    unset = config.read_text()
    config.write_text("repository:\n  url: https://example.invalid/course\n")
    assert notebooks.stamp_words(root(page)) == [setup, citation]
    assert notebooks.stamp_words(root(page)) == []
    assert "git clone https://example.invalid/course matmul-days" in setup.read_text()
    assert citation.read_text() == 'title: a course\nrepository-code: "https://example.invalid/course"\n'
    config.write_text(unset)
    notebooks.stamp_words(root(page))
    assert (setup.read_text(), citation.read_text()) == ("    git clone REPOSITORY matmul-days\n", "title: a course\n")


def test_what_a_cell_prints_in_pieces_is_kept_in_one_and_nothing_else_is_said(page, capfd):
    pieces = "import time\nfor line in ('one', 'two', 'three'):\n    print(line, flush=True)\n    time.sleep(0.3)"
    page.write_text(page.read_text() + f"\n```{{code-cell}} ipython3\n{pieces}\n```\n")
    notebooks.sync(root(page), page)
    notebooks.execute(root(page), page)
    assert [output.text for output in code(page)[-1].outputs] == ["one\ntwo\nthree\n"]
    assert capfd.readouterr() == ("", "")
