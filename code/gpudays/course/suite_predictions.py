"""Suite's predictions, graded: one for each kernel of the optimisation suite, against one card's times and counters.

They are what one would expect from the kernels' texts and the published T4 before an H200 was measured; the thresholds
that turn words into numbers stand here. A gain is a quotient of times of one run on one card.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from gpudays import metrics
from gpudays.course import evidence as ev
from gpudays.course import suite
from gpudays.course.evidence import Evidence
from gpudays.course.models import flops
from gpudays.course.predictions import Verdict, cannot, decide, listed

NAIVE, TILED, GUARDED, FAST, COARSENED = (step.kernel for step in suite.SUITE.steps)
N = 1024  # where both cards have every figure
SIZES = tuple(size[0] for size in suite.BENCH_SIZES)


@dataclass(frozen=True)
class Predictions:
    """The suite's predictions; change one and the grade changes.

    Attributes:
        cpu_rate_falls: (0) the CPU loop's rate falls from each size to the next.
        naive_gain: (1) at least so many times faster than the CPU loop at every size.
        tiling_gain: (2) at most so many times faster than the naive kernel, though it asks for 8 times fewer sectors.
        guarded_is_slower: (3) than the tiled kernel.
        fast_gain: (3f) at least so many times faster than the guarded kernel: what the promise amounts to.
        coarsening_gain: (4) so many times faster than the tiled kernel, within a quarter.
        of_cublas: (5) kernel 4 reaches at least this fraction of cuBLAS.
    """

    cpu_rate_falls: bool = True
    naive_gain: float = 10.0
    tiling_gain: float = 2.0
    guarded_is_slower: bool = True
    fast_gain: float = 1.1
    coarsening_gain: float = 2.0
    of_cublas: float = 0.5

    def grade(self, evidence: Evidence) -> list[Verdict]:
        """Seven verdicts, in the kernels' order."""
        return [
            _cpu(self, evidence),
            _naive(self, evidence),
            _gain("2", f"tiling gains at most {self.tiling_gain:g}× at {N}", evidence, (NAIVE, TILED),
                  lambda gain: gain <= self.tiling_gain),
            _gain("3", f"float4 behind checks is {'slower' if self.guarded_is_slower else 'faster'} than tiles at {N}",
                  evidence, (TILED, GUARDED), lambda gain: (gain < 1) is self.guarded_is_slower),
            _gain("3f", f"without checks it is at least {self.fast_gain:g}× as fast at {N}", evidence, (GUARDED, FAST),
                  lambda gain: gain >= self.fast_gain),
            _gain("4", f"2 × 2 outputs per thread gain {self.coarsening_gain:g}× over tiles at {N} (within a quarter)",
                  evidence, (TILED, COARSENED), lambda gain: abs(gain / self.coarsening_gain - 1) <= 0.25),
            _gain("5", f"kernel 4 reaches {self.of_cublas:g} of cuBLAS at {N}", evidence, (suite.CUBLAS, COARSENED),
                  lambda gain: gain >= self.of_cublas),
        ]  # fmt: skip


def _gain(
    number: str, claim: str, evidence: Evidence, kernels: tuple[str, str], holds: Callable[[float], bool]
) -> Verdict:
    """A statement about how many times faster the second kernel is than the first."""
    gains = evidence.gains(kernels, N)
    if not gains:
        return cannot(number, claim, f"no times of both kernels on {evidence.card or 'any card'} here")
    before, after = evidence.values(kernels, N, metrics.TIME)
    figures = f"{gains[0]:.3g}×: {before:.4f} ms to {after:.4f} ms ({evidence.origin(kernels, (N,), metrics.TIME)})"
    sectors = evidence.gains(kernels, N, ev.SECTORS)
    fewer = f"{sectors[0]:.1f}" if sectors else ""
    reason = "as many sectors" if fewer == "1.0" else f"{fewer} times fewer sectors" if fewer else ""
    return decide(number, claim, holds(gains[0]), figures, reason)


def _cpu(predicted: Predictions, evidence: Evidence) -> Verdict:
    claim = f"the CPU loop's rate {'falls' if predicted.cpu_rate_falls else 'stays'} as N grows"
    rates = [cpu_rate(evidence, n) for n in SIZES]
    if None in rates:
        return cannot("0", claim, f"no times of the CPU loop beside {evidence.card or 'any card'} here")
    rises = any(later[0] > earlier[2] for earlier, later in pairwise(rates))
    falls = rates[-1][2] < rates[0][0] and not rises
    source = evidence.origin((suite.CPU,), SIZES, metrics.TIME)
    told = [f"{mid:.1f}" if low == high else f"{mid:.1f} ({low:.1f} to {high:.1f})" for low, mid, high in rates]
    figures = f"{' / '.join(told)} GFLOP/s at {listed(SIZES, 'd')} (host of the card; {source})"
    neighbours = pairwise(zip(SIZES, rates, strict=True))
    alike = [f"{a} and {b}" for (a, one), (b, other) in neighbours if one[0] <= other[2] and other[0] <= one[2]]
    reason = f"at {' or '.join(alike)} the runs' spreads overlap" if alike else ""
    return decide("0", claim, falls is predicted.cpu_rate_falls, figures, reason)


def cpu_rate(evidence: Evidence, n: int) -> tuple[float, float, float] | None:
    """GFLOP/s of the CPU loop: of its slowest run, the median, its fastest; thrice the median where only that is known.

    A host's CPU is shared, so that its runs spread far more than a card's.
    """
    times = [evidence.get(suite.CPU, n, metric) for metric in (metrics.TIME_MAX, metrics.TIME, metrics.TIME_MIN)]
    if times[1] is None:
        return None
    slowest, median, fastest = (flops(n) / (time or times[1]).value / 1e6 for time in times)
    return slowest, median, fastest


def _naive(predicted: Predictions, evidence: Evidence) -> Verdict:
    claim = f"the naive kernel is at least {predicted.naive_gain:g} times as fast as one CPU thread"
    gains = [gain[0] for n in SIZES if (gain := evidence.gains((suite.CPU, NAIVE), n))]
    if not gains:
        return cannot("1", claim, f"no times of both on {evidence.card or 'any card'} here")
    source = evidence.origin((suite.CPU, NAIVE), SIZES, metrics.TIME)
    figures = f"{listed(gains, '.0f')}× at {listed(SIZES, 'd')} ({source})"
    return decide("1", claim, min(gains) >= predicted.naive_gain, figures, "")
