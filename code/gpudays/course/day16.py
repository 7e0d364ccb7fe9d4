"""Day 16's predictions, graded: six statements about a tile in shared memory, against one card's evidence.

The reader writes the numbers into :class:`Predictions` before measuring; :meth:`Predictions.grade` holds them against
an :class:`~gpudays.course.evidence.Evidence`. Thresholds that turn words into numbers stand here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gpudays import metrics
from gpudays.course import evidence as ev
from gpudays.course.evidence import Evidence
from gpudays.course.models import matrix_bytes, naive_loads_per_thread, size_past_l2, tiled_loads_per_thread
from gpudays.course.predictions import MORE, Verdict, cannot, close, decide, listed
from gpudays.course.steps import DAY16
from gpudays.ptx import model

KERNELS = tuple(step.kernel for step in DAY16.steps)
NAIVE, TILED = KERNELS
SIZES = tuple(size[0] for size in DAY16.sizes)
SMALL, LARGE = SIZES
SWEEP = replace(DAY16, steps=DAY16.sweep, sweep=())  # the day with its tile sizes as the ladder
TILES = {step.block[0]: step.kernel for step in SWEEP.steps}  # kernel by side of its tile

SPEEDUP_TOLERANCE = 0.25  # a predicted speed-up matches within a quarter: who writes 8 expects 6 to 10
NO_CONFLICT = 0.25  # of the wavefronts: an H200 counts up to 13 % more turns than addresses explain; 2-way adds 100 %


def paper_loads(k: int) -> tuple[int, int]:
    """Floats that a thread of the naive and of the tiled kernel reads from global memory."""
    return naive_loads_per_thread(k), tiled_loads_per_thread(k)


@dataclass(frozen=True)
class Predictions:
    """The predictions of Day 16 as the page writes them down; change one and the grade changes.

    Attributes:
        loads: (1) floats that a thread reads from global memory, naive and tiled, as a function of k.
        sectors_per_request: (2) of the naive and of the tiled kernel.
        bank_conflicts: (3) whether reading and writing the two tiles makes any.
        speedup: (4) naive → tiled at 256, within a quarter.
        gains_more_past_l2: (5) tiling gains more at a size that leaves the L2 than at 512.
        best_tile: (6) the fastest of TILE = 8, 16, 32 at 512.
    """

    loads: Callable[[int], tuple[int, int]] = paper_loads
    sectors_per_request: tuple[float, float] = (2.0, 4.0)
    bank_conflicts: bool = False
    speedup: float = 8.0
    gains_more_past_l2: bool = True
    best_tile: int = 32

    def grade(self, evidence: Evidence) -> list[Verdict]:
        """Six verdicts, in order."""
        return [
            _loads(self, evidence),
            _sectors(self, evidence),
            _conflicts(self, evidence),
            _speedup(self, evidence),
            _past_l2(self, evidence),
            _best_tile(self, evidence),
        ]


def _loads(predicted: Predictions, evidence: Evidence) -> Verdict:
    claim = f"floats read per thread at {SMALL}: {listed(predicted.loads(SMALL), ',')}"
    seen = {n: v for n in SIZES if (v := evidence.values(KERNELS, n, ev.LOADS))}
    if not seen:
        return cannot("1", claim, f"no loads per thread of {evidence.card or 'any card'} here")
    holds = all(close(values, predicted.loads(n), 0.0) for n, values in seen.items())
    figures = "; ".join(f"{listed(values, ',.0f')} at {n}" for n, values in seen.items())
    reason = "each float of a tile is read once by the block, and used by 16 threads" if holds else "not equal"
    return decide("1", claim, holds, f"{figures} ({evidence.origin(KERNELS, tuple(seen), ev.LOADS)})", reason)


def _sectors(predicted: Predictions, evidence: Evidence) -> Verdict:
    claim = f"sectors per request {listed(predicted.sectors_per_request, 'g')}"
    seen = {n: v for n in SIZES if (v := evidence.values(KERNELS, n, metrics.SECTORS_PER_REQUEST))}
    if not seen:
        return cannot("2", claim, f"no requests and sectors of {evidence.card or 'any card'} here")
    holds = all(close(values, predicted.sectors_per_request) for values in seen.values())
    figures = "; ".join(f"{listed(values)} at {n}" for n, values in seen.items())
    reason = "" if holds else "not these"
    if holds and (fewer := evidence.gains(KERNELS, min(seen), ev.SECTORS)):
        reason = f"twice the sectors in a request, a sixteenth of the requests: {fewer[0]:g} times fewer sectors"
    source = evidence.origin(KERNELS, tuple(seen), metrics.SECTORS_PER_REQUEST)
    return decide("2", claim, holds, f"{figures} ({source})", reason)


def _conflicts(predicted: Predictions, evidence: Evidence) -> Verdict:
    claim = f"bank conflicts in the tiles: {'some' if predicted.bank_conflicts else 'none'}"
    pairs = (
        (model.SHARED_LD_CONFLICTS, model.SHARED_LD_WAVEFRONTS),
        (model.SHARED_ST_CONFLICTS, model.SHARED_ST_WAVEFRONTS),
    )
    seen = [(evidence.get(TILED, LARGE, c), evidence.get(TILED, LARGE, w)) for c, w in pairs]
    if not all(conflicts and wavefronts for conflicts, wavefronts in seen):
        return cannot("3", claim, f"no shared-memory counts of {evidence.card or 'any card'} at {LARGE} here")
    any_here = any(c.value > NO_CONFLICT * w.value for c, w in seen)
    words = [
        f"{c.value:,.0f} in {w.value:,.0f} {op} wavefronts" for op, (c, w) in zip(("load", "store"), seen, strict=True)
    ]
    reason = "a warp reads a row of tileB side by side, and one float of tileA for each of its two rows"
    if any_here:
        reason = "several lanes want different words of one bank"
    source = evidence.origin((TILED,), (LARGE,), model.SHARED_LD_CONFLICTS)
    return decide("3", claim, any_here is predicted.bank_conflicts, f"{'; '.join(words)} ({source})", reason)


def _speedup(predicted: Predictions, evidence: Evidence) -> Verdict:
    claim = f"tiling gains {predicted.speedup:g}× at {SMALL} (within a quarter)"
    gains = evidence.gains(KERNELS, SMALL)
    if not gains:
        return cannot("4", claim, f"no times of {evidence.card or 'one card'} at {SMALL}")
    holds = close(gains, [predicted.speedup], SPEEDUP_TOLERANCE)
    naive, tiled = evidence.values(KERNELS, SMALL, metrics.TIME)
    figures = f"{gains[0]:.2f}×: {naive:.4f} ms to {tiled:.4f} ms ({evidence.origin(KERNELS, (SMALL,), metrics.TIME)})"
    return decide("4", claim, holds, figures, "" if holds else "why not is the question this page ends on")


def _past_l2(predicted: Predictions, evidence: Evidence) -> Verdict:
    n = size_past_l2(evidence.l2_bytes) if evidence.l2_bytes else 0
    more = "more" if predicted.gains_more_past_l2 else "no more"
    claim = f"tiling gains {more} past the L2{f', at {n},' if n else ''} than at {LARGE}"
    small, large = evidence.gains(KERNELS, LARGE), evidence.gains(KERNELS, n) if n else None
    if not small or not large:
        return cannot("5", claim, f"needs times of {evidence.card or 'one card'} at both sizes")
    holds = (large[0] > MORE * small[0]) is predicted.gains_more_past_l2
    figures = (
        f"{small[0]:.2f}× at {LARGE}, {large[0]:.2f}× at {n} ({evidence.origin(KERNELS, (LARGE, n), metrics.TIME)})"
    )
    hits = [evidence.get(NAIVE, size, metrics.L2_HIT_RATE) for size in (LARGE, n)]
    seen = f"; naive's L2 hit rate: {hits[0].value:.1f} % then {hits[1].value:.1f} %" if all(hits) else ""
    matrices, l2 = matrix_bytes(n) / 2**20, evidence.l2_bytes / 2**20
    return decide("5", claim, holds, figures, f"{matrices:.0f} MiB of matrices, {l2:.0f} MiB of L2{seen}")


def _best_tile(predicted: Predictions, evidence: Evidence) -> Verdict:
    claim = f"TILE = {predicted.best_tile} is the fastest at {LARGE}"
    times = evidence.values(tuple(TILES.values()), LARGE, metrics.TIME)
    if not times:
        return cannot("6", claim, f"no times of all tiles of {evidence.card or 'one card'} at {LARGE}")
    by_time = dict(zip(times, TILES, strict=True))
    fastest = by_time[min(times)]
    figures = ", ".join(f"{tile}: {ms:.4f} ms" for tile, ms in zip(TILES, times, strict=True))
    reason = f"TILE = {fastest} is the fastest here" if fastest != predicted.best_tile else ""
    source = evidence.origin(tuple(TILES.values()), (LARGE,), metrics.TIME)
    return decide("6", claim, fastest == predicted.best_tile, f"{figures} ({source})", reason)
