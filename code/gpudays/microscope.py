"""Microscope room: what one warp of a launch touches, access by access, for pictures. Runs the tracer's interpreter."""

from __future__ import annotations

import copy
import re
from dataclasses import replace

import numpy as np

from gpudays import compiler, launches
from gpudays.ptx.model import Access, LaunchError
from gpudays.ptx.oracle.arguments import prepare
from gpudays.ptx.oracle.interpreter import interpret
from gpudays.ptx.parser import parse


def trace_accesses(
    source: str,
    name: str,
    grid,
    block,
    args,
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
    program = compiler.compile(source, arch=arch, options=options, names=(name,))
    signature = program.kernel(name)
    launches.check_launch(program, signature, grid, block, shared_bytes)
    launches.check_arguments(signature, args)
    module = parse(program.ptx)
    kernel = module.functions[signature.mangled]
    launch = prepare(kernel, grid, block, copy.deepcopy(list(args)), shared_bytes, [tuple(at_block)])
    if not 0 <= warp < -(-launch.threads // 32):
        raise LaunchError(f"warp {warp}: a block of {launch.threads} threads has {-(-launch.threads // 32)} warps")
    run = interpret(module, kernel, launch, check_races=False, watch=(0, warp), limit=limit)
    names = _parameter_names(source, name)
    arrays = [i for i, value in enumerate(args) if isinstance(value, np.ndarray)]
    return [replace(a, buffer_name=_buffer_name(a, arrays, names)) for a in run.accesses]


def _parameter_names(source: str, kernel: str) -> list[str]:
    """The names of a kernel's parameters as its declaration writes them; [] where it cannot be read."""
    declaration = re.search(rf"\b{re.escape(kernel)}\s*\(([^)]*)\)", source)
    if declaration is None:
        return []
    names = [re.findall(r"[A-Za-z_]\w*", parameter) for parameter in declaration[1].split(",")]
    return [words[-1] if words else "" for words in names]


def _buffer_name(access: Access, arrays: list[int], names: list[str]) -> str:
    """The C++ name of the parameter that the touched array was passed for, or the variable's own name."""
    if access.buffer < 0:
        return access.buffer_name
    position = arrays[access.buffer]
    return names[position] if position < len(names) else f"argument {position}"
