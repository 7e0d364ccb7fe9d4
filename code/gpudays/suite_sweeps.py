"""Page-tables room, the suite's sweeps: the CPU loop by the size of B, kernel 2 by tile, kernel 4 by outputs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from gpudays import bench_suite, cpu_loop, metrics, occupancy, profiles, verify
from gpudays.course import evidence as ev
from gpudays.course import suite
from gpudays.course.evidence import Evidence
from gpudays.course.models import flops
from gpudays.course.steps import DAY16, Step, square
from gpudays.course.suite_predictions import SIZES, N, cpu_rate
from gpudays.ptx import model
from gpudays.runs import Runs
from gpudays.suite_tables import Cards, value
from gpudays.tables import Shown

MIB = 2**20
NAN = float("nan")
CPU_REPEATS = 25
TILE_SIDES = {8: "matmulTiled8", 16: "matmulTiled", 32: "matmulTiled32"}


# ---- the CPU loop ----------------------------------------------------------------------------------------------------


def cpu(both: Cards) -> Shown:
    """The CPU loop's rate at every size, and at what rate B has to reach the core for it."""
    rows = []
    for card in both:
        for n in SIZES:
            if rates := cpu_rate(card, n):
                low, rate, high = rates
                spread = (low, high) if low < high else (NAN, NAN)
                ms = value(card, suite.CPU, n, metrics.TIME)
                rows.append((f"host of the {card.card}", n, 4 * n * n / MIB, ms, rate, *spread, 2 * rate))
    columns = ["machine", "N", "B, MiB", "ms", "GFLOP/s", "slowest run", "fastest run", "GB/s of B"]
    formats = {"N": "d", "B, MiB": "g", "ms": ",.1f"} | dict.fromkeys(columns[4:], ".1f")
    note = "Each multiply-add reads four bytes of B: two bytes for each operation. Slowest and fastest in GFLOP/s."
    return Shown(pd.DataFrame(rows, columns=columns), both.origins([suite.CPU], SIZES), formats, note)


def cpu_here(depths: Sequence[int] = (256, 4096, 65536), columns: int = 256, products: int = 2**24) -> Shown:
    """The same multiply-adds on this machine's CPU, with the same inner loop and a B that grows.

    Args:
        depths: rows of B; A gets as many rows as the products allow, so that A is of one size in all runs.
        columns: of B and C, the length of the inner loop.
        products: multiply-adds of each run.
    """
    rows = []
    for k in depths:
        m = products // (k * columns)
        try:
            ms = min(cpu_loop.timed(*verify.inputs((m, columns, k)), repeats=CPU_REPEATS))
        except cpu_loop.NoCompiler as problem:
            return Shown(pd.DataFrame(), f"nothing: {problem}")
        rate = flops(m, columns, k) / ms / 1e6
        rows.append((f"{m} × {k} by {k} × {columns}", 4 * k * columns / MIB, ms, rate, 2 * rate))
    names = ["A by B", "B, MiB", "ms", "GFLOP/s", "GB/s of B"]
    formats = {"B, MiB": "g", "ms": ".1f", "GFLOP/s": ".1f", "GB/s of B": ".1f"}
    source = f"live, one thread of this machine's CPU, fastest of {CPU_REPEATS}"
    return Shown(pd.DataFrame(rows, columns=names), source, formats)


# ---- sweeps ----------------------------------------------------------------------------------------------------------


def tile_sweep(arch: str = "sm_90", sizes: Sequence[int] = (256, 512, 1024, 4096)) -> Shown:
    """Kernel 2 with tiles of 8, 16 and 32: what a block takes of a multiprocessor, its sectors, its times.

    Args:
        arch: whose registers.
        sizes: of the shipped times.
    """
    figures = profiles.shipped(DAY16.profiles)
    card = Evidence(figures.table, figures.card, ("shipped",))
    needs = bench_suite.runs_of(DAY16).program.resources(arch)
    counted = 512  # where the card's sectors of all three are shipped
    rows = []
    for side, kernel in TILE_SIDES.items():
        used = needs[kernel]
        held = occupancy.occupancy(arch, side * side, used.registers, used.shared_bytes)
        sectors = value(card, kernel, counted, ev.SECTORS)
        ms = [value(card, kernel, n, metrics.TIME) for n in sizes]
        rows.append((side, used.registers, used.shared_bytes, held.percent, sectors / 1e6, *ms))
    fewer = f"million sectors at {counted}"
    columns = ["TILE", "registers", "shared, B", "occupancy, %", fewer, *(f"ms at {n}" for n in sizes)]
    formats = {"occupancy, %": ".0f", fewer: ".2f"} | {name: ".4f" for name in columns[5:]}
    shipped = card.origin([*TILE_SIDES.values()], sizes, metrics.TIME) or "no times here"
    source = f"registers compiled here for {arch}; occupancy computed; sectors and times {shipped}"
    return Shown(pd.DataFrame(rows, columns=columns), source, formats)


def coarsening(both: Cards, runs: Runs, arch: str = "sm_90", traced_at: int = 256) -> Shown:
    """Kernel 4 by outputs per thread: registers and spills, what a multiply-add costs, and how much of the card works.

    Args:
        both: the cards; the course's has the times.
        runs: the source.
        arch: whose registers.
        traced_at: the size of the traced counts.
    """
    needs = runs.program.resources(arch)
    rows = []
    for step in suite.SUITE.sweep:
        used, total = needs[step.kernel], runs.traced(step.kernel, square(traced_at)).total
        held = occupancy.occupancy(arch, 256, used.registers, used.shared_bytes)
        each = traced_at**3 / 32
        blocks = blocks_of(step, N)
        ms = value(both.ours, step.kernel, N, metrics.TIME)
        busy = min(blocks, both.sms) or NAN
        rate = flops(N) / ms / 1e6
        rows.append(
            (outputs(step), used.registers, used.spill_stores + used.spill_loads, held.percent,
             total[model.WARP_INSTRUCTIONS] / each, total[model.SHARED_LD_REQUESTS] / each,
             blocks, busy, ms, rate, rate / busy)
        )  # fmt: skip
    columns = [
        "outputs", "registers", "spilled, B", "occupancy, %", "instructions per FMA", "shared loads per FMA", "blocks",
        "busy SMs", "ms", "GFLOP/s", "GFLOP/s per busy SM",
    ]  # fmt: skip
    formats = {"occupancy, %": ".0f", "instructions per FMA": ".2f", "shared loads per FMA": ".3f", "ms": ".4f"}
    formats |= {"GFLOP/s": ",.0f", "GFLOP/s per busy SM": ".0f"}
    timed = both.ours.origin([step.kernel for step in suite.SUITE.sweep], [N], metrics.TIME) or "no times here"
    source = f"registers and spills compiled here for {arch}; PTX instructions and loads traced at {traced_at}; "
    note = f"N = {N} for blocks, SMs and times; the {both.ours.card} has {both.sms} SMs. Blocks and SMs: on paper."
    return Shown(pd.DataFrame(rows, columns=columns), f"{source}times {timed}", formats, note)


def outputs(step: Step) -> str:
    """ "2 × 4" for the step that computes two rows of four outputs in each thread."""
    return f"{step.covers[1] // step.block[1]} × {step.covers[0] // step.block[0]}"


def blocks_of(step: Step, n: int) -> int:
    """Blocks of a square launch."""
    across, down = step.grid(square(n))
    return across * down
