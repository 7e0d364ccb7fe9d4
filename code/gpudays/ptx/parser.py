"""Tracer, room 1: PTX text becomes modules, kernels and instructions.

The grammar is the part of the PTX ISA that NVRTC writes: directives, variables in a state space, functions with
parameters, and statements `@predicate opcode operands;`. Nothing is executed and nothing is guessed here: what the
grammar does not know is a `PtxSyntaxError` that names the line of PTX.

Source: NVIDIA, "Parallel Thread Execution ISA", sections "Syntax", "State Spaces, Types, and Variables" and
"Instruction Operands".
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field, replace
from functools import cached_property

TYPE_BYTES = {
    **{f"{kind}{bits}": bits // 8 for kind in "bus" for bits in (8, 16, 32, 64)},
    "f16": 2, "bf16": 2, "f16x2": 4, "bf16x2": 4, "f32": 4, "f64": 8, "b128": 16, "pred": 1,
}  # fmt: skip


class PtxSyntaxError(ValueError):
    """PTX that the parser cannot read; the message names the PTX line and what stands there."""


# ---- operands ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reg:
    """A virtual register, `%f12`, or a predicate, `%p3`; `negated` for `!%p3`."""

    name: str
    negated: bool = False


@dataclass(frozen=True)
class Special:
    """A read-only register that the machine fills in, such as `%tid.x`."""

    name: str


@dataclass(frozen=True)
class Imm:
    """A literal. `value` is an int, or a float for `0f…` (single), `0d…` (double) and decimal floats."""

    value: int | float
    bits: int | None = None  # the exact bit pattern of a `0f…` or `0d…` literal


@dataclass(frozen=True)
class Symbol:
    """The name of a variable, function, parameter or label, plus a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """`[base + offset]`, the base a register, a symbol or an absolute integer; the offset in bytes."""

    base: Reg | Symbol | Imm
    offset: int = 0


@dataclass(frozen=True)
class Vector:
    """`{a, b}` or `{a, b, c, d}`: the elements of a vector load, store or move. `None` stands for the sink `_`."""

    items: tuple[Reg | Imm | Special | None, ...]


@dataclass(frozen=True)
class Pair:
    """`%p1|%p2`: the two results of `setp`, `shfl` or `match`; the second may be the sink (`None`)."""

    first: Reg | None
    second: Reg | None


@dataclass(frozen=True)
class Group:
    """`(a, b)`: the arguments or results of a call."""

    items: tuple[Operand, ...]


Operand = Reg | Special | Imm | Symbol | Address | Vector | Pair | Group | None


# ---- statements ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Instruction:
    """One PTX instruction.

    `parts` is the opcode split at its dots (`("ld", "global", "v4", "f32")`), `line` the line of CUDA C++ it came from
    (0 where the compiler names none), `ptx_line` its line in the PTX text.
    """

    opcode: str
    operands: tuple[Operand, ...]
    predicate: Reg | None
    line: int
    ptx_line: int

    @cached_property
    def parts(self) -> tuple[str, ...]:
        return tuple(self.opcode.split("."))

    def __str__(self) -> str:
        return f"{self.opcode} (PTX line {self.ptx_line})"


@dataclass(frozen=True)
class Variable:
    """A variable in a state space (`global`, `const`, `shared`, `local`, `param`), `size` in bytes.

    `extern` shared arrays have size 0: the launch says how long they are. `data` holds the initial bytes, or is None;
    `addresses` maps a byte offset in it to the symbol (and offset) whose address stands there.
    """

    name: str
    space: str
    type: str
    align: int
    size: int
    data: bytes | None = None
    extern: bool = False
    addresses: tuple[tuple[int, Symbol], ...] = ()


@dataclass(frozen=True)
class Function:
    """A kernel (`is_kernel`) or device function: parameters, results, variables, code.

    `labels` maps a label to the index of the instruction it stands before; `registers` maps a register's name to its
    PTX type; `tables` maps a label to the targets of its `.branchtargets`; `limits` holds performance directives such
    as `maxntid`.
    """

    name: str
    is_kernel: bool
    params: tuple[Variable, ...]
    results: tuple[Variable, ...]
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    registers: dict[str, str]
    variables: tuple[Variable, ...]
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    limits: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Module:
    """A PTX module: version, target, module-level variables, functions by name."""

    version: str
    target: str
    variables: tuple[Variable, ...]
    functions: dict[str, Function]

    @property
    def kernels(self) -> dict[str, Function]:
        return {name: f for name, f in self.functions.items() if f.is_kernel}


