"""Day 44's predictions, graded: seven statements about the ladder from step 3 to cuBLAS, against a card's evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpudays import metrics
from gpudays.course import evidence as ev
from gpudays.course.day44 import (
    CUBLAS,
    KERNELS,
    LADDER_SIZES,
    LARGE,
    REGISTERS,
    SWEEP,
    TILED,
    VECTORS,
    WARPS,
    multiply_adds,
    swept,
)  # fmt: skip
from gpudays.course.evidence import Evidence
from gpudays.course.predictions import Verdict, cannot, close, decide, listed
from gpudays.course.steps import square
from gpudays.ptx import model

NEAR_THE_CEILING = 0.8  # "stands at the ceiling": the FP32 pipe is at least so busy, measured against what it allows


@dataclass(frozen=True)
class Predictions:
    """The seven predictions of Day 44 as the page writes them down; change one and the grade changes.

    Attributes:
        sectors_per_request: (1) of steps 3, 4 and 5.
        wavefronts_per_fma: (2) of steps 3, 4 and 5.
        ceiling: (3) the share of the FP32 peak at which shared memory stops step 3, between 0 and 1.
        largest_gain: (4) which move gains most at 2048: 4 for the one from step 3 to step 4, and so on.
        occupancy_falls: (5) the kernels get faster from step 3 to step 6 although their occupancy falls.
        fraction: (6) of cuBLAS that step 6 reaches at least, at 2048 and at 4096.
        best_patch: (7) the rows and columns of outputs per thread at which the sweep is fastest.
    """

    sectors_per_request: tuple[float, float, float]
    wavefronts_per_fma: tuple[float, float, float]
    ceiling: float
    largest_gain: int = 4
    occupancy_falls: bool = True
    fraction: float = 0.92
    best_patch: tuple[int, int] = (8, 8)

    def grade(self, evidence: Evidence) -> list[Verdict]:
        """Verdicts 1 to 7, in order."""
        return [grade(self, evidence) for grade in _GRADES]


def _sectors(predicted: Predictions, evidence: Evidence) -> Verdict:
    claim = f"sectors per load request of steps 3, 4 and 5: {listed(predicted.sectors_per_request, 'g')}"
    kernels = (TILED, REGISTERS, VECTORS)
    for n in evidence.sizes(ev.SECTORS):
        if seen := evidence.per(kernels, n, ev.SECTORS, ev.REQUESTS):
            holds = close(seen, predicted.sectors_per_request)
            reason = "the lanes' addresses decide it" if holds else "off by more than 2 %"
            return decide("1", claim, holds, f"{listed(seen)} at {n} ({evidence.sources(ev.SECTORS)})", reason)
    return cannot("1", claim, "no requests and sectors of all three steps at one size")


def _wavefronts(predicted: Predictions, evidence: Evidence) -> Verdict:
    claim = f"shared wavefronts per multiply-add of steps 3, 4 and 5: {listed(predicted.wavefronts_per_fma, 'g')}"
    kernels, name = (TILED, REGISTERS, VECTORS), model.SHARED_LD_WAVEFRONTS
    for n in evidence.sizes(name):
        if isinstance(n, int) and (counted := evidence.values(kernels, n, name)):
            seen = [value / multiply_adds(square(n)) for value in counted]
            holds = close(seen, predicted.wavefronts_per_fma)
            reason = "banks and patch decide it" if holds else "off by more than 2 %: the compiler reads otherwise"
            return decide("2", claim, holds, f"{listed(seen, '.4g')} at {n} ({evidence.sources(name)})", reason)
    return cannot("2", claim, "no shared wavefronts of all three steps at one size")


def _ceiling(predicted: Predictions, evidence: Evidence) -> Verdict:
    claim = f"shared memory stops step 3 at {predicted.ceiling:.1%} of the FP32 peak, and it gets close to that"
    busy = _by_size(evidence, TILED, metrics.FMA_PIPE)
    if not busy:
        return cannot("3", claim, f"no counter of {evidence.card or 'any card'} says how busy its FP32 pipe was")
    n, percent = max(busy.items(), key=lambda item: item[1])
    share = percent / 100 / predicted.ceiling
    holds = NEAR_THE_CEILING <= share <= 1.05
    reason = f"that is {share:.2f} of the ceiling" + (
        "" if holds else ": the limit is another, or the ceiling is wrong"
    )
    return decide("3", claim, holds, f"{percent:.1f} % busy at {n} ({evidence.sources(metrics.FMA_PIPE)})", reason)


def _largest_gain(predicted: Predictions, evidence: Evidence) -> Verdict:
    move = predicted.largest_gain
    n, kernels = LARGE[0], KERNELS[2:]
    claim = f"after step 3, the move from step {move - 1} to step {move} gains most at {n}"
    gains = evidence.gains(kernels, n)
    if not gains:
        return cannot("4", claim, f"steps 3 to 6 were not timed at {n} on {evidence.card or 'any card'}")
    largest = gains.index(max(gains)) + 4
    figures = f"steps 3→4, 4→5, 5→6: {listed(gains)} times ({evidence.sources(metrics.TIME)})"
    reason = "the one that frees the arithmetic from shared memory" if largest == 4 else f"step {largest} gained most"
    return decide("4", claim, largest == move, figures, reason)


def _occupancy(predicted: Predictions, evidence: Evidence) -> Verdict:
    falls = "falls" if predicted.occupancy_falls else "does not fall"
    claim = f"from step 3 to step 6 the time falls, and occupancy {falls} too"
    occupancies = [_by_size(evidence, kernel, metrics.WARPS_ACTIVE) for kernel in (TILED, WARPS)]
    gains = evidence.gains((TILED, WARPS), LARGE[0])
    if not all(occupancies) or not gains:
        return cannot("5", claim, "needs the occupancy of steps 3 and 6 and their times, of one card")
    (n3, before), (n6, after) = (max(found.items()) for found in occupancies)
    fell, faster = after < before, gains[0] > 1
    figures = (
        f"{before:.1f} % of the warps in step 3 at {n3}, {after:.1f} % in step 6 at {n6}; {gains[0]:.1f} times faster "
        f"at {LARGE[0]} ({evidence.sources(metrics.WARPS_ACTIVE)})"
    )
    reason = "registers were spent on reuse instead of on warps" if fell else "the registers did not cost warps here"
    return decide("5", claim, faster and fell is predicted.occupancy_falls, figures, reason)


def _fraction(predicted: Predictions, evidence: Evidence) -> Verdict:
    claim = f"step 6 reaches {predicted.fraction:.2f} of cuBLAS or more at {' and '.join(map(str, LARGE))}"
    found = {n: ratio[0] for n in LADDER_SIZES if (ratio := evidence.gains((WARPS, CUBLAS), n))}
    if not all(n in found for n in LARGE):
        return cannot("6", claim, f"step 6 and cuBLAS were not timed at both sizes on {evidence.card or 'any card'}")
    holds = all(found[n] >= predicted.fraction for n in LARGE)
    figures = f"{listed([*found.values()])} at {' / '.join(map(str, found))} ({evidence.sources(metrics.TIME)})"
    reason = "fractions of one run on one card" if holds else "cuBLAS knows this card better"
    return decide("6", claim, holds, figures, reason)


def _best_patch(predicted: Predictions, evidence: Evidence) -> Verdict:
    tm, tn = predicted.best_patch
    claim = f"in the sweep {tm}×{tn} outputs per thread are fastest"
    times = sweep_times(evidence)
    if len(times) < 2:
        return cannot("7", claim, f"the sweep was not timed on {evidence.card or 'any card'}")
    best = min(times, key=times.get)
    others = sorted(times, key=times.get)[:3]
    figures = ", ".join(f"{a}×{b} {times[a, b]:.3f} ms" for a, b in others) + f" ({evidence.sources(metrics.TIME)})"
    reason = "more reuse per read, while the registers last" if best == (tm, tn) else f"{best[0]}×{best[1]} is fastest"
    return decide("7", claim, best == (tm, tn), figures, reason)


def sweep_times(evidence: Evidence) -> dict[tuple[int, int], float]:
    """Median times in ms of the sweep's patches, by (rows, columns), at the largest size at which there are any."""
    for n in reversed([n for n in evidence.sizes(metrics.TIME) if isinstance(n, int)]):
        found = {patch: evidence.get(swept(patch), n, metrics.TIME) for patch in SWEEP}
        if any(found.values()):
            return {patch: figure.value for patch, figure in found.items() if figure}
    return {}


def _by_size(evidence: Evidence, kernel: str, metric: str) -> dict[int, float]:
    """A kernel's figures of one metric, by size, smallest first; whole numbers only."""
    sizes = [n for n in evidence.sizes(metric) if isinstance(n, int)]
    return {n: figure.value for n in sizes if (figure := evidence.get(kernel, n, metric))}


_GRADES: tuple[Callable[[Predictions, Evidence], Verdict], ...] = (
    _sectors, _wavefronts, _ceiling, _largest_gain, _occupancy, _fraction, _best_patch,
)  # fmt: skip
