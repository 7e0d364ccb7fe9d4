"""Page-tables room, the suite: times beside the published T4's, counters per multiply-add, a promise."""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from gpudays import (
    bench_suite,
    gpu,
    measurements,
    metrics,
    page_tables,
    profiles,
    suite_figures,
)
from gpudays.course import evidence as ev
from gpudays.course import suite
from gpudays.course.evidence import Evidence
from gpudays.course.geometry import SECTOR_BYTES
from gpudays.course.models import flops
from gpudays.course.steps import Size, label, square
from gpudays.course.suite_predictions import COARSENED, FAST, GUARDED, NAIVE, SIZES, TILED, N
from gpudays.ptx import model
from gpudays.runs import Runs
from gpudays.tables import Shown

NAN = float("nan")
MOVES = ((NAIVE, TILED), (TILED, GUARDED), (GUARDED, FAST), (TILED, COARSENED))
COUNTERS = {
    "load requests, millions": (ev.REQUESTS, 1e-6),
    "load sectors, millions": (ev.SECTORS, 1e-6),
    "MB read from DRAM": (metrics.DRAM_READ, 1e-6),
    "L1 hit rate, %": (metrics.L1_HIT_RATE, 1),
    "L2 hit rate, %": (metrics.L2_HIT_RATE, 1),
    "instructions per FMA": (metrics.INSTRUCTIONS, 32 / N**3),
    "shared loads per FMA": (model.SHARED_LD_REQUESTS, 32 / N**3),
    "shared wavefronts per FMA": (model.SHARED_LD_WAVEFRONTS, 32 / N**3),
    "memory throughput, % of peak": (metrics.MEMORY_THROUGHPUT, 1),
    "FP32 pipe busy, %": (metrics.FMA_PIPE, 1),
    "issue slots busy, %": (metrics.ISSUE_ACTIVE, 1),
    "warps waiting for the shared-memory queue": (metrics.STALLS["mio_throttle"], 1),
    "warps waiting for global memory": (metrics.STALLS["long_scoreboard"], 1),
    "warps waiting at a barrier": (metrics.STALLS["barrier"], 1),
}


@dataclass(frozen=True)
class Cards:
    """The suite's two cards.

    Attributes:
        ours: what the course ships of its own card.
        theirs: what was published for a T4, under the course's names of the kernels.
        sms: multiprocessors of the course's card.
        origin: the course's card, driver and date, or what is missing.
        shipped: the course's figures as a measurements table.
    """

    ours: Evidence
    theirs: Evidence
    sms: int
    origin: str
    shipped: pd.DataFrame

    def __iter__(self):
        return iter((self.ours, self.theirs))

    def origins(self, kernels: Sequence[str], sizes: Sequence[int], metric: str = metrics.TIME) -> str:
        """Where the figures of both cards come from."""
        found = [card.origin(kernels, sizes, metric) for card in self]
        return "; ".join(text for text in found if text) or "nothing: no such figures here"


def cards() -> Cards:
    """Both cards' figures.

    Raises:
        profiles.ProfileError: a file is damaged.
    """
    shipped, published = profiles.shipped(suite.SUITE.profiles), profiles.published(suite.SUITE.profiles)
    named = published.table.assign(kernel=published.table["kernel"].replace(suite.PUBLISHED))
    ours = Evidence(shipped.table, shipped.card, ("shipped",))
    theirs = Evidence(named, published.card, ("published",))
    return Cards(ours, theirs, int((shipped.machine or {}).get("sms", 0)), shipped.origin, shipped.table)


def value(evidence: Evidence, kernel: str, n: int, metric: str) -> float:
    """A figure, NaN where there is none."""
    found = evidence.get(kernel, n, metric)
    return found.value if found else NAN


def times(both: Cards, kernel: str, before: str) -> Shown:
    """One kernel on both cards at every size: median, fastest, slowest, rate, and how often faster than another.

    Args:
        both: the cards.
        kernel, before: the kernel, and the one that it is compared with.
    """
    rows = []
    for card in both:
        for n in SIZES:
            if card.get(kernel, n, metrics.TIME) is None:
                continue
            ms, low, high = (value(card, kernel, n, m) for m in (metrics.TIME, metrics.TIME_MIN, metrics.TIME_MAX))
            faster = value(card, before, n, metrics.TIME) / ms
            rows.append((card.card, n, ms, low, high, flops(n) / ms / 1e6, faster))
    columns = ["card", "N", "ms", "fastest", "slowest", "GFLOP/s", f"times {before}"]
    formats = {"N": "d", "ms": ".4f", "fastest": ".4f", "slowest": ".4f", "GFLOP/s": ",.0f", columns[-1]: ".2f"}
    note = "ms: median of a run (H200), mean (T4). Last column: how many times as fast, in the same run."
    return Shown(pd.DataFrame(rows, columns=columns), both.origins([kernel], SIZES), formats, note)


