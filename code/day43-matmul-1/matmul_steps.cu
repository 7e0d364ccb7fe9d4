// Day 43: three kernels for C = A·B (square, row-major, float), each one change away from the last.
//
//     nvcc -std=c++17 -O3 -arch=sm_75 -lineinfo -o matmul_steps matmul_steps.cu
//     ./matmul_steps
//
// step 1  matmulStridedRows     x picks the row, y the column: neighbouring threads read A a whole row apart
// step 2  matmulCoalescedCols   the two index lines swapped: neighbouring threads read neighbouring floats of B
// step 3  matmulTiled           a block stages 16 × 16 tiles of A and B in shared memory and reads each float of them 16 times

#include <cstdio>

// page: begin kernels
constexpr int TILE = 16;  // blocks are TILE × TILE threads

// Step 1: x picks the row, y the column.
extern "C" __global__ void matmulStridedRows(const float* __restrict__ a, const float* __restrict__ b,
                                             float* __restrict__ c, size_t n) {
    const size_t row = blockIdx.x * blockDim.x + threadIdx.x;
    const size_t col = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= n || col >= n) return;

    float sum = 0.0f;
    for (size_t k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + col];
    c[row * n + col] = sum;
}

// Step 2: y picks the row, x the column.
extern "C" __global__ void matmulCoalescedCols(const float* __restrict__ a, const float* __restrict__ b,
                                               float* __restrict__ c, size_t n) {
    const size_t row = blockIdx.y * blockDim.y + threadIdx.y;
    const size_t col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= n || col >= n) return;

    float sum = 0.0f;
    for (size_t k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + col];
    c[row * n + col] = sum;
}

// Step 3: step 2, with A and B staged tile by tile in shared memory.
extern "C" __global__ void matmulTiled(const float* __restrict__ a, const float* __restrict__ b,
                                       float* __restrict__ c, size_t n) {
    __shared__ float tileA[TILE][TILE];
    __shared__ float tileB[TILE][TILE];
    const size_t row = blockIdx.y * blockDim.y + threadIdx.y;
    const size_t col = blockIdx.x * blockDim.x + threadIdx.x;

    float sum = 0.0f;
    for (size_t start = 0; start < n; start += TILE) {
        const size_t aCol = start + threadIdx.x;
        const size_t bRow = start + threadIdx.y;
        tileA[threadIdx.y][threadIdx.x] = row < n && aCol < n ? a[row * n + aCol] : 0.0f;
        tileB[threadIdx.y][threadIdx.x] = bRow < n && col < n ? b[bRow * n + col] : 0.0f;
        __syncthreads();  // both tiles are whole before anyone reads them

        for (int k = 0; k < TILE; ++k) sum += tileA[threadIdx.y][k] * tileB[k][threadIdx.x];
        __syncthreads();  // everyone has read them before anyone overwrites them
    }
    if (row < n && col < n) c[row * n + col] = sum;
}
// page: end kernels

int main() {
    std::fprintf(stderr, "matmul_steps: the checks and the timing are not written yet\n");
    return 1;
}
