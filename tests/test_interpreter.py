"""The oracle: turns of diverged lanes, checks, races, and the microscope. Right answers: test_engines_agree.py."""

from __future__ import annotations

import numpy as np
import pytest

import gpudays
from gpudays import compiler, microscope
from gpudays.ptx import model
from gpudays.ptx.model import KernelTrap, LaunchError, UnsupportedInstruction
from gpudays.ptx.oracle import flow
from gpudays.ptx.oracle.arguments import prepare
from gpudays.ptx.oracle.interpreter import interpret
from gpudays.ptx.parser import parse


def run(source: str, grid, block, args, shared_bytes: int = 0, arch: str = "sm_75", **options):
    """Run the kernel `k` of CUDA C++ or PTX."""
    ptx = source if source.startswith(".version") else compiler.compile(source, arch=arch).ptx
    module = parse(ptx)
    kernel = module.functions["k"]
    return interpret(module, kernel, prepare(kernel, grid, block, args, shared_bytes), **options)


def kinds(result) -> list[str]:
    return sorted({f.kind for f in result.findings})


def cuda(body: str, parameters: str = "int* y", before: str = "") -> str:
    return f'{before}\nextern "C" __global__ void k({parameters}) {{\nint t = threadIdx.x;\n{body}\n}}'


# ---- turns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("successors", "loops"), [
    ([[1, 2], [3], [3], []], {}),  # if and else
    ([[1], [2, 3], [1], []], {1: {1, 2}}),  # while
    ([[1], [1, 2], []], {1: {1}}),  # do … while
    ([[1], [2], [2, 3], [1, 4], []], {1: {1, 2, 3}, 2: {2}}),  # nested
    ([[1, 4], [2, 3], [1], [1, 4], []], {1: {1, 2, 3}}),  # two ways back
])  # fmt: skip
def test_blocks_come_after_what_leads_to_them_and_loops_stay_together(successors, loops):
    order, found = flow.turn_order(successors)
    assert sorted(order) == list(range(len(successors))) and found == loops
    place = {block: i for i, block in enumerate(order)}
    for members in loops.values():
        assert max(map(place.get, members)) - min(map(place.get, members)) == len(members) - 1
    back = {(b, head) for head, members in loops.items() for b in members}
    forward = [(a, b) for a, after in enumerate(successors) for b in after if (a, b) not in back]
    assert all(place[a] < place[b] for a, b in forward)


def turns(body: str, args, parameters: str = "int* y") -> list[str]:
    seen = microscope.trace_turns(cuda(body, parameters), "k", 1, 32, args)
    return ["".join("#" if on else "." for on in turn.active) for turn in seen]


def test_both_sides_of_a_branch_then_together():
    seen = turns(
        "if (t < 9) y[t] = y[t + 1] * 3; else y[40 - t] = 5 / y[t]; __syncthreads(); y[t + 40] = 7;",
        [np.ones(99, np.int32)],
    )
    assert {"#" * 9 + "." * 23, "." * 9 + "#" * 23} <= set(seen)
    assert seen[0] == seen[-1] == "#" * 32


def test_lanes_leave_a_loop_one_by_one_and_meet_behind_it():
    body = "int s = 0;\n#pragma unroll 1\nfor (int i = 0; i <= t; ++i) s += y[i];\ny[t] = s;"
    seen = turns(body, [np.ones(32, np.int32)])
    assert seen[-1] == "#" * 32
    assert [s.count("#") for s in seen if s != "#" * 32] == [31 - i for i in range(31)]


def test_a_continue_does_not_run_ahead():
    """Lanes that go back to the loop's head wait for those inside: one load request per round, not two."""
    body = (
        "int s = 0;\n#pragma unroll 1\nfor (int i = 0; i < n; ++i) {\nint v = x[i];\n"
        "if ((v ^ t) & 1) { s += v * t; continue; }\ns ^= v; y[t] = s;\n}\ny[t] = s;"
    )
    args = [np.arange(10, dtype=np.int32), np.zeros(32, np.int32), np.int32(10)]
    result = run(cuda(body, "const int* x, int* y, int n"), 1, 32, args)
    assert result.total[model.GLOBAL_LD_REQUESTS] == 10


def test_a_request_counts_once_for_its_active_lanes():
    result = run(cuda("if (t % 8 == 0) y[t * 8] = t;"), 2, 64, [np.zeros(512, np.int32)])
    assert result.total[model.GLOBAL_ST_REQUESTS] == 4
    assert result.total[model.GLOBAL_ST_SECTORS] == 16
    assert result.total[model.STORES_PER_THREAD] == 16 / 128