def overview(both: Cards) -> Shown:
    """Every kernel's time, and its fraction of cuBLAS, at every size on both cards."""
    rows = []
    for entry in (suite.ENTRIES[key] for key in suite.KEYS):
        row = [f"{entry.key} {entry.kernel}"]
        for card in both:
            row += [value(card, entry.kernel, n, metrics.TIME) for n in SIZES]
            row.append(value(card, suite.CUBLAS, N, metrics.TIME) / value(card, entry.kernel, N, metrics.TIME))
        rows.append(row)
    names = [
        f"{card.card.split()[-1]}, {what}"
        for card in both
        for what in (*(f"ms at {n}" for n in SIZES), f"of cuBLAS at {N}")
    ]
    formats = {name: ".3f" if "cuBLAS" in name else ",.5g" for name in names}
    return Shown(
        pd.DataFrame(rows, columns=["kernel", *names]),
        both.origins([entry.kernel for entry in suite.ENTRIES.values()], SIZES), formats,
    )  # fmt: skip


def gains(both: Cards) -> Shown:
    """How many times as fast a kernel is as the one it is built on: a row each, a column for each card and size."""
    rows = []
    for before, after in MOVES:
        row = [f"{after} / {before}"]
        for card in both:
            row += [value(card, before, n, metrics.TIME) / value(card, after, n, metrics.TIME) for n in SIZES]
        rows.append(row)
    names = [f"{card.card}, {n}" for card in both for n in SIZES]
    frame = pd.DataFrame(rows, columns=["times as fast", *names])
    return Shown(frame, both.origins([NAIVE, TILED], SIZES), dict.fromkeys(names, ".2f"), "Each within one run.")


def counters(both: Cards, kernels: Sequence[str], rows: Sequence[str]) -> Shown:
    """What the course's card counted at 1024: a row for each of `COUNTERS` that is asked for, a column per kernel.

    FMA means one multiply-add of a warp's 32 threads: N³ / 32 of them.
    """
    cells = {kernel: [value(both.ours, kernel, N, name) * scale for name, scale in map(COUNTERS.get, rows)]
             for kernel in kernels}  # fmt: skip
    frame = pd.DataFrame({f"N = {N}": list(rows), **cells})
    source = both.ours.origin(kernels, [N], metrics.INSTRUCTIONS) or "nothing: no counters here"
    return Shown(frame, source, dict.fromkeys(kernels, ",.3f"))


def traffic(both: Cards) -> Shown:
    """Bytes that global loads asked the L1 for, and bytes from DRAM, at 1024 on both cards."""
    rows = []
    for card in both:
        naive = value(card, NAIVE, N, ev.SECTORS)
        for kernel in (NAIVE, TILED, GUARDED, FAST):
            sectors, read = value(card, kernel, N, ev.SECTORS), value(card, kernel, N, metrics.DRAM_READ)
            if sectors == sectors or read == read:
                rows.append((card.card, kernel, sectors * SECTOR_BYTES / 1e6, naive / sectors, read / 1e6))
    columns = ["card", "kernel", "MB loaded", "times fewer", "MB read from DRAM"]
    formats = {"MB loaded": ",.0f", "times fewer": ".2f", "MB read from DRAM": ",.1f"}
    note = f"N = {N}. Loaded: sectors of 32 bytes that global loads asked for."
    return Shown(pd.DataFrame(rows, columns=columns), both.origins([NAIVE, TILED], [N], ev.SECTORS), formats, note)


# ---- words and this machine ------------------------------------------------------------------------------------------


