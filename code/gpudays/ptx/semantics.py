"""Tracer, room 6: which routine translates which instruction.

The routines are in semantics_*.py, grouped as the PTX ISA's chapter "Instruction Set" groups them; importing those
collects them here. Each is `routine(generator, instruction)` and writes LLVM IR through the generator (codegen.py).
"""

from __future__ import annotations

from collections.abc import Callable

from gpudays.ptx.parser import Instruction

EVENTS = ("divergent-barrier", "trap", "spent")
_ROUTINES: dict[str, Callable] = {}


def on(*names: str):
    """Register a routine for the instructions whose opcode starts with one of `names`."""

    def register(routine):
        for name in names:
            _ROUTINES[name] = routine
        return routine

    return register


def find(i: Instruction) -> Callable | None:
    """The routine for an instruction, or None."""
    return _ROUTINES.get(i.parts[0])


def known() -> list[str]:
    """The first words of all opcodes that can be translated."""
    return sorted(_ROUTINES)
