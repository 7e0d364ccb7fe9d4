"""Page-tables room: the tables that the pages show, built from the measurements table."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pandas as pd

from gpudays import metrics, occupancy
from gpudays.compiler import Program
from gpudays.course import evidence as ev
from gpudays.course import predictions
from gpudays.course.evidence import Evidence
from gpudays.course.models import flops
from gpudays.course.steps import Day, Size, Step, label
from gpudays.tables import Shown

SIX_ROWS = (
    ("SM throughput", "%", metrics.SM_THROUGHPUT),
    ("memory throughput", "%", metrics.MEMORY_THROUGHPUT),
    ("achieved occupancy", "%", metrics.WARPS_ACTIVE),
    ("sectors per load request", "", metrics.SECTORS_PER_REQUEST),
    ("L2 hit rate", "%", metrics.L2_HIT_RATE),
    ("DRAM read and written", "MB", metrics.DRAM_BYTES),
)
TIMES = (metrics.TIME, metrics.TIME_MIN, metrics.TIME_MAX)
COUNTS = (ev.REQUESTS, ev.SECTORS)
NOTHING = "nothing: {what} of a card are not here. On a GPU host, `gpudays profile {day}` makes them"


def resources(program: Program, day: Day, archs: Sequence[str]) -> Shown:
    """Registers, shared memory, spills and theoretical occupancy of a day's kernels on some architectures."""
    rows = []
    for arch in archs:
        needs = program.resources(arch)
        for step in day.steps:
            used = needs[program.kernel(step.kernel).name]
            threads = step.block[0] * step.block[1]
            held = occupancy.occupancy(arch, threads, used.registers, used.shared_bytes + step.shared_bytes)
            spilled = used.spill_stores + used.spill_loads
            limit = ", ".join(held.limited_by)
            rows.append((step.kernel, arch, used.registers, used.shared_bytes, spilled, held.percent, limit))
    columns = ["kernel", "arch", "registers", "shared, B", "spilled, B", "occupancy, %", "limited by"]
    return Shown(pd.DataFrame(rows, columns=columns), "compiled here, ptxas's own report", {"occupancy, %": ".0f"})


def times(evidence: Evidence, day: Day, sizes: Sequence[Size], how: str) -> Shown:
    """Average, fastest and slowest time, and GFLOP/s.

    Args:
        evidence: one card's.
        day, sizes: which kernels, at which sizes.
        how: how it was timed, for the line below the table.
    """
    rows = []
    for size in sizes:
        for step in day.steps:
            found = [evidence.get(step.kernel, label(size), metric) for metric in TIMES]
            if found[0] is None:
                continue
            average, low, high = (figure.value if figure else float("nan") for figure in found)
            rows.append((label(size), step.number, step.kernel, average, low, high, flops(*size) / average / 1e6))
    columns = ["N", "step", "kernel", "ms", "fastest", "slowest", "GFLOP/s"]
    frame = pd.DataFrame(rows, columns=columns)
    source = evidence.origin([step.kernel for step in day.steps], [label(size) for size in sizes], metrics.TIME)
    source = source or NOTHING.format(what="times", day=day.name)
    ms = {"ms": ".4f", "fastest": ".4f", "slowest": ".4f", "GFLOP/s": ",.0f", "N": "d"}
    lacking = [str(label(size)) for size in sizes if label(size) not in set(frame["N"])]
    missing = f" No times at {', '.join(lacking)}." if lacking else ""
    return Shown(frame, source, ms, f"{how}{missing}" if rows else "")


def speedups(evidence: Evidence, steps: Sequence[Step], sizes: Sequence[int | str], day: str) -> Shown:
    """How many times faster each step is than the one before, and the last than the first."""
    kernels = tuple(step.kernel for step in steps)
    rows = []
    for n in sizes:
        if gains := evidence.gains(kernels, n):
            ends = evidence.gains((kernels[0], kernels[-1]), n)
            rows.append((n, *gains, *(ends if len(kernels) > 2 else ())))
    moves = [f"{a.number} → {b.number}" for a, b in itertools.pairwise(steps)]
    moves += [f"{steps[0].number} → {steps[-1].number}"] if len(steps) > 2 else []
    columns = ["N", *(f"step {move}" for move in moves)]
    formats = {"N": "d"} | {name: ".2f" for name in columns[1:]}
    source = evidence.origin(kernels, sizes, metrics.TIME) or NOTHING.format(what="times", day=day)
    note = "Times faster, by the times above." if rows else ""
    return Shown(pd.DataFrame(rows, columns=columns), source, formats, note)


