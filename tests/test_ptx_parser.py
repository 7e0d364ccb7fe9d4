"""PTX text becomes modules, kernels and instructions; what is malformed or cut short is refused with its line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudays import compiler
from gpudays.ptx import engine, model
from gpudays.ptx.parser import Address, Imm, Instruction, Pair, PtxSyntaxError, Reg, Special, Symbol, Vector, parse

HEAD = ".version 8.4\n.target sm_75\n.address_size 64\n"


def body(text: str, declarations: str = ".reg .b32 %r<9>; .reg .f32 %f<9>; .reg .pred %p<9>; .reg .b64 %rd<9>;"):
    return parse(f"{HEAD}.visible .entry k()\n{{\n{declarations}\n{text}\nret;\n}}\n").kernels["k"]


def one(text: str) -> Instruction:
    return body(text).instructions[0]


def test_module_directives():
    module = parse(HEAD + ".visible .entry k(.param .u64 a, .param .align 8 .b8 s[24]) .maxntid 256, 1, 1 { ret; }")
    kernel = module.kernels["k"]
    assert (module.version, module.target, kernel.limits["maxntid"]) == ("8.4", "sm_75", (256, 1, 1))
    assert [(p.name, p.size, p.align) for p in kernel.params] == [("a", 8, 8), ("s", 24, 8)]


@pytest.mark.parametrize(("text", "operands"), [
    ("add.s32 %r1, %r2, -5;", (Reg("%r1"), Reg("%r2"), Imm(-5))),
    ("mov.u32 %r1, %tid.x;", (Reg("%r1"), Special("%tid.x"))),
    ("mov.f32 %f1, 0f3F800000;", (Reg("%f1"), Imm(1.0, 0x3F800000))),
    ("mov.f32 %f1, 0fBF800000;", (Reg("%f1"), Imm(-1.0, 0xBF800000))),
    ("ld.global.f32 %f1, [%rd1+-8];", (Reg("%f1"), Address(Reg("%rd1"), -8))),
    ("ld.param.u64 %rd1, [k_param_0+16];", (Reg("%rd1"), Address(Symbol("k_param_0"), 16))),
    ("ld.shared.v2.f32 {%f1, %f2}, [%r1];", (Vector((Reg("%f1"), Reg("%f2"))), Address(Reg("%r1")))),
    ("setp.lt.and.s32 %p1|%p2, %r1, 0x10, !%p3;",
     (Pair(Reg("%p1"), Reg("%p2")), Reg("%r1"), Imm(16), Reg("%p3", True))),
    ("shfl.sync.bfly.b32 %r1|%p1, %r2, 4, 31, -1;",
     (Pair(Reg("%r1"), Reg("%p1")), Reg("%r2"), Imm(4), Imm(31), Imm(-1))),
    ("mov.b64 {%r1, _}, %rd1;", (Vector((Reg("%r1"), None)), Reg("%rd1"))),
])  # fmt: skip
def test_operands(text, operands):
    assert one(text).operands == operands


def test_predicates_and_labels():
    kernel = body("@!%p1 bra L;\n@%p2 add.s32 %r1, %r1, 1;\nL: mov.u32 %r1, 0;")
    assert [i.predicate for i in kernel.instructions] == [Reg("%p1", True), Reg("%p2"), None, None]
    assert kernel.labels == {"L": 2}


def test_inner_scopes_have_names_of_their_own():
    text = "{ .reg .b32 t; mov.b32 t, 1; }\n{ .reg .b32 t; mov.b32 t, 2; }\n{ L: bra L; }\n{ L: bra L; }"
    kernel = body(text)
    first, second, loop, other, _ = kernel.instructions
    assert first.operands[0] != second.operands[0] and isinstance(first.operands[0], Reg)
    assert loop.operands != other.operands and len(kernel.labels) == 2


def test_lines_are_those_of_the_user_s_file():
    source = """__device__ __forceinline__ float twice(float v) {
    return v + v;
}
extern "C" __global__ void k(float* y) {
    y[threadIdx.x] = twice(y[threadIdx.x]) * 3.0f;
}
"""
    kernel = parse(compiler.compile(source).ptx).kernels["k"]
    lines = {i.parts[0]: i.line for i in kernel.instructions}
    assert lines["st"] == 5 and lines["ret"] == 6 and lines["add"] in (2, 5)


def test_initial_values_and_addresses():
    module = parse(
        HEAD + ".global .align 4 .u32 n = 7;\n.const .align 4 .f32 w[3] = {0f3F800000, -2.5, 1};\n"
        ".global .align 8 .u64 p[2] = {generic(n)+4, 0};\n.shared .align 16 .b8 s[64];\n"
        ".extern .shared .align 16 .b8 d[];"
    )
    n, w, p, s, d = module.variables
    assert n.data == b"\7\0\0\0" and w.size == 12
    assert np.frombuffer(w.data, np.float32)[:2].tolist() == [1.0, -2.5]
    assert p.addresses == ((0, Symbol("n", 4)),) and s.size == 64 and d.extern and d.size == 0


@pytest.mark.parametrize("text", [
    "", "int main() { return 0; }", HEAD + ".visible .entry k(", HEAD + ".visible .entry k() { add.s32 %r1, ;",
    HEAD + ".visible .entry k() { mov.u32 %r1, [%r2; ret; }", HEAD + ".globl x;", HEAD + ".entry k() { `ret; }",
    HEAD + ".visible .entry k() { .reg .v2 .f32 %v; ret; }", HEAD + ".visible .entry k() { ld.global.f32 %f1, []; }",
])  # fmt: skip
def test_what_is_malformed_is_refused(text):
    with pytest.raises(PtxSyntaxError):
        parse(text)


WHOLE = compiler.compile(
    'extern "C" __global__ void k(float* y, int n) { __shared__ float s[64]; s[threadIdx.x] = y[n]; __syncthreads();'
    " for (int i = 0; i < n; ++i) if (s[i & 63] > 0.5f) atomicAdd(&y[i], s[63 - threadIdx.x]); }"
).ptx


def read(text: str) -> None:
    """Parse; the only error that may come is a syntax error that names a line, or says that this is no PTX."""
    try:
        parse(text)
    except PtxSyntaxError as error:
        assert "line" in str(error) or "not PTX" in str(error)


@pytest.mark.parametrize("share", np.linspace(0, 1, 60))
def test_cut_short(share):
    read(WHOLE[: int(share * len(WHOLE))])


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(st.integers(0, len(WHOLE) - 1), st.integers(0, 12), st.text('{}[]();,.%@!<>|+-_ \n"0189afxX:k', max_size=6))
def test_mutated(at, removed, inserted):
    read(WHOLE[:at] + inserted + WHOLE[at + removed :])


# ---- one kernel of many ----------------------------------------------------------------------------------------------


def test_the_other_kernels_are_left_out_and_the_rest_is_the_same():
    source = """
