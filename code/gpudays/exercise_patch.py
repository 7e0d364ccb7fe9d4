"""Exercise room, Day 44's audit: no register spilled, and few enough turns of shared memory for each multiply-add."""

from __future__ import annotations

from gpudays.course.day44 import multiply_adds
from gpudays.course.steps import Size, label
from gpudays.exercise_report import FAILED, PASSED, Ratio
from gpudays.ptx.model import SHARED_LD_CONFLICTS, SHARED_LD_WAVEFRONTS
from gpudays.runs import Runs

Line = tuple[bool, str, str]  # whether it fails, what was seen, a hint

SPILL_HINT = "a loop over a local array has to be unrolled, with constant bounds, or the array cannot live in registers"
CONFLICT_HINT = "let neighbouring threads read neighbouring words: column x + 16 · j of the tile, not 4 · x + j"
REUSE_HINT = "read a float of the tile once, keep it in a register, and use it for several outputs of the thread"


def spills(student: Runs, kernel: str, arch: str, ratios: list[Ratio]) -> Line:
    """Whether ptxas had to put registers of a kernel into memory on an architecture.

    Args:
        student: the hand-in.
        kernel: the one that is asked about.
        arch: "sm_75", …
        ratios: gets one line more.
    """
    needs = student.program.resources(arch)[student.program.kernel(kernel).name]
    spilled = needs.spill_stores + needs.spill_loads + needs.stack_bytes
    status = FAILED if spilled else PASSED
    ratios.append(Ratio(f"{kernel} on {arch}: bytes of a thread in local memory", spilled, "0", status))
    seen = f"{kernel} takes {needs.registers} registers on {arch} and spills {spilled} bytes"
    return bool(spilled), seen, SPILL_HINT


def wavefronts(student: Runs, kernel: str, size: Size, bound: float, ratios: list[Ratio]) -> Line:
    """Whether shared memory takes too many turns for each warp-wide multiply-add, counted by the tracer.

    Args:
        student, kernel: what is counted.
        size: one that the block's tile divides.
        bound: the most wavefronts for each multiply-add.
        ratios: gets one line more.
    """
    total = student.traced(kernel, size).total
    each = multiply_adds(size)
    seen, conflicts = total[SHARED_LD_WAVEFRONTS] / each, total[SHARED_LD_CONFLICTS] / each
    fails = seen > bound
    status = FAILED if fails else PASSED
    ratios.append(
        Ratio(f"{kernel} at {label(size)}: shared wavefronts per multiply-add", seen, f"at most {bound}", status)
    )
    line = f"{kernel} at {label(size)} takes {seen:.3g} shared wavefronts for each multiply-add (at most {bound})"
    if conflicts:
        line += f"; {conflicts:.3g} of them are bank conflicts"
    return fails, line, CONFLICT_HINT if seen - conflicts <= bound else REUSE_HINT
