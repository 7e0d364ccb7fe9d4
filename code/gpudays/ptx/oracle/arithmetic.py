"""Oracle, room 1: what each arithmetic instruction computes — a table from opcode family to NumPy function.

A function receives the decoded opcode and its operands as typed arrays (float32 for `.f32`, int32 for `.s32`, bool for
predicates …) and returns the typed result. The signature beside it says how the operands are read: left of the colon
the results, right of it the sources, one letter each

    t  the opcode's type        w  twice as wide         u  u32        p  predicate
    d  the opcode's first type  s  the opcode's last type

An opcode, type or modifier that the table does not name is refused: nothing is guessed.

Source: NVIDIA, "Parallel Thread Execution ISA", section "Instruction Set". Where it leaves a result open, the choice is
stated: integer division by zero gives all ones and its remainder the dividend; approximations (`.approx`, `.full`) are
computed in float64 and rounded once, which is closer than the documented bounds; float32 NaN results are 0x7fffffff.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gpudays.ptx.oracle.rounding import directed, fma32, fma64
from gpudays.ptx.parser import TYPE_BYTES

DTYPES = {
    **{f"{k}{n}": np.dtype(f"{'i' if k == 's' else 'u'}{n // 8}") for k in "bus" for n in (8, 16, 32, 64)},
    "f16": np.dtype("f2"), "f32": np.dtype("f4"), "f64": np.dtype("f8"), "pred": np.dtype(bool),
}  # fmt: skip
_DOUBLE = {f"{k}{n}": f"{k}{2 * n}" for k in "bus" for n in (8, 16, 32)}
_CANONICAL_NAN = np.array(0x7FFFFFFF, np.uint32).view(np.float32)
_DIRECTED = ("rz", "rm", "rp")


@dataclass(frozen=True)
class Op:
    """A decoded opcode: its family, its types in order, its modifiers."""

    name: str
    kinds: tuple[str, ...]
    flags: frozenset[str]

    @property
    def kind(self) -> str:
        return self.kinds[-1]

    @property
    def is_float(self) -> bool:
        return self.kind[0] == "f"

    @property
    def mode(self) -> str | None:
        """The directed rounding mode, or None for round to nearest."""
        return next((m for m in _DIRECTED if m in self.flags), None)


@dataclass(frozen=True)
class Rule:
    results: str
    sources: str
    kinds: frozenset[str]
    flags: frozenset[str]
    function: Callable


@dataclass(frozen=True)
class Alu:
    """An instruction ready to run: the types of its results and sources, and `compute(*typed arrays)`."""

    results: tuple[str, ...]
    sources: tuple[str, ...]
    compute: Callable


RULES: dict[str, Rule] = {}
_INTS = "u16 u32 u64 s16 s32 s64"
_BITS = "b16 b32 b64"
_FLOATS = "f32 f64"


def rule(names: str, signature: str, kinds: str, flags: str = ""):
    """Register the function below it for the families `names`, over `kinds`, with the modifiers `flags` allowed."""
    results, sources = signature.split(":")

    def register(function):
        for name in names.split():
            RULES[name] = Rule(results, sources, frozenset(kinds.split()), frozenset(flags.split()), function)
        return function

    return register


@lru_cache(maxsize=1024)
def decode(parts: tuple[str, ...]) -> Alu | None:
    """The `Alu` of an opcode split at its dots, or None where the table does not know it."""
    kinds = tuple(p for p in parts[1:] if p in TYPE_BYTES)
    op = Op(parts[0], kinds, frozenset(p for p in parts[1:] if p not in TYPE_BYTES))
    known = RULES.get(f"{op.name}.wide" if "wide" in op.flags else op.name)
    if known is None or not kinds or not set(kinds) <= known.kinds or not op.flags <= known.flags:
        return None
    letters = {"t": op.kind, "w": _DOUBLE.get(op.kind), "u": "u32", "p": "pred", "d": kinds[0], "s": kinds[-1]}
    sources = known.sources
    if op.name == "setp" and op.flags & _COMBINE.keys():
        sources += "p"
    return Alu(
        tuple(letters[c] for c in known.results),
        tuple(letters[c] for c in sources),
        lambda *args: known.function(op, *args),
    )


# ---- floating point: what every result goes through ----------------------------------------------------------------


def flush(op: Op, x: np.ndarray) -> np.ndarray:
    """`.ftz`: a subnormal float32 is zero, its sign kept."""
    if "ftz" not in op.flags or x.dtype != np.float32:
        return x
    return np.where(np.abs(x) < np.float32(2.0**-126), np.copysign(np.float32(0), x), x)


def finish(op: Op, x: np.ndarray) -> np.ndarray:
    """Flush, saturate to [0, 1] if asked (NaN becomes +0), and give float32 NaNs their one pattern."""
    x = flush(op, x)
    if "sat" in op.flags:
        x = np.where(x > 0, np.minimum(x, x.dtype.type(1)), x.dtype.type(0))
    return np.where(np.isnan(x), _CANONICAL_NAN, x) if x.dtype == np.float32 else x


def _rounded(op: Op, nearest: np.ndarray, error, *args) -> np.ndarray:
    return finish(op, directed(nearest, op.mode, error, *args) if op.mode else nearest)


@rule("add sub", "t:tt", f"{_INTS} {_FLOATS}", "rn rz rm rp ftz sat")
def _add(op, a, b):
    if not op.is_float:
        return _add_saturating(op, a, b) if "sat" in op.flags else (a + b if op.name == "add" else a - b)
    a, b = flush(op, a), flush(op, b if op.name == "add" else -b)
    nearest = -(-a + -b) if op.mode == "rm" else a + b  # rounding down, x − x is −0
    return _rounded(op, nearest, lambda r, x, y: x + y - r, a, b)


def _add_saturating(op, a, b):
    wide = a.astype(np.int64) + b if op.name == "add" else a.astype(np.int64) - b
    return np.clip(wide, np.iinfo(a.dtype).min, np.iinfo(a.dtype).max).astype(a.dtype)


@rule("mul", "t:tt", f"{_INTS} {_FLOATS}", "lo hi rn rz rm rp ftz sat")
def _mul(op, a, b):
    if not op.is_float:
        return _mul_high(a, b) if "hi" in op.flags else a * b
    a, b = flush(op, a), flush(op, b)
    return _rounded(op, a * b, lambda r, x, y: x * y - r, a, b)


def _mul_high(a, b):
    """The upper half of the product; 64-bit from 32-bit halves, signed from unsigned."""
    bits = 8 * a.dtype.itemsize
    if bits < 64:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        return (a.astype(wide) * b.astype(wide) >> wide(bits)).astype(a.dtype)
    ua, ub = a.astype(np.uint64), b.astype(np.uint64)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    cross = (ua & low) * (ub >> half) + ((ua & low) * (ub & low) >> half)
    middle = (ua >> half) * (ub & low) + (cross & low)
    high = (ua >> half) * (ub >> half) + (cross >> half) + (middle >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, ub, np.uint64(0)) - np.where(b < 0, ua, np.uint64(0))
    return high.astype(a.dtype)


@rule("mul.wide", "w:tt", "u16 u32 s16 s32", "wide")
def _mul_wide(op, a, b):
    wide = DTYPES[_DOUBLE[op.kind]]
    return a.astype(wide) * b.astype(wide)


@rule("mad", "t:ttt", _INTS, "lo hi")
def _mad(op, a, b, c):
    return (_mul_high(a, b) if "hi" in op.flags else a * b) + c


@rule("mad.wide", "w:ttw", "u16 u32 s16 s32", "wide")
def _mad_wide(op, a, b, c):
    return _mul_wide(op, a, b) + c


@rule("mul24", "t:tt", "u32 s32", "lo")
def _mul24(op, a, b):
    eight = a.dtype.type(8)
    return (a << eight >> eight) * (b << eight >> eight)


@rule("sad", "t:ttt", _INTS)
def _sad(op, a, b, c):
    return np.where(a > b, a - b, b - a) + c


@rule("fma", "t:ttt", _FLOATS, "rn rz rm rp ftz sat")
def _fma(op, a, b, c):
    a, b, c = flush(op, a), flush(op, b), flush(op, c)
    fused = fma32 if op.kind == "f32" else fma64
    nearest = -fused(-a, b, -c) if op.mode == "rm" else fused(a, b, c)
    return _rounded(op, nearest, lambda r, x, y, z: x * y + z - r, a, b, c)


@rule("div rem", "t:tt", f"{_INTS} {_FLOATS}", "rn rz rm rp approx full ftz")
def _div(op, a, b):
    if not op.is_float:
        return _int_division(op, a, b)
    a, b = flush(op, a), flush(op, b)
    nearest = a / b
    if "approx" in op.flags:  # documented: the reciprocal of a huge divisor is flushed to zero
        huge = np.isfinite(b) & (np.abs(b) > 2.0**126)
        nearest = np.where(huge, a * np.copysign(np.float32(0), b), nearest)
    return np.where(b == 0, finish(op, nearest), _rounded(op, nearest, lambda r, x, y: x / y - r, a, _not_zero(b)))


def _int_division(op, a, b):
    """C's division: truncated, the remainder with the dividend's sign; INT_MIN / −1 wraps to INT_MIN, remainder 0."""
    one, by_zero = a.dtype.type(1), b == 0
    if a.dtype.kind == "i":
        overflow = (a == np.iinfo(a.dtype).min) & (b == -1)
        safe = np.where(by_zero | overflow, one, b)
        quotient = a // safe
        quotient = quotient + ((a % safe != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)  # floor to truncation
    else:
        safe = np.where(by_zero, one, b)
        quotient = a // safe
    if op.name == "div":
        return np.where(by_zero, np.array(-1).astype(a.dtype), quotient)
    return np.where(by_zero, a, a - quotient * safe)


@rule("rcp", "t:t", _FLOATS, "rn rz rm rp approx ftz")
def _rcp(op, a):
    a = flush(op, a)
    nearest = a.dtype.type(1) / a
    return np.where(a == 0, finish(op, nearest), _rounded(op, nearest, lambda r, x: 1 / x - r, _not_zero(a)))


def _not_zero(a):
    """For lanes whose quotient by zero is exact and not rounded: any other divisor."""
    return np.where(a == 0, a.dtype.type(1), a)


@rule("sqrt", "t:t", _FLOATS, "rn rz rm rp approx ftz")
def _sqrt(op, a):
    a = flush(op, a)
    return _rounded(op, np.sqrt(a), lambda r, x: x - r * r, a)


_APPROXIMATIONS = {
    "rsqrt": lambda x: 1 / np.sqrt(x), "ex2": np.exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
}  # fmt: skip


@rule("ex2 lg2 sin cos tanh", "t:t", "f32", "approx ftz")
@rule("rsqrt", "t:t", _FLOATS, "approx ftz")
def _approximate(op, a):
    exact = _APPROXIMATIONS[op.name](flush(op, a).astype(np.float64))
    return finish(op, exact.astype(a.dtype))


@rule("abs neg", "t:t", f"s16 s32 s64 {_FLOATS}", "ftz")
def _sign(op, a):
    return flush(op, np.abs(a) if op.name == "abs" else -a)


@rule("min max", "t:tt", f"{_INTS} {_FLOATS}", "ftz NaN")
def _min_max(op, a, b):
    pick = np.minimum if op.name == "min" else np.maximum
    if not op.is_float:
        return pick(a, b)
    a, b = flush(op, a), flush(op, b)
    # A NaN gives way to the other operand, unless `.NaN`; −0 counts as less than +0.
    picked = np.where(a == b, np.where(np.signbit(a) == (op.name == "min"), a, b), pick(a, b))
    if "NaN" not in op.flags:
        picked = np.where(np.isnan(a), b, np.where(np.isnan(b), a, picked))
    return finish(op, picked)


@rule("copysign", "t:tt", _FLOATS)
def _copysign(op, a, b):
    return np.copysign(b, a)  # PTX: the sign of a, the magnitude of b


@rule("testp", "p:t", _FLOATS, "finite infinite number notanumber normal subnormal")
def _testp(op, a):
    tiny, magnitude = np.finfo(a.dtype).tiny, np.abs(a)
    tests = {
        "finite": np.isfinite(a), "infinite": np.isinf(a), "number": ~np.isnan(a), "notanumber": np.isnan(a),
        "normal": np.isfinite(a) & (magnitude >= tiny), "subnormal": (magnitude < tiny) & (magnitude > 0),
    }  # fmt: skip
    return tests[next(iter(op.flags))]


# ---- bits ----------------------------------------------------------------------------------------------------------


@rule("and or xor", "t:tt", f"pred {_BITS}")
def _logic(op, a, b):
    return {"and": a & b, "or": a | b, "xor": a ^ b}[op.name]


@rule("not", "t:t", f"pred {_BITS}")
def _not(op, a):
    return ~a


@rule("cnot", "t:t", _BITS)
def _cnot(op, a):
    return (a == 0).astype(a.dtype)


@rule("lop3", "t:tttu", "b32")
def _lop3(op, a, b, c, table):
    """Any function of three bits: bit i of `table` is the result where (a, b, c) are the binary digits of i."""
    result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), a.dtype)
    for i in range(8):
        x, y, z = (v if i >> place & 1 else ~v for v, place in ((a, 2), (b, 1), (c, 0)))
        result = result | np.where(table >> np.uint32(i) & np.uint32(1), x & y & z, np.uint32(0))
    return result


@rule("shl shr", "t:tu", f"{_BITS} {_INTS}")
def _shift(op, a, count):
    """A shift by the width or more empties the register, or fills it with the sign for `shr.s`."""
    bits = 8 * a.dtype.itemsize
    shifts = np.minimum(count, bits - 1).astype(a.dtype)
    shifted = a << shifts if op.name == "shl" else a >> shifts
    emptied = a >> a.dtype.type(bits - 1) if (op.name == "shr" and a.dtype.kind == "i") else a.dtype.type(0)
    return np.where(count >= bits, emptied, shifted)


@rule("shf", "t:ttu", "b32", "l r wrap clamp")
def _funnel(op, a, b, count):
    """Shift the 64-bit pair (b, a) and keep the upper half (`l`) or the lower (`r`)."""
    shifts = (count & np.uint32(31) if "wrap" in op.flags else np.minimum(count, 32)).astype(np.uint64)
    pair = b.astype(np.uint64) << np.uint64(32) | a
    return (pair << shifts >> np.uint64(32) if "l" in op.flags else pair >> shifts).astype(np.uint32)


@rule("popc", "u:t", "b32 b64")
def _popc(op, a):
    return np.unpackbits(_as_bytes(a), axis=-1).sum(axis=-1).astype(np.uint32)


def _as_bytes(a):
    return np.ascontiguousarray(a)[..., None].view(np.uint8)


def _top_bit(a):
    """The position of the highest set bit, −1 for zero."""
    position = np.full(a.shape, -1)
    for i in range(8 * a.dtype.itemsize):
        position = np.where(a >> a.dtype.type(i) & a.dtype.type(1), i, position)
    return position


@rule("clz", "u:t", "b32 b64")
def _clz(op, a):
    return (8 * a.dtype.itemsize - 1 - _top_bit(a)).astype(np.uint32)


@rule("bfind", "u:t", "u32 u64 s32 s64", "shiftamt")
def _bfind(op, a):
    """The highest bit that differs from the sign; 0xffffffff if there is none. `shiftamt`: how far from the top."""
    unsigned = (np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a).astype(f"u{a.dtype.itemsize}")
    position = _top_bit(unsigned)
    if "shiftamt" in op.flags:
        position = np.where(position < 0, -1, 8 * a.dtype.itemsize - 1 - position)
    return position.astype(np.uint32)


@rule("brev", "t:t", "b32 b64")
def _brev(op, a):
    bits = np.unpackbits(_as_bytes(a), axis=-1, bitorder="little")
    return np.packbits(bits, axis=-1).view(f">u{a.dtype.itemsize}")[..., 0].astype(a.dtype)


def _field(count, bits):
    """The low 8 bits of a position or length operand, capped at the register's width."""
    return np.minimum(count & np.uint32(0xFF), bits).astype(np.int64)


