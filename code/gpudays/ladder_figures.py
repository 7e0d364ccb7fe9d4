"""Figures room, Day 44: the ladder of fractions of cuBLAS, the sweep of patches, and what the warps wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from gpudays import metrics
from gpudays.course import day44
from gpudays.course.day44_predictions import fraction
from gpudays.course.evidence import Evidence
from gpudays.course.steps import Step
from gpudays.course.tiles import Tiles
from gpudays.figures import BLACK, BLUE, GREEN, MARKED, ORANGE, PURPLE, SKY, VERMILION, Picture, _clean
from gpudays.ladder_tables import PIPES
from gpudays.tables import Shown

GREY = "#444444"
ALT = {
    "ladder": (
        "Fraction of cuBLAS's speed from step 1 to step 6, one line for each matrix size: a few hundredths at step 1, "
        "a sixth at step 3, and from step 4 on a steep climb towards the line of cuBLAS at 1."
    ),
    "sweep": (
        "Two plots over outputs per thread, 1 by 1 to 16 by 8: bars of registers per thread, with spilled bytes and "
        "occupancy written on them, and below them the measured speed under the ceiling that shared memory sets."
    ),
    "waits": (
        "Left, how busy memory pipes, FP32 pipe and issue slots were in steps 3 to 6; right, stacked bars of what the "
        "warps waited for in each step, the largest reasons named."
    ),
    "patches": (
        "Three tiles of C, one for each of steps 4 to 6: the elements of the first thread in red, those of the rest of "
        "its warp in blue; scattered single elements in step 4, groups of four by four in steps 5 and 6."
    ),
    "travelled": (
        "For six public kernels two points on a line: the fraction of cuBLAS that its author claims, and the smaller "
        "one that it reached on another card."
    ),
}
MOST_REASONS = 6  # stall reasons that get a colour of their own; the rest are summed


def ladder(evidence: Evidence, sizes: Sequence[int] = day44.LADDER_SIZES) -> Picture:
    """Each step's fraction of cuBLAS, a line per size.

    Args:
        evidence: one card's times of steps 1 to 6 and of cuBLAS.
        sizes: which sizes, smallest first.
    """
    picture = Picture("ladder", (9.6, 5.2), ALT["ladder"])
    axis = picture.subplots()
    steps, last = day44.STEPS, {}
    for n, (colour, marker, style) in zip(sizes, MARKED, strict=False):
        shares = [_share(evidence, step.kernel, n) for step in steps]
        if np.isfinite(shares).any():
            axis.plot(range(len(steps)), shares, style, marker=marker, color=colour, markersize=7, label=f"N = {n}")
            last = dict(enumerate(shares))
    for place, share in last.items():
        beside = (16, -15) if share > 0.06 else (18, 2)  # not in the axis
        axis.annotate(f"{share:.2f}", (place, share), beside, textcoords="offset points", ha="center", fontsize=10)
    axis.axhline(1, color=BLACK, linewidth=1.2)
    axis.text(-0.25, 1.015, "cuBLAS, FP32, TF32 off", fontsize=9.5)
    axis.set_xticks(range(len(steps)), [f"step {step.number}\n{_two_lines(step.title)}" for step in steps], fontsize=9)
    axis.set_ylabel("fraction of cuBLAS's speed")
    axis.set_ylim(0, 1.12)
    axis.set_xlim(-0.3, len(steps) - 0.6)
    _clean(axis)
    _titled(axis, evidence.origin([day44.CUBLAS, *day44.KERNELS], sizes, metrics.TIME), "times")
    if last:
        axis.legend(loc="upper left", bbox_to_anchor=(0.01, 0.9), frameon=False)
    else:
        _nothing(axis, "no times of a card here")
    return picture


def _share(evidence: Evidence, kernel: str, n: int) -> float:
    return fraction(evidence, kernel, n) or float("nan")


def _two_lines(title: str) -> str:
    """A title broken near its middle."""
    words = title.split()
    if len(words) < 3:
        return title
    breaks = range(1, len(words))
    best = min(breaks, key=lambda i: abs(len(" ".join(words[:i])) - len(" ".join(words[i:]))))
    return " ".join(words[:best]) + "\n" + " ".join(words[best:])


def sweep(shown: Shown) -> Picture:
    """Registers and spills by outputs per thread, and below them the speed beside what shared memory allows.

    Args:
        shown: what the session's ``sweep`` gave.
    """
    table = shown.frame
    picture = Picture("sweep", (9.6, 7.2), ALT["sweep"])
    above, below = picture.subplots(2, 1, sharex=True)
    at = np.arange(len(table))
    drawn = above.bar(at, table["registers"], 0.62, color=SKY, edgecolor=BLACK, linewidth=0.6)
    for bar, spilled in zip(drawn, table["spilled bytes"], strict=True):
        if spilled:
            bar.set(facecolor=VERMILION, hatch="//")
    labels = [
        f"{share:.1f} %" + (f"\n{spilled:,} B spilled" if spilled else "")
        for share, spilled in zip(table["occupancy, %"], table["spilled bytes"], strict=True)
    ]
    above.bar_label(drawn, labels, fontsize=9, padding=2)
    above.axhline(255, color=BLACK, linewidth=1, linestyle="--")
    above.text(-0.45, 261, "255, the most a thread can have", fontsize=9)
    above.set(ylabel="registers per thread\n(above: occupancy)", ylim=(0, 320))
    _titled(above, "compiled here", "registers, spills, occupancy")
    below.plot(at, table["ceiling, %"] / 100, "--", marker="v", color=GREY, label="ceiling of shared memory, on paper")
    known = table["of the peak"].notna().any()
    column, unit = ("of the peak", "of the FP32 peak") if known else ("of cuBLAS", "of cuBLAS")
    if table[column].notna().any():
        below.plot(at, table[column], "-", marker="o", markersize=8, color=BLUE, label=f"measured, {unit}")
        for place, share in zip(at, table[column], strict=True):
            below.annotate(
                f"{share:.2f}", (place, share), (4, -17), textcoords="offset points", ha="center", fontsize=9
            )
        if known:
            cublas = (table["of the peak"] / table["of cuBLAS"]).median()
            below.axhline(cublas, color=BLACK, linewidth=1)
            below.text(-0.45, cublas + 0.015, f"cuBLAS, {cublas:.2f} of the peak (peak: published)", fontsize=9)
    else:
        _nothing(below, "no times of a card here")
    below.set(ylabel=f"fraction {unit}", ylim=(0, 1.25))
    below.set_xticks(at, [patch.replace(", ", "\n") for patch in table["patch"]])
    below.set_xlabel("outputs per thread, rows × columns")
    below.legend(loc="upper left", frameon=False)
    _titled(below, shown.source.split("; times ")[-1], "times")
    for axis in (above, below):
        _clean(axis)
    return picture


def waits(evidence: Evidence, n: int) -> Picture:
    """Pipes and stall reasons of steps 3 to 6 at one size."""
    picture = Picture("waits", (9.6, 4.6), ALT["waits"])
    left, right = picture.subplots(1, 2, width_ratios=(4, 5))
    steps = _counted(evidence, n)
    names = [f"step {step.number}" for step in steps]
    at = np.arange(len(steps))
    if not evidence.origin(day44.KERNELS, [n], metrics.FMA_PIPE):
        for axis in (left, right):
            _nothing(axis, "no counters of a card here")
            axis.set_axis_off()
        return picture
    for place, (metric, name) in enumerate(PIPES.items()):
        values = [_value(evidence, step.kernel, n, metric) for step in steps]
        look = {"color": (PURPLE, BLUE, ORANGE)[place], "hatch": ("..", "", "//")[place]}
        drawn = left.bar(at + (place - 1) * 0.29, values, 0.27, label=name.split(",")[0], edgecolor="white", **look)
        left.bar_label(drawn, [f"{v:.0f}" if np.isfinite(v) else "" for v in values], fontsize=8.5, padding=2)
    left.set_xticks(at, names)
    left.set(ylabel="% of the most possible", ylim=(0, 128))
    _titled(left, evidence.origin(day44.KERNELS, [n], metrics.FMA_PIPE), f"pipes, N = {n}")
    _stacked(right, evidence, n)
    for axis in (left, right):
        _clean(axis)
    left.legend(loc="upper left", frameon=False)
    return picture


def _stacked(axis: Axes, evidence: Evidence, n: int) -> None:
    """Warps that waited per instruction issued, by reason, a bar per step."""
    steps = _counted(evidence, n)
    table = {
        reason.replace("_", " "): np.nan_to_num([_value(evidence, step.kernel, n, name) for step in steps])
        for reason, name in metrics.STALLS.items()
    }
    if not sum(map(np.sum, table.values())):
        _nothing(axis, "no stall reasons of a card here")
        return
    foot, hatches = np.zeros(len(steps)), ("", "//", "..", "xx", "\\\\", "++", "")
    colours = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, "#BBBBBB")
    for (reason, values), colour, hatch in zip(_largest(table).items(), colours, hatches, strict=False):
        axis.bar(range(len(steps)), values, 0.6, foot, label=reason, color=colour, hatch=hatch, edgecolor="white")
        foot += values
    axis.set_xticks(range(len(steps)), [f"step {step.number}" for step in steps])
    axis.set_ylabel("warps waiting, per instruction issued")
    axis.set_ylim(0, foot.max() * 1.08)
    handles, labels = axis.get_legend_handles_labels()
    axis.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    _titled(axis, evidence.origin(day44.KERNELS, [n], metrics.STALLS["wait"]), f"stall reasons, N = {n}")


def _counted(evidence: Evidence, n: int) -> list[Step]:
    """Steps 3 to 6, without those of which no counter is there at this size."""
    steps = day44.STEPS[2:]
    return [s for s in steps if evidence.get(s.kernel, n, metrics.FMA_PIPE)] or list(steps)


def _largest(table: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The reasons with most waiting over all steps, largest first, and the rest as one."""
    ranked = sorted(table, key=lambda reason: -table[reason].sum())
    named = {reason: table[reason] for reason in ranked[:MOST_REASONS]}
    return named | {"all others": sum(table[reason] for reason in ranked[MOST_REASONS:])}