def traced(counts: pd.DataFrame, day: Day, sizes: Sequence[Size]) -> Shown:
    """Floats loaded per thread, requests, sectors and their quotient, as the tracer counted them."""
    evidence = Evidence(counts, "", ("traced",))
    rows = []
    for size in sizes:
        for step in day.steps:
            found = [evidence.get(step.kernel, label(size), metric) for metric in (ev.LOADS, ev.REQUESTS, ev.SECTORS)]
            loads, requests, sectors = (figure.value for figure in found if figure)
            rows.append((label(size), step.number, step.kernel, loads, int(requests), int(sectors), sectors / requests))
    columns = ["N", "step", "kernel", "loads/thread", "requests", "sectors", "sectors/request"]
    return Shown(pd.DataFrame(rows, columns=columns), "traced", {"N": "d", "sectors/request": ".2f"})


def agreement(counts: pd.DataFrame, card: str, day: Day, sizes: Sequence[Size]) -> Shown:
    """Requests and sectors as the tracer counts them beside a card's own counters, and the difference in percent.

    Args:
        counts: measurements with traced rows and, where a card counted, its live or shipped rows.
        card: which card.
        day, sizes: which kernels, at which sizes.
    """
    ours, theirs = Evidence(counts, "", ("traced",)), Evidence(counts, card, ("live", "shipped"))
    rows = []
    for size in sizes:
        for step in day.steps:
            pairs = [(ours.get(step.kernel, label(size), m), theirs.get(step.kernel, label(size), m)) for m in COUNTS]
            if any(None in pair for pair in pairs):
                continue
            cells = [(int(a.value), int(b.value), 100 * (b.value / a.value - 1)) for a, b in pairs if a and b]
            rows.append((label(size), step.kernel, *cells[0][:2], *cells[1]))
    columns = ["N", "kernel", "requests, traced", "requests, card", "sectors, traced", "sectors, card", "difference, %"]
    seen = theirs.origin([step.kernel for step in day.steps], [label(size) for size in sizes], ev.SECTORS)
    source = f"traced; {seen}" if rows else NOTHING.format(what="counters", day=day.name)
    return Shown(pd.DataFrame(rows, columns=columns), source, {"N": "d", "difference, %": "+.3f"})


def six_rows(here: Evidence, published: Evidence, steps: Sequence[Step], n: int | str, note: str = "") -> Shown:
    """The counters of one size, a column per step, beside the published card's.

    Each row names its own source, since the tracer gives some and a card the others.
    """
    rows, cards = [], set()
    for name, unit, metric in SIX_ROWS:
        ours = [here.get(step.kernel, n, metric) for step in steps]
        theirs = [published.get(step.kernel, n, metric) for step in steps]
        scale = 1e-6 if unit == "MB" else 1.0
        cells = [figure.value * scale if figure else float("nan") for figure in (*ours, *theirs)]
        source = "; ".join(dict.fromkeys(figure.source for figure in ours if figure)) or "not here"
        cards |= {(figure.source, figure.card) for figure in ours if figure}
        rows.append((f"{name}, {unit}" if unit else name, *cells[: len(steps)], source, *cells[len(steps) :]))
    mine = [f"step {step.number}" for step in steps]
    other = [f"{published.card}, step {step.number}" for step in steps]
    frame = pd.DataFrame(rows, columns=[f"N = {n}", *mine, "source", *other])
    formats = {name: ".2f" for name in (*mine, *other)}
    return Shown(frame, ev.describe(cards | {("published", published.card)}), formats, note)


def verdicts(found: Sequence[predictions.Verdict], evidence: Evidence) -> Shown:
    """Graded predictions; the figures carry their sources themselves."""
    return Shown(predictions.as_table(found), f"the figures' own, in brackets; graded for {evidence.card or 'no card'}")
