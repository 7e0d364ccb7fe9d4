// Day 16: C = A·B with and without tiles, for any sizes: A is M × K, B is K × N, C is M × N, all row-major floats.
//
//     nvcc -std=c++17 -O3 -arch=sm_75 -lineinfo -o matmul_tiled matmul_tiled.cu
//     ./matmul_tiled [M N K]
//
// matmulNaive   one thread per output, every operand from global memory: 2K floats read per thread
// matmulTiled   a block stages tiles of A and B in shared memory: 2·ceil(K/16) floats read per thread
// matmulTiled8, matmulTiled32   the same with a smaller and a larger tile, for the sweep

#include <cstdio>

// page: begin kernels
// One thread per output; row comes from y and col from x, so a warp reads neighbouring floats of B.
extern "C" __global__ void matmulNaive(const float* __restrict__ a, const float* __restrict__ b,
                                       float* __restrict__ c, int m, int n, int k) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || col >= n) return;

    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
    c[row * n + col] = sum;
}

// A block of TILE × TILE threads walks along K, one tile of A and one of B at a time.
template <int TILE>
__device__ void multiplyTiles(const float* __restrict__ a, const float* __restrict__ b,
                              float* __restrict__ c, int m, int n, int k) {
    __shared__ float tileA[TILE][TILE];
    __shared__ float tileB[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y;
    const int col = blockIdx.x * TILE + threadIdx.x;

    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        const int aCol = start + threadIdx.x;
        const int bRow = start + threadIdx.y;
        tileA[threadIdx.y][threadIdx.x] = row < m && aCol < k ? a[row * k + aCol] : 0.0f;
        tileB[threadIdx.y][threadIdx.x] = bRow < k && col < n ? b[bRow * n + col] : 0.0f;
        __syncthreads();  // both tiles are whole before anyone reads them

        for (int i = 0; i < TILE; ++i) sum += tileA[threadIdx.y][i] * tileB[i][threadIdx.x];
        __syncthreads();  // everyone has read them before anyone overwrites them
    }
    if (row < m && col < n) c[row * n + col] = sum;
}

extern "C" __global__ void matmulTiled(const float* __restrict__ a, const float* __restrict__ b,
                                       float* __restrict__ c, int m, int n, int k) {
    multiplyTiles<16>(a, b, c, m, n, k);
}

extern "C" __global__ void matmulTiled8(const float* __restrict__ a, const float* __restrict__ b,
                                        float* __restrict__ c, int m, int n, int k) {
    multiplyTiles<8>(a, b, c, m, n, k);
}

extern "C" __global__ void matmulTiled32(const float* __restrict__ a, const float* __restrict__ b,
                                         float* __restrict__ c, int m, int n, int k) {
    multiplyTiles<32>(a, b, c, m, n, k);
}
// page: end kernels

int main() {
    std::fprintf(stderr, "matmul_tiled: the checks and the timing are not written yet\n");
    return 1;
}
