// Day 44: C = A·B (square, row-major, float) from one output per thread to a kernel beside cuBLAS, one idea per step.
//
//     nvcc -std=c++17 -O3 -arch=sm_75 -lineinfo -DWITH_CUBLAS -o matmul_registers matmul_registers.cu -lcublas
//     ./matmul_registers [N ...] [--csv FILE]
//
// Name your card's own architecture (-arch=sm_90 for an H200): step 6 takes its tiles, and from sm_80 on its copies, from
// the architecture that it was compiled for. Without cuBLAS leave out -DWITH_CUBLAS and -lcublas.
//
// steps 1 to 3                 Day 43's kernels
// step 4  matmulRegisterTile   each thread computes a patch of outputs in registers, from larger shared tiles
// step 5  matmulVectorLoads    step 4 moving 128 bits at a time: global loads, shared reads, stores
// step 6  matmulWarpTiled      step 5 with warp tiles, and the next shared tiles on their way while these are used
//         matmulWarpTiledSmall the same with smaller tiles, for matrices that would leave multiprocessors idle
//
// Blocks of steps 4 to 6 are one-dimensional, (bm / tm) · (bn / tn) threads; the grid has one block per tile of C: x over
// the columns, y over the rows.

#include <cstdio>
#include <string>
#include <vector>

#define main day43Main  // its kernels and its TILE, not its program
#include "../day43-matmul-1/matmul_steps.cu"
#undef main

#ifdef WITH_CUBLAS
#include "../common/cublas.cuh"
#endif

// page: begin kernels
// ---- Step 4: a patch of outputs per thread -------------------------------------------------------------------------
// A block computes BM × BN outputs from tiles of BM × BK and BK × BN floats; a thread computes a TM × TN patch of them.
// Each float that a thread reads from shared memory is used TN (or TM) times, not once.
#ifndef REGISTER_TILES
#define REGISTER_TILES 128, 128, 16, 8, 8  // BM, BN, BK, TM, TN
#endif

template <int BM, int BN, int BK, int TM, int TN>
constexpr int patchThreads = (BM / TM) * (BN / TN);

template <int BM, int BN, int BK, int TM, int TN>
__device__ void registerTile(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                             size_t n) {
    constexpr int THREADS = patchThreads<BM, BN, BK, TM, TN>, ROWS = BM / TM, COLS = BN / TN;
    static_assert(BM * BK % THREADS == 0 && BK * BN % THREADS == 0, "every thread loads equally many floats");
    __shared__ float tileA[BM][BK];
    __shared__ float tileB[BK][BN];
    const int size = int(n), blockRow = blockIdx.y * BM, blockCol = blockIdx.x * BN;
    const int rows = size - blockRow, cols = size - blockCol;  // how much of the matrix is left from this tile on
    // Patch row i is tile row y + i · ROWS, not y · TM + i: then neighbouring threads read neighbouring words.
    const int x = threadIdx.x % COLS, y = threadIdx.x / COLS;

    float sum[TM][TN] = {};
    a += blockRow * n;
    b += blockCol;
    for (int depth = size; depth > 0; depth -= BK) {  // a and b point to the tiles, depth steps of k are left
        for (int first = 0; first < BM * BK; first += THREADS) {
            const int row = (first + threadIdx.x) / BK, k = (first + threadIdx.x) % BK;
            tileA[row][k] = row < rows && k < depth ? a[row * size + k] : 0.0f;
        }
        for (int first = 0; first < BK * BN; first += THREADS) {
            const int k = (first + threadIdx.x) / BN, col = (first + threadIdx.x) % BN;
            tileB[k][col] = k < depth && col < cols ? b[k * size + col] : 0.0f;
        }
        a += BK;
        b += BK * n;
        __syncthreads();

#pragma unroll
        for (int k = 0; k < BK; ++k) {
            // Registers have no addresses: loops over the patch must be unrolled, or it moves to local memory.
            float fromA[TM], fromB[TN];
#pragma unroll
            for (int i = 0; i < TM; ++i) fromA[i] = tileA[y + i * ROWS][k];
#pragma unroll
            for (int j = 0; j < TN; ++j) fromB[j] = tileB[k][x + j * COLS];
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] += fromA[i] * fromB[j];
        }
        __syncthreads();
    }
    c += blockRow * n + blockCol;
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) {
            const int row = y + i * ROWS, col = x + j * COLS;
            if (row < rows && col < cols) c[row * n + col] = sum[i][j];
        }
}

