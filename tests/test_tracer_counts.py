"""The compiled tracer's counters, against sums that can be done on paper."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

import gpudays
from gpudays.ptx import launch, model
from gpudays.ptx.engine import default_threads, execute

ROOT = Path(__file__).parents[1]
MATMUL = (ROOT / "code/day43-matmul-1/matmul_steps.cu").read_text()
MATMUL = re.search(r"// page: begin kernels\n(.*?)// page: end", MATMUL, re.DOTALL)[1]
STEPS = ("matmulStridedRows", "matmulCoalescedCols", "matmulTiled")


def matrices(n: int, m: int | None = None, k: int | None = None, seed: int = 7):
    rng = np.random.default_rng(seed)
    m, k = m or n, k or n
    a = rng.standard_normal((m, k)).astype(np.float32)
    b = rng.standard_normal((k, n)).astype(np.float32)
    return a, b, np.full((m, n), np.nan, np.float32)


def trace_step(name: str, n: int, **options):
    a, b, c = matrices(n)
    tiles = -(-n // 16)
    result = gpudays.trace(MATMUL, name, (tiles, tiles), (16, 16), [a, b, c, np.uint64(n)], **options)
    return result, a, b, c


@pytest.mark.parametrize(
    "name, requests, sectors, loads",
    [
        ("matmulStridedRows", 8_388_608, 71_303_168, 1024.0),
        ("matmulCoalescedCols", 8_388_608, 16_777_216, 1024.0),
        ("matmulTiled", 524_288, 2_097_152, 64.0),
    ],
)
def test_day_43_at_512_counts_what_an_h200_counts(name, requests, sectors, loads):
    result, a, b, c = trace_step(name, 512)
    assert result.total[model.GLOBAL_LD_REQUESTS] == requests
    assert result.total[model.GLOBAL_LD_SECTORS] == sectors
    assert result.total[model.LOADS_PER_THREAD] == loads
    assert result.total[model.GLOBAL_ST_REQUESTS] == 512 * 512 / 32
    assert result.total[model.STORES_PER_THREAD] == 1
    assert not result.findings
    assert result.blocks_run == result.blocks_total == 1024
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("n", [1, 15, 17, 50])
def test_odd_sizes_are_right_and_without_findings(name, n):
    result, a, b, c = trace_step(name, n)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)
    assert result.findings == []


def test_a_guarded_load_counts_only_the_lanes_that_take_part():
    """n = 17: a block's second column of blocks has one live column, so a warp has 2 live lanes in rows 0 and 1."""
    result, *_ = trace_step("matmulCoalescedCols", 17, blocks=[(1, 0)])
    assert result.blocks_run == 1 and result.blocks_total == 4
    assert result.total[model.GLOBAL_LD_REQUESTS] == 8 * 17 * 2  # 8 warps, 17 steps, A and B
    assert result.total[model.LOADS_PER_THREAD] == 16 * 2 * 17 / 256  # 16 of 256 threads live


def test_the_tile_has_no_bank_conflicts_and_broadcasts_are_free():
    result, *_ = trace_step("matmulTiled", 64)
    loads = 4 * 4 * 8 * 4 * 32  # blocks x warps x tile steps x loads
    assert result.total[model.SHARED_LD_REQUESTS] == loads
    assert result.total[model.SHARED_LD_WAVEFRONTS] == loads
    assert result.total[model.SHARED_LD_CONFLICTS] == 0
    assert result.total[model.SHARED_ST_CONFLICTS] == 0


def test_counters_by_line_sum_to_the_total_and_name_the_loading_line():
    result, *_ = trace_step("matmulCoalescedCols", 32)
    table = result.counters
    for metric in model.LINE_METRICS:
        assert table.loc[table.metric == metric, "value"].sum() == result.total[metric]
    lines = table.loc[table.metric == model.GLOBAL_LD_REQUESTS, "line"].unique()
    source = MATMUL.splitlines()
    assert [source[n - 1].strip()[:8] for n in lines] == ["for (siz"]


@pytest.mark.parametrize("after", [1, 2, 4])
def test_the_same_counts_and_results_on_one_thread_and_on_several(monkeypatch, after):
    monkeypatch.setattr(launch, "SHARE_SECONDS", -1.0)
    monkeypatch.setattr(launch, "TELLING_BLOCKS", after)
    ptx = gpudays.compile(MATMUL).ptx
    outcomes = []
    for threads in (1, 3):
        a, b, c = matrices(40)
        done = execute(ptx, "matmulTiled", (3, 3), (16, 16), [a, b, c, np.uint64(40)], threads=threads)
        assert done.blocks_run == 9
        outcomes.append((done.total, done.rows, c.tobytes()))
    assert outcomes[0] == outcomes[1]


