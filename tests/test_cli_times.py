"""gpudays time: what it writes is a shipped timing table, and without a card it writes nothing."""

from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from gpudays import gpu, metrics, profiles
from gpudays.cli import app
from gpudays.course.day43 import KERNELS
from gpudays.runs import Runs

CARD = gpu.Device("NVIDIA L4", "sm_89", 58, 48 * 2**20, 24 * 2**30, "580.1", (13, 0))


def test_the_table_is_read_back_as_shipped_times(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "_probe", lambda: (CARD, ""))
    monkeypatch.setattr("gpudays.profiler.find_ncu", lambda: None)
    monkeypatch.setattr(Runs, "launch", lambda self, kernel, a, b, c, size: np.matmul(a, b, out=c))
    monkeypatch.setattr(Runs, "time", lambda self, kernel, size, repeats=None: gpu.Timing((1.0, 2.0, 4.0)))
    table = tmp_path / "x-past-l2.timing.csv"
    ran = CliRunner().invoke(app, ["time", "day43", "--size", "64", "--output", str(table)])
    assert ran.exit_code == 0 and "live, NVIDIA L4" in ran.output, ran.output
    read = profiles.read_timing(table, "shipped", CARD.name)
    assert set(read["kernel"]) == set(KERNELS) and set(read["n"]) == {64}
    assert set(read[read["metric"] == metrics.TIME]["value"]) == {2.0}
    assert set(read[read["metric"] == metrics.TIME_MAX]["value"]) == {4.0}


def test_without_a_card_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "_probe", lambda: (None, "no NVIDIA driver here"))
    table = Path(tmp_path, "t.csv")
    ran = CliRunner().invoke(app, ["time", "day43", "--output", str(table)])
    assert ran.exit_code == 1 and "no NVIDIA driver here" in ran.output and not table.exists()
    assert CliRunner().invoke(app, ["time", "day99"]).exit_code == 2
