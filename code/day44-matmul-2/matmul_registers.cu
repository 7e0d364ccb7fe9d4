// Day 44: C = A·B (square, row-major, float) from one output per thread to a kernel beside cuBLAS, one idea per step.
//
//     nvcc -std=c++17 -O3 -arch=sm_75 -lineinfo -o matmul_registers matmul_registers.cu -lcublas
//     ./matmul_registers
//
// step 4  matmulRegisterTile   each thread computes a patch of outputs in registers, from larger shared tiles
// step 5  matmulVectorLoads    step 4 moving 128 bits at a time: global loads, shared reads, stores
// step 6  matmulWarpTiled      step 5 with warp tiles, and the next shared tiles on their way while this one is used
//
// Blocks are one-dimensional, (bm / tm) · (bn / tn) threads; the grid has one block per tile: x over columns, y over rows.

#include <cstdio>

// page: begin kernels
// ---- Step 4: a patch of outputs per thread -------------------------------------------------------------------------
// A block computes BM × BN outputs from tiles of BM × BK and BK × BN floats; a thread computes a TM × TN patch of them.
// Each float that a thread reads from shared memory is used TN (or TM) times, not once.
#ifndef REGISTER_TILES
#define REGISTER_TILES 128, 128, 8, 8, 8  // BM, BN, BK, TM, TN
#endif

template <int BM, int BN, int BK, int TM, int TN>
constexpr int patchThreads = (BM / TM) * (BN / TN);

