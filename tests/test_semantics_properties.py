"""Every arithmetic instruction, in every engine, against exact arithmetic (`ptx_reference.py`).

hypothesis picks the values, many of them awkward: zeros of both signs, subnormals, infinities, NaNs, extremes.
"""

from __future__ import annotations

import functools

import ptx_probe
import ptx_reference as ref
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ENGINES = sorted(ptx_probe.ENGINES)
INTS = ("u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f32", "f64")
MODES = ("rn", "rz", "rm", "rp")
AWKWARD = {
    "f16": [0, 0x8000, 1, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00, 0x7BFF, 0x0400],
    "f32": [0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x3F000000, 0x4F000000,
            0xCF000000, 0x4F800000, 0x5F000000, 0xDF000000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7E800001,
            0x3FC00000, 0x40200000],
    "f64": [0, 1 << 63, 1, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x3FF0000000000000, 0xBFF0000000000000,
            0x3FE0000000000000, 0x41E0000000000000, 0x43E0000000000000, 0xC3E0000000000000, 0x43F0000000000000,
            0x47EFFFFFE0000000, 0x47EFFFFFF0000000, 0x36A0000000000000, 0x3690000000000000, 0x7FEFFFFFFFFFFFFF,
            0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000],
}  # fmt: skip


def bits_of(kind: str):
    """Bit patterns of one operand type."""
    if kind == "pred":
        return st.integers(0, 1)
    width = ptx_probe.BITS[kind]
    top = 1 << (width - 1)
    edges = AWKWARD.get(kind, [0, 1, 2, 3, 31, 32, 33, 63, 64, 255, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1])
    narrow = [e for e in edges if e < 2 * top]
    return st.one_of(
        st.sampled_from(narrow), st.integers(0, 2 * top - 1), st.integers(0, 2 * top - 1).map(lambda x: x >> 7)
    )


def tuples_of(*kinds: str):
    return st.lists(st.tuples(*map(bits_of, kinds)), min_size=16, max_size=48)


