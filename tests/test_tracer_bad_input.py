"""Bad input: always a clear error, never a wrong number, a hang, or the end of the process."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from test_tracer_counts import MATMUL

import gpudays
from gpudays.ptx import engine, model, parser

CLEAR = (parser.PtxSyntaxError, model.LaunchError, model.UnsupportedInstruction, model.KernelTrap)
PTX = gpudays.compile(MATMUL).ptx


def good_arguments() -> list:
    return [*(np.zeros(64, np.float32) for _ in range(3)), np.uint64(8)]


def launch(ptx: str = PTX, name: str = "matmulTiled", grid=1, block=(16, 16), args=None, **options):
    return engine.execute(ptx, name, grid, block, good_arguments() if args is None else args, **options)


# ---- launches ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, words",
    [
        ({"grid": 0}, "grid"),
        ({"grid": (1, 70000)}, "grid"),
        ({"grid": (2**31,)}, "grid"),
        ({"grid": (1, 1, 1, 1)}, "one to three"),
        ({"grid": "many"}, "one to three"),
        ({"grid": None}, "one to three"),
        ({"block": (0, 16)}, "block"),
        ({"block": (-1, 16)}, "block"),
        ({"block": (33, 32)}, "1056 threads"),
        ({"block": (1, 1, 65)}, "block"),
        ({"shared_bytes": -1}, "shared_bytes"),
        ({"shared_bytes": 100_000}, "shared memory"),
        ({"shared_bytes": 1.5}, "shared_bytes"),
        ({"blocks": [(1, 0)]}, "outside of the grid"),
        ({"blocks": []}, "no block"),
        ({"name": "matmulTyled"}, "matmulTiled"),
    ],
)
def test_a_launch_that_a_card_would_refuse(options, words):
    with pytest.raises(model.LaunchError, match=words):
        launch(**options)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda a: a[:3], "takes 4 arguments, 3"),
        (lambda a: [*a, np.int32(1)], "takes 4 arguments, 5"),
        (lambda a: [a[0], a[1], a[2], np.int32(8)], "8 bytes"),
        (lambda a: [a[0], a[1], a[2], 8], "NumPy scalar"),
        (lambda a: [a[0], a[1], list(a[2]), a[3]], "list"),
        (lambda a: [a[0], None, a[2], a[3]], "NoneType"),
        (lambda a: [a[0], np.array([object()]), a[2], a[3]], "Python objects"),
    ],
)
def test_arguments_that_do_not_fit(change, words):
    with pytest.raises(model.LaunchError, match=words):
        launch(args=change(good_arguments()))


def test_a_view_that_is_not_contiguous_is_read_and_written_through():
    a, b = np.arange(64, dtype=np.float32).reshape(8, 8), np.eye(8, dtype=np.float32)
    c = np.zeros((8, 16), np.float32)
    launch(args=[a.T, b, c[:, ::2], np.uint64(8)])
    assert (c[:, ::2] == a.T).all() and (c[:, 1::2] == 0).all()


def test_an_empty_array_is_a_buffer_without_bytes():
    result = launch(args=[np.zeros(0, np.float32), *good_arguments()[1:]])
    assert {f.kind for f in result.findings} == {"out-of-bounds"}


# ---- PTX -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "hello", "\0", ".version 8.0", ".version 8.0\n.target sm_75\n", PTX[:200], "{" * 5000]
)
def test_what_is_not_ptx(text):
    with pytest.raises(CLEAR):
        launch(text)


def test_ptx_cut_short_anywhere_is_an_error_or_lacks_the_kernel():
    start = PTX.index(".entry matmulTiled")
    for cut in range(start, PTX.rindex("}"), 97):
        with pytest.raises(CLEAR):
            launch(PTX[:cut])


def mutated(text: str, rng: random.Random) -> str:
    """A text with one to three of its lines changed as a bad editor would."""
    lines = text.split("\n")
    kind = rng.choice(["delete", "swap", "number", "register", "type", "character"])
    for _ in range(rng.randrange(1, 4)):
        i = rng.randrange(len(lines))
        if kind == "delete":
            del lines[i]
        elif kind == "swap":
            j = rng.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
        elif kind == "number":
            lines[i] = re.sub(r"\d+", lambda m: str(rng.choice([0, 1, 3, 31, 4096, 2**31, 2**40])), lines[i])
        elif kind == "register":
            lines[i] = re.sub(r"%(rd|r|f|p)(\d+)", lambda m: f"%{rng.choice(['r', 'rd', 'f', 'p'])}{m[2]}", lines[i])
        elif kind == "type":
            other = rng.choice(["s32", "u64", "f32", "f64", "pred", "u8"])
            lines[i] = re.sub(r"\.(s32|u32|u64|s64|f32|b32|b64|pred)\b", f".{other}", lines[i])
        elif lines[i]:
            place = rng.randrange(len(lines[i]))
            lines[i] = lines[i][:place] + rng.choice(";,{}[]%@!+-.x0 ") + lines[i][place + 1 :]
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(24))
def test_mutated_ptx_runs_or_is_refused_but_never_crashes(seed):
    text = mutated(PTX[: PTX.index(".visible")] + PTX[PTX.index(".visible .entry matmulTiled") :], random.Random(seed))
    try:
        result = launch(text, block=64, budget=20_000)
    except CLEAR as error:
        assert str(error)
    else:
        assert all(f.kind in model.FINDING_KINDS for f in result.findings)


# ---- instructions that the tracer does not know ---------------------------------------------------------------------

TENSOR = """
#include <cuda_runtime.h>
extern "C" __global__ void tensor(float* o) {
    float d0, d1, d2, d3;
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
        "{%4, %4, %4, %4}, {%4,%4}, {%5,%5,%5,%5};"
        : "=f"(d0), "=f"(d1), "=f"(d2), "=f"(d3) : "r"(0), "f"(0.f));
    o[threadIdx.x] = d0 + d1 + d2 + d3;
}
extern "C" __global__ void recursive(int* o) { o[0] = 1; }
"""


def test_tensor_cores_are_refused_by_name_and_line():
    with pytest.raises(gpudays.UnsupportedInstruction, match=r"line [567]: .*mma\.sync\.aligned\.m16n8k8") as caught:
        gpudays.trace(TENSOR, "tensor", 1, 32, [np.zeros(32, np.float32)], arch="sm_80")
    assert 5 <= caught.value.line <= 7  # the statement's lines


RECURSIVE = """
__device__ __noinline__ int count(int n) { return n < 2 ? n : count(n - 1) + count(n - 2); }
extern "C" __global__ void recursive(int* o) { o[0] = count(o[0]); }
__device__ __noinline__ int twice(int n) { return 2 * n; }
__device__ __noinline__ int half(int n) { return n / 2; }
extern "C" __global__ void pointer(int* o) {
    int (*f)(int) = o[0] > 3 ? twice : half;
    o[0] = f(o[1]);
}
"""


@pytest.mark.parametrize("name, why", [("recursive", "recursion"), ("pointer", "pointer")])
def test_calls_that_cannot_be_followed_are_refused(name, why):
    with pytest.raises(gpudays.UnsupportedInstruction, match=why):
        gpudays.trace(RECURSIVE, name, 1, 1, [np.array([5, 5], np.int32)])
