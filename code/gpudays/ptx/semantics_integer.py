"""Tracer, room 6: integers, bits, comparisons and moves of PTX as LLVM IR.

Source: NVIDIA, "Parallel Thread Execution ISA", "Integer Arithmetic Instructions", "Comparison and Selection
Instructions", "Logic and Shift Instructions", "Data Movement and Conversion Instructions".
"""

from __future__ import annotations

from gpudays.ptx import layout as at
from gpudays.ptx import semantics_float as floats
from gpudays.ptx.ir import BITS, FLOATS, vec
from gpudays.ptx.parser import Imm, Instruction, Pair, Reg, Special, Symbol, Vector
from gpudays.ptx.semantics import on
from gpudays.ptx.values import ELEMENTS, Lift, Value

WINDOWS = {"shared": at.SHARED_WINDOW, "local": at.LOCAL_WINDOW}
_ROUNDED = {"rn", "rz", "rm", "rp", "ftz", "sat", "NaN", "approx", "full", "xorsign", "abs"}


def type_of(g, i: Instruction) -> tuple[str, str]:
    """The PTX type that the opcode ends with and its LLVM element."""
    kind = i.parts[-1]
    if kind not in ELEMENTS:
        raise g.unsupported(f"no such type {kind}")
    return kind, ELEMENTS[kind]


def signed(kind: str) -> bool:
    return kind.startswith("s")


def operands(g, i: Instruction, *elements: str) -> list[Value]:
    """The source operands, as the given LLVM types."""
    if len(i.operands) < len(elements) + 1:
        raise g.unsupported(f"it wants {len(elements)} sources")
    return [g.read(o, e) for o, e in zip(i.operands[1:], elements, strict=False)]


def allow(g, i: Instruction, *extra: str) -> None:
    """Refuse modifiers that this translation does not know."""
    for part in i.parts[1:-1]:
        if part not in extra:
            raise g.unsupported(f"modifier .{part}")


# ---- add, sub, mul, mad --------------------------------------------------------------------------------------------


@on("add", "sub")
def add_sub(g, i):
    kind, element = type_of(g, i)
    if kind.startswith(("f", "bf")):
        return floats.add_mul(g, i)
    a, b = operands(g, i, element, element)
    what = i.parts[0]
    if "cc" in i.parts:
        return _add_carry_out(g, i, a, b, None)
    if "sat" in i.parts:
        name = "sadd.sat" if what == "add" else "ssub.sat"
        return g.write(i.operands[0], g.v.apply(element, lambda up, x, y: up.call(name, element, x, y), a, b))
    allow(g, i)
    if what == "add" and a.scalar is not None:
        a, b = b, a
    if a.scalar is None and a.base is not None and b.scalar is not None:  # an address moved by one number
        base = g.f.let(f"{what} {element} {a.base}, {b.scalar}")
        return g.write(i.operands[0], Value(element, base=base, delta=a.delta))
    g.write(i.operands[0], g.v.apply(element, lambda up, x, y: up.op(what, element, x, y), a, b))


@on("addc", "subc")
def add_carry_in(g, i):
    _, element = type_of(g, i)
    a, b = operands(g, i, element, element)
    if g.carry is None:
        raise g.unsupported("the carry comes from another basic block")
    _add_carry_out(g, i, a, b, g.carry, keep="cc" in i.parts)


def _add_carry_out(g, i, a: Value, b: Value, carry: Value | None, keep: bool = True) -> None:
    """`carry` is 1 where the sum so far overflowed, for sub where it borrowed."""
    element = a.element
    what = "add" if i.parts[0].startswith("add") else "sub"
    past = "ult" if what == "add" else "ugt"

    def once(up: Lift, x, y):
        return up.op(what, element, x, y)

    total = g.v.apply(element, once, a, b)
    out = g.v.apply("i1", lambda up, t, x: up.op(f"icmp {past}", element, t, x), total, a)
    if carry is not None:
        more = g.v.apply(element, lambda up, c: up.cast("zext", "i1", c, element), carry)
        second = g.v.apply(element, once, total, more)
        again = g.v.apply("i1", lambda up, t, x: up.op(f"icmp {past}", element, t, x), second, total)
        out = g.v.apply("i1", lambda up, x, y: up.op("or", "i1", x, y), out, again)
        total = second
    g.write(i.operands[0], total)
    if keep:
        g.carry = out