# ---- tokens --------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<string>"[^"]*")
      | (?P<number>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?
          |\d+\.\d+(?:[eE][-+]?\d+)?|\d+(?:[eE][-+]?\d+)?U?)
      | (?P<word>[.%$@]?[A-Za-z_$%][\w$%]*(?:(?:\.|::)[A-Za-z0-9_$]+)*)
      | (?P<punct>[-+@!|,;:(){}\[\]<>=~*])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int


def _tokens(text: str) -> list[_Token]:
    out, at, line = [], 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise PtxSyntaxError(f"PTX line {line}: unexpected character {text[at]!r}")
        if match.lastgroup != "skip":
            out.append(_Token(match.lastgroup, match.group(), line))
        line += match.group().count("\n")
        at = match.end()
    return out


# ---- the parser ----------------------------------------------------------------------------------------------------

_LINKAGE = {".visible", ".weak", ".extern", ".common"}
_SPACES = {".global", ".const", ".shared", ".local", ".param"}
_LINE_DIRECTIVES = {".loc", ".file", ".version", ".target", ".address_size"}
_SKIPPED = {".noreturn", ".unified", ".abi_preserve", ".explicitcluster"}


def parse(text: str) -> Module:
    """Parse PTX text into a `Module`. Raises `PtxSyntaxError` with the PTX line on anything malformed or cut short."""
    return _Parser(text).module()