def fast_path(both: Cards) -> str:
    """Whether the fast path keeps its promise: one paragraph, made of the shipped and the published figures."""
    card, theirs = both
    if card.gains((TILED, GUARDED, FAST), N) is None:
        return f"It cannot be said: no times of kernels 2, 3 and 3f at {N} here."
    tiled, guarded, fast = (value(card, kernel, N, metrics.TIME) for kernel in (TILED, GUARDED, FAST))
    if guarded < tiled:
        verdict = "there was nothing to win back"
    else:
        verdict = "it was kept" if fast <= tiled else "it was not kept"
    before, after = (value(card, kernel, N, metrics.INSTRUCTIONS) for kernel in (GUARDED, FAST))
    moved = [
        f"{100 * (value(card, FAST, n, metrics.TIME) / value(card, GUARDED, n, metrics.TIME) - 1):+.1f} % at {n} "
        f"({_surely(card, n)} the spread of the launches)"
        for n in SIZES
    ]
    there = [f"{_percent(*(value(theirs, k, n, metrics.TIME) for k in (GUARDED, TILED)))} at {n}" for n in SIZES]
    text = (
        f"On the {card.card} {verdict}: at {N} the guarded kernel took {guarded:.4f} ms, "
        f"{_percent(guarded, tiled)} than the {tiled:.4f} ms of kernel 2, and the fast path {fast:.4f} ms. "
        f"Taking the checks away took {100 * (1 - after / before):.1f} % of the instructions away "
        f"({before / 1e6:.1f} to {after / 1e6:.1f} millions at {N}), and changed the time by {', '.join(moved)}. "
        f"On the published {theirs.card} float4 behind checks took {', '.join(there)} than tiles; "
        f"no fast path was published for it. Source: {both.origins([TILED], [N])}."
    )
    return textwrap.fill(text, 110)


def _surely(card: Evidence, n: int) -> str:
    """ "within" or "beyond": whether some launches of the slower of kernels 3 and 3f beat some of the faster."""
    [(low, high)] = card.gain_ranges((GUARDED, FAST), n)
    return "within" if low <= 1 <= high else "beyond"


def _percent(ms: float, than: float) -> str:
    """ "9.5 % less time" or "0.6 % more time"."""
    share = 100 * (ms / than - 1)
    return f"{abs(share):.1f} % {'more' if share > 0 else 'less'} time"


def agreement(both: Cards, runs: Runs, n: int = 256) -> Shown:
    """Requests and sectors of kernels 1 to 4, traced now and as the course's card counted them."""
    traced = [
        measurements.table(step.kernel, n, dict(runs.traced(step.kernel, square(n)).total), "traced")
        for step in suite.SUITE.steps
    ]
    counted = measurements.concat([*traced, both.shipped])
    return page_tables.agreement(counted, both.ours.card, suite.SUITE, [square(n)])


def verified(runs: Runs, sizes: Sequence[Size]) -> Shown:
    """Kernels 1 to 4 held against float64 at the sizes that each takes, on the card or else in the tracer."""
    rows = []
    for entry in (suite.ENTRIES[key] for key in suite.KEYS[1:-1]):
        report = bench_suite.check(entry, sizes, runs=runs)
        left_out = ", ".join(str(label(size)) for size in sizes if entry.refuses(size))
        says = "right" if report.ok else str(report.problems[0])
        rows.append((entry.kernel, ", ".join(str(label(s)) for s in report.sizes), left_out, report.worst_error, says))
    card = gpu.device()
    frame = pd.DataFrame(rows, columns=["kernel", "sizes, M×N×K", "left out", "relative error", "verdict"])
    return Shown(frame, f"live, {card.name}" if card else "traced", {"relative error": ".1e"})


def here(n: int, keys: Sequence[str] = suite.KEYS) -> Shown:
    """The suite on this machine's card at one size, verified and then timed; without a card, why there is nothing."""
    card = gpu.device()
    if card is None:
        return Shown(pd.DataFrame(), f"nothing is timed here: {gpu.why_no_gpu()}")
    with tempfile.TemporaryDirectory(prefix="gpudays-") as folder:
        path = Path(folder) / "results.csv"
        left_out = bench_suite.bench(path, [suite.ENTRIES[key] for key in keys], [square(n)], 10, 100)
        own = Evidence(suite_figures.read(path), card.name, ("live",))
    kernels = [suite.ENTRIES[key].kernel for key in keys]
    rows = [(k, *(value(own, k, n, m) for m in (metrics.TIME, metrics.GFLOPS))) for k in kernels]
    frame = pd.DataFrame(rows, columns=["kernel", "ms", "GFLOP/s"])
    return Shown(frame, f"live, {card.name}", {"ms": ".4f", "GFLOP/s": ",.0f"}, " ".join(left_out))
