"""``gpudays submit``: a whole one is packed, anything less is refused with what is missing."""

import json
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpudays import gpu, grading, submit
from gpudays.cli import app
from gpudays.extract import extract
from gpudays.runs import Runs

ROOT = Path(__file__).parents[1]
PROGRAM = (ROOT / "code/day43-matmul-1/matmul_steps.cu").read_text()
SENTENCE = "I would have skipped step 2, since step 3 contains it."
TIMES = """n,step,kernel,ms_mean,card
512,1,matmulStridedRows,2.0,Tesla T4
512,2,matmulCoalescedCols,0.5,Tesla T4
512,3,matmulTiled,0.25,Tesla T4
1024,1,matmulStridedRows,16.0,Tesla T4
1024,2,matmulCoalescedCols,4.0,Tesla T4
1024,3,matmulTiled,3.2,Tesla T4
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A complete folder, as a student has it, on a machine without a GPU."""
    monkeypatch.setattr(gpu, "device", lambda: None)
    (tmp_path / "matmul_steps.cu").write_text(PROGRAM)
    (tmp_path / "sentence.txt").write_text(SENTENCE + "\n")
    (tmp_path / "times.csv").write_text(TIMES)
    return tmp_path


def run(folder: Path, *options: str):
    command = ["submit", "day43", str(folder), "--output", str(folder / "day43.zip"), *options]
    return CliRunner().invoke(app, command)


def test_a_complete_one_is_packed(folder):
    ran = run(folder, "--times", str(folder / "times.csv"))
    assert ran.exit_code == 0, ran.output
    with zipfile.ZipFile(folder / "day43.zip") as archive:
        assert sorted(archive.namelist()) == ["matmul_steps.cu", "submission.json"]
        assert archive.read("matmul_steps.cu").decode() == PROGRAM
        data = json.loads(archive.read("submission.json"))
    assert list(data["sectors_per_request"].values()) == [8.5, 2.0, 4.0]
    assert data["speedups"] == {
        "matmulStridedRows → matmulCoalescedCols at 512": 4.0,
        "matmulCoalescedCols → matmulTiled at 512": 2.0,
        "matmulStridedRows → matmulCoalescedCols at 1024": 4.0,
        "matmulCoalescedCols → matmulTiled at 1024": 1.25,
    }
    assert data["machine"] == {"card": "Tesla T4", "times": "read from times.csv"} and data["sentence"] == SENTENCE


def test_what_was_packed_can_be_graded(folder):
    run(folder, "--times", str(folder / "times.csv"))
    assert [one.student for one in grading.submissions(folder)][:1] == ["day43"]
    assert "matmulTiled" in extract(folder / "day43.zip", ["matmulTiled"]).names


def test_on_a_gpu_the_speedups_are_measured(folder, monkeypatch):
    card = gpu.Device("NVIDIA H200", "sm_90", 132, 60 << 20, 140 << 30, "580", (13, 0))
    monkeypatch.setattr(gpu, "device", lambda: card)
    slow = {"matmulStridedRows": 8.0, "matmulCoalescedCols": 2.0, "matmulTiled": 1.0}
    monkeypatch.setattr(Runs, "time", lambda self, kernel, size: gpu.Timing((slow[kernel],) * 3))
    made = submit.collect("day43", folder)
    assert list(made.speedups.values()) == [4.0, 2.0, 4.0, 2.0] and not made.missing
    assert "NVIDIA H200" in made.machine["card"]


@pytest.mark.parametrize(
    "lost, said",
    [
        pytest.param(lambda f: (f / "sentence.txt").write_text(""), ["the sentence"], id="no sentence"),
        pytest.param(lambda f: (f / "sentence.txt").write_text("step 2"), ["the sentence"], id="no whole sentence"),
        pytest.param(lambda f: (f / "times.csv").unlink(), ["the times"], id="no table"),
        pytest.param(
            lambda f: (f / "times.csv").write_text(TIMES.replace("1024,3,", "1025,3,")),
            ["the speed-up matmulCoalescedCols → matmulTiled at 1024"],
            id="one time short",
        ),
        pytest.param(
            lambda f: (f / "times.csv").write_text(TIMES.replace(",Tesla T4", "").replace(",card", "")),
            ["the machine"],
            id="no machine",
        ),
        pytest.param(lambda f: (f / "matmul_steps.cu").unlink(), ["the kernels", "matmulTiled"], id="no file"),
        pytest.param(
            lambda f: (f / "matmul_steps.cu").write_text(PROGRAM.replace("float sum = 0.0f;", "float sum = 0.0f", 1)),
            ["the sectors per request", 'expected a ";"'],
            id="does not compile",
        ),
        pytest.param(
            lambda f: (f / "matmul_steps.cu").write_text(PROGRAM.replace("matmulTiled", "matmulOther")),
            ["the sectors per request", "matmulTiled"],
            id="a kernel short",
        ),
    ],
)  # fmt: skip
def test_an_incomplete_one_is_refused_with_what_is_missing(folder, lost, said):
    lost(folder)
    ran = run(folder, "--times", str(folder / "times.csv"))
    assert ran.exit_code == 1 and "nothing was written" in ran.stderr and not (folder / "day43.zip").exists()
    assert all(words in ran.stderr for words in said), ran.stderr


def test_everything_missing_is_told_at_once(folder):
    (folder / "sentence.txt").unlink()
    ran = run(folder)
    assert ran.exit_code == 1 and "the sentence" in ran.stderr and "the speed-ups: there is no GPU here" in ran.stderr
    assert CliRunner().invoke(app, ["submit", "day99", str(folder)]).exit_code == 2


@pytest.mark.gpu
def test_on_this_card(tmp_path):
    (tmp_path / "matmul_steps.cu").write_text(PROGRAM)
    made = submit.collect("day43", tmp_path, SENTENCE)
    assert not made.missing and all(ratio > 1 for ratio in made.speedups.values()), made.speedups
