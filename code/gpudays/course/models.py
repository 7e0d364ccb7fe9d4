"""Models room: what a matrix-multiply kernel costs on paper, in floats, requests, sectors and operations.

All counts are exact where every block is whole (sizes that are multiples of the tile); the tracer counts the rest. The
derivations stand on the pages.
"""

from __future__ import annotations

from gpudays.course.geometry import FLOAT_BYTES, WARP_SIZE

TILE = 16
MIB = 2**20


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up, for positive integers."""
    return -(-a // b)


def naive_loads_per_thread(k: int) -> int:
    """Floats that a thread reads when every operand comes from global memory: one of A and one of B per k."""
    return 2 * k


def tiled_loads_per_thread(k: int, tile: int = TILE) -> int:
    """Floats that a thread reads when a block of tile × tile threads stages A and B: one of each per tile step."""
    return 2 * ceil_div(k, tile)


def load_limit(k: int, tile: int = TILE, slack: int = 8) -> int:
    """The exercise's bound on the floats that a thread of a tiled kernel reads: 72 at k = 512."""
    return tiled_loads_per_thread(k, tile) + slack


def requests(loads_per_thread: int, threads: int) -> int:
    """Warp-level load instructions when all lanes of every warp load together: loads per thread × warps."""
    return loads_per_thread * threads // WARP_SIZE


def flops(m: int, n: int | None = None, k: int | None = None) -> int:
    """Floating-point operations of C = A·B: a multiply and an add per product. ``flops(n)`` for squares."""
    return 2 * m * (m if n is None else n) * (m if k is None else k)


def matrix_bytes(m: int, n: int | None = None, k: int | None = None) -> int:
    """Bytes of A, B and C together, in floats. ``matrix_bytes(n)`` for squares: 3 MiB at 512, 12 MiB at 1024."""
    n, k = (m if n is None else n), (m if k is None else k)
    return FLOAT_BYTES * (m * k + k * n + m * n)


def size_past_l2(l2_bytes: int) -> int:
    """The first power of two whose three square matrices exceed twice an L2: 1024 on a T4, 4096 on an H200.

    Raises:
        ValueError: the L2 size is not positive.
    """
    if l2_bytes <= 0:
        raise ValueError(f"an L2 of {l2_bytes} bytes: no size can be said to leave it")
    n = 1
    while matrix_bytes(n) <= 2 * l2_bytes:
        n *= 2
    return n
