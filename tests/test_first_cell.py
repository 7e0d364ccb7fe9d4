"""The way in: the first cell's text and what it would install, without a network."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gpudays import first_cell

ROOT = Path(__file__).parents[1]


def test_the_requirements_are_those_of_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = project["dependencies"] + project["optional-dependencies"]["interactive"]
    assert sorted(first_cell.REQUIREMENTS.values()) == sorted(named)


def test_the_cell_compiles_and_quotes_its_address():
    source = first_cell.cell_source('https://example.invalid/a"b', "main")
    compile(source, "first cell", "exec")
    assert source.startswith(first_cell.MARK)
    assert r"REPOSITORY, BRANCH = \"https" not in source
    assert r'"https://example.invalid/a\"b", "main"' in source


def test_nothing_is_installed_where_nothing_is_missing():
    assert first_cell.install_missing() == []


@pytest.mark.parametrize(
    ("cupy", "gpu", "toolkit", "wanted"),
    [
        (False, False, False, ["cupy-cuda12x", *first_cell.CUDA_12]),
        (False, True, False, ["cupy-cuda12x[ctk]"]),
        (False, True, True, ["cupy-cuda12x"]),
    ],
)
def test_what_brings_cuda(monkeypatch, cupy, gpu, toolkit, wanted):
    monkeypatch.setattr(first_cell, "_importable", lambda module: cupy)
    monkeypatch.setattr(first_cell, "gpu_there", lambda: gpu)
    monkeypatch.setattr(first_cell, "_toolkit_there", lambda: toolkit)
    monkeypatch.setattr(sys, "platform", "linux")
    assert first_cell.cuda_wanted() == wanted


@pytest.mark.parametrize(("cupy_13", "wanted"), [(False, first_cell.CUDA_12), (True, first_cell.CUDA_13)])
def test_an_importable_cupy_without_nvrtc_is_kept(monkeypatch, cupy_13, wanted):
    monkeypatch.setattr(first_cell, "_importable", lambda module: True)
    monkeypatch.setattr(first_cell, "_installed", lambda name: cupy_13 and name == "cupy-cuda13x")
    monkeypatch.setattr(first_cell, "NVRTC_LOADS", "raise SystemExit(1)")
    assert first_cell.cuda_wanted() == wanted


@pytest.mark.parametrize(
    ("found", "old"),
    [("0.43.0", True), ("0.44.0", False), ("0.50.0rc1", False), ("1.0", False), ("0.44.0+cu12", False)],
)
def test_what_is_too_old_is_brought_up(monkeypatch, found, old):
    monkeypatch.setattr(first_cell.importlib.metadata, "version", lambda name: found)
    assert first_cell._too_old("llvmlite>=0.44") is old


def test_macos_is_told_where_to_go(monkeypatch):
    monkeypatch.setattr(first_cell, "_importable", lambda module: False)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(RuntimeError, match="dev container"):
        first_cell.cuda_wanted()


def test_pip_that_fails_is_quoted():
    with pytest.raises(RuntimeError, match=r"pip could not install .*no-such-file"):
        first_cell._pip(["./no-such-file.whl"])


def test_unset_the_cell_says_what_to_set(tmp_path):
    """In an interpreter that has no gpudays, in a folder with no course beside it."""
    lone = [sys.executable, "-I", "-S", "-c", first_cell.cell_source("", "main")]
    done = subprocess.run(lone, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "Set REPOSITORY" in done.stderr.splitlines()[-1]


def test_a_repository_that_is_not_there_is_named(tmp_path):
    lone = [sys.executable, "-I", "-S", "-c", first_cell.cell_source(f"file://{tmp_path}/nowhere", "main")]
    done = subprocess.run(lone, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "could not be fetched from file://" in done.stderr
