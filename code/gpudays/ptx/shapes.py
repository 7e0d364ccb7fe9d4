"""Tracer, room 8: the shapes of address vectors, worked out in Python when they are first seen (layout.py: Shape)."""

from __future__ import annotations

import numpy as np

from gpudays.ptx import accounting
from gpudays.ptx import layout as at

ARENA = 256  # shapes per piece of memory
_FULL = 0xFFFFFFFF


def costs(kind: str, width: int, addresses: np.ndarray, active: np.ndarray) -> int:
    """What one request costs: sectors for global and local memory, wavefronts or conflicts for shared."""
    a, m = addresses[None], active[None]
    name, _, op = kind.partition(".")
    if name == "global":
        return int(accounting.sectors(a, m)[0])
    if name == "local":
        return local_sectors(addresses, width, active)
    if name == "shared":
        return int(accounting.shared_wavefronts(a, width, m, op)[0])
    return int(accounting.shared_conflicts(a, width, m, op)[0])


def local_sectors(addresses: np.ndarray, width: int, active: np.ndarray) -> int:
    """Sectors of a local access: the hardware lays word w of all 32 lanes side by side, 128 bytes per word."""
    words = addresses[active, None] // 4 + np.arange(max(1, width // 4))
    lanes = np.flatnonzero(active)[:, None]
    return len(np.unique(words * 4 + lanes // 8))


class Shapes:
    """All shapes of one OS thread's run. A shape, once made, stays where it is."""

    def __init__(self):
        self.known: dict[tuple[int, bytes], int] = {}
        self.pieces: list[np.ndarray] = []
        self.used = ARENA

    def find(self, delta: np.ndarray, mask: int) -> int:
        """The host address of the shape of `delta` (int64[32]) under `mask`."""
        active = lanes_of(mask)
        delta = np.where(active, delta, 0)
        key = (mask, delta.tobytes())
        if key not in self.known:
            self.known[key] = self._make(delta, mask, active)
        return self.known[key]

    def _make(self, delta: np.ndarray, mask: int, active: np.ndarray) -> int:
        if self.used == ARENA:
            raw = np.zeros(ARENA * at.SHAPE_SIZE + 64, np.uint8)
            skip = -raw.ctypes.data % 64
            self.pieces.append(raw[skip : skip + ARENA * at.SHAPE_SIZE].reshape(ARENA, at.SHAPE_SIZE))
            self.used = 0
        shape = self.pieces[-1][self.used]
        self.used += 1
        fill(shape, delta, mask, active)
        return shape.ctypes.data

    def cost(self, address: int, position: int, row: int) -> int:
        """Work out the cost that a routine asks for, and remember it in the shape."""
        shape = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * at.SHAPE_SIZE).from_address(address))
        index = (row - at.COSTS) // at.COST_ROW
        kind, width = at.COST_KINDS[index // at.WIDTHS], 1 << index % at.WIDTHS
        delta = shape[at.DELTA : at.OFFSETS].view(np.int64)
        active = lanes_of(int(shape[at.MASK : at.MASK + 4].view(np.uint32)[0]))
        # a multiple of 4 KiB that keeps every lane's address positive leaves the cost as it is
        origin = position + (1 << 40)
        value = costs(kind, width, origin + delta, active)
        shape[row + position] = value
        return value


def lanes_of(mask: int) -> np.ndarray:
    """bool[32] from the bits of a mask."""
    return (mask >> np.arange(at.LANES) & 1).astype(bool)


def fill(shape: np.ndarray, delta: np.ndarray, mask: int, active: np.ndarray) -> None:
    """Write everything that routines read of a shape into its bytes."""
    some = delta[active]
    shape[at.COSTS :] = at.UNKNOWN
    shape[at.DELTA : at.OFFSETS].view(np.int64)[:] = delta
    values, first, counts = np.unique(some, return_index=True, return_counts=True)
    owners = np.where(counts > 1, at.MANY, np.flatnonzero(active)[first])
    shape[at.OFFSETS : at.OWNERS].view(np.int64)[: len(values)] = values
    shape[at.OWNERS : at.COSTS].view(np.int64)[: len(values)] = owners
    header = shape[: at.DELTA]
    header.view(np.uint32)[at.MASK // 4] = mask
    header.view(np.uint32)[at.DISTINCT // 4] = len(values)
    numbers = header.view(np.int64)
    least, most = int(some.min()), int(some.max())
    if most - least > 1 << 62:  # sums with a base could wrap round: make the bounds check fail
        least, most = 0, 1 << 62
    numbers[at.LEAST // 8], numbers[at.MOST // 8] = least, most
    numbers[at.BITS // 8] = np.bitwise_or.reduce(some)
    for n in range(at.WIDTHS):
        header[at.PATTERN + n] = pattern(delta, mask, 1 << n)


def pattern(delta: np.ndarray, mask: int, width: int) -> int:
    """How the lanes' addresses lie, for the copying: all the same, one row, two halves, or anything."""
    if mask.bit_count() == 1 or len(np.unique(delta[lanes_of(mask)])) == 1:
        return at.SAME
    if mask != _FULL:
        return at.GATHER
    steps = np.diff(delta)
    halves = np.delete(steps, at.LANES // 2 - 1)
    if (steps == width).all():
        return at.ROW
    if (halves == width).all():
        return at.HALF_ROWS
    if (halves == 0).all():
        return at.HALF_SAME
    return at.GATHER
