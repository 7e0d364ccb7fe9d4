"""Tracer, room 8: what Python knows of shapes (layout.py: Shape) — their costs by the rules of accounting.py."""

from __future__ import annotations

import ctypes

import numpy as np

from gpudays.ptx import accounting
from gpudays.ptx import layout as at


def costs(kind: str, width: int, addresses: np.ndarray, active: np.ndarray) -> int:
    """What one request costs: sectors for global and local memory, wavefronts or conflicts for shared."""
    a, m = addresses[None], active[None]
    name, _, op = kind.partition(".")
    if name == "global":
        return int(accounting.sectors(a, m)[0])
    if name == "local":
        return int(accounting.sectors(*accounting.interleaved(a, width, m))[0])
    if name == "shared":
        return int(accounting.shared_wavefronts(a, width, m, op)[0])
    return int(accounting.shared_conflicts(a, width, m, op)[0])


def cost_of(address: int, position: int, row: int) -> int:
    """The cost that a routine asks for: of the shape at a host address, its base `position` bytes into a sector."""
    shape = np.ctypeslib.as_array((ctypes.c_uint8 * at.SHAPE_SIZE).from_address(address))
    index = (row - at.COSTS) // at.COST_ROW
    kind, width = at.COST_KINDS[index // at.WIDTHS], 1 << index % at.WIDTHS
    delta = shape[at.DELTA : at.OFFSETS].view(np.int64)
    active = lanes_of(int(shape[at.MASK : at.MASK + 4].view(np.uint32)[0]))
    # a multiple of 4 KiB that keeps every lane's address positive leaves the cost as it is
    return costs(kind, width, position + (1 << 40) + delta, active)


def lanes_of(mask: int) -> np.ndarray:
    """bool[32] from the bits of a mask."""
    return (mask >> np.arange(at.LANES) & 1).astype(bool)
