"""Profiles room, Day 44: the shipped sweep of patches, step 6 with tiles of other cards, and published kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from gpudays import measurements, metrics, profiles
from gpudays.course.day44 import SWEEP, WARPS, swept, transplant
from gpudays.profiles import ProfileError

SWEEP_FILE, TRANSPLANTS_FILE, PUBLIC_FILE = "patch-sweep.csv", "transplanted-tiles.csv", "public-kernels.csv"
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
    tables = []
    for row in _rows(place, SWEEP_FILE, card, "patch_rows", "patch_cols"):
        patch = f"{row['patch_rows']}×{row['patch_cols']}"
        if patch not in SWEEP:
            raise ProfileError(place / SWEEP_FILE, row["line"], f"a patch of {patch}; the sweep has {', '.join(SWEEP)}")
        tables.append(_times(place / SWEEP_FILE, row, swept(patch)))
    return measurements.concat(tables)


def transplant_times(place: Path | None, card: str) -> pd.DataFrame:
    """The times of step 6 with the tiles of other architectures, as ``sweep_times`` gives those of the sweep.

    Raises:
        ProfileError: the file is damaged, or of another card.
    """
    rows = _rows(place, TRANSPLANTS_FILE, card, "row_of")
    return measurements.concat([_times(place / TRANSPLANTS_FILE, row, transplant(row["row_of"])) for row in rows])


def write_transplants(path: Path, measured: pd.DataFrame, homes: Sequence[str]) -> None:
    """Write the times that ``transplant_times`` reads, from a measurements table of one size and card."""
    rows = []
    for home in homes:
        mine = measured[measured["kernel"] == transplant(home)]
        values = mine.set_index("metric")["value"]
        times = {column: f"{values[metric]:.6f}" for column, metric in _TIMES.items()}
        rows.append({"kernel": WARPS, "row_of": home, "n": mine["n"].iloc[0], **times, "card": mine["card"].iloc[0]})
    pd.DataFrame(rows).to_csv(path, index=False, lineterminator="\n")


def _rows(place: Path | None, name: str, card: str, *columns: str) -> list[dict[str, str]]:
    """The rows of a file of times, which have to be the card's; none where there is no such file or no card."""
    path = place / name if place else None
    if not card or path is None or not path.exists():
        return []
    rows = profiles.read_csv(path, (*columns, "n", "card", *_TIMES)).to_dict("records")
    for row in rows:
        if row["card"] != card:
            raise ProfileError(path, row["line"], f"the row is of a {row['card']}, the folder of a {card}")
    return rows


def _times(path: Path, row: dict[str, str], name: str) -> pd.DataFrame:
    times = {metric: _positive(path, row["line"], column, row[column]) for column, metric in _TIMES.items()}
    return measurements.table(name, int(row["n"]), times, "shipped", row["card"])


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
