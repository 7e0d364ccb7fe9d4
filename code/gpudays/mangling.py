"""Names room: reads the C++ types of a kernel's parameters out of its mangled name.

PTX says only that a parameter is 64 bits wide; the mangled name still says whether it was a ``size_t`` or a
``const float*``. This reads the part of the Itanium C++ ABI (itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling) that
kernels use: builtin types, pointers, references, const, structs, namespaces, template arguments and substitutions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BUILTINS = {
    "v": "void", "b": "bool", "c": "char", "a": "signed char", "h": "unsigned char", "s": "short",
    "t": "unsigned short", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long", "f": "float", "d": "double", "w": "wchar_t", "n": "__int128", "o": "unsigned __int128",
    "e": "long double", "z": "...",
}  # fmt: skip
QUALIFIERS = {"K": "const", "V": "volatile", "r": "__restrict__"}


class MangledNameError(ValueError):
    """The mangled name uses a part of the ABI that this reader does not know."""


@dataclass(frozen=True)
class MangledKernel:
    """What a mangled kernel name says: its name as in C++, its last part, its parameters' types (``float*``)."""

    name: str
    base: str
    types: tuple[str, ...]


def demangle(mangled: str) -> MangledKernel:
    """Read a mangled function name such as ``_Z6matmulPKfS0_Pfi``.

    Raises:
        MangledNameError: it is no mangled name, or uses something this reader does not know.
    """
    if not mangled.startswith("_Z"):
        raise MangledNameError(f"{mangled} is not a mangled C++ name")
    return _Reader(mangled, 2).function()


@dataclass
class _Reader:
    """Recursive descent over one name; ``seen`` is the ABI's table of substitution candidates."""

    text: str
    at: int
    seen: list[str] = field(default_factory=list)
    template_args: list[str] = field(default_factory=list)

    def peek(self, size: int = 1) -> str:
        return self.text[self.at : self.at + size]

    def take(self, size: int = 1) -> str:
        piece = self.peek(size)
        if len(piece) < size:
            raise MangledNameError(f"{self.text} ends too early")
        self.at += size
        return piece

    def function(self) -> MangledKernel:
        name = self.name()
        if name.endswith(">"):
            self.type()  # a template's encoding carries its return type, void for a kernel
        types = []
        while self.at < len(self.text) and self.peek() != ".":
            types.append(self.type())
        base = name.split("<", 1)[0].rsplit("::", 1)[-1]
        return MangledKernel(name, base, () if types == ["void"] else tuple(types))

    def name(self) -> str:
        if self.peek() == "N":
            return self.nested()
        if self.peek() == "L":  # internal linkage
            self.take()
        name = self.source_name()
        if self.peek() == "I":
            self.seen.append(name)
            name += self.arguments(keep=True)
        return name

    def nested(self) -> str:
        self.take()
        parts = ""
        while self.peek() != "E":
            if self.peek() == "I":
                parts += self.arguments(keep=True)
            elif self.peek() == "S":
                parts = self.substitution()
                continue
            else:
                part = self.source_name()
                parts = f"{parts}::{part}" if parts else part
            self.seen.append(parts)
        self.take()
        self.seen.pop()  # the whole function name is no candidate; a type re-adds itself in type()
        return parts

    def source_name(self) -> str:
        digits = ""
        while self.peek().isdigit():
            digits += self.take()
        if not digits:
            raise MangledNameError(f"{self.text}: no name at position {self.at}")
        name = self.take(int(digits))
        return "(anonymous namespace)" if name.startswith("_GLOBAL__N") else name

    def arguments(self, keep: bool = False) -> str:
        self.take()
        args = []
        while self.peek() != "E":
            args.append(self.argument())
        self.take()
        if keep:
            self.template_args = args
        return f"<{', '.join(args)}>"

    def argument(self) -> str:
        if self.peek() != "L":
            return self.type()
        self.take()
        kind = self.type()
        value = ""
        while self.peek() != "E":
            value += self.take()
        self.take()
        value = value.replace("n", "-", 1)
        return {"0": "false", "1": "true"}.get(value, value) if kind == "bool" else value

    def type(self) -> str:
        char = self.peek()
        if char in QUALIFIERS:
            return self.remember(self.qualified())
        if char in "PRO" and char:
            self.take()
            return self.remember(self.type() + {"P": "*", "R": "&", "O": "&&"}[char])
        if char in BUILTINS and char:
            return BUILTINS[self.take()]
        if char == "D":
            return self.remember(self.special())
        if char == "S":
            found = self.substitution()
            return self.remember(found + self.arguments()) if self.peek() == "I" else found
        if char == "T":
            return self.remember(self.template_parameter())
        if char == "A":
            return self.remember(self.array())
        if char.isdigit():
            named = self.remember(self.source_name())
            return self.remember(named + self.arguments()) if self.peek() == "I" else named
        if char == "N":
            return self.remember(self.nested())
        raise MangledNameError(f"{self.text}: unknown type code {char!r} at position {self.at}")

    def qualified(self) -> str:
        words = []
        while self.peek() in QUALIFIERS and self.peek():
            words.append(QUALIFIERS[self.take()])
        inner = self.type()
        text = " ".join(reversed(words))
        return f"{inner} {text}" if inner.endswith("*") else f"{text} {inner}"

    def array(self) -> str:
        self.take()
        size = ""
        while self.peek() != "_":
            size += self.take()
        self.take()
        return f"{self.type()}[{size}]"

    def special(self) -> str:
        code = self.take(2)
        names = {"Dh": "__half", "Di": "char32_t", "Ds": "char16_t", "Dn": "decltype(nullptr)"}
        if code not in names:
            raise MangledNameError(f"{self.text}: unknown type code {code!r}")
        return names[code]

    def sequence(self) -> int:
        """The number of ``S_``/``T_`` (0), ``S0_`` (1), ``S1_`` (2) …, in base 36."""
        digits = ""
        while self.peek() != "_":
            digits += self.take()
        self.take()
        try:
            return int(digits, 36) + 1 if digits else 0
        except ValueError:
            raise MangledNameError(f"{self.text}: bad substitution {digits!r}") from None

    def substitution(self) -> str:
        self.take()
        number = self.sequence()
        if number >= len(self.seen):
            raise MangledNameError(f"{self.text}: substitution {number} was never named")
        return self.seen[number]

    def template_parameter(self) -> str:
        self.take()
        number = self.sequence()
        if number >= len(self.template_args):
            raise MangledNameError(f"{self.text}: template argument {number} was never given")
        return self.template_args[number]

    def remember(self, text: str) -> str:
        self.seen.append(text)
        return text