def test_only_what_would_take_long_is_shared(monkeypatch):
    made = []
    monkeypatch.setattr(
        launch, "Machine", lambda *args, machine=launch.Machine: made.append(machine(*args)) or made[-1]
    )
    a, b, c = matrices(40)
    ptx = gpudays.compile(MATMUL).ptx
    for seconds, machines in ((1e9, 1), (-1.0, 2)):  # the third finds no block left
        made.clear()
        monkeypatch.setattr(launch, "SHARE_SECONDS", seconds)
        execute(ptx, "matmulTiled", (3, 3), (16, 16), [a, b, c, np.uint64(40)], threads=3)
        assert (len(made), sum(len(m.blocks) for m in made)) == (machines, 9)
        assert all(m.blocks_done == len(m.blocks) for m in made)


COPIES = """
extern "C" __global__ void shifted(const float* a, float* o, int shift, int stride) {
    int i = threadIdx.x;
    o[i] = a[i * stride + shift];
}
extern "C" __global__ void vectors(const float4* a, float4* o) { o[threadIdx.x] = a[threadIdx.x]; }
extern "C" __global__ void doubles(const double* a, double* o) { o[threadIdx.x] = a[threadIdx.x]; }
extern "C" __global__ void bytes(const unsigned char* a, unsigned char* o) { o[threadIdx.x] = a[threadIdx.x]; }
extern "C" __global__ void same(const float* a, float* o) { o[threadIdx.x] = a[7]; }
"""


@pytest.mark.parametrize(
    "shift, stride, sectors", [(0, 1, 4), (1, 1, 5), (8, 1, 4), (0, 2, 8), (0, 8, 32), (0, 33, 32), (3, 3, 13)]
)
def test_sectors_of_strided_and_shifted_loads(shift, stride, sectors):
    a, o = np.arange(2048, dtype=np.float32), np.zeros(32, np.float32)
    result = gpudays.trace(COPIES, "shifted", 1, 32, [a, o, np.int32(shift), np.int32(stride)])
    assert result.total[model.GLOBAL_LD_SECTORS] == sectors
    assert (o == np.arange(32) * stride + shift).all()


@pytest.mark.parametrize(
    "kernel, dtype, per_thread, sectors, words",
    [("vectors", np.float32, 4, 16, 4), ("doubles", np.float64, 1, 8, 2), ("bytes", np.uint8, 1, 1, 0.25)],
)
def test_one_request_whatever_the_width(kernel, dtype, per_thread, sectors, words):
    a, o = np.arange(32 * per_thread).astype(dtype), np.zeros(32 * per_thread, dtype)
    result = gpudays.trace(COPIES, kernel, 1, 32, [a, o])
    assert (a == o).all()
    assert result.total[model.GLOBAL_LD_REQUESTS] == result.total[model.GLOBAL_ST_REQUESTS] == 1
    assert result.total[model.GLOBAL_LD_SECTORS] == result.total[model.GLOBAL_ST_SECTORS] == sectors
    assert result.total[model.LOADS_PER_THREAD] == words  # counted in 4-byte words: a float4 is four


def test_one_address_for_all_lanes_is_one_sector():
    a, o = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    result = gpudays.trace(COPIES, "same", 1, 32, [a, o])
    assert result.total[model.GLOBAL_LD_SECTORS] == 1
    assert (o == 7).all()


@pytest.mark.parametrize(
    ("statement", "op"),
    [
        ("atomicAdd(y, x[threadIdx.x]);", "red"),
        ("x[threadIdx.x] = atomicAdd(y, 1);", "atom"),
        ("atomicExch(y, 7);", "atom"),  # there is no reduction that only exchanges
    ],
)
def test_an_atomic_whose_result_nobody_reads_counts_as_a_reduction(statement, op):
    source = f'extern "C" __global__ void f(int* x, int* y) {{ {statement} }}'
    result = gpudays.trace(source, "f", 1, 64, [np.ones(64, np.int32), np.zeros(1, np.int32)])
    other = {"red": "atom", "atom": "red"}[op]
    assert result.total[model.requests("global", op)] == 2
    assert result.total[model.requests("global", other)] == 0


@pytest.mark.parametrize(("asked", "threads"), [("1", 1), ("12", 12), ("", None)])
def test_the_environment_limits_the_threads(monkeypatch, asked, threads):
    monkeypatch.setenv("GPUDAYS_THREADS", asked)
    assert default_threads() == (threads or min(8, os.cpu_count()))


@pytest.mark.parametrize("asked", ["0", "-1", "two", "1.5"])
def test_a_limit_that_is_no_number_is_refused(monkeypatch, asked):
    monkeypatch.setenv("GPUDAYS_THREADS", asked)
    with pytest.raises(ValueError, match=f"GPUDAYS_THREADS='{asked}': it must be a whole number of at least 1"):
        default_threads()