class _Parser:
    def __init__(self, text: str):
        self.tokens = _tokens(text)
        self.at = 0

    # -- token plumbing

    def peek(self, ahead: int = 0) -> _Token:
        if self.at + ahead >= len(self.tokens):
            last = self.tokens[-1].line if self.tokens else 1
            raise PtxSyntaxError(f"PTX line {last}: the text ends in the middle of a statement")
        return self.tokens[self.at + ahead]

    def next(self) -> _Token:
        token = self.peek()
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        if self.at < len(self.tokens) and self.tokens[self.at].text == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> _Token:
        token = self.next()
        if token.text != text:
            raise PtxSyntaxError(f"PTX line {token.line}: expected {text!r}, found {token.text!r}")
        return token

    def fail(self, token: _Token, wanted: str) -> PtxSyntaxError:
        return PtxSyntaxError(f"PTX line {token.line}: expected {wanted}, found {token.text!r}")

    def integer(self) -> int:
        sign = -1 if self.accept("-") else 1
        token = self.next()
        value = _number(token).value if token.kind == "number" else None
        if not isinstance(value, int):
            raise self.fail(token, "an integer")
        return sign * value

    def rest_of_line(self, line: int) -> list[_Token]:
        start = self.at
        while self.at < len(self.tokens) and self.tokens[self.at].line == line:
            self.at += 1
        return self.tokens[start : self.at]

    # -- module level

    def module(self) -> Module:
        version = target = ""
        variables: list[Variable] = []
        functions: dict[str, Function] = {}
        while self.at < len(self.tokens):
            token = self.peek()
            if token.text in _LINE_DIRECTIVES:
                words = [t.text for t in self.line_directive()]
                version = words[1] if words[0] == ".version" else version
                target = words[1] if words[0] == ".target" else target
            elif token.text == ".section":
                self.skip_section()
            elif token.text in (".alias", ".pragma"):
                self.skip_to(";")
            else:
                self.declaration(variables, functions)
        if not version or not target:
            raise PtxSyntaxError("not PTX: no .version or .target directive")
        return Module(version, target, tuple(variables), functions)

    def line_directive(self) -> list[_Token]:
        first = self.next()
        words = [first, *self.rest_of_line(first.line)]
        if first.text in (".version", ".target") and len(words) < 2:
            raise PtxSyntaxError(f"PTX line {first.line}: {first.text} says nothing")
        return words

    def skip_section(self) -> None:
        while self.next().text != "{":
            pass
        while self.next().text != "}":
            pass

    def skip_to(self, text: str) -> None:
        while self.next().text != text:
            pass

    def declaration(self, variables: list[Variable], functions: dict[str, Function]) -> None:
        extern = False
        while self.peek().text in _LINKAGE:
            extern |= self.next().text == ".extern"
        token = self.peek()
        if token.text in (".entry", ".func"):
            function = self.function()
            if function is not None:
                functions[function.name] = function
        elif token.text in _SPACES:
            variables.extend(self.variable(extern))
            self.expect(";")
        else:
            raise self.fail(token, "a directive, a variable or a function")

    # -- variables

    def variable(self, extern: bool = False) -> list[Variable]:
        """`.space .align A .type name[N] = {…}, name2 …` — one statement may declare several."""
        space = self.next().text[1:]
        align, lanes, kind = 0, 1, None
        while kind is None:
            token = self.next()
            word = token.text[1:]
            if token.text == ".align":
                align = self.integer()
            elif token.text in (".v2", ".v4"):
                lanes = int(word[1:])
            elif token.text in (".ptr", ".managed", ".relocatable") or token.text in _SPACES:
                continue
            elif word in TYPE_BYTES:
                kind = word
            else:
                raise self.fail(token, "a type")
        if space == "param":
            # `.param .u64 .ptr .global .align 1 name`: what the pointer points to is a promise we do not need.
            while self.peek().text in (".ptr", ".align") or self.peek().text in _SPACES:
                if self.next().text == ".align":
                    self.integer()
        out = [self.one_variable(space, kind, lanes, align, extern)]
        while space != "param" and self.accept(","):
            out.append(self.one_variable(space, kind, lanes, align, extern))
        return out

    def one_variable(self, space: str, kind: str, lanes: int, align: int, extern: bool) -> Variable:
        token = self.next()
        if token.kind != "word":
            raise self.fail(token, "a variable name")
        width = TYPE_BYTES[kind] * lanes
        count, is_open = 1, False
        while self.accept("["):
            if self.accept("]"):
                is_open = True
                continue
            count *= self.integer()
            self.expect("]")
        data, addresses = self.initializer(kind) if self.accept("=") else (None, ())
        size = (len(data) if data else 0) if is_open else width * count
        if data is not None:
            data = data.ljust(size, b"\0")
        return Variable(token.text, space, kind, align or width, size, data, extern or is_open, addresses)

    def initializer(self, kind: str) -> tuple[bytes, tuple[tuple[int, Symbol], ...]]:
        out = bytearray()
        addresses: list[tuple[int, Symbol]] = []

        def one() -> None:
            if self.accept("{"):
                while not self.accept("}"):
                    one()
                    self.accept(",")
                return
            token = self.peek()
            if token.kind == "word":
                addresses.append((len(out), self.symbol_value()))
                out.extend(bytes(TYPE_BYTES[kind]))
                return
            sign = -1 if self.accept("-") else 1
            out.extend(_encode(_number(self.next()), sign, kind))

        one()
        return bytes(out), tuple(addresses)

    def symbol_value(self) -> Symbol:
        name = self.next().text
        if name == "generic" and self.accept("("):
            name = self.next().text
            self.expect(")")
        offset = self.integer() if self.accept("+") else 0
        return Symbol(name, offset)

    # -- functions

    def function(self) -> Function | None:
        is_kernel = self.next().text == ".entry"
        results: tuple[Variable, ...] = ()
        if not is_kernel and self.peek().text == "(":
            results = self.parameters()
        name = self.next().text
        params = self.parameters() if self.peek().text == "(" else ()
        limits: dict[str, tuple[int, ...]] = {}
        while self.peek().text.startswith("."):
            directive = self.next().text
            if directive in _SKIPPED:
                continue
            values = [self.integer()] if self.peek().kind == "number" else []
            while values and self.accept(","):
                values.append(self.integer())
            if self.peek().kind == "string":  # .pragma "…"
                self.next()
                self.accept(";")
            limits[directive[1:]] = tuple(values)
        if self.accept(";"):
            return None  # a prototype
        self.expect("{")
        body = _Body(self, params + results)
        body.block()
        return Function(
            name, is_kernel, params, results, body.finish(), body.labels, body.registers, tuple(body.variables),
            body.tables, limits,
        )  # fmt: skip

    def parameters(self) -> tuple[Variable, ...]:
        self.expect("(")
        out: list[Variable] = []
        while not self.accept(")"):
            if self.peek().text == ".reg":
                raise self.fail(self.peek(), "a .param parameter")
            out.extend(self.variable())
            self.accept(",")
        return tuple(out)

    # -- operands

    def operand(self) -> Operand:
        token = self.peek()
        if token.text == "[":
            return self.address()
        if token.text == "{":
            self.next()
            items = []
            while not self.accept("}"):
                items.append(self.simple())
                self.accept(",")
            return Vector(tuple(items))
        if token.text == "(":
            self.next()
            items = []
            while not self.accept(")"):
                items.append(self.operand())
                self.accept(",")
            return Group(tuple(items))
        first = self.simple()
        if self.accept("|"):
            second = self.simple()
            return Pair(first, second)
        return first

    def simple(self) -> Reg | Special | Imm | Symbol | None:
        negated = self.accept("!")
        sign = -1 if self.accept("-") else 1
        token = self.next()
        if token.text == "_":
            return None
        if token.kind == "number":
            imm = _number(token)
            return imm if sign > 0 else Imm(-imm.value, _negated_bits(imm))
        if token.kind != "word":
            raise self.fail(token, "an operand")
        if token.text == "WARP_SZ":
            return Imm(32)
        if token.text.startswith("%") and _is_special(token.text):
            return Special(token.text)
        if token.text.startswith("%"):
            return Reg(token.text, negated)
        offset = 0
        if self.peek().text in "+-" and self.peek(1).kind == "number":
            offset = (1 if self.next().text == "+" else -1) * self.integer()
        return Symbol(token.text, offset) if not negated else Reg(token.text, True)

    def address(self) -> Address:
        self.expect("[")
        base = self.simple()
        offset = 0
        if isinstance(base, Symbol) and base.offset:
            base, offset = Symbol(base.name), base.offset
        while self.peek().text in "+-":
            sign = 1 if self.next().text == "+" else -1
            offset += sign * self.integer()
        self.expect("]")
        if base is None or isinstance(base, Special):
            raise self.fail(self.peek(-1), "an address")
        return Address(base, offset)


