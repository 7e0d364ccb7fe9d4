"""Figures room, tiles: what a block stages, which banks a warp uses, what a tile saves, and what its side trades.

As in ``figures``: every function returns a :class:`~gpudays.figures.Picture` that carries its alt text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, NullLocator

from gpudays.figures import BLACK, BLUE, MARKED, SKY, VERMILION, Picture
from gpudays.ptx.model import BANKS
from gpudays.staging import BankUse, Staged

OUTSIDE = {"facecolor": "white", "edgecolor": VERMILION, "hatch": "xxxx"}
ALT = {
    "staging": (
        "The matrices A, B and C as they are multiplied, with C in the corner between them. One block's tile of C is "
        "outlined; the tile of A to its left and the tile of B above it are filled with the floats that the block "
        "reads in one tile step, the first warp's two rows darker, and crosses where a tile hangs over the edge."
    ),
    "banks": (
        "Shared memory as rows of 32 banks, once for each write and read of a tile: the words that one warp touches, "
        "with the number of lanes that share a word; a bank in which lanes want different words is marked."
    ),
    "what_fell": (
        "A row for each quantity and a marker for each size, on a scale of times fewer in the tiled kernel: floats "
        "read per thread and global requests lie at 16, global sectors at 8, and all that a card measures, from the "
        "sectors past the L1 to the time, lies far below, near 1."
    ),
    "tile_sweep": (
        "Four small plots over tiles of 8, 16 and 32: global load sectors halve with each doubling, shared load "
        "wavefronts stay, theoretical occupancy differs by architecture, and time."
    ),
}


def staging(panels: Sequence[Staged]) -> Picture:
    """One panel for each tile step: where the block's tiles lie in A, B and C, and which floats it reads.

    Args:
        panels: of one kernel at one size, from :func:`gpudays.staging.staged`.
    """
    m, n, k = panels[0].size
    gap = panels[0].tile + 5  # a tile may hang over the edge by almost its side
    height = 4.0 * (m + k + 1.3 * gap + 5) / (k + n + 2 * gap) + 1.2
    picture = Picture("staging", (4.1 * len(panels), max(height, 3.0)), ALT["staging"])
    for axis, panel in zip(picture.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _staged(axis, panel)
    handles = [
        Patch(facecolor=BLUE, label="read by warp 0"),
        Patch(facecolor=SKY, label="read by the block's other warps"),
        Patch(**OUTSIDE, label="outside the matrix: 0 is written"),
        Patch(facecolor="#F3D9A4", edgecolor=BLACK, label="the block's tile of C"),
    ]
    picture.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=10)
    return picture


def _staged(axis: Axes, panel: Staged) -> None:
    """A below left, B above right, C in the corner between: each element of C lies in line with what it is made of."""
    m, n, k = panel.size
    gap = panel.tile + 5
    origins = {"A": (0, k + gap), "B": (k + gap, 0), "C": (k + gap, k + gap)}  # x, y
    for name, (x, y) in origins.items():
        rows, cols = panel.shapes[name]
        axis.add_patch(Rectangle((x, y), cols, rows, facecolor="#F4F4F4", edgecolor=BLACK, linewidth=1.0))
        axis.text(x + cols / 2, y - 0.8, f"{name}: {rows} × {cols}", ha="center", va="bottom", fontsize=9)
        top, left = panel.corners[name]
        look = {"facecolor": "#F3D9A4", "edgecolor": BLACK} if name == "C" else OUTSIDE
        tall, wide = panel.tile, panel.tile
        if name == "C":
            tall, wide = min(tall, rows - top), min(wide, cols - left)
        axis.add_patch(Rectangle((x + left, y + top), wide, tall, linewidth=0.8, zorder=2, **look))
        for row, col, warp in panel.elements.get(name, ()):
            colour = BLUE if warp == 0 else SKY
            axis.add_patch(Rectangle((x + col, y + row), 1, 1, facecolor=colour, edgecolor=colour, zorder=3, lw=0.1))
        axis.add_patch(Rectangle((x + left, y + top), wide, tall, linewidth=1.0, fill=False, zorder=4))
    axis.set_xlim(-1, n + k + 2 * gap)
    axis.set_ylim(m + k + 1.3 * gap + panel.tile * (panel.corners["A"][0] + panel.tile > m), -5)
    axis.set_aspect("equal")
    axis.set(xticks=[], yticks=[], frame_on=False)
    read = ", ".join(f"{len(floats)} of {name}" for name, floats in panel.elements.items())
    title = f"block {panel.block}, tile step {panel.tile_step}"
    axis.set_title(f"{title} (traced)\nreads {read}; writes {panel.zeros} zeros", fontsize=10)


def banks(uses: Sequence[BankUse], columns: int = 2) -> Picture:
    """One panel for each shared-memory request of a warp: the words it touches, bank by bank."""
    rows = -(-len(uses) // columns)
    tall = [max(_bank_rows(use) for use in uses[r * columns : (r + 1) * columns]) for r in range(rows)]
    picture = Picture("banks", (4.1 * columns, 0.7 + sum(0.18 * t + 0.85 for t in tall)), ALT["banks"])
    axes = picture.subplots(rows, columns, squeeze=False, height_ratios=tall).ravel()
    for axis, use in zip(axes, uses, strict=False):
        _banks(axis, use, tall[list(axes).index(axis) // columns])
    for axis in axes[len(uses) :]:
        axis.set_axis_off()
    handles = [
        Patch(facecolor=BLUE, label="word that lanes touch (how many, if more than one)"),
    ]
    if any(use.wavefronts > 1 for use in uses):
        look = {"facecolor": VERMILION, "edgecolor": "white", "hatch": "//"}
        handles.append(Patch(**look, label="different words of one bank: they take turns"))
    picture.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return picture


def _bank_rows(use: BankUse) -> int:
    return max(int(use.words.max()) // BANKS + 1, 2)


def _banks(axis: Axes, use: BankUse, rows: int) -> None:
    words, lanes = np.unique(use.words, return_counts=True)
    in_bank = np.bincount(words % BANKS, minlength=BANKS)
    for word, sharing in zip(words, lanes, strict=True):
        row, bank = divmod(int(word), BANKS)
        crowded = in_bank[bank] > 1
        look = {"facecolor": VERMILION, "hatch": "//"} if crowded else {"facecolor": BLUE}
        axis.add_patch(Rectangle((bank, row), 1, 1, edgecolor="white", linewidth=0.6, **look))
        if sharing > 1:
            axis.text(bank + 0.5, row + 0.52, sharing, color="white", ha="center", va="center", fontsize=6)
    for edge in range(BANKS + 1):
        axis.axvline(edge, color="#D8D8D8", linewidth=0.5, zorder=0)
    for edge in range(rows + 1):
        axis.axhline(edge, color="#D8D8D8", linewidth=0.5, zorder=0)
    axis.set_xlim(0, BANKS)
    axis.set_ylim(rows, 0)
    axis.set_xticks([0.5, 7.5, 15.5, 23.5, 31.5], ["0", "7", "15", "23", "31"])
    axis.set_xlabel("bank", fontsize=8, labelpad=-1)
    axis.set_yticks([])
    axis.tick_params(length=0, labelsize=8)
    turns = f"{use.wavefronts} wavefront{'s' if use.wavefronts > 1 else ''}"
    axis.set_title(f"{use.name}: {len(words)} words, {turns} (traced)", fontsize=10)


def what_fell(fell: pd.DataFrame) -> Picture:
    """How many times fewer of each thing the tiled kernel needs, a marker for each size, on a logarithmic scale.

    Args:
        fell: what :func:`gpudays.tile_tables.fell` shows: a row for each quantity ("times fewer" names it), a column
            for each size (NaN where nothing is known), and a column "source".
    """
    fell = fell.set_index("times fewer")
    picture = Picture("what_fell", (8.2, 1.3 + 0.6 * len(fell)), ALT["what_fell"])
    axis = picture.subplots()
    ratios = fell.drop(columns="source")
    at = np.arange(len(fell))
    for place, name in enumerate(ratios.columns):
        colour, marker, _ = MARKED[place % len(MARKED)]
        height = at + 0.19 * (place - (len(ratios.columns) - 1) / 2)
        axis.plot(ratios[name], height, linestyle="", marker=marker, color=colour, markersize=8, label=f"N = {name}")
        for x, y in zip(ratios[name], height, strict=True):
            if np.isfinite(x):
                axis.annotate(f"{x:.3g}×", (x, y), (8, 0), textcoords="offset points", va="center", fontsize=8.5)
    ticks = [0.5, 1, 2, 4, 8, 16]
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator(ticks))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xticks(ticks, [f"{t:g}×" for t in ticks])
    axis.set_xlim(min(0.7, 0.85 * float(np.nanmin(ratios.to_numpy(float), initial=1.0))), 24)
    axis.set_yticks(at, [f"{what}\n[{source}]" for what, source in fell["source"].items()], fontsize=9)
    axis.set_ylim(len(fell) - 0.5, -0.5)
    axis.axvline(1, color=BLACK, linewidth=0.9, linestyle=":")
    axis.grid(axis="x", color="#D0D0D0", linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel("times fewer in the tiled kernel than in the naive one")
    picture.legend(loc="outside lower center", ncols=len(ratios.columns), frameon=False)
    return picture


def tile_sweep(panels: dict[str, tuple[pd.DataFrame, str, str]]) -> Picture:
    """What the side of the tile changes, a small plot for each quantity.

    Args:
        panels: by title: a frame (index: TILE, a column for each line), the unit, and the source.
    """
    picture = Picture("tile_sweep", (8.2, 6.0), ALT["tile_sweep"])
    axes = picture.subplots(2, 2).ravel()
    for axis, (title, (frame, unit, source)) in zip(axes, panels.items(), strict=True):
        places = range(len(frame.index))
        for number, name in enumerate(frame.columns):
            colour, marker, style = MARKED[number % len(MARKED)]
            axis.plot(
                places, frame[name], color=colour, marker=marker, linestyle=style, linewidth=1.8, label=name,
                markersize=max(9 - 2 * number, 4),
            )  # fmt: skip
        axis.set_title(f"{title}\n", fontsize=11)
        axis.text(0.5, 1.03, source, transform=axis.transAxes, ha="center", fontsize=8.5, color="#444444")
        axis.set_xticks(places, [f"TILE = {t}" for t in frame.index])
        axis.set_xlim(-0.3, len(frame.index) - 0.7)
        top = float(np.nanmax(frame.to_numpy(float), initial=0.0))
        axis.set_ylim(0, 1.15 * top or 1)
        axis.set_ylabel(unit)
        axis.grid(axis="y", color="#D0D0D0", linewidth=0.6)
        axis.set_axisbelow(True)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
        if len(frame.columns) > 1:
            axis.legend(frameon=False, fontsize=8.5, loc="lower center")
        if frame.isna().all(axis=None):
            axis.text(0.5, 0.5, "no figures here", transform=axis.transAxes, ha="center", va="center")
    return picture
