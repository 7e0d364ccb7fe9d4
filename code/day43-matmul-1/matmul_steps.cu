// Day 43: three kernels for C = A·B (square, row-major, float), each one change away from the last.
//
//     nvcc -std=c++17 -O3 -arch=sm_75 -lineinfo -o matmul_steps matmul_steps.cu
//     ./matmul_steps
//
// step 1  matmulStridedRows     x picks the row, y the column: neighbouring threads read A a whole row apart
// step 2  matmulCoalescedCols   the two index lines swapped: neighbouring threads read neighbouring floats of B
// step 3  matmulTiled           a block stages 16 × 16 tiles of A and B in shared memory and reads each float 16 times

#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "../common/arguments.cuh"
#include "../common/checking.cuh"
#include "../common/events.cuh"
#include "../common/table.cuh"

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

constexpr int SMALL = 512, LARGE = 1024;
static_assert(TILE == 16, "the sectors per request on paper hold for 16 × 16 blocks: a warp is 16 x by 2 y");
static_assert(Size{SMALL, SMALL, SMALL}.matrixBytes() == 3 << 20, "a T4's 4 MiB of L2 hold the three matrices");
static_assert(Size{LARGE, LARGE, LARGE}.matrixBytes() == 12 << 20, "a T4's 4 MiB of L2 do not hold them");

using Kernel = void (*)(const float*, const float*, float*, size_t);

struct Step {
    int number;
    const char* name;
    Kernel kernel;
};

const Step STEPS[] = {
    {1, "matmulStridedRows", matmulStridedRows},
    {2, "matmulCoalescedCols", matmulCoalescedCols},
    {3, "matmulTiled", matmulTiled},
};

int loadsPerThread(const Step& step, int n) {
    return step.number == 3 ? 2 * ((n + TILE - 1) / TILE) : 2 * n;
}

// Derived, not measured: the distinct 32-byte sectors under the 32 lanes of one warp, the mean of its request for A and
// its request for B.
double sectorsPerRequest(const Step& step, size_t n) {
    constexpr size_t FLOATS_PER_SECTOR = 8;
    std::set<size_t> sectorsA, sectorsB;
    for (size_t lane = 0; lane < 32; ++lane) {
        const size_t x = lane % TILE, y = lane / TILE;
        const size_t row = step.number == 1 ? x : y;
        const size_t col = step.number == 1 ? y : x;
        const size_t aCol = step.number == 3 ? x : 0;  // step 3 loads a tile of A, not one column of it
        const size_t bRow = step.number == 3 ? y : 0;
        sectorsA.insert((row * n + aCol) / FLOATS_PER_SECTOR);
        sectorsB.insert((bRow * n + col) / FLOATS_PER_SECTOR);
    }
    return 0.5 * (sectorsA.size() + sectorsB.size());
}

void launch(const Step& step, const DeviceMatrix& a, const DeviceMatrix& b, const DeviceMatrix& c, int n) {
    const dim3 block(TILE, TILE);
    const dim3 grid((n + TILE - 1) / TILE, (n + TILE - 1) / TILE);
    step.kernel<<<grid, block>>>(a.data(), b.data(), c.data(), n);
    CUDA_CHECK(cudaGetLastError());
}

// Checks every step at one size; each is launched once.
bool checkSize(int n) {
    const Size size{n, n, n};
    const std::vector<float> a = randomMatrix(n, n, 1), b = randomMatrix(n, n, 2);
    const DeviceMatrix deviceA(n, n, a), deviceB(n, n, b);
    const Reference reference = referenceProduct(a, b, size);

    bool allMatch = true;
    for (const Step& step : STEPS) {
        DeviceMatrix c(n, n);
        c.fillNaN();
        launch(step, deviceA, deviceB, c, n);
        CUDA_CHECK(cudaDeviceSynchronize());
        allMatch &= matches(step.name, size, c.toHost(), reference);
    }
    return allMatch;
}

// Times every step at one size, in order.
std::vector<Timing> timeSize(int n) {
    const DeviceMatrix a(n, n, randomMatrix(n, n, 1)), b(n, n, randomMatrix(n, n, 2)), c(n, n);
    std::vector<Timing> timings;
    for (const Step& step : STEPS) timings.push_back(timeLaunches([&] { launch(step, a, b, c, n); }));
    return timings;
}

void report(const std::vector<int>& sizes, const std::vector<std::vector<Timing>>& timings, const std::string& card,
            const std::string& csvPath) {
    Table shown({"N", "kernel", "time ms", "GFLOP/s", "loads/thread", "sectors/request"});
    Table csv({"n", "step", "kernel", "ms_median", "ms_mean", "ms_min", "ms_max", "gflops", "loads_per_thread",
               "sectors_per_request", "card"});
    for (size_t i = 0; i < sizes.size(); ++i) {
        const int n = sizes[i];
        for (const Step& step : STEPS) {
            const Timing& timing = timings[i][step.number - 1];
            const std::string rate = fixed(gflops({n, n, n}, timing.mean), 1);
            const std::string loads = std::to_string(loadsPerThread(step, n));
            const std::string sectors = fixed(sectorsPerRequest(step, n), 1);
            shown.add({std::to_string(n), step.name, fixed(timing.mean, 4), rate, loads, sectors});
            csv.add({std::to_string(n), std::to_string(step.number), step.name, fixed(timing.median, 6),
                     fixed(timing.mean, 6), fixed(timing.min, 6), fixed(timing.max, 6), rate, loads, sectors, card});
        }
    }
    shown.print();
    for (size_t i = 0; i < sizes.size(); ++i) {
        const double ms1 = timings[i][0].mean, ms2 = timings[i][1].mean, ms3 = timings[i][2].mean;
        std::printf("N = %d speed-up: step 1→2 %.2fx, step 2→3 %.2fx, step 1→3 %.2fx\n", sizes[i], ms1 / ms2,
                    ms2 / ms3, ms1 / ms3);
    }
    if (!csvPath.empty()) csv.writeCsv(csvPath);
}

const char USAGE[] =
    "usage: matmul_steps [512|1024] [--csv FILE]\n"
    "  512|1024    the size that comes first, and so the one that `ncu --launch-count 3` sees (512)\n"
    "  --csv FILE  write the timing table there as well\n";

int main(int argc, char** argv) {
    std::vector<int> sizes = {SMALL, LARGE};
    std::string csvPath;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument == "--help" || argument == "-h") {
            std::fputs(USAGE, stdout);
            return EXIT_SUCCESS;
        } else if (argument == std::to_string(SMALL)) {
            sizes = {SMALL, LARGE};
        } else if (argument == std::to_string(LARGE)) {
            sizes = {LARGE, SMALL};
        } else if (argument == "--csv") {
            csvPath = valueOf(argc, argv, i, USAGE);
        } else {
            usageError("matmul_steps: cannot use '" + argument + "'", USAGE);
        }
    }

    const cudaDeviceProp device = requireDevice();
    describeDevice(device);
    for (const int n : sizes) describeFit(device, {n, n, n});

    // Everything is checked before anything is timed: the first three launches are steps 1, 2 and 3 at the first size.
    bool allMatch = true;
    for (const int n : sizes) allMatch &= checkSize(n);
    if (!allMatch) return EXIT_FAILURE;
    std::printf("all three kernels match the CPU at both sizes\n\n");

    std::vector<std::vector<Timing>> timings;
    for (const int n : sizes) timings.push_back(timeSize(n));
    report(sizes, timings, device.name, csvPath);
    return EXIT_SUCCESS;
}