def _product(up: Lift, part: str, kind: str, element: str, x: str, y: str) -> str:
    """lo, hi or wide product of two integers."""
    if part == "lo":
        return up.op("mul", element, x, y)
    double = f"i{2 * BITS[element]}"
    extend = "sext" if signed(kind) else "zext"
    wide = up.op("mul", double, up.cast(extend, element, x, double), up.cast(extend, element, y, double))
    if part == "wide":
        return wide
    high = up.op("lshr", double, wide, up.const(double, BITS[element]))
    return up.cast("trunc", double, high, element)


def _part(g, i: Instruction) -> str:
    for part in ("lo", "hi", "wide"):
        if part in i.parts:
            return part
    raise g.unsupported("neither .lo nor .hi nor .wide")


@on("mul")
def mul(g, i):
    kind, element = type_of(g, i)
    if kind.startswith(("f", "bf")):
        return floats.add_mul(g, i)
    part = _part(g, i)
    a, b = operands(g, i, element, element)
    result = f"i{2 * BITS[element]}" if part == "wide" else element
    value = g.v.apply(result, lambda up, x, y: _product(up, part, kind, element, x, y), a, b)
    g.write(i.operands[0], value, signed(kind))


@on("mad")
def mad(g, i):
    kind, element = type_of(g, i)
    if kind.startswith("f"):
        return floats.fma(g, i)
    part = _part(g, i)
    result = f"i{2 * BITS[element]}" if part == "wide" else element
    a, b, c = operands(g, i, element, element, result)
    if "cc" in i.parts:
        raise g.unsupported("carry")

    def make(up, x, y, z):
        total = up.op("add", result, _product(up, part, kind, element, x, y), z)
        return total

    if "sat" in i.parts:
        raise g.unsupported("saturation")
    g.write(i.operands[0], g.v.apply(result, make, a, b, c), signed(kind))


@on("mul24", "mad24")
def mul24(g, i):
    kind, element = type_of(g, i)
    high = "hi" in i.parts
    values = operands(g, i, *[element] * (len(i.operands) - 1))
    shift = "ashr" if signed(kind) else "lshr"

    def make(up, x, y, *z):
        def cut(v):
            return up.op(shift, element, up.op("shl", element, v, up.const(element, 8)), up.const(element, 8))

        extend = "sext" if signed(kind) else "zext"
        wide = up.op("mul", "i64", up.cast(extend, element, cut(x), "i64"), up.cast(extend, element, cut(y), "i64"))
        if high:
            wide = up.op("lshr", "i64", wide, up.const("i64", 16))
        product = up.cast("trunc", "i64", wide, element)
        return up.op("add", element, product, *z) if z else product

    g.write(i.operands[0], g.v.apply(element, make, *values))


@on("sad")
def sad(g, i):
    kind, element = type_of(g, i)
    a, b, c = operands(g, i, element, element, element)
    less = "icmp slt" if signed(kind) else "icmp ult"

    def make(up, x, y, z):
        up_, down = up.op("sub", element, y, x), up.op("sub", element, x, y)
        return up.op("add", element, z, up.select(up.op(less, element, x, y), element, up_, down))

    g.write(i.operands[0], g.v.apply(element, make, a, b, c))


@on("div", "rem")
def div_rem(g, i):
    kind, element = type_of(g, i)
    if kind.startswith("f"):
        return floats.div(g, i)
    a, b = operands(g, i, element, element)
    minus = signed(kind)
    what = ("s" if minus else "u") + i.parts[0]
    quotient = i.parts[0] == "div"

    def make(up, x, y):
        # LLVM leaves division by zero and MIN / −1 undefined: divide by 1 there and put the answer in afterwards
        zero = up.op("icmp eq", element, y, up.const(element, 0))
        safe = up.select(zero, element, up.const(element, 1), y)
        if minus:
            minus_one = up.op("icmp eq", element, y, up.const(element, -1))
            safe = up.select(minus_one, element, up.const(element, 1), safe)
        out = up.op(what, element, x, safe)
        if minus:
            negated = up.op("sub", element, up.const(element, 0), x)
            out = up.select(minus_one, element, negated if quotient else up.const(element, 0), out)
        return up.select(zero, element, up.const(element, -1) if quotient else x, out)

    g.write(i.operands[0], g.v.apply(element, make, a, b))


