"""Figures room: what the pages draw from the measurements table and from traced addresses.

Every function returns a :class:`Picture`: opaque white, Okabe-Ito colours, markers, line styles and hatches besides
colour, and one sentence of alt text. A picture shows itself in any notebook and in the built site.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from gpudays import metrics
from gpudays.course import evidence as ev
from gpudays.course.geometry import FLOAT_BYTES, FLOATS_PER_SECTOR
from gpudays.course.steps import Step

# Okabe and Ito, "Color Universal Design" (jfly.uni-koeln.de/color), less the yellow that vanishes on white.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
MARKED = ((BLUE, "o", "-"), (VERMILION, "s", "--"), (GREEN, "^", ":"), (PURPLE, "D", "-."), (BLACK, "v", "--"))
UNREAD = {"facecolor": "#DCE6EC", "edgecolor": SKY, "hatch": "////"}
DPI = 120

ALT = {
    "four_ratios": (
        "Four small line plots over steps 1, 2 and 3: compute and memory speed of light, achieved occupancy, "
        "sectors per load request, and L2 hit rate, one line for each card and size."
    ),
    "speedup_beside_sectors": (
        "Bars for step 1 to 2 and step 2 to 3: beside each measured speed-up stands how many times fewer sectors the "
        "kernel asked for; the two bars of a pair differ."
    ),
    "warp_sectors": (
        "Six maps, A and B for each of three steps: the 32-byte sectors that one warp's load touches, and within them "
        "the floats that its lanes use."
    ),
}


class Picture(Figure):
    """A matplotlib figure that shows itself as a PNG on white and carries its alt text as ``alt``."""

    def __init__(self, name: str, size: tuple[float, float], alt: str = "") -> None:
        super().__init__(figsize=size, dpi=DPI, facecolor="white", layout="constrained")
        self.name, self.alt = name, alt or ALT[name]

    def __repr__(self) -> str:
        return f"<Picture {self.name}: {self.alt}>"

    def _repr_mimebundle_(self, **kwargs: object) -> tuple[dict[str, object], dict[str, object]]:
        return {"image/png": self.png(), "text/plain": repr(self)}, {"image/png": {"alt": self.alt}}

    def png(self) -> bytes:
        """The picture as PNG bytes, opaque."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=DPI, facecolor="white", metadata={"Software": None})
        return buffer.getvalue()


@dataclass(frozen=True)
class Series:
    """One line of a plot: an evidence at one size, and what the legend calls it."""

    evidence: ev.Evidence
    n: int | str
    name: str


def series(evidence: ev.Evidence, sizes: Sequence[int | str]) -> list[Series]:
    """One series for each size, named by card, source and size."""
    return [Series(evidence, n, f"N = {n}, {evidence.card or 'tracer'}") for n in sizes]


def four_ratios(lines: Sequence[Series], steps: Sequence[Step]) -> Picture:
    """Speed of light, achieved occupancy, sectors per request and L2 hit rate by step; what is missing is said.

    Args:
        lines: one or more series; each gets its own colour, marker and line style.
        steps: the day's steps, in order.
    """
    picture = Picture("four_ratios", (8.2, 6.6))
    axes = picture.subplots(2, 2).ravel()
    panels = [
        (
            "Speed of light: compute (filled), memory (open)",
            "% of peak",
            (metrics.SM_THROUGHPUT, metrics.MEMORY_THROUGHPUT),
        ),
        ("Achieved occupancy", "% of the SM's warps", (metrics.WARPS_ACTIVE,)),
        ("Sectors per load request", "sectors", (metrics.SECTORS_PER_REQUEST,)),
        ("L2 hit rate", "% of sectors", (metrics.L2_HIT_RATE,)),
    ]
    for axis, (title, unit, names) in zip(axes, panels, strict=True):
        _by_step(axis, lines, steps, names)
        axis.set_title(f"{title}\n", fontsize=11)
        source = _sources(lines, steps, names)
        axis.text(0.5, 1.03, source, transform=axis.transAxes, ha="center", fontsize=8.5, color="#444444")
        axis.set_ylabel(unit)
        axis.set_ylim(0, 105 if unit.startswith("%") else None)
    axes[2].set_ylim(0, 10)
    handles, names = axes[2].get_legend_handles_labels()
    picture.legend(
        handles, names, loc="outside lower center", ncols=2 if len(names) == 4 else min(3, len(names)), frameon=False
    )
    return picture


