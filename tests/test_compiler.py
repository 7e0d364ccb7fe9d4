"""The compiler room: programs, signatures, resources, and what a student reads when the source is wrong."""

import importlib.metadata
import subprocess
import sys
from types import SimpleNamespace

import pytest

import gpudays
from gpudays import compile_errors, compiler, nvrtc, signatures
from gpudays.mangling import MangledNameError, demangle

SCALE = """
extern "C" __global__ void scale(const float* __restrict__ x, float* y, size_t n, double by, char flag) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n && flag) y[i] = x[i] * by;
}
"""


def errors(source: str, **how) -> gpudays.CompileError:
    with pytest.raises(gpudays.CompileError) as caught:
        gpudays.compile(source, **how)
    return caught.value


def test_signature_tells_a_pointer_from_a_size():
    kernel = gpudays.compile(SCALE).kernel("scale")
    assert str(kernel) == "scale(const float*, float*, unsigned long, double, char)"
    assert [p.is_pointer for p in kernel.params] == [True, True, False, False, False]
    assert [p.width for p in kernel.params] == [8, 8, 8, 8, 1]
    assert [(p.element, p.element_bytes) for p in kernel.params[:3]] == [("float", 4), ("float", 4), ("", 0)]
    assert kernel.note == ""


def test_pointers_as_newer_compilers_mark_them():
    ptx = """.visible .entry k(
	.param .u64 .ptr .align 1 k_param_0,
	.param .u64 .ptr .global .align 16 k_param_1,
	.param .u64 k_param_2,
	.param .align 8 .b8 k_param_3[24]
)
{ }"""
    params = signatures.read(ptx)["k"].params
    assert [(p.type, p.width, p.is_pointer) for p in params] == [
        ("u64", 8, True), ("u64", 8, True), ("u64", 8, False), ("b8", 24, False),
    ]  # fmt: skip


def test_ptx_carries_lines_but_no_folder():
    ptx = gpudays.compile(SCALE).ptx
    assert ".loc\t1 4 " in ptx
    assert '"kernel.cu"' in ptx


def test_same_source_is_compiled_once():
    assert gpudays.compile(SCALE) is gpudays.compile(SCALE)
    assert gpudays.compile(SCALE, arch="sm_90") is not gpudays.compile(SCALE)
    assert ".target sm_90" in gpudays.compile(SCALE, arch="sm_90").ptx


def test_options_reach_the_compiler():
    source = 'extern "C" __global__ void k(int* y) { y[0] = SEVEN; }'
    assert "7" in gpudays.compile(source, options=("-DSEVEN=7",)).ptx
    assert "SEVEN" in str(errors(source))


def test_kernel_without_extern_c_is_found_and_told():
    source = "__global__ void matmul(const float* A, const float* B, float* C, int n) { C[n] = A[n] * B[n]; }"
    kernel = gpudays.compile(source).kernel("matmul")
    assert kernel.mangled == "_Z6matmulPKfS0_Pfi"
    assert 'extern "C"' in kernel.note and kernel.mangled in kernel.note
    assert kernel.params[2].declared == "float*"


def test_missing_kernel_names_those_that_exist():
    with pytest.raises(gpudays.KernelNotFound, match=r"no kernel scael .* scale\(const float\*"):
        gpudays.compile(SCALE).kernel("scael")
    with pytest.raises(gpudays.KernelNotFound, match="defines no __global__"):
        gpudays.compile("__device__ int x;").kernel("scale")


def test_template_instances_are_named_by_their_arguments():
    source = """
template <int T> __global__ void tile(float* y) {
  __shared__ float t[T];
  t[threadIdx.x] = y[0];
  __syncthreads();
  y[T] = t[T - 1 - threadIdx.x];
}"""
    program = gpudays.compile(source, names=("tile<16>", "tile<32>"))
    assert program.kernel("tile<32>").mangled == "_Z4tileILi32EEvPf"
    assert program.resources("sm_75")["tile<32>"].shared_bytes == 128
    with pytest.raises(gpudays.KernelNotFound, match="2 kernels are called tile"):
        program.kernel("tile")
    assert "name" in errors(source, names=("tle<16>",)).remedy


