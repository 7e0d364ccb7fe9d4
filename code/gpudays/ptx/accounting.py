"""Tracer, room 4: what the addresses of one warp's memory instruction cost — sectors, wavefronts, conflicts.

Pure functions over many requests at once: `addresses` int64[requests, 32] in bytes, `active` bool[requests, 32],
`width` the bytes per lane (1 to 16). Every access is aligned to its width. Each returns int64[requests].

Sources of the rules
- A global request costs one sector for every 32-byte sector that an active lane touches: NVIDIA, "CUDA C++ Best
  Practices Guide", "Coalesced Access to Global Memory"; the request/sector/wavefront vocabulary is that of "Nsight
  Compute Documentation", "Quantities". For naturally aligned accesses no lane spans two sectors.
- Shared memory has 32 banks of 4 bytes; lanes that touch the same word of a bank share it (broadcast), different words
  of one bank take turns: "CUDA C++ Programming Guide", "Compute Capability 5.x", "Shared Memory".
- The data path returns 128 bytes per wavefront, so 64-bit accesses go by half-warps and 128-bit accesses by
  quarter-warps. Loads whose lanes agree in pairs (lane and lane^1, or lane and lane^2) pack two such phases into one:
  Greg (NVIDIA), https://forums.developer.nvidia.com/t/unexpected-shared-memory-bank-conflict/77228/2
"""

from __future__ import annotations

import numpy as np

from gpudays.ptx.model import BANK_BYTES, BANKS, SECTOR_BYTES, WARP


def words(width: int) -> int:
    """The 4-byte words in an access of `width` bytes; a byte or a half counts as one."""
    return max(1, width // 4)


def sectors(addresses: np.ndarray, active: np.ndarray) -> np.ndarray:
    """The distinct 32-byte sectors that each request's active lanes touch."""
    return _distinct(addresses // SECTOR_BYTES, active).sum(axis=1)


def interleaved(offsets: np.ndarray, width: int, active: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Local memory as it lies in device memory: the same word of the 32 lanes side by side.

    Takes each lane's offset in its own local memory; returns addresses and mask with a column per lane and word.
    Source: "CUDA C++ Programming Guide", "Device Memory Accesses", "Local Memory".
    """
    parts = [offsets + BANK_BYTES * i for i in range(words(width))]
    lane = np.arange(WARP) * BANK_BYTES
    addresses = [o // BANK_BYTES * BANK_BYTES * WARP + lane + o % BANK_BYTES for o in parts]
    return np.concatenate(addresses, axis=1), np.concatenate([active] * len(parts), axis=1)


def shared_wavefronts(addresses: np.ndarray, width: int, active: np.ndarray, op: str) -> np.ndarray:
    """The turns that shared memory takes for each request; `op` is "ld" or "st"."""
    return _phased(_bank_turns, addresses, width, active, op)


def shared_conflicts(addresses: np.ndarray, width: int, active: np.ndarray, op: str) -> np.ndarray:
    """The turns beyond one per phase: what bank conflicts add."""
    free = _phased(lambda a, w, active: active.any(axis=1).astype(np.int64), addresses, width, active, op)
    return shared_wavefronts(addresses, width, active, op) - free


def _phased(cost, addresses: np.ndarray, width: int, active: np.ndarray, op: str) -> np.ndarray:
    """`cost` summed over the phases of each request; a load whose lanes agree in pairs needs half as many."""
    phases = max(1, width * WARP // (BANKS * BANK_BYTES))
    total = _sum_over_phases(cost, phases, addresses, width, active)
    if phases > 1 and op == "ld":
        packed = _sum_over_phases(cost, phases // 2, addresses, width, active)
        total = np.where(_agree_in_pairs(addresses, active), packed, total)
    return total


def _sum_over_phases(cost, phases: int, addresses, width: int, active) -> np.ndarray:
    groups = zip(np.split(addresses, phases, axis=1), np.split(active, phases, axis=1), strict=True)
    return sum(cost(a, width, m) for a, m in groups)


def _agree_in_pairs(addresses: np.ndarray, active: np.ndarray) -> np.ndarray:
    """Whether every active lane has the address of lane^1, or every one that of lane^2 (inactive lanes agree)."""
    agree = np.zeros(len(addresses), bool)
    for step in (1, 2):
        partner = np.arange(WARP) ^ step
        same = (addresses == addresses[:, partner]) | ~active | ~active[:, partner]
        agree |= same.all(axis=1)
    return agree


def _bank_turns(addresses: np.ndarray, width: int, active: np.ndarray) -> np.ndarray:
    """The largest number of different words that the active lanes want from one bank."""
    first = addresses // BANK_BYTES
    word = np.concatenate([first + i for i in range(words(width))], axis=1)
    wanted = np.concatenate([active] * words(width), axis=1)
    word = np.sort(np.where(wanted, word, -1), axis=1)
    new = _first_of_run(word) & (word >= 0)
    per_bank = np.zeros((len(word), BANKS), np.int64)
    row = np.broadcast_to(np.arange(len(word))[:, None], word.shape)
    np.add.at(per_bank, (row[new], word[new] % BANKS), 1)
    return per_bank.max(axis=1)


def _distinct(values: np.ndarray, active: np.ndarray) -> np.ndarray:
    """A mask with one True per distinct value among the active lanes of each row (values are not negative)."""
    ordered = np.sort(np.where(active, values, -1), axis=1)
    return _first_of_run(ordered) & (ordered >= 0)


def _first_of_run(ordered: np.ndarray) -> np.ndarray:
    first = np.ones(ordered.shape, bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return first
