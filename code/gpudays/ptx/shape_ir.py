"""Tracer, room 8: finding the shape of an address vector, and what it costs, as LLVM IR (layout.py: Shape).

A vector of deltas is compared with its site's last shape, then looked up among all shapes seen so far; a new one is
analysed once and kept. A site whose addresses depend on data would fill the table with shapes that never come back:
after a while its requests are analysed into a scratch shape, each time anew. What a request costs is stated in
accounting.py; tests hold the routines here against them.
"""

from __future__ import annotations

from gpudays.ptx import layout as at
from gpudays.ptx.ir import Function, splat_constant, vec

_WIDE = vec("i64")
_HALF = at.LANES // 2


def _bits(f: Function, bools: str) -> str:
    return f.let(f"bitcast {vec('i1')} {bools} to i32")


def _differs(f: Function, delta: str, shape: str, mask: str) -> str:
    """i1: whether an active lane's delta is not the shape's."""
    known = f.load(_WIDE, shape, at.DELTA, 64)
    bits = f.let(f"and i32 {_bits(f, f.let(f'icmp ne {_WIDE} {delta}, {known}'))}, {mask}")
    return f.let(f"icmp ne i32 {bits}, 0")


def find_shape() -> Function:
    """`ptr @shape(M, site, delta, S, mask)`: the shape of these deltas; kept in the cell S unless it is scratch."""
    f = Function("ptr @shape(ptr %M, ptr %site, ptr %delta, ptr %S, i32 %mask) noinline")
    delta = f.load(_WIDE, "%delta", 0, 32)
    last = f.load("ptr", "%site", at.LAST_SHAPE)
    known, compare, search, hit = f.label("known"), f.label("compare"), f.label("search"), f.label("hit")
    f.branch(f.let(f"icmp eq ptr {last}, null"), search, known)
    f.at(known)
    f.branch(f.let(f"icmp eq i32 {f.load('i32', last, at.MASK)}, %mask"), compare, search)
    f.at(compare)
    f.branch(_differs(f, delta, last, "%mask"), search, hit)
    f.at(hit)
    f.store("ptr", last, "%S")
    f.raw(f"ret ptr {last}")
    f.at(search)
    found = f.call("ptr", "@look_up", ("ptr", "%M"), ("ptr", "%site"), ("ptr", "%delta"), ("i32", "%mask"))
    passing, kept = f.label("passing"), f.label("kept")
    f.branch(f.let(f"icmp ne i8 {f.load('i8', found, at.IS_SCRATCH)}, 0"), passing, kept)
    f.at(kept)
    f.store("ptr", found, "%site", at.LAST_SHAPE)
    f.store("ptr", found, "%S")
    f.goto(passing)
    f.at(passing)
    f.raw(f"ret ptr {found}")
    return f