def test_a_warp_of_some_threads():
    result = run(cuda("y[t] = t;"), 1, 40, [np.zeros(40, np.int32)])
    assert result.total[model.GLOBAL_ST_REQUESTS] == 2 and result.total[model.GLOBAL_ST_SECTORS] == 5


def test_one_warp_may_spin_until_another_acts():
    body = (
        "__shared__ volatile int flag; if (t == 0) flag = 0; __syncthreads();\n"
        "if (t < 32) { while (flag == 0) { } } else { __threadfence_block(); flag = 1; }\ny[t] = 5;"
    )
    y = np.zeros(64, np.int32)
    run(cuda(body), 1, 64, [y], check_races=False, budget=50_000)
    assert (y == 5).all()


# ---- counters ------------------------------------------------------------------------------------------------------

MATMUL = """extern "C" __global__ void k(const float* a, const float* b, float* c, size_t n) {
    const size_t row = blockIdx.x * blockDim.x + threadIdx.x, col = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= n || col >= n) return;
    float sum = 0.0f;
    for (size_t k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + col];
    c[row * n + col] = sum;
}"""


def test_step_1_of_day_43_costs_what_the_formula_says():
    """2·N·N²/32 requests of 8.5 sectors; the same formula gives an H200's counters at 512 to the last unit."""
    n = 64
    a, b, c = (np.ones((n, n), np.float32) for _ in range(3))
    result = run(MATMUL, (4, 4), (16, 16), [a, b, c, np.uint64(n)])
    assert result.total[model.GLOBAL_LD_REQUESTS] == 2 * n * n * n // 32 == 16384
    assert result.total[model.GLOBAL_LD_SECTORS] == 139264
    assert result.total[model.LOADS_PER_THREAD] == 2 * n and (c == n).all() and result.findings == []


def test_counts_do_not_depend_on_how_many_blocks_run_together(monkeypatch):
    n = 33
    args = [np.ones((n, n), np.float32), np.ones((n, n), np.float32), np.zeros((n, n), np.float32), np.uint64(n)]
    whole = run(MATMUL, (3, 3), (16, 16), args)
    monkeypatch.setattr("gpudays.ptx.oracle.interpreter.BATCH_LANES", 1)
    assert run(MATMUL, (3, 3), (16, 16), args).counts == whole.counts


# ---- checks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("body", "kind", "text"), [
    ("y[t + 1] = t;", "out-of-bounds", "1 bytes after the end of k_param_0 (128 bytes)"),
    ("y[t - 2] = t;", "out-of-bounds", "8 bytes before the start of k_param_0"),
    ("*(long long*)&y[t | 1] = 1;", "misaligned", "4 bytes past a multiple of 8"),
    ("__shared__ int s[32]; s[t + y[0]] = 1; __syncthreads(); y[t] = s[t];", "out-of-bounds", "shared"),
    ("__shared__ int s[33]; s[t] = 1; __syncthreads(); y[t] = s[t + 1];", "uninitialized-shared", "byte 128 of"),
])  # fmt: skip
def test_stray_accesses(body, kind, text):
    result = run(cuda(body), 1, 32, [np.full(32, 5, np.int32)])
    finding = next(f for f in result.findings if f.kind == kind)
    assert text in finding.message and finding.line == 4


def test_a_stray_lane_does_not_keep_the_others_from_writing():
    y = np.zeros(31, np.int32)
    result = run(cuda("y[t] = t + 1;"), 1, 32, [y])
    (finding,) = result.findings
    assert (finding.thread, finding.count) == ((31, 0, 0), 1) and (y == np.arange(1, 32)).all()


def test_a_gap_lies_between_buffers():
    x, y = np.zeros(64, np.int32), np.zeros(64, np.int32)
    result = run(cuda("x[64 + t] = 1;", "int* x, int* y"), 1, 32, [x, y])
    assert kinds(result) == ["out-of-bounds"] and not y.any()


EXIT = "__shared__ int s[64]; s[t] = t; if (t >= {n}) return; __syncthreads(); y[t] = s[t ^ 1];"


@pytest.mark.parametrize(("body", "found"), [
    (EXIT.format(n=64), []),
    (EXIT.format(n=50), ["barrier"]),
    (EXIT.format(n=32), ["barrier"]),
    ("if (t & 1) { __syncthreads(); y[t] = 1; } else { y[t] = 2; __syncthreads(); }", ["barrier"]),
    ("for (int i = 0; i < t / 32 + 1; ++i) { __syncthreads(); y[t] = i; }", ["barrier"]),
])  # fmt: skip
def test_barriers(body, found):
    assert kinds(run(cuda(body), 1, 64, [np.zeros(64, np.int32)])) == found


