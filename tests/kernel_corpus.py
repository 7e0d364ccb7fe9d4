"""Small kernels of every kind a course meets, each with a launch at an odd size and the answer NumPy gives.

`SAMPLES` maps a name to a `Sample`. All of them are correct: no engine may report a finding on them. `page_source`
gives the course's own kernels as a page compiles them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpudays.kernels_in_pages import page_parts


def page_source(page: Path) -> str:
    """A page's kernels to the letter, each string with its first line break: what the page compiled serves the test."""
    return "".join("\n" + text for text in page_parts(page))


@dataclass(frozen=True)
class Sample:
    """`arguments(rng)` makes the launch's arguments; `expected(args)` maps argument numbers to the right contents,
    from the arguments as they were before. `tolerance` is relative; 0 asks for the same bits. `same_counts` is False
    where how often a loop runs depends on the order of the warps."""

    source: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: Callable
    expected: Callable
    shared_bytes: int = 0
    arch: str = "sm_75"
    tolerance: float = 0.0
    same_counts: bool = True


SAMPLES: dict[str, Sample] = {}


def sample(name: str, source: str, grid, block, arguments, expected, **more) -> None:
    SAMPLES[name] = Sample(source, grid, block, arguments, expected, **more)


def floats(rng, *shape) -> np.ndarray:
    return rng.standard_normal(shape, dtype=np.float32)


def nans(*shape) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


# ---- element by element --------------------------------------------------------------------------------------------

sample(
    "saxpy with a tail",
    """extern "C" __global__ void k(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaf(a, x[i], y[i]);
}""",
    (8,), (128,),
    lambda rng: [np.float32(2), floats(rng, 1000), floats(rng, 1000), np.int32(1000)],
    lambda a: {2: np.float32(2.0 * a[1].astype(np.float64) + a[2])},
)  # fmt: skip

sample(
    "float4 and a grid-stride loop",
    """extern "C" __global__ void k(const float4* x, float4* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float4 v = x[i];
        y[i] = make_float4(v.w, v.z + v.z, -v.y, v.x * v.x);
    }
}""",
    (3,), (50,),
    lambda rng: [floats(rng, 333, 4), nans(333, 4), np.int32(333)],
    lambda a: {1: np.stack([a[0][:, 3], a[0][:, 2] + a[0][:, 2], -a[0][:, 1], a[0][:, 0] ** 2], axis=1)},
)  # fmt: skip

sample(
    "three dimensions",
    """extern "C" __global__ void k(const float* x, float* y, int nx, int ny, int nz) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    int l = blockIdx.z * blockDim.z + threadIdx.z;
    if (i >= nx || j >= ny || l >= nz) return;
    y[(l * ny + j) * nx + i] = 2.0f * x[(l * ny + j) * nx + i] + (i > 0 ? x[(l * ny + j) * nx + i - 1] : 0.0f);
}""",
    (3, 2, 2), (5, 4, 3),
    lambda rng: [floats(rng, 5, 7, 13), nans(5, 7, 13), np.int32(13), np.int32(7), np.int32(5)],
    lambda a: {1: 2 * a[0] + np.concatenate([np.zeros((5, 7, 1), np.float32), a[0][:, :, :-1]], axis=2)},
    tolerance=1e-6,
)  # fmt: skip

sample(
    "bytes and shorts",
    """extern "C" __global__ void k(const unsigned char* a, const short* b, short* y, signed char* z, int n) {
    int i = threadIdx.x;
    if (i < n) { y[i] = a[i] * b[i]; z[i] = (signed char)(a[i] - b[i]); }
}""",
    (1,), (77,),
    lambda rng: [rng.integers(0, 256, 77).astype(np.uint8), rng.integers(-999, 999, 77).astype(np.int16),
                 np.zeros(77, np.int16), np.zeros(77, np.int8), np.int32(77)],
    lambda a: {2: (a[0].astype(np.int64) * a[1]).astype(np.int16), 3: (a[0].astype(np.int64) - a[1]).astype(np.int8)},
)  # fmt: skip