template <int BM, int BN, int BK, int TM, int TN>
__device__ void registerTile(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, size_t n) {
    constexpr int THREADS = patchThreads<BM, BN, BK, TM, TN>, ROWS = BM / TM, COLS = BN / TN;
    __shared__ float tileA[BM][BK];
    __shared__ float tileB[BK][BN];
    const size_t blockRow = size_t(blockIdx.y) * BM, blockCol = size_t(blockIdx.x) * BN;
    // Patch row i is tile row y + i · ROWS, not y · TM + i: then neighbouring threads read neighbouring words.
    const int x = threadIdx.x % COLS, y = threadIdx.x / COLS;

    float sum[TM][TN] = {};
    for (size_t start = 0; start < n; start += BK) {
        for (int i = threadIdx.x; i < BM * BK; i += THREADS) {
            const size_t row = blockRow + i / BK, k = start + i % BK;
            tileA[i / BK][i % BK] = row < n && k < n ? a[row * n + k] : 0.0f;
        }
        for (int i = threadIdx.x; i < BK * BN; i += THREADS) {
            const size_t k = start + i / BN, col = blockCol + i % BN;
            tileB[i / BN][i % BN] = k < n && col < n ? b[k * n + col] : 0.0f;
        }
        __syncthreads();

        for (int k = 0; k < BK; ++k) {
            float fromA[TM], fromB[TN];
            for (int i = 0; i < TM; ++i) fromA[i] = tileA[y + i * ROWS][k];
            for (int j = 0; j < TN; ++j) fromB[j] = tileB[k][x + j * COLS];
            for (int i = 0; i < TM; ++i)
                for (int j = 0; j < TN; ++j) sum[i][j] += fromA[i] * fromB[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; ++j) {
            const size_t row = blockRow + y + i * ROWS, col = blockCol + x + j * COLS;
            if (row < n && col < n) c[row * n + col] = sum[i][j];
        }
}

extern "C" __global__ void __launch_bounds__(patchThreads<REGISTER_TILES>)
matmulRegisterTile(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, size_t n) {
    registerTile<REGISTER_TILES>(a, b, c, n);
}

// ---- Step 5: 128 bits at a time ------------------------------------------------------------------------------------
#ifndef VECTOR_TILES
#define VECTOR_TILES 128, 128, 8, 8, 8  // BM, BN, BK, TM, TN
#endif

// Four neighbouring floats of a row, zero outside the matrix. Only when n is a multiple of 4 does every row start on a
// 16-byte boundary, as a 128-bit access must; otherwise the four are loaded one by one.
__device__ float4 loadFour(const float* __restrict__ matrix, size_t row, size_t col, size_t n) {
    float4 four = {0.0f, 0.0f, 0.0f, 0.0f};
    if (row >= n) return four;
    const float* from = matrix + row * n + col;
    if (n % 4 == 0) {
        if (col < n) four = *reinterpret_cast<const float4*>(from);
    } else {
        if (col + 0 < n) four.x = from[0];
        if (col + 1 < n) four.y = from[1];
        if (col + 2 < n) four.z = from[2];
        if (col + 3 < n) four.w = from[3];
    }
    return four;
}

__device__ void storeFour(float* __restrict__ matrix, size_t row, size_t col, size_t n, const float* four) {
    if (row >= n) return;
    float* to = matrix + row * n + col;
    if (n % 4 == 0) {
        if (col < n) *reinterpret_cast<float4*>(to) = {four[0], four[1], four[2], four[3]};
    } else {
        for (int j = 0; j < 4; ++j)
            if (col + j < n) to[j] = four[j];
    }
}

// One 128-bit read of shared memory.
__device__ void readFour(float* four, const float* shared) {
    const float4 read = *reinterpret_cast<const float4*>(shared);
    four[0] = read.x, four[1] = read.y, four[2] = read.z, four[3] = read.w;
}

template <int BM, int BN, int BK, int TM, int TN>
__device__ void vectorLoads(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, size_t n) {
    constexpr int THREADS = patchThreads<BM, BN, BK, TM, TN>, ROWS = BM / TM, COLS = BN / TN;
    // A's tile is stored transposed: four rows of one k are then neighbours, and a thread reads them in one go.
    // The padding moves the next k four banks on, so that the threads that store a column do not meet in one bank.
    __shared__ __align__(16) float tileA[BK][BM + 4];
    __shared__ __align__(16) float tileB[BK][BN];
    const size_t blockRow = size_t(blockIdx.y) * BM, blockCol = size_t(blockIdx.x) * BN;
    const int x = threadIdx.x % COLS, y = threadIdx.x / COLS;

    float sum[TM][TN] = {};
    for (size_t start = 0; start < n; start += BK) {
        for (int i = threadIdx.x; i < BM * BK / 4; i += THREADS) {
            const int row = i / (BK / 4), k = i % (BK / 4) * 4;
            const float4 four = loadFour(a, blockRow + row, start + k, n);
            tileA[k + 0][row] = four.x;
            tileA[k + 1][row] = four.y;
            tileA[k + 2][row] = four.z;
            tileA[k + 3][row] = four.w;
        }
        for (int i = threadIdx.x; i < BK * BN / 4; i += THREADS) {
            const int k = i / (BN / 4), col = i % (BN / 4) * 4;
            *reinterpret_cast<float4*>(&tileB[k][col]) = loadFour(b, start + k, blockCol + col, n);
        }
        __syncthreads();

        for (int k = 0; k < BK; ++k) {
            float fromA[TM], fromB[TN];
            // The patch is now made of 4 × 4 squares: each row or column group of four is one 128-bit read.
            for (int i = 0; i < TM; i += 4) readFour(&fromA[i], &tileA[k][y * 4 + i * ROWS]);
            for (int j = 0; j < TN; j += 4) readFour(&fromB[j], &tileB[k][x * 4 + j * COLS]);
            for (int i = 0; i < TM; ++i)
                for (int j = 0; j < TN; ++j) sum[i][j] += fromA[i] * fromB[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; j += 4)
            storeFour(c, blockRow + y * 4 + i / 4 * 4 * ROWS + i % 4, blockCol + x * 4 + j * COLS, n, &sum[i][j]);
}

extern "C" __global__ void __launch_bounds__(patchThreads<VECTOR_TILES>)
matmulVectorLoads(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, size_t n) {
    vectorLoads<VECTOR_TILES>(a, b, c, n);
}
// page: end kernels

int main() {
    std::fprintf(stderr, "matmul_registers: the checks and the timing are not written yet\n");
    return 1;
}
