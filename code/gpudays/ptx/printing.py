"""Tracer, room 11: printf — the format and its arguments are read from device memory and put into text.

Source: NVIDIA, "CUDA C++ Programming Guide", "Formatted Output": arguments lie one after the other, each aligned to its
size, 4 bytes for int, 8 for long, double and pointers.
"""

from __future__ import annotations

import ctypes
import re
import struct
from typing import TYPE_CHECKING

from gpudays.ptx import layout as at

if TYPE_CHECKING:
    from gpudays.ptx.checks import Observer

_CONVERSION = re.compile(r"%([-+ #0]*)(\d+|\*)?(?:\.(\d+|\*))?(hh|h|ll|l|z|j|t)?([diouxXcsfFeEgGaAp%])")
LONGEST = 4096


def text_at(o: Observer, address: int) -> str:
    """The C string at a generic address; what lies in no buffer is told as such."""
    for b in o.m.launch.buffers:
        if b.low <= address < b.high:
            raw = bytes(b.array[address - b.low : address - b.low + LONGEST])
            return raw.split(b"\0", 1)[0].decode("utf-8", "replace")
    return f"<no text at {address:#x}>"


def formatted(o: Observer, text: str, arguments: int, thread: int) -> str:
    """`text` with its conversions filled in from the argument block at the generic address `arguments`."""
    frame = o.m.kernel.local_bytes
    start = arguments - at.LOCAL_WINDOW
    block = b""
    if 0 <= start <= frame:
        block = ctypes.string_at(o.m.local.ctypes.data + thread * frame + start, frame - start)
    place = 0

    def take(size: int, code: str):
        nonlocal place
        place = (place + size - 1) // size * size
        piece = block[place : place + size].ljust(size, b"\0")
        place += size
        return struct.unpack("<" + code, piece)[0]

    def one(match: re.Match[str]) -> str:
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        width = str(take(4, "i")) if width == "*" else width or ""
        precision = str(take(4, "i")) if precision == "*" else precision
        shape = f"%{flags}{width}" + (f".{precision}" if precision is not None else "")
        if kind in "fFeEgGaA":
            value = take(8, "d")
            return (shape + kind) % value if kind not in "aA" else value.hex()
        if kind == "s":
            return (shape + "s") % text_at(o, take(8, "q"))
        if kind == "p":
            return f"{take(8, 'Q'):#x}"
        wide = length in ("l", "ll", "z", "j", "t")
        signed = kind in "dic"
        value = take(8 if wide else 4, ("q" if signed else "Q") if wide else ("i" if signed else "I"))
        if kind == "c":
            return (shape + "c") % (value & 0xFF)
        return (shape + {"i": "d", "u": "d"}.get(kind, kind)) % value

    return _CONVERSION.sub(one, text)
