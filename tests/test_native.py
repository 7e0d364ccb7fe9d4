"""Tracer, room 10: quick and careful code do the same, a launch changes over in between, and old code goes in order."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import gpudays
from gpudays import compile_cache, kernels_in_pages, verify
from gpudays.ptx import kernel, native, routines
from gpudays.ptx import layout as at

ROOT = Path(__file__).parents[1]
DAY43 = kernels_in_pages.kernel_text(ROOT / "code/day43-matmul-1/matmul_steps.cu")
SUITE = kernels_in_pages.kernel_text(ROOT / "code/optimizer/optimizer.cu")
# 64-bit sums across blocks, divergence, shared memory, a device function, half precision conversions
ODD = """
__device__ float halve(float x) { return x < 0.0f ? -x / 2.0f : sqrtf(x) / 3.0f; }
extern "C" __global__ void odd(const float* a, float* c, unsigned long long* total, int n) {
    __shared__ float tile[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    tile[threadIdx.x] = i < n ? a[i] : 0.0f;
    __syncthreads();
    float sum = 0.0f;
    for (int k = 0; k <= (i & 31); ++k) sum += halve(tile[(threadIdx.x + k) & 63]);
    if (i < n) c[i] = sum;
    if (threadIdx.x % 3 == 0) atomicAdd(total, (unsigned long long)(i * i));
}
"""


# addresses that depend on data, by several sites in turn, beside some that do not change from round to round
LISTS = """
extern "C" __global__ void lists(const float* a, float* c, const int* where, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int round = 0; round < 40; ++round) {
        int one = where[(i + round * 7) % n], other = where[(i * 5 + round) % n];
        sum += a[one] * a[other] + a[i] - a[i + 32];
        c[i] = sum;
        c[n + one * 96 * 3 + i] = sum;
    }
}
"""


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch, tmp_path) -> Path:
    """Nothing in this process and nothing in files; the folder of the files."""
    monkeypatch.setenv(compile_cache.VARIABLE, str(tmp_path))
    forget(monkeypatch)
    return tmp_path / "compiled"


def forget(monkeypatch) -> None:
    """As in a new process."""
    monkeypatch.setattr(kernel, "_cache", {})
    for maker in vars(routines).values():
        if hasattr(maker, "cache_clear"):
            maker.cache_clear()


def traced(source: str, name: str, grid, block, size=None):
    if name == "odd":
        a = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
        args = [a, np.full(1000, np.nan, np.float32), np.zeros(1, np.uint64), np.int32(1000)]
    elif name == "lists":
        rng, n = np.random.default_rng(2), 96 * 3
        a, where = rng.random(n + 32, np.float32), rng.permutation(n).astype(np.int32)
        args = [a, np.full(n + n * n, np.nan, np.float32), where, np.int32(n)]
    else:
        a, b = verify.inputs((size,) * 3)
        sizes = [np.int32(size)] * 3 if source == SUITE else [np.uint64(size)]
        args = [a, b, np.full((size, size), np.nan, np.float32), *sizes]
    result = gpudays.trace(source, name, grid=grid, block=block, args=args)
    return result, args


def assert_same(in_one: list, in_other: list) -> None:
    """Two launches left the same in their arguments."""
    for one, other in zip(in_one, in_other, strict=True):
        assert np.array_equal(one, other, equal_nan=isinstance(one, np.ndarray))


def careful_made() -> list[bool]:
    return [compiled.native.careful for compiled in kernel._cache.values()]


@pytest.mark.parametrize(
    ("source", "name", "grid", "block", "size"),
    [
        (ODD, "odd", 16, 64, None),
        (DAY43, "matmulStridedRows", (5, 5), (16, 16), 70),
        (DAY43, "matmulTiled", (5, 5), (16, 16), 70),
        (SUITE, "matmulVectorFast", (3, 3), (16, 16), 36),
        (SUITE, "matmulCoarsened4x4", (2, 2), (16, 16), 70),
    ],
)
def test_quick_and_careful_code_do_the_same(monkeypatch, source, name, grid, block, size):
    quick, in_quick = traced(source, name, grid, block, size)
    assert careful_made() == [False]
    forget(monkeypatch)
    monkeypatch.setattr(native, "QUICK", native.CAREFUL)
    careful, in_careful = traced(source, name, grid, block, size)
    assert_same(in_quick, in_careful)
    assert quick.counters.equals(careful.counters) and quick.findings == careful.findings == []


def test_a_launch_changes_over_between_blocks(monkeypatch):
    quick, in_quick = traced(DAY43, "matmulTiled", (5, 5), (16, 16), 70)
    kernel._cache.clear()
    monkeypatch.setattr(native, "TELLING", 0.0)
    monkeypatch.setattr(native, "WORTH", 0.0)
    both, in_both = traced(DAY43, "matmulTiled", (5, 5), (16, 16), 70)
    assert careful_made() == [True]
    assert np.array_equal(in_quick[2], in_both[2]) and quick.counters.equals(both.counters)


def test_what_runs_long_gets_careful_code_and_what_does_not_keeps_its_own():
    traced(ODD, "odd", 16, 64)
    tiers = next(iter(kernel._cache.values())).native
    tiers.ran(native.TELLING * 2, left=0.0)
    assert not tiers.careful
    first = tiers.code
    tiers.ran(native.TELLING / 2, left=1000.0)  # too short a run to tell
    assert not tiers.careful
    tiers.ran(native.TELLING * 2, left=1000.0)
    assert tiers.careful and tiers.code is not first


def test_the_next_kernel_finds_the_routines_compiled(monkeypatch):
    compiled, compile_ir = [], native.compile_ir
    monkeypatch.setattr(native, "compile_ir", lambda text, *rest: compiled.append(text) or compile_ir(text, *rest))
    traced(DAY43, "matmulTiled", (5, 5), (16, 16), 70)
    first = len(compiled)
    traced(DAY43, "matmulCoalescedCols", (5, 5), (16, 16), 70)
    assert (first > 4, len(compiled) - first) == (True, 1)
    tiers = list(kernel._cache.values())[-1].native
    tiers.improve()
    careful = len(compiled)
    assert careful - first - 1 > 3  # the kernel, and each routine that it calls
    kernel._cache.clear()
    traced(DAY43, "matmulStridedRows", (5, 5), (16, 16), 70)  # quick, with the careful routines that there are
    assert len(compiled) - careful == 1 and careful_made() == [False]


@pytest.mark.parametrize(("limit", "patience"), [(0, 64), (1, 64), (3, 64), (2048, 0), (2048, 1), (5, 2)])
def test_without_room_for_shapes_everything_is_the_same(monkeypatch, limit, patience):
    """A request whose shape is not kept is worked out anew each time, and never taken for another's."""
    cases = [(ODD, "odd", 16, 64), (DAY43, "matmulTiled", (5, 5), (16, 16), 70), (LISTS, "lists", 3, 96)]
    kept = [traced(*case) for case in cases]
    forget(monkeypatch)
    monkeypatch.setattr(at, "SHAPE_LIMIT", limit)
    monkeypatch.setattr(at, "PATIENCE", patience)
    for case, (result, args) in zip(cases, kept, strict=True):
        again, in_again = traced(*case)
        assert_same(args, in_again)
        assert again.counters.equals(result.counters) and again.findings == result.findings == []