__device__ __noinline__ float twice(float x) { return x + x; }
__constant__ float table[4];
extern "C" __global__ void first(float* y) { y[threadIdx.x] = twice(table[threadIdx.x & 3]); }
extern "C" __global__ void second(float* y) { __shared__ float s[32]; s[threadIdx.x] = twice(y[0]); y[1] = s[0]; }
template <int N> __global__ void third(float* y) { y[0] = N; }
template __global__ void third<3>(float*);
"""
    text = compiler.compile(source).ptx
    whole = parse(text)
    assert len(whole.kernels) == 3
    for name in whole.kernels:
        short = engine.without_others(text, name)
        module = parse(short)
        assert list(module.kernels) == [name] and len(short.splitlines()) == len(text.splitlines())
        assert module.functions[name] == whole.functions[name]
        assert set(module.variables) <= set(whole.variables)
        assert set(whole.functions) - set(module.functions) == set(whole.kernels) - {name}


def test_variables_that_nothing_names_are_left_out():
    source = """
__device__ int data[2] = {3, 4};
__device__ int* pointer = data;
__constant__ float table[4];
__device__ float lonely;
__device__ float4 lonely_array[7] = {{1.0f}};
__device__ int named_by_another_kernel;
extern "C" __global__ void first(int* y) { y[0] = *pointer; __shared__ int s[32]; s[threadIdx.x] = y[1]; y[2] = s[3]; }
extern "C" __global__ void second(float* y) { y[0] = table[threadIdx.x & 3]; named_by_another_kernel = 1; }
"""
    text = compiler.compile(source).ptx
    kept = {name: [v.name for v in parse(engine.without_others(text, name)).variables] for name in ("first", "second")}
    assert [name for name in kept["first"] if "_ZZ" not in name] == ["data", "pointer"]
    assert sorted(kept["second"]) == ["named_by_another_kernel", "table"]
    result = np.zeros(4, np.int32)
    engine.execute(text, "first", 1, 32, [result])
    assert result[0] == 3


ODDLY_SET = """.version 8.0
.target sm_75
.address_size 64
.visible .entry one() { ret; }
.visible .entry two() {
  ret; }
.visible .entry three()
{
ret;
}
"""


@pytest.mark.parametrize("name", ["one", "two", "three"])
def test_oddly_set_ptx_loses_nothing_that_is_wanted(name):
    assert name in parse(engine.without_others(ODDLY_SET, name)).kernels


def test_a_kernel_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(model.LaunchError, match=r"no kernel four in this PTX; it has one, two, three"):
        engine.execute(ODDLY_SET, "four", 1, 32, [])
