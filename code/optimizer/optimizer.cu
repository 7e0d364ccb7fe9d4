// The optimisation suite: seven ways to C = A·B on one bench. A is M × K, B is K × N, C is M × N, row-major floats.
//
//     nvcc -std=c++17 -O3 -arch=sm_75 -lineinfo -DWITH_CUBLAS -o optimizer optimizer.cu cpu_loop.cpp -lcublas
//     ./optimizer [--kernel K] [--size N | --m M --n N --k K]          (without cuBLAS: leave out both its words)
//
// 0   matmulCpu             three loops on one CPU thread, in cpu_loop.cpp
// 1   matmulNaive           one thread per output, all operands from global memory
// 2   matmulTiled           tiles of A and B staged in shared memory: 16 times fewer floats read
// 3   matmulVectorGuarded   the tile loaded with float4, behind run-time bounds and alignment checks
// 3f  matmulVectorFast      the same without those checks, for K and N that are multiples of 4
// 4   matmulCoarsened2x2    the tile of kernel 2, each thread computing 2 × 2 outputs; other shapes for the sweep
// 5   cublasSgemm           cuBLAS in FP32: reference and ceiling

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "../common/arguments.cuh"
#include "../common/checking.cuh"
#include "../common/events.cuh"
#include "../common/table.cuh"
#ifdef WITH_CUBLAS
#include "../common/cublas.cuh"
#endif

extern "C" void matmulCpu(const float* a, const float* b, float* c, int m, int n, int k);

// page: begin kernels
constexpr int TILE = 16;  // blocks are TILE × TILE threads

// Kernel 1: one thread per output; row comes from y and col from x.
extern "C" __global__ void matmulNaive(const float* __restrict__ a, const float* __restrict__ b,
                                       float* __restrict__ c, int m, int n, int k) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || col >= n) return;

    float sum = 0.0f;
    for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
    c[row * n + col] = sum;
}

// ---- 2: tiles in shared memory --------------------------------------------------------------------------------------

