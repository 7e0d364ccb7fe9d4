"""Signatures room: which kernels a program has, and what each parameter is.

PTX gives each parameter's width; the mangled name gives its C++ type. A kernel declared ``extern "C"`` is not mangled:
its types are read from a second compilation with the words turned into ``extern "C++"``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpudays.mangling import MangledNameError, demangle

ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?")
PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+(\.ptr(?:\s+\.(?!align)\w+)*(?:\s+\.align\s+\d+)?\s+)?([\w$]+)(?:\[(\d+)\])?"
)
ELEMENT_BYTES = {
    "bool": 1, "char": 1, "signed char": 1, "unsigned char": 1, "short": 2, "unsigned short": 2, "__half": 2,
    "__nv_bfloat16": 2, "int": 4, "unsigned int": 4, "float": 4, "long": 8, "unsigned long": 8, "long long": 8,
    "unsigned long long": 8, "double": 8, "float2": 8, "float4": 16, "int2": 8, "int4": 16, "double2": 16,
    "uint2": 8, "uint4": 16,
}  # fmt: skip


@dataclass(frozen=True)
class Param:
    """One kernel parameter.

    Attributes:
        type: PTX type without the dot ("u64", "f32", "b8" for a struct).
        width: bytes.
        is_pointer: declared as a pointer; when no C++ type is known, a 64-bit parameter that becomes an address.
        declared: the C++ type ("const float*", "unsigned long"), "" where it cannot be read.
    """

    type: str
    width: int
    is_pointer: bool
    declared: str = ""

    @property
    def element(self) -> str:
        """What a pointer points to, without const: "float" for ``const float*``; "" for anything else."""
        if not self.is_pointer or not self.declared.endswith("*"):
            return ""
        return " ".join(w for w in self.declared[:-1].split() if w not in ("const", "volatile", "__restrict__"))

    @property
    def element_bytes(self) -> int:
        """Bytes of what a pointer points to; 0 when not known."""
        return 8 if self.element.endswith("*") else ELEMENT_BYTES.get(self.element, 0)


@dataclass(frozen=True)
class KernelSignature:
    """A kernel: its C++ name, the name of its PTX entry, its parameters and what to tell about how it was found."""

    name: str
    mangled: str
    params: tuple[Param, ...]
    note: str = ""

    def __str__(self) -> str:
        return f"{self.name}({', '.join(p.declared or '.' + p.type for p in self.params)})"


def read(ptx: str, mangled_ptx: str = "") -> dict[str, KernelSignature]:
    """Every ``.entry`` of a PTX text, by its C++ name (overloads of one name: by PTX name).

    Args:
        ptx: the program.
        mangled_ptx: the same program with C++ linkage, which names the types of ``extern "C"`` kernels; may be "".
    """
    declared = _declared_types(ptx) | _declared_types(mangled_ptx)
    kernels: dict[str, KernelSignature] = {}
    for name, text, body in _entries(ptx):
        shown = _demangled(name)
        types = declared.get(name) or declared.get(shown.base if shown else name) or ()
        params = tuple(_param(m, body) for m in PARAM.finditer(text))
        if len(types) == len(params):
            params = tuple(Param(p.type, p.width, t.endswith("*"), t) for p, t in zip(params, types, strict=True))
        key = shown.name if shown and shown.name not in kernels else name
        kernels[key] = KernelSignature(shown.name if shown else name, name, params)
    return kernels


def _entries(ptx: str):
    """(name, parameter text, body) of each entry."""
    found = list(ENTRY.finditer(ptx))
    ends = [match.start() for match in found[1:]] + [len(ptx)]
    for match, end in zip(found, ends, strict=False):  # no entry at all leaves an end over
        yield match[1], match[2] or "", ptx[match.end() : end]


def _param(match: re.Match[str], body: str) -> Param:
    align, kind, pointer, name, count = match.groups()
    width = int(count) if count else int(re.sub(r"\D", "", kind)) // 8
    return Param(kind, width, bool(pointer) or (width == 8 and not align and _becomes_address(name, body)))


def _becomes_address(param: str, body: str) -> bool:
    """Whether the register that a parameter is loaded into goes straight into a ``cvta``."""
    loaded = re.search(rf"ld\.param\.[bu]64\s+(%\w+), \[{re.escape(param)}\]", body)
    return bool(loaded) and re.search(rf"cvta\.to\.global\.u64\s+%\w+, {loaded[1]};", body) is not None


def _declared_types(ptx: str) -> dict[str, tuple[str, ...]]:
    """C++ parameter types by mangled name and, for C++ linkage of an ``extern "C"`` kernel, by plain name."""
    types: dict[str, tuple[str, ...]] = {}
    for match in ENTRY.finditer(ptx):
        if shown := _demangled(match[1]):
            types[match[1]] = shown.types
            types.setdefault(shown.base, shown.types)
    return types


def _demangled(name: str):
    try:
        return demangle(name)
    except MangledNameError:
        return None