extern "C" __global__ void __launch_bounds__(patchThreads<REGISTER_TILES>)
matmulRegisterTile(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, size_t n) {
    registerTile<REGISTER_TILES>(a, b, c, n);
}

// ---- Step 5: 128 bits at a time ------------------------------------------------------------------------------------
#ifndef VECTOR_TILES
#define VECTOR_TILES 128, 64, 16, 8, 8  // BM, BN, BK, TM, TN
#endif

// Four neighbouring floats of a row, of which `inside` lie inside the matrix; the others read as zero. Only when n is a
// multiple of 4 does every row start on a 16-byte boundary, as a 128-bit access must; else the four move one by one.
template <bool ALIGNED>
__device__ float4 loadFour(const float* from, int inside) {
    float4 four = {0.0f, 0.0f, 0.0f, 0.0f};
    if (ALIGNED) {
        if (inside > 0) four = *reinterpret_cast<const float4*>(from);
    } else {
        if (inside > 0) four.x = from[0];
        if (inside > 1) four.y = from[1];
        if (inside > 2) four.z = from[2];
        if (inside > 3) four.w = from[3];
    }
    return four;
}

template <bool ALIGNED>
__device__ void storeFour(float* to, const float* four, int inside) {
    if (ALIGNED) {
        if (inside > 0) *reinterpret_cast<float4*>(to) = {four[0], four[1], four[2], four[3]};
    } else {
        for (int j = 0; j < 4; ++j)
            if (j < inside) to[j] = four[j];
    }
}

// One 128-bit read of shared memory.
__device__ void readFour(float* four, const float* shared) {
    const float4 read = *reinterpret_cast<const float4*>(shared);
    four[0] = read.x, four[1] = read.y, four[2] = read.z, four[3] = read.w;
}

template <bool ALIGNED, int BM, int BN, int BK, int TM, int TN>
__device__ void vectorLoads(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, size_t n,
                            float (&tileA)[BK][BM + 4], float (&tileB)[BK][BN]) {
    constexpr int THREADS = patchThreads<BM, BN, BK, TM, TN>, ROWS = BM / TM, COLS = BN / TN;
    static_assert(BM * BK / 4 % THREADS == 0 && BK * BN / 4 % THREADS == 0, "every thread loads equally many float4");
    const int size = int(n), blockRow = blockIdx.y * BM, blockCol = blockIdx.x * BN;
    const int rows = size - blockRow, cols = size - blockCol;
    const int x = threadIdx.x % COLS, y = threadIdx.x / COLS;

    float sum[TM][TN] = {};
    a += blockRow * n;
    b += blockCol;
    for (int depth = size; depth > 0; depth -= BK) {
        for (int first = 0; first < BM * BK / 4; first += THREADS) {
            const int row = (first + threadIdx.x) / (BK / 4), k = (first + threadIdx.x) % (BK / 4) * 4;
            const float4 four = loadFour<ALIGNED>(a + row * size + k, row < rows ? depth - k : 0);
            tileA[k + 0][row] = four.x;
            tileA[k + 1][row] = four.y;
            tileA[k + 2][row] = four.z;
            tileA[k + 3][row] = four.w;
        }
        for (int first = 0; first < BK * BN / 4; first += THREADS) {
            const int k = (first + threadIdx.x) / (BN / 4), col = (first + threadIdx.x) % (BN / 4) * 4;
            const float4 four = loadFour<ALIGNED>(b + k * size + col, k < depth ? cols - col : 0);
            *reinterpret_cast<float4*>(&tileB[k][col]) = four;
        }
        a += BK;
        b += BK * n;
        __syncthreads();

#pragma unroll
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
    c += blockRow * n + blockCol;
    for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; j += 4) {
            const int row = i / 4 * 4 * ROWS + y * 4 + i % 4, col = j * COLS + x * 4;
            storeFour<ALIGNED>(c + row * n + col, &sum[i][j], row < rows ? cols - col : 0);
        }
}

template <int BM, int BN, int BK, int TM, int TN>
__device__ void vectorLoads(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, size_t n) {
    // A's tile is stored transposed: four rows of one k are then neighbours, and a thread reads them in one go.
    // The padding moves the next k four banks on, so that the threads that store a column do not meet in one bank.
    __shared__ __align__(16) float tileA[BK][BM + 4];
    __shared__ __align__(16) float tileB[BK][BN];
    if (n % 4 == 0)
        vectorLoads<true, BM, BN, BK, TM, TN>(a, b, c, n, tileA, tileB);
    else
        vectorLoads<false, BM, BN, BK, TM, TN>(a, b, c, n, tileA, tileB);
}

