"""Every arithmetic instruction, in every engine, against exact arithmetic (`ptx_reference.py`).

hypothesis picks the values, many of them awkward: zeros of both signs, subnormals, infinities, NaNs, extremes.
"""

from __future__ import annotations

import functools
import math
import re

import ptx_probe
import ptx_reference as ref
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from ptx_probe import BITS, Case

from gpudays.ptx.model import UnsupportedInstruction

INTS = ("u16", "s16", "u32", "s32", "u64", "s64")
WHOLE = ("u8", "s8", *INTS)
FLOATS = ("f32", "f64")
MODES = ("rn", "rz", "rm", "rp")
TUPLES = 64  # operand tuples per example: one lane each, of two warps
AWKWARD = {
    "f16": [0, 0x8000, 1, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00, 0x7BFF, 0x0400],
    "f32": [0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3F000000, 0x4F000000,
            0xCF000000, 0x4F800000, 0x5F000000, 0xDF000000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,
            0x7FC00000, 0x7E800001, 0x3FC00000, 0x40200000],
    "f64": [0, 1 << 63, 1, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x3FF0000000000000, 0xBFF0000000000000,
            0x3FE0000000000000, 0x41E0000000000000, 0x43E0000000000000, 0xC3E0000000000000, 0x43F0000000000000,
            0x47EFFFFFE0000000, 0x47EFFFFFF0000000, 0x36A0000000000000, 0x3690000000000000, 0x7FEFFFFFFFFFFFFF,
            0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000],
}  # fmt: skip


@functools.cache
def awkward(kind: str) -> list[int]:
    width = BITS[kind]
    top = 1 << (width - 1)
    edges = AWKWARD.get(kind, [0, 1, 2, 3, 31, 32, 33, 63, 64, 255, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1])
    return [e for e in edges if e < 2 * top]


def operand(kind: str, chosen: bytes) -> int:
    """Nine bytes become one operand: an awkward value, or any, or one with small magnitude."""
    if kind == "pred":
        return chosen[0] & 1
    how, value = chosen[0], int.from_bytes(chosen[1:], "little") % (1 << BITS[kind])
    if how < 112:
        return awkward(kind)[how % len(awkward(kind))]
    return value if how < 216 else value >> (how % BITS[kind])


def check(engine: str, expected: dict[Case, object], sources: tuple[str, ...], examples: int = 3) -> None:
    """Hold every case against its `expected(*bits) -> bits | tuple of bits` on values that hypothesis chooses."""
    size = 9 * len(sources)

    # No shrinking: the message names the operands of the one lane that differs.
    @settings(max_examples=examples, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.binary(min_size=TUPLES * size, max_size=TUPLES * size))
    def holds(data):
        tuples = [
            tuple(operand(kind, data[at + 9 * i : at + 9 * i + 9]) for i, kind in enumerate(sources))
            for at in range(0, len(data), size)
        ]
        answers = ptx_probe.apply(engine, tuple(expected), sources, tuples)
        for (case, reference), got in zip(expected.items(), answers, strict=True):
            for operands, answer in zip(tuples, got, strict=True):
                _compare(case, operands, answer, reference(*operands))

    holds()


def _compare(case: Case, operands, answer, wanted) -> None:
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for kind, g, w in zip(case.results, answer, wanted, strict=True):
        both_nan = kind in ref.FORMATS and ref.is_nan(g, kind) and ref.is_nan(w, kind)
        assert both_nan or g == w, f"{case.opcode} {[hex(o) for o in operands]}: got {g:#x}, expected {w:#x}"


engines = pytest.mark.parametrize("engine", sorted(ptx_probe.ENGINES))


def parts_of(opcode: str) -> tuple[str, frozenset[str], str]:
    name, *flags, kind = opcode.split(".")
    return name, frozenset(flags), kind


# ---- floating point ------------------------------------------------------------------------------------------------


def float_case(opcode: str):
    name, flags, kind = parts_of(opcode)
    return Case(opcode, (kind,)), functools.partial(ref.float_arithmetic, name, kind, flags)


@engines
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("names", [("add", "sub", "mul", "div"), ("fma",), ("rcp", "sqrt")])
def test_float_arithmetic_is_rounded_once(engine, names, kind):
    arity = {"fma": 3, "rcp": 1}.get(names[0], 2)
    cases = dict(float_case(f"{name}.{m}.{kind}") for name in names for m in MODES)
    check(engine, cases, (kind,) * arity, examples=5)