sample(
    "integers of both widths",
    """extern "C" __global__ void k(const int* a, const int* b, long long* y, unsigned* z) {
    int i = threadIdx.x;
    y[3 * i] = (long long)a[i] * b[i] / (b[i] | 1);
    y[3 * i + 1] = ((unsigned long long)a[i] << (b[i] & 63)) % 1000003u;
    y[3 * i + 2] = __mul64hi((long long)a[i] << 31, (long long)b[i] << 29);
    z[4 * i] = __umulhi(a[i], b[i]) + __clz(a[i]) + __popc(b[i]);
    z[4 * i + 1] = __brev(a[i]) ^ __byte_perm(a[i], b[i], 0x5172);
    z[4 * i + 2] = a[i] / ((b[i] & 255) + 1) + (unsigned)a[i] % ((b[i] & 31) + 3);
    z[4 * i + 3] = __funnelshift_l(a[i], b[i], a[i]) + __ffs(b[i]) + max(a[i], b[i]) - min(a[i], b[i]);
}""",
    (1,), (45,),
    lambda rng: [rng.integers(-(2**31), 2**31, 45).astype(np.int32), rng.integers(-(2**31), 2**31, 45).astype(np.int32),
                 np.zeros(135, np.int64), np.zeros(180, np.uint32)],
    lambda a: {2: _wide_integers(a[0].tolist(), a[1].tolist())},
)  # fmt: skip


def _wide_integers(a: list[int], b: list[int]) -> np.ndarray:
    out = []
    for x, y in zip(a, b, strict=True):
        product, divisor = x * y, y | 1
        quotient = abs(product) // abs(divisor)
        out.append(quotient if (product < 0) == (divisor < 0) else -quotient)
        out.append((x << (y & 63)) % 2**64 % 1000003)
        out.append(((x << 31) * (y << 29)) >> 64)
    return np.array(out, np.int64)


sample(
    "sin, exp, pow, log",
    """extern "C" __global__ void k(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = sinf(v) + expf(-v * v) + powf(fabsf(v) + 0.5f, 1.5f) + logf(1.0f + v * v) + rsqrtf(1.0f + v * v)
         + __sinf(v) + __expf(v) + sinf(v * 1.0e6f) + roundf(v * 10.0f) + fmodf(v, 0.3f) + tanhf(v);
}""",
    (3,), (96,),
    lambda rng: [floats(rng, 250), nans(250), np.int32(250)],
    lambda a: {1: _transcendental(a[0])},
    tolerance=3e-4,
)  # fmt: skip


def _transcendental(x: np.ndarray) -> np.ndarray:
    v, single = x.astype(np.float64), x
    far = (single * np.float32(1e6)).astype(np.float64)
    out = np.sin(v) + np.exp(-v * v) + (np.abs(v) + 0.5) ** 1.5 + np.log(1 + v * v) + 1 / np.sqrt(1 + v * v)
    ten = (single * np.float32(10)).astype(np.float64)
    rounded = np.sign(ten) * np.floor(np.abs(ten) + 0.5)
    return out + np.sin(v) + np.exp(v) + np.sin(far) + rounded + np.fmod(v, np.float64(np.float32(0.3))) + np.tanh(v)


# ---- divergence ----------------------------------------------------------------------------------------------------

sample(
    "loops of different length",
    """extern "C" __global__ void k(int* steps, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned v = i + 1; int count = 0;
    while (v != 1) {
        if (v & 1) v = 3 * v + 1; else v /= 2;
        if (++count == 60) break;
    }
    steps[i] = count;
}""",
    (3,), (70,),
    lambda rng: [np.zeros(200, np.int32), np.int32(200)],
    lambda a: {0: np.array([_collatz(i + 1) for i in range(200)], np.int32)},
)  # fmt: skip


def _collatz(v: int) -> int:
    count = 0
    while v != 1 and count < 60:
        v = 3 * v + 1 if v % 2 else v // 2
        count += 1
    return count


