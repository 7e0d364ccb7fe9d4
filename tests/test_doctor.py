"""The doctor room: each lack is said with its remedy, and only what pages cannot do without fails."""

import importlib.metadata

import pytest
from typer.testing import CliRunner

from gpudays import doctor, gpu, nvrtc, profiler
from gpudays.cli import app
from gpudays.profiler import Permission


def item(name):
    return next(i for i in doctor.examine(counters=name == "counters") if i.name == name)


def test_this_machine_runs_the_pages():
    result = CliRunner().invoke(app, ["doctor", "--no-counters"])
    assert result.exit_code == 0, result.output
    assert "The pages run here" in result.output
    for name in ("Python", "CuPy", "NVRTC", "llvmlite", "driver", "GPU", "nvcc", "cmake", "ncu"):
        assert name in result.output


def test_without_nvrtc_the_pages_do_not_run_and_the_pip_line_is_told(monkeypatch):
    def missing():
        raise nvrtc.NvrtcMissing(
            "NVRTC cannot be loaded: no library\nInstall it with: python -m pip install some-wheel"
        )

    monkeypatch.setattr(nvrtc, "version", missing)
    monkeypatch.setattr(nvrtc, "include_folders", lambda: ())
    found = item("NVRTC")
    assert (found.verdict, found.remedy) == ("missing", "Install it with: python -m pip install some-wheel")
    result = CliRunner().invoke(app, ["doctor", "--no-counters"])
    assert result.exit_code == 1 and "python -m pip install some-wheel" in result.output


def test_two_cupy_wheels_are_one_too_many(monkeypatch):
    there = {"cupy-cuda12x": "14.2.0", "cupy-cuda13x": "14.2.0"}

    def version(name):
        if name not in there:
            raise importlib.metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert "never two at once" in item("CuPy").found and not item("CuPy").there
    there.clear()
    assert item("CuPy").verdict == "missing" and "cupy-cuda12x" in item("CuPy").remedy
    assert item("llvmlite").verdict == "missing"


def test_a_lack_of_tools_or_of_a_card_is_no_failure(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    monkeypatch.setattr(profiler, "find_ncu", lambda: None)
    monkeypatch.setattr(gpu, "_probe", lambda: (None, "no NVIDIA driver here"))
    items = doctor.examine(counters=False)
    lacking = {i.name: i for i in items if not i.there}
    assert {"GPU", "nvcc", "cmake", "ncu"} <= set(lacking)
    assert all(i.verdict == "not here" and i.remedy for i in lacking.values())
    assert lacking["GPU"].found == "no NVIDIA driver here"
    assert doctor.usable(items)


@pytest.mark.parametrize(
    ("code", "told"),
    [("permission", "NVreg_RestrictProfilingToAdminUsers=0"), ("no-ncu", "CUDA toolkit"), ("failed", "traced counts")],
)
def test_counters_have_a_remedy_by_cause(monkeypatch, code, told):
    monkeypatch.setattr(profiler, "counters_allowed", lambda: Permission(False, code, "why"))
    assert told in item("counters").remedy and item("counters").found == "why"