@engines
@pytest.mark.parametrize("names", [("add", "sub", "mul"), ("fma",)])
def test_flush_and_saturate(engine, names):
    flags = ("ftz", "sat", "ftz.sat")
    cases = dict(float_case(f"{name}.rn.{f}.f32") for name in names for f in flags)
    check(engine, cases, ("f32",) * (3 if names == ("fma",) else 2), examples=5)


@engines
def test_fma_is_no_float64_multiply_add(engine):
    """Operands for which a float64 multiply-add, rounded to float32 afterwards, is wrong."""
    a, b, c = (ref.encode(x, "f32") for x in (1 + 2.0**-12, 1 + 2.0**-12, 2.0**-60))
    exact = ref.float_arithmetic("fma", "f32", frozenset({"rn"}), a, b, c)
    x, y, z = (ref.decode(v, "f32") for v in (a, b, c))
    assert exact != ref.round_fraction(ref.Fraction(x * y + z), "f32")
    assert ptx_probe.apply_one(engine, "fma.rn.f32", ("f32",), ("f32",) * 3, [(a, b, c)]) == [(exact,)]


@engines
@pytest.mark.parametrize("kind", FLOATS)
def test_signs(engine, kind):
    top = 1 << (BITS[kind] - 1)
    one = {Case(f"abs.{kind}", (kind,)): lambda a: a & ~top, Case(f"neg.{kind}", (kind,)): lambda a: a ^ top}
    check(engine, one, (kind,))
    check(engine, {Case(f"copysign.{kind}", (kind,)): lambda a, b: b & ~top | a & top}, (kind, kind))


@engines
@pytest.mark.parametrize("kind", [*INTS, *FLOATS])
def test_min_max(engine, kind):
    """A NaN gives way to a number; −0 is less than +0."""
    cases = {Case(f"{n}.{kind}", (kind,)): functools.partial(ref.minmax, n, kind, frozenset()) for n in ("min", "max")}
    check(engine, cases, (kind, kind), examples=5)


@engines
@pytest.mark.parametrize("opcode", ["rcp.approx.ftz.f32", "sqrt.approx.f32", "rsqrt.approx.f32", "ex2.approx.ftz.f32",
                                    "lg2.approx.f32", "sin.approx.f32", "cos.approx.f32", "div.full.f32"])  # fmt: skip
def test_approximations(engine, opcode):
    """Closer than 2^-20, which every documented bound allows for these operands (PTX ISA, each instruction)."""
    exact = {
        "rcp": lambda x: 1 / x, "sqrt": math.sqrt, "rsqrt": lambda x: 1 / math.sqrt(x), "ex2": lambda x: 2.0**x,
        "lg2": math.log2, "sin": math.sin, "cos": math.cos, "div": lambda x, y: x / y,
    }[opcode.split(".")[0]]  # fmt: skip
    values = [(0.1 + 0.37 * i, 0.7 + 0.11 * i) for i in range(40)]
    arity = 2 if opcode.startswith("div") else 1
    tuples = [tuple(ref.round_fraction(ref.Fraction(x), "f32") for x in pair[:arity]) for pair in values]
    got = ptx_probe.apply_one(engine, opcode, ("f32",), ("f32",) * arity, tuples)
    for operands, (answer,) in zip(tuples, got, strict=True):
        wanted = exact(*(ref.decode(o, "f32") for o in operands))
        assert ref.decode(answer, "f32") == pytest.approx(wanted, rel=2.0**-20, abs=2.0**-20)


# ---- integers ------------------------------------------------------------------------------------------------------


def integer_case(opcode: str):
    name, flags, kind = parts_of(opcode)
    result = f"{kind[0]}{2 * int(kind[1:])}" if "wide" in flags else kind
    return Case(opcode, (result,)), functools.partial(ref.integer_arithmetic, name, kind, flags)


@engines
@pytest.mark.parametrize("kind", INTS)
def test_integer_arithmetic_wraps(engine, kind):
    """Division by zero is unspecified in PTX; both engines give all ones, and the dividend as remainder."""
    two = [f"{name}.{kind}" for name in ("add", "sub", "div", "rem", "mul.lo", "mul.hi")]
    two += [f"mul.wide.{kind}"] if BITS[kind] < 64 else []
    two += ["add.sat.s32", "sub.sat.s32"] if kind == "s32" else []
    check(engine, dict(map(integer_case, two)), (kind, kind), examples=6)
    three = [f"{name}.{kind}" for name in ("mad.lo", "mad.hi", "sad")]
    check(engine, dict(map(integer_case, three)), (kind,) * 3)
    if BITS[kind] < 64:
        check(engine, dict([integer_case(f"mad.wide.{kind}")]), (kind, kind, f"{kind[0]}{2 * BITS[kind]}"))