sample(
    "continue, break, nested",
    """extern "C" __global__ void k(const int* x, int* y, int n) {
    int i = threadIdx.x, sum = 0;
    for (int j = 0; j < n; ++j) {
        if ((x[j] + i) % 3 == 0) continue;
        for (int l = 0; l < (x[j] & 7); ++l) {
            if (((l ^ i) & 5) == 5) { sum += 100; break; }
            sum += l;
        }
        if (sum > 2000 + i) { sum -= 7; continue; }
        sum += j;
    }
    y[i] = sum;
}""",
    (1,), (61,),
    lambda rng: [rng.integers(0, 99, 23).astype(np.int32), np.zeros(61, np.int32), np.int32(23)],
    lambda a: {1: np.array([_nested(a[0].tolist(), i) for i in range(61)], np.int32)},
)  # fmt: skip


def _nested(x: list[int], i: int) -> int:
    total = 0
    for j, v in enumerate(x):
        if (v + i) % 3 == 0:
            continue
        for inner in range(v & 7):
            if ((inner ^ i) & 5) == 5:
                total += 100
                break
            total += inner
        if total > 2000 + i:
            total -= 7
            continue
        total += j
    return total


sample(
    "switch",
    """extern "C" __global__ void k(int* y) {
    int i = threadIdx.x, v = 0;
    switch (i % 9) {
        case 0: v = 11; break;
        case 1: v = i * 3; break;
        case 2: v = i - 5;
        case 3: v += 100; break;
        case 4: return;
        case 5: for (int j = 0; j < i; ++j) v += j; break;
        case 6: v = -i; break;
        default: v = 7;
    }
    y[i] = v;
}""",
    (1,), (90,),
    lambda rng: [np.full(90, -1, np.int32)],
    lambda a: {0: np.array([_switch(i) for i in range(90)], np.int32)},
)  # fmt: skip


