// The counter study: small kernels whose counters are known to differ, run on a card and in the tracer.
//
//     python -m gpudays study        on a GPU host with ncu; writes content/profiles/tracer/
//
// One access pattern each, nothing else: what is counted must have one cause. n is the number of elements.

// ---- global memory: width, stride, alignment ----

extern "C" __global__ void copyCoalesced(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}

extern "C" __global__ void copyShiftedByOne(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + 1 < n) y[i] = x[i + 1];
}

extern "C" __global__ void copyStride2(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (2 * i < n) y[i] = x[2 * i];
}

extern "C" __global__ void copyStride33(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (33 * i < n) y[i] = x[33 * i];
}

extern "C" __global__ void copyBytes(const unsigned char* x, unsigned char* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}

extern "C" __global__ void copyDoubles(const double* x, double* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}

extern "C" __global__ void copyFloat2(const float2* x, float2* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}

extern "C" __global__ void copyFloat4(const float4* x, float4* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}

extern "C" __global__ void copyFloat4Stride2(const float4* x, float4* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (2 * i < n) y[i] = x[2 * i];
}

extern "C" __global__ void copyReversed(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[n - 1 - i] = x[i];
}

extern "C" __global__ void gatherIndexed(const float* x, const int* index, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[index[i]];
}

extern "C" __global__ void loadBroadcast(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i / 64];
}

extern "C" __global__ void stencil3(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i + 1 < n) y[i] = x[i - 1] + x[i] + x[i + 1];
}

// ---- divergence ----

extern "C" __global__ void everyThird(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && i % 3 == 0) y[i] = x[i];
}

extern "C" __global__ void twoBranches(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (threadIdx.x & 1)
        y[i] = x[i] + x[n - 1 - i];
    else
        y[i] = 2.0f * x[(7 * i) % n];
}

extern "C" __global__ void loopsOfDifferentLength(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
#pragma unroll 1
    for (int j = 0; j < i % 7; ++j) sum += x[(i + 32 * j) % n];
    y[i] = sum;
}

extern "C" __global__ void halfWarpLeavesEarly(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if ((threadIdx.x & 31) >= 16) return;
    if (i < n) y[i] = x[i];
}

// ---- shared memory: banks ----

extern "C" __global__ void transposeUnpadded(const float* x, float* y, int n) {
    __shared__ float tile[32][32];
    tile[threadIdx.y][threadIdx.x] = x[(blockIdx.y * 32 + threadIdx.y) * n + blockIdx.x * 32 + threadIdx.x];
    __syncthreads();
    y[(blockIdx.x * 32 + threadIdx.y) * n + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void transposePadded(const float* x, float* y, int n) {
    __shared__ float tile[32][33];
    tile[threadIdx.y][threadIdx.x] = x[(blockIdx.y * 32 + threadIdx.y) * n + blockIdx.x * 32 + threadIdx.x];
    __syncthreads();
    y[(blockIdx.x * 32 + threadIdx.y) * n + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void transposeNaive(const float* x, float* y, int n) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    y[col * n + row] = x[row * n + col];
}

// Each of these writes shared memory in order and reads it at a stride of `stride` elements.
template <typename T>
__device__ void readShared(const T* x, T* y, int stride) {
    __shared__ T s[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) s[i] = x[i];
    __syncthreads();
    y[blockIdx.x * blockDim.x + threadIdx.x] = s[threadIdx.x * stride & 1023];
}

extern "C" __global__ void sharedFloats(const float* x, float* y, int stride) { readShared(x, y, stride); }
extern "C" __global__ void sharedDoubles(const double* x, double* y, int stride) { readShared(x, y, stride); }
extern "C" __global__ void sharedFloat4(const float4* x, float4* y, int stride) { readShared(x, y, stride); }
extern "C" __global__ void sharedBytes(const unsigned char* x, unsigned char* y, int stride) {
    readShared(x, y, stride);
}

// Lanes that read the same element: `divide` lanes in a row share one, and every `modulo` elements it starts again.
template <typename T>
__device__ void shareElements(const T* x, T* y, int divide, int modulo) {
    __shared__ T s[256];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[blockIdx.x * blockDim.x + threadIdx.x] = s[threadIdx.x / divide % modulo];
}

extern "C" __global__ void shareFloats(const float* x, float* y, int divide, int modulo) {
    shareElements(x, y, divide, modulo);
}
extern "C" __global__ void shareFloat2(const float2* x, float2* y, int divide, int modulo) {
    shareElements(x, y, divide, modulo);
}
extern "C" __global__ void shareFloat4(const float4* x, float4* y, int divide, int modulo) {
    shareElements(x, y, divide, modulo);
}

extern "C" __global__ void sharedBroadcast(const float* x, float* y, int n) {
    __shared__ float s[256];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[blockIdx.x * blockDim.x + threadIdx.x] = s[threadIdx.x / 32 + n];
}

// ---- reductions and atomics ----

extern "C" __global__ void reduceShuffle(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = i < n ? x[i] : 0.0f;
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x % 32 == 0) y[i / 32] = sum;
}

extern "C" __global__ void reduceShared(const float* x, float* y, int n) {
    __shared__ float s[256];
    const int i = blockIdx.x * 256 + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = s[0];
}

extern "C" __global__ void histogramGlobal(const int* x, int* bins, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[x[i]], 1);
}

extern "C" __global__ void takeTickets(const int* x, int* counters, int* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = atomicExch(&counters[x[i]], i);
}

extern "C" __global__ void histogramShared(const int* x, int* bins, int n) {
    __shared__ int local[64];
    if (threadIdx.x < 64) local[threadIdx.x] = 0;
    __syncthreads();
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&local[x[i]], 1);
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

// ---- local memory: an array indexed at run time cannot live in registers ----

extern "C" __global__ void localArray(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float mine[48];
#pragma unroll 1
    for (int j = 0; j < 48; ++j) mine[(5 * j + n) % 48] = x[i + j * n];
    float sum = 0.0f;
#pragma unroll 1
    for (int j = 0; j < n % 48; ++j) sum += mine[(i + j) % 48];
    y[i] = sum;
}