@on("min", "max")
def min_max(g, i):
    kind, element = type_of(g, i)
    if kind.startswith(("f", "bf")):
        return floats.min_max(g, i)
    name = ("s" if signed(kind) else "u") + i.parts[0]
    a, b = operands(g, i, element, element)
    g.write(i.operands[0], g.v.apply(element, lambda up, x, y: up.call(name, element, x, y), a, b))


@on("abs", "neg")
def abs_neg(g, i):
    kind, element = type_of(g, i)
    if kind.startswith(("f", "bf")):
        return floats.abs_neg(g, i)
    (a,) = operands(g, i, element)

    def make(up, x):
        minus = up.op("sub", element, up.const(element, 0), x)
        if i.parts[0] == "neg":
            return minus
        return up.select(up.op("icmp slt", element, x, up.const(element, 0)), element, minus, x)

    g.write(i.operands[0], g.v.apply(element, make, a))


# ---- bits ----------------------------------------------------------------------------------------------------------


@on("and", "or", "xor")
def logic(g, i):
    _, element = type_of(g, i)
    a, b = operands(g, i, element, element)
    what = i.parts[0]
    if element == "i1" and (a.scalar is None or b.scalar is None):  # on the bits of all lanes at once
        value = Value("i1", vector=g.f.let(f"{what} i32 {g.v.wide(a)}, {g.v.wide(b)}"))
    else:
        value = g.v.apply(element, lambda up, x, y: up.op(what, element, x, y), a, b)
    g.write(i.operands[0], value)


@on("not", "cnot")
def not_(g, i):
    _, element = type_of(g, i)
    (a,) = operands(g, i, element)
    if i.parts[0] == "cnot":

        def zero(up, x):
            return up.cast("zext", "i1", up.op("icmp eq", element, x, up.const(element, 0)), element)

        return g.write(i.operands[0], g.v.apply(element, zero, a))
    ones = "true" if element == "i1" else "-1"
    g.write(i.operands[0], g.v.apply(element, lambda up, x: up.op("xor", element, x, up.const(element, ones)), a))


@on("shl", "shr")
def shift(g, i):
    kind, element = type_of(g, i)
    a, n = operands(g, i, element, "i32")
    bits = BITS[element]
    arithmetic = i.parts[0] == "shr" and signed(kind)
    what = "shl" if i.parts[0] == "shl" else ("ashr" if arithmetic else "lshr")

    def make(up, x, count):
        # a shift past the width gives 0, or the sign; LLVM leaves it undefined
        last = up.const("i32", bits - 1)
        within = up.call("umin", "i32", count, last)
        amount = within
        if bits < 32:
            amount = up.cast("trunc", "i32", within, element)
        elif bits > 32:
            amount = up.cast("zext", "i32", within, element)
        moved = up.op(what, element, x, amount)
        if arithmetic:
            return moved
        past = up.op("icmp ugt", "i32", count, last)
        return up.select(past, element, up.const(element, 0), moved)

    g.write(i.operands[0], g.v.apply(element, make, a, n), signed(kind))


@on("shf")
def funnel(g, i):
    a, b, n = operands(g, i, "i32", "i32", "i32")
    left, wrap = "l" in i.parts, "wrap" in i.parts

    def make(up, low, high, count):
        top = up.const("i32", 31 if wrap else 32)
        count = up.op("and", "i32", count, top) if wrap else up.call("umin", "i32", count, top)
        both = up.op("shl", "i64", up.cast("zext", "i32", high, "i64"), up.const("i64", 32))
        both = up.op("or", "i64", both, up.cast("zext", "i32", low, "i64"))
        amount = up.cast("zext", "i32", count, "i64")
        if left:
            moved = up.op("shl", "i64", both, amount)
            moved = up.op("lshr", "i64", moved, up.const("i64", 32))
        else:
            moved = up.op("lshr", "i64", both, amount)
        return up.cast("trunc", "i64", moved, "i32")

    g.write(i.operands[0], g.v.apply("i32", make, a, b, n))


