"""Tracer, room 10: a kernel of a parsed module, compiled for this CPU and kept.

Decides where variables lie (device addresses of module variables, offsets in shared and local memory, parameters) and
puts together the translated kernel, the memory routines that it calls and the machine that schedules its warps.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpudays.ptx import (  # noqa: F401  (they register themselves)
    cfg,
    codegen,
    dataflow,
    inline,
    native,
    provenance,
    routines,
    semantics,
    semantics_float,
    semantics_integer,
    semantics_memory,
)
from gpudays.ptx import layout as at
from gpudays.ptx.model import BUFFER_ALIGNMENT
from gpudays.ptx.parser import TYPE_BYTES, Function, Module, Variable

MODULE_BASE = at.GLOBAL_BASE
ARGUMENT_BASE = at.GLOBAL_BASE + (1 << 36)


@dataclass(frozen=True)
class MemoryUse:
    """What the code alone tells: names of parameters and variables whose memory is `written` and `read`, whether there
    are `atomics` on global memory, and whether fences and atomics together may `order` blocks (so that accesses of
    different blocks are no sure races)."""

    written: frozenset[str]
    read: frozenset[str]
    atomics: bool
    orders: bool


@dataclass
class CompiledKernel:
    """A kernel ready to run.

    `variables` are the module's global and const variables with their device addresses; `shared_bytes` the static
    shared memory, at whose end (16-byte aligned) dynamic shared memory starts; `cell` the bytes per race record.
    """

    function: Function
    native: native.Tiers
    code: codegen.Code
    graph: cfg.Graph
    variables: list[tuple[Variable, int]]
    addresses: dict[str, tuple[str, int]]
    param_offsets: dict[str, int]
    param_bytes: int
    shared_bytes: int
    local_bytes: int
    cell: int
    global_cell: int
    use: MemoryUse
    origin: provenance.Provenance

    @cached_property
    def instructions_by_line(self) -> tuple[list[int], np.ndarray]:
        """Line numbers, and how many instructions each basic block has on each: int64 (basic blocks, lines)."""
        blocks = [
            # barresult is the second half of one bar.red
            [i.line for i in (*b.instructions, b.end_instruction) if i and not i.opcode.startswith("barresult.")]
            for b in self.graph.blocks
        ]
        numbers = sorted({line for lines in blocks for line in lines})
        return numbers, np.array([[lines.count(n) for n in numbers] for lines in blocks], np.int64).reshape(
            len(blocks), len(numbers)
        )


_cache: dict[tuple, CompiledKernel] = {}
_lock = threading.Lock()


def compile_kernel(module: Module, name: str, checks: bool, key: str) -> CompiledKernel:
    """The kernel `name` of `module`; `key` tells modules apart. Raises UnsupportedInstruction."""
    with _lock:
        full = (key, name, checks)
        if full not in _cache:
            if len(_cache) > 64:
                _cache.pop(next(iter(_cache)))
            _cache[full] = _compile(module, name, checks)
        return _cache[full]


def _align(offset: int, to: int) -> int:
    return (offset + to - 1) // to * to


def _compile(module: Module, name: str, checks: bool) -> CompiledKernel:
    function = inline.inline(module, name)
    graph = cfg.build(function)
    facts = dataflow.analyse(graph, function.registers)
    variables, addresses = _module_variables(module)
    shared = _lay_out([v for v in (*module.variables, *function.variables) if v.space == "shared"], addresses)
    local = _lay_out([v for v in function.variables if v.space == "local"], addresses)
    params, param_bytes = _parameters(function)
    cell = _cell(graph, {"global", "local", "param", "const"})
    global_cell = min(4, _cell(graph, {"shared", "local", "param", "const"}))
    plan = codegen.Plan(function, graph, facts, addresses, params, _align(local, 16), cell, global_cell, checks)
    generator = codegen.Generator(plan, _Semantics)
    code = generator.generate()
    origin = provenance.Provenance(function.instructions, function.registers)
    return CompiledKernel(
        function, native.Tiers(routines.kernel(code, plan)), code, graph, variables, addresses, params, param_bytes,
        shared, plan.local_bytes, cell, global_cell, _memory_use(function, origin), origin,
    )  # fmt: skip


class _Semantics:
    """What the generator asks about instructions."""

    EVENTS = semantics.EVENTS
    find = staticmethod(semantics.find)
    special = staticmethod(semantics_integer.special)
    arrive = staticmethod(semantics_memory.arrive)
    trap = staticmethod(semantics_memory.trap)


def _memory_use(function: Function, origin: provenance.Provenance) -> MemoryUse:
    fences = atomics = False
    for i in function.instructions:
        spaces = {p.split("::")[0] for p in i.parts}
        fences |= i.parts[0] in ("membar", "fence") or bool({"acquire", "release", "acq_rel"} & set(i.parts))
        atomics |= i.parts[0] in ("atom", "red") and "shared" not in spaces
    return MemoryUse(frozenset(origin.written()), frozenset(origin.read()), atomics, fences and atomics)


def _module_variables(module: Module) -> tuple[list[tuple[Variable, int]], dict[str, tuple[str, int]]]:
    placed, addresses, at_ = [], {}, MODULE_BASE
    for v in module.variables:
        if v.space in ("global", "const"):
            placed.append((v, at_))
            addresses[v.name] = (v.space, at_)
            at_ = _align(at_ + max(v.size, 1), BUFFER_ALIGNMENT)
    return placed, addresses


def _lay_out(variables: list[Variable], addresses: dict[str, tuple[str, int]]) -> int:
    """Offsets from 0 in a window; open arrays (`extern __shared__`) all start at the end. Returns the fixed size."""
    end = 0
    for v in variables:
        if not v.extern:
            start = _align(end, max(v.align, 1))
            addresses[v.name] = (v.space, start)
            end = start + v.size
    open_ = [v for v in variables if v.extern]
    if open_:
        end = _align(end, max(16, *(v.align for v in open_)))
        addresses.update({v.name: (v.space, end) for v in open_})
    return end


def _parameters(function: Function) -> tuple[dict[str, int], int]:
    offsets, end = {}, 0
    for p in function.params:
        end = _align(end, max(p.align, 1))
        offsets[p.name] = end
        end += p.size
    return offsets, end


def _cell(graph: cfg.Graph, others: set[str]) -> int:
    """The smallest access outside of the spaces `others`, in bytes, at most 16."""
    smallest = 16
    for block in graph.blocks:
        for i in block.instructions:
            spaces = {p.split("::")[0] for p in i.parts}
            if i.parts[0] == "cp" and "async" in i.parts and i.parts[2] in ("ca", "cg"):
                smallest = min(smallest, 4)
            elif i.parts[0] in ("ld", "st", "atom", "red") and not spaces & others:
                vector = next((int(p[1:]) for p in i.parts if p in ("v2", "v4", "v8")), 1)
                smallest = min(smallest, TYPE_BYTES.get(i.parts[-1], 4) * vector)
    return smallest
