"""Tracer, room 6: writing LLVM IR as text, one line per value. Knows nothing of GPUs."""

from __future__ import annotations

import re
from contextlib import contextmanager

LANES = 32
FLOATS = ("half", "float", "double")
BITS = {"i1": 1, "i8": 8, "i16": 16, "half": 16, "i32": 32, "float": 32, "i64": 64, "double": 64, "i128": 128}


def vec(element: str) -> str:
    """The type of one value per lane."""
    return f"<{LANES} x {element}>"


def splat_constant(element: str, literal: str) -> str:
    """A constant vector with the same literal in every lane."""
    return "<" + ", ".join([f"{element} {literal}"] * LANES) + ">"


class Function:
    """One LLVM function under construction. Values are names such as `%7`; labels are made by `label()`."""

    def __init__(self, header: str):
        self.header = header
        self.entry: list[str] = []  # allocas: they must stand in the entry block
        self.lines: list[str] = []
        self.count = 0
        self.declared: set[str] = set()

    @property
    def symbol(self) -> str:
        """What others call it by, such as `@flush`."""
        return _symbol(self.header)

    def name(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def label(self, hint: str = "l") -> str:
        self.count += 1
        return f"{hint}.{self.count}"

    def raw(self, line: str) -> None:
        self.lines.append("  " + line)

    def at(self, label: str) -> None:
        """Start the basic block `label`."""
        self.lines.append(f"{label}:")

    def let(self, expression: str) -> str:
        """Name the value of an LLVM expression."""
        name = self.name()
        self.lines.append(f"  {name} = {expression}")
        return name

    def alloca(self, kind: str, align: int = 64) -> str:
        name = self.name()
        self.entry.append(f"  {name} = alloca {kind}, align {align}")
        return name

    def pointer(self, base: str, offset: int | str) -> str:
        if offset == 0:
            return base
        return self.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    def load(self, kind: str, base: str, offset: int | str = 0, align: int | None = None) -> str:
        suffix = f", align {align}" if align else ""
        return self.let(f"load {kind}, ptr {self.pointer(base, offset)}{suffix}")

    def store(self, kind: str, value: str, base: str, offset: int | str = 0, align: int | None = None) -> None:
        suffix = f", align {align}" if align else ""
        self.raw(f"store {kind} {value}, ptr {self.pointer(base, offset)}{suffix}")

    def add_to(self, kind: str, value: str, base: str, offset: int) -> None:
        """Memory counter += value."""
        at = self.pointer(base, offset)
        old = self.let(f"load {kind}, ptr {at}")
        new = self.let(f"add {kind} {old}, {value}")
        self.raw(f"store {kind} {new}, ptr {at}")

    def call(self, kind: str, function: str, *arguments: tuple[str, str]) -> str:
        """Call a function, an intrinsic or a pointer; arguments are (type, value)."""
        given = ", ".join(f"{t} {v}" for t, v in arguments)
        if function.startswith("@"):
            types = ", ".join(t for t, _ in arguments)
            self.declared.add(f"declare {kind} {function}({types})")
        if kind == "void":
            self.raw(f"call void {function}({given})")
            return ""
        return self.let(f"call {kind} {function}({given})")

    def branch(self, condition: str, then: str, otherwise: str, likely: bool | None = None) -> None:
        hint = {True: ", !prof !0", False: ", !prof !1", None: ""}[likely]
        self.raw(f"br i1 {condition}, label %{then}, label %{otherwise}{hint}")

    def goto(self, label: str) -> None:
        self.raw(f"br label %{label}")

    @contextmanager
    def when(self, condition: str, likely: bool | None = None):
        """The lines written inside run only when `condition` (i1) holds."""
        then, after = self.label("then"), self.label("after")
        self.branch(condition, then, after, likely)
        self.at(then)
        yield
        self.goto(after)
        self.at(after)

    @contextmanager
    def lanes(self, mask: str):
        """A loop over the set bits of `mask` (i32); gives the lane as an i64."""
        head, body, after = self.label("lanes"), self.label("lane"), self.label("done")
        rest = self.alloca("i32", 4)
        self.store("i32", mask, rest)
        self.goto(head)
        self.at(head)
        left = self.load("i32", rest)
        self.branch(self.let(f"icmp eq i32 {left}, 0"), after, body)
        self.at(body)
        low = self.call("i32", "@llvm.cttz.i32", ("i32", left), ("i1", "true"))
        less = self.let(f"sub i32 {left}, 1")
        self.store("i32", self.let(f"and i32 {left}, {less}"), rest)
        yield self.let(f"zext i32 {low} to i64")
        self.goto(head)
        self.at(after)

    @contextmanager
    def count_to(self, limit: str, start: str = "0"):
        """A loop i = start, … limit−1 (i64); gives i."""
        head, body, after = self.label("loop"), self.label("body"), self.label("done")
        at = self.alloca("i64", 8)
        self.store("i64", start, at)
        self.goto(head)
        self.at(head)
        i = self.load("i64", at)
        self.branch(self.let(f"icmp slt i64 {i}, {limit}"), body, after)
        self.at(body)
        yield i
        self.store("i64", self.let(f"add i64 {i}, 1"), at)
        self.goto(head)
        self.at(after)

    def splat(self, element: str, value: str) -> str:
        """The scalar in every lane."""
        if not value.startswith("%"):
            return splat_constant(element, value)
        one = self.let(f"insertelement {vec(element)} undef, {element} {value}, i32 0")
        zeros = f"<{LANES} x i32> zeroinitializer"
        return self.let(f"shufflevector {vec(element)} {one}, {vec(element)} undef, {zeros}")

    def text(self) -> str:
        body = "\n".join(["entry:", *self.entry, "  br label %begin", "begin:", *self.lines])
        return f"define {self.header} {{\n{body}\n}}\n"


def _symbol(header: str) -> str:
    return re.search(r'@("[^"]*"|[\w.]+)\(', header)[0][:-1]


def module(functions: list[Function], triple: str, data_layout: str, extra: str = "") -> str:
    """The text of a module made of `functions`; what they call besides each other is declared."""
    defined = {f.symbol for f in functions}
    declared = sorted(d for d in set().union(*(f.declared for f in functions)) if _symbol(d) not in defined)
    profile = '!0 = !{!"branch_weights", i32 2000, i32 1}\n!1 = !{!"branch_weights", i32 1, i32 2000}\n'
    head = f'target triple = "{triple}"\ntarget datalayout = "{data_layout}"\n'
    return "\n".join([head, *declared, extra, *(f.text() for f in functions), profile])
