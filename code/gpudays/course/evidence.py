"""Evidence room: what is known of one card's launches, looked up in the measurements table with its source.

Figures of different cards never meet here: a card's evidence is its own rows and the tracer's, which belong to no card.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pandas as pd

from gpudays.metrics import TIME, TIME_MAX, TIME_MIN
from gpudays.ptx import model

ORDER = ("live", "traced", "shipped")

UNKNOWN_SPREAD = 0.02  # of a published mean that comes without its launches' spread

# What the course looks up, under short names; the registry holds their units and meanings.
REQUESTS = model.requests("global", "ld")
SECTORS = model.sectors("global", "ld")
LOADS = model.LOADS_PER_THREAD


@dataclass(frozen=True)
class Figure:
    """A value with where it comes from: source (live, traced, shipped, published) and card ("" when traced)."""

    value: float
    source: str
    card: str = ""

    def __str__(self) -> str:
        return f"{self.value:g} ({self.source}{', ' + self.card if self.card else ''})"


class Evidence:
    """The figures of one card, each from the best source there is.

    Args:
        table: measurements, columns kernel, n, metric, value, unit, source, card.
        card: whose figures count, as the table writes it.
        order: sources, best first. ``("published",)`` grades someone else's card.
        l2_bytes: the card's L2, 0 when not known.
    """

    def __init__(self, table: pd.DataFrame, card: str, order: tuple[str, ...] = ORDER, l2_bytes: int = 0) -> None:
        mine = table[table["source"].isin(order) & ((table["card"] == card) | (table["source"] == "traced"))]
        rank = {source: place for place, source in enumerate(order)}
        best_last = mine.assign(rank=mine["source"].map(rank)).sort_values("rank", ascending=False, kind="stable")
        rows = best_last[["kernel", "n", "metric", "value", "source", "card"]].itertuples(index=False)
        self._figures = {(r.kernel, r.n, r.metric): Figure(float(r.value), r.source, r.card) for r in rows}
        self.card, self.l2_bytes = card, l2_bytes

    def get(self, kernel: str, n: int | str, metric: str) -> Figure | None:
        """The figure, or None where this card's evidence has none."""
        return self._figures.get((kernel, n, metric))

    def values(self, kernels: tuple[str, ...], n: int | str, metric: str) -> tuple[float, ...] | None:
        """One value a kernel, or None if any is missing."""
        found = [self.get(kernel, n, metric) for kernel in kernels]
        return None if None in found else tuple(f.value for f in found if f)

    def gains(self, kernels: tuple[str, ...], n: int | str, metric: str = TIME) -> tuple[float, ...] | None:
        """How many times smaller a metric gets from each kernel to the next: speed-ups, for times."""
        found = self.values(kernels, n, metric)
        return tuple(a / b for a, b in pairwise(found)) if found and all(found) else None

    def gain_ranges(
        self, kernels: tuple[str, ...], n: int | str, spread: float = UNKNOWN_SPREAD
    ) -> tuple[tuple[float, float], ...] | None:
        """The least and the most that each speed-up can be, by the fastest and slowest launches of both kernels.

        Where the launches' own spread is not known, each gain's range is ``spread`` (relative) to both sides.
        """
        gains = self.gains(kernels, n)
        low, high = self.values(kernels, n, TIME_MIN), self.values(kernels, n, TIME_MAX)
        if not gains or not low or not high:
            return tuple((gain / (1 + spread), gain * (1 + spread)) for gain in gains) if gains else None
        before = zip(low[:-1], high[:-1], low[1:], high[1:], strict=True)
        return tuple((low1 / high2, high1 / low2) for low1, high1, low2, high2 in before)

    def sizes(self, metric: str) -> list[int | str]:
        """The sizes at which any kernel has this metric, in ascending order."""
        return sorted({n for _, n, name in self._figures if name == metric}, key=lambda n: (isinstance(n, str), n))

    def origin(self, kernels: Sequence[str], sizes: Sequence[int | str], metric: str) -> str:
        """Where these kernels' figures of a metric come from, in words ("live, NVIDIA H200"); "" if there are none."""
        found = [self.get(kernel, n, metric) for kernel in kernels for n in sizes]
        return describe({(figure.source, figure.card) for figure in found if figure})


def describe(pairs: set[tuple[str, str]]) -> str:
    """(source, card) pairs in words, each once: "traced; shipped, NVIDIA H200"."""
    order = {source: place for place, source in enumerate((*ORDER, "published"))}
    ranked = sorted(pairs, key=lambda pair: (order.get(pair[0], len(order)), pair[1]))
    return "; ".join(f"{source}, {card}" if card else source for source, card in ranked)