@engines
@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
def test_integer_signs(engine, kind):
    width = int(kind[1:])
    cases = {
        Case(f"neg.{kind}", (kind,)): lambda a: ref.wrap(-a, width),
        Case(f"abs.{kind}", (kind,)): lambda a: ref.wrap(abs(ref.signed(a, width)), width),
    }
    check(engine, cases, (kind,))


@engines
@pytest.mark.parametrize("width", [16, 32, 64])
def test_shifts_past_the_width(engine, width):
    opcodes = [f"{name}.{kind}{width}" for name, kind in (("shl", "b"), ("shr", "b"), ("shr", "u"), ("shr", "s"))]
    cases = {Case(o, (o.split(".")[1],)): functools.partial(ref.shift, *o.split(".")) for o in opcodes}
    check(engine, cases, (f"b{width}", "u32"), examples=6)


@engines
def test_funnel_shift(engine):
    opcodes = [f"shf.{side}.{ends}.b32" for side in "lr" for ends in ("wrap", "clamp")]
    cases = {Case(o, ("b32",)): functools.partial(ref.funnel, frozenset(o.split("."))) for o in opcodes}
    check(engine, cases, ("b32", "b32", "u32"), examples=6)


@engines
@pytest.mark.parametrize("kind", ["pred", "b16", "b32", "b64"])
def test_logic(engine, kind):
    mask = 1 if kind == "pred" else (1 << BITS[kind]) - 1
    functions = {"and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b}
    check(engine, {Case(f"{n}.{kind}", (kind,)): f for n, f in functions.items()}, (kind, kind))
    check(engine, {Case(f"not.{kind}", (kind,)): lambda a: ~a & mask}, (kind,))


@engines
def test_lop3(engine):
    def expected(table, a, b, c):
        bits = (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1 for i in range(32))
        return sum(bit << i for i, bit in enumerate(bits))

    tables = (0x00, 0x80, 0x96, 0xE8, 0xCA, 0xFF)
    cases = {Case("lop3.b32", ("b32",), (str(t),)): functools.partial(expected, t) for t in tables}
    check(engine, cases, ("b32",) * 3, examples=2)


@engines
@pytest.mark.parametrize("width", [32, 64])
def test_bit_counting(engine, width):
    kind = f"b{width}"
    cases = {
        Case(f"popc.{kind}", ("u32",)): lambda a: bin(a).count("1"),
        Case(f"clz.{kind}", ("u32",)): lambda a: width - a.bit_length(),
        Case(f"brev.{kind}", (kind,)): lambda a: int(f"{a:0{width}b}"[::-1], 2),
    }
    for sign in "us":
        for flags in ((), ("shiftamt",)):
            opcode = ".".join(["bfind", *flags, f"{sign}{width}"])
            cases[Case(opcode, ("u32",))] = functools.partial(ref.bfind, f"{sign}{width}", flags)
    check(engine, cases, (kind,), examples=6)


@engines
@pytest.mark.parametrize("width", [32, 64])
def test_bit_fields(engine, width):
    extract = {Case(f"bfe.{s}{width}", (f"{s}{width}",)): functools.partial(ref.bfe, f"{s}{width}") for s in "us"}
    check(engine, extract, (f"b{width}", "u32", "u32"), examples=9)
    insert = {Case(f"bfi.b{width}", (f"b{width}",)): functools.partial(ref.bfi, width)}
    check(engine, insert, (f"b{width}", f"b{width}", "u32", "u32"), examples=9)


@engines
def test_prmt(engine):
    modes = ("", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    cases = {Case(f"prmt.b32.{m}" if m else "prmt.b32", ("b32",)): functools.partial(ref.prmt, m) for m in modes}
    check(engine, cases, ("b32",) * 3, examples=6)


# ---- comparison, selection -----------------------------------------------------------------------------------------

ORDERED = ["eq", "ne", "lt", "le", "gt", "ge"]


def applicable(kind: str) -> list[str]:
    if kind in FLOATS:
        return [*ORDERED, *(f"{t}u" for t in ORDERED), "num", "nan"]
    return {"b": ["eq", "ne"], "u": [*ORDERED, "lo", "ls", "hi", "hs"], "s": ORDERED}[kind[0]]


@engines
@pytest.mark.parametrize("kind", [*INTS, "b16", "b32", "b64", *FLOATS])
def test_setp(engine, kind):
    """With a NaN, ordered tests are false and unordered ones true."""
    plain = kind.replace("b", "u")
    cases = {
        Case(f"setp.{t}.{kind}", ("pred",)): lambda a, b, t=t: int(ref.compare(t, plain, frozenset(), a, b))
        for t in applicable(kind)
    }
    if kind == "f32":
        flush = functools.partial(ref.compare, "gt", kind, frozenset({"ftz"}))
        cases[Case("setp.gt.ftz.f32", ("pred",))] = lambda a, b: int(flush(a, b))
    check(engine, cases, (kind, kind), examples=5)


@engines
def test_setp_combined_gives_both_results(engine):
    merges = {"and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y}

    def expected(merge, a, b, c):
        test = int(ref.signed(a, 32) < ref.signed(b, 32))
        return merge(test, c), merge(1 - test, c)

    cases = {Case(f"setp.lt.{n}.s32", ("pred", "pred")): functools.partial(expected, m) for n, m in merges.items()}
    check(engine, cases, ("s32", "s32", "pred"))


@engines
@pytest.mark.parametrize("kinds", [("b16",), ("b32", "f32", "s32"), ("b64", "f64", "u64")])
def test_selp(engine, kinds):
    cases = {Case(f"selp.{k}", (k,)): lambda a, b, p: a if p else b for k in kinds}
    check(engine, cases, (kinds[0], kinds[0], "pred"), examples=4)


@engines
@pytest.mark.parametrize("kind", ["s32", "f32"])
def test_slct(engine, kind):
    def expected(a, b, c):
        value = ref.number(c, kind) if kind == "s32" else ref.decode(c, kind)
        return a if value >= 0 else b

    check(engine, {Case(f"slct.u32.{kind}", ("u32",)): expected}, ("u32", "u32", kind))


# ---- conversion ----------------------------------------------------------------------------------------------------


def conversions(source: str) -> list[str]:
    """Every cvt from one type."""
    if source == "f16":
        return ["cvt.f32.f16"]
    if source in WHOLE:
        out = [f"cvt.{target}.{source}" for target in WHOLE if target != source]
        out += [f"cvt.{mode}.{target}.{source}" for target in FLOATS for mode in MODES]
        more = {"s32": ["cvt.sat.u8.s32", "cvt.sat.s8.s32"], "u64": ["cvt.sat.s32.u64"], "s64": ["cvt.sat.u16.s64"]}
        return out + more.get(source, [])
    modes = ("rni", "rzi", "rmi", "rpi")
    out = [f"cvt.{mode}.{target}.{source}" for target in (*WHOLE, source) for mode in modes]
    return (
        out
        + {
            "f32": ["cvt.f64.f32", "cvt.rn.f16.f32", "cvt.sat.f32.f32", "cvt.rzi.ftz.s32.f32", "cvt.ftz.f64.f32"],
            "f64": [*(f"cvt.{mode}.f32.f64" for mode in MODES), "cvt.rn.sat.f32.f64", "cvt.rn.ftz.f32.f64"],
        }[source]
    )


@engines
@pytest.mark.parametrize("source", [*WHOLE, "f16", *FLOATS])
def test_cvt(engine, source):
    """Out of range goes to the nearest integer there is, NaN to 0 (f64, or a 64-bit target: to the top bit alone)."""
    cases = {}
    for opcode in conversions(source):
        _, *flags, target, _ = opcode.split(".")
        cases[Case(opcode, (target,))] = functools.partial(ref.convert, target, source, frozenset(flags))
    check(engine, cases, (source,), examples=6)


# ---- what is refused -----------------------------------------------------------------------------------------------


@engines
@pytest.mark.parametrize("opcode", ["add.foo.u32", "setp.foo.s32", "frobnicate.u32", "mma.sync.aligned.m8n8k4.f32"])
def test_unknown_instructions_are_refused_by_name(engine, opcode):
    with pytest.raises(UnsupportedInstruction, match=re.escape(opcode)):
        ptx_probe.apply_one(engine, opcode, ("u32",), ("u32", "u32"), [(1, 2)])
