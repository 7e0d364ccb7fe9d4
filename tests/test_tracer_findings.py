"""What the tracer catches: mistakes that people make (tests/cases); and correct kernels that only look like them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import gpudays
from gpudays.ptx import launch, misfits, model
from gpudays.ptx.engine import execute

CASES = Path(__file__).parent / "cases"
SQUARE, ODD, RAGGED, ONE_TILE = (64, 64, 64), (50, 50, 50), (35, 79, 19), (32, 48, 16)


def run_case(number: str, size, seed: int = 3, fill=np.nan, data=None):
    """Run a case's kernel as case.json launches it: (result, whether C is A·B)."""
    folder = next(CASES.glob(f"{number}_*"))
    case, source = json.loads((folder / "case.json").read_text()), (folder / "kernel.cu").read_text()
    m, n, k = size
    names = {"M": m, "N": n, "K": k, "cdiv": lambda a, b: -(-a // b)}
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((m, k)).astype(np.float32) if data is None else np.full((m, k), data, np.float32)
    b = rng.standard_normal((k, n)).astype(np.float32) if data is None else np.full((k, n), data, np.float32)
    c = np.full((m, n), fill, np.float32)
    buffers = {"buf:A": a, "buf:B": b, "buf:C": c}
    args = [
        buffers[x["value"]] if x["value"] in buffers else np.int32(eval(x["value"], {}, names)) for x in case["args"]
    ]
    grid, block = ([eval(str(e), {}, names) for e in case[what]] for what in ("grid", "block"))
    result = gpudays.trace(source, case["symbol"], grid, block, args, case["dynamic_shared_bytes"])
    return result, bool(np.allclose(c, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-3))


def kinds(result) -> set[str]:
    return {f.kind for f in result.findings}


@pytest.mark.parametrize("size", [SQUARE, ODD, RAGGED, (1, 1, 1), (15, 17, 16)])
def test_00_a_correct_kernel_passes_everything(size):
    result, right = run_case("00", size)
    assert right and result.findings == []
    assert result.total[model.SHARED_LD_CONFLICTS] == 0


def test_03_a_leading_dimension_swapped_shows_in_rectangles_only():
    assert run_case("03", ODD)[1]
    result, right = run_case("03", RAGGED)
    assert not right and "out-of-bounds" in kinds(result)


def test_05_a_tile_offset_scaled_twice_reads_outside():
    assert run_case("05", ONE_TILE)[1]
    result, right = run_case("05", SQUARE)
    assert not right and "out-of-bounds" in kinds(result)


@pytest.mark.parametrize("size", [SQUARE, ODD, ONE_TILE])
def test_06_a_missing_barrier_is_a_race_on_both_tiles(size):
    result, _ = run_case("06", size)
    assert kinds(result) == {"shared-race"}
    assert {(f.line, f.other_line) for f in result.findings} >= {(11, 9), (11, 10)}


def test_08_an_early_return_before_a_barrier_is_a_diagnosis_not_a_hang():
    result, right = run_case("08", SQUARE)
    assert right and result.findings == []
    result, right = run_case("08", ODD)
    assert not right and {"barrier", "out-of-bounds"} <= kinds(result)


@pytest.mark.parametrize("number", ["11", "24"])
def test_11_a_misaligned_float4_is_misaligned_and_nothing_else(number):
    assert run_case(number, SQUARE)[1]
    result, _ = run_case(number, ODD)
    assert kinds(result) == {"misaligned"}
    assert "8 past a multiple of 16" in result.findings[0].message


def test_13_a_transposed_tile_conflicts_eight_ways():
    result, right = run_case("13", SQUARE)
    assert right and result.findings == []
    lines = result.counters.pivot_table(index="line", columns="metric", values="value", fill_value=0)
    stores = lines[lines[model.SHARED_ST_CONFLICTS] > 0]
    assert (stores[model.SHARED_ST_CONFLICTS] * 16 == stores[model.SHARED_ST_REQUESTS] * 7 * 16).all()
    # half of the loads are of the transposed tile, 8 turns each; the others broadcast
    assert result.total[model.SHARED_LD_CONFLICTS] == result.total[model.SHARED_LD_REQUESTS] / 2 * 7


def test_16_too_many_threads_are_refused():
    with pytest.raises(gpudays.LaunchError, match="4096"):
        run_case("16", SQUARE)


def test_17_too_many_registers_are_refused_with_advice():
    with pytest.raises(gpudays.LaunchError, match="__launch_bounds__"):
        run_case("17", SQUARE)


def test_21_accumulating_into_c_needs_a_cleared_c():
    assert not run_case("21", SQUARE)[1]
    assert run_case("21", SQUARE, fill=0)[1]


def test_22_a_wrong_loop_variable_hides_behind_constant_data():
    assert not run_case("22", SQUARE)[1]
    assert run_case("22", SQUARE, data=1)[1]
    result, _ = run_case("22", (16, 16, 320))
    assert "out-of-bounds" in kinds(result)  # the tile counter runs past the tile: shared memory


def test_24_a_float4_counts_as_four_loads():
    result, right = run_case("24", SQUARE)
    assert right and result.total[model.LOADS_PER_THREAD] == 2 * 64


@pytest.mark.parametrize("size", [(16, 16, 16), SQUARE])
def test_26_a_tile_that_is_not_filled_is_read_unwritten(size):
    result, _ = run_case("26", size)
    assert kinds(result) == {"uninitialized-shared"}


def test_32_a_mangled_kernel_is_found_with_a_note():
    result, right = run_case("32", (32, 32, 32))
    assert right and 'extern "C"' in result.notes[0]


def test_33_a_host_header_is_a_compile_error():
    with pytest.raises(gpudays.CompileError, match=r"stdio\.h"):
        run_case("33", SQUARE)


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_36_an_array_of_other_elements_is_refused(dtype):
    source = next(CASES.glob("36_*")).joinpath("kernel.cu").read_text()
    a, c = np.ones(16, dtype), np.zeros(1, np.float32)
    with pytest.raises(gpudays.LaunchError, match="float"):
        gpudays.trace(source, "matmul", 1, 1, [a, c, np.int32(16)])


# ---- kernels that are correct, however they look -------------------------------------------------------------------

LEGAL = r"""
extern "C" __global__ void two_barriers(int* o) {          // halves of a block at different barrier instructions
    __shared__ int s[128];
    if (threadIdx.x < 64) { s[threadIdx.x] = 1; __syncthreads(); }
    else                  { s[threadIdx.x] = 2; __syncthreads(); }
    o[threadIdx.x] = s[127 - threadIdx.x];
}
extern "C" __global__ void warp_reduce(const float* d, float* o) {   // ordered by __syncwarp alone
    __shared__ float s[128];
    int t = threadIdx.x, lane = t & 31;
    volatile float* w = s + (t & ~31);
    w[lane] = d[t];
    for (int k = 16; k; k >>= 1) { __syncwarp(); float x = lane < k ? w[lane + k] : 0; __syncwarp(); w[lane] += x; }
    __syncwarp();
    if (lane == 0) o[t >> 5] = w[0];
}
extern "C" __global__ void named(int* o) {                  // producer and consumer at a named barrier
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t < 64) { s[t] = t * 3; asm volatile("bar.sync 1, 128;"); }
    else if (t < 128) { asm volatile("bar.sync 1, 128;"); o[t - 64] = s[t - 64]; }
}
extern "C" __global__ void flag(const int* d, int* o) {     // many threads set one flag to the same value
    __shared__ int found;
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    if (d[threadIdx.x] > 5) found = 1;
    __syncthreads();
    o[threadIdx.x] = found;
}
extern "C" __global__ void histogram(const unsigned char* d, int n, int* h) {
    __shared__ int s[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) s[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&s[d[i]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&h[i], s[i]);
}
"""


def test_two_halves_at_different_barriers_are_legal():
    o = np.zeros(128, np.int32)
    result = gpudays.trace(LEGAL, "two_barriers", 1, 128, [o])
    assert result.findings == [] and (o == np.repeat([2, 1], 64)).all()


def test_syncwarp_orders_a_warp():
    d, o = np.arange(128, dtype=np.float32), np.zeros(4, np.float32)
    result = gpudays.trace(LEGAL, "warp_reduce", 1, 128, [d, o])
    assert result.findings == [] and (o == d.reshape(4, 32).sum(axis=1)).all()


def test_without_syncwarp_the_same_reduction_is_a_race():
    d, o = np.arange(128, dtype=np.float32), np.zeros(4, np.float32)
    result = gpudays.trace(LEGAL.replace("__syncwarp();", ""), "warp_reduce", 1, 128, [d, o])
    assert kinds(result) == {"shared-race"}


def test_a_named_barrier_orders_those_who_meet_there():
    o = np.zeros(64, np.int32)
    result = gpudays.trace(LEGAL, "named", 1, 192, [o])
    assert result.findings == [] and (o == np.arange(64) * 3).all()


def test_a_flag_set_by_many_to_one_value_is_no_race():
    d, o = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    result = gpudays.trace(LEGAL, "flag", 1, 64, [d, o])
    assert result.findings == [] and (o == 1).all()


def test_a_histogram_with_shared_atomics():
    d, h = np.random.default_rng(0).integers(0, 256, 5000).astype(np.uint8), np.zeros(256, np.int32)
    result = gpudays.trace(LEGAL, "histogram", 4, 128, [d, np.int32(len(d)), h])
    assert result.findings == [] and (h == np.bincount(d, minlength=256)).all()


GLOBAL = r"""
extern "C" __global__ void shift_in_place(int* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + 1 < n) a[i] = a[i + 1];
}
extern "C" __global__ void all_write(int* o) { if (threadIdx.x == 0) o[0] = blockIdx.x; }
extern "C" __global__ void all_add(int* o) { atomicAdd(o, 1); }
extern "C" __global__ void add_and_read(int* o, int* p) {
    atomicAdd(o, 1);
    p[blockIdx.x * blockDim.x + threadIdx.x] = o[0];
}
extern "C" __global__ void through_global(int* a, int* o) {      // one block, ordered by its barrier
    a[threadIdx.x] = threadIdx.x;
    __syncthreads();
    o[threadIdx.x] = a[blockDim.x - 1 - threadIdx.x];
}
__device__ int tickets = 0;
extern "C" __global__ void last_block(const int* d, int* partial, int* o) {   // ordered by fence and atomic
    __shared__ bool last;
    int v = d[blockIdx.x * 32 + threadIdx.x];
    for (int k = 16; k; k >>= 1) v += __shfl_down_sync(0xffffffff, v, k);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = v;
        __threadfence();
        last = atomicAdd(&tickets, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) { int s = 0; for (int i = 0; i < gridDim.x; ++i) s += partial[i]; o[0] = s; }
}
"""


def test_blocks_that_read_what_others_write_race():
    result = gpudays.trace(GLOBAL, "shift_in_place", 4, 64, [np.arange(256, dtype=np.int32), np.int32(256)])
    assert kinds(result) == {"global-race"}
    assert "a" in result.findings[0].message and result.findings[0].line == 4


def test_blocks_that_write_one_place_race_and_atomics_do_not():
    o = np.zeros(1, np.int32)
    result = gpudays.trace(GLOBAL, "all_write", 8, 32, [o])
    assert kinds(result) == {"global-race"} and "block (" in result.findings[0].message
    o[:] = 0
    result = gpudays.trace(GLOBAL, "all_add", 8, 32, [o])
    assert result.findings == [] and o[0] == 256
    assert result.total[model.RED_REQUESTS] == 8 and result.total[model.ATOM_REQUESTS] == 0
    result = gpudays.trace(GLOBAL, "add_and_read", 2, 32, [o, np.zeros(64, np.int32)])
    assert kinds(result) == {"global-race"}


def test_a_barrier_orders_a_block_in_global_memory():
    a, o = np.zeros(128, np.int32), np.zeros(128, np.int32)
    result = gpudays.trace(GLOBAL, "through_global", 1, 128, [a, o])
    assert result.findings == [] and (o == np.arange(128)[::-1]).all()
    result = gpudays.trace(GLOBAL.replace("__syncthreads();\n    o[", "o["), "through_global", 1, 128, [a, o])
    assert kinds(result) == {"global-race"}


def test_the_last_block_may_read_what_fences_and_an_atomic_ordered():
    d, partial, o = np.arange(256, dtype=np.int32), np.zeros(8, np.int32), np.zeros(1, np.int32)
    result = gpudays.trace(GLOBAL, "last_block", 8, 32, [d, partial, o])
    assert result.findings == [] and o[0] == d.sum()


def test_racing_kernels_give_the_same_findings_on_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(launch, "SHARE_SECONDS", -1.0)
    ptx = gpudays.compile(GLOBAL).ptx
    one, many = (
        execute(ptx, "shift_in_place", 64, 32, [np.arange(2048, dtype=np.int32), np.int32(2048)], threads=n)
        for n in (1, 4)
    )
    assert one.findings == many.findings != []


# ---- kernels that are wrong in other ways --------------------------------------------------------------------------

WRONG = r"""
extern "C" __global__ void endless(int* o) { volatile int go = 1; while (go) { } o[0] = 1; }
extern "C" __global__ void divergent(int* o) {
    if (threadIdx.x % 2) { __syncthreads(); } else { o[threadIdx.x] = 1; __syncthreads(); }
}
extern "C" __global__ void hang(int* o) {
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;"); else asm volatile("bar.sync 2, 64;");
    o[threadIdx.x] = 1;
}
extern "C" __global__ void negative(const float* a, float* o) { o[threadIdx.x] = a[(int)threadIdx.x - 1]; }
extern "C" __global__ void local_array(float* o, int k) {
    float a[4] = {1, 2, 3, 4};
    a[k] = 5;
    o[threadIdx.x] = a[(k + threadIdx.x) & 3];
}
extern "C" __global__ void wild(float* o, long long where) { *(float*)where = 1; o[0] = 2; }
extern "C" __global__ void same_cell(int* o) {
    __shared__ int s;
    s = threadIdx.x;
    __syncthreads();
    o[threadIdx.x] = s;
}
extern "C" __global__ void traps(int* o) { if (threadIdx.x == 5) __trap(); o[threadIdx.x] = 1; }
extern "C" __global__ void asserts(int* o) { assert(o[threadIdx.x] < 5); o[threadIdx.x] = 1; }
"""


def test_an_endless_loop_is_a_budget_finding():
    result = gpudays.trace(WRONG, "endless", 1, 32, [np.zeros(1, np.int32)], budget=100_000)
    assert kinds(result) == {"budget"} and result.stopped
    assert result.findings[0].line == 2


def test_a_barrier_in_divergent_code_is_found():
    result = gpudays.trace(WRONG, "divergent", 1, 64, [np.zeros(64, np.int32)])
    assert kinds(result) == {"barrier"}


def test_warps_that_wait_for_each_other_are_found():
    result = gpudays.trace(WRONG, "hang", 1, 64, [np.zeros(64, np.int32)])
    assert kinds(result) == {"barrier"} and "hang" in result.findings[0].message


def test_one_element_before_the_buffer():
    a, o = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    result = gpudays.trace(WRONG, "negative", 1, 32, [a, o])
    (finding,) = result.findings
    assert (finding.kind, finding.thread, finding.line) == ("out-of-bounds", (0, 0, 0), 10)
    assert "4 bytes before the start of a" in finding.message
    assert (o[1:] == a[:-1]).all() and o[0] == 0


def test_a_local_array_has_bounds_too():
    o = np.zeros(32, np.float32)
    assert gpudays.trace(WRONG, "local_array", 1, 32, [o, np.int32(2)]).findings == []
    result = gpudays.trace(WRONG, "local_array", 1, 32, [o, np.int32(1000)])
    assert kinds(result) == {"out-of-bounds"} and "local memory" in result.findings[0].message


@pytest.mark.parametrize("where", [0, 8, -4, 1 << 40, (1 << 62), -(1 << 62), (1 << 63) - 4])
def test_a_wild_pointer_never_touches_the_host(where):
    o = np.zeros(4, np.float32)
    result = gpudays.trace(WRONG, "wild", 1, 32, [o, np.int64(where)])
    assert kinds(result) == {"out-of-bounds"} and o[0] == 2


def test_lanes_that_write_different_values_to_one_cell():
    result = gpudays.trace(WRONG, "same_cell", 1, 32, [np.zeros(32, np.int32)])
    assert "shared-race" in kinds(result)


STRADDLING = """extern "C" __global__ void k(const float4* x, const float4* y, float4* o, int rounds) {
    const float4* from = threadIdx.x & 1 ? x : y;
#pragma unroll 1
    for (int j = 0; j < rounds; ++j) o[32 * j + threadIdx.x] = from[32 * j + threadIdx.x];
}"""


def straddle(rounds: int, x_bytes: int = 16 * 32 * 50):
    x = np.arange(x_bytes // 4, dtype=np.float32)
    y, o = -np.arange(32 * 50 * 4, dtype=np.float32), np.full(32 * 50 * 4, np.nan, np.float32)
    return gpudays.trace(STRADDLING, "k", 1, 32, [x, y, o, np.int32(rounds)]), x, y, o


def test_requests_that_straddle_buffers_are_python_s_business_only_at_first(monkeypatch):
    asked, settle = [], misfits.Access.settle
    monkeypatch.setattr(misfits.Access, "settle", lambda access: asked.append(access) or settle(access))
    result, x, y, o = straddle(50)
    assert result.findings == [] and len(asked) <= 4
    odd = (np.arange(32 * 50) & 1).astype(bool)
    assert (o.reshape(-1, 4) == np.where(odd[:, None], x.reshape(-1, 4), y.reshape(-1, 4))).all()
    assert result.total[model.requests("global", "ld")] == 50
    # A lane reads half a sector, and its neighbour the other buffer.
    assert result.total[model.sectors("global", "ld")] == 50 * 32
    assert {(touch.buffer, touch.op) for touch in result.touched} == {(0, "ld"), (1, "ld"), (2, "st")}


def test_a_lane_that_leaves_its_buffer_is_found_in_a_request_that_straddles():
    result, *_ = straddle(50, x_bytes=16 * (32 * 40 + 4))
    finding = result.findings[0]
    assert (finding.kind, finding.thread, finding.line) == ("out-of-bounds", (5, 0, 0), 4)
    assert "past the end of x" in finding.message


def test_a_trap_and_a_failed_assertion_are_errors_with_their_line():
    with pytest.raises(model.KernelTrap, match="line 23"):
        gpudays.trace(WRONG, "traps", 1, 32, [np.zeros(32, np.int32)])
    with pytest.raises(model.KernelTrap, match=r"o\[threadIdx\.x\] < 5"):
        gpudays.trace(WRONG, "asserts", 1, 32, [np.arange(32, dtype=np.int32)])


def test_buffers_too_large_to_be_watched_for_races_are_told():
    source = 'extern "C" __global__ void f(float* y) { y[blockIdx.x * 32 + threadIdx.x] = 1.0f; }'
    small = gpudays.trace(source, "f", 1, 32, [np.zeros(64, np.float32)])
    large = gpudays.trace(source, "f", 1, 32, [np.zeros(10 << 20, np.float32)])
    assert not small.notes
    assert large.notes == [
        "global memory was not watched for races: the kernel writes 40 MiB, and records are kept of 32 at most"
    ]