// Kernel 2: a block stages a tile of A and one of B in shared memory at a time.
extern "C" __global__ void matmulTiled(const float* __restrict__ a, const float* __restrict__ b,
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
        __syncthreads();

        for (int i = 0; i < TILE; ++i) sum += tileA[threadIdx.y][i] * tileB[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}

// ---- 3 and 3f: four floats in a load --------------------------------------------------------------------------------

// Four floats of a row from `col` on, zeros for what is outside. Any row length, any alignment: each load is checked.
__device__ float4 loadGuarded(const float* __restrict__ matrix, int rows, int cols, int row, int col) {
    float4 four = {0.0f, 0.0f, 0.0f, 0.0f};
    if (row >= rows || col >= cols) return four;
    const float* from = matrix + row * cols + col;
    if (col + 3 < cols && reinterpret_cast<size_t>(from) % sizeof(float4) == 0) {
        return *reinterpret_cast<const float4*>(from);
    }
    four.x = from[0];
    if (col + 1 < cols) four.y = from[1];
    if (col + 2 < cols) four.z = from[2];
    if (col + 3 < cols) four.w = from[3];
    return four;
}

// The same where cols is a multiple of 4 and the matrix aligned: then four floats are inside or outside together.
__device__ float4 loadWhole(const float* __restrict__ matrix, int rows, int cols, int row, int col) {
    if (row >= rows || col >= cols) return {0.0f, 0.0f, 0.0f, 0.0f};
    return *reinterpret_cast<const float4*>(matrix + row * cols + col);
}

// Kernel 2 with a float4 where it loads a float: tiles four times as deep, for a quarter of the load requests.
template <bool WHOLE>
__device__ void multiplyVectors(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                                int m, int n, int k) {
    constexpr int DEPTH = 4 * TILE;
    __shared__ float4 tileA[TILE][DEPTH / 4 + 1];  // the odd float4 puts a warp's two rows of A into different banks
    __shared__ float4 tileB[DEPTH][TILE / 4];
    const int row = blockIdx.y * TILE + threadIdx.y;
    const int col = blockIdx.x * TILE + threadIdx.x;
    // For B the block's threads are counted through: 4 of them load the 16 floats of a row.
    const int thread = threadIdx.y * TILE + threadIdx.x;
    const int bRow = thread / 4, bFour = thread % 4;

    float sum = 0.0f;
    for (int start = 0; start < k; start += DEPTH) {
        const int aCol = start + 4 * threadIdx.x;
        const int bCol = blockIdx.x * TILE + 4 * bFour;
        tileA[threadIdx.y][threadIdx.x] = WHOLE ? loadWhole(a, m, k, row, aCol)
                                                : loadGuarded(a, m, k, row, aCol);
        tileB[bRow][bFour] = WHOLE ? loadWhole(b, k, n, start + bRow, bCol)
                                   : loadGuarded(b, k, n, start + bRow, bCol);
        __syncthreads();

        const float* aRow = reinterpret_cast<const float*>(tileA[threadIdx.y]);
        const float* bTile = reinterpret_cast<const float*>(tileB);
        for (int i = 0; i < DEPTH; ++i) sum += aRow[i] * bTile[i * TILE + threadIdx.x];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}

// Kernel 3: float4 loads for any size, each behind its checks.
extern "C" __global__ void matmulVectorGuarded(const float* __restrict__ a, const float* __restrict__ b,
                                               float* __restrict__ c, int m, int n, int k) {
    multiplyVectors<false>(a, b, c, m, n, k);
}

// Kernel 3, fast path: K and N must be multiples of 4, a and b aligned to 16 bytes.
extern "C" __global__ void matmulVectorFast(const float* __restrict__ a, const float* __restrict__ b,
                                            float* __restrict__ c, int m, int n, int k) {
    multiplyVectors<true>(a, b, c, m, n, k);
}

// ---- 4: several outputs per thread ----------------------------------------------------------------------------------

// Each thread computes ROWS × COLS outputs, TILE apart, so that neighbouring threads still have neighbouring columns.
// A float read from shared memory now serves COLS (or ROWS) multiply-adds, not one.
template <int ROWS, int COLS>
__device__ void multiplyCoarsened(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                                  int m, int n, int k) {
    __shared__ float tileA[ROWS * TILE][TILE];
    __shared__ float tileB[TILE][COLS * TILE];
    const int x = threadIdx.x, y = threadIdx.y;
    const int firstRow = blockIdx.y * ROWS * TILE + y;
    const int firstCol = blockIdx.x * COLS * TILE + x;

    float sum[ROWS][COLS] = {};
    for (int start = 0; start < k; start += TILE) {
        for (int r = 0; r < ROWS; ++r) {
            const int row = firstRow + r * TILE;
            tileA[y + r * TILE][x] = row < m && start + x < k ? a[row * k + start + x] : 0.0f;
        }
        for (int s = 0; s < COLS; ++s) {
            const int col = firstCol + s * TILE;
            tileB[y][x + s * TILE] = start + y < k && col < n ? b[(start + y) * n + col] : 0.0f;
        }
        __syncthreads();

        for (int i = 0; i < TILE; ++i) {
            float fromA[ROWS], fromB[COLS];
            for (int r = 0; r < ROWS; ++r) fromA[r] = tileA[y + r * TILE][i];
            for (int s = 0; s < COLS; ++s) fromB[s] = tileB[i][x + s * TILE];
            for (int r = 0; r < ROWS; ++r)
                for (int s = 0; s < COLS; ++s) sum[r][s] += fromA[r] * fromB[s];
        }
        __syncthreads();
    }
    for (int r = 0; r < ROWS; ++r)
        for (int s = 0; s < COLS; ++s) {
            const int row = firstRow + r * TILE, col = firstCol + s * TILE;
            if (row < m && col < n) c[row * n + col] = sum[r][s];
        }
}

// Kernel 4: 2 × 2 outputs per thread.
extern "C" __global__ void matmulCoarsened2x2(const float* __restrict__ a, const float* __restrict__ b,
                                              float* __restrict__ c, int m, int n, int k) {
    multiplyCoarsened<2, 2>(a, b, c, m, n, k);
}

// ---- 4: other shapes, for the sweep ---------------------------------------------------------------------------------

extern "C" __global__ void matmulCoarsened1x1(const float* __restrict__ a, const float* __restrict__ b,
                                              float* __restrict__ c, int m, int n, int k) {
    multiplyCoarsened<1, 1>(a, b, c, m, n, k);
}

extern "C" __global__ void matmulCoarsened1x2(const float* __restrict__ a, const float* __restrict__ b,
                                              float* __restrict__ c, int m, int n, int k) {
    multiplyCoarsened<1, 2>(a, b, c, m, n, k);
}

extern "C" __global__ void matmulCoarsened2x4(const float* __restrict__ a, const float* __restrict__ b,
                                              float* __restrict__ c, int m, int n, int k) {
    multiplyCoarsened<2, 4>(a, b, c, m, n, k);
}

extern "C" __global__ void matmulCoarsened4x4(const float* __restrict__ a, const float* __restrict__ b,
                                              float* __restrict__ c, int m, int n, int k) {
    multiplyCoarsened<4, 4>(a, b, c, m, n, k);
}

extern "C" __global__ void matmulCoarsened4x8(const float* __restrict__ a, const float* __restrict__ b,
                                              float* __restrict__ c, int m, int n, int k) {
    multiplyCoarsened<4, 8>(a, b, c, m, n, k);
}

extern "C" __global__ void matmulCoarsened8x8(const float* __restrict__ a, const float* __restrict__ b,
                                              float* __restrict__ c, int m, int n, int k) {
    multiplyCoarsened<8, 8>(a, b, c, m, n, k);
}
// page: end kernels

using Kernel = void (*)(const float*, const float*, float*, int, int, int);

struct Variant {
    std::string id;  // as --kernel takes it
    const char* name;
    Kernel kernel;   // none for the CPU loop and cuBLAS
    int rows, cols;  // outputs per thread
};

const Variant CPU = {"0", "matmulCpu", nullptr, 0, 0};
const Variant CUBLAS = {"5", "cublasSgemm", nullptr, 0, 0};

const std::vector<Variant> SUITE = {
    CPU,
    {"1", "matmulNaive", matmulNaive, 1, 1},
    {"2", "matmulTiled", matmulTiled, 1, 1},
    {"3", "matmulVectorGuarded", matmulVectorGuarded, 1, 1},
    {"3f", "matmulVectorFast", matmulVectorFast, 1, 1},
    {"4", "matmulCoarsened2x2", matmulCoarsened2x2, 2, 2},
#ifdef WITH_CUBLAS
    CUBLAS,
#endif
};

const std::vector<Variant> COARSENING_SWEEP = {
    {"4:1x1", "matmulCoarsened1x1", matmulCoarsened1x1, 1, 1},
    {"4:1x2", "matmulCoarsened1x2", matmulCoarsened1x2, 1, 2},
    {"4:2x2", "matmulCoarsened2x2", matmulCoarsened2x2, 2, 2},
    {"4:2x4", "matmulCoarsened2x4", matmulCoarsened2x4, 2, 4},
    {"4:4x4", "matmulCoarsened4x4", matmulCoarsened4x4, 4, 4},
    {"4:4x8", "matmulCoarsened4x8", matmulCoarsened4x8, 4, 8},
    {"4:8x8", "matmulCoarsened8x8", matmulCoarsened8x8, 8, 8},
};

struct Problem {
    Size size;
    std::vector<float> hostA, hostB;
    DeviceMatrix a, b, c;
    Reference reference;
#ifdef WITH_CUBLAS
    CublasSgemm sgemm;
#endif

    explicit Problem(Size s)
        : size(s), hostA(randomMatrix(s.m, s.k, 1)), hostB(randomMatrix(s.k, s.n, 2)), a(s.m, s.k, hostA),
          b(s.k, s.n, hostB), c(s.m, s.n), reference(referenceProduct(hostA, hostB, s)) {}
};

bool takes(const Variant& variant, Size size) {
    return variant.kernel != matmulVectorFast || (size.k % 4 == 0 && size.n % 4 == 0);
}

void launch(const Variant& variant, const Problem& problem) {
    const Size size = problem.size;
#ifdef WITH_CUBLAS
    if (variant.id == CUBLAS.id) {
        problem.sgemm(problem.a.data(), problem.b.data(), problem.c.data(), size);
        return;
    }
#endif
    const int height = TILE * variant.rows, width = TILE * variant.cols;  // of the outputs of a block
    const dim3 block(TILE, TILE);
    const dim3 grid((size.n + width - 1) / width, (size.m + height - 1) / height);
    variant.kernel<<<grid, block>>>(problem.a.data(), problem.b.data(), problem.c.data(), size.m, size.n, size.k);
    CUDA_CHECK(cudaGetLastError());
}

bool check(const Variant& variant, Problem& problem) {
    std::vector<float> c(size_t(problem.size.m) * problem.size.n, std::numeric_limits<float>::quiet_NaN());
    if (variant.id == CPU.id) {
        matmulCpu(problem.hostA.data(), problem.hostB.data(), c.data(), problem.size.m, problem.size.n, problem.size.k);
    } else {
        problem.c.fillNaN();
        launch(variant, problem);
        CUDA_CHECK(cudaDeviceSynchronize());
        c = problem.c.toHost();
    }
    return matches(variant.name, problem.size, c, problem.reference);
}

// Fewer repeats for slow kernels: what fits into the budget, three at least.
int repeatsFor(double milliseconds, int most) {
    constexpr double BUDGET_MS = 5000.0;
    return std::clamp(int(BUDGET_MS / milliseconds), std::min(3, most), most);
}

Timing timeCpu(const Problem& problem, int most) {
    const Size size = problem.size;
    std::vector<float> c(size_t(size.m) * size.n);
    const auto once = [&] {
        const auto start = std::chrono::steady_clock::now();
        matmulCpu(problem.hostA.data(), problem.hostB.data(), c.data(), size.m, size.n, size.k);
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    };
    std::vector<double> times = {once()};
    const int repeats = repeatsFor(times[0], most);
    while (int(times.size()) < repeats) times.push_back(once());
    return summarise(times);
}

Timing timeGpu(const Variant& variant, const Problem& problem, int warmUps, int most) {
    const auto once = [&] { launch(variant, problem); };
    const int repeats = repeatsFor(timeLaunches(once, 1, 1).median, most);
    return timeLaunches(once, repeats < most ? 1 : warmUps, repeats);
}

struct Options {
    Size size = {1024, 1024, 1024};
    std::vector<Variant> variants = SUITE;
    int warmUps = 10, repeats = 100;
    bool checkOnly = false;
    std::string csvPath;
};

const char USAGE[] =
    "usage: optimizer [--kernel K]... [--size N | --m M --n N --k K] [--repeats R] [--sweep] [--check] [--csv FILE]\n"
    "  --kernel K  0, 1, 2, 3, 3f, 4 or 5, or a kernel's name; may be given again (all)\n"
    "  --size N    M = N = K (1024); --m, --n, --k set them one by one\n"
    "  --repeats R at most so many timed launches, after 10 warm-ups; slow kernels get fewer (100)\n"
    "  --sweep     kernel 4 with 1x1 to 8x8 outputs per thread as well\n"
    "  --check     check against the CPU, time nothing\n"
    "  --csv FILE  write the timing table there as well\n";

Variant variantCalled(const std::string& word) {
    std::string known;
    for (const std::vector<Variant>* list : {&SUITE, &COARSENING_SWEEP}) {
        for (const Variant& variant : *list) {
            if (word == variant.id || word == variant.name) return variant;
            known += " " + variant.id;
        }
    }
    const bool leftOut = word == CUBLAS.id || word == CUBLAS.name;
    usageError(leftOut ? "optimizer: this program was built without cuBLAS (-DWITH_CUBLAS -lcublas)"
                       : "optimizer: no kernel '" + word + "'; there are" + known, USAGE);
}

Options parse(int argc, char** argv) {
    Options options;
    std::vector<Variant> chosen;
    bool sweep = false;
    const auto number = [&](int& i) {
        const std::string name = argv[i];
        return positiveInt(name, valueOf(argc, argv, i, USAGE), USAGE);
    };
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument == "--help" || argument == "-h") {
            std::fputs(USAGE, stdout);
            std::exit(EXIT_SUCCESS);
        }
        if (argument == "--kernel") chosen.push_back(variantCalled(valueOf(argc, argv, i, USAGE)));
        else if (argument == "--size") options.size.m = options.size.n = options.size.k = number(i);
        else if (argument == "--m") options.size.m = number(i);
        else if (argument == "--n") options.size.n = number(i);
        else if (argument == "--k") options.size.k = number(i);
        else if (argument == "--repeats") options.repeats = number(i);
        else if (argument == "--sweep") sweep = true;
        else if (argument == "--check") options.checkOnly = true;
        else if (argument == "--csv") options.csvPath = valueOf(argc, argv, i, USAGE);
        else usageError("optimizer: cannot use '" + argument + "'", USAGE);
    }
    if (!chosen.empty()) options.variants = chosen;
    for (const Variant& shape : COARSENING_SWEEP) {  // 2 × 2 is kernel 4, and may be there already
        const auto same = [&](const Variant& other) { return std::string(other.name) == shape.name; };
        if (sweep && std::none_of(options.variants.begin(), options.variants.end(), same)) {
            options.variants.push_back(shape);
        }
    }
    requireLaunchable(options.size, TILE, USAGE);
    return options;
}

