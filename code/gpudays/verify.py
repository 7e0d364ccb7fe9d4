"""Verification room: is a matrix product right — at odd sizes, against float64, with nothing that hides a mistake.

What it guards against, each seen in real teaching harnesses: outputs that were never written (C starts as NaN), NaN
that passes a comparison, kernels that add to what C held, kernels that write into A or B, constant inputs, square sizes
only, an absolute threshold.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

Size = tuple[int, int, int]  # (m, n, k): C is m × n, the inner dimension is k
Run = Callable[[np.ndarray, np.ndarray, np.ndarray, Size], object]

ODD_SIDES = (1, 15, 16, 17, 33, 260)  # around one tile of 16, one warp of 32, and far past both
ODD_SHAPES: tuple[Size, ...] = ((35, 79, 19), (17, 1, 33), (1, 33, 17))
HALF_EPSILON = float(np.finfo(np.float32).eps) / 2
SPARE = 8.0
WHOLE = 2**31  # multiply-adds up to which every element of C is checked


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. ``kind``: wrong, not-finite, never-written, accumulates, inputs-modified, unstable."""

    kind: str
    kernel: str
    size: Size
    message: str
    row: int | None = None
    col: int | None = None

    def __str__(self) -> str:
        return f"{self.kernel} at {label(self.size)}: {self.message}"


@dataclass(frozen=True)
class Report:
    """What a verification found.

    Attributes:
        kernel: its name.
        sizes: those that were tried, in order.
        problems: empty when the kernel is right.
        worst_error, allowed: the largest relative error seen, and what was allowed at its size.
        notes: what this verification could not see.
    """

    kernel: str
    sizes: tuple[Size, ...]
    problems: tuple[Problem, ...] = ()
    worst_error: float = 0.0
    allowed: float = 0.0
    notes: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        tried = ", ".join(label(s) for s in self.sizes)
        if self.ok:
            error = f"relative error at most {self.worst_error:.1e} ({self.allowed:.1e} allowed)"
            head = f"{self.kernel}: right at {tried}; {error}"
        else:
            head = "\n".join(str(p) for p in self.problems)
        return "\n".join([head, *(f"note: {note}" for note in self.notes)])


def label(size: Size) -> str:
    """A size as messages write it: "512" for a square, "35x79x19" for m, n, k."""
    m, n, k = size
    return str(n) if m == n == k else f"{m}x{n}x{k}"


