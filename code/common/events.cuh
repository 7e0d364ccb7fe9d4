// Timing with CUDA events, shared by the course's standalone programs.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "checking.cuh"

// Milliseconds per launch.
struct Timing {
    double mean, median, min, max;
    int repeats;
};

inline Timing summarise(std::vector<double> times) {
    std::sort(times.begin(), times.end());
    const size_t count = times.size();
    return {std::accumulate(times.begin(), times.end(), 0.0) / count,
            0.5 * (times[(count - 1) / 2] + times[count / 2]), times.front(), times.back(), int(count)};
}

inline double gflops(Size size, double milliseconds) {
    return size.flops() / (milliseconds * 1e6);
}

// Times `launch()`, which queues one launch on the default stream. All launches are queued before the host waits, an
// event between each two, so that a launch's own overhead hides behind the kernel before it.
template <typename Launch>
Timing timeLaunches(Launch launch, int warmUps = 3, int repeats = 10) {
    std::vector<cudaEvent_t> events(repeats + 1);
    for (cudaEvent_t& event : events) CUDA_CHECK(cudaEventCreate(&event));

    for (int i = 0; i < warmUps; ++i) launch();
    CUDA_CHECK(cudaEventRecord(events[0]));
    for (int i = 0; i < repeats; ++i) {
        launch();
        CUDA_CHECK(cudaEventRecord(events[i + 1]));
    }
    CUDA_CHECK(cudaEventSynchronize(events[repeats]));

    std::vector<double> times(repeats);
    for (int i = 0; i < repeats; ++i) {
        float milliseconds = 0.0f;
        CUDA_CHECK(cudaEventElapsedTime(&milliseconds, events[i], events[i + 1]));
        times[i] = milliseconds;
    }
    for (cudaEvent_t event : events) CUDA_CHECK(cudaEventDestroy(event));
    return summarise(times);
}