@on("popc", "clz", "brev")
def count_bits(g, i):
    _, element = type_of(g, i)
    (a,) = operands(g, i, element)

    def make(up, x):
        if i.parts[0] == "brev":
            return up.call("bitreverse", element, x)
        if i.parts[0] == "popc":
            return up.call("ctpop", element, x)
        kind = up.type(element)
        return up.f.call(kind, up.intrinsic("ctlz", element), (kind, x), ("i1", "false"))

    value = g.v.apply(element, make, a)
    g.write(i.operands[0], value if i.parts[0] == "brev" else g.v.cast(value, "i32"))


@on("bfind")
def bfind(g, i):
    kind, element = type_of(g, i)
    (a,) = operands(g, i, element)
    bits = BITS[element]

    def make(up, x):
        if signed(kind):  # the highest bit that differs from the sign
            x = up.op("xor", element, x, up.op("ashr", element, x, up.const(element, bits - 1)))
        t = up.type(element)
        zeros = up.f.call(t, up.intrinsic("ctlz", element), (t, x), ("i1", "false"))
        place = zeros
        if "shiftamt" not in i.parts:
            place = up.op("sub", element, up.const(element, bits - 1), zeros)
        none = up.op("icmp eq", element, x, up.const(element, 0))
        return up.select(none, element, up.const(element, -1), place)

    g.write(i.operands[0], g.v.cast(g.v.apply(element, make, a), "i32"))


@on("bfe")
def bfe(g, i):
    kind, element = type_of(g, i)
    a, b, c = operands(g, i, element, "i32", "i32")
    bits = BITS[element]

    def make(up, x, start, length):
        def resize(v):
            return v if element == "i32" else up.cast("zext", "i32", v, element)

        start = up.op("and", "i32", start, up.const("i32", 255))
        length = up.op("and", "i32", length, up.const("i32", 255))
        last = up.const("i32", bits - 1)
        # the field's end, kept inside the word
        stop = up.call("umin", "i32", up.op("add", "i32", start, length), up.const("i32", bits))
        first = up.call("umin", "i32", start, last)
        none = up.op("icmp eq", "i32", length, up.const("i32", 0))
        above = up.op("sub", "i32", up.const("i32", bits), stop)
        above_safe = up.call("umin", "i32", above, last)
        moved = up.op("shl", element, x, resize(above_safe))
        back = up.call("umin", "i32", up.op("add", "i32", above_safe, first), last)
        out = up.op("ashr" if signed(kind) else "lshr", element, moved, resize(back))
        past = up.op("icmp uge", "i32", start, up.const("i32", bits))
        beyond = up.const(element, 0)
        if signed(kind):
            beyond = up.op("ashr", element, x, up.const(element, bits - 1))
        out = up.select(past, element, beyond, out)
        return up.select(none, element, up.const(element, 0), out)

    g.write(i.operands[0], g.v.apply(element, make, a, b, c))


@on("bfi")
def bfi(g, i):
    _, element = type_of(g, i)
    a, b, c, d = operands(g, i, element, element, "i32", "i32")
    bits = BITS[element]

    def make(up, field, into, start, length):
        def resize(v):
            return v if element == "i32" else up.cast("zext", "i32", v, element)

        start = up.op("and", "i32", start, up.const("i32", 255))
        length = up.op("and", "i32", length, up.const("i32", 255))
        last = up.const("i32", bits - 1)
        whole = up.op("icmp uge", "i32", length, up.const("i32", bits))
        ones = up.op("shl", element, up.const(element, 1), resize(up.call("umin", "i32", length, last)))
        ones = up.op("sub", element, ones, up.const(element, 1))
        ones = up.select(whole, element, up.const(element, -1), ones)
        by = resize(up.call("umin", "i32", start, last))
        mask = up.op("shl", element, ones, by)
        put = up.op("and", element, up.op("shl", element, field, by), mask)
        keep = up.op("and", element, into, up.op("xor", element, mask, up.const(element, -1)))
        past = up.op("icmp uge", "i32", start, up.const("i32", bits))
        return up.select(past, element, into, up.op("or", element, put, keep))

    g.write(i.operands[0], g.v.apply(element, make, a, b, c, d))


_PRMT_ROWS = {  # which of the 8 bytes each result byte takes, by the selector's low two bits
    "f4e": lambda s: [s, s + 1, s + 2, s + 3],
    "b4e": lambda s: [s, (s - 1) % 8, (s - 2) % 8, (s - 3) % 8],
    "rc8": lambda s: [s] * 4,
    "ecl": lambda s: [max(s, n) for n in range(4)],
    "ecr": lambda s: [min(s, n) for n in range(4)],
    "rc16": lambda s: [2 * (s & 1), 2 * (s & 1) + 1] * 2,
}


