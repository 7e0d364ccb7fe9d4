"""Runs room: a day's kernel with its launch and its arguments, in the tracer or on the card.

``Runs`` holds one source. What the tracer has counted of a whole launch is kept, so that verifying, counting and
auditing the same kernel at the same size execute it once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

import gpudays
from gpudays import compiler, gpu, verify
from gpudays.compiler import KernelSignature, Program
from gpudays.course.steps import Day, Size, Step
from gpudays.ptx import engine
from gpudays.tracing import TraceResult

Block = tuple[int, int, int]
PATIENCE = 400  # instructions that a warp may spend on each round of k before the tracer calls the launch endless


class ParameterError(TypeError):
    """A kernel whose parameters are not those that the day calls it with; the message names both."""


@dataclass
class Runs:
    """One CUDA source and the day whose launches it is run with.

    Attributes:
        source: CUDA C++.
        day: gives grid, block and arguments.
        arch: the architecture whose PTX the tracer runs.
    """

    source: str
    day: Day
    arch: str = "sm_75"
    _kept: dict[tuple[str, Size], object] = field(default_factory=dict, repr=False)

    @property
    def program(self) -> Program:
        """The source, compiled.

        Raises:
            CompileError: it does not compile.
        """
        return compiler.compile(self.source, self.arch)

    def signature(self, kernel: str) -> KernelSignature:
        """The kernel as the source declares it.

        Raises:
            compiler.KernelNotFound: the source has no such kernel.
            ParameterError: it has other parameters than A, B, C and the day's sizes.
        """
        found = self.program.kernel(kernel)
        sizes = self.day.scalars((1, 1, 1))
        pointers, rest = found.params[:3], found.params[3:]
        fits = len(found.params) == 3 + len(sizes) and all(p.is_pointer for p in pointers)
        whole = all(not p.is_pointer and p.width in (4, 8) and p.type[0] != "f" for p in rest)
        floats = all(p.element in ("", "float") for p in pointers)
        if not (fits and whole and floats):
            names = ", ".join(["const float* a, const float* b, float* c", *self._size_names()])
            raise ParameterError(f"{found} has other parameters than this day's {kernel}({names})")
        return found

    def arguments(self, kernel: str, size: Size) -> list[np.generic]:
        """The arguments after A, B and C, each in the width that the kernel declares (``int n`` and ``size_t n``)."""
        declared = self.signature(kernel).params[3:]
        kinds = {4: np.int32, 8: np.int64}
        unsigned = {4: np.uint32, 8: np.uint64}
        return [
            (unsigned if "unsigned" in p.declared or not p.declared else kinds)[p.width](s)
            for p, s in zip(declared, self.day.scalars(size), strict=True)
        ]

    def _size_names(self) -> list[str]:
        sizes = self.day.scalars((1, 1, 1))
        return ["size_t n"] if len(sizes) == 1 else ["int m", "int n", "int k"]

    def step(self, kernel: str, arch: str | None = None) -> Step:
        """The step with the launch that this source's kernel needs on an architecture (default: the tracer's)."""
        step = self.day.launch(kernel, self.source, arch or self.arch)
        return _in_a_row(step) if step.block[1] > 1 and self.is_one_dimensional(kernel) else step

    def is_one_dimensional(self, kernel: str) -> bool:
        """Whether a kernel reads no ``threadIdx.y``: then its threads are launched in a row, as many as the day's."""
        return "%tid.y" not in self._code(kernel)

    def is_empty(self, kernel: str) -> bool:
        """Whether a kernel does nothing: a stub that nobody has filled in."""
        body = self._entry(kernel).partition("{")[2].partition("\n}")[0]
        return set(re.findall(r"(?m)^\s+([a-z][\w.]*)[^\n]*;", body)) <= {"ret"}

    def shared_bytes(self, kernel: str) -> int:
        """Static shared memory of a kernel's block: the arrays that its PTX names."""
        code = self._code(kernel)
        arrays = re.findall(r"\.shared\s+\.align\s+\d+\s+\.b8\s+([\w$]+)\[(\d+)\]", self.program.ptx)
        return sum(int(size) for name, size in arrays if re.search(rf"\b{re.escape(name)}\b", code))

    def _code(self, kernel: str) -> str:
        """The PTX of a kernel, and of every function that was not inlined."""
        own = self._entry(kernel)
        functions = [text.partition(".func")[2] for text in self.program.ptx.split(".entry ") if text != own]
        return own + "".join(functions)

    def _entry(self, kernel: str) -> str:
        """The PTX from a kernel's name to the next one's."""
        mangled = re.escape(self.program.kernel(kernel).mangled)
        return next(text for text in self.program.ptx.split(".entry ") if re.match(rf"{mangled}\b", text))

    def step_on_card(self, kernel: str) -> Step:
        """The step as it is launched on this machine's card."""
        card = gpu.device()
        return self.step(kernel, card.arch if card else None)

    def trace(
        self,
        kernel: str,
        a: np.ndarray,
        b: np.ndarray,
        c: np.ndarray,
        size: Size,
        blocks: Sequence[Block] | None = None,
    ):
        """Run in the tracer; C is written in place.

        Args:
            kernel: its name.
            a, b, c: float32 arrays of shapes (m, k), (k, n), (m, n).
            size: (m, n, k).
            blocks: which blocks to run (default: all).

        Returns:
            What ``gpudays.trace`` returns: counters, totals and findings.
        """
        step = self.step(kernel)
        result = gpudays.trace(
            self.source,
            kernel,
            grid=step.grid(size),
            block=step.block,
            args=[a, b, c, *self.arguments(kernel, size)],
            shared_bytes=step.shared_bytes,
            arch=self.arch,
            blocks=blocks,
            budget=PATIENCE * (size[2] + 16),
        )
        if blocks is None:
            self._kept[kernel, size] = result
        return result

    def prepare(self, kernel: str) -> None:
        """Have the tracer ready for this kernel and its like: for a process that is going to run many hand-ins."""
        engine.prepare(self.program.ptx, self.signature(kernel).mangled)

    def traced(self, kernel: str, size: Size):
        """What a whole launch at this size counts, from an earlier run if there was one."""
        if (kernel, size) not in self._kept:
            a, b = verify.inputs(size)
            self.trace(kernel, a, b, np.full(size[:2], np.nan, np.float32), size)
        return self._kept[kernel, size]

    def launch(self, kernel: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, size: Size) -> None:
        """Run on the card; C (and, if the kernel is so written, A and B) are changed in place."""
        step = self.step_on_card(kernel)
        args = [a, b, c, *self.arguments(kernel, size)]
        gpu.launch(self.source, kernel, step.grid(size), step.block, args, step.shared_bytes)

    def time(self, kernel: str, size: Size, repeats: int | None = None) -> gpu.Timing:
        """Time on the card with CUDA events, the day's warm-ups and repeats."""
        step = self.step_on_card(kernel)
        a, b = verify.inputs(size)
        args = [a, b, np.empty(size[:2], np.float32), *self.arguments(kernel, size)]
        return gpu.time_kernel(
            self.source, kernel, step.grid(size), step.block, args, step.shared_bytes,
            warm_ups=self.day.warmups, repeats=repeats or self.day.repeats,
        )  # fmt: skip