def look_up() -> Function:
    """`ptr @look_up(M, site, delta, mask)`: the kept shape of these deltas, made if new.

    It is the scratch shape where there is no room, or where the site has brought too many new ones.
    """
    f = Function("ptr @look_up(ptr %M, ptr %site, ptr %delta, i32 %mask) noinline")
    bools = f.let(f"bitcast i32 %mask to {vec('i1')}")
    raw = f.load(_WIDE, "%delta", 0, 32)
    delta = f.let(f"select {vec('i1')} {bools}, {_WIDE} {raw}, {_WIDE} zeroinitializer")
    odd = "<" + ", ".join(f"i64 {0x9E3779B97F4A7C15 * (2 * n + 1) % (1 << 63)}" for n in range(at.LANES)) + ">"
    total = f.call("i64", "@llvm.vector.reduce.add.v32i64", (_WIDE, f.let(f"mul {_WIDE} {delta}, {odd}")))
    mixed = f.let(f"xor i64 {total}, {f.let('zext i32 %mask to i64')}")
    mixed = f.let(f"mul i64 {mixed}, -7046029254386353131")
    slot = f.alloca("i64", 8)
    f.store("i64", f.let(f"lshr i64 {mixed}, {64 - at.TABLE_BITS}"), slot)
    table = f.load("ptr", "%M", at.TABLE)
    probe, used, match, next_, new = (f.label(n) for n in ("probe", "used", "match", "next", "new"))
    f.goto(probe)
    f.at(probe)
    index = f.load("i64", slot)
    place = f.let(f"getelementptr ptr, ptr {table}, i64 {index}")
    shape = f.load("ptr", place)
    f.branch(f.let(f"icmp eq ptr {shape}, null"), new, used)
    f.at(used)
    f.branch(f.let(f"icmp eq i32 {f.load('i32', shape, at.MASK)}, %mask"), match, next_)
    f.at(match)
    same = f.label("same")
    f.branch(_differs(f, delta, shape, "%mask"), next_, same)
    f.at(same)
    f.raw(f"ret ptr {shape}")
    f.at(next_)
    after = f.let(f"and i64 {f.let(f'add i64 {index}, 1')}, {(1 << at.TABLE_BITS) - 1}")
    f.store("i64", after, slot)
    f.goto(probe)
    f.at(new)
    count = f.load("i64", "%M", at.SHAPE_COUNT)
    brought = f.load("i64", "%site", at.BROUGHT)
    room, full = f.label("room"), f.label("full")
    fits = f.let(f"icmp ult i64 {count}, {at.SHAPE_LIMIT}")
    patient = f.let(f"icmp ult i64 {brought}, {at.PATIENCE}")
    f.branch(f.let(f"and i1 {fits}, {patient}"), room, full)
    f.at(full)
    own = f.pointer("%M", at.SCRATCH)
    f.call("void", "@analyse", ("ptr", own), ("ptr", "%delta"), ("i32", "%mask"), ("i1", "true"))
    f.raw(f"ret ptr {own}")
    f.at(room)
    f.store("i64", f.let(f"add i64 {count}, 1"), "%M", at.SHAPE_COUNT)
    f.store("i64", f.let(f"add i64 {brought}, 1"), "%site", at.BROUGHT)
    offset = f.let(f"mul i64 {count}, {at.SHAPE_SIZE}")
    made = f.let(f"getelementptr i8, ptr {f.load('ptr', '%M', at.SHAPES)}, i64 {offset}")
    f.call("void", "@analyse", ("ptr", made), ("ptr", "%delta"), ("i32", "%mask"), ("i1", "false"))
    f.store("ptr", made, place)
    f.raw(f"ret ptr {made}")
    return f


def analyse() -> Function:
    """`void @analyse(shape, delta, mask, scratch)`: write all that routines read of a shape; costs are left open."""
    f = Function("void @analyse(ptr %shape, ptr %delta, i32 %mask, i1 %scratch) noinline")
    bools = f.let(f"bitcast i32 %mask to {vec('i1')}")
    raw = f.load(_WIDE, "%delta", 0, 32)

    def masked(other: str) -> str:
        return f.let(f"select {vec('i1')} {bools}, {_WIDE} {raw}, {_WIDE} {splat_constant('i64', other)}")

    delta = masked("0")
    f.store(_WIDE, delta, "%shape", at.DELTA, 64)
    f.store("i32", "%mask", "%shape", at.MASK)
    f.store("i8", f.let("zext i1 %scratch to i8"), "%shape", at.IS_SCRATCH)
    least = f.call("i64", "@llvm.vector.reduce.smin.v32i64", (_WIDE, masked(str((1 << 63) - 1))))
    most = f.call("i64", "@llvm.vector.reduce.smax.v32i64", (_WIDE, masked(str(-(1 << 63)))))
    # so far apart that sums with a base could wrap round: make every bounds check fail
    far = f.let(f"icmp ugt i64 {f.let(f'sub i64 {most}, {least}')}, {1 << 62}")
    f.store("i64", f.let(f"select i1 {far}, i64 0, i64 {least}"), "%shape", at.LEAST)
    f.store("i64", f.let(f"select i1 {far}, i64 {1 << 62}, i64 {most}"), "%shape", at.MOST)
    f.store("i64", f.call("i64", "@llvm.vector.reduce.or.v32i64", (_WIDE, delta)), "%shape", at.BITS)
    _distinct_deltas(f, delta)
    _patterns(f, delta, least, most)
    size = at.SHAPE_SIZE - at.COSTS
    costs = f.pointer("%shape", at.COSTS)
    unknown = ("i8", str(at.UNKNOWN - 256))
    f.call("void", "@llvm.memset.p0.i64", ("ptr", costs), unknown, ("i64", str(size)), ("i1", "false"))
    f.raw("ret void")
    return f