extern "C" __global__ void __launch_bounds__(patchThreads<VECTOR_TILES>)
matmulVectorLoads(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, size_t n) {
    vectorLoads<VECTOR_TILES>(a, b, c, n);
}

// ---- Step 6: warp tiles, and the next tiles on their way while these are used --------------------------------------
// Tile of a block, of a warp, of a thread; shared tiles in flight; blocks that shall fit on one multiprocessor.
struct WarpTiles {
    int bm, bn, bk, wm, wn, tm, tn, stages, blocks;
    constexpr __host__ __device__ int threads() const { return (bm / tm) * (bn / tn); }
};

// Launch table: the row of the newest architecture that is not newer than the card's.
constexpr __host__ __device__ WarpTiles warpTiles(int arch) {
#ifdef WARP_TILES
    return {WARP_TILES};
#endif
    if (arch >= 90) return {128, 256, 8, 32, 128, 16, 8, 3, 1};  // tuned on an H200
    if (arch >= 80) return {128, 256, 8, 32, 128, 16, 8, 3, 1};  // by the resource report: no spill
    return {128, 128, 8, 32, 64, 8, 8, 2, 2};                    // by the resource report: no spill, 2 blocks fit
}

// And for matrices so small that blocks with the large tiles would not occupy three quarters of the multiprocessors.
constexpr __host__ __device__ WarpTiles smallWarpTiles(int arch) {
#ifdef SMALL_WARP_TILES
    return {SMALL_WARP_TILES};
#endif
    if (arch >= 80) return {64, 64, 8, 32, 32, 8, 4, 4, 4};
    return {64, 64, 8, 32, 32, 8, 4, 2, 4};
}

#ifdef __CUDA_ARCH__
constexpr int ARCH = __CUDA_ARCH__ / 10;
#else
constexpr int ARCH = 75;  // the host compiler only needs something to parse
#endif

#if __CUDA_ARCH__ >= 800
// Copies from global to shared memory that pass no register and that nobody waits for yet; outside the matrix, zeros.
__device__ void copyOne(float* shared, const float* global, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"((unsigned)__cvta_generic_to_shared(shared)),
                 "l"(global), "r"(inside ? 4 : 0));
}

__device__ void copyFour(float* shared, const float* global, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(shared)),
                 "l"(global), "r"(inside ? 16 : 0));
}
#endif

// One block's way through A and B: start() sets the copy of the next tiles going, finish() completes it, wait<LATER>()
// waits for all copies but the LATER last ones.
template <bool ALIGNED, int BM, int BN, int BK, int THREADS>
struct TileCopy {
    using TileA = float[BK][BM + 4];  // transposed and padded as in step 5
    using TileB = float[BK][BN];
    const float *a, *b;  // first element of the next tiles
    int n, rows, cols, depth;  // how many rows of A, columns of B and steps of k are left from there

    __device__ TileCopy(const float* a, const float* b, int n, int row, int col)
        : a(a + size_t(row) * n), b(b + col), n(n), rows(n - row), cols(n - col), depth(n) {}

    __device__ void advance() {
        a += BK;
        b += size_t(BK) * n;
        depth -= BK;
    }

#if __CUDA_ARCH__ >= 800
    __device__ void start(TileA& tileA, TileB& tileB) {
#pragma unroll
        for (int first = 0; first < BM * BK; first += THREADS) {
            const int row = (first + threadIdx.x) / BK, k = (first + threadIdx.x) % BK;
            copyOne(&tileA[k][row], a + row * n + k, row < rows && k < depth);
        }
        if (ALIGNED) {
#pragma unroll
            for (int first = 0; first < BK * BN / 4; first += THREADS) {
                const int k = (first + threadIdx.x) / (BN / 4), col = (first + threadIdx.x) % (BN / 4) * 4;
                copyFour(&tileB[k][col], b + k * n + col, k < depth && col < cols);
            }
        } else {
#pragma unroll
            for (int first = 0; first < BK * BN; first += THREADS) {
                const int k = (first + threadIdx.x) / BN, col = (first + threadIdx.x) % BN;
                copyOne(&tileB[k][col], b + k * n + col, k < depth && col < cols);
            }
        }
        asm volatile("cp.async.commit_group;");
        advance();
    }
    __device__ void finish(TileA&, TileB&) {}
    template <int LATER>
    __device__ void wait() {
        asm volatile("cp.async.wait_group %0;" ::"n"(LATER));
    }
#else
    float4 fromA[BM * BK / 4 / THREADS], fromB[BK * BN / 4 / THREADS];  // on their way through registers

