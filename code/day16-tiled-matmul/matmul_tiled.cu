// Day 16: C = A·B with and without tiles, for any sizes: A is M × K, B is K × N, C is M × N, all row-major floats.
//
//     nvcc -std=c++17 -O3 -arch=sm_75 -lineinfo -o matmul_tiled matmul_tiled.cu
//     ./matmul_tiled [M N K] [--sweep]
//
// matmulNaive   one thread per output, every operand from global memory: 2K floats read per thread
// matmulTiled   a block stages tiles of A and B in shared memory: 2·ceil(K/16) floats read per thread
// matmulTiled8, matmulTiled32   the same with a smaller and a larger tile, for the sweep

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "../common/arguments.cuh"
#include "../common/checking.cuh"
#include "../common/events.cuh"
#include "../common/table.cuh"

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

using Kernel = void (*)(const float*, const float*, float*, int, int, int);

struct Variant {
    const char* name;
    Kernel kernel;
    int tile;  // side of its tiles; 0 for none
};

const Variant NAIVE = {"matmulNaive", matmulNaive, 0};
const Variant TILED = {"matmulTiled", matmulTiled, 16};
const Variant TILED8 = {"matmulTiled8", matmulTiled8, 8};
const Variant TILED32 = {"matmulTiled32", matmulTiled32, 32};

int loadsPerThread(const Variant& variant, int k) {
    return variant.tile == 0 ? 2 * k : 2 * ((k + variant.tile - 1) / variant.tile);
}

int blockSide(const Variant& variant) {
    return variant.tile == 0 ? 16 : variant.tile;
}

void launch(const Variant& variant, const DeviceMatrix& a, const DeviceMatrix& b, const DeviceMatrix& c, Size size) {
    const int side = blockSide(variant);
    const dim3 block(side, side);
    const dim3 grid((size.n + side - 1) / side, (size.m + side - 1) / side);
    variant.kernel<<<grid, block>>>(a.data(), b.data(), c.data(), size.m, size.n, size.k);
    CUDA_CHECK(cudaGetLastError());
}

struct Options {
    Size size = {256, 256, 256};
    std::vector<Variant> variants = {NAIVE, TILED};
    std::string csvPath;
};

const char USAGE[] =
    "usage: matmul_tiled [M N K] [--sweep] [--csv FILE]\n"
    "  M N K       A is M x K, B is K x N, C is M x N (256 256 256)\n"
    "  --sweep     tiles of 8 and 32 as well\n"
    "  --csv FILE  write the timing table there as well\n";

Options parse(int argc, char** argv) {
    Options options;
    std::vector<int> extents;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument == "--help" || argument == "-h") {
            std::fputs(USAGE, stdout);
            std::exit(EXIT_SUCCESS);
        } else if (argument == "--sweep") {
            options.variants = {NAIVE, TILED, TILED8, TILED32};
        } else if (argument == "--csv") {
            options.csvPath = valueOf(argc, argv, i, USAGE);
        } else if (argument.rfind("--", 0) == 0 || extents.size() == 3) {
            usageError("matmul_tiled: cannot use '" + argument + "'", USAGE);
        } else {
            const char* names[] = {"M", "N", "K"};
            extents.push_back(positiveInt(names[extents.size()], argv[i], USAGE));
        }
    }
    if (!extents.empty()) {
        if (extents.size() != 3) usageError("matmul_tiled: M, N and K are given together or not at all", USAGE);
        options.size = {extents[0], extents[1], extents[2]};
    }
    int lowestBlock = 16;
    for (const Variant& variant : options.variants) lowestBlock = std::min(lowestBlock, blockSide(variant));
    requireLaunchable(options.size, lowestBlock, USAGE);
    return options;
}

void report(const Options& options, const std::vector<Timing>& timings, const std::string& card) {
    const Size size = options.size;
    Table shown({"MxNxK", "kernel", "time ms", "GFLOP/s", "loads/thread"});
    Table csv({"m", "n", "k", "kernel", "ms_median", "ms_mean", "ms_min", "ms_max", "gflops", "loads_per_thread",
               "card"});
    for (size_t i = 0; i < timings.size(); ++i) {
        const Timing& timing = timings[i];
        const std::string name = options.variants[i].name;
        const std::string rate = fixed(gflops(size, timing.mean), 1);
        const std::string loads = std::to_string(loadsPerThread(options.variants[i], size.k));
        shown.add({size.text(), name, fixed(timing.mean, 4), rate, loads});
        csv.add({std::to_string(size.m), std::to_string(size.n), std::to_string(size.k), name,
                 fixed(timing.median, 6), fixed(timing.mean, 6), fixed(timing.min, 6), fixed(timing.max, 6), rate, loads,
                 card});
    }
    shown.print();
    const int naiveLoads = loadsPerThread(NAIVE, size.k), tiledLoads = loadsPerThread(TILED, size.k);
    std::printf("tiled against naive: %.2fx the speed, %.1fx fewer floats read per thread (%d instead of %d)\n",
                timings[0].mean / timings[1].mean, double(naiveLoads) / tiledLoads, tiledLoads, naiveLoads);
    if (!options.csvPath.empty()) csv.writeCsv(options.csvPath);
}

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    const Size size = options.size;
    const cudaDeviceProp device = requireDevice();
    describeDevice(device);
    describeFit(device, size);

    const std::vector<float> hostA = randomMatrix(size.m, size.k, 1), hostB = randomMatrix(size.k, size.n, 2);
    const DeviceMatrix a(size.m, size.k, hostA), b(size.k, size.n, hostB);
    DeviceMatrix c(size.m, size.n);

    // Everything is checked before anything is timed.
    const Reference reference = referenceProduct(hostA, hostB, size);
    bool allMatch = true;
    for (const Variant& variant : options.variants) {
        c.fillNaN();
        launch(variant, a, b, c, size);
        CUDA_CHECK(cudaDeviceSynchronize());
        allMatch &= matches(variant.name, size, c.toHost(), reference);
    }
    if (!allMatch) return EXIT_FAILURE;
    std::printf("all kernels match the CPU on %zu of %d rows\n\n", reference.rows.size(), size.m);

    std::vector<Timing> timings;
    for (const Variant& variant : options.variants) {
        timings.push_back(timeLaunches([&] { launch(variant, a, b, c, size); }));
    }
    report(options, timings, device.name);
    return EXIT_SUCCESS;
}
