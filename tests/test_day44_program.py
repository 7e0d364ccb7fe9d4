"""Tests of Day 44's program and kernels: they stand alone, do not spill, and the shipped ladder is whole."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpudays import compiler
from gpudays.kernels_in_pages import kernel_text

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "code" / "day44-matmul-2" / "matmul_registers.cu"
PROFILES = ROOT / "content" / "profiles" / "optimizing-matmul-2"
KERNELS = ["matmulRegisterTile", "matmulVectorLoads", "matmulWarpTiled", "matmulWarpTiledSmall"]
LADDER = ["matmulStridedRows", "matmulCoalescedCols", "matmulTiled", *KERNELS, "cuBLAS"]
NO_DEVICE = 77


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_120"])
def test_every_row_of_the_launch_table_compiles_alone_and_does_not_spill(arch):
    found = compiler.report(kernel_text(PROGRAM), arch)
    assert sorted(found) == KERNELS
    for kernel, needs in found.items():
        assert needs.spill_stores == needs.spill_loads == needs.stack_bytes == 0, kernel
        assert needs.shared_bytes <= 48 * 1024, kernel  # what a launch gets without asking for more


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on this machine")
def test_program_compiles_as_its_header_says_and_refuses_bad_input(tmp_path):
    line = re.search(r"^//\s+(nvcc .*)$", PROGRAM.read_text(encoding="utf-8"), re.MULTILINE).group(1).split()
    line = [word for word in line if word not in ("-DWITH_CUBLAS", "-lcublas")]
    line[line.index("-o") + 1] = program = str(tmp_path / "matmul_registers")
    built = subprocess.run([*line, "-Xcompiler", "-Wall,-Wextra"], cwd=PROGRAM.parent, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert "warning" not in built.stderr
    for bad in (["0"], ["-4"], ["many"], ["--csv"], ["50000"]):
        refused = subprocess.run([program, *bad], capture_output=True, text=True)
        assert refused.returncode == 2, bad
        assert "usage: matmul_registers" in refused.stderr
    assert subprocess.run([program, "17"], capture_output=True).returncode in (0, NO_DEVICE)


def test_shipped_ladder_has_every_kernel_at_every_size_and_its_fractions_follow_from_its_times():
    with (PROFILES / "results.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len({(row["kernel"], row["n"]) for row in rows}) == 4 * len(LADDER)
    for n in ("512", "1024", "2048", "4096"):
        of_size = {row["kernel"]: row for row in rows if row["m"] == row["n"] == row["k"] == n}
        assert sorted(of_size) == sorted(LADDER)
        ceiling = float(of_size["cuBLAS"]["ms_median"])
        for row in of_size.values():
            median = float(row["ms_median"])
            assert float(row["ms_min"]) <= median <= float(row["ms_max"])
            assert float(row["fraction_of_cublas"]) == pytest.approx(ceiling / median, abs=1e-4)
            assert float(row["gflops"]) == pytest.approx(2e-6 * int(n) ** 3 / median, rel=2e-3)


def test_last_step_reaches_the_day_s_aim_in_the_shipped_run():
    with (PROFILES / "results.csv").open(encoding="utf-8") as file:
        rows = {(row["kernel"], row["n"]): float(row["fraction_of_cublas"]) for row in csv.DictReader(file)}
    aims = {"matmulRegisterTile": 0.55, "matmulVectorLoads": 0.70, "matmulWarpTiled": 0.92}
    for n in ("2048", "4096"):
        for kernel, aim in aims.items():
            assert rows[kernel, n] >= aim, (kernel, n)
