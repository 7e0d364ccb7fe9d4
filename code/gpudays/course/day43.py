"""Day 43's predictions, graded: five statements about three kernels, against one card's evidence.

The reader writes the numbers into :class:`Predictions` before measuring; :func:`grade` holds them against an
:class:`~gpudays.course.evidence.Evidence`. Thresholds that turn words into numbers ("hardly differs") stand here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpudays import metrics
from gpudays.course import evidence as ev
from gpudays.course.evidence import Evidence
from gpudays.course.models import MIB, matrix_bytes, size_past_l2
from gpudays.course.predictions import CANNOT, MORE, Verdict, cannot, close, decide, listed
from gpudays.course.steps import DAY43

KERNELS = tuple(step.kernel for step in DAY43.steps)
SIZES = tuple(size[0] for size in DAY43.sizes)
SMALL, LARGE = SIZES

OCCUPANCY_POINTS = 10.0  # "hardly differs": the highest and lowest achieved occupancy lie within ten points
TIME_FOLD = 3.0  # "several-fold": the slowest kernel takes at least three times as long as the fastest


def paper_requests(n: int) -> tuple[int, int, int]:
    """Global load requests of the three steps at a multiple of 16: 2n loads by n²/32 warps, and a sixteenth of that."""
    plain = 2 * n * n * n // 32
    return plain, plain, plain // 16


@dataclass(frozen=True)
class Predictions:
    """The five predictions of Day 43 as the page writes them down; change one and the grade changes.

    Attributes:
        sectors_per_request: (1) of steps 1, 2 and 3.
        requests: (2) of steps 1, 2 and 3 as a function of n.
        first_gain_larger: (3) step 1→2 gains more than step 2→3, and neither gain equals its sector ratio.
        tiling_gains_more_past_l2: (4) step 2→3 gains more at a size that leaves the L2 than at 512.
        occupancy_flat: (5) achieved occupancy within ten points across the steps while times differ threefold or more.
    """

    sectors_per_request: tuple[float, float, float] = (8.5, 2.0, 4.0)
    requests: Callable[[int], tuple[int, ...]] = paper_requests
    first_gain_larger: bool = True
    tiling_gains_more_past_l2: bool = True
    occupancy_flat: bool = True

    def grade(self, evidence: Evidence) -> list[Verdict]:
        """Verdicts 1, 2, 3, 4 (at 1024, and at the size past this card's L2 where that is another) and 5."""
        return [
            _sectors(self, evidence),
            _requests(self, evidence),
            _gains(self, evidence),
            *_past_l2(self, evidence),
            _occupancy(self, evidence),
        ]


def _sectors(predicted: Predictions, evidence: Evidence) -> Verdict:
    claim = f"sectors per request {listed(predicted.sectors_per_request, 'g')}"
    seen = {n: v for n in SIZES if (v := evidence.values(KERNELS, n, metrics.SECTORS_PER_REQUEST))}
    if not seen:
        return cannot("1", claim, f"no requests and sectors of {evidence.card or 'any card'} here")
    holds = all(close(values, predicted.sectors_per_request) for values in seen.values())
    figures = "; ".join(f"{listed(values)} at {n}" for n, values in seen.items())
    reason = "the lanes' addresses decide it, so every card agrees" if holds else "off by more than 2 %"
    source = evidence.origin(KERNELS, [*seen], metrics.SECTORS_PER_REQUEST)
    return decide("1", claim, holds, f"{figures} ({source})", reason)


def _requests(predicted: Predictions, evidence: Evidence) -> Verdict:
    claim = f"requests at {SMALL}: {listed(predicted.requests(SMALL), ',')}"
    seen = {n: v for n in SIZES if (v := evidence.values(KERNELS, n, ev.REQUESTS))}
    if not seen:
        return cannot("2", claim, f"no requests of {evidence.card or 'any card'} here")
    holds = all(close(values, predicted.requests(n), 0.0) for n, values in seen.items())
    figures = "; ".join(f"{listed(values, ',.0f')} at {n}" for n, values in seen.items())
    ratio = seen[min(seen)][1] / seen[min(seen)][2]
    reason = f"to the last request; step 3 issues {ratio:g} times fewer" if holds else "not equal"
    return decide("2", claim, holds, f"{figures} ({evidence.origin(KERNELS, [*seen], ev.REQUESTS)})", reason)


def _gains(predicted: Predictions, evidence: Evidence) -> Verdict:
    larger = "more" if predicted.first_gain_larger else "no more"
    claim = f"step 1→2 gains {larger} than step 2→3, neither gain equals its sector ratio"
    lines, broken, seen = [], [], []
    for n in SIZES:
        gains, ratios = evidence.gains(KERNELS, n), evidence.gains(KERNELS, n, ev.SECTORS)
        if not gains or not ratios:
            continue
        seen.append(n)
        if (gains[0] > gains[1]) is not predicted.first_gain_larger:
            broken.append(f"the order of the gains at {n}")
        for move, (low, high), ratio in zip(
            ("1→2", "2→3"), evidence.gain_ranges(KERNELS, n) or (), ratios, strict=True
        ):
            if low <= ratio <= high:
                broken.append(f"step {move} at {n}, whose gain ({low:.2f} to {high:.2f}) covers its ratio {ratio:.2f}")
        lines.append(
            f"at {n}: {gains[0]:.2f}× for {ratios[0]:.2f}× fewer sectors, then {gains[1]:.2f}× for {ratios[1]:.2f}×"
        )
    if not lines:
        return cannot("3", claim, f"needs times of {evidence.card or 'one card'} and its sectors")
    reason = "sectors are one cost among several: L1 and L2 serve many of them, and issue slots and latency stay"
    if broken:
        reason = f"not so: {'; '.join(broken)}"
    source = evidence.origin(KERNELS, seen, metrics.TIME)
    return decide("3", claim, not broken, f"{'; '.join(lines)} ({source})", reason)


def _past_l2(predicted: Predictions, evidence: Evidence) -> list[Verdict]:
    """At 1024, and at the first size that really leaves this card's L2 where that is not 1024."""
    past = size_past_l2(evidence.l2_bytes) if evidence.l2_bytes else LARGE
    return [_tiling_gain(predicted, evidence, n) for n in dict.fromkeys((LARGE, max(LARGE, past)))]


def _tiling_gain(predicted: Predictions, evidence: Evidence, n: int) -> Verdict:
    number, more = f"4 at {n}", "more" if predicted.tiling_gains_more_past_l2 else "no more"
    claim = f"tiling gains {more} at {n} than at {SMALL}, because {matrix_bytes(n) // MIB} MiB leave the L2"
    small, large = evidence.gains(KERNELS[1:], SMALL), evidence.gains(KERNELS[1:], n)
    if not small or not large:
        size = n if small else SMALL
        return cannot(number, claim, f"steps 2 and 3 were not timed at {size} on {evidence.card or 'any card'}")
    source = evidence.origin(KERNELS[1:], (SMALL, n), metrics.TIME)
    figures = f"step 2→3: {small[0]:.2f}× at {SMALL}, {large[0]:.2f}× at {n} ({source})"
    if 0 < evidence.l2_bytes < matrix_bytes(SMALL):
        leaves = f"the L2 of {evidence.card} holds {evidence.l2_bytes / MIB:g} MiB: even {SMALL} leaves it"
        return Verdict(number, claim, CANNOT, figures, leaves)
    if evidence.l2_bytes >= matrix_bytes(n):
        holds = f"the L2 of {evidence.card} holds {evidence.l2_bytes / MIB:.0f} MiB, so the matrices stay in it"
        return Verdict(number, claim, CANNOT, figures, holds)
    grew = large[0] > MORE * small[0]
    return decide(number, claim, grew is predicted.tiling_gains_more_past_l2, figures, _why_past_l2(evidence, n, grew))


def _why_past_l2(evidence: Evidence, n: int, grew: bool) -> str:
    hits = [evidence.get(KERNELS[1], size, metrics.L2_HIT_RATE) for size in (SMALL, n)]
    seen = f"; step 2's L2 hit rate: {hits[0].value:.2f} % then {hits[1].value:.2f} %" if all(hits) else ""
    if grew:
        return "what tiling no longer reads would have come from DRAM" + seen
    return "leaving the L2 did not make tiling worth more on this card" + seen


def _occupancy(predicted: Predictions, evidence: Evidence) -> Verdict:
    same = "hardly differs" if predicted.occupancy_flat else "differs"
    claim = f"achieved occupancy {same} (within {OCCUPANCY_POINTS:g} points), times differ {TIME_FOLD:g}-fold or more"
    lines, broken, seen = [], [], []
    for n in SIZES:
        occupancy, times = evidence.values(KERNELS, n, metrics.WARPS_ACTIVE), evidence.values(KERNELS, n, metrics.TIME)
        if not occupancy or not times:
            continue
        seen.append(n)
        spread, fold = max(occupancy) - min(occupancy), max(times) / min(times)
        if (spread <= OCCUPANCY_POINTS) is not predicted.occupancy_flat:
            broken.append(f"at {n} it spreads over {spread:.0f} points")
        if fold < TIME_FOLD:
            broken.append(f"at {n} the times differ only {fold:.1f}-fold")
        lines.append(f"at {n}: {listed(occupancy, '.1f')} %, times differ {fold:.1f}-fold")
    if not lines:
        return cannot("5", claim, f"needs occupancy and times of one card; {evidence.card or 'none'} lacks one of them")
    reason = "warps that wait count as active: occupancy says how many are there, not what they get done"
    if broken:
        reason = f"not so: {'; '.join(broken)}"
    source = evidence.origin(KERNELS, seen, metrics.WARPS_ACTIVE)
    return decide("5", claim, not broken, f"{'; '.join(lines)} ({source})", reason)
