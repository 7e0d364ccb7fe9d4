"""Tracer, room 6: floating-point arithmetic and conversions of PTX as LLVM IR.

Source: NVIDIA, "Parallel Thread Execution ISA", "Floating Point Instructions" and "cvt". What the ISA leaves open is
chosen here: the approximations (ex2, lg2, sin, cos, rsqrt, …) are computed to the nearest float or nearly so, well
inside the errors that the ISA allows; a NaN result may carry another payload than a GPU's.
"""

from __future__ import annotations

from gpudays.ptx.ir import BITS
from gpudays.ptx.rounding_ir import (
    TINY,
    directed_sum,
    float_to_half,
    flushed,
    half_to_float,
    narrow,
    narrow_to_odd,
    quotient_to_odd,
    root_to_odd,
    saturated,
    sum_to_odd,
)
from gpudays.ptx.semantics import on
from gpudays.ptx.values import ELEMENTS, Value

DIRECTED = ("rz", "rm", "rp")


# ---- helpers -------------------------------------------------------------------------------------------------------


def flush(g, value: Value) -> Value:
    return g.v.apply("float", flushed, value) if value.element == "float" else value


def _mode(i) -> str:
    return next((p for p in i.parts[1:-1] if p in ("rn", *DIRECTED)), "rn")


_MODIFIERS = {"rn", *DIRECTED, "ftz", "sat", "approx", "full", "NaN"}


def _arguments(g, i, count: int) -> tuple[str, list[Value]]:
    kind = i.parts[-1]
    for part in i.parts[1:-1]:
        if part not in _MODIFIERS:
            raise g.unsupported(f"modifier .{part}")
    if kind in ("f16", "f16x2"):
        return kind, [g.read(o, ELEMENTS[kind]) for o in i.operands[1 : count + 1]]
    if kind not in ("f32", "f64") or len(i.operands) < count + 1:
        raise g.unsupported()
    values = [g.read(o, ELEMENTS[kind]) for o in i.operands[1 : count + 1]]
    if "ftz" in i.parts:
        values = [flush(g, v) for v in values]
    return kind, values


def _finish(g, i, value: Value) -> None:
    if "ftz" in i.parts:
        value = flush(g, value)
    if "sat" in i.parts:
        value = g.v.apply(value.element, lambda up, x: saturated(up, value.element, x), value)
    g.write(i.operands[0], value)


def _halves(g, i, kind: str, values: list[Value], make) -> None:
    """Do `make(up, *floats)` on float16 operands, one or two to a register; the result is rounded once."""

    def one(up, *xs):
        out = make(up, *(half_to_float(up, x) for x in xs))
        if "sat" in i.parts:
            out = saturated(up, "float", out)
        return float_to_half(up, out)

    if kind == "f16":
        return g.write(i.operands[0], g.v.apply("i16", one, *values))

    def two(up, *xs):
        low = one(up, *(up.cast("trunc", "i32", x, "i16") for x in xs))
        sixteen = up.const("i32", 16)
        high = one(up, *(up.cast("trunc", "i32", up.op("lshr", "i32", x, sixteen), "i16") for x in xs))
        high = up.op("shl", "i32", up.cast("zext", "i16", high, "i32"), sixteen)
        return up.op("or", "i32", high, up.cast("zext", "i16", low, "i32"))

    g.write(i.operands[0], g.v.apply("i32", two, *values))


# ---- arithmetic ----------------------------------------------------------------------------------------------------


def add_mul(g, i) -> None:
    """add, sub and mul."""
    kind, values = _arguments(g, i, 2)
    element, mode = ELEMENTS[kind], _mode(i)
    what = {"add": "fadd", "sub": "fsub", "mul": "fmul"}[i.parts[0]]
    if kind.startswith("f16"):
        return _halves(g, i, kind, values, lambda up, x, y: up.op(what, "float", x, y))
    if mode == "rn":
        return _finish(g, i, g.v.apply(element, lambda up, x, y: up.op(what, element, x, y), *values))
    if element == "double":
        return _finish(g, i, g.directed(what, mode, *values))

    def make(up, x, y):
        x, y = up.cast("fpext", "float", x, "double"), up.cast("fpext", "float", y, "double")
        if what == "fmul":
            return narrow(up, up.op("fmul", "double", x, y), mode)
        if what == "fsub":
            y = up.f.let(f"fneg {up.type('double')} {y}")
        return directed_sum(up, x, y, mode)

    _finish(g, i, g.v.apply("float", make, *values))