@on("prmt")
def prmt(g, i):
    a, b, c = operands(g, i, "i32", "i32", "i32")
    mode = i.parts[2] if len(i.parts) > 2 else ""
    if mode and mode not in _PRMT_ROWS:
        raise g.unsupported(f"mode .{mode}")

    def nibbles(up, selector):
        """The default mode's selector for a special mode: a table of four, packed into shifts."""
        if not mode:
            return selector
        rows = [sum(byte << 4 * n for n, byte in enumerate(_PRMT_ROWS[mode](s))) for s in range(4)]
        low = up.op("and", "i32", selector, up.const("i32", 3))
        out = up.const("i32", rows[0])
        for s in (1, 2, 3):
            out = up.select(up.op("icmp eq", "i32", low, up.const("i32", s)), "i32", up.const("i32", rows[s]), out)
        return out

    def make(up, low, high, selector):
        selector = nibbles(up, selector)
        both = up.op("shl", "i64", up.cast("zext", "i32", high, "i64"), up.const("i64", 32))
        both = up.op("or", "i64", both, up.cast("zext", "i32", low, "i64"))
        out = up.const("i32", 0)
        for n in range(4):
            choice = up.op("lshr", "i32", selector, up.const("i32", 4 * n))
            place = up.op("shl", "i32", up.op("and", "i32", choice, up.const("i32", 7)), up.const("i32", 3))
            byte = up.cast("trunc", "i64", up.op("lshr", "i64", both, up.cast("zext", "i32", place, "i64")), "i8")
            sign = up.op("ashr", "i8", byte, up.const("i8", 7))
            wants_sign = up.op("icmp ne", "i32", up.op("and", "i32", choice, up.const("i32", 8)), up.const("i32", 0))
            byte = up.select(wants_sign, "i8", sign, byte)
            part = up.op("shl", "i32", up.cast("zext", "i8", byte, "i32"), up.const("i32", 8 * n))
            out = up.op("or", "i32", out, part)
        return out

    g.write(i.operands[0], g.v.apply("i32", make, a, b, c))


@on("lop3")
def lop3(g, i):
    table = i.operands[4]
    if not isinstance(table, Imm) or len(i.parts) > 2:
        raise g.unsupported("a look-up table that is not a constant, or a .BoolOp")
    values = operands(g, i, "i32", "i32", "i32")

    def make(up, *xs):
        out = up.const("i32", 0)
        for row in range(8):
            if table.value >> row & 1:
                term = up.const("i32", -1)
                for bit, x in zip((4, 2, 1), xs, strict=True):
                    side = x if row & bit else up.op("xor", "i32", x, up.const("i32", -1))
                    term = up.op("and", "i32", term, side)
                out = up.op("or", "i32", out, term)
        return out

    g.write(i.operands[0], g.v.apply("i32", make, *values))


@on("dp4a")
def dp4a(g, i):
    a, b, c = operands(g, i, "i32", "i32", "i32")
    kinds = i.parts[1:3]

    def make(up, x, y, total):
        for n in range(4):
            parts = []
            for value, kind in ((x, kinds[0]), (y, kinds[1])):
                top = up.op("shl", "i32", value, up.const("i32", 24 - 8 * n))
                parts.append(up.op("ashr" if kind == "s32" else "lshr", "i32", top, up.const("i32", 24)))
            total = up.op("add", "i32", total, up.op("mul", "i32", *parts))
        return total

    g.write(i.operands[0], g.v.apply("i32", make, a, b, c))


# ---- comparison and selection --------------------------------------------------------------------------------------

_UNSIGNED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}


def _compare(g, test: str, kind: str, element: str):
    """The LLVM comparison for a PTX test on a PTX type, as a function of (lift, x, y)."""
    if element in FLOATS or kind in ("f16", "bf16"):
        return floats.comparison(g, test, kind)
    if test in _UNSIGNED:
        code = _UNSIGNED[test]
    elif test in ("eq", "ne"):
        code = test
    elif test in ("lt", "le", "gt", "ge"):
        code = ("s" if signed(kind) else "u") + test
    else:
        raise g.unsupported(f"comparison .{test}")
    return lambda up, x, y: up.op(f"icmp {code}", element, x, y)


