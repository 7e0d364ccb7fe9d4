"""Headers room: what a kernel may use of headers that NVRTC does not have, declared without them.

Each entry is what the C++ standard library or the host's C library declares under that name, for 64-bit Linux.
"""

from __future__ import annotations

import re
from collections.abc import Set

# Headers of the CUDA toolkit that declare things for device code; all others are the host's business.
DEVICE_HEADERS = re.compile(
    r"^(cooperative_groups(/\w+)?\.h|cuda_fp16\.hp?p?|cuda_bf16\.hp?p?|mma\.h|cuda_pipeline(_primitives)?\.h)$"
)

TYPES = {
    "int8_t": "signed char", "int16_t": "short", "int32_t": "int", "int64_t": "long", "uint8_t": "unsigned char",
    "uint16_t": "unsigned short", "uint32_t": "unsigned int", "uint64_t": "unsigned long", "uint": "unsigned int",
    "ushort": "unsigned short", "ulong": "unsigned long", "uintptr_t": "unsigned long", "intptr_t": "long",
    "ssize_t": "long",
}  # fmt: skip
VALUES = {
    "FLT_MAX": "float FLT_MAX = 3.402823466e+38f",
    "FLT_MIN": "float FLT_MIN = 1.175494351e-38f", "FLT_EPSILON": "float FLT_EPSILON = 1.192092896e-07f",
    "INT_MAX": "int INT_MAX = 2147483647", "INT_MIN": "int INT_MIN = -2147483647 - 1",
    "UINT_MAX": "unsigned int UINT_MAX = 4294967295u",
}  # fmt: skip
STD = {
    "size_t": "using ::size_t;",
    "min": "template <class T> __device__ constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }",
    "max": "template <class T> __device__ constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }",
    "fma": "using ::fma; __device__ inline float fma(float a, float b, float c) { return fmaf(a, b, c); }",
}


def stand_ins(names: Set[str]) -> str:
    """Declarations, on one line, for those of the names that a host header would have declared; "" for none."""
    found = [f"using {name} = {TYPES[name]};" for name in sorted(names & TYPES.keys())]
    found += [f"constexpr {VALUES[name]};" for name in sorted(names & VALUES.keys())]
    if "std" in names:
        std = [STD[name] for name in sorted(names & STD.keys())]
        std += [f"using ::{name};" for name in sorted(names & TYPES.keys())]
        found.append(f"namespace std {{ {' '.join(std)} }}")
    return " ".join(found)