@on("fma")
def fma(g, i) -> None:
    kind, values = _arguments(g, i, 3)
    element, mode = ELEMENTS[kind], _mode(i)
    if "relu" in i.parts:
        raise g.unsupported("modifier .relu")
    if kind.startswith("f16"):

        def half(up, x, y, z):
            wide = [up.cast("fpext", "float", v, "double") for v in (x, y, z)]
            return narrow_to_odd(up, sum_to_odd(up, up.op("fmul", "double", *wide[:2]), wide[2]))

        return _halves(g, i, kind, values, half)
    if mode == "rn":
        return _finish(g, i, g.v.apply(element, lambda up, x, y, z: up.call("fma", element, x, y, z), *values))
    if element == "double":
        return _finish(g, i, g.directed("fma", mode, *values))

    def make(up, x, y, z):
        x, y, z = (up.cast("fpext", "float", v, "double") for v in (x, y, z))
        return directed_sum(up, up.op("fmul", "double", x, y), z, mode)  # the product of two floats is exact

    _finish(g, i, g.v.apply("float", make, *values))


def div(g, i) -> None:
    """div: the approximate forms are computed exactly rounded, inside their allowed error."""
    kind, values = _arguments(g, i, 2)
    element = ELEMENTS[kind]
    mode = _mode(i)
    if i.parts[0] != "div" or kind.startswith("f16"):
        raise g.unsupported()
    if mode != "rn" and element == "double":
        return _finish(g, i, g.directed("fdiv", mode, *values))
    if mode != "rn":

        def make(up, x, y):
            return narrow(up, quotient_to_odd(up, *(up.cast("fpext", "float", v, "double") for v in (x, y))), mode)

        return _finish(g, i, g.v.apply("float", make, *values))
    _finish(g, i, g.v.apply(element, lambda up, x, y: up.op("fdiv", element, x, y), *values))


def min_max(g, i) -> None:
    """min and max: −0 is less than +0; a NaN gives way to the other operand unless `.NaN`."""
    kind, values = _arguments(g, i, 2)
    element = ELEMENTS[kind]
    if "xorsign" in i.parts:
        raise g.unsupported("modifier .xorsign")

    element = "float" if kind.startswith("f16") else element

    def make(up, x, y):
        test = "fcmp olt" if i.parts[0] == "min" else "fcmp ogt"
        bits = f"i{BITS[element]}"
        out = up.select(up.op(test, element, x, y), element, x, y)
        equal = up.op("fcmp oeq", element, x, y)  # +0 and −0, or the same: join or meet their bits
        join = "or" if i.parts[0] == "min" else "and"
        xb, yb = up.cast("bitcast", element, x, bits), up.cast("bitcast", element, y, bits)
        both = up.cast("bitcast", bits, up.op(join, bits, xb, yb), element)
        out = up.select(equal, element, both, out)
        x_nan, y_nan = up.op("fcmp uno", element, x, x), up.op("fcmp uno", element, y, y)
        if "NaN" in i.parts:
            return up.select(y_nan, element, y, up.select(x_nan, element, x, out))
        return up.select(y_nan, element, x, up.select(x_nan, element, y, out))

    if kind.startswith("f16"):
        return _halves(g, i, kind, values, make)
    _finish(g, i, g.v.apply(element, make, *values))


def abs_neg(g, i) -> None:
    kind, values = _arguments(g, i, 1)
    element = ELEMENTS[kind]
    if kind.startswith("f16"):
        mask = {
            ("abs", "f16"): 0x7FFF,
            ("abs", "f16x2"): 0x7FFF7FFF,
            ("neg", "f16"): -0x8000,
            ("neg", "f16x2"): -0x7FFF8000,
        }
        what = "and" if i.parts[0] == "abs" else "xor"
        constant = mask[i.parts[0], kind]
        return g.write(
            i.operands[0],
            g.v.apply(element, lambda up, x: up.op(what, element, x, up.const(element, constant)), *values),
        )

    def make(up, x):
        if i.parts[0] == "abs":
            return up.call("fabs", element, x)
        return up.f.let(f"fneg {up.type(element)} {x}")

    _finish(g, i, g.v.apply(element, make, *values))


@on("copysign")
def copysign(g, i) -> None:
    kind, (sign, size) = _arguments(g, i, 2)
    element = ELEMENTS[kind]
    g.write(i.operands[0], g.v.apply(element, lambda up, s, x: up.call("copysign", element, x, s), sign, size))


