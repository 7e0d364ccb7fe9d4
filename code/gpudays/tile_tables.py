"""Page-tables room, tiles: counters beside source lines, what a tile saves, where the matrices stay, the tile sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from gpudays import metrics, occupancy
from gpudays.compiler import Program, Resources
from gpudays.course import evidence as ev
from gpudays.course.evidence import Evidence, Figure
from gpudays.course.models import ceil_div, matrix_bytes
from gpudays.course.steps import Step
from gpudays.ptx import model
from gpudays.tables import Shown

MIB = 2**20
SHARED = (
    model.SHARED_ST_REQUESTS, model.SHARED_ST_WAVEFRONTS, model.SHARED_ST_CONFLICTS,
    model.SHARED_LD_REQUESTS, model.SHARED_LD_WAVEFRONTS, model.SHARED_LD_CONFLICTS,
)  # fmt: skip
# Instructions that go through a multiprocessor's one pipe for memory, be it to the L1 or to shared memory.
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


def fell(counted: Evidence, on_card: Evidence, before: str, after: str, sizes: Sequence[int | str]) -> Shown:
    """How many times fewer of each thing the second kernel needs: a row for each, a column for each size, and sources.

    Args:
        counted: what addresses decide, traced or live, and the times of the page's card.
        on_card: what only a card can count, live or shipped.
        before, after: the two kernels.
        sizes: as the table has them.
    """
    rows = {
        "floats read per thread": (counted, _sum_of(ev.LOADS)),
        "global load requests": (counted, _sum_of(ev.REQUESTS)),
        "global load sectors": (counted, _sum_of(ev.SECTORS)),
        "sectors that the L1 did not have": (on_card, _past_l1),
        "bytes read from DRAM": (on_card, _sum_of(metrics.DRAM_READ)),
        "memory instructions, global and shared": (on_card, _sum_of(*THROUGH_THE_PIPE)),
        "time": (counted, _sum_of(metrics.TIME)),
    }
    lines, sizes = [], list(dict.fromkeys(sizes))
    for name, (evidence, figure) in rows.items():
        pairs = [(figure(evidence, before, n), figure(evidence, after, n)) for n in sizes]
        ratios = [one.value / other.value if one and other else float("nan") for one, other in pairs]
        found = {(f.source, f.card) for pair in pairs if all(pair) for f in pair}
        lines.append((name, *ratios, ev.describe(found) or NOT_HERE))
    frame = pd.DataFrame(lines, columns=["times fewer", *map(str, sizes), "source"])
    return Shown(frame, "each row names its own", {str(n): ".2f" for n in sizes})


Derived = Callable[[Evidence, str, int | str], Figure | None]


def _sum_of(*names: str) -> Derived:
    """The sum of some metrics of a kernel, None where the first is missing; a kernel without the others has none."""

    def summed(evidence: Evidence, kernel: str, n: int | str) -> Figure | None:
        found = [figure for name in names if (figure := evidence.get(kernel, n, name))]
        if evidence.get(kernel, n, names[0]) is None:
            return None
        return Figure(sum(figure.value for figure in found), found[0].source, found[0].card)

    return summed


def _past_l1(evidence: Evidence, kernel: str, n: int | str) -> Figure | None:
    """Global load sectors that the L1 did not have, and so asked the L2 for: sectors × (1 − L1 hit rate)."""
    sectors, hits = (evidence.get(kernel, n, name) for name in (ev.SECTORS, metrics.L1_HIT_RATE))
    if sectors is None or hits is None:
        return None
    return Figure(sectors.value * (1 - hits.value / 100), sectors.source, sectors.card)


def residency(on_card: Evidence, steps: Sequence[Step]) -> Shown:
    """Where the matrices stay: their bytes beside the card's L2, both caches' hit rates, and what came from DRAM.

    The sizes are those at which the card counted.
    """
    sizes, rows = on_card.sizes(metrics.L2_HIT_RATE), []
    for n in sizes:
        for step in steps:
            wanted = (metrics.L1_HIT_RATE, metrics.L2_HIT_RATE, metrics.DRAM_READ, metrics.GPU_TIME)
            found = [on_card.get(step.kernel, n, metric) for metric in wanted]
            l1, l2, read, ns = (figure.value if figure else float("nan") for figure in found)
            rows.append((n, step.kernel, l1, l2, read / MIB, read / (matrix_bytes(n) * 2 / 3), read / ns))
    columns = ["N", "kernel", "L1 hits, %", "L2 hits, %", "MiB from DRAM", "times A and B", "GB/s from DRAM"]
    source = on_card.origin([step.kernel for step in steps], sizes, metrics.L2_HIT_RATE)
    source = source or "nothing: hit rates of a card are not here"
    formats = {"N": "d", "L1 hits, %": ".1f", "L2 hits, %": ".1f", "MiB from DRAM": ",.2f"}
    formats |= {"times A and B": ".2f", "GB/s from DRAM": ",.0f"}
    return Shown(pd.DataFrame(rows, columns=columns), source, formats, _held(on_card, sizes))


def _held(on_card: Evidence, sizes: Sequence[int]) -> str:
    """Which of the sizes fit into the card's L2: "A, B and C: 0.75 MiB at 256 (fit), …"; "" where the L2 is unknown."""
    if not on_card.l2_bytes or not sizes:
        return ""
    fits = {n: "fit" if matrix_bytes(n) <= on_card.l2_bytes else "do not fit" for n in sizes}
    held = ", ".join(f"{matrix_bytes(n) / MIB:g} MiB at {n} ({words})" for n, words in fits.items())
    return f"A, B and C: {held}; L2 of the {on_card.card}: {on_card.l2_bytes / MIB:.0f} MiB."