def _by_step(axis: Axes, lines: Sequence[Series], steps: Sequence[Step], names: Sequence[str]) -> None:
    """One metric (or two, the second with open markers) by step."""
    seen = False
    # Lines that coincide stay visible: each series' markers are smaller than those under it.
    for place_of_line, line in enumerate(lines):
        colour, marker, style = MARKED[place_of_line % len(MARKED)]
        for place, metric in enumerate(names):
            values = [_value(line, step.kernel, metric) for step in steps]
            seen |= bool(np.isfinite(values).any())
            face = colour if place == 0 else "white"
            axis.plot(
                range(len(steps)), values, linestyle=style, marker=marker, color=colour, markerfacecolor=face,
                markersize=max(11 - 2.5 * place_of_line, 4), linewidth=1.8, label=line.name if place == 0 else None,
            )  # fmt: skip
    axis.set_xticks(range(len(steps)), [f"step {s.number}" for s in steps])
    axis.set_xlim(-0.3, len(steps) - 0.7)
    _clean(axis)
    if not seen:
        axis.text(
            0.5, 0.5, "no figures here:\nno counters of a card", transform=axis.transAxes, ha="center", va="center"
        )


def _sources(lines: Sequence[Series], steps: Sequence[Step], names: Sequence[str]) -> str:
    """Where a panel's figures come from, each source once."""
    kernels = [step.kernel for step in steps]
    found = [line.evidence.origin(kernels, [line.n], name) for line in lines for name in names]
    return "; ".join(dict.fromkeys(part for text in found for part in text.split("; ") if part))


def _value(line: Series, kernel: str, metric: str) -> float:
    """A metric of a kernel, NaN where it is missing."""
    figure = line.evidence.get(kernel, line.n, metric)
    return figure.value if figure else float("nan")


def speedup_beside_sectors(lines: Sequence[Series], steps: Sequence[Step]) -> Picture:
    """For each move to the next step: the speed-up of each series, and how many times fewer sectors were asked for.

    The sector ratio is drawn once, from the first series that has it: addresses decide it, on every card the same.
    """
    picture = Picture("speedup_beside_sectors", (8.2, 4.6))
    axis = picture.subplots()
    kernels = tuple(step.kernel for step in steps)
    bars = [(line.evidence.gains(kernels, line.n), f"speed-up, {line.name}") for line in lines]
    with_ratios = next((line for line in lines if line.evidence.gains(kernels, line.n, ev.SECTORS)), None)
    ratios = with_ratios.evidence.gains(kernels, with_ratios.n, ev.SECTORS) if with_ratios else None
    bars.append((ratios, "times fewer sectors"))
    bars = [(values, name) for values, name in bars if values]
    hatches = ("", "//", "..", "xx", "\\\\")
    width = 0.84 / max(len(bars), 1)
    for place, (values, name) in enumerate(bars):
        of_sectors = name == "times fewer sectors"
        at = np.arange(len(values)) + (place - (len(bars) - 1) / 2) * width
        drawn = axis.bar(
            at, values, width * 0.94, label=name, color="white" if of_sectors else MARKED[place][0],
            edgecolor=BLACK if of_sectors else "white", hatch="++" if of_sectors else hatches[place], linewidth=1.0,
        )  # fmt: skip
        axis.bar_label(drawn, [f"{v:.2f}×" for v in values], fontsize=9, padding=2)
    moves = [f"step {a.number} → {b.number}\n{b.title}" for a, b in pairwise(steps)]
    axis.set_xticks(range(len(moves)), moves)
    axis.axhline(1, color=BLACK, linewidth=0.8, linestyle=":")
    sectors = _sources([with_ratios] if with_ratios else [], steps, (ev.SECTORS,)) or "none"
    times = _sources(lines, steps, (metrics.TIME,)) or "none"
    axis.set_title(f"sectors: {sectors} · times: {times}", fontsize=9, color="#444444")
    axis.set_ylabel("times better than the step before")
    axis.margins(y=0.12)
    _clean(axis)
    if bars:
        picture.legend(loc="outside lower center", ncols=2, frameon=False)
    return picture