def check(engine: str, opcode: str, results, sources, expected, constants=(), examples: int = 12) -> None:
    """Hold `opcode` against `expected(*bits) -> bits | tuple` on values hypothesis chooses."""

    @settings(max_examples=examples, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(tuples_of(*sources))
    def holds(tuples):
        got = ptx_probe.apply(engine, opcode, results, sources, tuples, constants)
        for operands, answer in zip(tuples, got, strict=True):
            wanted = expected(*operands)
            wanted = wanted if isinstance(wanted, tuple) else (wanted,)
            for kind, g, w in zip(results, answer, wanted, strict=True):
                both_nan = kind in ref.FORMATS and ref.is_nan(g, kind) and ref.is_nan(w, kind)
                assert both_nan or g == w, f"{opcode} {[hex(o) for o in operands]}: got {g:#x}, expected {w:#x}"

    holds()


engines = pytest.mark.parametrize("engine", ENGINES)


@engines
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma", "div", "rcp", "sqrt"])
def test_float_arithmetic_is_rounded_once(engine, name, mode, kind):
    flags = frozenset({mode})
    sources = (kind,) * {"fma": 3, "rcp": 1, "sqrt": 1}.get(name, 2)
    reference = functools.partial(ref.float_arithmetic, name, kind, flags)
    check(engine, f"{name}.{mode}.{kind}", (kind,), sources, reference, examples=12 if mode == "rn" else 5)


@engines
@pytest.mark.parametrize("name", ["add", "mul", "fma"])
@pytest.mark.parametrize("flags", ["ftz", "sat", "ftz.sat"])
def test_flush_and_saturate(engine, name, flags):
    full = f"{name}.rn.{flags}.f32"
    reference = functools.partial(ref.float_arithmetic, name, "f32", frozenset({"rn", *flags.split(".")}))
    check(engine, full, ("f32",), ("f32",) * (3 if name == "fma" else 2), reference)


def test_fma_differs_from_a_float64_multiply_add():
    """The case that a float64 multiply-add, rounded to float32 afterwards, gets wrong."""
    a, b, c = (ref.encode(x, "f32") for x in (1 + 2.0**-12, 1 + 2.0**-12, 2.0**-60))
    exact = ref.float_arithmetic("fma", "f32", frozenset({"rn"}), a, b, c)
    x, y, z = (ref.decode(v, "f32") for v in (a, b, c))
    assert exact != ref.round_fraction(ref.Fraction(x * y + z), "f32")
    for engine in ENGINES:
        assert ptx_probe.apply(engine, "fma.rn.f32", ("f32",), ("f32",) * 3, [(a, b, c)]) == [(exact,)]


@engines
@pytest.mark.parametrize("kind", [*INTS, *FLOATS])
@pytest.mark.parametrize("name", ["min", "max"])
def test_min_max(engine, name, kind):
    check(engine, f"{name}.{kind}", (kind,), (kind, kind), functools.partial(ref.minmax, name, kind, frozenset()))


@engines
@pytest.mark.parametrize("kind", FLOATS)
def test_abs_neg_copysign(engine, kind):
    top = 1 << (ptx_probe.BITS[kind] - 1)
    check(engine, f"abs.{kind}", (kind,), (kind,), lambda a: a & ~top)
    check(engine, f"neg.{kind}", (kind,), (kind,), lambda a: a ^ top)
    check(engine, f"copysign.{kind}", (kind,), (kind, kind), lambda a, b: b & ~top | a & top)


@engines
@pytest.mark.parametrize("kind", ["s16", "s32", "s64"])
def test_integer_abs_neg(engine, kind):
    width = int(kind[1:])
    check(engine, f"neg.{kind}", (kind,), (kind,), lambda a: ref.wrap(-a, width))
    check(engine, f"abs.{kind}", (kind,), (kind,), lambda a: ref.wrap(abs(ref.signed(a, width)), width))


INTEGER_OPCODES = [
    *[f"{name}.{kind}" for name in ("add", "sub", "div", "rem") for kind in INTS],
    *[f"{name}.{half}.{kind}" for name in ("mul", "mad") for half in ("lo", "hi") for kind in INTS],
    *[f"{name}.wide.{kind}" for name in ("mul", "mad") for kind in INTS[:4]],
    "add.sat.s32",
    "sub.sat.s32",
    *[f"sad.{kind}" for kind in INTS],
]


@engines
@pytest.mark.parametrize("opcode", INTEGER_OPCODES)
def test_integer_arithmetic_wraps(engine, opcode):
    """Division by zero is unspecified in PTX; both engines give all ones, and the dividend as remainder."""
    name, *flags, kind = opcode.split(".")
    wide = f"{kind[0]}{2 * int(kind[1:])}" if "wide" in flags else kind
    sources = (kind, kind, wide) if name in ("mad", "sad") else (kind, kind)
    reference = functools.partial(ref.integer_arithmetic, name, kind, frozenset(flags))
    check(engine, opcode, (wide,), sources, reference, examples=8)


@engines
@pytest.mark.parametrize("opcode", [f"shl.b{n}" for n in (16, 32, 64)] + [f"shr.{k}" for k in (*INTS, "b32")])
def test_shifts_past_the_width(engine, opcode):
    name, kind = opcode.split(".")
    check(engine, opcode, (kind,), (kind, "u32"), functools.partial(ref.shift, name, kind))


@engines
@pytest.mark.parametrize("side", ["l", "r"])
@pytest.mark.parametrize("ends", ["wrap", "clamp"])
def test_funnel_shift(engine, side, ends):
    reference = functools.partial(ref.funnel, frozenset({side, ends}))
    check(engine, f"shf.{side}.{ends}.b32", ("b32",), ("b32", "b32", "u32"), reference)


@engines
@pytest.mark.parametrize("kind", ["pred", "b16", "b32", "b64"])
def test_logic(engine, kind):
    mask = 1 if kind == "pred" else (1 << ptx_probe.BITS[kind]) - 1
    check(engine, f"and.{kind}", (kind,), (kind, kind), lambda a, b: a & b)
    check(engine, f"or.{kind}", (kind,), (kind, kind), lambda a, b: a | b)
    check(engine, f"xor.{kind}", (kind,), (kind, kind), lambda a, b: a ^ b)
    check(engine, f"not.{kind}", (kind,), (kind,), lambda a: ~a & mask)


@engines
@pytest.mark.parametrize("table", [0x00, 0x80, 0x96, 0xE8, 0xCA, 0xFF])
def test_lop3(engine, table):
    def expected(a, b, c):
        bits = (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1 for i in range(32))
        return sum(bit << i for i, bit in enumerate(bits))

    check(engine, "lop3.b32", ("b32",), ("b32",) * 3, expected, constants=(str(table),), examples=5)


@engines
@pytest.mark.parametrize("width", [32, 64])
def test_bit_counting(engine, width):
    kind = f"b{width}"
    check(engine, f"popc.{kind}", ("u32",), (kind,), lambda a: bin(a).count("1"))
    check(engine, f"clz.{kind}", ("u32",), (kind,), lambda a: width - a.bit_length())
    check(engine, f"brev.{kind}", (kind,), (kind,), lambda a: int(f"{a:0{width}b}"[::-1], 2))


@engines
@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bit_fields(engine, kind):
    width = int(kind[1:])
    check(engine, f"bfind.{kind}", ("u32",), (kind,), functools.partial(ref.bfind, kind, ()))
    check(engine, f"bfind.shiftamt.{kind}", ("u32",), (kind,), functools.partial(ref.bfind, kind, ("shiftamt",)))
    check(engine, f"bfe.{kind}", (kind,), (kind, "u32", "u32"), functools.partial(ref.bfe, kind))
    whole = f"b{width}"
    check(engine, f"bfi.{whole}", (whole,), (whole, whole, "u32", "u32"), functools.partial(ref.bfi, width))


@engines
@pytest.mark.parametrize("mode", ["", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"])
def test_prmt(engine, mode):
    opcode = f"prmt.b32.{mode}" if mode else "prmt.b32"
    check(engine, opcode, ("b32",), ("b32",) * 3, functools.partial(ref.prmt, mode))


ORDERED = ["eq", "ne", "lt", "le", "gt", "ge"]
COMPARISONS = [(test, kind) for kind in INTS for test in ORDERED]
COMPARISONS += [(test, kind) for kind in ("u16", "u32", "u64") for test in ("lo", "ls", "hi", "hs")]
COMPARISONS += [(test, kind) for kind in ("b16", "b32", "b64") for test in ("eq", "ne")]
COMPARISONS += [(t, kind) for kind in FLOATS for t in [*ORDERED, *(f"{t}u" for t in ORDERED), "num", "nan"]]


@engines
@pytest.mark.parametrize(("test", "kind"), COMPARISONS)
def test_setp(engine, test, kind):
    """With a NaN, ordered tests are false and unordered ones true."""
    reference = functools.partial(ref.compare, test, kind.replace("b", "u"), frozenset())
    check(engine, f"setp.{test}.{kind}", ("pred",), (kind, kind), lambda a, b: int(reference(a, b)), examples=4)


@engines
@pytest.mark.parametrize("combine", ["and", "or", "xor"])
def test_setp_combined_gives_both_results(engine, combine):
    merge = {"and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y}[combine]

    def expected(a, b, c):
        test = int(ref.signed(a, 32) < ref.signed(b, 32))
        return merge(test, c), merge(1 - test, c)

    check(engine, f"setp.lt.{combine}.s32", ("pred", "pred"), ("s32", "s32", "pred"), expected)


@engines
def test_setp_flushes(engine):
    reference = functools.partial(ref.compare, "gt", "f32", frozenset({"ftz"}))
    check(engine, "setp.gt.ftz.f32", ("pred",), ("f32", "f32"), lambda a, b: int(reference(a, b)))


@engines
@pytest.mark.parametrize("kind", ["b16", "b32", "b64", "f32", "f64", "s32", "u64"])
def test_selp(engine, kind):
    check(engine, f"selp.{kind}", (kind,), (kind, kind, "pred"), lambda a, b, p: a if p else b, examples=5)


@engines
@pytest.mark.parametrize("kind", ["s32", "f32"])
def test_slct(engine, kind):
    def expected(a, b, c):
        value = ref.number(c, kind) if kind == "s32" else ref.decode(c, kind)
        return a if value >= 0 else b

    check(engine, f"slct.u32.{kind}", ("u32",), ("u32", "u32", kind), expected)


def _conversions():
    whole = ("u8", "s8", *INTS)
    for target in whole:
        yield from (f"cvt.{target}.{source}" for source in whole if source != target)
        yield from (f"cvt.{mode}.{target}.{source}" for source in FLOATS for mode in ("rni", "rzi", "rmi", "rpi"))
    yield from (f"cvt.{mode}.{target}.{source}" for target in FLOATS for source in whole for mode in MODES)
    yield from ("cvt.f64.f32", "cvt.f32.f16", "cvt.rn.f16.f32")
    yield from (f"cvt.{mode}.f32.f64" for mode in MODES)
    yield from (f"cvt.{mode}.{kind}.{kind}" for kind in FLOATS for mode in ("rni", "rzi", "rmi", "rpi"))
    yield from ("cvt.sat.f32.f32", "cvt.rn.sat.f32.f64", "cvt.rn.ftz.f32.f64", "cvt.rzi.ftz.s32.f32", "cvt.sat.u8.s32")
    yield from ("cvt.sat.s8.s32", "cvt.sat.s32.u64", "cvt.sat.u16.s64", "cvt.ftz.f64.f32")


@engines
@pytest.mark.parametrize("opcode", list(_conversions()))
def test_cvt(engine, opcode):
    """Out of range goes to the nearest integer there is, NaN to 0."""
    _, *flags, target, source = opcode.split(".")
    reference = functools.partial(ref.convert, target, source, frozenset(flags))
    check(engine, opcode, (target,), (source,), reference, examples=3)


@engines
@pytest.mark.parametrize("opcode", ["rcp.approx.ftz.f32", "sqrt.approx.f32", "rsqrt.approx.f32", "ex2.approx.ftz.f32",
                                    "lg2.approx.f32", "sin.approx.f32", "cos.approx.f32", "div.full.f32"])  # fmt: skip
def test_approximations_stay_within_the_documented_error(engine, opcode):
    """Bounds: PTX ISA, each instruction's own section (2 ulp for rcp and div.full, 2^-22 and wider for the others)."""
    import math

    exact = {
        "rcp": lambda x: 1 / x, "sqrt": math.sqrt, "rsqrt": lambda x: 1 / math.sqrt(x), "ex2": lambda x: 2.0**x,
        "lg2": math.log2, "sin": math.sin, "cos": math.cos, "div": lambda x, y: x / y,
    }[opcode.split(".")[0]]  # fmt: skip
    values = [(0.1 + 0.37 * i, 0.7 + 0.11 * i) for i in range(40)]
    arity = 2 if opcode.startswith("div") else 1
    tuples = [tuple(ref.round_fraction(ref.Fraction(x), "f32") for x in pair[:arity]) for pair in values]
    got = ptx_probe.apply(engine, opcode, ("f32",), ("f32",) * arity, tuples)
    for operands, (answer,) in zip(tuples, got, strict=True):
        wanted = exact(*(ref.decode(o, "f32") for o in operands))
        assert ref.decode(answer, "f32") == pytest.approx(wanted, rel=2.0**-20, abs=2.0**-20)


@engines
def test_unknown_modifiers_are_refused(engine):
    from gpudays.ptx.model import UnsupportedInstruction

    for opcode, kind in [("add.rn.f16x2", "b32"), ("mul.rna.f32", "f32"), ("frobnicate.u32", "u32")]:
        with pytest.raises(UnsupportedInstruction, match=opcode.split(".")[0]):
            ptx_probe.apply(engine, opcode, (kind,), (kind, kind), [(1, 2)])