def _ones(length, dtype):
    """`length` ones from bit 0, for lengths from 0 to the full width."""
    bits = 8 * dtype.itemsize
    partial = (np.ones_like(length).astype(dtype) << np.minimum(length, bits - 1).astype(dtype)) - dtype.type(1)
    return np.where(length >= bits, ~dtype.type(0), partial)


@rule("bfe", "t:tuu", "u32 u64 s32 s64")
def _bfe(op, a, position, length):
    """Extract a field; `.s` repeats its top bit (the register's, where the field reaches past it)."""
    dtype, bits = np.dtype(f"u{a.dtype.itemsize}"), 8 * a.dtype.itemsize
    at, size = np.broadcast_arrays(_field(position, bits), _field(length, bits))
    value = a.astype(dtype)
    shifted = np.where(at >= bits, dtype.type(0), value >> np.minimum(at, bits - 1).astype(dtype))
    field = shifted & _ones(size, dtype)
    if a.dtype.kind == "u":
        return field
    top = np.minimum(at + size - 1, bits - 1)
    negative = (value >> np.maximum(top, 0).astype(dtype) & dtype.type(1)).astype(bool) & (size > 0)
    present = _ones(np.maximum(np.minimum(size, bits - at), 0), dtype)
    return np.where(negative, field | ~present, field).astype(a.dtype)