class _Body:
    """The statements of one function. Inner scopes `{ … }` may reuse names; each gets a name of its own."""

    def __init__(self, parser: _Parser, params: tuple[Variable, ...]):
        self.p = parser
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.registers: dict[str, str] = {}
        self.variables: list[Variable] = []
        self.tables: dict[str, tuple[str, ...]] = {}
        self.taken = {v.name for v in params}
        self.scopes: list[dict[str, str]] = []
        self.line = 0

    def declare(self, name: str) -> str:
        unique, count = name, 0
        while unique in self.taken:
            count += 1
            unique = f"{name}@{count}"
        self.taken.add(unique)
        self.scopes[-1][name] = unique
        return unique

    def resolve(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return name

    def block(self) -> None:
        self.scopes.append({})
        first = len(self.instructions)
        while not self.p.accept("}"):
            self.statement()
        # Labels are visible in the whole scope, also before they stand: resolve the scope's names once it is read.
        self.instructions[first:] = [_renamed(i, self.resolve) for i in self.instructions[first:]]
        self.scopes.pop()

    def statement(self) -> None:
        token = self.p.peek()
        if token.text == "{":
            self.p.next()
            self.block()
        elif token.text == ".loc":
            self.location(self.p.line_directive())
        elif token.text == ".reg":
            self.register_declaration()
        elif token.text in _SPACES:
            for variable in self.p.variable():
                self.variables.append(replace(variable, name=self.declare(variable.name)))
            self.p.expect(";")
        elif token.text in (".pragma", ".callprototype"):
            self.p.skip_to(";")
        elif token.kind == "word" and self.p.peek(1).text == ":":
            self.label()
        else:
            self.instruction()

    def location(self, words: list[_Token]) -> None:
        """`.loc file line column [, …, inlined_at file line column]`: keep the line in the user's file."""
        file, line = _file_and_line(words)
        texts = [w.text for w in words]
        if file != 1 and "inlined_at" in texts:
            file, line = _file_and_line(words[texts.index("inlined_at") :])
        if file == 1 and line > 0:
            self.line = line

    def register_declaration(self) -> None:
        self.p.next()
        kind = self.p.next().text[1:]
        if kind in ("v2", "v4"):
            raise PtxSyntaxError(f"PTX line {self.p.peek().line}: vector registers are not supported")
        while True:
            token = self.p.next()
            if self.p.accept("<"):
                count = self.p.integer()
                self.p.expect(">")
                for index in range(count):
                    self.registers[self.declare(f"{token.text}{index}")] = kind
            else:
                self.registers[self.declare(token.text)] = kind
            if not self.p.accept(","):
                break
        self.p.expect(";")

    def label(self) -> None:
        name = self.p.next().text
        self.p.expect(":")
        unique = self.declare(name)
        if self.p.peek().text == ".branchtargets":
            self.p.next()
            targets = []
            while not self.p.accept(";"):
                targets.append(self.p.next().text)
                self.p.accept(",")
            self.tables[unique] = tuple(targets)
        else:
            self.labels[unique] = len(self.instructions)

    def instruction(self) -> None:
        predicate = None
        if self.p.accept("@") or self.p.peek().text.startswith("@"):
            predicate = self.predicate()
        token = self.p.next()
        if token.kind != "word" or token.text[0] in "%$.":
            raise self.p.fail(token, "an instruction")
        operands: list[Operand] = []
        while not self.p.accept(";"):
            operands.append(self.p.operand())
            if not self.p.accept(","):
                self.p.expect(";")
                break
        self.instructions.append(Instruction(token.text, tuple(operands), predicate, self.line, token.line))

    def predicate(self) -> Reg:
        token = self.p.peek()
        if token.text.startswith("@") and len(token.text) > 1:  # "@%p1" read as one word
            self.p.next()
            return Reg(token.text[1:])
        operand = self.p.simple()
        if isinstance(operand, Symbol):
            operand = Reg(operand.name)
        if not isinstance(operand, Reg):
            raise self.p.fail(token, "a predicate register")
        return operand

    def finish(self) -> tuple[Instruction, ...]:
        """Registers of inline PTX have plain names: what was read as a symbol but declared as a register is one."""
        return tuple(_symbols_to_registers(i, self.registers) for i in self.instructions)


# ---- small helpers -------------------------------------------------------------------------------------------------

_SPECIALS = re.compile(
    r"%(?:n?tid|n?ctaid|cluster_n?ctaid|n?clusterid)(?:\.[xyzw])?$"
    r"|%(?:laneid|n?warpid|n?smid|gridid|clock|clock64|clock_hi|globaltimer|globaltimer_lo|globaltimer_hi"
    r"|lanemask_(?:eq|le|lt|ge|gt)|dynamic_smem_size|total_smem_size|envreg\d+|is_explicit_cluster)$"
)


def _is_special(name: str) -> bool:
    return _SPECIALS.match(name) is not None


def _file_and_line(words: list[_Token]) -> tuple[int, int]:
    """The two numbers behind `.loc` or `inlined_at`."""
    if len(words) < 3 or not (words[1].text.isdigit() and words[2].text.isdigit()):
        raise PtxSyntaxError(f"PTX line {words[0].line}: {words[0].text} names no file and line")
    return int(words[1].text), int(words[2].text)


def _number(token: _Token) -> Imm:
    text = token.text.rstrip("U") if token.text[:2].lower() != "0f" else token.text
    head = text[:2].lower()
    if head == "0f" and len(text) == 10:
        bits = int(text[2:], 16)
        return Imm(struct.unpack("<f", struct.pack("<I", bits))[0], bits)
    if head == "0d" and len(text) == 18:
        bits = int(text[2:], 16)
        return Imm(struct.unpack("<d", struct.pack("<Q", bits))[0], bits)
    try:
        if head in ("0x", "0b"):
            return Imm(int(text, 0))
        if "." in text or "e" in text.lower():
            return Imm(float(text))
        return Imm(int(text, 8) if len(text) > 1 and text[0] == "0" else int(text))
    except ValueError:
        raise PtxSyntaxError(f"PTX line {token.line}: {token.text!r} is not a number") from None


def _negated_bits(imm: Imm) -> int | None:
    if imm.bits is None:
        return None
    return imm.bits ^ (1 << 31 if imm.bits < 1 << 32 and isinstance(imm.value, float) else 1 << 63)


def _encode(imm: Imm, sign: int, kind: str) -> bytes:
    width = TYPE_BYTES[kind]
    if imm.bits is not None and sign > 0:
        return imm.bits.to_bytes(width, "little")
    if isinstance(imm.value, float):
        return struct.pack("<f" if width == 4 else "<d", sign * imm.value)
    return (sign * imm.value % (1 << 8 * width)).to_bytes(width, "little")


def _map_names(operand: Operand, rename) -> Operand:
    """The operand with `rename` applied to each register and symbol in it."""
    match operand:
        case Reg() | Symbol():
            return rename(operand)
        case Address(base, offset):
            return Address(_map_names(base, rename), offset)
        case Vector(items):
            return Vector(tuple(_map_names(i, rename) for i in items))
        case Group(items):
            return Group(tuple(_map_names(i, rename) for i in items))
        case Pair(first, second):
            return Pair(_map_names(first, rename), _map_names(second, rename))
    return operand


def _renamed(instruction: Instruction, resolve) -> Instruction:
    def rename(operand):
        return replace(operand, name=resolve(operand.name))

    return replace(
        instruction,
        operands=tuple(_map_names(o, rename) for o in instruction.operands),
        predicate=_map_names(instruction.predicate, rename),
    )


def _symbols_to_registers(instruction: Instruction, registers: dict[str, str]) -> Instruction:
    def rename(operand):
        if isinstance(operand, Symbol) and operand.name in registers:
            return Reg(operand.name)
        return operand

    return replace(instruction, operands=tuple(_map_names(o, rename) for o in instruction.operands))
