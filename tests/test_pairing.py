"""The course's own pages: source and notebook hold the same cells, every cell was run, and the first cell is there."""

from pathlib import Path

import nbformat
import pytest

from gpudays import evidence_page, first_cell, notebooks

ROOT = Path(__file__).parents[1]
PAGES = notebooks.pages(ROOT)


def notebook(page):
    path = page.with_suffix(".ipynb")
    assert path.is_file(), f"{path.name} is missing: run `make pages`"
    return nbformat.read(path, as_version=4)


def essence(cell):
    kept = {key: cell.metadata[key] for key in ("tags", "mystnb", "nbgrader") if key in cell.metadata}
    return cell.cell_type, cell.source, kept


def test_there_is_a_page():
    assert PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_source_and_notebook_hold_the_same_cells(page):
    source, executed = notebooks.read_source(ROOT, page), notebook(page)
    assert list(map(essence, source.cells)) == list(map(essence, executed.cells))
    assert executed.metadata["kernelspec"] == source.metadata["kernelspec"]
    nbformat.validate(executed)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_cell_was_run_as_it_stands(page):
    executed = notebook(page)
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert executed.metadata.get("gpudays", {}).get("executed") == notebooks.fingerprint(executed), (
        f"{page.stem}'s code has changed since its notebook was run: `gpudays execute {page.stem}`"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_widget_is_kept_without_its_kernel(page):
    executed = notebook(page)
    assert "widgets" not in executed.metadata
    outputs = [output for cell in executed.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if notebooks.WIDGET_VIEW in output.get("data", {})]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_first_code_cell_is_the_course_s(page):
    first = next(cell for cell in notebook(page).cells if cell.cell_type == "code")
    assert first.source == first_cell.cell_source(*notebooks.repository(ROOT)), "run `make stamp`"
    assert first.metadata["tags"] == first_cell.TAGS


def test_the_evidence_page_is_what_the_evidence_files_say():
    assert (ROOT / evidence_page.PAGE).read_text("utf-8") == evidence_page.text(ROOT), "run `make pages`"
