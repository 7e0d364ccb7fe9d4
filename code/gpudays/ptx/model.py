"""Tracer, room 0: the words that both engines share — metrics, findings, accesses, refusals.

Metrics carry Nsight Compute's names where the hardware has such a counter. Source of the names and their meaning:
NVIDIA, "Nsight Compute Documentation", "Metrics Reference" (l1tex and smsp units).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

WARP = 32
SECTOR_BYTES = 32
BANKS = 32
BANK_BYTES = 4
BUFFER_ALIGNMENT = 256  # cudaMalloc's: NVIDIA, "CUDA C++ Programming Guide", "Device Memory Accesses"

# ---- metrics: one name per thing counted ---------------------------------------------------------------------------


def requests(space: str, op: str) -> str:
    """Requests of `space` (global, local) and `op` (ld, st, atom, red): warp instructions with an active lane."""
    return f"l1tex__t_requests_pipe_lsu_mem_{space}_op_{op}.sum"


def sectors(space: str, op: str) -> str:
    """32-byte sectors that the active lanes of those requests touch."""
    return f"l1tex__t_sectors_pipe_lsu_mem_{space}_op_{op}.sum"


GLOBAL_LD_REQUESTS, GLOBAL_LD_SECTORS = requests("global", "ld"), sectors("global", "ld")
GLOBAL_ST_REQUESTS, GLOBAL_ST_SECTORS = requests("global", "st"), sectors("global", "st")
LOCAL_LD_REQUESTS, LOCAL_LD_SECTORS = requests("local", "ld"), sectors("local", "ld")
LOCAL_ST_REQUESTS, LOCAL_ST_SECTORS = requests("local", "st"), sectors("local", "st")
ATOM_REQUESTS, ATOM_SECTORS = requests("global", "atom"), sectors("global", "atom")
RED_REQUESTS, RED_SECTORS = requests("global", "red"), sectors("global", "red")
SHARED_LD_REQUESTS = "smsp__inst_executed_op_shared_ld.sum"
SHARED_ST_REQUESTS = "smsp__inst_executed_op_shared_st.sum"
SHARED_LD_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"
SHARED_ST_WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
SHARED_LD_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"
SHARED_ST_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"

# Ours: no hardware counter has this meaning. The first two are per launched thread, so only totals hold them.
LOADS_PER_THREAD = "global_loads_per_thread"  # 4-byte words read from global memory; a float4 is four
STORES_PER_THREAD = "global_stores_per_thread"
WARP_INSTRUCTIONS = "ptx_warp_instructions"  # PTX instructions, not SASS: ptxas merges, unrolls and schedules
THREAD_INSTRUCTIONS = "ptx_thread_instructions"

LINE_METRICS = (
    GLOBAL_LD_REQUESTS, GLOBAL_LD_SECTORS, GLOBAL_ST_REQUESTS, GLOBAL_ST_SECTORS,
    LOCAL_LD_REQUESTS, LOCAL_LD_SECTORS, LOCAL_ST_REQUESTS, LOCAL_ST_SECTORS,
    ATOM_REQUESTS, ATOM_SECTORS, RED_REQUESTS, RED_SECTORS,
    SHARED_LD_REQUESTS, SHARED_LD_WAVEFRONTS, SHARED_LD_CONFLICTS,
    SHARED_ST_REQUESTS, SHARED_ST_WAVEFRONTS, SHARED_ST_CONFLICTS,
    WARP_INSTRUCTIONS, THREAD_INSTRUCTIONS,
)  # fmt: skip
METRICS = (*LINE_METRICS, LOADS_PER_THREAD, STORES_PER_THREAD)

FINDING_KINDS = (
    "out-of-bounds", "misaligned", "shared-race", "global-race", "uninitialized-shared", "barrier", "budget",
)  # fmt: skip

# ---- what is seen --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """One mistake, as a checker would report it.

    `kind` is one of `FINDING_KINDS`; `line` the line of CUDA C++ (0: unknown); `block` and `thread` the (x, y, z)
    indices of the first thread seen; `other_line` a race's second line; `count` how often the same thing was seen.
    """

    kind: str
    line: int
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    message: str
    other_line: int | None = None
    count: int = 1


@dataclass(frozen=True)
class Access:
    """One memory instruction of one warp: what each of its 32 lanes touches.

    `op` is ld, st, atom or red; `space` global, shared, local or const; `width` the bytes per lane. For global memory
    `buffer` is the position of the array among the launch's array arguments and `buffer_name` its parameter's name
    ("" where unknown); otherwise -1 and "". `addresses` and `offsets` (int64[32], bytes) are the lane's
    address and its distance from the start of its buffer or window; `active` (bool[32]) says which lanes take part:
    the other lanes' numbers mean nothing. `ordinal` counts the warp's memory instructions from 0.
    """

    line: int
    op: str
    space: str
    width: int
    buffer: int
    buffer_name: str
    addresses: np.ndarray
    offsets: np.ndarray
    active: np.ndarray
    ordinal: int


@dataclass(frozen=True)
class Touch:
    """A buffer that a launch used, and how: `op` is ld, st, atom or red; `line` the first one's line of CUDA C++.

    `buffer` is the position among the launch's arguments, −1 for a variable of the module (``__device__``,
    ``__constant__``); `name` the parameter's or variable's name.
    """

    op: str
    buffer: int
    name: str
    line: int


# ---- what is refused -----------------------------------------------------------------------------------------------


class LaunchError(ValueError):
    """The card would refuse this launch, or the arguments do not fit the kernel; the message says why."""


class UnsupportedInstruction(NotImplementedError):
    """An instruction that the tracer does not know. The message names it and the line of CUDA C++ it came from."""

    def __init__(self, opcode: str, line: int, ptx_line: int = 0, reason: str = ""):
        self.opcode, self.line, self.ptx_line = opcode, line, ptx_line
        why = f": {reason}" if reason else ""
        super().__init__(f"line {line}: the tracer does not know the instruction {opcode} (PTX line {ptx_line}){why}")


class KernelTrap(RuntimeError):
    """The kernel stopped itself: `trap`, or an assertion that failed."""

    def __init__(self, opcode: str, line: int, block: tuple[int, int, int], thread: tuple[int, int, int]):
        self.line, self.block, self.thread = line, block, thread
        super().__init__(f"line {line}: the kernel stopped itself ({opcode}) in block {block}, thread {thread}")