    __device__ void start(TileA&, TileB&) {
#pragma unroll
        for (int i = 0; i < BM * BK / 4 / THREADS; ++i) {
            const int at = threadIdx.x + i * THREADS, row = at / (BK / 4), k = at % (BK / 4) * 4;
            fromA[i] = loadFour<ALIGNED>(a + row * n + k, row < rows ? depth - k : 0);
        }
#pragma unroll
        for (int i = 0; i < BK * BN / 4 / THREADS; ++i) {
            const int at = threadIdx.x + i * THREADS, k = at / (BN / 4), col = at % (BN / 4) * 4;
            fromB[i] = loadFour<ALIGNED>(b + k * n + col, k < depth ? cols - col : 0);
        }
        advance();
    }
    __device__ void finish(TileA& tileA, TileB& tileB) {
#pragma unroll
        for (int i = 0; i < BM * BK / 4 / THREADS; ++i) {
            const int at = threadIdx.x + i * THREADS, row = at / (BK / 4), k = at % (BK / 4) * 4;
            tileA[k + 0][row] = fromA[i].x;
            tileA[k + 1][row] = fromA[i].y;
            tileA[k + 2][row] = fromA[i].z;
            tileA[k + 3][row] = fromA[i].w;
        }
#pragma unroll
        for (int i = 0; i < BK * BN / 4 / THREADS; ++i) {
            const int at = threadIdx.x + i * THREADS, k = at / (BN / 4), col = at % (BN / 4) * 4;
            *reinterpret_cast<float4*>(&tileB[k][col]) = fromB[i];
        }
    }
    template <int LATER>
    __device__ void wait() {}
#endif
};

template <bool ALIGNED, int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES>
__device__ void warpTiled(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n,
                          float (*tileA)[BK][BM + 4], float (*tileB)[BK][BN]) {
    constexpr int LANE_ROWS = WM / TM, LANE_COLS = WN / TN, WARP_COLS = BN / WN;
    static_assert(LANE_ROWS * LANE_COLS == 32, "a warp tile is 32 patches");
    const int blockRow = blockIdx.y * BM, blockCol = blockIdx.x * BN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / WARP_COLS * WM + lane / LANE_COLS * 4;  // the patch's first row and column in the tile
    const int col = warp % WARP_COLS * WN + lane % LANE_COLS * 4;

    TileCopy<ALIGNED, BM, BN, BK, (BM / TM) * (BN / TN)> copy(a, b, n, blockRow, blockCol);
#pragma unroll
    for (int slot = 0; slot < STAGES - 1; ++slot) {
        copy.start(tileA[slot], tileB[slot]);
        copy.finish(tileA[slot], tileB[slot]);
    }
    copy.template wait<STAGES - 2>();
    __syncthreads();

    float sum[TM][TN] = {}, fromA[2][TM], fromB[2][TN];  // one k is multiplied while the next is read
    auto read = [&](int to, int slot, int k) {
#pragma unroll
        for (int i = 0; i < TM; i += 4) readFour(&fromA[to][i], &tileA[slot][k][row + i * LANE_ROWS]);
#pragma unroll
        for (int j = 0; j < TN; j += 4) readFour(&fromB[to][j], &tileB[slot][k][col + j * LANE_COLS]);
    };
    read(0, 0, 0);

    int slot = 0;
    for (int start = 0; start < n; start += BK) {
        const int next = slot == STAGES - 1 ? 0 : slot + 1;
        const int fill = slot == 0 ? STAGES - 1 : slot - 1;  // the slot read last time: free since the last barrier
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            // Not at once: right behind the barrier the multiply-adds come first.
            if (k == 1) copy.start(tileA[fill], tileB[fill]);
            if (k == BK - 1) {
                copy.finish(tileA[fill], tileB[fill]);
                copy.template wait<STAGES - 2>();
                __syncthreads();  // the next tiles are whole, and everyone has read these
            }
            read((k + 1) % 2, k == BK - 1 ? next : slot, (k + 1) % BK);
            // Back and forth along the patch's rows: each multiply-add shares an operand with the one before it, and so
            // reads two registers, not three, which is what the register file delivers in a cycle.
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int step = 0; step < TN; ++step) {
                    const int j = i % 2 == 0 ? step : TN - 1 - step;
                    sum[i][j] += fromA[k % 2][i] * fromB[k % 2][j];
                }
        }
        slot = next;
    }
    // Scalar stores, on purpose: a 128-bit store wants its four sums in neighbouring registers, lined up like the four
    // operands from B. Sum and operand would share a bank of the register file in every multiply-add of the loop above.
    const int rows = n - blockRow - row, cols = n - blockCol - col;
    c += size_t(blockRow + row) * n + blockCol + col;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        if (i / 4 * 4 * LANE_ROWS + i % 4 < rows) {
#pragma unroll
            for (int j = 0; j < TN; ++j) {
                const int toCol = j / 4 * 4 * LANE_COLS + j % 4;
                if (toCol < cols) c[toCol] = sum[i][j];
            }
        }
        c += size_t(i % 4 == 3 ? 4 * LANE_ROWS - 3 : 1) * n;  // on to the patch's next row
    }
}

