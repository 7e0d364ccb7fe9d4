"""Tracer, room 6: rounding and float16, as LLVM IR — what no single instruction of a CPU does.

float32 results are rounded in any mode by way of float64 rounded to odd: rounding that once more is then right.
Source: Boldo, Melquiond, "Emulation of FMA and Correctly Rounded Sums: Proved Algorithms Using Rounding to Odd",
IEEE Transactions on Computers 57 (2008).
"""

from __future__ import annotations

from gpudays.ptx.values import Lift

TINY = {"float": "0x3810000000000000", "double": "0x0010000000000000"}  # the smallest normal numbers


def flushed(up: Lift, x: str) -> str:
    """A subnormal float32 becomes a zero of the same sign."""
    size = up.call("fabs", "float", x)
    small = up.op("fcmp olt", "float", size, up.const("float", TINY["float"]))
    zero = up.call("copysign", "float", up.const("float", "0.0"), x)
    return up.select(small, "float", zero, x)


def saturated(up: Lift, element: str, x: str) -> str:
    """Clamped to [0, 1]; NaN becomes 0."""
    zero, one = up.const(element, "0.0"), up.const(element, "1.0")
    above = up.op("fcmp ogt", element, x, zero)
    x = up.select(above, element, x, zero)
    return up.select(up.op("fcmp olt", element, x, one), element, x, one)


def half_to_float(up: Lift, h: str) -> str:
    """float16 bits (i16) to float32, exactly, by integer arithmetic: no CPU support is needed."""
    bits = up.cast("zext", "i16", h, "i32")
    sign = up.op("shl", "i32", up.op("and", "i32", bits, up.const("i32", 0x8000)), up.const("i32", 16))
    rest = up.op("shl", "i32", up.op("and", "i32", bits, up.const("i32", 0x7FFF)), up.const("i32", 13))
    # as a float32 the exponent is 112 too small; multiplying by 2^112 mends that, subnormals included
    scaled = up.cast("bitcast", "i32", rest, "float")
    scaled = up.op("fmul", "float", scaled, up.const("float", "0x46F0000000000000"))
    special = up.op("icmp uge", "i32", rest, up.const("i32", 0x0F800000))
    out = up.cast("bitcast", "float", scaled, "i32")
    out = up.select(special, "i32", up.op("or", "i32", rest, up.const("i32", 0x7F800000)), out)
    return up.cast("bitcast", "i32", up.op("or", "i32", out, sign), "float")


def float_to_half(up: Lift, x: str, mode: str = "rn") -> str:
    """float32 to float16 bits (i16), rounded to nearest even or towards zero."""
    bits = up.cast("bitcast", "float", x, "i32")
    sign = up.op("lshr", "i32", up.op("and", "i32", bits, up.const("i32", -0x80000000)), up.const("i32", 16))
    size = up.op("and", "i32", bits, up.const("i32", 0x7FFFFFFF))
    # normal: re-bias the exponent, keep 10 of 23 mantissa bits
    normal = up.op("sub", "i32", size, up.const("i32", 112 << 23))
    if mode == "rn":
        odd = up.op("and", "i32", up.op("lshr", "i32", normal, up.const("i32", 13)), up.const("i32", 1))
        normal = up.op("add", "i32", up.op("add", "i32", normal, up.const("i32", 0xFFF)), odd)
    normal = up.op("lshr", "i32", normal, up.const("i32", 13))
    # subnormal: x·2^24 as an integer
    scaled = up.op("fmul", "float", up.cast("bitcast", "i32", size, "float"), up.const("float", "0x4170000000000000"))
    least = up.op("icmp ult", "i32", size, up.const("i32", 113 << 23))
    scaled = up.select(least, "float", scaled, up.const("float", "0.0"))
    whole = up.call("rint" if mode == "rn" else "trunc", "float", scaled)
    tiny = up.cast("fptosi", "float", whole, "i32")
    out = up.select(least, "i32", tiny, normal)
    big = up.op("icmp uge", "i32", size, up.const("i32", (143 << 23)))
    limit = 0x7C00 if mode == "rn" else 0x7BFF
    out = up.select(big, "i32", up.const("i32", limit), out)
    infinite = up.op("icmp eq", "i32", size, up.const("i32", 0x7F800000))
    out = up.select(infinite, "i32", up.const("i32", 0x7C00), out)
    nan = up.op("icmp ugt", "i32", size, up.const("i32", 0x7F800000))
    out = up.select(nan, "i32", up.const("i32", 0x7FFF), out)
    return up.cast("trunc", "i32", up.op("or", "i32", out, sign), "i16")


