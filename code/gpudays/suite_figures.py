"""Suite-figures room: a bench's CSV as pictures, and the notes' own: the CPU loop, gains on two cards, the sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from gpudays import metrics, profiles
from gpudays.figures import BLACK, BLUE, MARKED, SKY, Picture
from gpudays.tables import Shown

PICTURES = {
    "time": (metrics.TIME, "ms", "time"),
    "gflops": (metrics.GFLOPS, "GFLOP/s", "arithmetic rate"),
    "speedup": (metrics.SPEEDUP_VS_CPU, "times the CPU loop", "speed-up over one CPU thread"),
    "fraction": (metrics.FRACTION_OF_CUBLAS, "of cuBLAS", "share of cuBLAS's rate"),
}
ALT = {
    "cpu": (
        "Two lines, the CPU loop's rate in GFLOP/s on two machines over the size of B, 256 KiB to 64 MiB: both are "
        "lowest at 64 MiB. Bars on one of them show the spread of its runs."
    ),
    "gains": (
        "Bars for four pairs of kernels, one for each card and size: how many times as fast one is as the other; "
        "for float4 behind checks the published card's bars end below 1, the course's card's above."
    ),
    "tiles": (
        "Left, the time of kernel 2 against that of TILE = 16 for tiles of side 8, 16 and 32, one line for each size; "
        "right, its load sectors, which halve with each doubling of the tile."
    ),
    "coarsening": (
        "Three plots over outputs per thread from 1 by 1 to 8 by 8: registers per thread, the card's rate, which rises "
        "to a peak at 4 by 4 and falls, and the rate of each multiprocessor at work, which is highest at 8 by 8."
    ),
}


def read(path: Path) -> pd.DataFrame:
    """A bench's CSV as measurements, source "live", the card its own.

    Raises:
        profiles.ProfileError: the file is missing, damaged, or holds rows of several cards; names file and line.
    """
    rows = profiles.read_csv(path, ("kernel", "m", "n", "k", "ms_median", "card"))
    cards = sorted(set(rows["card"]))
    if len(cards) != 1:
        line = int(rows.loc[rows["card"].ne(rows["card"].iloc[0]), "line"].iloc[0])
        raise profiles.ProfileError(path, line, f"rows of several cards ({', '.join(cards)}): times do not compare")
    return profiles.read_timing(path, "live", cards[0])


def chart(table: pd.DataFrame, name: str, kernels: Sequence[str] | None = None) -> Picture:
    """One picture of `PICTURES`: a line per kernel over the sizes, both axes logarithmic but for the share of cuBLAS.

    Args:
        table: measurements of one card; square sizes are drawn, others are left out.
        name: time, gflops, speedup or fraction.
        kernels: which, in what order (default: all that have the figure).

    Raises:
        ValueError: the table has no such figure at a square size.
    """
    metric, unit, title = PICTURES[name]
    rows = table[table["metric"].eq(metric) & table["n"].map(lambda n: isinstance(n, int))]
    if rows.empty:
        raise ValueError(f"no {title} at any square size: {metrics.plain(metric)} needs the rows it is relative to")
    order = [k for k in (kernels or dict.fromkeys(table["kernel"])) if k in set(rows["kernel"])]
    card, sizes = rows["card"].iloc[0], sorted(set(rows["n"]))
    alt = (
        f"{title.capitalize()} of {', '.join(order)} on {card} at N = {', '.join(map(str, sizes))}, one line a kernel."
    )
    picture = Picture(name, (8.0, 4.6), alt)
    axis = picture.subplots()
    for number, kernel in enumerate(order):
        colour, marker, line = MARKED[number % len(MARKED)]
        mine = rows[rows["kernel"].eq(kernel)].sort_values("n")
        face = colour if number < len(MARKED) else "white"
        axis.plot(mine["n"], mine["value"], color=colour, marker=marker, linestyle=line, label=kernel, mfc=face)
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, [str(n) for n in sizes])
    axis.minorticks_off()
    if name != "fraction":
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.set_xlabel("N, for N × N × N")
    axis.set_ylabel(unit)
    axis.set_title(f"{title[0].upper()}{title[1:]} ({rows['source'].iloc[0]}, {card})", loc="left", fontsize=11)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axis.legend(fontsize=9, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return picture


def write(path: Path, folder: Path) -> tuple[list[Path], list[str]]:
    """All pictures of a bench as PNGs in `folder`: those written, and why the others were not."""
    table, written, lacking = read(path), [], []
    sizes = table.groupby("kernel", sort=False)["n"].nunique()
    lines = list(sizes.index[sizes.eq(sizes.max())])  # a sweep at one size is no line over the sizes
    folder.mkdir(parents=True, exist_ok=True)
    for name in PICTURES:
        try:
            png = chart(table, name, lines).png()
        except ValueError as problem:
            lacking.append(f"{name}: {problem}")
            continue
        target = folder / f"{path.stem}-{name}.png"
        target.write_bytes(png)
        written.append(target)
    return written, lacking


# ---- the notes' own --------------------------------------------------------------------------------------------------


def cpu(shown: Shown) -> Picture:
    """The CPU loop's rate over the size of B, a line per machine.

    Args:
        shown: what ``suite_tables.cpu`` gave.
    """
    picture = Picture("cpu", (8.0, 4.0), ALT["cpu"])
    axis = picture.subplots()
    for (machine, rows), (colour, marker, line) in zip(
        shown.frame.groupby("machine", sort=False), MARKED, strict=False
    ):
        axis.plot(rows["B, MiB"], rows["GFLOP/s"], color=colour, marker=marker, linestyle=line, label=machine)
        axis.vlines(rows["B, MiB"], rows["slowest run"], rows["fastest run"], color=colour, linewidth=3, alpha=0.4)
    axis.set_xscale("log", base=2)
    sizes = sorted(set(shown.frame["B, MiB"]))
    axis.set_xticks(sizes, [f"{mib:g} MiB\nN = {round((mib * 2**18) ** 0.5)}" for mib in sizes])
    axis.minorticks_off()
    axis.set(ylim=(0, None), xlabel="size of B", ylabel="GFLOP/s of one thread")
    _finish(axis, shown.source)
    axis.legend(frameon=False)
    return picture


def gains(shown: Shown) -> Picture:
    """How many times as fast each kernel is as the one it is built on, bars per card and size.

    Args:
        shown: what ``suite_tables.gains`` gave.
    """
    picture = Picture("gains", (8.6, 4.6), ALT["gains"])
    axis = picture.subplots()
    table = shown.frame.set_index("times as fast")
    width, hatches = 0.86 / table.shape[1], ("", "//", "..")
    for place, name in enumerate(table.columns):
        card = place // len(hatches)
        at = np.arange(len(table)) + (place - (table.shape[1] - 1) / 2) * width
        axis.bar(
            at, table[name], width * 0.94, label=f"{name.split(', ')[0]}, N = {name.split(', ')[1]}",
            color=(BLUE, SKY)[card], hatch=hatches[place % len(hatches)], edgecolor="white" if card == 0 else BLACK,
            linewidth=0.6,
        )  # fmt: skip
        for x, factor in zip(at, table[name], strict=True):
            if np.isfinite(factor):
                axis.annotate(f"{factor:.2f}", (x, factor), (0, 2), textcoords="offset points", ha="center", fontsize=7)
    names = [move.replace("matmul", "").replace(" / ", "\nover ") for move in table.index]
    axis.set_xticks(range(len(table)), names)
    axis.axhline(1, color=BLACK, linewidth=1, linestyle=":")
    axis.set_ylabel("times as fast, in one run")
    _finish(axis, shown.source)
    picture.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return picture


def tiles(shown: Shown) -> Picture:
    """The tile sweep: times against TILE = 16, and sectors.

    Args:
        shown: what ``suite_tables.tile_sweep`` gave.
    """
    picture = Picture("tiles", (8.6, 4.0), ALT["tiles"])
    left, right = picture.subplots(1, 2, width_ratios=(3, 2))
    table = shown.frame.set_index("TILE")
    at, sides = range(len(table)), [f"TILE = {side}" for side in table.index]
    times = [name for name in table.columns if name.startswith("ms at ")]
    for name, (colour, marker, line) in zip(times, MARKED, strict=False):
        relative = table[name] / table.loc[16, name]
        left.plot(at, relative, color=colour, marker=marker, linestyle=line, label=f"N = {name.removeprefix('ms at ')}")
    left.set(ylabel="time against TILE = 16", ylim=(0, None))
    left.axhline(1, color=BLACK, linewidth=0.8, linestyle=":")
    left.legend(frameon=False, fontsize=9, loc="lower left")
    [counted] = [name for name in table.columns if name.startswith("million sectors")]
    drawn = right.bar(at, table[counted], 0.6, color=SKY, edgecolor=BLACK, linewidth=0.6)
    right.bar_label(drawn, [f"{count:.2f}" for count in table[counted]], fontsize=9, padding=2)
    right.set(ylabel=counted)
    right.margins(y=0.12)
    for axis, what in ((left, "times"), (right, "sectors")):
        axis.set_xticks(at, sides)
        _finish(axis, f"{what}: {shown.source.split('times ')[-1]}")
    return picture


def coarsening(shown: Shown) -> Picture:
    """The coarsening sweep: registers, the card's rate, and the rate of each multiprocessor that has a block.

    Args:
        shown: what ``suite_tables.coarsening`` gave.
    """
    picture = Picture("coarsening", (8.6, 6.6), ALT["coarsening"])
    axes, table = picture.subplots(3, 1, sharex=True), shown.frame
    at, timed = range(len(table)), f"times {shown.source.split('times ')[-1]}"
    drawn = axes[0].bar(at, table["registers"], 0.6, color=SKY, edgecolor=BLACK, linewidth=0.6)
    spills = [f"{spilled:,} B spilled" if spilled else f"{share:.0f} %" for spilled, share in
              zip(table["spilled, B"], table["occupancy, %"], strict=True)]  # fmt: skip
    axes[0].bar_label(drawn, spills, fontsize=9, padding=2)
    axes[0].set(ylabel="registers per thread", title="")
    axes[0].margins(y=0.2)
    _finish(axes[0], f"{shown.source.split('; ')[0]}; above the bars: theoretical occupancy, or bytes spilled")
    panels = (("GFLOP/s", "GFLOP/s of the card"), ("GFLOP/s per busy SM", "GFLOP/s per busy SM"))
    for axis, (column, unit), (colour, marker, line) in zip(axes[1:], panels, MARKED, strict=False):
        axis.plot(at, table[column], color=colour, marker=marker, linestyle=line)
        axis.set(ylabel=unit, ylim=(0, 1.18 * table[column].max()))
        _finish(axis, timed)
    for place, (rate, blocks) in enumerate(zip(table["GFLOP/s"], table["blocks"], strict=True)):
        axes[1].annotate(f"{blocks:,}", (place, rate), (0, 7), textcoords="offset points", ha="center", fontsize=9)
    axes[1].text(0.01, 0.06, "figures on the line: blocks of the launch", transform=axes[1].transAxes, fontsize=9)
    axes[2].set_xticks(at, table["outputs"])
    axes[2].set_xlabel("outputs per thread, rows × columns")
    return picture


def _finish(axis: Axes, source: str) -> None:
    """Source above, light grid, no frame."""
    axis.set_title(source, fontsize=9, color="#444444")
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axis.set_axisbelow(True)
