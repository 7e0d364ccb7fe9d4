"""Tests of Day 44's program and kernels: they stand alone, do not spill, and the shipped ladder is whole."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from kernel_corpus import page_source

from gpudays import compiler

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "book" / "day44-matmul-2.md"
PROFILES = ROOT / "content" / "profiles" / "optimizing-matmul-2"
KERNELS = ["matmulRegisterTile", "matmulVectorLoads", "matmulWarpTiled", "matmulWarpTiledSmall"]
LADDER = ["matmulStridedRows", "matmulCoalescedCols", "matmulTiled", *KERNELS, "cuBLAS"]


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_120"])
def test_every_row_of_the_launch_table_compiles_alone_and_does_not_spill(arch):
    found = compiler.report(page_source(PAGE), arch)
    assert sorted(found) == KERNELS
    for kernel, needs in found.items():
        assert needs.spill_stores == needs.spill_loads == needs.stack_bytes == 0, kernel
        assert needs.shared_bytes <= 48 * 1024, kernel  # what a launch gets without asking for more


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
