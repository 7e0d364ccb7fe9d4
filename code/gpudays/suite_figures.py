"""Suite-figures room: a bench's CSV as pictures: time, arithmetic rate, speed-up over the CPU loop, share of cuBLAS."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from gpudays import metrics, profiles
from gpudays.figures import MARKED, Picture

PICTURES = {
    "time": (metrics.TIME, "ms", "time"),
    "gflops": (metrics.GFLOPS, "GFLOP/s", "arithmetic rate"),
    "speedup": (metrics.SPEEDUP_VS_CPU, "times the CPU loop", "speed-up over one CPU thread"),
    "fraction": (metrics.FRACTION_OF_CUBLAS, "of cuBLAS", "share of cuBLAS's rate"),
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
