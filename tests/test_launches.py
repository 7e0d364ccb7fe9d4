"""The launch room: what a card would refuse or misread is said before it runs, on any machine."""

import numpy as np
import pytest

import gpudays
from gpudays import launches
from gpudays.launches import LaunchError

SUM = """
extern "C" __global__ void sum(const float* a, float* c, int n, size_t stride, float4* wide) {
  float s = 0.f;
  for (int i = 0; i < n; ++i) s += a[i * stride];
  c[0] = s + wide[0].x;
}
"""
# An 8 × 8 patch per thread: 116 registers on sm_75, far over the 64 that 1024 threads may have.
PATCH = """
extern "C" __global__ void patch(const float* A, const float* B, float* C, int M, int N, int K) {
  int r0 = (blockIdx.y * 32 + threadIdx.y) * 8, c0 = (blockIdx.x * 32 + threadIdx.x) * 8;
  float s[8][8] = {};
  for (int k = 0; k < K; ++k) {
    float a[8], b[8];
    for (int i = 0; i < 8; ++i) a[i] = (r0 + i < M) ? A[(r0 + i) * K + k] : 0.f;
    for (int j = 0; j < 8; ++j) b[j] = (c0 + j < N) ? B[k * N + c0 + j] : 0.f;
    for (int i = 0; i < 8; ++i) for (int j = 0; j < 8; ++j) s[i][j] += a[i] * b[j];
  }
  for (int i = 0; i < 8; ++i) for (int j = 0; j < 8; ++j) if (r0 + i < M && c0 + j < N) C[(r0 + i) * N + c0 + j] = s[i][j];
}
"""  # noqa: E501


@pytest.fixture(scope="module")
def kernel():
    return gpudays.compile(SUM).kernel("sum")


def good(**changed) -> list:
    args = {
        "a": np.ones(4, np.float32), "c": np.zeros(1, np.float32), "n": np.int32(4), "stride": np.uint64(1),
        "wide": np.zeros((1, 4), np.float32),
    }  # fmt: skip
    return list((args | changed).values())


def test_arguments_that_fit_pass(kernel):
    launches.check_arguments(kernel, good())
    launches.check_arguments(kernel, good(n=np.uint32(4), stride=np.int64(1)))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"a": np.ones(4)}, r"argument 1 \(const float\*\): the array is float64.*astype\(np.float32\)"),
        ({"a": np.ones(4, np.int64)}, r"the array is int64, 8 bytes an element, but the kernel reads float"),
        ({"a": np.ones(4, np.int32)}, r"the array is int32"),
        ({"wide": np.zeros(4)}, r"argument 5 \(float4\*\): the array is float64"),
        ({"a": np.ones((4, 4), np.float32).T}, "not contiguous"),
        ({"n": 4}, r"wrap 4 in the NumPy type of that width, as in np\.int32\(4\)"),
        ({"stride": np.int32(1)}, r"4 bytes, the kernel reads 8 bytes as unsigned long: pass np\.uint64\(1\)"),
        ({"n": np.float32(4)}, r"reads 4 bytes as int"),
        ({"stride": np.int64(-1)}, "negative"),
        ({"a": np.float32(1)}, "given for an array"),
        ({"n": np.ones(4, np.int32)}, "an array was given for a number"),
    ],
)
def test_what_a_kernel_would_misread_is_refused(kernel, changed, told):
    with pytest.raises(LaunchError, match=told):
        launches.check_arguments(kernel, good(**changed))


def test_wrong_number_of_arguments_shows_the_signature(kernel):
    with pytest.raises(LaunchError, match=r"sum\(const float\*, float\*, int.*takes 5 arguments, 4 were given"):
        launches.check_arguments(kernel, good()[:4])


@pytest.mark.parametrize(
    ("grid", "block", "told"),
    [
        ((1, 1), (64, 64), r"threads per block 4096 > 1024"),
        ((0, 1), (16, 16), r"grid \(0, 1, 1\): x is 0"),
        ((1, 65536), (16, 16), r"y is 65536, a card takes 1 to 65535"),
        ((1, 1), (1, 1, 65), r"z is 65, a card takes 1 to 64"),
        ((1, 1), (1025,), r"x is 1025"),
        ((1, 1), 0, r"block \(0, 1, 1\)"),
        ((1, 1, 1, 1), 32, "one to three whole numbers"),
        ((1.5, 1), 32, "one to three whole numbers"),
    ],
)
def test_grids_and_blocks_no_card_takes(grid, block, told):
    program = gpudays.compile(SUM)
    with pytest.raises(LaunchError, match=told):
        launches.check_launch(program, program.kernel("sum"), grid, block)


def test_too_many_registers_are_found_by_asking_ptxas():
    program = gpudays.compile(PATCH)
    kernel = program.kernel("patch")
    with pytest.raises(LaunchError, match=r"116 registers × 1024 threads = 118784 > 65536 on sm_75.*__launch_bounds__"):
        launches.check_launch(program, kernel, (1, 1), (32, 32))
    launches.check_launch(program, kernel, (1, 1), (16, 16))
    bounded = gpudays.compile(PATCH.replace("void patch", "void __launch_bounds__(1024) patch"))
    launches.check_launch(bounded, bounded.kernel("patch"), (1, 1), (32, 32))


def test_shared_memory_differs_by_card():
    source = 'extern "C" __global__ void k(float* y) { extern __shared__ float t[]; t[threadIdx.x] = 1; y[0] = t[0]; }'
    program = gpudays.compile(source)
    with pytest.raises(LaunchError, match=r"102400 dynamic\) > 65536 on sm_75"):
        launches.check_launch(program, program.kernel("k"), 1, 32, shared_bytes=102400)
    launches.check_launch(program, program.kernel("k"), 1, 32, shared_bytes=102400, arch="sm_90")
