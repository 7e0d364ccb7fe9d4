"""Microscope room: one warp of a launch at work, for pictures: what it touches, and which lanes take which turn.

Runs the tracer's interpreter on the one block in question, with copies of the arrays.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpudays import compiler, launches, tracing
from gpudays.ptx.model import Access, LaunchError
from gpudays.ptx.oracle.arguments import prepare
from gpudays.ptx.oracle.interpreter import Run, Turn, interpret
from gpudays.ptx.parser import parse


def trace_accesses(
    source: str,
    name: str,
    grid: Sequence[int] | int,
    block: Sequence[int] | int,
    args: Sequence,
    at_block: tuple[int, ...] = (0, 0, 0),
    warp: int = 0,
    limit: int | None = None,
    shared_bytes: int = 0,
    arch: str = "sm_75",
    options: tuple[str, ...] = (),
) -> list[Access]:
    """Run one block of a launch and list what one of its warps does to memory, in order.

    Args:
        source: CUDA C++, as `gpudays.compile` takes it.
        name: the kernel.
        grid, block: one to three sizes each.
        args: NumPy arrays and scalars, as `gpudays.trace` takes them; the arrays are not changed.
        at_block: the (x, y, z) of the block that runs; the others do not.
        warp: the warp's number in its block: threads 32·warp to 32·warp + 31.
        limit: stop after this many accesses (None: run the block to its end).
        shared_bytes: dynamic shared memory.
        arch, options: for the compiler.

    Returns:
        One `Access` per memory instruction with an active lane: global, shared, local, constant.

    Raises:
        CompileError, LaunchError, UnsupportedInstruction: as `gpudays.trace` does.
    """
    program = compiler.compile(source, arch, tuple(options), (name,))
    signature = program.kernel(name)
    run = _watch(program, signature, grid, block, args, at_block, warp, limit, shared_bytes)
    names = tracing.parameter_names(source, signature)
    arrays = [i for i, value in enumerate(args) if isinstance(value, np.ndarray)]
    return [replace(a, buffer_name=_buffer_name(a, arrays, names)) for a in run.accesses]


def trace_turns(
    source: str,
    name: str,
    grid: Sequence[int] | int,
    block: Sequence[int] | int,
    args: Sequence,
    at_block: tuple[int, ...] = (0, 0, 0),
    warp: int = 0,
    shared_bytes: int = 0,
    arch: str = "sm_75",
    options: tuple[str, ...] = (),
) -> list[Turn]:
    """Run one block of a launch and list the turns of one of its warps: a basic block of PTX, and the active lanes.

    Arguments and errors are those of `trace_accesses`.
    """
    program = compiler.compile(source, arch, tuple(options), (name,))
    return _watch(program, program.kernel(name), grid, block, args, at_block, warp, None, shared_bytes).turns


def _watch(program, signature, grid, block, args, at_block, warp, limit, shared_bytes) -> Run:
    launches.check_launch(program, signature, grid, block, shared_bytes)
    launches.check_arguments(signature, args)
    module = parse(program.ptx)
    kernel = module.functions[signature.mangled]
    launch = prepare(kernel, grid, block, copy.deepcopy(list(args)), shared_bytes, [tuple(at_block)])
    warps = -(-launch.threads // 32)
    if not 0 <= warp < warps:
        raise LaunchError(f"warp {warp}: a block of {launch.threads} threads has {warps} warps, counted from 0")
    return interpret(module, kernel, launch, check_races=False, watch=(0, warp), limit=limit)


def _buffer_name(access: Access, arrays: list[int], names: Sequence[str]) -> str:
    """The C++ name of the parameter that the touched array was passed for, or the variable's own name."""
    if access.buffer < 0:
        return access.buffer_name
    position = arrays[access.buffer]
    return names[position] or f"argument {position}"
