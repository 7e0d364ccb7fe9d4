"""Tracer, room 6: loads, stores, barriers and the instructions in which lanes meet, as LLVM IR.

Source: NVIDIA, "Parallel Thread Execution ISA", "Data Movement and Conversion Instructions", "Parallel Synchronization
and Communication Instructions".
"""

from __future__ import annotations

from gpudays.ptx import layout as at
from gpudays.ptx.atomic_ir import FLOATING, INTEGER
from gpudays.ptx.ir import BITS, vec
from gpudays.ptx.parser import Address, Imm, Pair, Reg, Symbol, Vector
from gpudays.ptx.semantics import on
from gpudays.ptx.values import ELEMENTS, Value

ATOMIC_SPACES = ("global", "shared", "generic")
_SPACES = ("global", "shared", "local", "const", "param")


def _space(g, i) -> str:
    for part in i.parts[1:]:
        name, _, scope = part.partition("::")
        if name in _SPACES:
            if scope not in ("", "cta", "entry", "func"):
                raise g.unsupported(f"space .{part}")
            return name
    return "generic"


def _shape(g, i) -> tuple[int, str]:
    """(values per lane, LLVM integer of one value)."""
    kind = i.parts[-1]
    if kind not in ELEMENTS or kind == "pred":
        raise g.unsupported(f"type .{kind}")
    count = next((int(p[1:]) for p in i.parts if p in ("v2", "v4", "v8")), 1)
    if count * BITS[ELEMENTS[kind]] > 128:
        raise g.unsupported("more than 16 bytes per lane")
    return count, f"i{BITS[ELEMENTS[kind]]}"


def _targets(g, operand, count: int) -> tuple:
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != count:
        raise g.unsupported(f"{len(items)} registers for {count} values")
    return items


# ---- ld, st --------------------------------------------------------------------------------------------------------