def test_resources_of_one_kernel_on_every_architecture():
    source = """
__constant__ float table[64];
extern "C" __global__ void k(float* y, int n) {
  __shared__ float t[256];
  t[threadIdx.x] = y[threadIdx.x] * table[n];
  __syncthreads();
  y[threadIdx.x] = t[255 - threadIdx.x];
}"""
    program = gpudays.compile(source)
    for arch in compiler.ARCHITECTURES:
        needs = program.resources(arch)["k"]
        assert needs.shared_bytes == 1024, arch
        assert needs.barriers == 1
        assert 4 <= needs.registers <= 32
        assert (needs.spill_stores, needs.spill_loads, needs.stack_bytes) == (0, 0, 0)
    assert program.resources("sm_75")["k"].constant_bytes >= 256 + 12


def test_resources_show_stack_and_the_register_limit():
    source = """
extern "C" __global__ void __launch_bounds__(1024) k(float* y, int n) {
  float v[96];
  #pragma unroll
  for (int i = 0; i < 96; ++i) v[i] = y[i * n];
  #pragma unroll
  for (int r = 0; r < 8; ++r)
    #pragma unroll
    for (int i = 0; i < 96; ++i) v[i] = v[i] * v[(i * 7 + r) % 96] + y[i];
  #pragma unroll
  for (int i = 0; i < 96; ++i) y[i * n] = v[i];
}"""
    needs = gpudays.compile(source).resources("sm_75")["k"]
    assert needs.registers == 64  # 65,536 registers over 1024 threads
    assert needs.spill_stores > 0 and needs.spill_loads > 0 and needs.stack_bytes > 0


def test_ptxas_report_keeps_device_functions_apart():
    log = """ptxas info    : 0 bytes gmem, 16 bytes cmem[3]
ptxas info    : Compiling entry function 'k' for 'sm_75'
ptxas info    : Function properties for k
ptxas         .     80 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 26 registers, used 1 barriers, 80 bytes cumulative stack size, 128 bytes smem, 360 bytes cmem[0]
ptxas info    : Function properties for _Z1ff
ptxas         .     8 bytes stack frame, 1 bytes spill stores, 2 bytes spill loads
"""
    assert compiler.parse_ptxas(log) == {"k": compiler.Resources(26, 128, 80, 4, 8, 360, 1)}


def test_error_shows_the_students_line_and_column():
    error = errors('extern "C" __global__ void k(float* y) {\n\ty[threadidx.x] = missing;\n}\n')
    first, second = error.diagnostics
    assert (first.line, first.column, first.severity) == (2, 4, "error")
    assert (second.line, second.column) == (2, 19)
    assert "    2 | \ty[threadidx.x] = missing;\n      | \t  ^" in str(error)
    assert 'identifier "missing" is undefined' in error.log
    assert "did you mean threadIdx?" in str(error)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("#include <stdio.h>\n__global__ void k() {}", "delete line 1, #include <stdio.h>"),
        ("\n#include <iostream>\n__global__ void k() {}", "delete line 2, #include <iostream>"),
        ('#include "cuda_nothing.h"\n__global__ void k() {}', "CUDA's headers"),
        ("__global__ void k(float* y) { uint i = threadIdx.x; y[i] = 1; }", "unsigned int"),
        ("__global__ void k(uint32_t* y) { y[0] = 1; }", "unsigned int"),
        ("__global__ void k(float* y) { y[0] = INFINITY; }", "__int_as_float(0x7f800000)"),
        ("__global__ void k(float* y) { y[0] = std::max(1, 2); }", "no std::max"),
        ("__global__ void k(float* y) { cudaMalloc(&y, 4); }", "belongs to the host"),
        ("float f() { return 1; }\n__global__ void k(float* y) { y[0] = f(); }", "line 1 starts a host function"),
        ('extern "C" {\ntemplate <int T> __global__ void k(float* y) {}\n}', 'remove extern "C"'),
    ],
)
def test_usual_causes_have_a_remedy(source, told):
    error = errors(source)
    assert told in error.remedy
    assert f"What to do: {error.remedy}" in str(error)


