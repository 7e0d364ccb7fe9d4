"""The optimisation suite: its table, its bench file, its pictures and its commands."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from typer.testing import CliRunner

from gpudays import bench_suite, cpu_loop, gpu, profiles, suite_figures, verify
from gpudays.cli import app
from gpudays.course import suite
from gpudays.course.models import TILE
from gpudays.ptx import model

HEADER = ",".join(bench_suite.COLUMNS)
NO_GPU = gpu.device() is None


@pytest.mark.parametrize("key", ["1", "2", "3", "3f", "4"])
@pytest.mark.parametrize("size", [(35, 79, 19), (36, 80, 20), (64, 64, 64)])
def test_kernels_are_right_at_odd_sizes(key, size):
    entry = suite.ENTRIES[key]
    if entry.refuses(size):
        pytest.skip(entry.refuses(size))
    report = bench_suite.check(entry, [size])
    assert report.ok, str(report)


@pytest.mark.parametrize("step", suite.SUITE.sweep, ids=lambda s: s.kernel)
def test_every_shape_of_the_sweep_is_right(step):
    entry = suite.Entry("sweep", step.kernel, step.title, suite.SUITE)
    assert bench_suite.check(entry, [(35, 79, 19)]).ok


@pytest.mark.skipif(not NO_GPU, reason="the tracer's side; on a GPU the kernels run there")
@pytest.mark.parametrize("n", [1000, 1024])
@pytest.mark.parametrize("key", suite.KEYS[:-1])
def test_kernels_are_right_at_large_sizes_whole(key, n):
    entry = suite.ENTRIES[key]
    run = lambda a, b, c, size: bench_suite.multiply(entry, a, b, c, size)  # noqa: E731
    assert verify.verify(run, [n], entry.kernel, twice=False).ok


@pytest.mark.gpu
@pytest.mark.parametrize("entry", [suite.ENTRIES[key] for key in suite.KEYS], ids=lambda e: e.kernel)
def test_everything_is_right_on_the_card(entry):
    report = bench_suite.check(entry, [(256,) * 3, (1000,) * 3, (1024,) * 3, (35, 79, 19)])
    assert report.ok, str(report)


def test_cpu_loop_is_right_and_refuses_what_it_cannot_take():
    a, b = verify.inputs((35, 79, 19))
    c = np.full((35, 79), np.nan, np.float32)
    cpu_loop.multiply(a, b, c)
    assert not verify.compare(c, a, b)[0]
    with pytest.raises(ValueError, match="A has to be a C-contiguous float32"):
        cpu_loop.multiply(a.astype(np.float64), b, c)
    with pytest.raises(ValueError, match="C has to be"):
        cpu_loop.multiply(a, b, c[:, :5])


def test_counts_agree_with_the_table_on_paper():
    n = 64
    for key in ("1", "2", "3", "4"):
        entry = suite.ENTRIES[key]
        counted = bench_suite.counts([entry], (n, n, n)).set_index("metric")["value"]
        step = suite.SUITE.step(entry.kernel)
        assert counted[model.LOADS_PER_THREAD] == step.loads_per_thread(n)
        assert counted[model.GLOBAL_LD_SECTORS] / counted[model.GLOBAL_LD_REQUESTS] == step.sectors_per_request


def test_tiling_reads_sixteen_times_less_and_coarsening_half_of_that_again():
    n = 128
    entries = [suite.ENTRIES[key] for key in ("1", "2", "4")]
    table = bench_suite.counts(entries, (n, n, n))
    floats = {
        kernel: rows.set_index("metric")["value"][model.GLOBAL_LD_REQUESTS] for kernel, rows in table.groupby("kernel")
    }
    assert floats["matmulNaive"] == TILE * floats["matmulTiled"]
    assert floats["matmulTiled"] == 2 * floats["matmulCoarsened2x2"]


def test_entries_are_found_by_key_and_by_name_or_listed():
    assert suite.entry("3f").kernel == suite.entry("matmulVectorFast").kernel
    assert suite.entry("step3").label == "step3 matmulTiled"
    with pytest.raises(KeyError, match=r"no kernel '7' on the bench; it has 0 \(matmulCpu\)"):
        suite.entry("7")


def _write(path, *rows):
    path.write_text("\n".join([HEADER, *rows]) + "\n", encoding="utf-8")
    return path


def _row(kernel="matmulNaive", n=256, ms="0.5", card="Card"):
    return f"{kernel},{n},{n},{n},{ms},{ms},{ms},100.0,,,{card}"


def test_ratios_are_filled_in_from_the_rows_there_are(tmp_path):
    path = _write(tmp_path / "r.csv", _row("matmulCpu", ms="50"), _row(ms="0.5"), _row("cublasSgemm", ms="0.25"))
    bench_suite._write(path, bench_suite._read(path, "Card").values())
    rows = list(csv.DictReader(path.open()))
    assert [(r["speedup_vs_cpu"], r["fraction_of_cublas"]) for r in rows] == [
        ("1.00", "0.0050"),
        ("100.00", "0.5000"),
        ("200.00", "1.0000"),
    ]


def test_a_bench_does_only_what_is_missing(tmp_path, monkeypatch):
    path, ran = _write(tmp_path / "r.csv", _row("matmulNaive")), []

    class Card:
        name = "Card"

    def time_entry(entry, size, warm_ups, repeats):
        ran.append((entry.kernel, size[0]))
        return bench_suite.Row(entry, size, 1.0, 0.9, 1.1, repeats)

    monkeypatch.setattr(gpu, "device", lambda: Card)
    monkeypatch.setattr(bench_suite, "check", lambda entry, sizes: verify.Report(entry.kernel, (), (), 0.0, 1.0, ()))
    monkeypatch.setattr(bench_suite, "time_entry", time_entry)
    entries = [suite.ENTRIES["1"], suite.ENTRIES["2"], suite.ENTRIES["3f"]]
    failures = bench_suite.bench(path, entries, [(256,) * 3, (258,) * 3], 1, 2)
    expected = [("matmulTiled", 256), ("matmulVectorFast", 256), ("matmulNaive", 258), ("matmulTiled", 258)]
    assert ran == expected
    assert failures == ["matmulVectorFast left out at 258: N and K have to be multiples of 4"]
    ran.clear()
    bench_suite.bench(path, entries, [(256,) * 3, (258,) * 3], 1, 2)
    assert ran == []


def test_a_wrong_kernel_gets_no_row(tmp_path, monkeypatch):
    class Card:
        name = "Card"

    problem = verify.Problem("wrong", "matmulNaive", (256,) * 3, "wrong; first at row 0")
    report = verify.Report("matmulNaive", ((256,) * 3,), (problem,), 1.0, 1e-6, ())
    monkeypatch.setattr(gpu, "device", lambda: Card)
    monkeypatch.setattr(bench_suite, "check", lambda entry, sizes: report)
    failures = bench_suite.bench(tmp_path / "r.csv", [suite.ENTRIES["1"]], [(256,) * 3], 1, 1)
    assert len(failures) == 1 and "wrong" in failures[0]
    assert (tmp_path / "r.csv").read_text().strip() == HEADER


@pytest.mark.parametrize(
    ("rows", "line", "says"),
    [
        ([], 1, "empty|no rows"),
        ([_row(), _row(n=512, ms="fast")], 3, "fast"),
        ([_row(), _row()], 3, "second time"),
        ([_row(), "matmulTiled,256"], 3, "cells|columns|damaged"),
        ([_row(), _row("matmulTiled", card="Other")], 3, "several cards"),
        ([_row(ms="-1")], 2, "-1"),
    ],
)
def test_a_damaged_csv_is_refused_with_file_and_line(tmp_path, rows, line, says):
    path = _write(tmp_path / "broken.csv", *rows)
    with pytest.raises(profiles.ProfileError, match=rf"broken\.csv, line {line}: .*({says})"):
        suite_figures.read(path)
    done = CliRunner().invoke(app, ["plot", str(path), "-o", str(tmp_path)])
    assert done.exit_code == 1 and f"line {line}" in done.output


def test_plot_draws_what_the_rows_allow_and_says_what_not(tmp_path):
    path = _write(tmp_path / "r.csv", _row(n=256), _row(n=512), _row("matmulTiled", 256), _row("matmulTiled", 512))
    written, lacking = suite_figures.write(path, tmp_path)
    assert [p.name for p in written] == ["r-time.png", "r-gflops.png"]
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in written)
    assert [why.split(":")[0] for why in lacking] == ["speedup", "fraction"]


def test_shipped_results_hold_every_kernel_at_every_size():
    shipped = suite_figures.read(profiles.folder("optimizer") / "results.csv")
    have = set(zip(shipped["kernel"], shipped["n"], strict=True))
    assert {(suite.ENTRIES[key].kernel, size[0]) for key in suite.KEYS for size in suite.BENCH_SIZES} <= have
    assert {step.kernel for step in suite.SUITE.sweep} <= set(shipped["kernel"])


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["run", "--kernel", "9"], 2, "no kernel '9'"),
        (["run", "--kernel", "3f", "--m", "3", "--n", "5", "--k", "7"], 2, "multiples of 4"),
        (["run", "--m", "3"], 2, "go together"),
        (["run", "--size", "8", "--m", "3", "--n", "3", "--k", "3"], 2, "not both"),
        (["run", "--kernel", "step1", "--m", "3", "--n", "5", "--k", "7"], 2, "square"),
        (["run", "--kernel", "2", "--m", "35", "--n", "79", "--k", "19"], 0, "right at 35x79x19"),
        (["run", "--kernel", "0", "--size", "33"], 0, "right at 33"),
        (["run", "--size", "0"], 2, ""),
    ],
)
def test_run_says_what_it_did_or_why_not(arguments, code, says):
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == code, done.output
    assert says in done.output


@pytest.mark.skipif(not NO_GPU, reason="what a machine without a GPU says")
def test_bench_without_a_gpu_times_nothing_and_offers_counts(tmp_path):
    done = CliRunner().invoke(app, ["bench", "--output", str(tmp_path / "r.csv")])
    assert done.exit_code == 1 and not (tmp_path / "r.csv").exists()
    assert "Nothing is timed here" in done.output and "1,048,576" in done.output