// Speed-up and fraction are of this run; where it has no CPU loop or no cuBLAS, they are left empty.
void report(const Options& options, const std::vector<Timing>& timings, const std::string& card) {
    double cpuMs = 0.0, cublasMs = 0.0;
    for (size_t i = 0; i < timings.size(); ++i) {
        if (options.variants[i].id == CPU.id) cpuMs = timings[i].median;
        if (options.variants[i].id == CUBLAS.id) cublasMs = timings[i].median;
    }
    const Size size = options.size;
    Table shown({"MxNxK", "kernel", "median ms", "min ms", "max ms", "repeats", "GFLOP/s", "speed-up vs CPU",
                 "of cuBLAS"});
    Table csv({"kernel", "m", "n", "k", "ms_median", "ms_min", "ms_max", "gflops", "speedup_vs_cpu",
               "fraction_of_cublas", "card"});
    for (size_t i = 0; i < timings.size(); ++i) {
        const Timing& timing = timings[i];
        const std::string name = options.variants[i].name;
        const std::string rate = fixed(gflops(size, timing.median), 1);
        const std::string speedup = cpuMs > 0 ? fixed(cpuMs / timing.median, 2) : "";
        const std::string fraction = cublasMs > 0 ? fixed(cublasMs / timing.median, 4) : "";
        shown.add({size.text(), name, fixed(timing.median, 4), fixed(timing.min, 4), fixed(timing.max, 4),
                   std::to_string(timing.repeats), rate, speedup, fraction});
        csv.add({name, std::to_string(size.m), std::to_string(size.n), std::to_string(size.k), fixed(timing.median, 6),
                 fixed(timing.min, 6), fixed(timing.max, 6), rate, speedup, fraction, card});
    }
    shown.print();
    if (!options.csvPath.empty()) csv.writeCsv(options.csvPath);
}

int main(int argc, char** argv) {
    Options options = parse(argc, argv);
    const cudaDeviceProp device = requireDevice();
    describeDevice(device);
    describeFit(device, options.size);
    Problem problem(options.size);

    std::vector<Variant> usable;
    for (const Variant& variant : options.variants) {
        if (takes(variant, options.size)) usable.push_back(variant);
        else std::printf("%s left out: K and N must be multiples of 4\n", variant.name);
    }
    options.variants = usable;

    // Everything is checked before anything is timed.
    bool allMatch = true;
    for (const Variant& variant : options.variants) allMatch &= check(variant, problem);
    if (!allMatch) return EXIT_FAILURE;
    std::printf("%zu kernels match the CPU at %s on %zu of %d rows\n", options.variants.size(),
                options.size.text().c_str(), problem.reference.rows.size(), options.size.m);
    if (options.checkOnly) return EXIT_SUCCESS;

    std::vector<Timing> timings;
    for (const Variant& variant : options.variants) {
        timings.push_back(variant.id == CPU.id ? timeCpu(problem, options.repeats)
                                               : timeGpu(variant, problem, options.warmUps, options.repeats));
    }
    std::printf("\n");
    report(options, timings, device.name);
    return EXIT_SUCCESS;
}
