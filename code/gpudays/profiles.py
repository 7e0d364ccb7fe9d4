"""Profiles room: the exports that the course ships under ``content/profiles``, read into the tidy table or refused.

A folder that is not there, or is not complete, is no error: what is missing is said, and a page goes on. A file that is
there and cannot be read is an error with its name and line: figures are never read past damage.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from gpudays import measurements, metrics, ncu_csv

PUBLISHED_CARD = "Tesla T4"  # what every published-t4-*.csv was measured on: content/profiles/README.md
_TIMES = {
    "ms_median": metrics.TIME, "ms_mean": metrics.TIME_MEAN, "ms_min": metrics.TIME_MIN, "ms_max": metrics.TIME_MAX,
    "time_ms": metrics.TIME, "gflops": metrics.GFLOPS, "fraction_of_cublas": metrics.FRACTION_OF_CUBLAS,
    "speedup_vs_cpu": metrics.SPEEDUP_VS_CPU,
}  # fmt: skip
_MAY_BE_EMPTY = {"fraction_of_cublas", "speedup_vs_cpu"}  # a run without cuBLAS or CPU loop leaves them so
_UNITS = {"KB": 1e3, "MB": 1e6, "GB": 1e9}


class ProfileError(ValueError):
    """A shipped file is damaged, empty or not what its name says; the message has the file and the line."""

    def __init__(self, path: Path, line: int, what: str) -> None:
        self.path, self.line = path, line
        super().__init__(f"{path.name}, line {line}: {what} ({path})")


@dataclass(frozen=True)
class Figures:
    """What a folder holds of one kind.

    Attributes:
        table: the tidy table, perhaps empty.
        origin: one line that says where the figures come from, or that there are none.
        missing: what is not there, one line each.
        card: whose figures they are, "" if there are none.
        machine: what ``machine.json`` says; {} for published figures.
    """

    table: pd.DataFrame
    origin: str
    missing: tuple[str, ...] = ()
    card: str = ""
    machine: dict | None = None

    def __bool__(self) -> bool:
        return not self.table.empty


def home() -> Path | None:
    """The course's folder (the one with ``content/profiles``): ``GPUDAYS_HOME``, the checkout that holds this package,
    or the working directory or one above it."""
    named = os.environ.get("GPUDAYS_HOME")
    places = [Path(named)] if named else [Path(__file__).resolve().parents[2], Path.cwd(), *Path.cwd().parents]
    return next((place for place in places if (place / "content" / "profiles").is_dir()), None)


def folder(name: str) -> Path | None:
    """``content/profiles/NAME``, or None where there is none."""
    place = home()
    found = place / "content" / "profiles" / name if place else None
    return found if found and found.is_dir() else None


def shipped(name: str) -> Figures:
    """What the course's own GPU host measured for one program.

    Args:
        name: the folder under ``content/profiles``, as "optimizing-matmul-1".

    Raises:
        ProfileError: a file is damaged.
    """
    place = folder(name)
    if place is None:
        where = home()
        why = f"{where}/content/profiles has no {name}" if where else "there is no content/profiles; set GPUDAYS_HOME"
        return Figures(measurements.empty(), f"no shipped figures: {why}", (why,))
    machine = read_machine(place / "machine.json") if (place / "machine.json").exists() else {}
    details = sorted(place.glob("*.details.csv"))
    timings = sorted([*place.glob("*.timing.csv"), *place.glob("results.csv")])
    missing = [
        f"{name}: {what}"
        for there, what in (
            (machine, "no machine.json, so nothing says which card"),
            (details, "no .details.csv: no shipped counters"),
            (timings, "no timing table: no shipped times"),
        )
        if not there
    ]
    if not machine or not (details or timings):
        return Figures(measurements.empty(), f"no shipped figures: {'; '.join(missing)}", tuple(missing), "", machine)
    card = machine["card"]
    tables = [read_details(path, size_in_name(path), card) for path in details]
    tables += [read_timing(path, "shipped", card) for path in timings]
    origin = f"shipped: {card}, driver {machine.get('driver', 'unknown')}, {machine.get('date', 'date unknown')}"
    table = measurements.with_derived(measurements.concat(tables))
    return Figures(table, origin, tuple(missing), card, machine)


def published(name: str) -> Figures:
    """What others published for a Tesla T4 about one program's kernels.

    Raises:
        ProfileError: a file is damaged.
    """
    place = folder(name)
    readers: dict[str, Callable[[Path], pd.DataFrame]] = {
        "published-t4-timing.csv": lambda path: read_timing(path, "published", PUBLISHED_CARD),
        "published-t4-counters.csv": read_published_counters,
        "published-t4-benchmark.csv": read_published_benchmark,
        "published-t4-more.csv": lambda path: read_tidy(path, "published", PUBLISHED_CARD),
    }
    found = [reader(place / file) for file, reader in readers.items() if place and (place / file).exists()]
    if not found:
        return Figures(measurements.empty(), "no published figures here", (f"{name}: no published-t4-*.csv",))
    table = measurements.with_derived(measurements.concat(found))
    return Figures(table, f"published: {PUBLISHED_CARD}", (), PUBLISHED_CARD, {})


# ---- one file each ---------------------------------------------------------------------------------------------------


def read_details(path: Path, n: int | str, card: str) -> pd.DataFrame:
    """An export of ``ncu --page details --csv``, source "shipped"."""
    try:
        return ncu_csv.parse(_text(path)).tidy(n, "shipped", card)
    except ncu_csv.CounterTableError as problem:
        raise ProfileError(path, problem.line, problem.what) from problem


def read_timing(path: Path, source: str, card: str) -> pd.DataFrame:
    """A timing table: ``kernel``, ``n`` or ``m, n, k``, and times in ms (``ms_median``, ``ms_mean`` or ``time_ms``).

    The leading time is the median where there is one, else the mean. A ``card`` column must agree with ``card``.
    """
    rows = read_csv(path, required=("kernel", "n"))
    given = [column for column in _TIMES if column in rows.columns]
    if not any(column in given for column in ("ms_median", "ms_mean", "time_ms")):
        raise ProfileError(path, 1, "no column of times: ms_median, ms_mean or time_ms")
    tables, seen = [], set()
    for row in rows.to_dict("records"):
        line = row["line"]
        if row.get("card", card) != card:
            raise ProfileError(path, line, f"the row is of a {row['card']}, the folder of a {card}")
        sides = [row[side] for side in "mnk"] if "m" in row and "k" in row else [row["n"]] * 3
        n = measurements.size_label(*(_whole(path, line, side) for side in sides))
        if (row["kernel"], n) in seen or not row["kernel"]:
            raise ProfileError(path, line, f"the kernel is {row['kernel']!r}, at {n} a second time or without a name")
        seen.add((row["kernel"], n))
        figures = {_TIMES[c]: _positive(path, line, c, row[c]) for c in given if row[c] != "" or c not in _MAY_BE_EMPTY}
        figures.setdefault(metrics.TIME, figures.get(metrics.TIME_MEAN))
        tables.append(measurements.table(row["kernel"], n, figures, source, card))
    return measurements.concat(tables)


def read_published_counters(path: Path, n: int = 512) -> pd.DataFrame:
    """The published counter table: a row per metric, a column per kernel, at N = 512."""
    rows = read_csv(path, required=("metric", "unit"))
    kernels = [column for column in rows.columns if column not in ("metric", "unit", "line")]
    if not kernels:
        raise ProfileError(path, 1, "no column of a kernel")
    tables = []
    for row in rows.to_dict("records"):
        if row["metric"] not in metrics.METRICS:
            raise ProfileError(path, row["line"], f"no metric is called {row['metric']!r}")
        scale = _UNITS.get(row["unit"], 1.0)
        for kernel in kernels:
            value = _number(path, row["line"], kernel, row[kernel]) * scale
            tables.append(measurements.table(kernel, n, {row["metric"]: value}, "published", PUBLISHED_CARD))
    return measurements.concat(tables)


def read_published_benchmark(path: Path) -> pd.DataFrame:
    """The published benchmark of the optimisation suite: a row per kernel, columns as ``n1024_ms``."""
    rows = read_csv(path, required=("kernel",))
    named = {"ms": metrics.TIME, "gflops": metrics.GFLOPS, "speedup_vs_cpu": metrics.SPEEDUP_VS_CPU}
    columns = {c: m for c in rows.columns if (m := re.fullmatch(r"n(\d+)_(ms|gflops|speedup_vs_cpu)", c))}
    if not columns:
        raise ProfileError(path, 1, "no column of figures, as n1024_ms")
    tables = []
    for row in rows.to_dict("records"):
        for column, match in columns.items():
            figure = {named[match[2]]: _positive(path, row["line"], column, row[column])}
            tables.append(measurements.table(row["kernel"], int(match[1]), figure, "published", PUBLISHED_CARD))
    return measurements.concat(tables)


def read_tidy(path: Path, source: str, card: str) -> pd.DataFrame:
    """A long table: kernel, n, metric, value."""
    tables = []
    for row in read_csv(path, required=("kernel", "n", "metric", "value")).to_dict("records"):
        if row["metric"] not in metrics.METRICS:
            raise ProfileError(path, row["line"], f"no metric is called {row['metric']!r}")
        n = _whole(path, row["line"], row["n"])
        value = _number(path, row["line"], "value", row["value"])
        tables.append(measurements.table(row["kernel"], n, {row["metric"]: value}, source, card))
    return measurements.concat(tables)


def read_csv(path: Path, required: Iterable[str] = ()) -> pd.DataFrame:
    """A CSV as text cells plus a ``line`` column, or a refusal.

    Raises:
        ProfileError: empty, a column missing or twice, no rows, a row of another width, an unfinished quote.
    """
    text = _text(path)
    reader = csv.reader(text.splitlines(), strict=True)
    rows, line = [], 1
    try:
        header = next(reader, [])
        lacking = [name for name in required if name not in header]
        if lacking:
            raise ProfileError(path, 1, f"no column {', '.join(lacking)} in its header {','.join(header)!r}")
        if len(set(header)) < len(header):
            raise ProfileError(path, 1, "a column stands there twice")
        for cells in reader:
            line = reader.line_num
            if len(cells) != len(header):
                raise ProfileError(path, line, f"{len(cells)} cells where the header has {len(header)}")
            rows.append([*cells, line])
    except csv.Error as problem:
        raise ProfileError(path, line + 1, f"damaged or cut off ({problem})") from problem
    if not rows:
        raise ProfileError(path, 1, "a header and no rows")
    return pd.DataFrame(rows, columns=[*header, "line"])


def read_machine(path: Path) -> dict:
    """``machine.json``: at least the card, as text."""
    try:
        machine = json.loads(_text(path))
    except json.JSONDecodeError as problem:
        raise ProfileError(path, problem.lineno, f"no JSON ({problem.msg})") from problem
    if not isinstance(machine, dict) or not isinstance(machine.get("card"), str) or not machine["card"]:
        raise ProfileError(path, 1, "it does not name the card")
    return machine


def size_in_name(path: Path) -> int | str:
    """The size that a file's name ends in: ``NAME-512.details.csv`` or ``NAME-35x79x19.details.csv``."""
    found = re.search(r"-(\d+)(?:x(\d+)x(\d+))?\.details\.csv$", path.name)
    if not found:
        raise ProfileError(path, 1, "its name does not end in a size, as NAME-512.details.csv")
    if found[2] is None:
        return int(found[1])
    return measurements.size_label(*(int(side) for side in found.groups()))


def _text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise ProfileError(path, 1, f"no UTF-8 text ({problem.reason})") from problem
    if not text.strip():
        raise ProfileError(path, 1, "the file is empty")
    return text


def _number(path: Path, line: int, column: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ProfileError(path, line, f"{column} is {text!r}, not a number") from None
    if not math.isfinite(number):
        raise ProfileError(path, line, f"{column} is {text}, not a finite number")
    return number


def _positive(path: Path, line: int, column: str, text: str) -> float:
    number = _number(path, line, column, text)
    if number <= 0:
        raise ProfileError(path, line, f"{column} is {text}; it should be above zero")
    return number


def _whole(path: Path, line: int, text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ProfileError(path, line, f"the size is {text!r}, not a whole number of at least 1")
    return int(text)
