"""Tracer, room 5: where compiled code and Python find each other's data. Offsets in bytes, little-endian.

*Machine* (one per OS thread): the launch, the block being run, counters, the staging area through which a memory
routine hands over up to four values per lane. *Warp*: masks, places of diverged lanes, thread indices, registers.
*Site*: one per memory instruction: the buffer it last touched and its counts. *Shape*: one per different pattern of
addresses, relative to lane 0: what such a pattern costs, so that it is worked out once and not at every access.
"""

from __future__ import annotations

LANES = 32

# ---- Machine
CTAID, NTID, NCTAID = 0, 12, 24  # i32 x 3 each
N_WARPS, N_THREADS = 36, 40
SHARED, SHARED_SIZE = 48, 56  # host address, bytes
WRITES, READS = 64, 72  # race records of shared memory, one i64 per cell: tick << 32 | site << 16 | thread
TICK, FULL_TICK = 80, 88  # the current tick; the tick of the last barrier of the whole block
PARAMS, SITES, WARPS, BLOCK_COUNTS = 96, 104, 112, 120
BUDGET, CLOCK = 128, 136
STOP = 144  # i32: a reason to abandon the launch
SHARED_DYNAMIC = 148  # i32
PENDING = 152  # i32: Python wants to be asked at the next barrier, or at the block's end
ON_ACCESS, ON_COST, ON_EVENT, ON_RACE = 160, 168, 176, 184
BLOCK_ID = 208  # i64: linear index
ON_BARRIER, ON_PAUSE, ALLOWANCE = 224, 232, 240  # ALLOWANCE: instructions a warp may run before it is looked at
BLOCK_TICK = 216  # shared records before this tick are of earlier blocks
# Reads of shared memory in a stretch between barriers that has seen no store yet are only noted, 48 bytes each (site,
# base, shape, warp, tick, cells per lane). A store turns the notes into records; a barrier for all makes them void.
NOTES, NOTE_COUNT, LAST_STORE = 248, 768, 776
ON_PRINT, ON_ASSERT = 784, 792
NOTE_SIZE, NOTE_LIMIT = 48, 4096
BARRIERS = 256  # 16 x i32 (so far: predicates true, threads; last time: predicates true, threads) for bar.red
BARRIER_SIZE = 16
ORDER = 1024  # i64[32][32]: the tick up to which warp row has seen what warp column did
STAGE = ORDER + 8 * LANES * LANES  # 4 x 32 x 8 bytes
STAGE_ROW = LANES * 8
STAGE_2 = STAGE + 4 * STAGE_ROW

SHAPES, SHAPE_COUNT, TABLE = 800, 808, 816  # all shapes, how many, and a hash table of pointers to them
SHAPE_LIMIT, TABLE_BITS = 2048, 12
BLOCK_TICKS, BLOCKS_STARTED = 824, 832  # the tick at which each block began; how many have begun
ON_GLOBAL_RACE = 840
BUFFERS, BUFFER_COUNT = 848, 856  # global memory, at most 64 buffers: i64 x 3 each (first address, end, host address)
BUFFER_SIZE = 24
BUFFER_LIMIT = 64

# ---- Warp
ACTIVE, LIVE, BLOCKED, PC, NEXT_WAIT, WARP_ID = 0, 4, 8, 12, 16, 20
STATUS, BARRIER_ID, BARRIER_COUNT, BARRIER_LINE, SPLIT = 24, 28, 32, 36, 40
LOCAL = 48  # host address of the warp's local memory
WARP_BUDGET = 56
FULL = 44  # the lanes that the warp began with
PCS = 64
TID = PCS + 4 * LANES  # x, y, z
ZERO_SHAPE = TID + 3 * 4 * LANES  # the shape of one address for all lanes
REGISTERS = ZERO_SHAPE + 64

NOWHERE = 0x7FFFFFFF  # the block number of "no lane waits"
DONE, AT_BARRIER, STOPPED, YIELDED = 0, 1, 2, 3  # what @warp returns
GONE = 4  # a warp's status besides 0 (can run) and AT_BARRIER

# ---- Site
LOW, HIGH, SHIFT, LAST_SHAPE = 0, 8, 16, 24  # a buffer's first address, its end, host minus device address
COST, CONFLICTS, REQUESTS, ACTIVE_LANES, BROUGHT, SITE_ID = 32, 40, 48, 56, 64, 72
GLOBAL_WRITES, GLOBAL_READS = 80, 88  # race records of the buffer: host address of its first record, or 0
VERIFIED = 104  # per warp (base, shape, block's tick): cells that this site found written before
VERIFIED_SIZE = 32
TOUCHED = 112  # a bit for each buffer that Python has seen the site use
HOME = (LOW, HIGH, SHIFT, GLOBAL_WRITES, GLOBAL_READS)  # what a site knows of its buffer
OTHER = 120  # the same of the buffer before, in this order
REPORTS = 96  # how often the site had something to report; beyond ENOUGH it is only counted
ENOUGH = 200
SITE_SIZE = 192
SAME_CELL = 100  # instead of a space, in ON_ACCESS: look only whether lanes that share a cell agree

# ---- Shape
MASK, DISTINCT, LEAST, MOST, BITS, PATTERN, IS_SCRATCH = 0, 4, 8, 16, 24, 32, 40
DELTA = 64  # i64[32], zero in inactive lanes
OFFSETS = DELTA + 8 * LANES  # i64[32]: the different deltas
OWNERS = OFFSETS + 8 * LANES  # i64[32]: the lane that has it, MANY if several
COSTS = OWNERS + 8 * LANES
COST_ROW = LANES  # a cost for each position of lane 0 within 32 bytes; UNKNOWN until asked
UNKNOWN = 0xFF
COST_KINDS = ("global", "local", "shared.ld", "shared.st", "conflicts.ld", "conflicts.st")
WIDTHS = 5  # 1, 2, 4, 8, 16 bytes
SHAPE_SIZE = COSTS + len(COST_KINDS) * WIDTHS * COST_ROW
SCRATCH = STAGE_2 + 4 * STAGE_ROW  # in the machine: a shape that is not kept
MACHINE_SIZE = SCRATCH + SHAPE_SIZE
PATIENCE = 64  # new shapes that a site may bring before its addresses are taken to depend on data

GATHER, SAME, ROW, HALF_SAME, HALF_ROWS = 0, 1, 2, 3, 4  # patterns

MANY = 0x8000  # several threads of one warp; the warp in the low bits
MANY_WARPS = 0xFFFF
MANY_BLOCKS = 0xFFFE  # in records of global memory
ATOMIC_MARK = 1 << 31  # in a record: the write was an atomic (the topmost bit of the site's 16)

# ---- device addresses: fixed, so that a message is the same in every run
GLOBAL_BASE = 0x7F0000000000
SHARED_WINDOW = 0x7E0000000000
LOCAL_WINDOW = 0x7D0000000000
WINDOW_SIZE = 1 << 32


def cost_row(kind: str, width: int) -> int:
    """Where a shape keeps the costs of accesses of `width` bytes."""
    return COSTS + (COST_KINDS.index(kind) * WIDTHS + width.bit_length() - 1) * COST_ROW