def _distinct_deltas(f: Function, delta: str) -> None:
    count = f.alloca("i64", 8)
    f.store("i64", "0", count)
    with f.lanes("%mask") as lane:
        mine = f.load("i64", f.let(f"getelementptr i64, ptr %shape, i64 {lane}"), at.DELTA)
        same = _bits(f, f.let(f"icmp eq {_WIDE} {delta}, {f.splat('i64', mine)}"))
        same = f.let(f"and i32 {same}, %mask")
        first = f.call("i32", "@llvm.cttz.i32", ("i32", same), ("i1", "true"))
        is_first = f.let(f"icmp eq i64 {f.let(f'zext i32 {first} to i64')}, {lane}")
        with f.when(is_first):
            n = f.load("i64", count)
            slot = f.let(f"getelementptr i64, ptr %shape, i64 {n}")
            alone = f.let(f"icmp eq i32 {f.call('i32', '@llvm.ctpop.i32', ('i32', same))}, 1")
            f.store("i64", mine, slot, at.OFFSETS)
            f.store("i64", f.let(f"select i1 {alone}, i64 {lane}, i64 {at.MANY}"), slot, at.OWNERS)
            f.store("i64", f.let(f"add i64 {n}, 1"), count)
    f.store("i32", f.let(f"trunc i64 {f.load('i64', count)} to i32"), "%shape", at.DISTINCT)


def _patterns(f: Function, delta: str, least: str, most: str) -> None:
    """How the lanes lie, for the copying: all the same, one row, two halves, or anything."""
    one = f.let(f"icmp eq i64 {least}, {most}")
    full = f.let("icmp eq i32 %mask, -1")
    turn = ", ".join(f"i32 {(n + 1) % at.LANES}" for n in range(at.LANES))
    after = f.let(f"shufflevector {_WIDE} {delta}, {_WIDE} undef, <{at.LANES} x i32> <{turn}>")
    steps = f.let(f"sub {_WIDE} {after}, {delta}")
    step = f.let(f"extractelement {_WIDE} {steps}, i32 0")
    same = _bits(f, f.let(f"icmp eq {_WIDE} {steps}, {f.splat('i64', step)}"))
    inner = (1 << at.LANES - 1) - 1  # all steps but the last, which leads back to lane 0
    halves = inner & ~(1 << _HALF - 1)

    def holds(bits: int) -> str:
        kept = f.let(f"and i32 {same}, {bits}")
        return f.let(f"and i1 {full}, {f.let(f'icmp eq i32 {kept}, {bits}')}")

    row, two = holds(inner), holds(halves)
    for n in range(at.WIDTHS):
        fits = f.let(f"icmp eq i64 {step}, {1 << n}")
        still = f.let(f"icmp eq i64 {step}, 0")
        code = f.let(f"select i1 {f.let(f'and i1 {two}, {still}')}, i8 {at.HALF_SAME}, i8 {at.GATHER}")
        code = f.let(f"select i1 {f.let(f'and i1 {two}, {fits}')}, i8 {at.HALF_ROWS}, i8 {code}")
        code = f.let(f"select i1 {f.let(f'and i1 {row}, {fits}')}, i8 {at.ROW}, i8 {code}")
        code = f.let(f"select i1 {one}, i8 {at.SAME}, i8 {code}")
        f.store("i8", code, "%shape", at.PATTERN + n)


# ---- costs ---------------------------------------------------------------------------------------------------------


