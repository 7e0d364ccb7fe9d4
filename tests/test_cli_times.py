"""gpudays time: what it writes is a shipped timing table, and without a card it writes nothing."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gpudays import compiler, gpu, ladder_files, metrics, profiles
from gpudays.cli import app
from gpudays.course.day43 import KERNELS
from gpudays.course.day44 import WARPS, transplant
from gpudays.runs import Runs

CARD = gpu.Device("NVIDIA H100", "sm_90", 132, 50 * 2**20, 80 * 2**30, "580.1", (13, 0))


@pytest.fixture
def on_a_card(monkeypatch):
    """A card that multiplies with NumPy, and takes 2 ms for it."""
    monkeypatch.setattr(gpu, "_probe", lambda: (CARD, ""))
    monkeypatch.setattr("gpudays.profiler.find_ncu", lambda: None)
    monkeypatch.setattr(Runs, "launch", lambda self, kernel, a, b, c, size: np.matmul(a, b, out=c))
    monkeypatch.setattr(Runs, "time", lambda self, kernel, size, repeats=None: gpu.Timing((1.0, 2.0, 4.0)))


def test_the_table_is_read_back_as_shipped_times(tmp_path, on_a_card):
    table = tmp_path / "x-past-l2.timing.csv"
    ran = CliRunner().invoke(app, ["time", "day43", "--size", "64", "--output", str(table)])
    assert ran.exit_code == 0 and "live, NVIDIA H100" in ran.output, ran.output
    read = profiles.read_timing(table, "shipped", CARD.name)
    assert set(read["kernel"]) == set(KERNELS) and set(read["n"]) == {64}
    assert set(read[read["metric"] == metrics.TIME]["value"]) == {2.0}
    assert set(read[read["metric"] == metrics.TIME_MAX]["value"]) == {4.0}


def test_day_44_writes_its_tiles_for_other_cards(tmp_path, on_a_card, monkeypatch):
    monkeypatch.setattr(gpu, "time_cublas", lambda *size, **_: gpu.Timing((1.0,)))
    # What ptxas says of step 6 is tested with the page (test_page_day44.py).
    needs = compiler.Resources(128, 32768, 0, 0, 0, 0, 1)
    monkeypatch.setattr(compiler, "report", lambda *_: {WARPS: needs})
    table = tmp_path / ladder_files.TRANSPLANTS_FILE
    ran = CliRunner().invoke(app, ["time", "day44", "--size", "64", "--output", str(table)])
    assert ran.exit_code == 0, ran.output
    read = ladder_files.transplant_times(tmp_path, CARD.name)
    assert set(read["kernel"]) == {transplant("sm_75"), transplant("sm_90")} and set(read["n"]) == {64}
    assert set(read[read["metric"] == metrics.FRACTION_OF_CUBLAS]["value"]) == {0.5}
    assert ladder_files.transplant_times(tmp_path, "").empty
    table.write_text(table.read_text().replace(CARD.name, "Tesla T4"))
    with pytest.raises(profiles.ProfileError, match="line 2: the row is of a Tesla T4"):
        ladder_files.transplant_times(tmp_path, CARD.name)


def test_without_a_card_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "_probe", lambda: (None, "no NVIDIA driver here"))
    table = Path(tmp_path, "t.csv")
    ran = CliRunner().invoke(app, ["time", "day43", "--output", str(table)])
    assert ran.exit_code == 1 and "no NVIDIA driver here" in ran.output and not table.exists()
    assert CliRunner().invoke(app, ["time", "day99"]).exit_code == 2
