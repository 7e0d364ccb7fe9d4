"""Exercise-report room: the stages and ratios of a check, as a reader and as a machine want them."""

from __future__ import annotations

import html
from dataclasses import dataclass

PASSED, FAILED, NOT_RUN, NOT_GATED, NOT_WRITTEN = "passed", "failed", "not run", "not gated", "not yet written"


@dataclass(frozen=True)
class Stage:
    """One stage's outcome: its name, one of the five statuses, what was seen (a line each), and one hint."""

    name: str
    status: str
    seen: tuple[str, ...] = ()
    hint: str = ""


@dataclass(frozen=True)
class Ratio:
    """One ratio of the report: what it is, its value (None: not measured), what it needs to be, and its status."""

    what: str
    value: float | None
    needs: str
    status: str


@dataclass(frozen=True, repr=False)
class Report:
    """The whole check of one hand-in."""

    day: str
    stages: tuple[Stage, ...]
    ratios: tuple[Ratio, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every stage passed; a stage that this machine cannot gate does not count against it."""
        return all(stage.status in (PASSED, NOT_GATED) for stage in self.stages)

    def __repr__(self) -> str:
        lines = [f"{self.day}: {'passed' if self.passed else 'not passed'}"]
        for stage in self.stages:
            lines.append(f"  {stage.name + ':':20} {stage.status}")
            lines += [f"      {line}" for text in stage.seen for line in text.splitlines()]
            lines += [f"      Hint: {stage.hint}"] if stage.hint else []
        if self.ratios:
            lines.append("  ratios:")
            wide = max(len(r.what) for r in self.ratios)
            lines += [f"      {r.what:{wide}}  {_number(r.value):>9}  {r.needs}: {r.status}" for r in self.ratios]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"

    def as_dict(self) -> dict[str, object]:
        """The report as plain data, for JSON."""
        stages = [{"stage": s.name, "status": s.status, "seen": list(s.seen), "hint": s.hint} for s in self.stages]
        ratios = [{"ratio": r.what, "value": r.value, "needs": r.needs, "status": r.status} for r in self.ratios]
        return {"day": self.day, "passed": self.passed, "stages": stages, "ratios": ratios}


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}"
