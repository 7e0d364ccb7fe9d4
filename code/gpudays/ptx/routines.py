"""Tracer, room 9: the routines that kernels call, in parts of which machine code is made once for all kernels.

A part is kept with its machine code: what one kernel called costs the next one nothing. What a routine depends on are
its arguments here and nothing else.
"""

from __future__ import annotations

from functools import lru_cache

from gpudays.ptx import atomic_ir, directed_ir, memory_ir, race_ir, scheduler_ir, shape_ir
from gpudays.ptx.codegen import Code, Plan
from gpudays.ptx.native import Part

kept = lru_cache(maxsize=256)  # parts of each kind; a course needs a few dozen


@kept
def common() -> Part:
    """Shapes and their costs, and what a warp does whose lanes part, sync or shuffle."""
    shapes = [make() for make in (shape_ir.find_shape, shape_ir.look_up, shape_ir.analyse, shape_ir.cost)]
    makers = (scheduler_ir.move_to, scheduler_ir.reconverge, scheduler_ir.permute, scheduler_ir.warp_sync)
    return Part([*shapes, *(make() for make in makers)])


@kept
def flush(cell: int) -> Part:
    """The routine that turns noted reads of shared memory into records of `cell` bytes each."""
    return Part([memory_ir.flush(cell)])


@kept
def watch(global_cell: int) -> Part:
    """The routine that keeps records of global memory, of `global_cell` bytes each."""
    return Part([race_ir.watch(global_cell)])


@kept
def homes() -> Part:
    """The routine that finds the buffers of a request which straddles several."""
    return Part([memory_ir.homes()])


@kept
def access(op: str, space: str, width: int, count: int, cell: int, checks: bool, frame: int, global_cell: int) -> Part:
    """A load or store; memory_ir.py says what the arguments are."""
    settings = (cell, checks, frame, global_cell)
    others = [access(op, s, width, count, *_of_space(s, settings)) for s in _reached(space)]
    return Part([memory_ir.access_routine(op, space, width, count, *settings)], _called(space, settings) + others)


@kept
def atomic(
    op: str, space: str, what: str, kind: str, element: str, cell: int, checks: bool, frame: int, global_cell: int
) -> Part:
    """An atomic operation; atomic_ir.py says what the arguments are."""
    settings = (cell, checks, frame, global_cell)
    others = [atomic(op, s, what, kind, element, *_of_space(s, settings)) for s in _reached(space)]
    return Part(
        [atomic_ir.Atomic(op, space, what, kind, element, *settings).build()], _called(space, settings) + others
    )


@kept
def directed(what: str, mode: str) -> Part:
    """float64 arithmetic in a rounding mode of its own (directed_ir.py)."""
    return Part([directed_ir.directed(what, mode)])


def kernel(code: Code, plan: Plan) -> Part:
    """The kernel itself, with the machine that runs its blocks, as a part that calls those above."""
    settings = (plan.cell, plan.checks, plan.local_bytes, plan.global_cell)
    calls = [common()]
    calls += [access(*r, *_of_space(r[1], settings)) for r in sorted(code.routines)]
    calls += [atomic(*r, *_of_space(r[1], settings)) for r in sorted(code.atomics)]
    calls += [directed(*d) for d in sorted(code.directed)]
    return Part([code.function, scheduler_ir.run_blocks(code.warp_bytes)], calls, memory_ir.ZERO)


def _reached(space: str) -> tuple[str, ...]:
    """The spaces that a generic address may turn out to lie in."""
    return ("global", "shared", "local") if space == "generic" else ()


def _of_space(space: str, settings: tuple[int, bool, int, int]) -> tuple[int, bool, int, int]:
    """The settings (cell, checks, frame, global_cell) without those that the space has no use for.

    So kernels share the routines of a space whatever else they use.
    """
    cell, checks, frame, global_cell = settings
    match space:
        case "shared":
            return cell, checks, 0, 0
        case "global":
            return 0, checks, 0, global_cell
        case "local":
            return 0, False, frame, 0
    return settings


def _called(space: str, settings: tuple[int, bool, int, int]) -> list[Part]:
    """The parts that every routine of a space calls."""
    cell, _, _, global_cell = settings
    records = {"shared": [flush(cell)], "global": [watch(global_cell), homes()]}
    return [common(), *records.get(space, [])]