def _switch(i: int) -> int:
    return {0: 11, 1: i * 3, 2: i + 95, 3: 100, 4: -1, 5: i * (i - 1) // 2, 6: -i}.get(i % 9, 7)


# ---- shared memory -------------------------------------------------------------------------------------------------

_TRANSPOSE = """extern "C" __global__ void k(const float* x, float* y, int rows, int cols) {
    __shared__ float tile[16][16 + PAD];
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    if (r < rows && c < cols) tile[threadIdx.y][threadIdx.x] = x[r * cols + c];
    __syncthreads();
    c = blockIdx.y * 16 + threadIdx.x; r = blockIdx.x * 16 + threadIdx.y;
    if (r < cols && c < rows) y[r * rows + c] = tile[threadIdx.x][threadIdx.y];
}"""
for _pad in (0, 1):
    sample(
        f"transpose, padding {_pad}",
        _TRANSPOSE.replace("PAD", str(_pad)),
        (3, 3), (16, 16),
        lambda rng: [floats(rng, 35, 41), nans(41, 35), np.int32(35), np.int32(41)],
        lambda a: {1: a[0].T},
    )  # fmt: skip

sample(
    "tree reduction",
    """extern "C" __global__ void k(const float* x, float* y, int n) {
    extern __shared__ float s[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int step = blockDim.x / 2; step > 0; step /= 2) {
        if (t < step) s[t] += s[t + step];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = s[0];
}""",
    (5,), (128,),
    lambda rng: [floats(rng, 601), nans(5), np.int32(601)],
    lambda a: {1: np.append(a[0], np.zeros(39, np.float32)).reshape(5, 128).astype(np.float64).sum(axis=1)},
    shared_bytes=512, tolerance=1e-5,
)  # fmt: skip

sample(
    "reduction that diverges within warps",
    """extern "C" __global__ void k(const double* x, double* y) {
    __shared__ double s[96];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 96 + t];
    __syncthreads();
    for (int step = 1; step < 96; step *= 2) {
        if (t % (2 * step) == 0 && t + step < 96) s[t] += s[t + step];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = s[0];
}""",
    (4,), (96,),
    lambda rng: [rng.standard_normal(384), np.full(4, np.nan)],
    lambda a: {1: a[0].reshape(4, 96).sum(axis=1)},
    tolerance=1e-13,
)  # fmt: skip

sample(
    "scan, double buffered",
    """extern "C" __global__ void k(const int* x, int* y, int n) {
    __shared__ int s[2][100];
    int t = threadIdx.x, from = 0;
    s[0][t] = t < n ? x[t] : 0;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        s[1 - from][t] = s[from][t] + (t >= step ? s[from][t - step] : 0);
        from = 1 - from;
        __syncthreads();
    }
    if (t < n) y[t] = s[from][t];
}""",
    (1,), (100,),
    lambda rng: [rng.integers(-9, 99, 93).astype(np.int32), np.zeros(93, np.int32), np.int32(93)],
    lambda a: {1: np.cumsum(a[0]).astype(np.int32)},
)  # fmt: skip

sample(
    "bitonic sort",
    """extern "C" __global__ void k(int* x) {
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    for (int size = 2; size <= 128; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            int other = t ^ step;
            if (other > t && (s[t] > s[other]) == ((t & size) == 0)) { int v = s[t]; s[t] = s[other]; s[other] = v; }
        }
    __syncthreads();
    x[t] = s[t];
}""",
    (1,), (128,),
    lambda rng: [rng.integers(-999, 999, 128).astype(np.int32)],
    lambda a: {0: np.sort(a[0])},
)  # fmt: skip

_MATMUL_TILED = """#define T 16
extern "C" __global__ void k(const REAL* a, const REAL* b, REAL* c, int m, int n, int depth) {
    __shared__ REAL s[T][T], u[T][T];
    int row = blockIdx.y * T + threadIdx.y, col = blockIdx.x * T + threadIdx.x;
    REAL sum = 0;
    for (int t = 0; t < depth; t += T) {
        s[threadIdx.y][threadIdx.x] = row < m && t + threadIdx.x < depth ? a[row * depth + t + threadIdx.x] : 0;
        u[threadIdx.y][threadIdx.x] = t + threadIdx.y < depth && col < n ? b[(t + threadIdx.y) * n + col] : 0;
        __syncthreads();
        for (int k = 0; k < T; ++k) sum += s[threadIdx.y][k] * u[k][threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}"""
for _real, _dtype, _tolerance in (("float", np.float32, 1e-4), ("double", np.float64, 1e-12)):
    sample(
        f"tiled matmul, {_real}",
        _MATMUL_TILED.replace("REAL", _real),
        (2, 3), (16, 16),
        lambda rng, d=_dtype: [rng.standard_normal((35, 29)).astype(d), rng.standard_normal((29, 19)).astype(d),
                               np.full((35, 19), np.nan, d), np.int32(35), np.int32(19), np.int32(29)],
        lambda a: {2: a[0].astype(np.float64) @ a[1].astype(np.float64)},
        tolerance=_tolerance,
    )  # fmt: skip

sample(
    "register tile, float4 from shared memory",
    """extern "C" __global__ void k(const float* a, const float* b, float* c, int n) {
    __shared__ float s[8][32 + 4], u[8][32];
    int t = threadIdx.x, tx = t % 8, ty = t / 8, row0 = blockIdx.y * 32, col0 = blockIdx.x * 32;
    float acc[4][4] = {};
    for (int k0 = 0; k0 < n; k0 += 8) {
        for (int i = t; i < 256; i += 64) {
            s[i % 8][i / 8] = a[(row0 + i / 8) * n + k0 + i % 8];
            u[i / 32][i % 32] = b[(k0 + i / 32) * n + col0 + i % 32];
        }
        __syncthreads();
        for (int k = 0; k < 8; ++k) {
            float4 x = *(const float4*)&s[k][4 * ty], y = *(const float4*)&u[k][4 * tx];
            float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
            for (int i = 0; i < 4; ++i) for (int j = 0; j < 4; ++j) acc[i][j] += xs[i] * ys[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        *(float4*)&c[(row0 + 4 * ty + i) * n + col0 + 4 * tx] = make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
}""",
    (2, 2), (64,),
    lambda rng: [floats(rng, 64, 64), floats(rng, 64, 64), nans(64, 64), np.int32(64)],
    lambda a: {2: a[0].astype(np.float64) @ a[1]},
    tolerance=1e-4,
)  # fmt: skip

sample(
    "two shared arrays and dynamic memory",
    """extern "C" __global__ void k(const short* x, double* y) {
    __shared__ unsigned char odd[33];
    extern __shared__ double d[];
    int t = threadIdx.x;
    odd[t] = (unsigned char)(x[t] & 255);
    d[32 - t] = x[t] * 0.5;
    __syncthreads();
    y[t] = d[t] + odd[32 - t];
}""",
    (1,), (33,),
    lambda rng: [rng.integers(-999, 999, 33).astype(np.int16), np.full(33, np.nan)],
    lambda a: {1: a[0][::-1] * 0.5 + (a[0][::-1] & 255)},
    shared_bytes=33 * 8,
)  # fmt: skip

sample(
    "barriers that count",
    """extern "C" __global__ void k(const int* x, int* y) {
    int t = threadIdx.x;
    int many = __syncthreads_count(x[t] > 50), all = __syncthreads_and(x[t] > 0), any = __syncthreads_or(x[t] == 77);
    y[t] = many * 4 + (all ? 2 : 0) + (any ? 1 : 0);
}""",
    (1,), (75,),
    lambda rng: [rng.integers(1, 99, 75).astype(np.int32), np.zeros(75, np.int32)],
    lambda a: {1: np.full(75, (a[0] > 50).sum() * 4 + 2 + (a[0] == 77).any(), np.int32)},
)  # fmt: skip

sample(
    "halves of a block at different barriers",
    """extern "C" __global__ void k(int* y) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = t * t;
    if (t < 32) { __syncthreads(); y[t] = s[63 - t]; } else { __syncthreads(); y[t] = -s[63 - t]; }
}""",
    (1,), (64,),
    lambda rng: [np.zeros(64, np.int32)],
    lambda a: {0: np.where(np.arange(64) < 32, 1, -1) * (63 - np.arange(64)) ** 2},
)  # fmt: skip

# ---- warps ---------------------------------------------------------------------------------------------------------

sample(
    "softmax with shuffles",
    """extern "C" __global__ void k(const float* x, float* y, int cols) {
    int lane = threadIdx.x & 31, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    float top = -3.4e38f, sum = 0.0f;
    for (int c = lane; c < cols; c += 32) top = fmaxf(top, x[row * cols + c]);
    for (int d = 16; d; d /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
    for (int c = lane; c < cols; c += 32) sum += expf(x[row * cols + c] - top);
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    sum = __shfl_sync(~0u, sum, 0);
    for (int c = lane; c < cols; c += 32) y[row * cols + c] = expf(x[row * cols + c] - top) / sum;
}""",
    (3,), (64,),
    lambda rng: [floats(rng, 6, 45), nans(6, 45), np.int32(45)],
    lambda a: {1: np.exp(a[0].astype(np.float64)) / np.exp(a[0].astype(np.float64)).sum(axis=1, keepdims=True)},
    tolerance=1e-5,
)  # fmt: skip

sample(
    "segments, votes, matches",
    """extern "C" __global__ void k(const int* x, int* y) {
    int t = threadIdx.x, v = x[t];
    y[t] = __shfl_up_sync(~0u, v, 3, 8) + __shfl_sync(~0u, v, 5, 16) * 3;
    y[64 + t] = __ballot_sync(~0u, v > 4);
    y[128 + t] = __match_any_sync(~0u, v);
    int same; unsigned m = __match_all_sync(~0u, v >> 30, &same);
    y[192 + t] = __any_sync(~0u, v == 7) + 2 * __all_sync(~0u, v < 10) + 4 * same + 8 * (m == ~0u);
    if (v & 1) y[256 + t] = __activemask(); else y[256 + t] = __popc(__activemask());
}""",
    (1,), (64,),
    lambda rng: [rng.integers(0, 10, 64).astype(np.int32), np.zeros(320, np.int32)],
    lambda a: {1: _warp_answers(a[0])},
)  # fmt: skip


def _warp_answers(x: np.ndarray) -> np.ndarray:
    t, out = np.arange(64), np.zeros((5, 64), np.int64)
    up = np.where(t % 8 >= 3, x[np.maximum(t - 3, 0)], x)
    out[0] = up + 3 * x[t // 16 * 16 + 5]
    for warp in (slice(0, 32), slice(32, 64)):
        v, bit = x[warp], 1 << np.arange(32)
        out[1, warp] = bit[v > 4].sum()
        out[2, warp] = [bit[v == own].sum() for own in v]
        out[3, warp] = int((v == 7).any()) + 2 * int((v < 10).all()) + 4 + 8
        odd = v % 2 == 1
        out[4, warp] = np.where(odd, bit[odd].sum(), (~odd).sum())
    return out.reshape(-1).astype(np.uint32).view(np.int32)


sample(
    "warp-wide sums through shared memory",
    """extern "C" __global__ void k(const int* x, int* y) {
    __shared__ int s[64];
    int t = threadIdx.x, lane = t & 31;
    s[t] = x[t];
    __syncwarp();
    for (int step = 16; step; step /= 2) {
        int v = lane < step ? s[t + step] : 0;
        __syncwarp();
        if (lane < step) s[t] += v;
        __syncwarp();
    }
    if (lane == 0) y[t / 32] = s[t];
}""",
    (1,), (64,),
    lambda rng: [rng.integers(0, 99, 64).astype(np.int32), np.zeros(2, np.int32)],
    lambda a: {1: a[0].reshape(2, 32).sum(axis=1)},
)  # fmt: skip

# ---- atomics -------------------------------------------------------------------------------------------------------

sample(
    "histogram",
    """extern "C" __global__ void k(const unsigned char* x, unsigned* bins, int n) {
    __shared__ unsigned s[16];
    if (threadIdx.x < 16) s[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < n; i += gridDim.x * blockDim.x) atomicAdd(&s[x[i] & 15], 1u);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], s[threadIdx.x]);
}""",
    (4,), (48,),
    lambda rng: [rng.integers(0, 256, 777).astype(np.uint8), np.zeros(16, np.uint32), np.int32(777)],
    lambda a: {1: np.bincount(a[0] & 15, minlength=16)},
)  # fmt: skip

sample(
    "every atomic",
    """extern "C" __global__ void k(const int* x, int* y, unsigned* u, double* d, unsigned long long* w) {
    int v = x[blockIdx.x * blockDim.x + threadIdx.x];
    atomicMin(&y[0], v); atomicMax(&y[1], v); atomicAnd(&y[2], v); atomicOr(&y[3], v); atomicXor(&y[4], v);
    atomicSub(&y[5], v);
    atomicInc(&u[0], 9u); atomicDec(&u[1], 6u);
    atomicAdd(d, 0.25 * v); atomicAdd(w, (unsigned long long)v);
    atomicExch(&y[7], 5);
}""",
    (2,), (40,),
    lambda rng: [rng.integers(1, 999, 80).astype(np.int32), np.array([999, 0, -1, 0, 0, 0, 0, 0], np.int32),
                 np.zeros(2, np.uint32), np.zeros(1), np.zeros(1, np.uint64)],
    lambda a: {1: np.array([a[0].min(), a[0].max(), np.bitwise_and.reduce(a[0]), np.bitwise_or.reduce(a[0]),
                            np.bitwise_xor.reduce(a[0]), -a[0].sum(), 0, 5], np.int32),
               2: np.array([0, (0 - 80) % 7], np.uint32), 3: np.array([0.25 * a[0].sum()]),
               4: np.array([a[0].sum()], np.uint64)},
)  # fmt: skip

sample(
    "a loop around atomicCAS",
    """extern "C" __global__ void k(const int* x, float* y) {
    int v = x[blockIdx.x * blockDim.x + threadIdx.x], *bits = (int*)&y[v & 3], seen = *bits, now;
    do { now = seen; seen = atomicCAS(bits, now, __float_as_int(__int_as_float(now) + v)); } while (seen != now);
}""",
    (3,), (40,),
    lambda rng: [rng.integers(1, 999, 120).astype(np.int32), np.zeros(4, np.float32)],
    lambda a: {1: np.bincount(a[0] & 3, weights=a[0], minlength=4)},
    same_counts=False,
)  # fmt: skip

sample(
    "the last block adds up",
    """__device__ unsigned arrived = 0;
extern "C" __global__ void k(const int* x, int* partial, int* total, int n) {
    __shared__ int s[64];
    __shared__ bool last;
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    s[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int step = 32; step; step /= 2) { if (t < step) s[t] += s[t + step]; __syncthreads(); }
    if (t == 0) {
        partial[blockIdx.x] = s[0];
        __threadfence();
        last = atomicAdd(&arrived, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 0) { int sum = 0; for (int b = 0; b < gridDim.x; ++b) sum += partial[b]; *total = sum; }
}""",
    (7,), (64,),
    lambda rng: [rng.integers(0, 99, 430).astype(np.int32), np.zeros(7, np.int32), np.zeros(1, np.int32),
                 np.int32(430)],
    lambda a: {2: np.array([a[0].sum()], np.int32)},
)  # fmt: skip

# ---- local, constant, device memory; functions ---------------------------------------------------------------------

sample(
    "local array, variable index",
    """extern "C" __global__ void k(const int* x, int* y) {
    int t = threadIdx.x, a[12];
    for (int i = 0; i < 12; ++i) a[i] = x[t * 12 + i];
    for (int i = 1; i < 12; ++i)
        for (int j = i; j > 0 && a[j - 1] > a[j]; --j) { int v = a[j]; a[j] = a[j - 1]; a[j - 1] = v; }
    y[t] = a[t % 12] * 1000 + a[6];
}""",
    (1,), (39,),
    lambda rng: [rng.integers(0, 99, (39, 12)).astype(np.int32), np.zeros(39, np.int32)],
    lambda a: {1: np.sort(a[0], axis=1)[np.arange(39), np.arange(39) % 12] * 1000 + np.sort(a[0], axis=1)[:, 6]},
)  # fmt: skip

sample(
    "constant weights and a device table",
    """__constant__ float weights[5] = {0.1f, 0.2f, 0.4f, 0.2f, 0.1f};
__device__ int table[4] = {3, 1, 4, 1};
__device__ const int* pointer = table + 1;
extern "C" __global__ void k(const float* x, float* y, int* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (int j = -2; j <= 2; ++j) if (i + j >= 0 && i + j < n) sum += weights[j + 2] * x[i + j];
    y[i] = sum; z[i] = table[i % 4] * 10 + pointer[i % 3];
}""",
    (3,), (40,),
    lambda rng: [floats(rng, 101), nans(101), np.zeros(101, np.int32), np.int32(101)],
    lambda a: {1: np.convolve(a[0].astype(np.float64), [0.1, 0.2, 0.4, 0.2, 0.1], "same"),
               2: np.array([3, 1, 4, 1])[np.arange(101) % 4] * 10 + np.array([1, 4, 1])[np.arange(101) % 3]},
    tolerance=1e-5,
)  # fmt: skip

sample(
    "functions, templates, structs",
    """struct Scale { float factor; int shift; double bias; };
__device__ __noinline__ float poly(float x, int degree) {
    float r = 1.0f;
    for (int i = 0; i < degree; ++i) { if (r > 50.0f) return r; r = r * x + 1.0f; }
    return r;
}
__device__ __noinline__ void both(float x, float* lo, float* hi) { *lo = poly(x, 3); *hi = poly(x, 9); }
template <int N> __device__ float repeat(float x) { for (int i = 0; i < N; ++i) x = x * 0.5f + 1.0f; return x; }
extern "C" __global__ void k(const float* x, float* y, Scale s) {
    int t = threadIdx.x; float lo, hi;
    both(x[t], &lo, &hi);
    y[t] = repeat<3>(lo) * s.factor + hi + s.shift + (float)s.bias;
}""",
    (1,), (43,),
    lambda rng: [floats(rng, 43), nans(43), np.array([(2.0, 3, 0.25)], [("f", "f4"), ("s", "i4"), ("b", "f8")])[0]],
    lambda a: {1: _polynomials(a[0])},
    tolerance=1e-5,
)  # fmt: skip


def _polynomials(x: np.ndarray) -> np.ndarray:
    def poly(v, degree):
        r = 1.0
        for _ in range(degree):
            if r > 50:
                return r
            r = r * v + 1
        return r

    def repeat(v):
        for _ in range(3):
            v = v * 0.5 + 1
        return v

    return np.array([repeat(poly(v, 3)) * 2 + poly(v, 9) + 3.25 for v in x.astype(np.float64)])


sample(
    "inline PTX",
    """extern "C" __global__ void k(const unsigned* x, unsigned* y) {
    unsigned t = threadIdx.x, v = x[t], a, b, lane;
    asm("{ .reg .pred p; .reg .b32 h; setp.gt.u32 p, %1, 500; mov.b32 h, 5; @p mov.b32 h, 6; add.u32 %0, h, %1; }"
        : "=r"(a) : "r"(v));
    asm volatile("lop3.b32 %0, %1, %2, 0xff, 0x96;" : "=r"(b) : "r"(v), "r"(a));
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    y[t] = a * 1000 + (b & 255) + lane * 7;
}""",
    (1,), (50,),
    lambda rng: [rng.integers(0, 1000, 50).astype(np.uint32), np.zeros(50, np.uint32)],
    lambda a: {1: _inline(a[0])},
)  # fmt: skip


def _inline(v: np.ndarray) -> np.ndarray:
    first = v + np.where(v > 500, 6, 5)
    return first * 1000 + ((v ^ first ^ 255) & 255) + np.arange(50) % 32 * 7


sample(
    "asynchronous copies",
    """extern "C" __global__ void k(const float* x, float* y, int tiles) {
    __shared__ float s[2][64];
    int t = threadIdx.x; float sum = 0.0f;
    unsigned at0 = (unsigned)__cvta_generic_to_shared(&s[0][t]), at1 = (unsigned)__cvta_generic_to_shared(&s[1][t]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(at0), "l"(x + t) : "memory");
    asm volatile("cp.async.commit_group;");
    for (int i = 0; i < tiles; ++i) {
        if (i + 1 < tiles)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                         :: "r"(i & 1 ? at0 : at1), "l"(x + (i + 1) * 64 + t) : "memory");
        asm volatile("cp.async.commit_group;");
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        sum += s[i & 1][63 - t];
        __syncthreads();
    }
    y[t] = sum;
}""",
    (1,), (64,),
    lambda rng: [floats(rng, 5, 64), nans(64), np.int32(5)],
    lambda a: {1: a[0].astype(np.float64).sum(axis=0)[::-1]},
    arch="sm_80", tolerance=1e-5,
)  # fmt: skip


# ---- one instruction, several buffers ------------------------------------------------------------------------------

sample(
    "lanes that read and write different buffers",
    """extern "C" __global__ void k(const float* x, const float* y, float* even, float* odd, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float* from = i % 3 ? x : y;
    float* to = i & 1 ? odd : even;
    float sum = 0.0f;
    for (int j = 0; j < 9; ++j) sum += from[(i + 37 * j) % n];
    to[i] = sum;
}""",
    (6,), (64,),
    lambda rng: [floats(rng, 333), floats(rng, 333), *np.zeros((2, 333), np.float32), np.int32(333)],
    lambda a: {2: _chosen(a, 0), 3: _chosen(a, 1)},
    tolerance=1e-5,
)  # fmt: skip


def _chosen(a: list, parity: int) -> np.ndarray:
    i = np.arange(333)
    places = (i[:, None] + 37 * np.arange(9)) % 333
    sums = np.where(i % 3 > 0, a[0][places].sum(axis=1), a[1][places].sum(axis=1))
    return np.where(i % 2 == parity, sums, 0)


sample(
    "float4 or a zero that has an address",
    """__device__ float4 zero = {0.0f, 0.0f, 0.0f, 0.0f};
extern "C" __global__ void k(const float4* x, float4* y, int rows, int wide) {
    int t = threadIdx.x;
    for (int row = 0; row < rows; ++row) {
        const float4* from = t < wide ? x + row * wide + t : &zero;
        y[row * blockDim.x + t] = *from;
    }
}""",
    (1,), (48,),
    lambda rng: [floats(rng, 7, 21, 4), nans(7, 48, 4), np.int32(7), np.int32(21)],
    lambda a: {1: np.concatenate([a[0], np.zeros((7, 27, 4), np.float32)], axis=1)},
)  # fmt: skip
