"""Day 44's predictions, graded: seven statements about the ladder from step 3 to cuBLAS, against a card's evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpudays import metrics
from gpudays.course.day44 import (
    KERNELS,
    LADDER_SIZES,
    LARGE,
    REGISTERS,
    SWEEP,
    TILED,
    VECTORS,
    WARPS,
    WARPS_SMALL,
    multiply_adds,
    swept,
)  # fmt: skip
from gpudays.course.evidence import Evidence
from gpudays.course.predictions import Verdict, cannot, close, decide, listed
from gpudays.course.steps import square
from gpudays.ptx import model


@dataclass(frozen=True)
class Predictions:
    """The seven predictions of Day 44 as the page writes them down; change one and the grade changes.

    Attributes:
        sectors_per_request: (1) of steps 3, 4 and 5.
        wavefronts_per_fma: (2) of steps 3, 4 and 5.
        limit_moves: (3) step 3 keeps the memory pipes busier than the FP32 pipe, step 6 the other way round.
        largest_gain: (4) which move gains most at 2048: 4 for the one from step 3 to step 4, and so on.
        occupancy_falls: (5) the kernels get faster from step 3 to step 6 although their occupancy falls.
        fraction: (6) of cuBLAS that step 6 reaches at least, at 2048 and at 4096.
        best_patch: (7) the outputs per thread at which the sweep is fastest, as "8×8": rows × columns.
    """

    sectors_per_request: tuple[float, float, float]
    wavefronts_per_fma: tuple[float, float, float]
    limit_moves: bool = True
    largest_gain: int = 4
    occupancy_falls: bool = True
    fraction: float = 0.92
    best_patch: str = "8×8"

    def grade(self, evidence: Evidence) -> list[Verdict]:
        """Verdicts 1 to 7, in order."""
        return [grade(self, evidence) for grade in _GRADES]


def _sectors(predicted: Predictions, evidence: Evidence) -> Verdict:
    claim = f"sectors per load request of steps 3, 4 and 5: {listed(predicted.sectors_per_request, 'g')}"
    kernels = (TILED, REGISTERS, VECTORS)
    name = metrics.SECTORS_PER_REQUEST
    for n in evidence.sizes(name):
        if seen := evidence.values(kernels, n, name):
            holds = close(seen, predicted.sectors_per_request)
            reason = "the lanes' addresses decide it" if holds else "off by more than 2 %"
            return decide("1", claim, holds, f"{listed(seen)} at {n} ({_of(evidence, kernels, n, name)})", reason)
    return cannot("1", claim, "no requests and sectors of all three steps at one size")


def _wavefronts(predicted: Predictions, evidence: Evidence) -> Verdict:
    claim = f"shared wavefronts per multiply-add of steps 3, 4 and 5: {listed(predicted.wavefronts_per_fma, 'g')}"
    kernels, name = (TILED, REGISTERS, VECTORS), model.SHARED_LD_WAVEFRONTS
    for n in evidence.sizes(name):
        if isinstance(n, int) and (counted := evidence.values(kernels, n, name)):
            seen = [value / multiply_adds(square(n)) for value in counted]
            holds = close(seen, predicted.wavefronts_per_fma)
            reason = "banks and patch decide it"
            if not holds:
                fewer = all(a <= b * 1.02 for a, b in zip(seen, predicted.wavefronts_per_fma, strict=True))
                reason = (
                    "the machine code reads neighbouring words at once" if fewer else "more than on paper: conflicts"
                )
            return decide(
                "2", claim, holds, f"{listed(seen, '.4f')} at {n} ({_of(evidence, kernels, n, name)})", reason
            )
    return cannot("2", claim, "no shared wavefronts of all three steps at one size")


def _limit(predicted: Predictions, evidence: Evidence) -> Verdict:
    moves = "moves" if predicted.limit_moves else "does not move"
    claim = f"the limit {moves}: step 3 keeps the memory pipes busier than the FP32 pipe, step 6 the other way round"
    ends = [_by_size(evidence, kernel, metrics.FMA_PIPE) for kernel in (TILED, WARPS)]
    other = [_by_size(evidence, kernel, metrics.MEMORY_THROUGHPUT) for kernel in (TILED, WARPS)]
    sizes = [max(set(fma) & set(memory), default=0) for fma, memory in zip(ends, other, strict=True)]
    if not all(sizes):
        return cannot("3", claim, f"no counters of steps 3 and 6 of {evidence.card or 'any card'}")
    (fma3, fma6), (memory3, memory6) = ([found[n] for found, n in zip(of, sizes, strict=True)] for of in (ends, other))
    figures = (
        f"step 3 at {sizes[0]}: memory {memory3:.1f} %, FP32 {fma3:.1f} %; "
        f"step 6 at {sizes[1]}: memory {memory6:.1f} %, FP32 {fma6:.1f} % "
        f"({_of(evidence, [WARPS], sizes[1], metrics.FMA_PIPE)})"
    )
    moved = memory3 > fma3 and fma6 > memory6
    reason = "what a thread keeps in registers is not asked for again" if moved else "one of the two is as it was"
    return decide("3", claim, moved is predicted.limit_moves, figures, reason)


def _largest_gain(predicted: Predictions, evidence: Evidence) -> Verdict:
    move = predicted.largest_gain
    n, kernels = LARGE[0], KERNELS[2:]
    claim = f"after step 3, the move from step {move - 1} to step {move} gains most at {n}"
    gains = evidence.gains(kernels, n)
    if not gains:
        return cannot("4", claim, f"steps 3 to 6 were not timed at {n} on {evidence.card or 'any card'}")
    largest = gains.index(max(gains)) + 4
    figures = f"steps 3→4, 4→5, 5→6: {listed(gains)} times ({_of(evidence, kernels, n, metrics.TIME)})"
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
        f"at {LARGE[0]} ({_of(evidence, [WARPS], n6, metrics.WARPS_ACTIVE)})"
    )
    reason = "registers were spent on reuse instead of on warps" if fell else "the registers did not cost warps here"
    return decide("5", claim, faster and fell is predicted.occupancy_falls, figures, reason)


def _fraction(predicted: Predictions, evidence: Evidence) -> Verdict:
    claim = f"step 6 reaches {predicted.fraction:.2f} of cuBLAS or more at {' and '.join(map(str, LARGE))}"
    found = {n: share for n in LADDER_SIZES if (share := fraction(evidence, WARPS, n))}
    if not all(n in found for n in LARGE):
        return cannot("6", claim, f"step 6 and cuBLAS were not timed at both sizes on {evidence.card or 'any card'}")
    holds = all(found[n] >= predicted.fraction for n in LARGE)
    figures = f"{listed([*found.values()])} at {' / '.join(map(str, found))}"
    figures += f" ({evidence.origin([WARPS], [*found], metrics.TIME)})"
    reason = "fractions of one run on one card" if holds else "cuBLAS knows this card better"
    return decide("6", claim, holds, figures, reason)


def fraction(evidence: Evidence, kernel: str, n: int) -> float | None:
    """A kernel's share of cuBLAS's speed in the same run; of step 6, with the better of its two rows of tiles."""
    kernels = (WARPS, WARPS_SMALL) if kernel == WARPS else (kernel,)
    found = [evidence.get(name, n, metrics.FRACTION_OF_CUBLAS) for name in kernels]
    return max((figure.value for figure in found if figure), default=None)


def _best_patch(predicted: Predictions, evidence: Evidence) -> Verdict:
    claim = f"in the sweep {predicted.best_patch} outputs per thread are fastest"
    n, times = sweep_times(evidence)
    if len(times) < 2:
        return cannot("7", claim, f"the sweep was not timed on {evidence.card or 'any card'}")
    ranked = sorted(times, key=times.get)
    figures = ", ".join(f"{patch} {times[patch]:.3f} ms" for patch in ranked[:3])
    figures += f" at {n} ({_of(evidence, [swept(ranked[0])], n, metrics.TIME)})"
    holds = ranked[0] == predicted.best_patch
    reason = "more reuse per read, while the registers last" if holds else f"{ranked[0]} is fastest"
    return decide("7", claim, holds, figures, reason)


def sweep_times(evidence: Evidence) -> tuple[int, dict[str, float]]:
    """The largest size at which the sweep was timed, and the median times in ms by patch; (0, {}) if it was not."""
    for n in reversed([n for n in evidence.sizes(metrics.TIME) if isinstance(n, int)]):
        found = {patch: evidence.get(swept(patch), n, metrics.TIME) for patch in SWEEP}
        if any(found.values()):
            return n, {patch: figure.value for patch, figure in found.items() if figure}
    return 0, {}


def _of(evidence: Evidence, kernels: Sequence[str], n: int, metric: str) -> str:
    """Where these figures come from."""
    return evidence.origin(kernels, [n], metric)


def _by_size(evidence: Evidence, kernel: str, metric: str) -> dict[int, float]:
    """A kernel's figures of one metric, by size, smallest first; whole numbers only."""
    sizes = [n for n in evidence.sizes(metric) if isinstance(n, int)]
    return {n: figure.value for n in sizes if (figure := evidence.get(kernel, n, metric))}


_GRADES: tuple[Callable[[Predictions, Evidence], Verdict], ...] = (
    _sectors, _wavefronts, _limit, _largest_gain, _occupancy, _fraction, _best_patch,
)  # fmt: skip
