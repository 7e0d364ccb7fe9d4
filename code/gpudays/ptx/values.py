"""Tracer, room 6: the values of PTX registers while a kernel is translated — one per warp, one per lane, or affine.

An affine value is `base + delta[lane]`: the base one number, the deltas a vector that stays the same while a loop only
moves the base. Addresses are kept so, which is what lets the memory routines recognise a pattern they have seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpudays.ptx import layout as at
from gpudays.ptx.ir import BITS, FLOATS, Function, splat_constant, vec

ELEMENTS = {
    "pred": "i1", "f32": "float", "f64": "double", "f16x2": "i32", "bf16x2": "i32", "f16": "i16", "bf16": "i16",
    **{f"{kind}{bits}": f"i{bits}" for kind in "bus" for bits in (8, 16, 32, 64)},
}  # fmt: skip


@dataclass
class Delta:
    """The per-lane part of an affine value: a vector, the memory it lies in, the cell that remembers its shape."""

    vector: str | None = None  # <32 x i64>, once it is at hand
    pointer: str | None = None  # where it lies in memory, if it does
    cell: str | None = None  # pointer to the shape's pointer
    zero: bool = False


@dataclass
class Value:
    """A register's value: at least one of `scalar`, `vector`, (`base`, `delta`) is at hand.

    `element` is the LLVM type of one lane. A predicate's vector is an i32 with one bit per lane.
    """

    element: str
    scalar: str | None = None
    vector: str | None = None
    base: str | None = None
    delta: Delta | None = None

    @property
    def uniform(self) -> bool:
        return self.scalar is not None


class Lift:
    """Types, constants and intrinsic suffixes for an operation on one number or on 32."""

    def __init__(self, f: Function, wide: bool):
        self.f, self.wide = f, wide

    def type(self, element: str) -> str:
        return vec(element) if self.wide else element

    def const(self, element: str, literal: int | str) -> str:
        literal = str(literal)
        return splat_constant(element, literal) if self.wide else literal

    def intrinsic(self, name: str, element: str) -> str:
        short = {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)
        return f"@llvm.{name}.{'v32' if self.wide else ''}{short}"

    def op(self, what: str, element: str, *values: str) -> str:
        """`what` is an LLVM instruction with its flags, such as `add` or `icmp ult`."""
        return self.f.let(f"{what} {self.type(element)} {', '.join(values)}")

    def cast(self, what: str, source: str, value: str, target: str) -> str:
        return self.f.let(f"{what} {self.type(source)} {value} to {self.type(target)}")

    def call(self, name: str, element: str, *values: str) -> str:
        kind = self.type(element)
        return self.f.call(kind, self.intrinsic(name, element), *((kind, v) for v in values))

    def select(self, condition: str, element: str, then: str, otherwise: str) -> str:
        kind = self.type(element)
        return self.f.let(f"select {self.type('i1')} {condition}, {kind} {then}, {kind} {otherwise}")


class Values:
    """Conversions between the forms of a value, written into function `f`."""

    def __init__(self, f: Function):
        self.f = f
        self.pool: list[tuple[str, str]] = []  # memory for deltas made in this block, and their shape cells
        self.used = 0

    def new_block(self) -> None:
        self.used = 0

    # -- forms

    def wide(self, value: Value) -> str:
        """One number per lane: an LLVM vector (a predicate: an i32 of bits)."""
        if value.vector is None:
            if value.scalar is not None:
                if value.element == "i1":
                    value.vector = self.mask_of(value.scalar)
                else:
                    value.vector = self.f.splat(value.element, value.scalar)
            else:
                value.vector = self._from_affine(value)
        return value.vector

    def mask_of(self, scalar: str) -> str:
        if scalar in ("true", "false"):
            return "-1" if scalar == "true" else "0"
        return self.f.let(f"select i1 {scalar}, i32 -1, i32 0")

    def _from_affine(self, value: Value) -> str:
        f, kind = self.f, vec(value.element)
        delta = self.delta_vector(value.delta)
        if value.element == "i32":
            delta = f.let(f"trunc {vec('i64')} {delta} to {kind}")
        return f.let(f"add {kind} {f.splat(value.element, value.base)}, {delta}")

    def affine(self, value: Value) -> Value:
        """The same value with `base` and `delta` at hand (i32 or i64)."""
        if value.base is not None:
            return value
        f = self.f
        if value.scalar is not None:
            value.base, value.delta = value.scalar, self.zero_delta()
            return value
        kind = vec(value.element)
        value.base = f.let(f"extractelement {kind} {value.vector}, i32 0")
        delta = f.let(f"sub {kind} {value.vector}, {f.splat(value.element, value.base)}")
        if value.element == "i32":
            delta = f.let(f"sext {kind} {delta} to {vec('i64')}")
        value.delta = self.fresh_delta(delta)
        return value

    # -- deltas

    def zero_delta(self) -> Delta:
        cell = self.f.pointer("%W", at.ZERO_SHAPE)
        return Delta(splat_constant("i64", "0"), "@zero", cell, zero=True)

    def fresh_delta(self, vector: str) -> Delta:
        return Delta(vector)

    def delta_vector(self, delta: Delta) -> str:
        if delta.vector is None:
            delta.vector = self.f.load(vec("i64"), delta.pointer, 0, 32)
        return delta.vector

    def delta_memory(self, delta: Delta) -> tuple[str, str]:
        """Pointers to the vector and to the cell of its shape; puts a new delta into memory of this block."""
        if delta.pointer is None:
            if self.used == len(self.pool):
                self.pool.append((self.f.alloca(vec("i64")), self.f.alloca("ptr", 8)))
            delta.pointer, delta.cell = self.pool[self.used]
            self.used += 1
            self.f.store(vec("i64"), delta.vector, delta.pointer, 0, 32)
            self.f.store("ptr", "null", delta.cell)
        return delta.pointer, delta.cell

    # -- operations

    def apply(self, element: str, make, *values: Value) -> Value:
        """`make(lift, *operands)` on scalars if all values are uniform, else on vectors. Predicates come as i1s."""
        if all(v.scalar is not None for v in values):
            return Value(element, scalar=make(Lift(self.f, False), *(v.scalar for v in values)))
        wide = [self.bools(v) if v.element == "i1" else self.wide(v) for v in values]
        result = make(Lift(self.f, True), *wide)
        return Value(element, vector=self.bits(result) if element == "i1" else result)

    def bools(self, value: Value) -> str:
        """A predicate as <32 x i1>."""
        return self.f.let(f"bitcast i32 {self.wide(value)} to {vec('i1')}")

    def bits(self, bools: str) -> str:
        return self.f.let(f"bitcast {vec('i1')} {bools} to i32")

    def cast(self, value: Value, element: str) -> Value:
        """The same bits as another LLVM type; integers are cut to a narrower one."""
        if value.element == element:
            return value
        if "i1" in (value.element, element):
            raise TypeError("a predicate where a number is wanted, or the other way round")
        have, want = BITS[value.element], BITS[element]
        if have == want:
            return self.apply(element, lambda up, x: up.cast("bitcast", value.element, x, element), value)
        if value.element in FLOATS:
            value = self.cast(value, f"i{have}")
        what = "trunc" if have > want else "zext"
        cut = self.apply(f"i{want}", lambda up, x: up.cast(what, f"i{have}", x, f"i{want}"), value)
        return self.cast(cut, element)
