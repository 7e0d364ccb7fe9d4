"""Figures room: all steps of Day 43 and Day 44 in one picture, for the first page and the README.

Every number in it is counted when it is drawn: the tracer runs each day's kernels, as their programs hold them.
Addresses decide both counts, so the picture is the same on every machine. ``gpudays front-picture`` draws it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import NullFormatter

import gpudays
from gpudays.course.evidence import SECTORS
from gpudays.course.steps import DAY43, DAY44, Day, Step, square
from gpudays.figures import BLUE, VERMILION, Picture
from gpudays.kernels_in_pages import kernel_text
from gpudays.ptx.model import SHARED_LD_WAVEFRONTS

N = 128  # per multiply-add, the counts are those of any multiple of 128
ARCH = "sm_75"
PNG = Path("book/images/steps.png")
LOOKS = {DAY43.name: {"facecolor": BLUE}, DAY44.name: {"facecolor": VERMILION, "hatch": "//"}}
PANELS = (
    ("global memory: 32-byte sectors loaded", SECTORS),
    ("shared memory: wavefronts of loads", SHARED_LD_WAVEFRONTS),
)


@dataclass(frozen=True)
class Rung:
    """One kernel on the ladder: its step, its day, and its counts per 1000 multiply-adds by metric."""

    step: Step
    day: Day
    per_thousand: dict[str, float]


def rungs(root: Path) -> list[Rung]:
    """Trace every step of Day 43 and Day 44, in order, from the programs under `root`."""
    found = []
    for day in (DAY43, DAY44):
        source = kernel_text(root / day.program)
        for step in day.steps:
            launched = day.launched(step, source, ARCH) if day.launched else step
            found.append(Rung(step, day, _counts(source, launched, day)))
    return found


def draw(ladder: list[Rung]) -> Picture:
    """The rungs from top to bottom: what each one's loads cost in global and in shared memory."""
    picture = Picture("steps", (9.6, 0.55 * len(ladder) + 1.5), description(ladder))
    axes = picture.subplots(1, 2, sharey=True)
    for axis, (title, metric) in zip(axes, PANELS, strict=True):
        _panel(axis, ladder, metric)
        axis.set_title(title, fontsize=11, loc="left")
    axes[0].set_yticks(range(len(ladder)), [f"step {r.step.number}: {r.step.title}" for r in ladder], fontsize=10.5)
    axes[0].invert_yaxis()
    handles = [Patch(label=day.title.split(" · ")[0], edgecolor="white", **LOOKS[day.name]) for day in (DAY43, DAY44)]
    picture.legend(handles=handles, loc="outside lower left", ncols=2, frameon=False)
    picture.supxlabel("for 1000 multiply-adds; traced; logarithmic", fontsize=9.5, color="#444444")
    return picture


def description(ladder: list[Rung]) -> str:
    """The picture in words: its alternative text, which the first page and the README carry."""
    first, last = ladder[0].per_thousand, ladder[-1].per_thousand
    wavefronts = [rung.per_thousand[SHARED_LD_WAVEFRONTS] for rung in ladder if rung.per_thousand[SHARED_LD_WAVEFRONTS]]
    return (
        f"Bars for steps {ladder[0].step.number} to {ladder[-1].step.number}. For 1000 multiply-adds, the sectors "
        f"loaded from global memory fall from {first[SECTORS]:.0f} to {last[SECTORS]:.1f}; the wavefronts of shared "
        f"memory begin at {wavefronts[0]:.1f} with the tile and fall to {wavefronts[-1]:.1f}."
    )


def write(root: Path) -> Path:
    """Draw the picture into the book's images; its path."""
    target = root / PNG
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(draw(rungs(root)).png())
    return target


def _counts(source: str, step: Step, day: Day) -> dict[str, float]:
    size = square(N)
    matrices = [np.ones((N, N), dtype=np.float32) for _ in range(3)]
    result = gpudays.trace(
        source, step.kernel, step.grid(size), step.block, [*matrices, *day.scalars(size)],
        shared_bytes=step.shared_bytes, arch=ARCH, check_races=False,
    )  # fmt: skip
    return {metric: 1000 * float(result.total.get(metric, 0)) / N**3 for _, metric in PANELS}


def _panel(axis: Axes, ladder: list[Rung], metric: str) -> None:
    values = [rung.per_thousand[metric] for rung in ladder]
    seen = [value for value in values if value]
    axis.set_xscale("log")
    axis.set_xlim(min(seen) / 3, max(seen) * 6)
    for place, (rung, value) in enumerate(zip(ladder, values, strict=True)):
        if value:
            axis.barh(place, value, height=0.64, edgecolor="white", linewidth=0, **LOOKS[rung.day.name])
        axis.text(value * 1.12 or min(seen) / 2.6, place, f"{value:.3g}" if value else "none", va="center", fontsize=10)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.xaxis.set_minor_formatter(NullFormatter())
