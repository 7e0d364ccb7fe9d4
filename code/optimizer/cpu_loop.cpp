// Kernel 0 of the optimisation suite: one CPU thread. A file of its own, so that any C++ compiler builds it alone:
//
//     c++ -O3 -shared -fPIC -o libcpu_loop.so cpu_loop.cpp

#include <cstddef>

// C = A·B, row-major: A is m × k, B is k × n, C is m × n. The column loop is the inner one: B and C are walked along
// their rows, and the compiler can use vector instructions.
extern "C" void matmulCpu(const float* a, const float* b, float* c, int m, int n, int k) {
    for (int row = 0; row < m; ++row) {
        float* cRow = c + std::size_t(row) * n;
        for (int col = 0; col < n; ++col) cRow[col] = 0.0f;
        for (int i = 0; i < k; ++i) {
            const float factor = a[std::size_t(row) * k + i];
            const float* bRow = b + std::size_t(i) * n;
            for (int col = 0; col < n; ++col) cRow[col] += factor * bRow[col];
        }
    }
}
