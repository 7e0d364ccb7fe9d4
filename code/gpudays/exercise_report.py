"""Exercise-report room: the stages and ratios of a check, as a reader and as a machine want them."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, replace

PASSED, FAILED, NOT_RUN, NOT_GATED, NOT_WRITTEN = "passed", "failed", "not run", "not gated", "not yet written"
POINTS = {"found and compiles": 10, "safe in the tracer": 20, "correct": 30, "audit": 25, "order of speed": 15}
STAGES = tuple(POINTS)


@dataclass(frozen=True)
class Stage:
    """One stage's outcome: its name, one of the five statuses, what was seen (a line each), and one hint."""

    name: str
    status: str
    seen: tuple[str, ...] = ()
    hint: str = ""

    @property
    def points(self) -> int:
        """What the stage is worth when it has passed."""
        return POINTS[self.name] if self.status == PASSED else 0


@dataclass(frozen=True)
class Ratio:
    """One ratio of the report: what it is, its value (None: not measured), what it needs to be, and its status."""

    what: str
    value: float | None
    needs: str
    status: str


@dataclass(frozen=True, repr=False)
class Report:
    """The whole check of one hand-in.

    Attributes:
        day: "day43", …
        stages: in order.
        ratios: all that the day asks for.
        beyond: stages that the machine of the check cannot gate, whether the check came to them or not.
    """

    day: str
    stages: tuple[Stage, ...]
    ratios: tuple[Ratio, ...] = ()
    beyond: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every stage passed; a stage that this machine cannot gate does not count against it."""
        return all(stage.status in (PASSED, NOT_GATED) for stage in self.stages)

    @property
    def points(self) -> int:
        """Of the stages that passed."""
        return sum(stage.points for stage in self.stages)

    @property
    def out_of(self) -> int:
        """What could be had on this machine: a stage that it cannot gate gives no points and costs none."""
        return sum(points for stage, points in POINTS.items() if stage not in self.beyond)

    def require(self, stage: str) -> None:
        """Nothing, if a stage has passed or this machine cannot gate it: what an autograder calls.

        Raises:
            AssertionError: it has not; the report is in the message.
        """
        status = next(one.status for one in self.stages if one.name == stage)
        if status not in (PASSED, NOT_GATED):
            raise AssertionError(f"{stage}: {status}\n{self!r}")

    def noted(self, *notes: str) -> Report:
        """The same report with lines added to its first stage."""
        first, *rest = self.stages
        return replace(self, stages=(replace(first, seen=(*first.seen, *notes)), *rest))

    def __repr__(self) -> str:
        verdict = "passed" if self.passed else "not passed"
        lines = [f"{self.day}: {verdict}, {self.points} of {self.out_of} points"]
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
        stages = [
            {"stage": s.name, "status": s.status, "points": s.points, "seen": list(s.seen), "hint": s.hint}
            for s in self.stages
        ]
        ratios = [{"ratio": r.what, "value": r.value, "needs": r.needs, "status": r.status} for r in self.ratios]
        points = {"points": self.points, "out_of": self.out_of, "not_gated": list(self.beyond)}
        return {"day": self.day, "passed": self.passed, **points, "stages": stages, "ratios": ratios}

    def as_markdown(self, title: str) -> str:
        """The report as a page for the student."""
        verdict = f"**{'Passed' if self.passed else 'Not passed'}**, {self.points} of {self.out_of} points."
        lines = [f"# {title}", "", verdict, "", "| stage | outcome | points |", "| --- | --- | --- |"]
        lines += [f"| {s.name} | {s.status} | {s.points} of {POINTS[s.name]} |" for s in self.stages]
        for stage in self.stages:
            if stage.status not in (PASSED, NOT_RUN):
                lines += ["", f"## {stage.name}: {stage.status}", "", "```text", *stage.seen, "```"]
                lines += ["", f"Hint: {stage.hint}"] if stage.hint else []
        lines += ["", "## Ratios", "", "| what | value | needs to be | outcome |", "| --- | --- | --- | --- |"]
        lines += [f"| {r.what} | {_number(r.value)} | {r.needs} | {r.status} |" for r in self.ratios]
        return "\n".join([*lines, ""])


def from_dict(data: Mapping) -> Report:
    """The report that `Report.as_dict` wrote."""
    stages = tuple(Stage(s["stage"], s["status"], tuple(s["seen"]), s["hint"]) for s in data["stages"])
    ratios = tuple(Ratio(r["ratio"], r["value"], r["needs"], r["status"]) for r in data["ratios"])
    return Report(data["day"], stages, ratios, tuple(data["not_gated"]))


def stopped(day: str, stage: str, why: str, hint: str = "", beyond: tuple[str, ...] = ()) -> Report:
    """The report of a check that ended in a stage without a verdict: those before it had passed."""
    at = STAGES.index(stage)
    before = [Stage(name, PASSED) for name in STAGES[:at]]
    after = [Stage(name, NOT_RUN, (f"because of: {stage}",)) for name in STAGES[at + 1 :]]
    return Report(day, (*before, Stage(stage, FAILED, (why,), hint), *after), beyond=beyond)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}"