# ---- kept in files -------------------------------------------------------------------------------------------------


@pytest.fixture
def made(monkeypatch) -> list[str]:
    """The modules that LLVM really compiled."""
    texts, make = [], native._made
    monkeypatch.setattr(native, "_made", lambda text, *tier: texts.append(text) or make(text, *tier))
    return texts


@pytest.mark.parametrize(
    ("source", "name", "grid", "block", "size"),
    [(ODD, "odd", 16, 64, None), (DAY43, "matmulTiled", (5, 5), (16, 16), 70)],
)
def test_a_new_process_compiles_nothing_and_does_the_same(monkeypatch, made, source, name, grid, block, size):
    first, in_first = traced(source, name, grid, block, size)
    count = len(made)
    forget(monkeypatch)
    again, in_again = traced(source, name, grid, block, size)
    assert (count > 4, len(made) - count) == (True, 0)
    assert_same(in_first, in_again)
    assert first.counters.equals(again.counters) and first.findings == again.findings == []


def test_careful_code_that_was_kept_serves_from_the_start(monkeypatch, made):
    traced(DAY43, "matmulTiled", (5, 5), (16, 16), 70)
    next(iter(kernel._cache.values())).native.improve()
    count = len(made)
    forget(monkeypatch)
    traced(DAY43, "matmulTiled", (5, 5), (16, 16), 70)
    assert len(made) == count and careful_made() == [True]


def test_code_for_another_processor_or_by_another_llvm_is_made_anew(monkeypatch, made):
    traced(DAY43, "matmulTiled", (5, 5), (16, 16), 70)
    count, (triple, _, features) = len(made), native._cpu()
    for name, value in (
        ("_cpu", lambda: (triple, "generic", features)),
        ("llvmlite", SimpleNamespace(__version__="0")),
    ):
        forget(monkeypatch)
        with monkeypatch.context() as changed:
            changed.setattr(native, name, value)
            traced(DAY43, "matmulTiled", (5, 5), (16, 16), 70)
        assert len(made) == 2 * count
        made[count:] = []


@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b'{"object": "%", "functions": []}', b'{"object": 7}', b"\xff"])
def test_what_is_damaged_is_made_again(monkeypatch, made, nothing_compiled, damage):
    first, _ = traced(DAY43, "matmulTiled", (5, 5), (16, 16), 70)
    count = len(made)
    objects = [path for path in nothing_compiled.iterdir() if "object" in json.loads(path.read_text())]
    for path in objects:
        path.write_bytes(damage)
    forget(monkeypatch)
    again, _ = traced(DAY43, "matmulTiled", (5, 5), (16, 16), 70)
    assert len(objects) == count == len(made) - count and first.counters.equals(again.counters)
    assert all("object" in json.loads(path.read_text()) for path in objects)


def test_routines_differ_only_in_what_they_depend_on():
    same = routines.access("ld", "global", 4, 1, 0, True, 0, 4)
    assert routines.access("ld", "global", 4, 1, 0, True, 0, 4) is same
    of_space = [routines._of_space(space, (16, True, 96, 4)) for space in ("global", "shared", "local", "generic")]
    assert of_space == [(0, True, 0, 4), (16, True, 0, 0), (0, False, 96, 0), (16, True, 96, 4)]


GARBAGE = """
import gc
from gpudays.ptx import native
target, layout = native.layout_of_this_machine()
text = f'''
target triple = "{target}"
target datalayout = "{layout}"
define i32 @run(ptr %machine, ptr %blocks, i64 %count) {{ ret i32 7 }}
'''
for level in range(60):
    code = native.compile_ir(text, level % 2, level % 3)
    assert code.run(0, 0, 0) == 7
    ring = [code]
    ring.append(ring)  # only the garbage collector gets rid of it, in whatever order
    del code, ring
    if level % 7 == 0:
        gc.collect()
gc.collect()
print("done")
"""


def test_code_that_is_garbage_goes_without_a_crash():
    """In a process of its own: closing an engine after its context ends the process."""
    ran = subprocess.run([sys.executable, "-c", GARBAGE], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "done\n"), ran.stderr[-2000:]
