"""Profiles room, Day 44: the shipped sweep of patches, and public kernels away from the cards of their authors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from gpudays import measurements, metrics, profiles
from gpudays.course.day44 import SWEEP, swept
from gpudays.profiles import ProfileError

SWEEP_FILE, PUBLIC_FILE = "patch-sweep.csv", "public-kernels.csv"
_TIMES = {
    "ms_median": metrics.TIME, "ms_min": metrics.TIME_MIN, "ms_max": metrics.TIME_MAX,
    "fraction_of_cublas": metrics.FRACTION_OF_CUBLAS,
}  # fmt: skip


def sweep_times(place: Path | None, card: str) -> pd.DataFrame:
    """The times of the shipped sweep as a measurements table; empty where there is no such file.

    Args:
        place: the day's folder under ``content/profiles``, or None.
        card: whose figures the folder holds; "" where nothing says so, and then none are taken from it.

    Raises:
        ProfileError: the file is damaged, or of another card.
    """
    path = place / SWEEP_FILE if place else None
    if not card or path is None or not path.exists():
        return measurements.empty()
    tables = []
    for row in profiles.read_csv(path, ("patch_rows", "patch_cols", "n", "card", *_TIMES)).to_dict("records"):
        patch, line = f"{row['patch_rows']}×{row['patch_cols']}", row["line"]
        if patch not in SWEEP:
            raise ProfileError(path, line, f"a patch of {patch}; the sweep has {', '.join(SWEEP)}")
        if row["card"] != card:
            raise ProfileError(path, line, f"the row is of a {row['card']}, the folder of a {card}")
        times = {metric: _positive(path, line, column, row[column]) for column, metric in _TIMES.items()}
        tables.append(measurements.table(swept(patch), int(row["n"]), times, "shipped", card))
    return measurements.concat(tables)


def public_kernels(place: Path | None) -> pd.DataFrame:
    """Kernels that others published: columns kernel, n, here, claimed (fractions of cuBLAS; NaN: no claim), card.

    ``here`` was measured on the card that is named, ``claimed`` by the kernels' authors on theirs. Empty where there is
    no such file.

    Raises:
        ProfileError: the file is damaged.
    """
    path = place / PUBLIC_FILE if place else None
    columns = ["kernel", "n", "here", "claimed", "card"]
    if path is None or not path.exists():
        return pd.DataFrame(columns=columns)
    rows = []
    for row in profiles.read_csv(path, ("kernel", "n", "fraction_of_cublas", "fraction_claimed", "card")).to_dict(
        "records"
    ):
        here = _positive(path, row["line"], "fraction_of_cublas", row["fraction_of_cublas"])
        claim = row["fraction_claimed"]
        claimed = _positive(path, row["line"], "fraction_claimed", claim) if claim else float("nan")
        rows.append((row["kernel"], int(row["n"]), here, claimed, row["card"]))
    return pd.DataFrame(rows, columns=columns)


def _positive(path: Path, line: int, column: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ProfileError(path, line, f"{column} is {text!r}, not a number") from None
    if not 0 < number < float("inf"):
        raise ProfileError(path, line, f"{column} is {text}; it should be above zero")
    return number


def experiments(path: Path, numbers: Sequence[int]) -> pd.DataFrame:
    """Rows of the table of experiments in Day 44's notes: columns #, change, expected, came out, as they stand there.

    Args:
        path: ``NOTES.md``.
        numbers: which experiments.

    Raises:
        ProfileError: no such file, or an experiment that is not in it.
    """
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = {}
    for line in text.splitlines():
        cells = [re.sub(r"[*`]", "", cell).strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].isdigit():
            found[int(cells[0])] = cells
    if missing := [number for number in numbers if number not in found]:
        raise ProfileError(path, 1, f"no experiment {', '.join(map(str, missing))}; there are {len(found)}")
    return pd.DataFrame([found[number] for number in numbers], columns=["#", "change", "expected", "came out"])
