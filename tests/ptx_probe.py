"""Test bench: run one PTX instruction on many operand tuples, in whichever engine, and compare bits.

`ENGINES` maps an engine's name to a function (ptx, kernel, grid, block, args) -> anything; it writes the arrays back.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from gpudays.ptx.engine import execute
from gpudays.ptx.oracle.arguments import prepare
from gpudays.ptx.oracle.interpreter import interpret
from gpudays.ptx.parser import parse

BITS = {"u8": 8, "s8": 8, "b8": 8, "f16": 16, "u16": 16, "s16": 16, "b16": 16, "u32": 32, "s32": 32, "b32": 32,
        "f32": 32, "u64": 64, "s64": 64, "b64": 64, "f64": 64, "pred": 32}  # fmt: skip
HEAD = ".version 8.4\n.target sm_80\n.address_size 64\n"


def run_oracle(ptx: str, kernel: str, grid, block, args, **options):
    module = parse(ptx)
    function = module.functions[kernel]
    return interpret(module, function, prepare(function, grid, block, args), **options)


def run_compiled(ptx: str, kernel: str, grid, block, args):
    return execute(ptx, kernel, grid, block, args)


ENGINES = {"compiled": run_compiled, "oracle": run_oracle}


@dataclass(frozen=True)
class Case:
    """One instruction under test: its opcode, the types of its results, literal operands after the sources."""

    opcode: str
    results: tuple[str, ...]
    constants: tuple[str, ...] = ()


@functools.cache
def probe(cases: tuple[Case, ...], sources: tuple[str, ...]) -> str:
    """A module with a kernel `probe(out, count, in…)` that applies every case to element tid of each input.

    Elements are 8 bytes wide; result number i of all goes to out[i·count + tid]. A predicate source is
    "element != 0"; a predicate result is stored as 0 or 1.
    """
    lines = [".reg .b64 %o, %stride, %a, %d<9>;", ".reg .b32 %t, %z, %w<9>;", ".reg .pred %p<9>;", ".reg .b16 %h<9>;",
             "mov.u32 %t, %tid.x;", "ld.param.u64 %stride, [count];", "mul.lo.s64 %stride, %stride, 8;",
             "ld.param.u64 %o, [out];", "mul.wide.u32 %a, %t, 8;", "add.s64 %o, %o, %a;"]  # fmt: skip
    for i, kind in enumerate(sources):
        lines += ["mul.wide.u32 %a, %t, 8;", f"ld.param.u64 %d8, [s{i}];", "add.s64 %a, %a, %d8;", *_load(i, kind)]
    for case in cases:
        targets = "|".join(_register(4 + i, kind) for i, kind in enumerate(case.results))
        operands = ", ".join([targets, *(_register(i, kind) for i, kind in enumerate(sources)), *case.constants])
        lines.append(f"{case.opcode} {operands};")
        for i, kind in enumerate(case.results):
            lines += [*_store(4 + i, kind), "add.s64 %o, %o, %stride;"]
    declared = ", ".join(f".param .u64 {name}" for name in ("out", "count", *(f"s{i}" for i in range(len(sources)))))
    return f"{HEAD}.visible .entry probe({declared})\n{{\n" + "\n".join(lines) + "\nret;\n}\n"


def _register(i: int, kind: str) -> str:
    return f"%{'p' if kind == 'pred' else {16: 'h', 32: 'w', 64: 'd', 8: 'h'}[BITS[kind]]}{i}"


def _load(i: int, kind: str) -> list[str]:
    if kind == "pred":
        return ["ld.global.u32 %z, [%a];", f"setp.ne.u32 %p{i}, %z, 0;"]
    width = BITS[kind]
    return [f"ld.global.{'u' if width == 8 else 'b'}{width} {_register(i, kind)}, [%a];"]


def _store(i: int, kind: str) -> list[str]:
    if kind == "pred":
        return [f"selp.u32 %z, 1, 0, {_register(i, kind)};", "st.global.u32 [%o], %z;"]
    return [f"st.global.{'u' if BITS[kind] == 8 else 'b'}{BITS[kind]} [%o], {_register(i, kind)};"]


def apply(engine: str, cases, sources, tuples) -> list[list[tuple[int, ...]]]:
    """Per case, the results as bit patterns for each tuple of operand bit patterns."""
    count = len(tuples)
    inputs = [np.array([t[i] for t in tuples], np.uint64) for i in range(len(sources))]
    out = np.zeros((sum(len(c.results) for c in cases), count), np.uint64)
    ptx = probe(tuple(cases), tuple(sources))
    ENGINES[engine](ptx, "probe", (1,), (count,), [out, np.uint64(count), *inputs])
    rows = iter(out.tolist())
    return [list(zip(*(next(rows) for _ in case.results), strict=True)) for case in cases]


def apply_one(engine: str, opcode: str, results, sources, tuples) -> list[tuple[int, ...]]:
    """`apply` for a single instruction."""
    return apply(engine, (Case(opcode, tuple(results)),), tuple(sources), tuples)[0]
