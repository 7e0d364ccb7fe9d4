// Command lines, shared by the course's standalone programs: everything here runs before CUDA is touched.
#pragma once

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "checking.cuh"

constexpr int EXIT_USAGE = 2;

[[noreturn]] inline void usageError(const std::string& what, const char* usage) {
    std::fprintf(stderr, "%s\n%s", what.c_str(), usage);
    std::exit(EXIT_USAGE);
}

// The word after option argv[i]; moves i onto it.
inline const char* valueOf(int argc, char** argv, int& i, const char* usage) {
    if (i + 1 >= argc) usageError(std::string(argv[i]) + " needs a value", usage);
    return argv[++i];
}

inline int positiveInt(const std::string& name, const char* text, const char* usage) {
    char* end = nullptr;
    errno = 0;
    const long value = std::strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < 1 || value > INT_MAX) {
        usageError(name + " must be a whole number of at least 1, not '" + text + "'", usage);
    }
    return int(value);
}

// The kernels index with int, as BLAS does, and step past an edge by up to a tile; a grid has at most 65,535 blocks in
// y. `rowsPerBlock` is that of the kernel with the lowest blocks.
inline void requireLaunchable(Size size, int rowsPerBlock, const char* usage) {
    constexpr long long MOST_ELEMENTS = INT_MAX - 256, MOST_BLOCKS_Y = 65535;
    const long long largest = std::max({1LL * size.m * size.k, 1LL * size.k * size.n, 1LL * size.m * size.n});
    if (largest > MOST_ELEMENTS) {
        usageError(size.text() + " has a matrix of " + std::to_string(largest) +
                       " elements; the kernels index with int, at most " + std::to_string(MOST_ELEMENTS),
                   usage);
    }
    if (size.m > MOST_BLOCKS_Y * rowsPerBlock) {
        usageError("M can be at most " + std::to_string(MOST_BLOCKS_Y * rowsPerBlock) + " here, not " +
                       std::to_string(size.m) + ": a grid has 65,535 blocks in y",
                   usage);
    }
}
