"""A page outside its checkout, as Colab opens it: the .ipynb alone in an empty folder, the course a file:// clone."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import nbformat
import pytest

from gpudays import first_cell, notebooks

ROOT = Path(__file__).parents[1]
PAGES = notebooks.pages(ROOT)
RUN = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[1])
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """The working tree as a git repository of its own, on a branch `main`; its file:// address."""
    folder = tmp_path_factory.mktemp("repository")
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.ipynb", ".ipynb_checkpoints", "build")
    for name in ("code", "content", "book"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "_config.yml", folder)
    author = ["-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], [*author, "commit", "-q", "-m", "the course"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder.as_uri()


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """An interpreter that has what Colab brings, and no gpudays: this one's packages, linked, but for that one."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    where = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    packages = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    for package in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if "gpudays" not in package.name:
            (Path(packages) / package.name).symlink_to(package)
    lacks = subprocess.run([python, "-c", "import gpudays"], cwd=folder, capture_output=True, text=True)
    assert "No module named 'gpudays'" in lacks.stderr
    return python


def alone(page, folder, address, extra):
    """The page's notebook in an empty folder, with its first cells and one more; the path."""
    notebook = nbformat.read(page.with_suffix(".ipynb"), as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"][:2]
    cells[0].source = first_cell.cell_source(address, "main")
    notebook.cells = [*cells, nbformat.v4.new_code_cell(extra)]
    path = folder / "page.ipynb"
    nbformat.write(notebook, path)
    return path


def ran(python, path):
    done = subprocess.run([python, "-c", RUN, path], cwd=path.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return nbformat.read(path, as_version=4).cells[-1].outputs[0].text


# All pages have one first cell (test_pairing.py): the first day and the page without kernels of its own stand for them.
@pytest.mark.parametrize("page", [PAGES[0], PAGES[-1]], ids=lambda page: page.stem)
def test_the_notebook_alone_fetches_the_course_and_goes_on(page, repository, python, tmp_path):
    path = alone(page, tmp_path, repository, "import gpudays; print(installed, gpudays.__file__)")
    assert ran(python, path) == f"[] {tmp_path}/matmul-days/code/gpudays/__init__.py\n"
    if page == PAGES[0]:  # a second run uses what the first fetched
        again = alone(page, tmp_path, "file:///gone", "print(installed)")
        assert ran(python, again) == "[]\n"
