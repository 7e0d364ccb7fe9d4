"""Cross-check room: Day 16 and Day 43 measure one pair of kernels twice; do the two days agree, and if not, where?

Day 16's ``matmulNaive`` and Day 43's step 2 do the same, and so do the two ``matmulTiled``. The one day passes
``int m, n, k``, the other ``size_t n``, which changes no address. So what addresses decide has to be equal, to the last
unit; times of one card have to agree within :data:`TIME_TOLERANCE`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from gpudays import metrics
from gpudays.course.evidence import Evidence
from gpudays.ptx import model

N = 512
PAIRS = (("matmulNaive", "matmulCoalescedCols"), ("matmulTiled", "matmulTiled"))  # Day 16's kernel, Day 43's
COUNTED = (
    model.GLOBAL_LD_REQUESTS, model.GLOBAL_LD_SECTORS, model.GLOBAL_ST_REQUESTS, model.GLOBAL_ST_SECTORS,
    model.SHARED_LD_WAVEFRONTS, model.SHARED_ST_WAVEFRONTS, model.LOADS_PER_THREAD, model.STORES_PER_THREAD,
)  # fmt: skip
TIME_TOLERANCE = 0.15  # one indexes with 32 bits and the other with 64: 9 % apart on an H200, and runs differ a little
EQUAL, WITHIN, DISAGREE, MISSING = "equal", "within tolerance", "DISAGREE", "not measured twice here"


@dataclass(frozen=True)
class Comparison:
    """One figure, measured by both days.

    Attributes:
        kernels: Day 16's name and Day 43's.
        metric: its name.
        day16, day43: the two values, None where there is none.
        source: of both, in words; a pair of different sources or cards is not compared.
        verdict: EQUAL, WITHIN, DISAGREE or MISSING.
    """

    kernels: tuple[str, str]
    metric: str
    day16: float | None
    day43: float | None
    source: str
    verdict: str

    @property
    def apart(self) -> float:
        """How far apart the two are, relative to Day 43's; NaN where one is missing."""
        if self.day16 is None or self.day43 is None:
            return float("nan")
        return abs(self.day16 - self.day43) / abs(self.day43) if self.day43 else float(self.day16 != self.day43)


def compare(day16: pd.DataFrame, day43: pd.DataFrame, card: str, n: int = N) -> list[Comparison]:
    """Hold the two days' measurements of the pair against each other.

    Args:
        day16, day43: measurements tables.
        card: whose times are compared.
        n: the size.
    """
    traced = [Evidence(table, card, ("traced",)) for table in (day16, day43)]
    timed = [Evidence(table, card, ("live", "shipped")) for table in (day16, day43)]
    found = []
    for pair in PAIRS:
        found += [_compared(pair, metric, traced, n, 0.0) for metric in COUNTED]
        found.append(_compared(pair, metrics.TIME, timed, n, TIME_TOLERANCE))
    return found


def _compared(pair: tuple[str, str], metric: str, evidence: list[Evidence], n: int, tolerance: float) -> Comparison:
    one, other = (e.get(kernel, n, metric) for e, kernel in zip(evidence, pair, strict=True))
    if one is None or other is None or (one.source, one.card) != (other.source, other.card):
        return Comparison(pair, metric, one and one.value, other and other.value, "", MISSING)
    where = f"{one.source}, {one.card}" if one.card else one.source
    result = Comparison(pair, metric, one.value, other.value, where, DISAGREE)
    if one.value == other.value:
        return Comparison(pair, metric, one.value, other.value, where, EQUAL)
    return Comparison(pair, metric, one.value, other.value, where, WITHIN if result.apart <= tolerance else DISAGREE)


def as_table(found: list[Comparison]) -> pd.DataFrame:
    """The comparisons as a page shows them; those that both days leave out (no shared memory, say) are not shown."""
    rows = [
        (" = ".join(dict.fromkeys(c.kernels)), metrics.plain(c.metric), c.day16, c.day43, c.verdict, c.source or "–")
        for c in found
        if not (c.metric != metrics.TIME and not c.day16 and not c.day43)
    ]
    return pd.DataFrame(rows, columns=["kernels", "figure", "Day 16", "Day 43", "verdict", "source"])


def verdict(found: list[Comparison]) -> str:
    """One sentence: that the days agree, or plainly where they do not, or what could not be compared."""
    counts = [c for c in found if c.metric != metrics.TIME]
    times = [c for c in found if c.metric == metrics.TIME]
    wrong = [c for c in found if c.verdict == DISAGREE]
    if wrong:
        told = "; ".join(
            f"{metrics.plain(c.metric)} of {c.kernels[0]} is {c.day16:,.6g} on Day 16 and {c.day43:,.6g} on Day 43 "
            f"({100 * c.apart:.1f} % apart, {c.source})"
            for c in wrong
        )
        return f"The two days disagree: {told}."
    said = [] if any(c.verdict == MISSING for c in counts) else ["the traced counters are equal, to the last unit"]
    if times and all(c.verdict in (EQUAL, WITHIN) for c in times):
        far = max(c.apart for c in times)
        said.append(f"the times lie within {100 * far:.1f} % ({100 * TIME_TOLERANCE:.0f} % allowed)")
    missing = sorted({f"{metrics.plain(c.metric)} of {c.kernels[0]}" for c in found if c.verdict == MISSING})
    words = f"The two days agree: {', and '.join(said)}." if said else "Nothing was measured twice here."
    return words + (f" Not compared: {', '.join(missing)}." if missing else "")