template <int BM, int BN, int BK, int WM, int WN, int TM, int TN, int STAGES>
__device__ void warpTiled(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, size_t n) {
    __shared__ __align__(16) float tileA[STAGES][BK][BM + 4];
    __shared__ __align__(16) float tileB[STAGES][BK][BN];
    if (n % 4 == 0)
        warpTiled<true, BM, BN, BK, WM, WN, TM, TN, STAGES>(a, b, c, int(n), tileA, tileB);
    else
        warpTiled<false, BM, BN, BK, WM, WN, TM, TN, STAGES>(a, b, c, int(n), tileA, tileB);
}

extern "C" __global__ void __launch_bounds__(warpTiles(ARCH).threads(), warpTiles(ARCH).blocks)
matmulWarpTiled(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, size_t n) {
    constexpr WarpTiles T = warpTiles(ARCH);
    warpTiled<T.bm, T.bn, T.bk, T.wm, T.wn, T.tm, T.tn, T.stages>(a, b, c, n);
}

extern "C" __global__ void __launch_bounds__(smallWarpTiles(ARCH).threads(), smallWarpTiles(ARCH).blocks)
matmulWarpTiledSmall(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, size_t n) {
    constexpr WarpTiles T = smallWarpTiles(ARCH);
    warpTiled<T.bm, T.bn, T.bk, T.wm, T.wn, T.tm, T.tn, T.stages>(a, b, c, n);
}
// page: end kernels

namespace {

// A kernel of the ladder, its block and the tile of C that a block computes.
struct Rung {
    int step;
    std::string name;
    Kernel kernel;
    dim3 block;
    int bm, bn;

