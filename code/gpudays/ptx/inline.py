"""Tracer, room 2: device functions are written into the kernel that calls them, so that only kernels remain.

What passes between caller and function goes through `.param` variables; each place in one becomes a register here.
Calls of what the compiler only declares (`vprintf`, `__assertfail`) become instructions of our own. Recursion and calls
through pointers are refused by name.
"""

from __future__ import annotations

from dataclasses import replace

from gpudays.ptx.model import UnsupportedInstruction
from gpudays.ptx.parser import (
    TYPE_BYTES,
    Address,
    Function,
    Group,
    Instruction,
    Module,
    Operand,
    Pair,
    Reg,
    Symbol,
    Variable,
    Vector,
)

SYSTEM_CALLS = ("vprintf", "__assertfail")
MAX_INSTRUCTIONS = 200_000  # functions that call functions may grow without end


def inline(module: Module, name: str) -> Function:
    """Kernel `name` with every call replaced by the function's code. Raises `UnsupportedInstruction`."""
    kernel = module.functions[name]
    if not any(i.parts[0] == "call" for i in kernel.instructions):
        return kernel
    writer = _Writer(module, kernel)
    writer.body(kernel, {}, (name,), None)
    return writer.result()


class _Writer:
    def __init__(self, module: Module, kernel: Function):
        self.module, self.kernel = module, kernel
        self.instructions: list[Instruction] = []
        self.labels: dict[str, int] = {}
        self.tables: dict[str, tuple[str, ...]] = {}
        self.registers = dict(kernel.registers)
        self.variables: dict[str, Variable] = {}
        self.copies = 0
        self.inputs = {p.name for p in kernel.params}

    def result(self) -> Function:
        return replace(
            self.kernel,
            instructions=tuple(self.instructions),
            labels=self.labels,
            tables=self.tables,
            registers=self.registers,
            variables=tuple(self.variables.values()),
        )

    def body(self, function: Function, names: dict[str, str], chain: tuple[str, ...], leave: str | None) -> None:
        """Write the code of `function`; `names` renames its variables, `leave` is where its `ret` goes."""
        mark = "" if leave is None else f"#{self.copies}"
        own = dict(names)
        for register, kind in function.registers.items():
            own[register] = register + mark
            self.registers[register + mark] = kind
        for label in (*function.labels, *function.tables):
            own[label] = label + mark
        for v in function.variables:
            if v.space != "shared":  # shared memory is one per block, whoever declares it
                own[v.name] = v.name + mark
            self.variables[own.get(v.name, v.name)] = replace(v, name=own.get(v.name, v.name))
        for label, targets in function.tables.items():
            self.tables[own[label]] = tuple(own[t] for t in targets)
        at: dict[int, list[str]] = {}
        for label, place in function.labels.items():
            at.setdefault(place, []).append(own[label])
        for n, i in enumerate(function.instructions):
            for label in at.get(n, ()):
                self.labels[label] = len(self.instructions)
            self.one(_rename(i, own), chain, leave)
        for label in at.get(len(function.instructions), ()):
            self.labels[label] = len(self.instructions)
        if len(self.instructions) > MAX_INSTRUCTIONS:
            last = function.instructions[-1]
            raise UnsupportedInstruction("call", last.line, last.ptx_line, "the functions called grow too large")

    def one(self, i: Instruction, chain: tuple[str, ...], leave: str | None) -> None:
        name = i.parts[0]
        if name == "call":
            self.call(i, chain)
        elif name == "ret" and leave is not None:
            self.instructions.append(replace(i, opcode="bra", operands=(Symbol(leave),)))
        elif name in ("ld", "st") and "param" in {p.split("::")[0] for p in i.parts} and not self.is_input(i):
            self.pass_values(i)
        else:
            self.instructions.append(i)

    def is_input(self, i: Instruction) -> bool:
        """Whether a ld.param reads the kernel's own parameters."""
        address = i.operands[1] if i.parts[0] == "ld" else i.operands[0]
        return isinstance(address, Address) and isinstance(address.base, Symbol) and address.base.name in self.inputs

    def pass_values(self, i: Instruction) -> None:
        """`st.param [p+8], x` and `ld.param x, [p+8]` become moves to and from a register for that place."""
        store = i.parts[0] == "st"
        address, values = (i.operands[0], i.operands[1]) if store else (i.operands[1], i.operands[0])
        kind = i.parts[-1]
        if not isinstance(address, Address) or not isinstance(address.base, Symbol) or kind not in TYPE_BYTES:
            raise UnsupportedInstruction(i.opcode, i.line, i.ptx_line, "a parameter at a computed address")
        width = TYPE_BYTES[kind]
        items = values.items if isinstance(values, Vector) else (values,)
        for n, item in enumerate(items):
            register = Reg(f"%{address.base.name}+{address.offset + n * width}:{width}")
            self.registers[register.name] = f"b{8 * width}"
            pair = (register, item) if store else (item, register)
            if item is not None:
                self.instructions.append(
                    replace(i, opcode=f"mov.{'b' if store else kind[0]}{8 * width}", operands=pair)
                )

    def call(self, i: Instruction, chain: tuple[str, ...]) -> None:
        groups = [o for o in i.operands if isinstance(o, Group)]
        has_result = bool(i.operands) and isinstance(i.operands[0], Group)
        target = i.operands[has_result] if len(i.operands) > has_result else None
        if not isinstance(target, Symbol):
            raise UnsupportedInstruction(i.opcode, i.line, i.ptx_line, "a call through a pointer")
        results = groups[0].items if has_result else ()
        arguments = groups[has_result].items if len(groups) > has_result else ()
        after = f"after#{len(self.instructions)}#{self.copies}"
        if i.predicate is not None:
            away = replace(i.predicate, negated=not i.predicate.negated)
            self.instructions.append(replace(i, opcode="bra", operands=(Symbol(after),), predicate=away))
        plain = replace(i, predicate=None)
        if target.name in SYSTEM_CALLS:
            self.system_call(plain, target.name, results, arguments)
        else:
            self.function_call(plain, target.name, results, arguments, chain, after)
        self.labels[after] = len(self.instructions)

    def system_call(self, i: Instruction, name: str, results, arguments) -> None:
        def place(variable: Symbol, width: int) -> Reg:
            return Reg(f"%{variable.name}+0:{width}")

        if name == "vprintf":
            value = place(results[0], 4)
            self.registers[value.name] = "b32"
            operands: tuple[Operand, ...] = (value, place(arguments[0], 8), place(arguments[1], 8))
        else:
            operands = (None, place(arguments[0], 8), place(arguments[1], 8), place(arguments[2], 4))
        self.instructions.append(replace(i, opcode=f"{name.strip('_')}.call", operands=operands))

    def function_call(self, i: Instruction, name: str, results, arguments, chain: tuple[str, ...], after: str) -> None:
        function = self.module.functions.get(name)
        if function is None:
            raise UnsupportedInstruction(i.opcode, i.line, i.ptx_line, f"{name} is declared, but its code is not here")
        if name in chain:
            raise UnsupportedInstruction(i.opcode, i.line, i.ptx_line, f"{name} calls itself (recursion)")
        if len(arguments) != len(function.params) or len(results) != len(function.results):
            raise UnsupportedInstruction(i.opcode, i.line, i.ptx_line, f"{name} has other parameters")
        self.copies += 1
        names: dict[str, str] = {}
        for variable, given in zip((*function.params, *function.results), (*arguments, *results), strict=True):
            if not isinstance(given, Symbol):
                raise UnsupportedInstruction(i.opcode, i.line, i.ptx_line, "an argument that is no .param variable")
            names[variable.name] = given.name
        self.body(function, names, (*chain, name), after)


def _rename(i: Instruction, names: dict[str, str]) -> Instruction:
    return replace(
        i, operands=tuple(_renamed(o, names) for o in i.operands), predicate=_renamed(i.predicate, names)
    )  # fmt: skip


def _renamed(o: Operand, names: dict[str, str]) -> Operand:
    match o:
        case Reg(name) | Symbol(name):
            return replace(o, name=names.get(name, name))
        case Address(base, offset):
            return Address(_renamed(base, names), offset)
        case Vector(items) | Group(items):
            return replace(o, items=tuple(_renamed(x, names) for x in items))
        case Pair(first, second):
            return Pair(_renamed(first, names), _renamed(second, names))
    return o