@pytest.mark.parametrize("name", sorted(set(compile_errors.INSTEAD) - {"half", "__half"}))
def test_every_suggested_replacement_compiles(name):
    value = name.isupper() or name.startswith("M_")
    line = "y[0] = {};" if value else "{} v = 1; y[0] = v;"
    wrong = f'extern "C" __global__ void k(double* y) {{ {line.format(name)} }}'
    right = f'extern "C" __global__ void k(double* y) {{ {line.format(compile_errors.INSTEAD[name])} }}'
    assert name in errors(wrong).remedy
    assert "k" in gpudays.compile(right).kernels


def test_names_that_need_no_header():
    body = (
        'printf("%d", 1); assert(y[0] > 0); size_t n = 1; float4 f = {}; dim3 g(1); memset(y, 0, 4); y = n ? y : NULL;'
    )
    source = f'extern "C" __global__ void k(float* y) {{ {body} y[0] = sqrtf(f.x) + fmaxf(g.x, warpSize); }}'
    assert "k" in gpudays.compile(source).kernels


def test_cuda_headers_that_travel_with_the_wheels():
    source = """# include <cuda_fp16.h>
  #\tinclude <cooperative_groups.h>
extern "C" __global__ void k(__half* y) { cooperative_groups::this_thread_block().sync(); y[0] = __float2half(1.f); }"""
    assert gpudays.compile(source).kernel("k").params[0].element == "__half"


def test_unknown_architecture_is_refused_by_name():
    with pytest.raises(ValueError, match=r"sm_10; it knows .*sm_75"):
        gpudays.compile(SCALE, arch="sm_10")
    with pytest.raises(ValueError, match="write it as 'sm_75'"):
        gpudays.compile(SCALE, arch="turing")


@pytest.mark.parametrize(
    ("mangled", "name", "types"),
    [
        ("_Z2mmILi32EEvPKfP6float4yd", "mm<32>", ("const float*", "float4*", "unsigned long long", "double")),
        ("_ZN2ab1kILi3ELb1EfEEvPT1_PKS1_S2_iNS_1PE", "ab::k<3, true, float>",
         ("float*", "const float*", "float*", "int", "ab::P")),
        ("_Z1kPPKfRK6float4", "k", ("const float**", "const float4&")),
        ("_ZN1a1b1kENS_1QENS0_1RES1_", "a::b::k", ("a::Q", "a::b::R", "a::Q")),
        ("_Z1k3BoxIfLi3EES0_PS0_", "k", ("Box<float, 3>", "Box<float, 3>", "Box<float, 3>*")),
        ("_Z1kv", "k", ()),
    ],
)  # fmt: skip
def test_mangled_names_are_read_as_cplusplus_filters_read_them(mangled, name, types):
    read = demangle(mangled)
    assert (read.name, read.types) == (name, types)  # the expectations are c++filt's, in another word order


@pytest.mark.parametrize("name", ["matmul", "_Z", "_Z9short", "_Z1kQ", "_Z1kS3_", "_Z1kPK"])
def test_no_mangled_name_is_guessed(name):
    with pytest.raises(MangledNameError):
        demangle(name)


def test_without_nvrtc_the_message_has_the_pip_line():
    code = (
        "import sys; sys.modules['cupy_backends.cuda.libs'] = None\n"
        "import gpudays\n"
        "try: gpudays.compile('')\n"
        "except Exception as e: print(type(e).__name__, e)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("NvrtcMissing")
    assert "python -m pip install" in said and "nvidia-cuda-nvrtc" in said


def test_pip_line_never_reinstalls_a_cupy_that_is_there(monkeypatch):
    def with_wheel(name):
        wheel = SimpleNamespace(metadata={"Name": name})
        monkeypatch.setattr(importlib.metadata, "distributions", lambda: [wheel])
        return nvrtc.install_line()

    assert "cupy" not in with_wheel("cupy-cuda12x")
    assert "nvidia-cuda-nvrtc>=13" in with_wheel("cupy-cuda13x") and "cupy" not in with_wheel("cupy-cuda13x")
    assert "cupy-cuda12x" in with_wheel("numpy")