def _in_a_row(step: Step) -> Step:
    """The same block and patch of C with all threads along x."""
    return replace(step, block=(step.block[0] * step.block[1], 1), tile=step.covers)


def sample_blocks(grid: Sequence[int], count: int = 32, seed: int = 1) -> list[Block]:
    """Some blocks of a grid (x, y): its four corners and others at random, always the same; all if it has no more.

    Args:
        grid: gridDim (x, y).
        count: how many.
        seed: of the choice.
    """
    width, height = grid[0], grid[1]
    if width * height <= count:
        return [(x, y, 0) for y in range(height) for x in range(width)]
    corners = {0, width - 1, (height - 1) * width, height * width - 1}
    others = np.random.default_rng(seed).permutation(width * height).tolist()
    chosen = list(dict.fromkeys([*sorted(corners), *others]))[:count]
    return [(number % width, number // width, 0) for number in sorted(chosen)]


def verify_sample(
    runs: Runs,
    kernel: str,
    size: Size,
    count: int | None = None,
    seed: int = 1,
    seen: Callable[[TraceResult], None] = lambda result: None,
) -> tuple[list[verify.Problem], float, int]:
    """Run a sample of a launch's blocks in the tracer and hold what they wrote against float64.

    Which elements a block writes is the kernel's business: each block has to write as many as it computes (where a
    thread computes one, at sizes that are multiples of the block), and all that is written has to be right.

    Args:
        runs, kernel, size: what is run.
        count: how many blocks (default: 32, or fewer where a block computes more than 256 elements, but at least 4).
        seed: of the matrices and the choice of blocks.
        seen: is given what the tracer returned.

    Returns:
        Problems (at most one), largest relative error, number of blocks run.
    """
    step = runs.step(kernel)
    blocks = sample_blocks(step.grid(size), count or max(4, 32 * 256 // (step.covers[0] * step.covers[1])), seed)
    a, b = verify.inputs(size, seed)
    c = np.full(size[:2], np.nan, np.float32)
    result = runs.trace(kernel, a, b, c, size, blocks)
    seen(result)
    if result.findings:
        return [verify.Problem("wrong", kernel, size, str(result.findings[0]))], float("inf"), len(blocks)
    written, expected = ~np.isnan(c), sum(_elements(step, size, block) for block in blocks)
    if written.sum() != expected:
        what = f"{len(blocks)} blocks wrote {written.sum():,} numbers that are not NaN, and compute {expected:,}"
        return [verify.Problem("never-written", kernel, size, what)], float("inf"), len(blocks)
    problems, worst = verify.compare(c, a, b, kernel, where=written)
    return problems, worst, len(blocks)


def _elements(step: Step, size: Size, block: Block) -> int:
    """Elements of C that a block computes; for those that overhang the edge, where the step says its tile."""
    across, down = step.covers
    if step.tile:
        across, down = min(across, size[1] - block[0] * across), min(down, size[0] - block[1] * down)
    return across * down