@on("setp")
def setp(g, i):
    kind, element = type_of(g, i)
    a, b = operands(g, i, element, element)
    if "ftz" in i.parts:
        a, b = floats.flush(g, a), floats.flush(g, b)
    outcome = g.v.apply("i1", _compare(g, i.parts[1], kind, element), a, b)
    join = next((p for p in i.parts[2:-1] if p in ("and", "or", "xor")), None)
    target = i.operands[0]
    first, second = (target.first, target.second) if isinstance(target, Pair) else (target, None)
    results = [(first, outcome)]
    if second is not None:
        results.append((second, g.negate(outcome)))
    with_ = g.read(i.operands[3], "i1") if join else None
    # both are worked out before either is written: a source may be the first target
    values = [
        (t, g.v.apply("i1", lambda up, x, y: up.op(join, "i1", x, y), v, with_) if join else v) for t, v in results
    ]
    for register, value in values:
        g.write(register, value)


@on("set")
def set_(g, i):
    result, kind = i.parts[-2], i.parts[-1]
    element = ELEMENTS[kind]
    a, b = operands(g, i, element, element)
    if "ftz" in i.parts:
        a, b = floats.flush(g, a), floats.flush(g, b)
    outcome = g.v.apply("i1", _compare(g, i.parts[1], kind, element), a, b)
    join = next((p for p in i.parts[2:-2] if p in ("and", "or", "xor")), None)
    if join:
        with_ = g.read(i.operands[3], "i1")
        outcome = g.v.apply("i1", lambda up, x, y: up.op(join, "i1", x, y), outcome, with_)
    target = ELEMENTS[result]

    def make(up, p):
        if target == "float":
            return up.cast("uitofp", "i1", p, "float")
        return up.cast("sext", "i1", p, target)

    g.write(i.operands[0], g.v.apply(target, make, outcome))


@on("selp")
def selp(g, i):
    _, element = type_of(g, i)
    a, b, p = operands(g, i, element, element, "i1")
    g.write(i.operands[0], g.v.apply(element, lambda up, c, x, y: up.select(c, element, x, y), p, a, b))


@on("slct")
def slct(g, i):
    _, element = i.parts[-2], ELEMENTS[i.parts[-2]]
    test = ELEMENTS[i.parts[-1]]
    a, b, c = operands(g, i, element, element, test)

    def make(up, x, y, z):
        if test == "float":
            if "ftz" in i.parts:
                z = floats.flushed(up, z)
            good = up.op("fcmp oge", test, z, up.const(test, "0.0"))
        else:
            good = up.op("icmp sge", test, z, up.const(test, 0))
        return up.select(good, element, x, y)

    g.write(i.operands[0], g.v.apply(element, make, a, b, c))


# ---- moves ---------------------------------------------------------------------------------------------------------


@on("mov")
def mov(g, i):
    _, element = type_of(g, i)
    target, source = i.operands[0], i.operands[1]
    if isinstance(target, Vector):
        return _unpack(g, target, g.read(source, element))
    if isinstance(source, Vector):
        return g.write(target, _pack(g, source, element))
    if isinstance(source, Symbol) and source.name in g.plan.param_offsets:
        raise g.unsupported("the address of a parameter")
    value = g.read(source, None if isinstance(source, Reg | Special) else element)
    if BITS[value.element] != BITS[element]:
        value = g.v.cast(value, element)
    g.write(target, value)


def _pack(g, source: Vector, element: str) -> Value:
    part = BITS[element] // len(source.items)
    total = None
    for n, item in enumerate(source.items):
        piece = g.read(item, f"i{part}")

        def make(up, x, *so_far, n=n):
            x = up.op("shl", element, up.cast("zext", f"i{part}", x, element), up.const(element, n * part))
            return up.op("or", element, x, *so_far) if so_far else x

        total = g.v.apply(element, make, piece, *([total] if total else []))
    return total


def _unpack(g, target: Vector, value: Value) -> None:
    bits = BITS[value.element]
    value = g.v.cast(value, f"i{bits}")
    part = bits // len(target.items)
    for n, item in enumerate(target.items):
        if item is None:
            continue

        def make(up, x, n=n):
            return up.cast(
                "trunc", f"i{bits}", up.op("lshr", f"i{bits}", x, up.const(f"i{bits}", n * part)), f"i{part}"
            )

        g.write(item, g.v.apply(f"i{part}", make, value))