def inputs(size: Size, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Random float32 A (m, k) and B (k, n) from [0.5, 1.5): never constant or symmetric, no sum near zero."""
    m, n, k = size
    random = np.random.default_rng(seed)
    return tuple((random.random(shape) + 0.5).astype(np.float32) for shape in ((m, k), (k, n)))


def tolerance(k: int) -> float:
    """Relative error that a float32 sum of k products may have, against the sum of their magnitudes.

    Each of the k additions rounds by up to half an epsilon (2⁻²⁴); roundings of either sign wander like a random walk,
    √k of them, and a factor of 8 is to spare. The worst case, k of them, would hide mistakes (Higham, "Accuracy and
    Stability of Numerical Algorithms", chapter 3). Tensor-core TF32, at 2⁻¹¹, fails it, as it should.
    """
    return SPARE * HALF_EPSILON * math.sqrt(max(k, 1))


def reference(a: np.ndarray, b: np.ndarray, rows: np.ndarray | slice = slice(None)) -> tuple[np.ndarray, np.ndarray]:
    """A·B in float64 and the sum of the products' magnitudes, which errors are relative to; for some rows, or all."""
    exact_a, exact_b = a[rows].astype(np.float64), b.astype(np.float64)
    if (a >= 0).all() and (b >= 0).all():
        product = exact_a @ exact_b
        return product, product
    return exact_a @ exact_b, np.abs(exact_a) @ np.abs(exact_b)


def checked_rows(size: Size) -> np.ndarray:
    """The rows of C that are checked: all, or of large products 64, evenly spread, the first and the last included."""
    m, n, k = size
    count = m if m * n * k <= WHOLE else min(m, 64)
    return np.unique(np.linspace(0, m - 1, count).round().astype(int))


def relative_error(got: np.ndarray, expected: np.ndarray, magnitude: np.ndarray) -> np.ndarray:
    """|got − expected| over the magnitude; NaN and infinity count as an infinite error."""
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(np.float64) - expected) / np.where(magnitude == 0, 1.0, magnitude)
    return np.where(np.isfinite(got), error, np.inf)


def compare(
    got: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    kernel: str = "kernel",
    where: np.ndarray | None = None,
    known: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[list[Problem], float]:
    """Hold a product against float64.

    Args:
        got: float32 (m, n), filled with NaN before the kernel ran.
        a, b: float32 (m, k) and (k, n).
        kernel: for messages.
        where: bool (m, n): the elements that were to be written (default: all), when only some blocks ran.
        known: the reference for the checked rows, where it was worked out before; not together with `where`.

    Returns:
        The problems (at most one), and the largest relative error.
    """
    size = (a.shape[0], b.shape[1], a.shape[1])
    if got.shape != size[:2]:
        return [Problem("wrong", kernel, size, f"C has the shape {got.shape}, not {size[:2]}")], math.inf
    rows, cols = checked_rows(size), np.arange(size[1])
    if where is not None:  # what no block wrote in a row or column needs no reference
        rows, cols = rows[where[rows].any(axis=1)], cols[where.any(axis=0)]
        b = b[:, cols]
    here = np.ix_(rows, cols)
    expected, magnitude = known or reference(a, b, rows)
    error = relative_error(got[here], expected, magnitude)
    if where is not None:
        error = np.where(where[here], error, 0.0)
    worst = float(error.max(initial=0.0))
    allowed = tolerance(size[2])
    if worst <= allowed:
        return [], worst
    bad = ~(error <= allowed)
    at = tuple(np.argwhere(bad)[0])
    row, col = int(rows[at[0]]), int(cols[at[1]])
    value, right = got[row, col], expected[at]
    place = f"row {row}, column {col}: got {value:.9g}, expected {right:.9g}"
    share = (
        f"{int(bad.sum()):,} of {error.size if where is None else int(where[here].sum()):,} checked elements are wrong"
    )
    if np.isnan(value):
        kind, what = "never-written", f"NaN, as C was before: never written, or computed from NaN; first at {place}"
    elif not np.isfinite(value):
        kind, what = "not-finite", f"not a finite number; first at {place}"
    else:
        kind, what = "wrong", f"wrong; first at {place} (relative error {error[at]:.1e}, {allowed:.1e} allowed)"
    return [Problem(kind, kernel, size, f"{what}; {share}", row, col)], worst


def verify(
    run: Run,
    sizes: Iterable[Size | int],
    kernel: str = "kernel",
    seed: int = 1,
    twice: bool = True,
    done: Callable[[Size], None] | None = None,
) -> Report:
    """Verify a matrix product at several sizes.

    Args:
        run: ``run(a, b, c, (m, n, k))`` computes C in place from NumPy float32 arrays, on the GPU or in the tracer.
        sizes: (m, n, k), or one side for a square.
        kernel: for messages.
        seed: of the inputs; every size draws its own.
        twice: run again on other matrices and into the same C, to catch a kernel that keeps anything of the first run.
        done: called after each size, for progress.

    Returns:
        The report; it stops at no problem, but at most one is told per size.
    """
    tried, problems, worst, allowed = [], [], 0.0, 0.0
    for size in sizes:
        size = (size,) * 3 if isinstance(size, int) else tuple(size)
        found, error = _verify_size(run, size, kernel, seed + len(tried), twice)
        tried.append(size)
        problems += found
        if not allowed or error / tolerance(size[2]) > worst / allowed:
            worst, allowed = error, tolerance(size[2])
        if done:
            done(size)
    return Report(kernel, tuple(tried), tuple(problems), worst, allowed, _blind_spots(tried))


def _verify_size(run: Run, size: Size, kernel: str, seed: int, twice: bool) -> tuple[list[Problem], float]:
    a, b = inputs(size, seed)
    kept = a.copy(), b.copy()
    c = np.full(size[:2], np.nan, np.float32)
    run(a, b, c, size)
    if changed := [
        name for name, now, before in zip("AB", (a, b), kept, strict=True) if not np.array_equal(now, before)
    ]:
        return [Problem("inputs-modified", kernel, size, f"it wrote into its input {' and '.join(changed)}")], math.inf
    rows = checked_rows(size)
    right = reference(a, b, rows)
    found, worst = compare(c, a, b, kernel, known=right)
    if found and found[0].kind == "never-written":
        return [_accumulates(run, size, kernel, a, b) or found[0]], worst
    if found or not twice:
        return found, worst
    # Doubled and with rows and columns in reverse: so is the product, exactly.
    a, b = np.ascontiguousarray(a[::-1]) * np.float32(2.0), np.ascontiguousarray(b[:, ::-1])
    run(a, b, c, size)
    mirrored = tuple(2.0 * part[::-1, ::-1] for part in right) if len(rows) == size[0] else None
    again, _ = compare(c, a, b, kernel, known=mirrored)
    if again:
        what = f"right at the first launch, not at the second, on other matrices into the same C: {again[0].message}"
        return [Problem("unstable", kernel, size, what, again[0].row, again[0].col)], worst
    return [], worst


def _accumulates(run: Run, size: Size, kernel: str, a: np.ndarray, b: np.ndarray) -> Problem | None:
    """Whether a kernel that leaves NaN is right once C starts at zero: then it adds to C instead of setting it."""
    c = np.zeros(size[:2], np.float32)
    run(a, b, c, size)
    if compare(c, a, b, kernel)[0]:
        return None
    what = "it adds to what C held (C += …): right only when C starts at zero, and doubled by a second launch"
    return Problem("accumulates", kernel, size, what)


def _blind_spots(sizes: list[Size]) -> tuple[str, ...]:
    notes = []
    if all(m == n == k for m, n, k in sizes):
        notes.append("only square sizes were tried: a row length taken from the wrong matrix would not show")
    if all(side % 16 == 0 for size in sizes for side in size):
        notes.append("only multiples of 16 were tried: a missing guard at the edges would not show")
    sampled = [label(s) for s in sizes if len(checked_rows(s)) < s[0]]
    if sampled:
        notes.append(f"64 evenly spread rows were checked at {', '.join(sampled)}")
    return tuple(notes)