@rule("bfi", "t:ttuu", "b32 b64")
def _bfi(op, a, b, position, length):
    """Insert the low bits of `a` into `b`; a field that starts past the top or is empty changes nothing."""
    bits = 8 * a.dtype.itemsize
    at, size = np.broadcast_arrays(_field(position, bits), _field(length, bits))
    shift = np.minimum(at, bits - 1).astype(a.dtype)
    mask = np.where(at >= bits, a.dtype.type(0), _ones(size, a.dtype) << shift)
    return b & ~mask | (a << shift) & mask


_PERMUTE = {  # the byte numbers (0–7 of the pair b:a) that each mode picks for selector 0 to 3, lowest byte first
    "f4e": [(0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)],
    "b4e": [(0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)],
    "rc8": [(i,) * 4 for i in range(4)],
    "ecl": [(0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)],
    "ecr": [(0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)],
    "rc16": [(0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)],
}


@rule("prmt", "t:ttt", "b32", "f4e b4e rc8 ecl ecr rc16")
def _prmt(op, a, b, selector):
    """Pick four of the eight bytes of (b, a); in the default mode bit 3 of a selector repeats the byte's sign."""
    pair = b.astype(np.uint64) << np.uint64(32) | a
    byte_mask, result = np.uint64(0xFF), np.uint64(0)
    for i in range(4):
        if op.flags:
            table = np.array([row[i] for row in _PERMUTE[next(iter(op.flags))]], np.uint64)
            pick, repeat = table[(selector & np.uint32(3)).astype(np.int64)], np.bool_(False)
        else:
            nibble = selector >> np.uint32(4 * i)
            pick, repeat = (nibble & np.uint32(7)).astype(np.uint64), (nibble & np.uint32(8)).astype(bool)
        byte = pair >> pick * np.uint64(8) & byte_mask
        byte = np.where(repeat, np.where(byte >> np.uint64(7), byte_mask, np.uint64(0)), byte)
        result = result | byte << np.uint64(8 * i)
    return result.astype(np.uint32)