def cost() -> Function:
    """`i32 @cost(M, shape, position, row, kind, width)`: a cost not known yet; remembered in the shape.

    `position` is where in 32 bytes the base lies, `kind` the number of a cost kind. What is rare is asked of Python.
    """
    f = Function("i32 @cost(ptr %M, ptr %shape, i64 %position, i64 %row, i32 %kind, i32 %width) noinline")
    narrow = f.let("icmp ule i32 %width, 4")
    is_global, is_shared = f.let("icmp eq i32 %kind, 0"), f.let("icmp uge i32 %kind, 2")
    result = f.alloca("i32", 4)
    sectors, other, turns, ask, have = (f.label(n) for n in ("sectors", "other", "turns", "ask", "have"))
    f.branch(is_global, sectors, other)
    f.at(other)
    f.branch(f.let(f"and i1 {narrow}, {is_shared}"), turns, ask)
    f.at(sectors)
    units, mask = _units(f, 5)
    f.store("i32", f.call("i32", "@llvm.ctpop.i32", ("i32", _first_lanes(f, units, mask))), result)
    f.goto(have)
    f.at(turns)
    most = _bank_turns(f)
    conflicts = f.let("icmp uge i32 %kind, 4")
    less = f.let(f"sub i32 {most}, 1")
    f.store("i32", f.let(f"select i1 {conflicts}, i32 {less}, i32 {most}"), result)
    f.goto(have)
    f.at(ask)
    callback = f.load("ptr", "%M", at.ON_COST)
    f.store("i32", f.call("i32", callback, ("ptr", "%shape"), ("i64", "%position"), ("i64", "%row")), result)
    f.goto(have)
    f.at(have)
    value = f.load("i32", result)
    cell = f.let("add i64 %row, %position")
    f.store("i8", f.let(f"trunc i32 {value} to i8"), f.let(f"getelementptr i8, ptr %shape, i64 {cell}"))
    f.raw(f"ret i32 {value}")
    return f


def _units(f: Function, shift: int) -> tuple[str, str]:
    """Each lane's number of the 2^shift-byte unit it touches (i32, relative to the base's), and the mask."""
    delta = f.load(_WIDE, "%shape", at.DELTA, 64)
    here = f.let(f"add {_WIDE} {delta}, {f.splat('i64', '%position')}")
    unit = f.let(f"ashr {_WIDE} {here}, {splat_constant('i64', str(shift))}")
    return f.let(f"trunc {_WIDE} {unit} to {vec('i32')}"), f.load("i32", "%shape", at.MASK)


def _first_lanes(f: Function, units: str, mask: str) -> str:
    """A mask of the lanes that are the first active ones to have their unit."""
    memory = f.alloca(vec("i32"))
    f.store(vec("i32"), units, memory, 0, 64)
    firsts = f.alloca("i32", 4)
    f.store("i32", "0", firsts)
    with f.lanes(mask) as lane:
        mine = f.load("i32", f.let(f"getelementptr i32, ptr {memory}, i64 {lane}"))
        same = _bits(f, f.let(f"icmp eq {vec('i32')} {units}, {f.splat('i32', mine)}"))
        same = f.let(f"and i32 {same}, {mask}")
        lowest = f.let(f"and i32 {same}, {f.let(f'sub i32 0, {same}')}")
        f.store("i32", f.let(f"or i32 {f.load('i32', firsts)}, {lowest}"), firsts)
    return f.load("i32", firsts)


def _bank_turns(f: Function) -> str:
    """The largest number of different words in one of the 32 banks."""
    words, mask = _units(f, 2)
    memory, counts, most = f.alloca(vec("i32")), f.alloca(vec("i8"), 32), f.alloca("i32", 4)
    f.store(vec("i32"), words, memory, 0, 64)
    f.store(vec("i8"), "zeroinitializer", counts, 0, 32)
    f.store("i32", "0", most)
    with f.lanes(_first_lanes(f, words, mask)) as lane:
        word = f.load("i32", f.let(f"getelementptr i32, ptr {memory}, i64 {lane}"))
        bank = f.let(f"zext i32 {f.let(f'and i32 {word}, 31')} to i64")
        place = f.let(f"getelementptr i8, ptr {counts}, i64 {bank}")
        more = f.let(f"add i8 {f.load('i8', place)}, 1")
        f.store("i8", more, place)
        turns = f.let(f"zext i8 {more} to i32")
        f.store("i32", f.call("i32", "@llvm.umax.i32", ("i32", turns), ("i32", f.load("i32", most))), most)
    return f.load("i32", most)
