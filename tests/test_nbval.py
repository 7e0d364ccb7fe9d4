"""Tests room, notebooks: a page whose cells have all passed is kept as it was executed, any other is not."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbformat import v4
from nbval.plugin import IPyNbCell

from gpudays import gpu, site

ROOT = Path(__file__).parents[1]
TEXT = [v4.new_output("stream", text="shown today\n")]


@pytest.fixture(autouse=True)
def no_card(monkeypatch):
    monkeypatch.setattr(gpu, "device", lambda: None)


@pytest.fixture(scope="module")
def hook():
    spec = importlib.util.spec_from_file_location("root_conftest", ROOT / "conftest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pytest_runtest_call


def run_through(hook, root: Path, failing: tuple[int, ...] = ()) -> Path:
    """A page of two code cells goes through its test; where it would be kept."""
    for name in site.INPUTS:
        (root / name).mkdir()
    book = v4.new_notebook(cells=[v4.new_code_cell("1"), v4.new_markdown_cell("words"), v4.new_code_cell("2")])
    page = SimpleNamespace(nb=book, path=root / "book/page.ipynb")
    for number, cell in enumerate(c for c in book.cells if c.cell_type == "code"):
        item = object.__new__(IPyNbCell)
        item.parent, item.cell, item.cell_num, item.test_outputs = page, cell, number, TEXT
        item.config = SimpleNamespace(rootpath=root)
        running = hook(item)
        next(running)
        if number in failing:
            with pytest.raises(AssertionError):
                running.throw(AssertionError("cell outputs differ"))
        else:
            with pytest.raises(StopIteration):
                running.send(None)
    return root / site.EXECUTED / "page.ipynb"


def test_all_cells_passed(hook, tmp_path):
    kept = nbformat.read(run_through(hook, tmp_path), 4)
    code = [cell for cell in kept.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in code] == [TEXT, TEXT] and [cell.execution_count for cell in code] == [1, 2]
    assert kept.metadata["inputs"] == site.fingerprint(tmp_path, site.INPUTS)


@pytest.mark.parametrize("failing", [(0,), (1,), (0, 1)])
def test_a_cell_failed(hook, tmp_path, failing):
    assert not run_through(hook, tmp_path, failing).exists()


def test_times_of_a_card_are_not_kept(hook, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "device", lambda: gpu.Device("A Card", "sm_75", 40, 4 << 20, 1 << 34, "580.1", (13, 0)))
    assert not run_through(hook, tmp_path).exists()


def test_other_tests_are_left_alone(hook):
    running = hook(SimpleNamespace())
    next(running)
    with pytest.raises(StopIteration):
        running.send(None)