@on("sqrt", "rcp", "rsqrt")
def roots(g, i) -> None:
    kind, values = _arguments(g, i, 1)
    element = ELEMENTS[kind]
    mode = _mode(i)
    if kind.startswith("f16") or (mode != "rn" and i.parts[0] == "rsqrt"):
        raise g.unsupported()
    if mode != "rn" and element == "double":
        one = Value("double", scalar="1.0")
        what, values = ("sqrt", values) if i.parts[0] == "sqrt" else ("fdiv", [one, *values])
        return _finish(g, i, g.directed(what, mode, *values))

    def make(up, x):
        one = up.const(element, "1.0")
        if mode != "rn":
            x = up.cast("fpext", "float", x, "double")
            one = up.const("double", "1.0")
            return narrow(up, quotient_to_odd(up, one, x) if i.parts[0] == "rcp" else root_to_odd(up, x), mode)
        if i.parts[0] == "rcp":
            return up.op("fdiv", element, one, x)
        if i.parts[0] == "sqrt":
            return up.call("sqrt", element, x)
        if element == "double":
            return up.op("fdiv", element, one, up.call("sqrt", element, x))
        wide = up.call("sqrt", "double", up.cast("fpext", "float", x, "double"))
        return up.cast("fptrunc", "double", up.op("fdiv", "double", up.const("double", "1.0"), wide), "float")

    _finish(g, i, g.v.apply(element, make, *values))


@on("ex2", "lg2", "sin", "cos", "tanh")
def transcendental(g, i) -> None:
    kind, values = _arguments(g, i, 1)
    if kind != "f32":
        raise g.unsupported()
    name = {"ex2": "exp2", "lg2": "log2"}.get(i.parts[0], i.parts[0])
    if name == "tanh":
        raise g.unsupported()
    _finish(g, i, g.v.apply("float", lambda up, x: up.call(name, "float", x), *values))


@on("testp")
def testp(g, i) -> None:
    element = ELEMENTS[i.parts[-1]]
    value = g.read(i.operands[1], element)
    infinity = "0x7FF0000000000000"

    def make(up, x):
        size = up.call("fabs", element, x)
        top, tiny, zero = (up.const(element, c) for c in (infinity, TINY[element], "0.0"))
        match i.parts[1]:
            case "finite":
                return up.op("fcmp olt", element, size, top)
            case "infinite":
                return up.op("fcmp oeq", element, size, top)
            case "number":
                return up.op("fcmp ord", element, x, x)
            case "notanumber":
                return up.op("fcmp uno", element, x, x)
            case "normal":
                least = up.op("fcmp oge", element, size, tiny)
                return up.op("and", "i1", least, up.op("fcmp olt", element, size, top))
            case "subnormal":
                some = up.op("fcmp ogt", element, size, zero)
                return up.op("and", "i1", some, up.op("fcmp olt", element, size, tiny))
        raise g.unsupported()

    g.write(i.operands[0], g.v.apply("i1", make, value))


_TESTS = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "num": "ord", "nan": "uno",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge",
}  # fmt: skip


def comparison(g, test: str, kind: str):
    """The LLVM comparison for a PTX test, as a function of (lift, x, y)."""
    if test not in _TESTS or kind == "bf16":
        raise g.unsupported(f"comparison .{test}")
    if kind == "f16":
        return lambda up, x, y: up.op(f"fcmp {_TESTS[test]}", "float", half_to_float(up, x), half_to_float(up, y))
    return lambda up, x, y: up.op(f"fcmp {_TESTS[test]}", ELEMENTS[kind], x, y)


# ---- cvt -----------------------------------------------------------------------------------------------------------