def narrow(up: Lift, x: str, mode: str) -> str:
    """float64 to float32 in a rounding mode: the nearest float, moved one step where that went the wrong way."""
    near = up.cast("fptrunc", "double", x, "float")
    if mode == "rn":
        return near
    back = up.cast("fpext", "float", near, "double")
    bits = up.cast("bitcast", "float", near, "i32")
    negative = up.op("icmp slt", "i32", bits, up.const("i32", 0))
    too_big, too_small = up.op("fcmp ogt", "double", back, x), up.op("fcmp olt", "double", back, x)
    one = up.const("i32", 1)
    outward, inward = up.op("add", "i32", bits, one), up.op("sub", "i32", bits, one)
    zero = up.op("fcmp oeq", "float", near, up.const("float", "0.0"))
    down = up.select(negative, "i32", outward, inward)
    down = up.select(zero, "i32", up.const("i32", -0x7FFFFFFF), down)
    rise = up.select(negative, "i32", inward, outward)
    rise = up.select(zero, "i32", one, rise)
    if mode == "rm":
        out = up.select(too_big, "i32", down, bits)
    elif mode == "rp":
        out = up.select(too_small, "i32", rise, bits)
    else:  # towards zero: down if positive, up if negative
        positive = up.op("fcmp ogt", "double", x, up.const("double", "0.0"))
        lower = up.select(up.op("and", "i1", too_big, positive), "i32", down, bits)
        minus = up.op("fcmp olt", "double", x, up.const("double", "0.0"))
        out = up.select(up.op("and", "i1", too_small, minus), "i32", rise, lower)
    return up.cast("bitcast", "i32", out, "float")


def sum_to_odd(up: Lift, a: str, b: str) -> str:
    """a + b in float64, rounded to odd: rounding that once more to float32 is then right in every mode.

    Source: Boldo, Melquiond, "Emulation of FMA and Correctly Rounded Sums: Proved Algorithms Using Rounding to Odd",
    IEEE Transactions on Computers 57 (2008). The error of the sum comes from Knuth's TwoSum.
    """
    total = up.op("fadd", "double", a, b)
    b_part = up.op("fsub", "double", total, a)
    a_part = up.op("fsub", "double", total, b_part)
    error = up.op("fadd", "double", up.op("fsub", "double", a, a_part), up.op("fsub", "double", b, b_part))
    bits = up.cast("bitcast", "double", total, "i64")
    even = up.op("icmp eq", "i64", up.op("and", "i64", bits, up.const("i64", 1)), up.const("i64", 0))
    inexact = up.op("fcmp one", "double", error, up.const("double", "0.0"))
    grows = up.op(
        "icmp sge", "i64", up.op("xor", "i64", bits, up.cast("bitcast", "double", error, "i64")), up.const("i64", 0)
    )
    step = up.select(grows, "i64", up.const("i64", 1), up.const("i64", -1))
    moved = up.op("add", "i64", bits, step)
    out = up.select(up.op("and", "i1", even, inexact), "i64", moved, bits)
    return up.cast("bitcast", "i64", out, "double")


def quotient_to_odd(up: Lift, a: str, b: str) -> str:
    """a / b in float64 rounded to odd; a and b are float32 values, so the remainder is exact."""
    near = up.op("fdiv", "double", a, b)
    back = up.f.let(f"fneg {up.type('double')} {near}")
    rest = up.call("fma", "double", back, b, a)  # a − near·b: near is too small if its sign is that of b
    signs = up.op("xor", "i64", up.cast("bitcast", "double", rest, "i64"), up.cast("bitcast", "double", b, "i64"))
    return _pushed_to_odd(up, near, rest, signs)


def root_to_odd(up: Lift, a: str) -> str:
    """sqrt(a) in float64 rounded to odd; a is a float32 value."""
    near = up.call("sqrt", "double", a)
    rest = up.call("fma", "double", up.f.let(f"fneg {up.type('double')} {near}"), near, a)
    return _pushed_to_odd(up, near, rest, up.cast("bitcast", "double", rest, "i64"))


def _pushed_to_odd(up: Lift, near: str, rest: str, sign: str) -> str:
    """`near` moved to an odd last bit if `rest` is not zero, upwards if `sign` (i64) is not negative."""
    bits = up.cast("bitcast", "double", near, "i64")
    even = up.op("icmp eq", "i64", up.op("and", "i64", bits, up.const("i64", 1)), up.const("i64", 0))
    inexact = up.op("fcmp one", "double", rest, up.const("double", "0.0"))
    outward = up.op("icmp sge", "i64", up.op("xor", "i64", sign, bits), up.const("i64", 0))
    step = up.select(outward, "i64", up.const("i64", 1), up.const("i64", -1))
    moved = up.op("add", "i64", bits, step)
    out = up.select(up.op("and", "i1", even, inexact), "i64", moved, bits)
    return up.cast("bitcast", "i64", out, "double")


def directed_sum(up: Lift, a: str, b: str, mode: str) -> str:
    out = narrow(up, sum_to_odd(up, a, b), mode)
    if mode != "rm":
        return out
    # an exact zero sum of opposite signs is −0 when rounding down
    exact = up.op("fcmp oeq", "double", up.op("fadd", "double", a, b), up.const("double", "0.0"))
    signs = up.op("xor", "i64", up.cast("bitcast", "double", a, "i64"), up.cast("bitcast", "double", b, "i64"))
    opposite = up.op("icmp slt", "i64", signs, up.const("i64", 0))
    return up.select(up.op("and", "i1", exact, opposite), "float", up.const("float", "-0.0"), out)


def narrow_to_odd(up: Lift, x: str) -> str:
    """float64 to float32 rounded to odd, so that rounding to float16 afterwards rounds once."""
    toward_zero = narrow(up, x, "rz")
    back = up.cast("fpext", "float", toward_zero, "double")
    inexact = up.op("fcmp one", "double", back, x)
    bits = up.cast("bitcast", "float", toward_zero, "i32")
    odd = up.op("or", "i32", bits, up.const("i32", 1))
    return up.cast("bitcast", "i32", up.select(inexact, "i32", odd, bits), "float")