def _clean(axis: Axes) -> None:
    axis.grid(axis="y", color="#D0D0D0", linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


@dataclass(frozen=True)
class WarpLoad:
    """One load request of one warp, to be drawn: what its active lanes read.

    Attributes:
        step: heading of its column, "step 1".
        matrix: "A" or "B".
        offsets: byte offset into the matrix, one for each active lane.
        width: bytes that a lane reads.
    """

    step: str
    matrix: str
    offsets: np.ndarray
    width: int = FLOAT_BYTES

    @property
    def floats(self) -> np.ndarray:
        """Element index of every float that any lane reads, sorted, each once."""
        words = np.asarray(self.offsets, dtype=np.int64)[:, None] // FLOAT_BYTES + np.arange(self.width // FLOAT_BYTES)
        return np.unique(words)

    @property
    def sectors(self) -> np.ndarray:
        """Number of each 32-byte sector that holds one of them, sorted, each once."""
        return np.unique(self.floats // FLOATS_PER_SECTOR)


def warp_sectors(loads: Sequence[WarpLoad], n: int) -> Picture:
    """The sectors that one warp touches in A and in B, a column per step, drawn as the row-major matrices lie.

    Args:
        loads: for each step a load of A and one of B, from traced addresses.
        n: width of both matrices in floats, a multiple of 8.
    """
    if n % FLOATS_PER_SECTOR:
        raise ValueError(f"rows of {n} floats do not begin on a sector: draw a width that is a multiple of 8")
    steps = list(dict.fromkeys(load.step for load in loads))
    matrices = [m for m in ("A", "B") if any(load.matrix == m for load in loads)]
    heights = [_window([load for load in loads if load.matrix == m], n)[1] for m in matrices]
    picture = Picture("warp_sectors", (8.6, 1.6 + 0.235 * sum(heights)))
    picture.suptitle(f"First loads of one warp at N = {n}, traced", fontsize=9, color="#444444")
    axes = picture.subplots(len(matrices), len(steps), squeeze=False, height_ratios=heights)
    for load in loads:
        axis = axes[matrices.index(load.matrix)][steps.index(load.step)]
        shape = _window([other for other in loads if other.matrix == load.matrix], n)
        _matrix(axis, load, n, shape)
        axis.set_title(f"{load.step}, {load.matrix}: {_count(len(load.sectors), 'sector')}", fontsize=11)
    handles = [
        Patch(facecolor=BLUE, edgecolor="white", label="float that a lane reads"),
        Patch(**UNREAD, label="rest of the 32-byte sector: fetched, not read"),
    ]
    picture.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return picture


def _window(loads: Sequence[WarpLoad], n: int, margin: int = 1) -> tuple[int, int]:
    """Columns and rows to draw so that every load of one matrix fits: whole sectors, a margin, at least four rows."""
    columns = max(int((load.floats % n).max() - (load.floats % n).min()) for load in loads) + 1
    rows = max(int(load.floats.max() // n - load.floats.min() // n) for load in loads) + 1
    wide = (-(-columns // FLOATS_PER_SECTOR) + margin) * FLOATS_PER_SECTOR
    return min(wide, n), max(rows + margin, 4)


def _matrix(axis: Axes, load: WarpLoad, n: int, shape: tuple[int, int]) -> None:
    """A corner of the matrix with one load's sectors and floats in it."""
    width, height = shape
    top = int(load.floats.min() // n)
    left = int((load.floats % n).min()) // FLOATS_PER_SECTOR * FLOATS_PER_SECTOR
    left = min(left, n - width)
    read = set(load.floats.tolist())
    for first in load.sectors * FLOATS_PER_SECTOR:
        for element in range(first, first + FLOATS_PER_SECTOR):
            look = {"facecolor": BLUE, "edgecolor": "white"} if element in read else UNREAD
            axis.add_patch(Rectangle((element % n, element // n), 1, 1, linewidth=0.6, **look))
        at = (first % n, first // n)
        axis.add_patch(Rectangle(at, FLOATS_PER_SECTOR, 1, fill=False, edgecolor=BLACK, linewidth=1.4, zorder=3))
    for edge in range(left, left + width + 1, FLOATS_PER_SECTOR):
        axis.axvline(edge, color="#909090", linewidth=0.8)
    for edge in range(top, top + height + 1):
        axis.axhline(edge, color="#D8D8D8", linewidth=0.5)
    axis.set_xlim(left, left + width)
    axis.set_ylim(top + height, top)
    axis.set_xticks([*range(left, left + width + 1, FLOATS_PER_SECTOR)])
    shown = sorted({top, top + 1, int(load.floats.max() // n)})
    axis.set_yticks([row + 0.5 for row in shown], [f"row {row}" for row in shown])
    axis.tick_params(length=0, labelsize=9)
    lanes = len(load.offsets) // max(len(load.floats) * FLOAT_BYTES // load.width, 1)
    used, fetched = len(load.floats), len(load.sectors) * FLOATS_PER_SECTOR
    each = f", {_count(lanes, 'lane')} each" if lanes > 1 else ""
    axis.set_xlabel(f"{used} of {fetched} floats read{each}", fontsize=9)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