@on("cvt")
def cvt(g, i) -> None:
    if len(i.parts) < 3 or len(i.operands) != 2:
        raise g.unsupported()
    to, source = i.parts[-2], i.parts[-1]
    if to not in ELEMENTS or source not in ELEMENTS or "bf16" in (to, source) or "f16x2" in (to, source):
        raise g.unsupported()
    modifiers = set(i.parts[1:-2])
    if modifiers - {"rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "ftz", "sat"}:
        raise g.unsupported()
    value = g.read(i.operands[1], ELEMENTS[source])
    if source.startswith("f") and to.startswith("f"):
        out = _float_to_float(g, i, value, to, source, modifiers)
    elif source.startswith("f"):
        out = _float_to_integer(g, value, to, source, modifiers)
    elif to.startswith("f"):
        out = _integer_to_float(g, value, to, source, modifiers)
    else:
        out = _integer_to_integer(g, value, to, source, "sat" in modifiers)
    g.write(i.operands[0], out, to.startswith("s"))


_WHOLE = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def _float_to_float(g, i, value: Value, to: str, source: str, modifiers: set[str]) -> Value:
    if "ftz" in modifiers:
        value = flush(g, value)
    mode = next((m for m in ("rz", "rm", "rp") if m in modifiers), "rn")
    whole = next((m for m in modifiers if m in _WHOLE), None)

    def make(up, x):
        element = ELEMENTS[source]
        if source == "f16":
            x, element = half_to_float(up, x), "float"
        if whole:
            x = up.call(_WHOLE[whole], element, x)
        if to == "f64" and element == "float":
            x = up.cast("fpext", "float", x, "double")
        elif to == "f32" and element == "double":
            x = narrow(up, x, mode)
        elif to == "f16":
            if element == "double":
                x = narrow_to_odd(up, x)
            if mode not in ("rn", "rz"):
                raise g.unsupported(f"rounding .{mode} to f16")
            if "sat" in modifiers:
                x = saturated(up, "float", x)
            return float_to_half(up, x, mode)
        if "sat" in modifiers:
            x = saturated(up, ELEMENTS[to], x)
        return x

    out = g.v.apply(ELEMENTS[to], make, value)
    return flush(g, out) if "ftz" in modifiers else out


def _float_to_integer(g, value: Value, to: str, source: str, modifiers: set[str]) -> Value:
    whole = next((m for m in modifiers if m in _WHOLE), None)
    if whole is None:
        raise g.unsupported("no rounding to an integer")
    if "ftz" in modifiers:
        value = flush(g, value)
    target = ELEMENTS[to]
    name = "fptosi.sat" if to.startswith("s") else "fptoui.sat"

    def make(up, x):
        element = ELEMENTS[source]
        if source == "f16":
            x, element = half_to_float(up, x), "float"
        x = up.call(_WHOLE[whole], element, x)
        short = {"float": "f32", "double": "f64"}[element]
        lanes = "v32" if up.wide else ""
        function = f"@llvm.{name}.{lanes}{target}.{lanes}{short}"
        out = up.f.call(up.type(target), function, (up.type(element), x))  # clamps; NaN gives 0
        if BITS[target] < 64 and source != "f64":
            return out
        # PTX ISA 9.0, cvt: a NaN out of f64, or into 64 bits, becomes the top bit alone.
        top_bit = up.const(target, str(-(1 << (BITS[target] - 1))))
        return up.select(up.op("fcmp uno", element, x, x), target, top_bit, out)

    return g.v.apply(target, make, value)


def _integer_to_float(g, value: Value, to: str, source: str, modifiers: set[str]) -> Value:
    mode = next((m for m in ("rz", "rm", "rp") if m in modifiers), "rn")
    what = "sitofp" if source.startswith("s") else "uitofp"
    element = ELEMENTS[source]
    target = {"f16": "float"}.get(to, ELEMENTS[to])
    if target == "double" and BITS[element] == 64 and mode != "rn":
        return g.directed(what, mode, value)

    def make(up, x):
        if mode == "rn" or (target == "double" and BITS[element] <= 32):
            out = up.cast(what, element, x, target)
        elif target == "float" and BITS[element] <= 32:
            out = narrow(up, up.cast(what, element, x, "double"), mode)
        else:
            high = up.op("ashr" if what == "sitofp" else "lshr", element, x, up.const(element, 32))
            low = up.op("and", element, x, up.const(element, 0xFFFFFFFF))
            high = up.op(
                "fmul", "double", up.cast(what, element, high, "double"), up.const("double", "0x41F0000000000000")
            )
            out = narrow(up, sum_to_odd(up, high, up.cast("uitofp", element, low, "double")), mode)
        if to == "f16":
            if BITS[element] > 16:
                raise g.unsupported("a wide integer to f16")
            return float_to_half(up, out)
        return out

    return g.v.apply(ELEMENTS[to], make, value)


def _integer_to_integer(g, value: Value, to: str, source: str, saturate: bool) -> Value:
    have, want = ELEMENTS[source], ELEMENTS[to]
    if saturate:
        return _saturated_integer(g, value, to, source)
    if have == want:
        return value
    what = "trunc" if BITS[have] > BITS[want] else ("sext" if source.startswith("s") else "zext")
    return g.v.apply(want, lambda up, x: up.cast(what, have, x, want), value)


def _saturated_integer(g, value: Value, to: str, source: str) -> Value:
    have, want = ELEMENTS[source], ELEMENTS[to]
    bits = BITS[want]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if to.startswith("s") else (0, (1 << bits) - 1)

    def make(up, x):
        wide = up.cast("sext" if source.startswith("s") else "zext", have, x, "i128")
        wide = up.call("smin", "i128", wide, up.const("i128", high))
        wide = up.call("smax", "i128", wide, up.const("i128", low))
        return up.cast("trunc", "i128", wide, want)

    return g.v.apply(want, make, value)
