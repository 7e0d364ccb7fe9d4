"""Occupancy room: how many blocks of a kernel one SM holds, on seven architectures, and what limits it.

Sources: limits per SM and per block from NVIDIA, "CUDA C++ Programming Guide", table "Technical Specifications per
Compute Capability", as also in CCCL's ``cuda/__device/arch_traits.h``; allocation granularities and the order of the
calculation from ``cuda_occupancy.h`` of the CUDA toolkit. The tests hold every result against the latter.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
REGISTER_UNIT = 256  # registers are given to a warp in units of 256: cuda_occupancy.h, RegAllocationGranularity
SUB_PARTITIONS = 4  # an SM's register file is split over four schedulers: cuda_occupancy.h
MAX_THREADS_PER_BLOCK = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_REGISTERS_PER_THREAD = 255
STATIC_SHARED_BYTES = 48 * 1024  # beyond it shared memory must be dynamic and opted in to


@dataclass(frozen=True)
class Sm:
    """One architecture's multiprocessor.

    Attributes:
        arch: "sm_75", …
        cards: a few cards of this architecture.
        max_warps, max_blocks: resident at once.
        registers: 32-bit registers of an SM, also the most that one block may have.
        shared_bytes: the largest part of the L1 that an SM gives to shared memory.
        shared_per_block: the most one block may use, opted in to.
        shared_reserved: what the system takes of each block's shared memory.
        shared_unit: shared memory is given in units of so many bytes (cuda_occupancy.h, SMemAllocationGranularity).
    """

    arch: str
    cards: str
    max_warps: int
    max_blocks: int
    registers: int
    shared_bytes: int
    shared_per_block: int
    shared_reserved: int
    shared_unit: int


def _sm(arch: str, cards: str, max_warps: int, max_blocks: int, shared_kb: int) -> Sm:
    ampere_on = arch != "sm_75"  # from 8.0 on the system keeps 1 KB of each block's shared memory
    reserved = 1024 if ampere_on else 0
    unit = 128 if ampere_on else 256
    shared = shared_kb * 1024
    return Sm(arch, cards, max_warps, max_blocks, 65536, shared, shared - reserved, reserved, unit)


ARCHITECTURES: dict[str, Sm] = {
    sm.arch: sm
    for sm in (
        _sm("sm_75", "T4, RTX 20", 32, 16, 64),
        _sm("sm_80", "A100", 64, 32, 164),
        _sm("sm_86", "A10, RTX 30", 48, 16, 100),
        _sm("sm_89", "L4, RTX 40", 48, 24, 100),
        _sm("sm_90", "H100, H200", 64, 32, 228),
        _sm("sm_100", "B200", 64, 32, 228),
        _sm("sm_120", "RTX 50", 48, 24, 100),
    )
}


@dataclass(frozen=True)
class Occupancy:
    """How full one SM can be.

    Attributes:
        arch: "sm_75", …
        blocks: blocks resident on one SM; 0 means that the card refuses the launch.
        warps: warps resident on one SM.
        max_warps: the most that an SM holds.
        limits: blocks that would fit if only this limited them, by "warps", "blocks", "registers", "shared memory".
    """

    arch: str
    blocks: int
    warps: int
    max_warps: int
    limits: dict[str, int]

    @property
    def percent(self) -> float:
        """Theoretical occupancy: resident warps of the possible ones, in percent."""
        return 100.0 * self.warps / self.max_warps

    @property
    def limited_by(self) -> tuple[str, ...]:
        """What allows no more blocks; several when they tie."""
        return tuple(name for name, blocks in self.limits.items() if blocks == self.blocks)

    def __str__(self) -> str:
        if not self.blocks:
            return f"{self.arch}: the card refuses this launch: too much of {' and '.join(self.limited_by)} per block"
        return (
            f"{self.arch}: {self.percent:.0f} % ({self.warps} of {self.max_warps} warps, {self.blocks} blocks per SM), "
            f"limited by {' and '.join(self.limited_by)}"
        )


def sm(arch: str) -> Sm:
    """The multiprocessor of an architecture ("sm_90a" is sm_90).

    Raises:
        ValueError: an architecture that is not in the table; the message names those that are.
    """
    found = ARCHITECTURES.get(arch.rstrip("af"))
    if found is None:
        raise ValueError(f"no occupancy data for {arch}; there is for {', '.join(ARCHITECTURES)}")
    return found


def occupancy(arch: str, threads: int, registers: int, shared_bytes: int = 0) -> Occupancy:
    """Theoretical occupancy of a launch.

    The SM is taken to give shared memory its largest share of the L1, which the driver does when that lets more blocks
    in; `ncu` reports the share that it really chose.

    Args:
        arch: "sm_75", …
        threads: threads per block.
        registers: per thread, as ptxas reports them.
        shared_bytes: static plus dynamic shared memory per block.

    Raises:
        ValueError: unknown architecture, or a block that no card takes (0 or more than 1024 threads).
    """
    card = sm(arch)
    if not 1 <= threads <= MAX_THREADS_PER_BLOCK:
        raise ValueError(f"a block has 1 to {MAX_THREADS_PER_BLOCK} threads, not {threads}")
    warps = -(-threads // WARP)
    limits = {
        "warps": card.max_warps // warps,
        "blocks": card.max_blocks,
        "registers": _blocks_by_registers(card, warps, registers),
        "shared memory": _blocks_by_shared(card, shared_bytes),
    }
    blocks = min(limits.values())
    return Occupancy(card.arch, blocks, blocks * warps, card.max_warps, limits)


def _blocks_by_registers(card: Sm, warps: int, registers: int) -> int:
    per_warp = max(-(-registers * WARP // REGISTER_UNIT), 1) * REGISTER_UNIT
    all_partitions = -(-warps // SUB_PARTITIONS) * SUB_PARTITIONS  # the card's check fills all four partitions
    if registers > MAX_REGISTERS_PER_THREAD or per_warp * all_partitions > card.registers:
        return 0
    warps_per_partition = card.registers // SUB_PARTITIONS // per_warp
    return warps_per_partition * SUB_PARTITIONS // warps


def _blocks_by_shared(card: Sm, shared_bytes: int) -> int:
    if shared_bytes > card.shared_per_block:
        return 0
    units = -(-(shared_bytes + card.shared_reserved) // card.shared_unit)
    return card.shared_bytes // (max(units, 1) * card.shared_unit)
