"""Oracle, room 3: where bytes live — global buffers, and the private copies of shared, local and parameter space.

Addresses are what a kernel computes with; positions are where NumPy finds the byte. Global buffers lie 256 bytes apart
at least and start at multiples of 256, as `cudaMalloc` gives them, with a gap after each so that an index one past the
end hits nothing. A generic address is a global address, or an offset inside the shared or the local window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudays.ptx.model import BUFFER_ALIGNMENT, LaunchError
from gpudays.ptx.parser import Module, Symbol, Variable

GLOBAL_BASE = 0x7F0000000000
SHARED_WINDOW = 0x7E0000000000
LOCAL_WINDOW = 0x7D0000000000
WINDOW_BYTES = 1 << 32
_GAP = BUFFER_ALIGNMENT


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step


class Image:
    """Bytes, with reads and writes of aligned elements at many positions at once."""

    def __init__(self, size: int):
        self.bytes = np.zeros(round_up(max(size, 1), 16), np.uint8)

    def read(self, positions: np.ndarray, dtype: np.dtype) -> np.ndarray:
        return self.bytes.view(dtype)[positions // dtype.itemsize]

    def write(self, positions: np.ndarray, values: np.ndarray, dtype: np.dtype) -> None:
        self.bytes.view(dtype)[positions // dtype.itemsize] = values


class Private(Image):
    """`copies` windows of `size` bytes: one per block (shared) or per thread (local, parameters)."""

    def __init__(self, copies: int, size: int):
        self.size, self.stride = size, round_up(max(size, 1), 16)
        super().__init__(copies * self.stride)


@dataclass(frozen=True)
class Buffer:
    """A stretch of global memory: a launch argument (`index` among the array arguments) or a variable (`index` −1)."""

    name: str
    start: int  # position in the image; its address is GLOBAL_BASE + start
    size: int
    index: int = -1
    array: np.ndarray | None = None

    @property
    def address(self) -> int:
        return GLOBAL_BASE + self.start


class GlobalMemory(Image):
    """The launch's arrays and the module's `__device__` and `__constant__` variables."""

    def __init__(self, arrays: list[tuple[str, np.ndarray]], module: Module):
        start, buffers = 0, []
        for index, (name, array) in enumerate(arrays):
            if not array.flags.c_contiguous:
                raise LaunchError(f"argument {name}: the array is not contiguous; pass np.ascontiguousarray(...)")
            buffers.append(Buffer(name, start, array.nbytes, index, array))
            start = round_up(start + array.nbytes + _GAP, BUFFER_ALIGNMENT)
        variables = [v for v in module.variables if v.space in ("global", "const")]
        for variable in variables:
            buffers.append(Buffer(variable.name, start, variable.size))
            start = round_up(start + variable.size + _GAP, BUFFER_ALIGNMENT)
        super().__init__(start)
        self.buffers = buffers
        self.starts = np.array([b.start for b in buffers], np.int64)
        self.sizes = np.array([b.size for b in buffers], np.int64)
        self.by_name = {b.name: b for b in buffers if b.index < 0}
        self._fill(variables)

    def _fill(self, variables: list[Variable]) -> None:
        for buffer in self.buffers:
            if buffer.array is not None:
                self._bytes_of(buffer)[:] = buffer.array.reshape(-1).view(np.uint8)
        for variable in variables:
            if variable.data is None:
                continue
            data = self._bytes_of(self.by_name[variable.name])
            data[:] = np.frombuffer(variable.data, np.uint8)
            for offset, symbol in variable.addresses:
                data[offset : offset + 8] = np.array([self.address_of(symbol)], np.uint64).view(np.uint8)

    def _bytes_of(self, buffer: Buffer) -> np.ndarray:
        return self.bytes[buffer.start : buffer.start + buffer.size]

    def address_of(self, symbol: Symbol) -> int:
        return self.by_name[symbol.name].address + symbol.offset

    def copy_back(self) -> None:
        """Write the buffers back into the caller's arrays (those that are writeable)."""
        for buffer in self.buffers:
            if buffer.array is not None and buffer.array.flags.writeable:
                buffer.array.reshape(-1).view(np.uint8)[:] = self._bytes_of(buffer)

    def owner(self, addresses: np.ndarray) -> np.ndarray:
        """The number of the buffer at or below each address; −1 below the first."""
        return np.searchsorted(self.starts, addresses - GLOBAL_BASE, side="right") - 1

    def inside(self, addresses: np.ndarray, width: int) -> np.ndarray:
        """Whether `width` bytes at each address lie in one buffer."""
        owner = self.owner(addresses)
        if not self.buffers:
            return owner >= 0
        offset = addresses - GLOBAL_BASE - self.starts[owner]
        return (owner >= 0) & (offset + width <= self.sizes[owner])

    def describe(self, address: int, width: int) -> str:
        """Where an address outside every buffer lies, measured from the nearest one."""
        if not self.buffers:
            return f"address {address:#x}, and the kernel was given no buffer"
        before = max(int(self.owner(np.array([address]))[0]), 0)
        near = min(self.buffers[before : before + 2], key=lambda b: _distance(b, address))
        past = address - near.address - near.size
        where = f"{past + 1} bytes after the end" if past >= 0 else f"reaching {past + width} bytes past the end"
        if address < near.address:
            where = f"{near.address - address} bytes before the start"
        return f"{where} of {near.name} ({near.size} bytes)"


def _distance(buffer: Buffer, address: int) -> int:
    return max(buffer.address - address, address - buffer.address - buffer.size, 0)


def place(variables: list[Variable], start: int = 0) -> tuple[dict[str, int], int]:
    """Offsets for variables laid one after the other, each on its own alignment; returns them and the end."""
    offsets, end = {}, start
    for variable in variables:
        end = round_up(end, max(variable.align, 1))
        offsets[variable.name] = end
        end += variable.size
    return offsets, end
