"""Oracle, room 1b: floating-point arithmetic that IEEE 754 pins down but NumPy lacks — fma and directed rounding.

NumPy has no fused multiply-add, and rounds to nearest only. Both are made here from exact arithmetic, so that the
interpreter shares no code with a compiled engine's `fma` instruction.

Sources: T. J. Dekker, "A floating-point technique for extending the available precision" (1971), for the error-free
product and sum; S. Boldo and G. Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using
rounding to odd" (IEEE Transactions on Computers, 2008), for why rounding to odd first makes a second rounding harmless.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded sum and its rounding error: a + b == s + t exactly (barring overflow)."""
    s = a + b
    part = s - a
    return s, (a - (s - part)) + (b - part)


def two_product(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded product of float64 and its error: a * b == p + e exactly (barring overflow and underflow)."""
    p = a * b
    (ah, al), (bh, bl) = _halves(a), _halves(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scaled = x * 134217729.0  # 2**27 + 1 splits 53 bits into 26 and 26
    high = scaled - (scaled - x)
    return high, x - high


def sum_to_odd(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b in float64, rounded to odd: an inexact result takes whichever neighbour has an odd last bit."""
    s, t = two_sum(a, b)
    inexact_even = np.isfinite(s) & (t != 0) & (s.view(np.int64) & 1 == 0)
    outwards = np.where((t > 0) == (s > 0), 1, -1)
    return np.where(inexact_even, (s.view(np.int64) + outwards).view(np.float64), s)


def fma32(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c of float32, rounded once. The product of two floats is exact in float64; the sum is rounded to odd."""
    product = a.astype(np.float64) * b.astype(np.float64)
    return sum_to_odd(*np.broadcast_arrays(product, c.astype(np.float64))).astype(np.float32)


def fma64(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c of float64, rounded once; extreme exponents go through exact fractions, a lane at a time."""
    a, b, c = (np.ascontiguousarray(x) for x in np.broadcast_arrays(a, b, c))
    high, low = two_product(a, b)
    th, tl = two_sum(c, low)
    vh, vl = two_sum(high, th)
    fused = vh + sum_to_odd(tl, vl)
    plain = a * b + c
    easy = ~np.isfinite(a) | ~np.isfinite(b) | ~np.isfinite(c) | (a == 0) | (b == 0)
    safe = _within(a, 300) & _within(b, 300) & (_within(c, 600) | (c == 0)) & (fused != 0)
    out = np.where(easy, plain, fused)
    for at in zip(*np.nonzero(~easy & ~safe), strict=True):
        out[at] = _nearest(Fraction(float(a[at])) * Fraction(float(b[at])) + Fraction(float(c[at])))
    return out


def _within(x: np.ndarray, exponent: int) -> np.ndarray:
    return (np.abs(x) > 2.0**-exponent) & (np.abs(x) < 2.0**exponent)


def _nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else -float("inf")


def directed(nearest: np.ndarray, mode: str, error: Callable[..., Fraction], *args: np.ndarray) -> np.ndarray:
    """Turn a result rounded to nearest into one rounded towards zero (rz), down (rm) or up (rp).

    `error(result, *args)` gives, in exact fractions, a number with the sign of (exact value − result). One lane at a
    time: these modes are rare (`__fadd_rz`, the inside of `expf`).
    """
    out = np.array(np.broadcast_arrays(nearest, *args)[0])
    arrays = [np.broadcast_to(x, out.shape) for x in args]
    for at in np.ndindex(out.shape):
        lane = [x[at] for x in arrays]
        if not all(np.isfinite(x) for x in lane) or np.isnan(out[at]):
            continue
        out[at] = _step(out[at], mode, _sign_of_error(out[at], error, lane))
    return out


def _sign_of_error(result, error, lane) -> int:
    if np.isinf(result):
        return -1 if result > 0 else 1  # the exact value is finite
    difference = error(Fraction(float(result)), *(_fraction(x) for x in lane))
    return (difference > 0) - (difference < 0)


def _fraction(x) -> Fraction:
    return Fraction(int(x)) if isinstance(x, np.integer) else Fraction(float(x))


def _step(result, mode: str, sign: int):
    up = sign > 0 and (mode == "rp" or (mode == "rz" and result < 0))
    down = sign < 0 and (mode == "rm" or (mode == "rz" and result > 0))
    kind = type(result)
    if up:
        return np.nextafter(result, kind(np.inf))
    return np.nextafter(result, kind(-np.inf)) if down else result
