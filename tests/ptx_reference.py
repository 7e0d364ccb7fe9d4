"""The reference that both engines are held against: PTX arithmetic in Python integers and fractions.

Independent of NumPy and of any compiler: a float is a bit pattern, decoded to an exact fraction; a result is rounded
once, by the definition of IEEE 754. Source: NVIDIA, "Parallel Thread Execution ISA"; IEEE 754-2019, clause 4.3.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction

FORMATS = {"f16": (16, 11, "e", "H"), "f32": (32, 24, "f", "I"), "f64": (64, 53, "d", "Q")}
INF = float("inf")


def signed(bits: int, width: int) -> int:
    return bits - (1 << width) if bits >> (width - 1) else bits


def wrap(value: int, width: int) -> int:
    return value % (1 << width)


def number(bits: int, kind: str) -> int:
    """An integer operand's value."""
    width = int(kind[1:])
    bits = wrap(bits, width)
    return signed(bits, width) if kind[0] == "s" else bits


def decode(bits: int, kind: str) -> float:
    """A float operand's value; every f16 and f32 is exact as a Python float."""
    _, _, code, integer = FORMATS[kind]
    return struct.unpack(f"<{code}", struct.pack(f"<{integer}", bits))[0]


def encode(value: float, kind: str) -> int:
    """The bits of a value that the format holds exactly (or an infinity, a zero, a NaN)."""
    _, _, code, integer = FORMATS[kind]
    if math.isnan(value):
        return nan(kind)
    return struct.unpack(f"<{integer}", struct.pack(f"<{code}", value))[0]


