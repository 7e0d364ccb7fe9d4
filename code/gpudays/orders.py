"""Orders room: one launch, run with its warps in different orders. Where the answers differ, the kernel has a race.

Between two barriers a GPU may run the warps of a block in any order. Two extreme ones are run here on the CPU, and
where there is a card, whatever it chooses.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudays import compiler, gpu, verify
from gpudays.course.steps import Size
from gpudays.ptx.oracle.arguments import prepare
from gpudays.ptx.oracle.interpreter import interpret
from gpudays.ptx.parser import parse
from gpudays.runs import Runs
from gpudays.tables import Shown

LAUNCHES = 20  # on the card: a race need not show the first time


def orders(runs: Runs, kernel: str, size: Size) -> Shown:
    """How many elements of C are right when the warps of a block run in step, one by one, and on the card.

    Args:
        runs: the source and its day.
        kernel: any kernel of the day; it may have races.
        size: (m, n, k), small.
    """
    rows = [
        ("all warps in step, on the CPU", _right(_in_step(runs, kernel, size), size)),
        ("one warp after the other, on the CPU", _right(_one_by_one(runs, kernel, size), size)),
    ]
    source = "traced"
    if card := gpu.device():
        worst = min(_right(_on_card(runs, kernel, size), size) for _ in range(LAUNCHES))
        rows.append((f"on the card, worst of {LAUNCHES} launches", worst))
        source = f"traced; live, {card.name}"
    of = size[0] * size[1]
    frame = pd.DataFrame(
        [(order, right, of, "right" if right == of else "wrong") for order, right in rows],
        columns=["order of the warps", "elements right", "of", "C is"],
    )
    return Shown(frame, source)


def _right(c: np.ndarray, size: Size) -> int:
    """Elements of C within the tolerance of float64."""
    product, magnitude = verify.reference(*verify.inputs(size))
    return int((verify.relative_error(c, product, magnitude) <= verify.tolerance(size[2])).sum())


def _matrices(size: Size) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (*verify.inputs(size), np.full(size[:2], np.nan, np.float32))


def _in_step(runs: Runs, kernel: str, size: Size) -> np.ndarray:
    """C as the interpreter computes it, which takes all warps of a block through each instruction together."""
    step, (a, b, c) = runs.step(kernel), _matrices(size)
    program = compiler.compile(runs.source, runs.arch)
    module = parse(program.ptx)
    function = module.functions[program.kernel(kernel).mangled]
    args = [a, b, c, *runs.arguments(kernel, size)]
    interpret(module, function, prepare(function, step.grid(size), step.block, args), check_races=False)
    return c


def _one_by_one(runs: Runs, kernel: str, size: Size) -> np.ndarray:
    """C as the tracer computes it, which takes one warp to its next barrier before the next one starts."""
    a, b, c = _matrices(size)
    runs.trace(kernel, a, b, c, size)
    return c


def _on_card(runs: Runs, kernel: str, size: Size) -> np.ndarray:
    a, b, c = _matrices(size)
    runs.launch(kernel, a, b, c, size)
    return c