WAITS = {
    "for global memory (long scoreboard)": "long_scoreboard",
    "for a place in the shared-memory queue (MIO throttle)": "mio_throttle",
    "for shared memory (short scoreboard)": "short_scoreboard",
    "at a barrier": "barrier",
}


def waits(on_card: Evidence, steps: Sequence[Step], n: int) -> Shown:
    """What warps wait for: how many, on average, whenever one of a scheduler's warps issues an instruction.

    The reasons are Nsight Compute's warp states: "Profiling Guide", "Metrics Reference", "Warp Stall Reasons".
    """
    rows = {f"warps that wait {words}": metrics.STALLS[reason] for words, reason in WAITS.items()}
    rows["memory throughput, % of peak"] = metrics.MEMORY_THROUGHPUT
    cells = {}
    for step in steps:
        found = [on_card.get(step.kernel, n, metric) for metric in rows.values()]
        cells[step.kernel] = [figure.value if figure else float("nan") for figure in found]
    source = on_card.origin(list(cells), [n], metrics.STALLS["barrier"]) or NOT_HERE
    frame = pd.DataFrame({f"N = {n}": list(rows), **cells})
    return Shown(frame, source, dict.fromkeys(cells, ".2f"))


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
    return (name, *cells, evidence.origin([step.kernel for step in steps], [n], metric) or NOT_HERE)


def _needs(program: Program, steps: Sequence[Step], arch: str) -> list[tuple[str, ...]]:
    """Registers and theoretical occupancy on one architecture, with what limits it."""
    cards = occupancy.sm(arch).cards
    needs = [needs_of(program, step, arch) for step in steps]
    held = [held_of(step, used, arch) for step, used in zip(steps, needs, strict=True)]
    return [
        (f"registers per thread, {arch}", *(str(used.registers) for used in needs), f"compiled here for {arch}"),
        (
            f"occupancy, {arch} ({cards})",
            *(f"{h.percent:.0f} %: {h.blocks} × {h.warps // h.blocks} warps" if h.blocks else "refused" for h in held),
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
    names = {arch: f"{arch} ({occupancy.sm(arch).cards})" for arch in archs}
    kernels = [step.kernel for step in steps]
    return {
        "Global load sectors": (
            line(ev.SECTORS, "sectors", 1e-6), "millions", evidence.origin(kernels, [n], ev.SECTORS) or NOT_HERE
        ),
        "Shared load wavefronts": (
            line(model.SHARED_LD_WAVEFRONTS, "wavefronts", 1e-6), "millions",
            evidence.origin(kernels, [n], model.SHARED_LD_WAVEFRONTS) or NOT_HERE,
        ),
        "Theoretical occupancy": (
            pd.DataFrame(held, index=tiles).rename(columns=names), "% of the SM's warps", "computed"
        ),
        "Time": (line(metrics.TIME, "time"), "ms", evidence.origin(kernels, [n], metrics.TIME) or NOT_HERE),
    }  # fmt: skip