def test_a_barrier_that_nobody_completes_is_no_hang():
    body = 'if (t < 32) asm volatile("bar.sync 1, 64;"); else asm volatile("bar.sync 2, 64;");'
    assert kinds(run(cuda(body), 1, 64, [np.zeros(1, np.int32)])) == ["barrier"]


def test_an_endless_loop_spends_its_budget():
    result = run(cuda("while (*(volatile int*)y == 0) { }"), 1, 32, [np.zeros(1, np.int32)], budget=10_000)
    (finding,) = result.findings
    assert finding.kind == "budget" and finding.line == 4 and "10,000" in finding.message


def test_a_trap_names_its_thread():
    with pytest.raises(KernelTrap, match=r"line 4.*thread \(7, 0, 0\)"):
        run(cuda("if (t == 7) __trap(); y[t] = 1;"), 1, 32, [np.zeros(32, np.int32)])


@pytest.mark.parametrize(("grid", "block", "args"), [
    (0, 32, 1), (1, 0, 1), (1, 1025, 1), ((1, 70000), 32, 1), ((1, 1, 1, 1), 32, 1), (1, 32, 2), (1, 32, 0),
])  # fmt: skip
def test_launches_that_are_refused(grid, block, args):
    with pytest.raises(LaunchError):
        run(cuda("y[t] = 1;"), grid, block, [np.zeros(32, np.int32)] * args)


def test_arguments_that_are_refused():
    source = cuda("y[t] = n;", "int* y, int n")
    for args in ([np.zeros(4, np.int32), 5], [np.int32(1), np.int32(1)], [np.zeros(4, np.int32), np.int64(1)],
                 [np.zeros((8, 8), np.int32).T[:, :4], np.int32(1)]):  # fmt: skip
        with pytest.raises(LaunchError):
            run(source, 1, 4, args)


def test_recursion_is_refused_by_name():
    source = cuda(
        "y[t] = f(t);", before="__device__ __noinline__ int f(int n) { return n < 2 ? 1 : n * f(n - 1) + f(n - 2); }"
    )
    with pytest.raises(UnsupportedInstruction, match="calls itself"):
        run(source, 1, 32, [np.zeros(32, np.int32)])


# ---- races ---------------------------------------------------------------------------------------------------------

REVERSE = "__shared__ int s[64]; s[t] = y[t]; {barrier} y[t] = s[{other}];"


@pytest.mark.parametrize(("barrier", "other", "found"), [
    ("__syncthreads();", "63 - t", []),
    ("", "63 - t", ["shared-race"]),
    ("", "t ^ 1", ["shared-race"]),  # the neighbour in one warp: warps are not assumed to run in step
    ("__syncwarp();", "t ^ 1", []),
    ("__syncwarp();", "t ^ 32", ["shared-race"]),
    ("__syncwarp(0x0000ffff);", "t", []),
    ("", "t", []),
    ("__threadfence_block();", "t ^ 1", ["shared-race"]),
    ('asm volatile("bar.sync 3, 64;" ::: "memory");', "63 - t", []),
])  # fmt: skip
def test_what_orders_two_threads(barrier, other, found):
    body = REVERSE.format(barrier=barrier, other=other)
    if "0x0000ffff" in barrier:
        body = body.replace(barrier, f"if ((t & 31) < 16) {barrier}")
    result = run(cuda(body), 1, 64, [np.arange(64, dtype=np.int32)])
    assert [k for k in kinds(result) if k != "uninitialized-shared"] == found


def test_a_race_names_both_lines_and_threads():
    result = run(cuda("__shared__ int s[64];\ns[t] = t;\ny[t] = s[63 - t];"), 1, 64, [np.zeros(64, np.int32)])
    race = next(f for f in result.findings if f.kind == "shared-race")
    assert (race.line, race.other_line) == (5, 6) and "byte 0 of" in race.message and "(63, 0, 0)" in race.message


def test_two_writers_race_unless_they_write_the_same():
    text = "__shared__ int s; s = {value}; __syncthreads(); y[t] = s;"
    assert kinds(run(cuda(text.format(value="7")), 1, 64, [np.zeros(64, np.int32)])) == []
    assert kinds(run(cuda(text.format(value="t")), 1, 64, [np.zeros(64, np.int32)])) == ["shared-race"]


