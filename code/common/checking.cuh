// Checking, shared by the course's standalone programs: CUDA errors, inputs, the CPU reference, the comparison.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

constexpr int EXIT_NO_DEVICE = 77;  // the status by which ctest knows a skipped test

// Ends the program, naming the call, its place and CUDA's reason, unless the call succeeded.
#define CUDA_CHECK(call)                                                                            \
    do {                                                                                            \
        const cudaError_t status_ = (call);                                                         \
        if (status_ != cudaSuccess) {                                                               \
            std::fprintf(stderr, "%s:%d: %s failed: %s (%s)\n", __FILE__, __LINE__, #call,          \
                         cudaGetErrorString(status_), cudaGetErrorName(status_));                   \
            std::exit(EXIT_FAILURE);                                                                \
        }                                                                                           \
    } while (0)

// The properties of the device in use; without one the program says so and ends.
inline cudaDeviceProp requireDevice() {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || count == 0) {
        std::fprintf(stderr, "no CUDA device: %s. This program needs an NVIDIA GPU and its driver.\n",
                     status == cudaSuccess ? "none is visible (CUDA_VISIBLE_DEVICES?)" : cudaGetErrorString(status));
        std::exit(EXIT_NO_DEVICE);
    }
    int device = 0;
    cudaDeviceProp properties;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
    return properties;
}

// C = A·B with A m × k, B k × n and C m × n, row-major.
struct Size {
    int m, n, k;

    std::string text() const { return std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k); }
    double flops() const { return 2.0 * m * n * k; }
    constexpr size_t matrixBytes() const { return sizeof(float) * (size_t(m) * k + size_t(k) * n + size_t(m) * n); }
};

inline void describeDevice(const cudaDeviceProp& device) {
    std::printf("%s, sm_%d%d, L2 %.1f MiB\n", device.name, device.major, device.minor, device.l2CacheSize / 1048576.0);
}

// Whether the matrices fit into L2: where they do, reading them again costs little.
inline void describeFit(const cudaDeviceProp& device, Size size) {
    std::printf("%s: three matrices, %.2f MiB, %s L2\n", size.text().c_str(), size.matrixBytes() / 1048576.0,
                size.matrixBytes() <= size_t(device.l2CacheSize) ? "fit in" : "do not fit in");
}

// Floats in device memory, freed with the object.
class DeviceMatrix {
  public:
    DeviceMatrix(int rows, int cols) : bytes_(sizeof(float) * rows * cols) { CUDA_CHECK(cudaMalloc(&data_, bytes_)); }
    DeviceMatrix(int rows, int cols, const std::vector<float>& host) : DeviceMatrix(rows, cols) {
        CUDA_CHECK(cudaMemcpy(data_, host.data(), bytes_, cudaMemcpyHostToDevice));
    }
    ~DeviceMatrix() { CUDA_CHECK(cudaFree(data_)); }
    DeviceMatrix(const DeviceMatrix&) = delete;
    DeviceMatrix& operator=(const DeviceMatrix&) = delete;

    float* data() const { return data_; }

    // A float whose bits are all ones is a NaN: an element that a kernel forgets to write cannot pass for an answer.
    void fillNaN() { CUDA_CHECK(cudaMemset(data_, 0xFF, bytes_)); }

    std::vector<float> toHost() const {
        std::vector<float> host(bytes_ / sizeof(float));
        CUDA_CHECK(cudaMemcpy(host.data(), data_, bytes_, cudaMemcpyDeviceToHost));
        return host;
    }

  private:
    float* data_ = nullptr;
    size_t bytes_;
};

// Inputs from [0.5, 1.5): no two alike, so a wrong index shows, and no sum near zero, where a relative error means
// nothing.
inline std::vector<float> randomMatrix(int rows, int cols, unsigned seed) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<float> uniform(0.5f, 1.5f);
    std::vector<float> matrix(size_t(rows) * cols);
    for (float& element : matrix) element = uniform(generator);
    return matrix;
}

// Rows of A·B in double precision: all of them, or for large sizes a stated sample.
struct Reference {
    std::vector<int> rows;
    std::vector<double> values;  // rows.size() × n
};

inline Reference referenceProduct(const std::vector<float>& a, const std::vector<float>& b, Size size) {
    constexpr double WORK_LIMIT = 1 << 30;  // multiply-adds, about a second: 1024³ is checked whole
    const double work = 0.5 * size.flops();
    const int count = work <= WORK_LIMIT ? size.m : std::clamp(int(size.m * WORK_LIMIT / work), 1, size.m);

    Reference reference{std::vector<int>(count), std::vector<double>(size_t(count) * size.n, 0.0)};
    for (int i = 0; i < count; ++i) {
        // Evenly spread, the first and the last row among them.
        const int row = count > 1 ? int((long long)i * (size.m - 1) / (count - 1)) : 0;
        reference.rows[i] = row;
        double* sums = &reference.values[size_t(i) * size.n];
        for (int j = 0; j < size.k; ++j) {
            const double factor = a[size_t(row) * size.k + j];
            const float* bRow = &b[size_t(j) * size.n];
            for (int col = 0; col < size.n; ++col) sums[col] += factor * bRow[col];
        }
    }
    return reference;
}

// The rounding of a float sum of k positive terms wanders like a random walk: sqrt(k) half-epsilons, and a factor 8 to
// spare.
inline double relativeTolerance(int k) {
    return 8 * 0.5 * 1.1920929e-7 * std::sqrt(double(k));
}

// True when the product is right; otherwise says where it first is not. A NaN is wrong everywhere.
inline bool matches(const char* kernel, Size size, const std::vector<float>& got, const Reference& reference) {
    const double tolerance = relativeTolerance(size.k);
    for (size_t i = 0; i < reference.rows.size(); ++i) {
        const int row = reference.rows[i];
        for (int col = 0; col < size.n; ++col) {
            const double expected = reference.values[i * size.n + col];
            const double value = got[size_t(row) * size.n + col];
            const double error = std::fabs(value - expected) / std::fabs(expected);
            if (!(error <= tolerance)) {  // written so that a NaN fails
                std::fprintf(stderr,
                             "MISMATCH %s at %s: first at row %d, column %d: got %.9g, expected %.9g "
                             "(relative error %.2g, allowed %.2g)\n",
                             kernel, size.text().c_str(), row, col, value, expected, error, tolerance);
                return false;
            }
        }
    }
    return true;
}
