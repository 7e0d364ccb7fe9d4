"""Oracle, room 3b: a launch — grid and block, and the arguments matched with the kernel's parameters.

Limits: NVIDIA, "CUDA C++ Programming Guide", "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gpudays.ptx.model import LaunchError
from gpudays.ptx.parser import Function, Variable

MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)

Index = tuple[int, int, int]


@dataclass(frozen=True)
class Launch:
    """Grid, block, and the arguments matched with the kernel's parameters.

    `arrays` are the array arguments (parameter name, array); `values` holds, per parameter, the number of its array or
    the bytes of its scalar. `blocks` are the block indices that run, in order.
    """

    grid: Index
    block: Index
    shared_bytes: int
    arrays: list[tuple[str, np.ndarray]]
    values: list[int | bytes]
    blocks: list[Index] = field(repr=False)

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks_total(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    def thread_index(self, thread: int) -> Index:
        """The (x, y, z) of a thread from its linear number in the block."""
        x, y, _ = self.block
        return (thread % x, thread // x % y, thread // (x * y))

    def parameter_bytes(self, addresses: list[int]) -> list[bytes]:
        """What the card would find in parameter space: scalars as they are, arrays as their device address."""
        return [v if isinstance(v, bytes) else addresses[v].to_bytes(8, "little") for v in self.values]


def prepare(
    kernel: Function, grid, block, args, shared_bytes: int = 0, blocks: list[Index] | None = None
) -> Launch:  # fmt: skip
    """Check a launch and match its arguments. `grid` and `block` have one to three dimensions.

    Raises `LaunchError` where a card would refuse it or the arguments do not fit.
    """
    grid, block = _dimensions("grid", grid, MAX_GRID), _dimensions("block", block, MAX_BLOCK)
    threads = block[0] * block[1] * block[2]
    if threads > MAX_THREADS:
        raise LaunchError(f"{' x '.join(map(str, block))} is {threads} threads per block; a card takes {MAX_THREADS}")
    promised = int(np.prod(kernel.limits.get("maxntid", (MAX_THREADS,))))
    if threads > promised:
        raise LaunchError(f"{threads} threads per block; the kernel's __launch_bounds__ allows {promised}")
    if shared_bytes < 0:
        raise LaunchError(f"shared_bytes is {shared_bytes}")
    arrays, values = bind_arguments(kernel.params, list(args))
    return Launch(grid, block, shared_bytes, arrays, values, _blocks(grid, blocks))


def _dimensions(what: str, given, limits: Index) -> Index:
    sizes = (given,) if isinstance(given, int | np.integer) else tuple(given)
    if not 1 <= len(sizes) <= 3 or not all(isinstance(s, int | np.integer) for s in sizes):
        raise LaunchError(f"{what}={given!r}: expected one to three integers")
    sizes = (*(int(s) for s in sizes), 1, 1)[:3]
    for axis, size, limit in zip("xyz", sizes, limits, strict=True):
        if not 1 <= size <= limit:
            raise LaunchError(f"{what}.{axis} is {size}; it must lie between 1 and {limit}")
    return sizes


def _blocks(grid: Index, chosen: list[Index] | None) -> list[Index]:
    if chosen is None:
        return [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
    out = [(*(int(i) for i in block), 0, 0)[:3] for block in chosen]
    for block in out:
        if not all(0 <= i < size for i, size in zip(block, grid, strict=True)):
            raise LaunchError(f"block {block} lies outside the grid {grid}")
    return out


def bind_arguments(params: tuple[Variable, ...], args: list) -> tuple[list[tuple[str, np.ndarray]], list]:
    """Match launch arguments with the kernel's parameters.

    Returns the arrays (name, array) and, per parameter, either the number of its array or the bytes of its value.
    Raises `LaunchError` where count, type or size do not fit.
    """
    if len(args) != len(params):
        raise LaunchError(f"the kernel takes {len(params)} arguments, {len(args)} were given")
    arrays: list[tuple[str, np.ndarray]] = []
    values: list[int | bytes] = []
    for number, (param, value) in enumerate(zip(params, args, strict=True)):
        if isinstance(value, np.ndarray):
            if param.size != 8:
                raise LaunchError(f"argument {number} is an array, but the kernel takes {param.size} bytes: no pointer")
            values.append(len(arrays))
            arrays.append((param.name, value))
        elif isinstance(value, np.generic):
            if value.nbytes != param.size:
                raise LaunchError(f"argument {number} is a {value.dtype}, but the kernel takes {param.size} bytes")
            values.append(value.tobytes())
        else:
            kind = type(value).__name__
            raise LaunchError(
                f"argument {number} is a {kind}: pass a NumPy array or a NumPy scalar, such as np.int32(5)"
            )
    return arrays, values
