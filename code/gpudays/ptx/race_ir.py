"""Tracer, room 8: watching global memory for races, as LLVM IR.

Every cell of a buffer that the kernel writes has two records, of its last write and its last read, as in shared memory
(layout.py). A record from before this block began is of another block: nothing orders that block and this one.
"""

from __future__ import annotations

from gpudays.ptx import layout as at
from gpudays.ptx.ir import Function
from gpudays.ptx.memory_ir import clashes, record_read, seen_itself

_HALF = at.LANES // 2
_ROW = f"<{_HALF} x i64>"


def watch(cell: int) -> Function:
    """`void @watch(M, W, site, base, shape, per_lane, op)`: check and note an access; op 0 ld, 1 st, 2 atomic.

    `cell` is the bytes per record, `per_lane` the cells that a lane touches.
    """
    f = Function("void @watch(ptr %M, ptr %W, ptr %site, i64 %base, ptr %shape, i64 %per_lane, i32 %op) noinline")
    shift = cell.bit_length() - 1
    writes, reads = f.load("ptr", "%site", at.GLOBAL_WRITES), f.load("ptr", "%site", at.GLOBAL_READS)
    start = f.let(f"sub i64 %base, {f.load('i64', '%site', at.LOW)}")
    oldest = f.let(f"shl i64 {f.load('i64', '%M', at.FULL_TICK)}, 32")
    birth = f.let(f"shl i64 {f.load('i64', '%M', at.BLOCK_TICK)}, 32")
    warp = f.let(f"zext i32 {f.load('i32', '%W', at.WARP_ID)} to i64")
    number = f.let(f"shl i64 {f.load('i64', '%site', at.SITE_ID)}, 16")
    tick = f.let(f"shl i64 {f.load('i64', '%M', at.TICK)}, 32")
    stamp = f.let(f"or i64 {tick}, {number}")
    first_thread = f.let(f"shl i64 {warp}, 5")
    _whole_rows(f, writes, reads, start, shift, f.let(f"or i64 {stamp}, {first_thread}"))
    seen = f.let(f"shl i64 {seen_itself(f, warp)}, 32")
    many = f.let(f"or i64 {warp}, {at.MANY}")
    is_load, is_atomic = f.let("icmp eq i32 %op, 0"), f.let("icmp eq i32 %op, 2")
    mark = f.let(f"select i1 {is_atomic}, i64 {at.ATOMIC_MARK}, i64 0")
    distinct = f.let(f"zext i32 {f.load('i32', '%shape', at.DISTINCT)} to i64")
    with f.count_to(distinct) as i:
        slot = f.let(f"getelementptr i64, ptr %shape, i64 {i}")
        owner = f.load("i64", slot, at.OWNERS)
        several = f.let(f"icmp eq i64 {owner}, {at.MANY}")
        who = f.let(f"select i1 {several}, i64 {many}, i64 {f.let(f'add i64 {first_thread}, {owner}')}")
        offset = f.let(f"add i64 {start}, {f.load('i64', slot, at.OFFSETS)}")
        place = f.let(f"lshr i64 {offset}, {shift}")
        with f.count_to("%per_lane") as k:
            here = f.let(f"add i64 {place}, {k}")
            w = f.let(f"getelementptr i64, ptr {writes}, i64 {here}")
            r = f.let(f"getelementptr i64, ptr {reads}, i64 {here}")
            wrote, read = f.let(f"load i64, ptr {w}"), f.let(f"load i64, ptr {r}")
            both_atomic = f.let(f"icmp ne i64 {f.let(f'and i64 {wrote}, {mark}')}, 0")
            clash = f.let(f"and i1 {_trouble(f, wrote, who, oldest, birth)}, {f.let(f'xor i1 {both_atomic}, true')}")
            read_before = _trouble(f, read, who, oldest, birth)
            read_before = f.let(f"and i1 {read_before}, {f.let(f'xor i1 {is_load}, true')}")
            with f.when(f.let(f"or i1 {clash}, {read_before}"), likely=False):
                _complain(f, here, f.let(f"or i64 {stamp}, {who}"))
            _note(f, is_load, w, r, (read, who, stamp, oldest, seen, birth), f.let(f"or i64 {stamp}, {mark}"))
    f.raw("ret void")
    return f


