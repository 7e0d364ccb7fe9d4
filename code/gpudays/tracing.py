"""Tracing room: CUDA C++ source and a launch go in, counters and findings come out; no GPU is needed.

Compiles with NVRTC (compiler.py) and runs the PTX (ptx/). What a card would refuse is refused here, and one thing more:
an array whose elements are not what the kernel's pointer says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from gpudays import compiler
from gpudays.ptx import engine
from gpudays.ptx.model import Finding, LaunchError
from gpudays.signatures import KernelSignature

REGISTERS_PER_BLOCK = 65536  # NVIDIA, "CUDA C++ Programming Guide", "Technical Specifications per Compute Capability"
_KINDS = {
    "float": ("f", 4), "double": ("f", 8), "__half": ("f", 2), "int": ("i", 4), "unsigned int": ("i", 4),
    "short": ("i", 2), "unsigned short": ("i", 2), "long": ("i", 8), "unsigned long": ("i", 8), "long long": ("i", 8),
    "unsigned long long": ("i", 8), "uint": ("i", 4),
}  # fmt: skip


@dataclass
class TraceResult:
    """What one traced launch did.

    Attributes:
        total: the kernel's sum of each metric, by Nsight Compute's name (and a few of ours, see ptx/model.py).
        findings: mistakes that were caught, each with kind, line, block, thread and message.
        blocks_run, blocks_total: how many of the grid's blocks ran; they differ only when `blocks=` names a sample or
            the launch was given up (`stopped`).
        warp_instructions: PTX instructions executed, per warp.
        seconds: the run alone, without compiling.
        printed: what the kernel printed.
        notes: things to know about this run, in sentences.
    """

    kernel: str
    total: dict[str, float]
    findings: list[Finding]
    blocks_run: int
    blocks_total: int
    warp_instructions: int
    seconds: float
    printed: str = ""
    stopped: bool = False
    notes: list[str] = field(default_factory=list)
    rows: list[tuple[int, str, int]] = field(default_factory=list, repr=False)

    @cached_property
    def counters(self) -> pd.DataFrame:
        """A tidy table: line of the source (0: none), metric, value."""
        return pd.DataFrame(self.rows, columns=["line", "metric", "value"])


def trace(
    source: str,
    name: str,
    grid: Sequence[int] | int,
    block: Sequence[int] | int,
    args: Sequence,
    shared_bytes: int = 0,
    arch: str = "sm_75",
    blocks: Sequence[Sequence[int]] | None = None,
    budget: int | None = None,
    check_races: bool = True,
    options: tuple[str, ...] = (),
) -> TraceResult:
    """Compile `source` and run its kernel `name` on the CPU, counting what the hardware's counters would say.

    Args:
        source: CUDA C++.
        name: the kernel.
        grid, block: up to three sizes, (x, y, z).
        args: NumPy arrays (device buffers, changed in place) and NumPy scalars, in the kernel's order.
        shared_bytes: dynamic shared memory per block.
        arch: the architecture to compile for.
        blocks: block indices (x, y, z) to run instead of all: a sample, which the result states.
        budget: instructions a warp may run before that is a `budget` finding (default: 50 million).
        check_races: whether shared memory is watched for races and reads of what nobody wrote.
        options: further NVRTC options.

    Raises:
        CompileError: the source does not compile.
        KernelNotFound: it has no such kernel.
        LaunchError: a card would refuse this launch, or the arguments do not fit the kernel.
        UnsupportedInstruction: the kernel uses an instruction that the tracer does not know.
    """
    program = compiler.compile(source, arch, tuple(options), (name,))
    signature = program.kernel(name)
    names = parameter_names(source, signature)
    engine.check_count(signature.mangled, len(signature.params), args)
    check_types(signature, args, names)
    size = engine.block_size(block)
    check_registers(program, signature, size, arch)
    done = engine.execute(
        program.ptx, signature.mangled, grid, block, args, shared_bytes, blocks, budget, check_races, names
    )
    notes = [signature.note] if signature.note else []
    if done.blocks_run < done.blocks_total:
        notes.append(f"{done.blocks_run} of {done.blocks_total} blocks were run: counts and results are of those")
    if done.stopped:
        notes.append("the launch was given up at its findings, as a GPU gives up at its first fault")
    return TraceResult(
        signature.name, done.total, done.findings, done.blocks_run, done.blocks_total, done.warp_instructions,
        done.seconds, done.printed, done.stopped, notes, done.rows,
    )  # fmt: skip


def parameter_names(source: str, signature: KernelSignature) -> list[str]:
    """The parameters' names as the source has them; "" for each where they cannot be read off."""
    base = signature.name.split("<", 1)[0].rsplit("::", 1)[-1]
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    for match in re.finditer(rf"\b{re.escape(base)}\s*\(([^()]*)\)\s*\{{", text):
        found = [re.search(r"(\w+)\s*(?:\[\s*\])?\s*$", part.split("=")[0]) for part in match[1].split(",")]
        if len(found) == len(signature.params) and all(found):
            return [m[1] for m in found]
    return [""] * len(signature.params)


def check_types(signature: KernelSignature, args: Sequence, names: Sequence[str] = ()) -> None:
    """Raise LaunchError where an array's elements are not what the kernel's pointer points to.

    A kernel reads raw bytes: float64 data behind a `float*` is not converted, and no address is out of bounds either.
    """
    for n, (param, value) in enumerate(zip(signature.params, args, strict=True)):
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu" or value.itemsize == 1:
            continue
        scalar = re.sub(r"(?<=[a-z])[234]$", "", param.element)
        scalar = {"uint": "unsigned int", "ushort": "unsigned short", "longlong": "long long"}.get(scalar, scalar)
        if scalar not in _KINDS:
            continue
        kind, width = _KINDS[scalar]
        given = "f" if value.dtype.kind == "f" else "i"
        if (given, value.itemsize) != (kind, width):
            label = names[n] if n < len(names) and names[n] else f"argument {n}"
            raise LaunchError(
                f"{label} of {signature.name} is declared {param.declared}, the array holds {value.dtype}: the kernel "
                f"would read its bytes as {width}-byte elements. Convert it first: array.astype(np.{_numpy(scalar)})"
            )


def _numpy(scalar: str) -> str:
    kind, width = _KINDS[scalar]
    return {"f": "float", "i": "uint" if scalar.startswith("u") else "int"}[kind] + str(8 * width)


def check_registers(program: compiler.Program, signature: KernelSignature, threads: int, arch: str) -> None:
    """Raise LaunchError where the kernel needs more registers than a block of this size can have.

    Registers come from ptxas, which NVRTC runs when it compiles for a real architecture. Blocks of up to 256 threads
    always fit: a thread has at most 255 registers.
    """
    if threads <= REGISTERS_PER_BLOCK // 256 or threads > engine.MAX_THREADS:
        return
    needs = program.resources(arch).get(signature.name)
    if needs is None:
        return
    per_warp = -(-needs.registers * 32 // 256) * 256  # registers are handed out per warp, 256 at a time
    total = -(-threads // 32) * per_warp
    if total > REGISTERS_PER_BLOCK:
        raise LaunchError(
            f"{signature.name} needs {needs.registers} registers per thread on {arch}: {threads} threads want {total}, "
            f"a block has {REGISTERS_PER_BLOCK} (too many resources requested for launch). Write "
            f"__launch_bounds__({threads}) before the kernel's name, or launch smaller blocks"
        )
