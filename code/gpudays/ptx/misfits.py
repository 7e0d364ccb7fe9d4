"""Tracer, room 11: requests that do not simply fit the buffer of their site — the first one, and the wrong ones.

The first request of a memory instruction, and one whose lanes lie in several buffers, are legal: the site learns its
buffer, or the lanes are moved here (from then on by compiled code: memory_ir.py, straddling). An address outside every
buffer, or misaligned, is a finding.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from gpudays.ptx import layout as at
from gpudays.ptx.global_races import is_strong
from gpudays.ptx.parser import Address
from gpudays.ptx.provenance import UNKNOWN
from gpudays.ptx.shapes import costs

if TYPE_CHECKING:
    from gpudays.ptx.checks import Observer
    from gpudays.ptx.launch import Buffer

MAX_FAULTS = 500  # faulty requests after which a share of the launch is abandoned: a GPU stops at the first


class Access:
    """One request that did not simply fit the buffer of its site."""

    def __init__(self, observer: Observer, warp: int, pointer: int, addresses, active, space: str):
        self.o, self.warp, self.pointer, self.space = observer, observer.warp_number(warp), pointer, space
        self.addresses, self.active = addresses, active
        self.site = observer.site(pointer)
        self.width = self.site.width

    def settle(self) -> int:
        """1: the site now knows the buffer, go on. 0: the request has been done here, lane by lane."""
        aligned = self.addresses % self.width == 0
        homes = self.homes()
        wanted = [homes[lane] for lane in np.flatnonzero(self.active)]
        if aligned[self.active].all() and wanted and all(h is not None and h is wanted[0] for h in wanted):
            if self.space != "global":
                raise AssertionError("a fitting access was taken for a misfit")
            self.remember(wanted[0])
            return 1
        good = np.array([h is not None for h in homes]) & aligned & self.active
        if self.site.op == "ld":  # a load that fails gives 0
            self.o.m.memory[at.STAGE : at.STAGE_2] = 0
        if self.site.op in ("ld", "st"):
            self.copy(good, homes)
        else:  # where some lanes of an atomic fail, none of them takes effect
            self.o.m.memory[at.STAGE_2 : at.STAGE_2 + at.STAGE_ROW] = 0
        for lane in np.flatnonzero(self.active & ~good):
            if aligned[lane]:
                self.outside(int(lane))
            else:
                self.misaligned(int(lane))
        self.account(good)
        if (self.active & ~good).any():
            self.o.faults += 1
            if self.o.faults >= MAX_FAULTS:
                self.o.stop()
        return 0

    def homes(self) -> list:
        """For each lane the buffer or window that holds the whole of its access, or None."""
        if self.space != "global":
            inside = self.active & (self.addresses >= 0) & (self.addresses <= self.size() - self.width)
            return ["window" if on else None for on in inside]
        homes: list = [None] * at.LANES
        words = self.o.m.sites[self.o.site_number(self.pointer)].view(np.uint64)
        for number, b in enumerate(self.o.m.launch.buffers):
            # Not address + width: that sum wraps for a wild pointer.
            inside = self.active & (self.addresses >= b.low) & (self.addresses <= b.high - self.width)
            if inside.any():
                self.o.touch(self.site, b)
                if number < at.BUFFER_LIMIT:
                    words[at.TOUCHED // 8] |= np.uint64(1 << number)
                for lane in np.flatnonzero(inside):
                    homes[lane] = b
        return homes

    def size(self) -> int:
        if self.space == "shared":
            return int(self.o.m.memory.view(np.int64)[at.SHARED_SIZE // 8])
        return self.o.m.kernel.local_bytes

    def remember(self, buffer: Buffer) -> None:
        words = self.o.m.sites[self.o.site_number(self.pointer)].view(np.int64)
        words[at.OTHER // 8 : at.OTHER // 8 + len(at.HOME)] = [words[field // 8] for field in at.HOME]
        words[at.LOW // 8], words[at.HIGH // 8] = buffer.low, buffer.high
        words[at.SHIFT // 8] = buffer.host - buffer.low
        records = None if is_strong(self.site.instruction) else self.o.m.global_records.of(buffer)
        if records is not None:
            words[at.GLOBAL_WRITES // 8], words[at.GLOBAL_READS // 8] = (r.ctypes.data for r in records)
        else:
            words[at.GLOBAL_WRITES // 8] = words[at.GLOBAL_READS // 8] = 0

    def host(self, lane: int, home) -> int:
        address = int(self.addresses[lane])
        m = self.o.m
        if self.space == "global":
            return home.host + address - home.low
        if self.space == "shared":
            return m.shared.ctypes.data + address
        return m.local.ctypes.data + (self.warp * at.LANES + lane) * m.kernel.local_bytes + address

    def copy(self, good: np.ndarray, homes: list) -> None:
        """Move the lanes' bytes between memory and the staging area, where all of an access lies in one place.

        Lanes of one global buffer move together.
        """
        lanes = np.flatnonzero(good)
        for home in {id(homes[lane]): homes[lane] for lane in lanes}.values():
            mine = np.array([lane for lane in lanes if homes[lane] is home])
            if self.space != "global":
                for lane in mine:
                    self.move(mine=np.array([lane]), host=self.host(int(lane), home), size=self.width, at_=[0])
            else:
                self.move(mine, home.host, home.high - home.low, self.addresses[mine] - home.low)

    def move(self, mine: np.ndarray, host: int, size: int, at_) -> None:
        """Move lanes' bytes from or to offsets `at_` in `size` bytes at `host`; stores in the order of the lanes."""
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(host))
        count = self.components()
        part = self.width // count
        stage = self.o.m.memory[at.STAGE : at.STAGE_2].reshape(4, at.STAGE_ROW)
        for c in range(count):
            rows = stage[c, : at.LANES * part].reshape(at.LANES, part)
            where = np.asarray(at_, np.int64)[:, None] + np.arange(c * part, (c + 1) * part)
            if self.site.op == "ld":
                rows[mine] = memory[where]
            else:
                memory[where] = rows[mine]

    def components(self) -> int:
        i = self.site.instruction
        if i.parts[0] == "cp":
            return self.width // 4
        return next((int(p[1:]) for p in i.parts if p in ("v2", "v4", "v8")), 1)

    def account(self, good: np.ndarray) -> None:
        words = self.o.m.sites[self.o.site_number(self.pointer)].view(np.int64)
        words[at.REQUESTS // 8] += 1
        words[at.ACTIVE_LANES // 8] += int(self.active.sum())
        if good.any():
            kind = self.space if self.space != "shared" else f"shared.{self.site.op}"
            words[at.COST // 8] += costs(kind, self.width, self.addresses, good)
            if self.space == "shared":
                words[at.CONFLICTS // 8] += costs(f"conflicts.{self.site.op}", self.width, self.addresses, good)

    # -- what to say

    def verb(self) -> str:
        return "reads" if self.site.op == "ld" else "writes"

    def misaligned(self, lane: int) -> None:
        thread = self.warp * at.LANES + lane
        address = int(self.addresses[lane])
        self.o.report(
            "misaligned", self.site.instruction.line, thread,
            f"misaligned: thread {self.o.thread(thread)} {self.verb()} {self.width} bytes at {self.where(address)}, "
            f"which is {address % self.width} past a multiple of {self.width}",
        )  # fmt: skip

    def outside(self, lane: int) -> None:
        thread = self.warp * at.LANES + lane
        address = int(self.addresses[lane])
        self.o.report(
            "out-of-bounds", self.site.instruction.line, thread,
            f"out-of-bounds: thread {self.o.thread(thread)} {self.verb()} {self.width} bytes at {self.where(address)}",
        )  # fmt: skip

    def meant(self, buffers: list[Buffer]) -> Buffer | None:
        """The only buffer that this instruction's address can have been computed from, if there is just one."""
        names = set().union(
            *(self.o.m.kernel.origin.address(o) for o in self.site.instruction.operands if isinstance(o, Address))
        )
        params = [p.name for p in self.o.m.kernel.function.params]
        found = [b for b in buffers if (params[b.index] if b.index >= 0 else b.name) in names]
        return found[0] if len(found) == 1 and UNKNOWN not in names else None

    def where(self, address: int) -> str:
        """An address in the words of the buffer that was meant, or of the nearest."""
        if self.space != "global":
            size = self.size()
            return f"byte {address} of {self.space} memory, which has {size} bytes"
        buffers = self.o.m.launch.buffers
        if not buffers:
            return f"address {address:#x}; the launch has no buffer"
        near = self.meant(buffers) or min(buffers, key=lambda b: max(b.low - address, address - b.high + 1, 0))
        size = near.high - near.low
        what = f"{near.name} ({size} bytes)"
        if address + self.width <= near.low:
            return f"address {address:#x}, {near.low - address} bytes before the start of {what}"
        if address >= near.high:
            return f"address {address:#x}, {address - near.high} bytes past the end of {what}"
        if address + self.width > near.high:
            return f"byte {address - near.low} of {what}: it runs {address + self.width - near.high} bytes past the end"
        return f"byte {address - near.low} of {what}"


def plain_name(symbol: str) -> str:
    """`tileA` from a mangled local name such as `_ZZ11matmulTiledE5tileA`; others as they are."""
    if symbol.startswith("_ZZ"):
        tail = symbol.rsplit("E", 1)[-1]
        digits = "".join(c for c in tail[:3] if c.isdigit())
        if digits and tail.startswith(digits):
            return tail[len(digits) : len(digits) + int(digits)]
    return symbol
