"""Tracing room: CUDA C++ source and a launch go in, counters and findings come out; no GPU is needed.

Compiles with NVRTC (compiler.py), refuses what a card would refuse or misread (launches.py) and runs the PTX (ptx/).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pandas as pd

from gpudays import compiler, launches
from gpudays.ptx import engine
from gpudays.ptx.model import Finding, Touch
from gpudays.signatures import KernelSignature


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
        touched: which buffers were used and how: arguments, and variables of the module.
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
    touched: list[Touch] = field(default_factory=list, repr=False)

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
    launches.check_launch(program, signature, grid, block, shared_bytes)
    launches.check_arguments(signature, args)
    done = engine.execute(
        program.ptx, signature.mangled, grid, block, args, shared_bytes, blocks, budget, check_races, names
    )
    notes = [*([signature.note] if signature.note else []), *done.notes]
    if done.blocks_run < done.blocks_total:
        notes.append(f"{done.blocks_run} of {done.blocks_total} blocks were run: counts and results are of those")
    if done.stopped:
        notes.append("the launch was given up at its findings, as a GPU gives up at its first fault")
    return TraceResult(
        signature.name, done.total, done.findings, done.blocks_run, done.blocks_total, done.warp_instructions,
        done.seconds, done.printed, done.stopped, notes, done.rows, done.touched,
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
