// cuBLAS as reference and ceiling, shared by the programs that are built WITH_CUBLAS.
#pragma once

#include <cublas_v2.h>

#include "checking.cuh"

#define CUBLAS_CHECK(call)                                                                          \
    do {                                                                                            \
        const cublasStatus_t status_ = (call);                                                      \
        if (status_ != CUBLAS_STATUS_SUCCESS) {                                                     \
            std::fprintf(stderr, "%s:%d: %s failed: %s\n", __FILE__, __LINE__, #call,               \
                         cublasGetStatusString(status_));                                           \
            std::exit(EXIT_FAILURE);                                                                \
        }                                                                                           \
    } while (0)

// C = A·B in FP32 proper: without CUBLAS_TF32_TENSOR_OP_MATH the operands keep all their 24 bits.
class CublasSgemm {
  public:
    CublasSgemm() {
        CUBLAS_CHECK(cublasCreate(&handle_));
        CUBLAS_CHECK(cublasSetMathMode(handle_, CUBLAS_DEFAULT_MATH));
    }
    ~CublasSgemm() { CUBLAS_CHECK(cublasDestroy(handle_)); }
    CublasSgemm(const CublasSgemm&) = delete;
    CublasSgemm& operator=(const CublasSgemm&) = delete;

    // cuBLAS is column-major, where a row-major matrix reads as its transpose: Cᵀ = Bᵀ·Aᵀ is the same product.
    void operator()(const float* a, const float* b, float* c, Size size) const {
        const float one = 1.0f, zero = 0.0f;
        CUBLAS_CHECK(cublasSgemm(handle_, CUBLAS_OP_N, CUBLAS_OP_N, size.n, size.m, size.k, &one, b, size.n, a, size.k,
                                 &zero, c, size.n));
    }

  private:
    cublasHandle_t handle_ = nullptr;
};