    void operator()(const DeviceMatrix& a, const DeviceMatrix& b, const DeviceMatrix& c, int n) const {
        kernel<<<dim3((n + bn - 1) / bn, (n + bm - 1) / bm), block>>>(a.data(), b.data(), c.data(), n);
        CUDA_CHECK(cudaGetLastError());
    }
};

struct PatchTiles {
    int bm, bn, bk, tm, tn;
    unsigned threads() const { return (bm / tm) * (bn / tn); }
};

// The architecture whose row of the launch table a kernel was compiled with: that of its PTX, which on a newer card is
// not the card's own.
int compiledFor(Kernel kernel) {
    cudaFuncAttributes attributes;
    CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
    return attributes.ptxVersion;
}

std::vector<Rung> ladder() {
    const dim3 square(TILE, TILE);
    const PatchTiles step4{REGISTER_TILES}, step5{VECTOR_TILES};
    const WarpTiles large = warpTiles(compiledFor(matmulWarpTiled));
    const WarpTiles small = smallWarpTiles(compiledFor(matmulWarpTiledSmall));
    return {
        {1, "matmulStridedRows", matmulStridedRows, square, TILE, TILE},  // x over rows: a square grid is the same
        {2, "matmulCoalescedCols", matmulCoalescedCols, square, TILE, TILE},
        {3, "matmulTiled", matmulTiled, square, TILE, TILE},
        {4, "matmulRegisterTile", matmulRegisterTile, step4.threads(), step4.bm, step4.bn},
        {5, "matmulVectorLoads", matmulVectorLoads, step5.threads(), step5.bm, step5.bn},
        {6, "matmulWarpTiled", matmulWarpTiled, unsigned(large.threads()), large.bm, large.bn},
        {6, "matmulWarpTiledSmall", matmulWarpTiledSmall, unsigned(small.threads()), small.bm, small.bn},
    };
}

bool checkLadder(const std::vector<Rung>& rungs, int n) {
    const Size size{n, n, n};
    const std::vector<float> a = randomMatrix(n, n, 1), b = randomMatrix(n, n, 2);
    const DeviceMatrix deviceA(n, n, a), deviceB(n, n, b);
    const Reference reference = referenceProduct(a, b, size);

    bool allMatch = true;
    for (const Rung& rung : rungs) {
        DeviceMatrix c(n, n);
        c.fillNaN();
        rung(deviceA, deviceB, c, n);
        CUDA_CHECK(cudaDeviceSynchronize());
        allMatch &= matches(rung.name.c_str(), size, c.toHost(), reference);
    }
    return allMatch;
}

// One row of the table; without cuBLAS `ceiling` is 0 and the fraction stays empty.
void addRow(Table& shown, Table& csv, const std::string& step, const std::string& name, int n, const Timing& timing,
            double ceiling, const std::string& card) {
    const std::string side = std::to_string(n), rate = fixed(gflops({n, n, n}, timing.median), 1);
    const std::string fraction = ceiling > 0 ? fixed(ceiling / timing.median, 4) : "";
    shown.add({side, step, name, fixed(timing.median, 4), fixed(timing.min, 4), fixed(timing.max, 4), rate, fraction});
    csv.add({name, step, side, side, side, fixed(timing.median, 6), fixed(timing.min, 6), fixed(timing.max, 6), rate,
             fraction, card});
}

void timeLadder(const std::vector<Rung>& rungs, int n, const std::string& card, Table& shown, Table& csv) {
    const DeviceMatrix a(n, n, randomMatrix(n, n, 1)), b(n, n, randomMatrix(n, n, 2)), c(n, n);
    double ceiling = 0;
#ifdef WITH_CUBLAS
    const CublasSgemm cublas;
    const Timing library = timeLaunches([&] { cublas(a.data(), b.data(), c.data(), {n, n, n}); });
    ceiling = library.median;
#endif
    for (const Rung& rung : rungs) {
        const Timing timing = timeLaunches([&] { rung(a, b, c, n); });
        addRow(shown, csv, std::to_string(rung.step), rung.name, n, timing, ceiling, card);
    }
#ifdef WITH_CUBLAS
    addRow(shown, csv, "", "cuBLAS", n, library, ceiling, card);
#endif
}

const char LADDER_USAGE[] =
    "usage: matmul_registers [N ...] [--csv FILE]\n"
    "  N           sizes to check and time (512 1024 2048 4096); steps 4, 5 and 6 at the first are what\n"
    "              `ncu -k regex:'matmul(Register|Vector|Warp)' --launch-count 3` sees\n"
    "  --csv FILE  write the table there as well\n";

}  // namespace

int main(int argc, char** argv) {
    std::vector<int> sizes;
    std::string csvPath;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument == "--help" || argument == "-h") {
            std::fputs(LADDER_USAGE, stdout);
            return EXIT_SUCCESS;
        } else if (argument == "--csv") {
            csvPath = valueOf(argc, argv, i, LADDER_USAGE);
        } else {
            sizes.push_back(positiveInt("N", argv[i], LADDER_USAGE));
            requireLaunchable({sizes.back(), sizes.back(), sizes.back()}, TILE, LADDER_USAGE);
        }
    }
    if (sizes.empty()) sizes = {512, 1024, 2048, 4096};

    const cudaDeviceProp device = requireDevice();
    describeDevice(device);
    const std::vector<Rung> rungs = ladder();

    // Everything is checked before anything is timed, also at sizes that no tile divides.
    bool allMatch = true;
    for (const int n : sizes) allMatch &= checkLadder(rungs, n);
    for (const int n : {1, 17, 130, 260, 513}) allMatch &= checkLadder(rungs, n);
    if (!allMatch) return EXIT_FAILURE;
    std::printf("all kernels match the CPU at every size\n\n");

    Table shown({"N", "step", "kernel", "median ms", "min ms", "max ms", "GFLOP/s", "of cuBLAS"});
    Table csv({"kernel", "step", "m", "n", "k", "ms_median", "ms_min", "ms_max", "gflops", "fraction_of_cublas", "card"});
    for (const int n : sizes) timeLadder(rungs, n, device.name, shown, csv);
    shown.print();
    if (!csvPath.empty()) csv.writeCsv(csvPath);
    return EXIT_SUCCESS;
}