# ---- comparison and selection --------------------------------------------------------------------------------------

_COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_UNORDERED = {f"{name}u": _COMPARE[name] for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_COMBINE = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
_TESTS = " ".join([*_COMPARE, *_UNORDERED, "num", "nan"])


def compare(op: Op, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """With a NaN, every ordered test is false (`ne` too) and every unordered one (`…u`) true."""
    a, b = (flush(op, a), flush(op, b)) if op.is_float else (a, b)
    nan = np.isnan(a) | np.isnan(b) if op.is_float else np.bool_(False)
    for flag in op.flags:
        if flag in _COMPARE:
            return _COMPARE[flag](a, b) & ~nan
        if flag in _UNORDERED:
            return _UNORDERED[flag](a, b) | nan
    return nan if "nan" in op.flags else ~nan


@rule("setp", "pp:ss", f"{_BITS} {_INTS} {_FLOATS}", f"{_TESTS} and or xor ftz")
def _setp(op, a, b, third=None):
    """Both results: the test, and its opposite, each combined with the third operand where there is one."""
    test = compare(op, a, b)
    for name, combine in _COMBINE.items():
        if name in op.flags:
            return combine(test, third), combine(~test, third)
    return test, ~test


@rule("set", "d:ss", f"{_BITS} {_INTS} {_FLOATS}", f"{_TESTS} ftz")
def _set(op, a, b):
    dtype = DTYPES[op.kinds[0]]
    true = dtype.type(1) if dtype.kind == "f" else np.array(-1).astype(dtype)
    return np.where(compare(op, a, b), true, dtype.type(0))


@rule("selp", "t:ttp", f"{_BITS} {_INTS} {_FLOATS}")
def _selp(op, a, b, choose):
    return np.where(choose, a, b)


@rule("slct", "d:dds", f"{_BITS} {_INTS} {_FLOATS}", "ftz")
def _slct(op, a, b, c):
    return np.where(flush(op, c) >= 0, a, b)  # false for NaN


@rule("mov", "t:t", f"pred {_BITS} {_INTS} {_FLOATS}")
def _mov(op, a):
    return a


# ---- conversion ----------------------------------------------------------------------------------------------------

_TO_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@rule("cvt", "d:s", "u8 u16 u32 u64 s8 s16 s32 s64 f16 f32 f64", "rn rz rm rp rni rzi rmi rpi ftz sat")
def _cvt(op, a):
    target, source = DTYPES[op.kinds[0]], a.dtype
    if source.kind != "f" and target.kind != "f":
        return _saturate(a, target) if "sat" in op.flags else a.astype(target)
    if target.kind != "f":
        return _float_to_int(op, flush(op, a), target)
    if source.kind != "f":
        nearest = a.astype(target)
        return finish(op, directed(nearest, op.mode, lambda r, x: x - r, a) if op.mode else nearest)
    return _float_to_float(op, flush(op, a), target)


def _saturate(a, target):
    limits, own = np.iinfo(target), np.iinfo(a.dtype)
    low, high = max(limits.min, own.min), min(limits.max, own.max)
    return np.clip(a, a.dtype.type(low), a.dtype.type(high)).astype(target)


def _float_to_int(op, a, target):
    """Round as asked; what does not fit takes the nearest integer that does.

    NaN becomes 0, but the top bit alone where the source is f64 or the target has 64 bits (PTX ISA 9.0).
    """
    whole = next(_TO_INTEGER[f] for f in _TO_INTEGER if f in op.flags)(a.astype(np.float64))
    limits = np.iinfo(target)
    below, above = whole <= limits.min, whole >= float(limits.max)
    inside = np.where(below | above | np.isnan(whole), 0.0, whole).astype(target)
    out = np.where(above, target.type(limits.max), np.where(below, target.type(limits.min), inside))
    bits = 8 * target.itemsize
    not_a_number = 1 << (bits - 1) if bits == 64 or a.dtype.itemsize == 8 else 0
    return np.where(np.isnan(a), np.array(not_a_number, f"u{target.itemsize}").view(target), out)


def _float_to_float(op, a, target):
    whole = next((_TO_INTEGER[f] for f in _TO_INTEGER if f in op.flags), None)
    if whole is not None:
        return finish(op, whole(a).astype(target))
    nearest = a.astype(target)
    if op.mode and target.itemsize < a.dtype.itemsize:
        nearest = directed(nearest, op.mode, lambda r, x: x - r, a)
    return finish(op, nearest)