def _trouble(f: Function, record: str, who: str, oldest: str, birth: str) -> str:
    """Whether a record is another block's, or an unordered one of this block's (i1)."""
    some = f.let(f"icmp ne i64 {record}, 0")
    foreign = f.let(f"and i1 {some}, {f.let(f'icmp ult i64 {record}, {birth}')}")
    return f.let(f"or i1 {foreign}, {clashes(f, record, who, oldest)}")


def _complain(f: Function, cell: str, mine: str) -> None:
    f.add_to("i64", "1", "%site", at.REPORTS)
    few = f.let(f"icmp ult i64 {f.load('i64', '%site', at.REPORTS)}, {at.ENOUGH}")
    with f.when(few):
        callback = f.load("ptr", "%M", at.ON_GLOBAL_RACE)
        f.call("void", callback, ("ptr", "%M"), ("ptr", "%W"), ("ptr", "%site"), ("i64", cell), ("i64", mine),
               ("i32", "%op"))  # fmt: skip


def _note(f: Function, is_load: str, w: str, r: str, reading: tuple[str, ...], stamp: str) -> None:
    """Write this access into the record of reads or of writes."""
    read, who, plain_stamp, oldest, seen, birth = reading
    load, store, done = f.label("load"), f.label("store"), f.label("noted")
    f.branch(is_load, load, store)
    f.at(load)
    before = f.let(f"and i64 {read}, 65535")
    foreign = f.let(f"icmp ult i64 {read}, {birth}")
    some = f.let(f"icmp ne i64 {read}, 0")
    foreign = f.let(f"and i1 {some}, {foreign}")
    crowd = f.let(f"or i1 {foreign}, {f.let(f'icmp eq i64 {before}, {at.MANY_BLOCKS}')}")
    usual = record_read(f, read, who, plain_stamp, oldest, seen)
    blocks = f.let(f"or i64 {plain_stamp}, {at.MANY_BLOCKS}")
    f.raw(f"store i64 {f.let(f'select i1 {crowd}, i64 {blocks}, i64 {usual}')}, ptr {r}")
    f.goto(done)
    f.at(store)
    f.raw(f"store i64 {f.let(f'or i64 {stamp}, {who}')}, ptr {w}")
    f.goto(done)
    f.at(done)


def _whole_rows(f: Function, writes: str, reads: str, start: str, shift: int, mine: str) -> None:
    """A plain store of two rows of sixteen cells that nobody has touched yet: noted at once, and done."""
    check, touched, slow = f.label("check"), f.label("touched"), f.label("slow")
    pattern = f.load("i8", "%shape", at.PATTERN + shift)
    row, halves = f.let(f"icmp eq i8 {pattern}, {at.ROW}"), f.let(f"icmp eq i8 {pattern}, {at.HALF_ROWS}")
    different = f.let(f"icmp eq i32 {f.load('i32', '%shape', at.DISTINCT)}, {at.LANES}")
    rows = f.let(f"and i1 {f.let(f'or i1 {row}, {halves}')}, {different}")
    single = f.let("icmp eq i64 %per_lane, 1")
    plain = f.let(f"and i1 {single}, {f.let('icmp eq i32 %op, 1')}")
    f.branch(f.let(f"and i1 {rows}, {plain}"), check, slow)
    f.at(check)
    places, seen = [], None
    for lane in (0, _HALF):
        offset = f.let(f"add i64 {start}, {f.load('i64', '%shape', at.DELTA + 8 * lane)}")
        cell = f.let(f"lshr i64 {offset}, {shift}")
        places.append(f.let(f"getelementptr i64, ptr {writes}, i64 {cell}"))
        for p in (places[-1], f.let(f"getelementptr i64, ptr {reads}, i64 {cell}")):
            had = f.load(_ROW, p, 0, 8)
            seen = had if seen is None else f.let(f"or {_ROW} {seen}, {had}")
    any_ = f.call("i64", f"@llvm.vector.reduce.or.v{_HALF}i64", (_ROW, seen))
    f.branch(f.let(f"icmp eq i64 {any_}, 0"), touched, slow, likely=True)
    f.at(touched)
    one = f.let(f"insertelement {_ROW} undef, i64 {mine}, i32 0")
    base = f.let(f"shufflevector {_ROW} {one}, {_ROW} undef, <{_HALF} x i32> zeroinitializer")
    for lane, p in zip((0, _HALF), places, strict=True):
        lanes = "<" + ", ".join(f"i64 {lane + k}" for k in range(_HALF)) + ">"
        f.store(_ROW, f.let(f"add {_ROW} {base}, {lanes}"), p, 0, 8)
    f.raw("ret void")
    f.at(slow)
