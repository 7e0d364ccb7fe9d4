"""Test bench: run one PTX instruction on many operand tuples, in whichever engine, and compare bits.

`ENGINES` maps an engine's name to a function (ptx, kernel, grid, block, args) -> anything; it writes the arrays back.
"""

from __future__ import annotations

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


def probe(opcode: str, results: tuple[str, ...], sources: tuple[str, ...], constants: tuple[str, ...] = ()) -> str:
    """A module with a kernel `probe(out…, in…)` that applies `opcode` to element tid of each input.

    Elements are 8 bytes wide. A predicate source is "element != 0"; a predicate result is stored as 0 or 1.
    `constants` are literal operands after the sources.
    """
    parameters = [f"r{i}" for i in range(len(results))] + [f"s{i}" for i in range(len(sources))]
    lines = [".reg .b64 %a<40>, %d<40>;", ".reg .b32 %t, %z<40>, %w<40>;", ".reg .pred %p<40>;", ".reg .b16 %h<40>;",
             "mov.u32 %t, %tid.x;", "mul.wide.u32 %a39, %t, 8;"]  # fmt: skip
    for i, kind in enumerate(sources):
        lines += [f"ld.param.u64 %a{i}, [s{i}];", f"add.s64 %a{i}, %a{i}, %a39;", *_load(i, kind)]
    targets = "|".join(_register(20 + i, kind) for i, kind in enumerate(results))
    operands = ", ".join([targets, *(_register(i, kind) for i, kind in enumerate(sources)), *constants])
    lines.append(f"{opcode} {operands};")
    for i, kind in enumerate(results):
        lines += [f"ld.param.u64 %a{20 + i}, [r{i}];", f"add.s64 %a{20 + i}, %a{20 + i}, %a39;", *_store(i, kind)]
    declared = ", ".join(f".param .u64 {name}" for name in parameters)
    return f"{HEAD}.visible .entry probe({declared})\n{{\n" + "\n".join(lines) + "\nret;\n}\n"


def _register(i: int, kind: str) -> str:
    return f"%{'p' if kind == 'pred' else {16: 'h', 32: 'w', 64: 'd', 8: 'h'}[BITS[kind]]}{i}"


def _load(i: int, kind: str) -> list[str]:
    if kind == "pred":
        return [f"ld.global.u32 %z{i}, [%a{i}];", f"setp.ne.u32 %p{i}, %z{i}, 0;"]
    width = BITS[kind]
    return [f"ld.global.{'u' if width == 8 else 'b'}{width} {_register(i, kind)}, [%a{i}];"]


def _store(i: int, kind: str) -> list[str]:
    register, at = _register(20 + i, kind), f"[%a{20 + i}]"
    if kind == "pred":
        return [f"selp.u32 %z{20 + i}, 1, 0, {register};", f"st.global.u32 {at}, %z{20 + i};"]
    return [f"st.global.{'u' if BITS[kind] == 8 else 'b'}{BITS[kind]} {at}, {register};"]


def apply(engine: str, opcode: str, results, sources, tuples, constants=()) -> list[tuple[int, ...]]:
    """The results, as bit patterns, of `opcode` on each tuple of operand bit patterns."""
    count = len(tuples)
    inputs = [np.array([t[i] for t in tuples], np.uint64) for i in range(len(sources))]
    outputs = [np.zeros(count, np.uint64) for _ in results]
    ptx = probe(opcode, tuple(results), tuple(sources), tuple(constants))
    ENGINES[engine](ptx, "probe", (1,), (count,), [*outputs, *inputs])
    return [tuple(int(o[i]) for o in outputs) for i in range(count)]
