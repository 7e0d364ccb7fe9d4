"""Launch room: what a card would refuse or silently misread, said before anything runs.

Limits of a block and a grid: NVIDIA, "CUDA C++ Programming Guide", "Technical Specifications per Compute Capability".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpudays import compiler, occupancy
from gpudays.compiler import KernelSignature, Param, Program
from gpudays.ptx.model import LaunchError

__all__ = ["LaunchError", "check_arguments", "check_launch", "three"]

# NumPy's kind and width of what a pointer points to; vector types are arrays of their element.
_SCALARS = {
    "bool": ("b?", 1), "char": ("iub", 1), "signed char": ("iub", 1), "unsigned char": ("iub", 1), "short": ("iu", 2),
    "unsigned short": ("iu", 2), "int": ("iu", 4), "unsigned int": ("iu", 4), "long": ("iu", 8),
    "unsigned long": ("iu", 8), "long long": ("iu", 8), "unsigned long long": ("iu", 8), "float": ("f", 4),
    "double": ("f", 8), "__half": ("f", 2), "float2": ("f", 4), "float3": ("f", 4), "float4": ("f", 4),
    "double2": ("f", 8), "int2": ("iu", 4), "int4": ("iu", 4), "uint2": ("iu", 4), "uint4": ("iu", 4),
}  # fmt: skip
_SUGGESTED = {
    ("f", 4): "np.float32", ("f", 8): "np.float64", ("f", 2): "np.float16", ("iu", 4): "np.int32",
    ("iu", 8): "np.int64", ("iu", 2): "np.int16", ("iub", 1): "np.int8", ("b?", 1): "np.bool_",
}  # fmt: skip


def three(size: int | Sequence[int]) -> tuple[int, int, int]:
    """A grid or block as (x, y, z), filled up with ones.

    Raises:
        LaunchError: more than three numbers, or one that is no whole number.
    """
    parts = (size,) if isinstance(size, (int, np.integer)) else tuple(size)
    if not 1 <= len(parts) <= 3 or not all(isinstance(p, (int, np.integer)) for p in parts):
        raise LaunchError(f"a grid or block is one to three whole numbers, not {size!r}")
    return tuple(int(p) for p in (*parts, 1, 1)[:3])


def check_launch(
    program: Program,
    kernel: KernelSignature,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    shared_bytes: int = 0,
    arch: str | None = None,
) -> None:
    """Refuse a launch that the card would refuse, with the reason.

    Registers are no part of PTX: they are asked of ptxas, once, and only for blocks that could run out of them.

    Args:
        program, kernel: what is launched.
        grid, block: up to three numbers each.
        shared_bytes: dynamic shared memory.
        arch: the card's architecture (default: the program's).

    Raises:
        LaunchError: empty or oversized grid or block, too much shared memory, too many registers.
    """
    grid, block = three(grid), three(block)
    for what, size, most in (("grid", grid, occupancy.MAX_GRID), ("block", block, occupancy.MAX_BLOCK)):
        for axis, value, limit in zip("xyz", size, most, strict=True):
            if not 1 <= value <= limit:
                raise LaunchError(f"{kernel.name}: {what} {size}: {axis} is {value}, a card takes 1 to {limit}")
    threads = block[0] * block[1] * block[2]
    if threads > occupancy.MAX_THREADS_PER_BLOCK:
        raise LaunchError(
            f"{kernel.name}: threads per block {threads} > {occupancy.MAX_THREADS_PER_BLOCK}: a block of "
            f"{' × '.join(map(str, block))} runs on no card. Use a smaller block and give each thread more work."
        )
    if shared_bytes < 0:
        raise LaunchError(f"{kernel.name}: {shared_bytes} bytes of dynamic shared memory")
    arch = arch or program.arch
    if threads > 256 or shared_bytes:  # 256 threads of 255 registers always fit
        _check_resources(program, kernel, threads, shared_bytes, arch)


def _check_resources(program: Program, kernel: KernelSignature, threads: int, shared_bytes: int, arch: str) -> None:
    needs = compiler.report(program.source, arch, program.options, program.names).get(kernel.mangled)
    if needs is None:  # no report: the card itself will say whether it takes the launch
        return
    card = occupancy.sm(arch)
    shared = needs.shared_bytes + shared_bytes
    if shared > card.shared_per_block:
        raise LaunchError(
            f"{kernel.name}: {shared} bytes of shared memory per block ({needs.shared_bytes} static, {shared_bytes} "
            f"dynamic) > {card.shared_per_block} on {arch}. Use smaller tiles."
        )
    held = occupancy.occupancy(arch, threads, needs.registers, shared)
    if not held.blocks:
        raise LaunchError(
            f"{kernel.name}: {needs.registers} registers × {threads} threads = {needs.registers * threads} > "
            f"{card.registers} on {arch}: too many resources requested for launch. Use fewer threads per block, or "
            f"write __launch_bounds__({threads}) after __global__ void so that the compiler keeps to the limit."
        )


def check_arguments(kernel: KernelSignature, args: Sequence[object]) -> None:
    """Refuse arguments that a kernel would misread: a launch checks neither their number nor their type.

    Args:
        kernel: whose parameters they are for.
        args: arrays (NumPy or CuPy) for pointers, NumPy scalars for the rest.

    Raises:
        LaunchError: wrong number, an array for a scalar or the other way round, wrong dtype or width, an array that is
            not contiguous.
    """
    if len(args) != len(kernel.params):
        raise LaunchError(f"{kernel} takes {len(kernel.params)} arguments, {len(args)} were given")
    for number, (param, arg) in enumerate(zip(kernel.params, args, strict=True), 1):
        is_array = hasattr(arg, "flags") and getattr(arg, "ndim", 0) > 0
        where = f"{kernel.name}, argument {number} ({param.declared or '.' + param.type})"
        if is_array and (param.is_pointer or not param.declared):
            _check_array(where, param, arg)
        elif is_array:
            raise LaunchError(f"{where}: an array was given for a number")
        elif param.is_pointer and param.declared:
            raise LaunchError(f"{where}: {arg!r} was given for an array")
        else:
            _check_scalar(where, param, arg)


def _check_array(where: str, param: Param, array) -> None:
    if param.width != 8:
        raise LaunchError(f"{where}: an array was given for a {param.width}-byte parameter")
    if not array.flags.c_contiguous:
        raise LaunchError(
            f"{where}: the array is not contiguous (a transpose or a slice): pass np.ascontiguousarray(…)"
        )
    wanted = _SCALARS.get(param.element)
    if wanted is None or (array.dtype.kind in wanted[0] and array.dtype.itemsize == wanted[1]):
        return
    raise LaunchError(
        f"{where}: the array is {array.dtype}, {array.dtype.itemsize} bytes an element, but the kernel reads "
        f"{param.element}: no conversion happens at a launch. Pass array.astype({_SUGGESTED[wanted]})."
    )


def _check_scalar(where: str, param: Param, scalar: object) -> None:
    if not isinstance(scalar, (np.generic, np.ndarray)):
        raise LaunchError(f"{where}: wrap {scalar!r} in the NumPy type of that width, as in {_wrapped(param, scalar)}")
    wanted = _SCALARS.get(param.declared.removeprefix("const "))
    fits = scalar.dtype.itemsize == param.width
    if wanted:
        fits = fits and scalar.dtype.kind in wanted[0]
    if not fits:
        raise LaunchError(
            f"{where}: {scalar!r} is {scalar.dtype}, {scalar.dtype.itemsize} bytes, the kernel reads {param.width} "
            f"bytes as {param.declared or param.type}: pass {_wrapped(param, scalar)}"
        )
    if "unsigned" in param.declared and scalar < 0:
        raise LaunchError(f"{where}: {scalar!r} is negative; as unsigned it would be huge")


def _wrapped(param: Param, value: object) -> str:
    """The NumPy call that makes a scalar of a parameter's type."""
    kind, width = _SCALARS.get(param.declared, ("f" if param.type.startswith("f") else "iu", param.width))
    name = _SUGGESTED.get((kind, width), f"a {param.width}-byte NumPy type")
    if "unsigned" in param.declared:
        name = name.replace("np.int", "np.uint")
    return f"{name}({value})"