def nan(kind: str) -> int:
    return {"f16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}[kind]


def is_nan(bits: int, kind: str) -> bool:
    return math.isnan(decode(bits, kind))


def round_fraction(value: Fraction, kind: str, mode: str = "rn", zero: float = 0.0) -> int:
    """The bits of `value` rounded once; an exact zero takes the sign of `zero`."""
    _, digits, _, _ = FORMATS[kind]
    least = {"f16": -14, "f32": -126, "f64": -1022}[kind]
    if value == 0:
        return encode(zero, kind)
    negative, magnitude = value < 0, abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    exponent = max(exponent, least)
    quantum = Fraction(2) ** (exponent - digits + 1)
    whole, rest = divmod(magnitude, quantum)
    up = {
        "rn": 2 * rest > quantum or (2 * rest == quantum and whole % 2 == 1),
        "rz": False,
        "rm": negative and rest > 0,
        "rp": not negative and rest > 0,
    }[mode]
    rounded = (whole + up) * quantum
    if rounded >= Fraction(2) ** (1 - least + 1):
        to_infinity = mode == "rn" or mode == ("rm" if negative else "rp")
        largest = float((2 - Fraction(2) ** (1 - digits)) * Fraction(2) ** (1 - least))
        return encode(math.copysign(INF if to_infinity else largest, -1 if negative else 1), kind)
    return encode(math.copysign(float(rounded), -1.0 if negative else 1.0), kind)


def flushed(bits: int, kind: str, flags) -> int:
    """`.ftz`: a subnormal f32 becomes a zero of its sign."""
    if "ftz" in flags and kind == "f32" and bits & 0x7F800000 == 0:
        return bits & 0x80000000
    return bits


def float_arithmetic(name: str, kind: str, flags: frozenset[str], *bits: int) -> int:
    """add, sub, mul, fma, div, rcp, sqrt: operands and result as bits, rounded once in the mode among `flags`."""
    mode = next((f for f in flags if f in ("rz", "rm", "rp")), "rn")
    values = [decode(flushed(b, kind, flags), kind) for b in bits]
    result = flushed(_float_arithmetic(name, kind, mode, *values), kind, flags)
    if "sat" in flags:
        value = decode(result, kind)
        result = encode(min(value, 1.0) if value > 0 else 0.0, kind)
    return result


def _float_arithmetic(name: str, kind: str, mode: str, *v: float) -> int:
    exact = [Fraction(x) if math.isfinite(x) else None for x in v]
    if name == "sub":
        return _float_arithmetic("add", kind, mode, v[0], -v[1])
    if name == "rcp":
        return _float_arithmetic("div", kind, mode, 1.0, v[0])
    if name == "sqrt":
        return _root(kind, mode, v[0])
    if name == "div":
        return _quotient(kind, mode, v[0], v[1])
    if name == "add":
        terms = [v[0], v[1]]
    else:  # mul, fma
        product = v[0] * v[1] if None in exact[:2] or 0 in exact[:2] else None  # special or zero: the sign is right
        terms = [product, *v[2:]]
        if product is None:
            if len(v) == 2:
                return round_fraction(exact[0] * exact[1], kind, mode)
            if exact[2] is None:
                return encode(v[2], kind)
            zero = -0.0 if mode == "rm" else 0.0
            return round_fraction(exact[0] * exact[1] + exact[2], kind, mode, zero)
        if len(v) == 2:
            return encode(product, kind)
    return _sum(kind, mode, *terms)


def _sum(kind: str, mode: str, a: float, b: float) -> int:
    if not (math.isfinite(a) and math.isfinite(b)):
        return encode(a + b, kind)
    if a == b == 0 and math.copysign(1, a) == math.copysign(1, b):
        return encode(a, kind)
    return round_fraction(Fraction(a) + Fraction(b), kind, mode, -0.0 if mode == "rm" else 0.0)


def _quotient(kind: str, mode: str, a: float, b: float) -> int:
    sign = math.copysign(1, a) * math.copysign(1, b)
    if math.isnan(a) or math.isnan(b) or (math.isinf(a) and math.isinf(b)) or (a == b == 0):
        return nan(kind)
    if math.isinf(a) or b == 0:
        return encode(sign * INF, kind)
    if a == 0 or math.isinf(b):
        return encode(sign * 0.0, kind)
    return round_fraction(Fraction(a) / Fraction(b), kind, mode)


def _root(kind: str, mode: str, a: float) -> int:
    if math.isnan(a) or a < 0:
        return nan(kind)
    if a == 0 or math.isinf(a):
        return encode(a, kind)
    value = Fraction(a)
    scale = 2 * 600  # enough digits that the remainder decides every rounding
    whole = math.isqrt((value.numerator << (2 * scale)) // value.denominator)
    root = Fraction(whole, 1 << scale)
    if root * root != value:
        root += Fraction(1, 1 << (scale + 1))  # strictly between whole and whole + 1, as the root is
    return round_fraction(root, kind, mode)


def minmax(name: str, kind: str, flags, a: int, b: int) -> int:
    """A NaN gives way (unless `.NaN`); −0 is less than +0."""
    if kind[0] != "f":
        pick = min if name == "min" else max
        return wrap(pick(number(a, kind), number(b, kind)), int(kind[1:]))
    a, b = flushed(a, kind, flags), flushed(b, kind, flags)
    if is_nan(a, kind) or is_nan(b, kind):
        if "NaN" in flags or (is_nan(a, kind) and is_nan(b, kind)):
            return nan(kind)
        return b if is_nan(a, kind) else a

    def order(bits: int):
        value = decode(bits, kind)
        return (value, math.copysign(1, value))

    return (min if name == "min" else max)(a, b, key=order)


def compare(test: str, kind: str, flags, a: int, b: int) -> bool:
    tests = {"eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y, "le": lambda x, y: x <= y,
             "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y}  # fmt: skip
    tests |= {"lo": tests["lt"], "ls": tests["le"], "hi": tests["gt"], "hs": tests["ge"]}
    if kind[0] != "f":
        return tests[test](number(a, kind), number(b, kind))
    x, y = (decode(flushed(v, kind, flags), kind) for v in (a, b))
    unordered = math.isnan(x) or math.isnan(y)
    if test in ("num", "nan"):
        return unordered == (test == "nan")
    if unordered:
        return len(test) == 3
    return tests[test[:2]](x, y)


def integer_arithmetic(name: str, kind: str, flags, a: int, b: int, c: int = 0) -> int:
    """add, sub, mul, mad (lo, hi, wide), div, rem, shl, shr, sad: operands and result as bits."""
    width = int(kind[1:])
    x, y = number(a, kind), number(b, kind)
    if name in ("add", "sub"):
        value = x + y if name == "add" else x - y
        if "sat" in flags:
            value = max(-(1 << (width - 1)), min((1 << (width - 1)) - 1, value))
        return wrap(value, width)
    if name in ("mul", "mad"):
        product = x * y
        if "wide" in flags:
            wide = f"{kind[0]}{2 * width}"
            return wrap(product + (number(c, wide) if name == "mad" else 0), 2 * width)
        part = product >> width if "hi" in flags else product
        return wrap(part + (number(c, kind) if name == "mad" else 0), width)
    if name in ("div", "rem"):
        if y == 0:
            return wrap(-1, width) if name == "div" else wrap(x, width)
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        return wrap(quotient if name == "div" else x - quotient * y, width)
    if name == "sad":
        return wrap(abs(x - y) + number(c, kind), width)
    raise KeyError(name)


def shift(name: str, kind: str, a: int, count: int) -> int:
    width = int(kind[1:])
    count = min(wrap(count, 32), width)
    return wrap(number(a, kind) << count if name == "shl" else number(a, kind) >> count, width)


def funnel(flags, a: int, b: int, count: int) -> int:
    shifts = count & 31 if "wrap" in flags else min(count, 32)
    pair = b << 32 | a
    return wrap(pair << shifts >> 32, 32) if "l" in flags else wrap(pair >> shifts, 32)


def bfe(kind: str, a: int, position: int, length: int) -> int:
    """As the PTX ISA's pseudo-code: bit by bit, the sign bit for what lies past the field or the register."""
    width = int(kind[1:])
    at, size = position & 0xFF, length & 0xFF
    top = min(at + size - 1, width - 1)
    sign = 0 if kind[0] == "u" or size == 0 else a >> top & 1
    result = 0
    for i in range(width):
        bit = a >> (at + i) & 1 if i < size and at + i < width else sign
        result |= bit << i
    return result


def bfi(width: int, a: int, b: int, position: int, length: int) -> int:
    at, size = position & 0xFF, length & 0xFF
    for i in range(size):
        if at + i < width:
            b = b & ~(1 << (at + i)) | (a >> i & 1) << (at + i)
    return b


def bfind(kind: str, flags, a: int) -> int:
    width = int(kind[1:])
    value = number(a, kind)
    top = (~value if value < 0 else value).bit_length() - 1
    if top < 0:
        return 0xFFFFFFFF
    return width - 1 - top if "shiftamt" in flags else top


def prmt(mode: str, a: int, b: int, selector: int) -> int:
    pool = [*a.to_bytes(4, "little"), *b.to_bytes(4, "little")]
    s = selector & 3
    rows = {
        "f4e": [s, s + 1, s + 2, s + 3],
        "b4e": [s, (s - 1) % 8, (s - 2) % 8, (s - 3) % 8],
        "rc8": [s] * 4,
        "ecl": [max(s, i) for i in range(4)],
        "ecr": [min(s, i) for i in range(4)],
        "rc16": [2 * (s & 1), 2 * (s & 1) + 1] * 2,
    }
    if mode:
        return int.from_bytes(bytes(pool[i] for i in rows[mode]), "little")
    out = []
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = pool[nibble & 7]
        out.append((0xFF if byte & 0x80 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(out), "little")


def convert(target: str, source: str, flags, bits: int) -> int:
    """cvt between any two types."""
    if source[0] != "f":
        value = number(bits, source)
        if target[0] != "f":
            return _clamped(value, target) if "sat" in flags else wrap(value, int(target[1:]))
        mode = next((f for f in flags if f in ("rn", "rz", "rm", "rp")), "rn")
        return round_fraction(Fraction(value), target, mode)
    bits = flushed(bits, source, flags)
    value = decode(bits, source)
    if target[0] != "f":
        if math.isnan(value):  # PTX ISA 9.0
            width = int(target[1:])
            return 1 << (width - 1) if width == 64 or source == "f64" else 0
        if math.isinf(value):
            return _clamped(10**30 if value > 0 else -(10**30), target)
        return _clamped(_to_integer(Fraction(value), flags), target)
    return _float_to_float(value, target, flags)


def _float_to_float(value: float, target: str, flags) -> int:
    whole = flags & {"rni", "rzi", "rmi", "rpi"}
    if not math.isfinite(value):
        result = encode(value, target)
    elif whole:
        result = round_fraction(Fraction(_to_integer(Fraction(value), flags)), target, "rn", math.copysign(0.0, value))
    else:
        mode = next((f for f in flags if f in ("rn", "rz", "rm", "rp")), "rn")
        result = round_fraction(Fraction(value), target, mode, value if value == 0 else 0.0)
    result = flushed(result, target, flags)
    if "sat" in flags:
        value = decode(result, target)
        result = encode(min(value, 1.0) if value > 0 else 0.0, target)
    return result


def _to_integer(value: Fraction, flags) -> int:
    if "rzi" in flags:
        return math.trunc(value)
    if "rmi" in flags:
        return math.floor(value)
    if "rpi" in flags:
        return math.ceil(value)
    return round(value)  # Python rounds a tie to even


def _clamped(value: int, kind: str) -> int:
    width = int(kind[1:])
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind[0] == "s" else (0, (1 << width) - 1)
    return wrap(max(low, min(high, value)), width)


def shuffle(mode: str, values: list[int], active: list[bool], b: int, c: int) -> list[tuple[int, bool]]:
    """shfl.sync as the PTX ISA's pseudo-code, for one warp: (value, predicate) per lane."""
    step, bound, segment = b & 31, c & 31, c >> 8 & 31
    out = []
    for lane in range(32):
        last = (lane & segment) | (bound & ~segment)
        first = lane & segment
        source, inside = {
            "up": (lane - step, lane - step >= last),
            "down": (lane + step, lane + step <= last),
            "bfly": (lane ^ step, lane ^ step <= last),
            "idx": (first | (step & ~segment), (first | (step & ~segment)) <= last),
        }[mode]
        source = source if inside else lane
        out.append((values[source], inside))
    return out