def patches(cuts: Mapping[str, Tiles]) -> Picture:
    """Which elements of its block's tile of C the first warp computes, and which of them its first thread.

    Args:
        cuts: tiles by kernel, of steps 4 to 6.
    """
    picture = Picture("patches", (9.6, 4.2), ALT["patches"])
    numbers = {step.kernel: step.number for step in day44.STEPS}
    cuts = {kernel: cut for kernel, cut in cuts.items() if kernel in numbers}
    for axis, (kernel, cut) in zip(picture.subplots(1, len(cuts), squeeze=False)[0], cuts.items(), strict=True):
        owner = np.zeros((cut.bm, cut.bn), int)
        for thread in range(31, -1, -1):
            rows, cols = day44.outputs_of(kernel, cut, thread)
            owner[np.ix_(rows, cols)] = 1 if thread else 2
        axis.imshow(owner, cmap=ListedColormap(["#EEF1F4", SKY, VERMILION]), vmin=0, vmax=2, interpolation="nearest")
        axis.set_title(f"step {numbers[kernel]}: {cut.bm} × {cut.bn}, {cut.threads} threads", fontsize=10)
        axis.set_xticks([0, cut.bn // 2, cut.bn - 1])
        axis.set_yticks([0, cut.bm // 2, cut.bm - 1])
    handles = [
        Patch(facecolor=VERMILION, label="thread 0: its patch"),
        Patch(facecolor=SKY, label="the other 31 threads of the first warp"),
        Patch(facecolor="#EEF1F4", edgecolor="#999999", label="the block's other warps"),
    ]
    picture.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    picture.suptitle("on paper, from the tile sizes in the source", fontsize=9.5, color=GREY)
    return picture


def travelled(public: pd.DataFrame, evidence: Evidence) -> Picture:
    """Fractions of cuBLAS that authors claim on their cards, beside what was measured on another; and step 6 there.

    Args:
        public: the session's ``public_kernels``.
        evidence: of the card whose step 6 is drawn for comparison, if it is the same card.
    """
    picture = Picture("travelled", (9.6, 4.6), ALT["travelled"])
    axis = picture.subplots()
    table = public.dropna(subset="claimed").sort_values("here")
    at = np.arange(len(table))
    axis.hlines(at, table["here"], table["claimed"], color="#999999", linewidth=2)
    axis.plot(
        table["claimed"],
        at,
        "D",
        markersize=8,
        color=ORANGE,
        markeredgecolor=BLACK,
        label="claimed, on the author's card",
    )
    card = table["card"].iloc[0] if len(table) else ""
    axis.plot(table["here"], at, "o", markersize=9, color=BLUE, label=f"measured, {card}")
    axis.set_yticks(at, table["kernel"])
    n = int(table["n"].iloc[0]) if len(table) else 0
    if evidence.card == card and (ours := fraction(evidence, day44.WARPS, n)):
        axis.axvline(ours, color=GREEN, linestyle="--", label=f"step 6, {ours:.2f}")
    axis.axvline(1, color=BLACK, linewidth=1.2)
    axis.set(xlabel=f"fraction of cuBLAS's speed, N = {n}", ylim=(-0.6, len(table) - 0.4))
    axis.grid(axis="x", color="#D0D0D0", linewidth=0.6)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    _titled(axis, f"published claims; shipped, {card}", "source")
    picture.legend(loc="outside lower center", ncols=3, frameon=False)
    return picture


def _value(evidence: Evidence, kernel: str, n: int, metric: str) -> float:
    found = evidence.get(kernel, n, metric)
    return found.value if found else float("nan")


def _titled(axis: Axes, source: str, what: str) -> None:
    axis.set_title(f"{what}: {source or 'none here'}", fontsize=9.5, color=GREY)


def _nothing(axis: Axes, words: str) -> None:
    axis.text(0.5, 0.5, words, transform=axis.transAxes, ha="center", va="center")