@on("ld", "ldu")
def load(g, i):
    count, element = _shape(g, i)
    space = _space(g, i)
    targets = _targets(g, i.operands[0], count)
    address = i.operands[1]
    if space == "param" and isinstance(address, Address) and isinstance(address.base, Symbol):
        return _load_parameter(g, i, targets, element, address)
    if space == "param":
        raise g.unsupported("a parameter at a computed address")
    uniform = space in ("global", "shared", "const") and g.uniform_address(address)
    g.access("ld", space, BITS[element] // 8, count, address)
    for c, target in enumerate(targets):
        place = at.STAGE + c * at.STAGE_ROW
        if uniform:
            value = Value(element, scalar=g.f.load(element, "%M", place))
        else:
            value = Value(element, vector=g.f.load(vec(element), "%M", place, 32))
        g.write(target, _as_register(g, target, value), i.parts[-1].startswith("s"))


def _as_register(g, target, value: Value) -> Value:
    """Bits as the register's own type, where the widths agree."""
    if not isinstance(target, Reg):
        return value
    element = g.element(target.name)
    return g.v.cast(value, element) if BITS[element] == BITS[value.element] else value


def _load_parameter(g, i, targets, element: str, address: Address) -> None:
    if address.base.name not in g.plan.param_offsets:
        raise g.unsupported(f"no parameter {address.base.name}")
    offset = g.plan.param_offsets[address.base.name] + address.offset
    block = g.f.load("ptr", "%M", at.PARAMS)
    for c, target in enumerate(targets):
        value = Value(element, scalar=g.f.load(element, block, offset + c * BITS[element] // 8, 1))
        g.write(target, _as_register(g, target, value), i.parts[-1].startswith("s"))


@on("st")
def store(g, i):
    count, element = _shape(g, i)
    space = _space(g, i)
    if space in ("param", "const"):
        raise g.unsupported()
    for c, source in enumerate(_targets(g, i.operands[1], count)):
        value = g.v.wide(g.read(source, element))
        g.f.store(vec(element), value, "%M", at.STAGE + c * at.STAGE_ROW, 32)
    g.access("st", space, BITS[element] // 8, count, i.operands[0])


@on(
    "prefetch",
    "prefetchu",
    "discard",
    "applypriority",
    "createpolicy",
    "membar",
    "fence",
    "nanosleep",
    "brkpt",
    "pmevent",
)
def no_effect(g, i):
    """Hints to caches, and fences: every access here is visible at once. (Races are judged by barriers.)"""


@on("cp")
def cp_async(g, i):
    """cp.async: the copy is made at once, which is within what the wait instructions promise."""
    if i.parts[1] != "async" or "mbarrier" in i.parts or "bulk" in i.parts:
        raise g.unsupported()
    if i.parts[2] in ("commit_group", "wait_group", "wait_all"):
        return
    size = i.operands[2]
    if not isinstance(size, Imm) or size.value not in (4, 8, 16) or len(i.operands) > 4:
        raise g.unsupported("its size")
    count = size.value // 4
    if len(i.operands) == 4:  # only the first src-size bytes are copied, the rest are zeros; of none, nothing is read
        given = g.read(i.operands[3], "i32")
        reading = g.v.apply("i1", lambda up, x: up.op("icmp ne", "i32", x, up.const("i32", 0)), given)
        g.access("ld", "global", 4, count, i.operands[1], reading)
        _zero_rest(g, count, given)
    else:
        g.access("ld", "global", 4, count, i.operands[1])
    g.access("st", "shared", 4, count, i.operands[0])


def _zero_rest(g, count: int, given: Value) -> None:
    for c in range(count):
        place = at.STAGE + c * at.STAGE_ROW
        old = Value("i32", vector=g.f.load(vec("i32"), "%M", place, 32))

        def make(up, size, x, c=c):
            return up.select(up.op("icmp ugt", "i32", size, up.const("i32", 4 * c)), "i32", x, up.const("i32", 0))

        g.f.store(vec("i32"), g.v.wide(g.v.apply("i32", make, given, old)), "%M", place, 32)


@on("atom", "red")
def atomic(g, i):
    kind, op = i.parts[-1], i.parts[0]
    what = next((p for p in i.parts[1:-1] if p in INTEGER), None)
    space = _space(g, i)
    element = ELEMENTS.get(kind, "")
    good = INTEGER if element in ("i16", "i32", "i64") else FLOATING
    if what not in good or element not in ("i16", "i32", "i64", "float", "double") or space not in ATOMIC_SPACES:
        raise g.unsupported()
    if kind in ("f16x2", "bf16x2", "bf16", "f16") or {"v2", "v4", "v8"} & set(i.parts):
        raise g.unsupported()
    sources = i.operands[2:] if op == "atom" else i.operands[1:]
    address = i.operands[1] if op == "atom" else i.operands[0]
    if what in ("exch", "cas"):
        element = f"i{BITS[element]}"
    if op == "atom" and what not in ("exch", "cas") and not g.is_read(i.operands[0]):
        op = "red"  # nobody wants the old value: ptxas makes a reduction of it
    for row, source in enumerate(sources[:2]):
        value = g.v.wide(g.read(source, element))
        g.f.store(vec(element), value, "%M", at.STAGE + row * at.STAGE_ROW, 32)
    g.atomic(op, space, what, kind, element, address)
    if op == "atom":
        old = Value(element, vector=g.f.load(vec(element), "%M", at.STAGE_2, 32))
        g.write(i.operands[0], _as_register(g, i.operands[0], old))


# ---- what the compiler only declares: printf and assert ------------------------------------------------------------


@on("vprintf")
def vprintf(g, i):
    """Python formats the text: it reads the format and the arguments from device memory, lane by lane."""
    _tell(g, at.ON_PRINT, i.operands[1:3])
    g.write(i.operands[0], Value("i32", scalar="0"))


@on("assertfail")
def assertfail(g, i):
    _tell(g, at.ON_ASSERT, i.operands[1:3])


def _tell(g, callback: int, pointers) -> None:
    f = g.f
    for row, pointer in enumerate(pointers):
        f.store(vec("i64"), g.v.wide(g.read(pointer, "i64")), "%M", at.STAGE + row * at.STAGE_ROW, 32)
    function = f.load("ptr", "%M", callback)
    f.call("void", function, ("ptr", "%M"), ("ptr", "%W"), ("i32", g.mask()), ("i32", str(g.instruction.line)))


# ---- barriers ------------------------------------------------------------------------------------------------------


def arrive(g, i) -> None:
    """The part of a barrier before its wait: which one, how many threads it wants, and bar.red's contribution."""
    f = g.f
    operands = list(i.operands)
    if "red" in i.parts:
        operands = operands[1:]
        predicate = g.v.wide(g.read(operands.pop(), "i1"))
        number = _constant(g, operands[0])
        ones = f.call("i32", "@llvm.ctpop.i32", ("i32", f.let(f"and i32 {predicate}, {g.active}")))
        f.add_to("i32", ones, "%M", at.BARRIERS + at.BARRIER_SIZE * number)
        lanes = f.call("i32", "@llvm.ctpop.i32", ("i32", g.active))
        f.add_to("i32", lanes, "%M", at.BARRIERS + at.BARRIER_SIZE * number + 4)
    elif "arrive" in i.parts:
        raise g.unsupported("a barrier that does not wait")
    number = _scalar(g, operands[0]) if operands else "0"
    count = _scalar(g, operands[1]) if len(operands) > 1 else "0"
    f.store("i32", number, "%W", at.BARRIER_ID)
    f.store("i32", count, "%W", at.BARRIER_COUNT)
    f.store("i32", str(i.line), "%W", at.BARRIER_LINE)


def _constant(g, operand) -> int:
    if not isinstance(operand, Imm) or not 0 <= operand.value < 16:
        raise g.unsupported("a barrier number that is not a constant below 16")
    return operand.value


def _scalar(g, operand) -> str:
    value = g.read(operand, "i32")
    if value.scalar is None:
        raise g.unsupported("a barrier that differs between lanes")
    return value.scalar


@on("barresult")
def barrier_result(g, i):
    number = _constant(g, i.operands[1])
    place = at.BARRIERS + at.BARRIER_SIZE * number + 8
    true, threads = g.f.load("i32", "%M", place), g.f.load("i32", "%M", place + 4)
    if "popc" in i.parts:
        value = Value("i32", scalar=true)
    elif "and" in i.parts:
        value = Value("i1", scalar=g.f.let(f"icmp eq i32 {true}, {threads}"))
    else:
        value = Value("i1", scalar=g.f.let(f"icmp ne i32 {true}, 0"))
    g.write(i.operands[0], value)


@on("bar", "barrier")
def warp_barrier(g, i):
    """bar.warp.sync: what the warp's lanes did before is ordered before what they do next."""
    if "warp" not in i.parts:
        raise g.unsupported()
    g.f.call("void", "@warp_sync", ("ptr", "%M"), ("ptr", "%W"))


def trap(g, i) -> None:
    g.event("trap")
    g.f.raw(f"ret i32 {at.STOPPED}")


# ---- lanes meet ----------------------------------------------------------------------------------------------------


@on("activemask")
def activemask(g, i):
    g.write(i.operands[0], Value("i32", scalar=g.active))


@on("vote")
def vote(g, i):
    predicate = g.v.wide(g.read(i.operands[1], "i1"))
    f, active = g.f, g.mask()
    true = f.let(f"and i32 {predicate}, {active}")
    match next((p for p in i.parts if p in ("all", "any", "uni", "ballot")), ""):
        case "ballot":
            return g.write(i.operands[0], Value("i32", scalar=true))
        case "all":
            value = f.let(f"icmp eq i32 {true}, {active}")
        case "any":
            value = f.let(f"icmp ne i32 {true}, 0")
        case "uni":
            all_, none = f.let(f"icmp eq i32 {true}, {active}"), f.let(f"icmp eq i32 {true}, 0")
            value = f.let(f"or i1 {all_}, {none}")
        case _:
            raise g.unsupported()
    g.write(i.operands[0], Value("i1", scalar=value))


@on("match")
def match_(g, i):
    element = ELEMENTS[i.parts[-1]]
    value = g.v.wide(g.read(i.operands[1], element))
    f, active = g.f, g.mask()
    f.store(vec(element), value, "%M", at.STAGE, 32)
    with f.lanes(active) as lane:
        mine = f.load(element, f.let(f"getelementptr {element}, ptr %M, i64 {lane}"), at.STAGE)
        same = f.let(f"icmp eq {vec(element)} {value}, {f.splat(element, mine)}")
        mask = f.let(f"bitcast {vec('i1')} {same} to i32")
        mask = f.let(f"and i32 {mask}, {active}")
        f.store("i32", mask, f.let(f"getelementptr i32, ptr %M, i64 {lane}"), at.STAGE_2)
    found = f.load(vec("i32"), "%M", at.STAGE_2, 32)
    target = i.operands[0]
    first, second = (target.first, target.second) if isinstance(target, Pair) else (target, None)
    if "any" in i.parts:
        return g.write(first, Value("i32", vector=found))
    everyone = g.v.bits(f.let(f"icmp eq {vec('i32')} {found}, {f.splat('i32', active)}"))
    bools = f.let(f"bitcast i32 {everyone} to {vec('i1')}")
    whole = f.let(f"select {vec('i1')} {bools}, {vec('i32')} {found}, {vec('i32')} zeroinitializer")
    g.write(first, Value("i32", vector=whole))
    if second is not None:
        g.write(second, Value("i1", vector=everyone))


@on("redux")
def redux(g, i):
    kind = i.parts[-1]
    what = i.parts[2]
    element = ELEMENTS[kind]
    f = g.f
    names = {"add": "add", "and": "and", "or": "or", "xor": "xor", "min": "min", "max": "max"}
    if what not in names or element != "i32":
        raise g.unsupported()
    sign = "s" if kind.startswith("s") else "u"
    name = sign + what if what in ("min", "max") else what
    identity = {"add": 0, "or": 0, "xor": 0, "and": -1, "smin": 2**31 - 1, "smax": -(2**31), "umin": -1, "umax": 0}[
        name
    ]
    bools = f.let(f"bitcast i32 {g.mask()} to {vec('i1')}")
    value = g.v.wide(g.read(i.operands[1], element))
    kept = f.let(f"select {vec('i1')} {bools}, {vec('i32')} {value}, {vec('i32')} {f.splat('i32', str(identity))}")
    total = f.call("i32", f"@llvm.vector.reduce.{name}.v32i32", (vec("i32"), kept))
    g.write(i.operands[0], Value("i32", vector=f.splat("i32", total)))


@on("shfl")
def shfl(g, i):
    mode = next((p for p in i.parts if p in ("up", "down", "bfly", "idx")), None)
    if mode is None or i.parts[-1] != "b32":
        raise g.unsupported()
    target = i.operands[0]
    first, second = (target.first, target.second) if isinstance(target, Pair) else (target, None)
    value = g.read(i.operands[1], "i32")
    b, c = g.read(i.operands[2], "i32"), g.read(i.operands[3], "i32")
    lane = Value("i32", vector="<" + ", ".join(f"i32 {n}" for n in range(at.LANES)) + ">")

    def source(up, here, b, c):
        """The lane to read from, and −1 − lane where it lies outside of the segment."""
        low = up.const("i32", 31)
        bits, top = up.op("and", "i32", b, low), up.op("and", "i32", c, low)
        segment = up.op("and", "i32", up.op("lshr", "i32", c, up.const("i32", 8)), low)
        outside = up.op("xor", "i32", segment, up.const("i32", -1))
        start = up.op("and", "i32", here, segment)
        last = up.op("or", "i32", start, up.op("and", "i32", top, outside))
        if mode == "up":
            j = up.op("sub", "i32", here, bits)
            good = up.op("icmp sge", "i32", j, last)
        elif mode == "down":
            j = up.op("add", "i32", here, bits)
            good = up.op("icmp sle", "i32", j, last)
        elif mode == "bfly":
            j = up.op("xor", "i32", here, bits)
            good = up.op("icmp sle", "i32", j, last)
        else:
            j = up.op("or", "i32", start, up.op("and", "i32", bits, outside))
            good = up.op("icmp sle", "i32", j, last)
        return up.select(good, "i32", j, up.op("sub", "i32", up.const("i32", -1), here))

    f = g.f
    found = g.v.apply("i32", source, lane, b, c)
    good = g.v.apply("i1", lambda up, j: up.op("icmp sge", "i32", j, up.const("i32", 0)), found)
    flip = g.v.apply("i32", lambda up, j: up.op("sub", "i32", up.const("i32", -1), j), found)
    index = g.v.apply("i32", lambda up, p, j, k: up.select(p, "i32", j, k), good, found, flip)
    f.store(vec("i32"), g.v.wide(value), "%M", at.STAGE, 32)
    f.store(vec("i32"), g.v.wide(index), "%M", at.STAGE_2, 32)
    f.call("void", "@permute", ("ptr", "%M"))
    moved = f.load(vec("i32"), "%M", at.STAGE + at.STAGE_ROW, 32)
    result = Value("i32", vector=moved)
    predicate = good
    g.write(first, _as_register(g, first, result))
    if second is not None:
        g.write(second, predicate)
