"""Geometry room: which threads make a warp, and which 32-byte sectors their addresses touch, by hand.

This is the paper model. It computes addresses from index expressions, as a student does with a pencil; the tracer reads
them off the compiled kernel. The pages hold the one against the other.

Source of the two facts used: CUDA C++ Programming Guide, "Thread Hierarchy" (a warp is 32 threads of consecutive
number, x first, then y, then z) and Nsight Compute's documentation, "Sector" (32 bytes, aligned).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

WARP_SIZE = 32
SECTOR_BYTES = 32
FLOAT_BYTES = 4
FLOATS_PER_SECTOR = SECTOR_BYTES // FLOAT_BYTES
BANKS = 32


@dataclass(frozen=True)
class Lanes:
    """The threads of one warp: ``x``, ``y`` and ``z`` are int64 arrays of at most 32 elements, lane by lane."""

    x: np.ndarray
    y: np.ndarray
    z: np.ndarray

    def __len__(self) -> int:
        return len(self.x)


def warp_lanes(block: tuple[int, ...] = (16, 16), warp: int = 0) -> Lanes:
    """threadIdx of each lane of one warp of a block.

    Args:
        block: blockDim as (x,), (x, y) or (x, y, z).
        warp: which warp of the block, from 0.

    Raises:
        ValueError: the block has no such warp, or a dimension is below 1.
    """
    width, height, depth = (*block, 1, 1)[:3]
    if min(width, height, depth) < 1:
        raise ValueError(f"a block of {block} threads: every dimension is at least 1")
    threads = width * height * depth
    first = warp * WARP_SIZE
    if not 0 <= first < threads:
        last = (threads - 1) // WARP_SIZE
        raise ValueError(f"warp {warp} of a block of {threads} threads: its warps are 0 to {last}")
    number = np.arange(first, min(first + WARP_SIZE, threads))
    return Lanes(number % width, number // width % height, number // (width * height))


def sectors(elements: ArrayLike, element_bytes: int = FLOAT_BYTES) -> np.ndarray:
    """The numbers of the 32-byte sectors that a request touches, sorted, each once.

    Args:
        elements: element index of each active lane, any shape; the array starts on a sector boundary, as ``cudaMalloc``
            gives it.
        element_bytes: bytes that a lane reads at its index: 4 for a float, 16 for a float4.
    """
    first = np.asarray(elements, dtype=np.int64).ravel() * element_bytes
    last = first + element_bytes - 1
    longest = int((last // SECTOR_BYTES - first // SECTOR_BYTES).max(initial=0))
    touched = [np.minimum(first // SECTOR_BYTES + step, last // SECTOR_BYTES) for step in range(longest + 1)]
    return np.unique(np.concatenate(touched))


def count_sectors(elements: ArrayLike, element_bytes: int = FLOAT_BYTES) -> int:
    """How many 32-byte sectors a request touches: the length of :func:`sectors`."""
    return len(sectors(elements, element_bytes))


def sectors_per_request(*requests: ArrayLike, element_bytes: int = FLOAT_BYTES) -> float:
    """Mean sectors of several requests that a kernel issues equally often: one array of element indices each."""
    return sum(count_sectors(r, element_bytes) for r in requests) / len(requests)


def count_wavefronts(words: ArrayLike, width_bytes: int = FLOAT_BYTES) -> int:
    """How many turns shared memory takes for one read of a warp.

    A turn, or wavefront, brings at most one word from each of the 32 banks, so 128 bytes; lanes that want the same word
    share it. Wide reads therefore go by groups of lanes that want 128 bytes between them, or twice as many lanes where
    neighbours (lane and lane ^ 1, or lane ^ 2) all want the same.

    Args:
        words: number of the first 4-byte word that each of the 32 lanes reads.
        width_bytes: bytes that a lane reads: 4, 8 or 16.

    Source: CUDA C++ Programming Guide, "Shared Memory" of compute capability 5.x, for the banks; Greg (NVIDIA),
    forums.developer.nvidia.com/t/unexpected-shared-memory-bank-conflict/77228/2, for wide reads.
    """
    first, each = np.asarray(words, dtype=np.int64).ravel(), width_bytes // FLOAT_BYTES
    lane = np.arange(WARP_SIZE)
    paired = each > 1 and any((first == first[lane ^ step]).all() for step in (1, 2))
    groups = each // 2 if paired else each
    return sum(_turns(part, each) for part in np.split(first, groups))


def _turns(first: np.ndarray, each: int) -> int:
    """The most different words that some lanes want from one bank."""
    wanted = np.unique(first[:, None] + np.arange(each))
    return int(np.bincount(wanted % BANKS).max())
