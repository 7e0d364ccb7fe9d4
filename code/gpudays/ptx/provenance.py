"""Tracer, room 3: which parameters an address can come from, as far as the code alone tells.

Used to watch only those buffers for races that a kernel may write, and to name the right buffer when an address has
left it. An address is followed back through 64-bit arithmetic to `ld.param`; what comes out of memory is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpudays.ptx.dataflow import results, sources
from gpudays.ptx.parser import Address, Instruction, Operand, Reg, Symbol, Vector

UNKNOWN = "?"


class Provenance:
    """For each 64-bit register the names of the parameters and variables that it may be computed from."""

    def __init__(self, instructions: Iterable[Instruction], registers: dict[str, str]):
        self.code = list(instructions)
        self.wide = {name for name, kind in registers.items() if kind.endswith("64")}
        self.of: dict[str, set[str]] = {}
        changed = True
        while changed:
            changed = False
            for i in self.code:
                origin = self._origin(i)
                for r in results(i):
                    if r.name in self.wide and not origin <= self.of.get(r.name, set()):
                        self.of.setdefault(r.name, set()).update(origin)
                        changed = True

    def _origin(self, i: Instruction) -> set[str]:
        if i.parts[0] == "ld":
            address = i.operands[1]
            if "param" in i.parts and isinstance(address, Address) and isinstance(address.base, Symbol):
                return {address.base.name}
            return {UNKNOWN}
        if i.parts[0] in ("atom", "shfl"):
            return {UNKNOWN}
        out: set[str] = set()
        for r in sources(i):
            out |= self.of.get(r.name, set())
        for operand in i.operands[1:]:
            out |= {s.name for s in _symbols(operand)}
        return out

    def address(self, operand: Operand) -> set[str]:
        """The names that a memory operand's address may come from."""
        if not isinstance(operand, Address):
            return {UNKNOWN}
        if isinstance(operand.base, Reg):
            return self.of.get(operand.base.name, set()) or {UNKNOWN}
        return {operand.base.name} if isinstance(operand.base, Symbol) else {UNKNOWN}

    def written(self) -> set[str]:
        """The names whose memory the kernel may write; `UNKNOWN` among them if that is not known."""
        return self._touched(("st", "atom", "red"))

    def read(self) -> set[str]:
        """The names whose memory the kernel may read by plain loads."""
        return self._touched(("ld", "ldu", "cp"))

    def _touched(self, opcodes: tuple[str, ...]) -> set[str]:
        out: set[str] = set()
        for i in self.code:
            spaces = {p.split("::")[0] for p in i.parts}
            if i.parts[0] in opcodes and ("global" in spaces or not spaces & {"shared", "local", "param", "const"}):
                for operand in i.operands:
                    if isinstance(operand, Address):
                        out |= self.address(operand)
        return out


def _symbols(operand: Operand) -> list[Symbol]:
    if isinstance(operand, Symbol):
        return [operand]
    return [s for s in operand.items if isinstance(s, Symbol)] if isinstance(operand, Vector) else []
