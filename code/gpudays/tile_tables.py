"""Page-tables room, tiles: counters beside source lines, what a tile saves, where the matrices stay, the tile sweep."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from gpudays import metrics, occupancy
from gpudays.compiler import Program, Resources
from gpudays.course import evidence as ev
from gpudays.course.evidence import Evidence
from gpudays.course.models import ceil_div, matrix_bytes
from gpudays.course.steps import Step
from gpudays.ptx import model
from gpudays.tables import Shown

MIB = 2**20
SHARED = (
    model.SHARED_ST_REQUESTS, model.SHARED_ST_WAVEFRONTS, model.SHARED_ST_CONFLICTS,
    model.SHARED_LD_REQUESTS, model.SHARED_LD_WAVEFRONTS, model.SHARED_LD_CONFLICTS,
)  # fmt: skip
# Instructions that go through an SM's one memory pipe, whether to L1 or to shared memory: it issues them one by one.
THROUGH_THE_PIPE = (ev.REQUESTS, model.SHARED_LD_REQUESTS, model.SHARED_ST_REQUESTS)
NOT_HERE = "not here"


def by_line(counters: pd.DataFrame, source: str, wanted: Sequence[str]) -> Shown:
    """The source's lines that count something, with their counts: Nsight Compute's source view, traced.

    Args:
        counters: ``gpudays.trace(…).counters``: line, metric, value.
        source: the CUDA C++ that was traced.
        wanted: metrics, in order; those that no line counts are left out.
    """
    text = source.splitlines()
    rows = counters[counters["metric"].isin(wanted) & counters["value"].ne(0)]
    table = rows.pivot_table(index="line", columns="metric", values="value", aggfunc="sum", fill_value=0)
    shown = pd.DataFrame({"line": table.index, "source": [text[line - 1].strip() for line in table.index]})
    for metric in (m for m in wanted if m in table.columns):
        shown[metrics.plain(metric)] = table[metric].to_numpy().astype(int)
    return Shown(shown, "traced", {"line": "d"})


def fell(evidence: Evidence, before: str, after: str, sizes: Sequence[int | str]) -> Shown:
    """How many times fewer of each thing the second kernel needs: a row for each, a column for each size, and sources.

    A ratio is there only where both kernels' figures come from one source and card.
    """
    rows = {
        "floats read per thread": (ev.LOADS,),
        "global load requests": (ev.REQUESTS,),
        "global load sectors": (ev.SECTORS,),
        "memory instructions, global and shared": THROUGH_THE_PIPE,
        "bytes read from DRAM": (metrics.DRAM_READ,),
        "time": (metrics.TIME,),
    }
    lines, sizes = [], list(dict.fromkeys(sizes))
    for name, names in rows.items():
        ratios = [_ratio(evidence, before, after, n, names) for n in sizes]
        lines.append((name, *ratios, _sources(evidence, (before, after), sizes, names)))
    frame = pd.DataFrame(lines, columns=["times fewer", *map(str, sizes), "source"]).set_index("times fewer")
    return Shown(frame, "each row names its own", {str(n): ".2f" for n in sizes}, index=True)


def _ratio(evidence: Evidence, before: str, after: str, n: int | str, names: Sequence[str]) -> float:
    """The sum of some metrics of one kernel over that of another; NaN where one is missing or of another source.

    A kernel without shared memory counts no shared requests, and on some cards reports none: missing there is 0.
    """
    sums, origins = [], set()
    for kernel in (before, after):
        found = [evidence.get(kernel, n, name) for name in names]
        if found[0] is None or (kernel == after and None in found):
            return float("nan")
        sums.append(sum(figure.value for figure in found if figure))
        origins |= {figure.source for figure in found if figure}
    return sums[0] / sums[1] if len(origins) == 1 and sums[1] else float("nan")


def _sources(evidence: Evidence, kernels: Sequence[str], sizes: Sequence[int | str], names: Sequence[str]) -> str:
    found = [evidence.get(kernel, n, name) for kernel in kernels for n in sizes for name in names]
    return ev.describe({(figure.source, figure.card) for figure in found if figure}) or NOT_HERE


def residency(evidence: Evidence, steps: Sequence[Step], sizes: Sequence[int]) -> Shown:
    """Where the matrices stay: their bytes beside the card's L2, the L2's hit rate, and what was read from DRAM."""
    rows = []
    for n in dict.fromkeys(sizes):
        mib = matrix_bytes(n) / MIB
        held = "not known" if not evidence.l2_bytes else "yes" if matrix_bytes(n) <= evidence.l2_bytes else "no"
        for step in steps:
            hit, read = (evidence.get(step.kernel, n, m) for m in (metrics.L2_HIT_RATE, metrics.DRAM_READ))
            again = read.value / (matrix_bytes(n) * 2 / 3) if read else float("nan")
            cells = hit.value if hit else float("nan"), read.value / MIB if read else float("nan"), again
            rows.append((n, mib, held, step.kernel, *cells))
    columns = ["N", "A, B, C in MiB", "fit in L2", "kernel", "L2 hit rate, %", "MiB read from DRAM", "times A and B"]
    source = evidence.sources(metrics.L2_HIT_RATE) or "nothing: hit rates of a card are not here"
    l2 = f"L2 of the {evidence.card}: {evidence.l2_bytes / MIB:.0f} MiB." if evidence.l2_bytes else ""
    formats = {"N": "d", "A, B, C in MiB": "g", "L2 hit rate, %": ".1f", "MiB read from DRAM": ",.2f"}
    return Shown(pd.DataFrame(rows, columns=columns), source, formats | {"times A and B": ".2f"}, l2)


def sweep(program: Program, evidence: Evidence, steps: Sequence[Step], n: int, archs: Sequence[str]) -> Shown:
    """Every quantity that the side of the tile changes, or does not: a row each, a column for each tile.

    Args:
        program: the compiled source.
        evidence: this page's card.
        steps: one kernel for each tile.
        n: the size.
        archs: architectures whose registers and theoretical occupancy are shown.
    """
    counted = [
        ("floats read per thread", ev.LOADS, ",.0f"),
        ("global load requests", ev.REQUESTS, ",.0f"),
        ("global load sectors", ev.SECTORS, ",.0f"),
        ("sectors per request", metrics.SECTORS_PER_REQUEST, ".2f"),
        ("shared load wavefronts", model.SHARED_LD_WAVEFRONTS, ",.0f"),
        ("shared bank conflicts, loads", model.SHARED_LD_CONFLICTS, ",.0f"),
    ]
    measured = [
        ("achieved occupancy, %", metrics.WARPS_ACTIVE, ".1f"),
        ("L2 hit rate, %", metrics.L2_HIT_RATE, ".1f"),
        ("time, ms", metrics.TIME, ".4f"),
    ]
    rows = [_figures(evidence, steps, n, *row) for row in counted]
    rows.append(("barriers a thread waits at", *(f"{2 * ceil_div(n, s.block[0])}" for s in steps), "on paper"))
    rows += [row for arch in archs for row in _needs(program, steps, arch)]
    rows += [_figures(evidence, steps, n, *row) for row in measured]
    columns = [f"N = {n}", *(f"TILE = {step.block[0]}" for step in steps), "source"]
    return Shown(pd.DataFrame(rows, columns=columns), "each row names its own")


def _figures(evidence: Evidence, steps: Sequence[Step], n: int, name: str, metric: str, spec: str) -> tuple[str, ...]:
    """One row of measured figures, formatted."""
    found = [evidence.get(step.kernel, n, metric) for step in steps]
    cells = [format(figure.value, spec) if figure else "–" for figure in found]
    return (name, *cells, _sources(evidence, [step.kernel for step in steps], [n], (metric,)))


def _needs(program: Program, steps: Sequence[Step], arch: str) -> list[tuple[str, ...]]:
    """Registers and theoretical occupancy on one architecture, with what limits it."""
    cards = occupancy.sm(arch).cards
    needs = [needs_of(program, step, arch) for step in steps]
    held = [held_of(step, used, arch) for step, used in zip(steps, needs, strict=True)]
    return [
        (f"registers per thread, {arch}", *(str(used.registers) for used in needs), f"compiled here for {arch}"),
        (
            f"occupancy, {arch} ({cards})",
            *(f"{h.percent:.0f} %: {h.blocks} × {h.warps // h.blocks} warps" for h in held),
            "computed: limits of the SM",
        ),
    ]


def needs_of(program: Program, step: Step, arch: str) -> Resources:
    """What one kernel takes of an architecture."""
    return program.resources(arch)[program.kernel(step.kernel).name]


def held_of(step: Step, used: Resources, arch: str) -> occupancy.Occupancy:
    """How full one SM of an architecture can be with one kernel."""
    threads = step.block[0] * step.block[1]
    return occupancy.occupancy(arch, threads, used.registers, used.shared_bytes + step.shared_bytes)


def sweep_panels(
    program: Program, evidence: Evidence, steps: Sequence[Step], n: int, archs: Sequence[str]
) -> dict[str, tuple[pd.DataFrame, str, str]]:
    """The four plots of the sweep: sectors, shared wavefronts, theoretical occupancy, time; with unit and source."""
    tiles = [step.block[0] for step in steps]

    def line(metric: str, name: str, scale: float = 1.0) -> pd.DataFrame:
        found = [evidence.get(step.kernel, n, metric) for step in steps]
        return pd.DataFrame({name: [f.value * scale if f else np.nan for f in found]}, index=tiles)

    held = {arch: [held_of(s, needs_of(program, s, arch), arch).percent for s in steps] for arch in archs}
    names = {arch: f"{arch} ({occupancy.sm(arch).cards.split(',')[0]})" for arch in archs}
    kernels = [step.kernel for step in steps]
    return {
        "Global load sectors": (
            line(ev.SECTORS, "sectors", 1e-6), "millions", _sources(evidence, kernels, [n], (ev.SECTORS,))
        ),
        "Shared load wavefronts": (
            line(model.SHARED_LD_WAVEFRONTS, "wavefronts", 1e-6), "millions",
            _sources(evidence, kernels, [n], (model.SHARED_LD_WAVEFRONTS,)),
        ),
        "Theoretical occupancy": (
            pd.DataFrame(held, index=tiles).rename(columns=names), "% of the SM's warps", "computed"
        ),
        "Time": (line(metrics.TIME, "time"), "ms", _sources(evidence, kernels, [n], (metrics.TIME,))),
    }  # fmt: skip
