"""Predictions room: a prediction written before the measurement meets the measurement; the verdict names its figures.

A verdict is one of three: matched, did not match, cannot be tested here. What cannot be tested is never counted as
either. The days' own predictions (``day43``) build on what stands here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

MATCHED = "matched"
DID_NOT = "did not match"
CANNOT = "cannot be tested here"

COUNT_TOLERANCE = 0.02  # of a sectors-per-request figure: the T4's own counters read 3.97 where addresses give 4.00
MORE = 1.05  # one gain is more than another from a twentieth on: runs of one kernel differ by a few percent


@dataclass(frozen=True)
class Verdict:
    """The outcome of one prediction: its number and claim, the verdict, the figures it rests on, and the reason."""

    number: str
    claim: str
    verdict: str
    figures: str
    reason: str

    def __post_init__(self) -> None:
        if self.verdict not in (MATCHED, DID_NOT, CANNOT):
            raise ValueError(f"{self.verdict!r} is no verdict: {MATCHED}, {DID_NOT} or {CANNOT}")


def decide(number: str, claim: str, holds: bool, figures: str, reason: str) -> Verdict:
    """Matched if ``holds``, else did not match."""
    return Verdict(number, claim, MATCHED if holds else DID_NOT, figures, reason)


def cannot(number: str, claim: str, missing: str, figures: str = "none") -> Verdict:
    """Cannot be tested here, and what is missing."""
    return Verdict(number, claim, CANNOT, figures, missing)


def as_table(verdicts: Iterable[Verdict]) -> pd.DataFrame:
    """Verdicts as a table: number, claim, verdict, figures, reason."""
    columns = ["number", "claim", "verdict", "figures", "reason"]
    return pd.DataFrame([[getattr(v, c) for c in columns] for v in verdicts], columns=columns)


def close(seen: Sequence[float], expected: Sequence[float], tolerance: float = COUNT_TOLERANCE) -> bool:
    """Whether each value lies within a relative tolerance of what was expected (0 only equals 0)."""
    return all(abs(a - b) <= tolerance * abs(b) for a, b in zip(seen, expected, strict=True))


def listed(values: Sequence[float], spec: str = ",.2f") -> str:
    """8.50 / 2.00 / 4.00"""
    return " / ".join(format(value, spec) for value in values)