def test_the_second_barrier_of_a_tile_loop_matters():
    body = (
        "__shared__ int s[32];\nfor (int i = 0; i < 4; ++i) {\ns[t] = y[t] + i;\n__syncthreads();\n"
        "y[t] += s[31 - t];\n{again}\n}"
    )
    assert kinds(run(cuda(body.replace("{again}", "__syncthreads();")), 1, 32, [np.ones(32, np.int32)])) == []
    assert kinds(run(cuda(body.replace("{again}", "")), 1, 32, [np.ones(32, np.int32)])) == ["shared-race"]


HANDOVER = """__device__ unsigned arrived = 0;
extern "C" __global__ void k(int* part, int* total) {{
    __shared__ bool last;
    if (threadIdx.x == 0) {{
        part[blockIdx.x] = blockIdx.x + 1;
        {fence}
        last = atomicAdd(&arrived, 1u) == gridDim.x - 1;
    }}
    __syncthreads();
    if (last && threadIdx.x == 1) {{ int s = 0; for (int i = 0; i < gridDim.x; ++i) s += part[i]; *total = s; }}
}}"""


@pytest.mark.parametrize(("fence", "found"), [("__threadfence();", []), ("", ["global-race"])])
def test_a_fence_and_an_atomic_hand_over_between_blocks(fence, found):
    total = np.zeros(1, np.int32)
    result = run(HANDOVER.format(fence=fence), 5, 32, [np.zeros(5, np.int32), total])
    assert kinds(result) == found and total[0] == 15


@pytest.mark.parametrize(("body", "found"), [
    ("y[blockIdx.x * 32 + t] = t;", []),
    ("y[t] = 1;", []),  # both blocks write the same
    ("y[t] = blockIdx.x;", ["global-race"]),
    ("y[blockIdx.x * 32 + t] = y[t];", ["global-race"]),
    ("atomicAdd(&y[t], 1);", []),
    ("if (blockIdx.x == 0) y[t] = y[t ^ 1] + 1;", ["global-race"]),  # within one block
    ("if (blockIdx.x == 0) { int v = y[t ^ 1]; __syncthreads(); y[t] = v + 1; }", []),
])  # fmt: skip
def test_races_in_global_memory(body, found):
    assert kinds(run(cuda(body), 2, 32, [np.zeros(64, np.int32)])) == found


def test_a_copy_that_nobody_waited_for_has_not_arrived():
    body = (
        "__shared__ int s[32]; unsigned at = (unsigned)__cvta_generic_to_shared(&s[t]);\n"
        'asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at), "l"(y + t) : "memory");\n{wait}\n'
        "__syncthreads(); y[t] = s[31 - t];"
    )
    wait = 'asm volatile("cp.async.wait_all;" ::: "memory");'
    y = np.arange(32, dtype=np.int32)
    assert kinds(run(cuda(body.replace("{wait}", wait)), 1, 32, [y], arch="sm_80")) == [] and y[0] == 31
    result = run(cuda(body.replace("{wait}", "")), 1, 32, [y], arch="sm_80")
    assert kinds(result) == ["uninitialized-shared"]


# ---- microscope ----------------------------------------------------------------------------------------------------

LOOK = """extern "C" __global__ void look(const float* first, float4* second) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = first[blockIdx.x * 64 + 63 - t];
    __syncthreads();
    if (t & 1) second[t] = make_float4(s[0], s[t], 0, 0);
}"""


def look(**more):
    args = [np.arange(192, dtype=np.float32), np.zeros((64, 4), np.float32)]
    seen = gpudays.trace_accesses(LOOK, "look", grid=3, block=64, args=args, **more)
    assert not args[1].any(), "it works on copies"
    return seen


def test_accesses_of_one_warp():
    seen = look(at_block=(2, 0, 0), warp=1)
    assert [(a.op, a.space, a.width, a.line, a.ordinal) for a in seen][:2] == [
        ("ld", "global", 4, 4, 0),
        ("st", "shared", 4, 4, 1),
    ]
    load, store = seen[0], seen[-1]
    np.testing.assert_array_equal(load.offsets, 4 * (128 + 63 - np.arange(32, 64)))
    assert (load.buffer, load.buffer_name, load.active.all()) == (0, "first", True)
    assert (store.op, store.width, store.buffer, store.buffer_name) == ("st", 16, 1, "second")
    np.testing.assert_array_equal(store.active, np.arange(32) % 2 == 1)
    np.testing.assert_array_equal(store.offsets[store.active], 16 * np.arange(33, 64, 2))


def test_the_microscope_stops_where_it_is_told():
    assert len(look(limit=2)) == 2
    with pytest.raises(LaunchError, match="warp 2"):
        look(warp=2)
    with pytest.raises(LaunchError, match="outside the grid"):
        look(at_block=(3, 0, 0))