@on("cvta")
def cvta(g, i):
    _, element = type_of(g, i)
    (a,) = operands(g, i, element)
    space = next(
        (p.split("::")[0] for p in i.parts[1:] if p.split("::")[0] in ("global", "shared", "local", "const")), None
    )
    if space is None:
        raise g.unsupported("its state space")
    window = WINDOWS.get(space, 0)
    if not window:
        return g.write(i.operands[0], a)
    move = -window if "to" in i.parts else window
    offset = Value(element, scalar=str(move))
    if a.base is not None and a.scalar is None:
        base = g.f.let(f"add {element} {a.base}, {move}")
        return g.write(i.operands[0], Value(element, base=base, delta=a.delta))
    g.write(i.operands[0], g.v.apply(element, lambda up, x, y: up.op("add", element, x, y), a, offset))


@on("isspacep")
def isspacep(g, i):
    a = g.read(i.operands[1], "i64")
    space = i.parts[1].split("::")[0]

    def inside(up, x, window):
        off = up.op("sub", "i64", x, up.const("i64", window))
        return up.op("icmp ult", "i64", off, up.const("i64", at.WINDOW_SIZE))

    def make(up, x):
        if space in WINDOWS:
            return inside(up, x, WINDOWS[space])
        either = up.op("or", "i1", inside(up, x, at.SHARED_WINDOW), inside(up, x, at.LOCAL_WINDOW))
        return up.op("xor", "i1", either, up.const("i1", "true"))

    if space not in ("shared", "local", "global"):
        raise g.unsupported("its state space")
    g.write(i.operands[0], g.v.apply("i1", make, a))


def special(g, name: str) -> Value:
    """The value of a special register such as %tid.x."""
    f = g.f
    base, _, axis = name[1:].partition(".")
    index = "xyz".find(axis) if axis else 0
    if axis == "w":
        return Value("i32", scalar="0" if base in ("tid", "ctaid") else "1")
    if base == "tid":
        return Value("i32", vector=f.load(vec("i32"), "%W", at.TID + 4 * at.LANES * index, 32))
    places = {"ctaid": at.CTAID, "ntid": at.NTID, "nctaid": at.NCTAID}
    if base in places:
        return Value("i32", scalar=f.load("i32", "%M", places[base] + 4 * index))
    if base == "laneid":
        return Value("i32", vector="<" + ", ".join(f"i32 {n}" for n in range(at.LANES)) + ">")
    if base.startswith("lanemask_"):
        return Value("i32", vector=_lane_masks(base[-2:]))
    simple = {
        "warpid": ("%W", at.WARP_ID),
        "nwarpid": ("%M", at.N_WARPS),
        "dynamic_smem_size": ("%M", at.SHARED_DYNAMIC),
    }
    if base in simple:
        return Value("i32", scalar=f.load("i32", *simple[base]))
    if base in ("clock", "clock64", "globaltimer", "clock_hi", "globaltimer_lo", "globaltimer_hi"):
        f.add_to("i64", "100", "%M", at.CLOCK)  # no clock is modelled: it only moves on
        ticks = Value("i64", scalar=f.load("i64", "%M", at.CLOCK))
        if base.endswith("_hi"):
            return Value("i32", scalar="0")
        return ticks if base in ("clock64", "globaltimer") else g.v.cast(ticks, "i32")
    if base in ("smid", "gridid"):
        return Value("i32" if base == "smid" else "i64", scalar="0")
    if base == "nsmid":
        return Value("i32", scalar="1")
    if base == "total_smem_size":
        return g.v.cast(Value("i64", scalar=f.load("i64", "%M", at.SHARED_SIZE)), "i32")
    raise g.unsupported(f"special register {name}")


def _lane_masks(which: str) -> str:
    tests = {
        "eq": lambda n: 1 << n,
        "lt": lambda n: (1 << n) - 1,
        "le": lambda n: (2 << n) - 1,
        "gt": lambda n: ~((2 << n) - 1),
        "ge": lambda n: ~((1 << n) - 1),
    }
    values = [tests[which](n) & 0xFFFFFFFF for n in range(at.LANES)]
    return "<" + ", ".join(f"i32 {v - (1 << 32) if v >> 31 else v}" for v in values) + ">"
