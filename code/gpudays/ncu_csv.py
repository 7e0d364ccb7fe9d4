"""Counter-table room: reads the long CSV of Nsight Compute (``--csv``, one row per launch and metric), or refuses it.

Format: NVIDIA, "Nsight Compute CLI" documentation, options ``--csv`` and ``--page details``. Numbers carry thousands
separators; a metric that could not be collected is ``N/A``; rows of rules carry no metric.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass

import pandas as pd

from gpudays import measurements, metrics

ROW_COLUMNS = ["launch", "kernel", "block", "grid", "metric", "value", "unit"]
_NEEDED = ("ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value")
_NUMBER = re.compile(r"-?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?(e[+-]?\d+)?", re.IGNORECASE)
_ABSENT = {"n/a", "nan", "-nan", "no data", "(!) n/a", "(!) nan"}

# The details page shows these metrics under a label instead of their name, one of them twice with different units.
_LABELS = {
    ("Compute (SM) Throughput", "%"): metrics.SM_THROUGHPUT,
    ("Memory Throughput", "%"): metrics.MEMORY_THROUGHPUT,
    ("Achieved Occupancy", "%"): metrics.WARPS_ACTIVE,
    ("L1/TEX Hit Rate", "%"): metrics.L1_HIT_RATE,
    ("L2 Hit Rate", "%"): metrics.L2_HIT_RATE,
}
_SCALES = {
    "byte": {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9},
    "ns": {"ns": 1, "nsecond": 1, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9},
}


class CounterTableError(ValueError):
    """The text is no counter table, or a damaged one. ``line`` counts from 1."""

    def __init__(self, line: int, what: str) -> None:
        self.line, self.what = line, what
        super().__init__(f"line {line}: {what}")


@dataclass(frozen=True)
class Counters:
    """A parsed table.

    Attributes:
        rows: one row per launch and registered metric: launch (ncu's ID), kernel, block, grid, metric (its name),
            value and unit (base units).
        absent: (kernel, metric) pairs that ncu reports as not available.
    """

    rows: pd.DataFrame
    absent: tuple[tuple[str, str], ...]

    def tidy(self, n: int | str, source: str, card: str) -> pd.DataFrame:
        """The measurements of each kernel's first launch, all at one size."""
        first = self.rows[self.rows["launch"].eq(self.rows.groupby("kernel")["launch"].transform("min"))]
        return measurements.concat(
            measurements.table(kernel, n, dict(zip(group["metric"], group["value"], strict=True)), source, card)
            for kernel, group in first.groupby("kernel", sort=False)
        )


def parse(text: str) -> Counters:
    """Read a counter table; what stands before its header (``==PROF==`` lines, a program's output) is skipped.

    Raises:
        CounterTableError: no header, no launches, a row of another width, a value that is no number.
    """
    header, start = _find_header(text)
    at = {name: header.index(name) for name in header}
    rows, absent, launches = [], [], set()
    for line, row in _rows(text, start, header):
        launch = row[at["ID"]]
        if not launch.isdigit():
            raise CounterTableError(line, f"ID should be a launch's number, not {launch!r}")
        launches.add(int(launch))
        kernel, unit = kernel_name(row[at["Kernel Name"]]), row[at["Metric Unit"]]
        name = _LABELS.get((row[at["Metric Name"]], unit), row[at["Metric Name"]])
        if name not in metrics.METRICS:
            continue
        value = _value(line, name, row[at["Metric Value"]], unit)
        if value is None:
            absent.append((kernel, name))
            continue
        block, grid = (row[at[c]] if c in at else "" for c in ("Block Size", "Grid Size"))
        rows.append((int(launch), kernel, block, grid, name, value, metrics.unit(name)))
    if not launches:
        raise CounterTableError(start, "a header and no launches: the export is empty")
    table = pd.DataFrame(rows, columns=ROW_COLUMNS).drop_duplicates(["launch", "metric"], ignore_index=True)
    return Counters(table, tuple(dict.fromkeys(absent)))


def _find_header(text: str) -> tuple[list[str], int]:
    """The header's cells and its line number."""
    lines = text.splitlines()
    if not any(line.strip() for line in lines):
        raise CounterTableError(1, "the file is empty")
    for number, line in enumerate(lines, 1):
        if "Metric Name" in line or '"ID"' in line:
            header = next(csv.reader([line]))
            missing = [name for name in _NEEDED if name not in header]
            if missing:
                raise CounterTableError(
                    number, f"the header lacks {', '.join(missing)}: not the long table of ncu --csv --page details"
                )
            return header, number
    shown = next(line for line in lines if line.strip())[:60]
    raise CounterTableError(1, f"not an export of ncu --csv: no header with Metric Name; it begins with {shown!r}")


def _rows(text: str, start: int, header: list[str]):
    """(line number, cells) of each row after the header.

    A metric's row ends where the columns of rules begin: ncu 2025.3 writes one empty cell for all of those.
    """
    width = len(header)
    short = header.index("Rule Name") + 1 if "Rule Name" in header else width
    body = "".join(text.splitlines(keepends=True)[start:])
    reader = csv.reader(io.StringIO(body), strict=True)
    before = 0
    try:
        for row in reader:
            line, before = start + before + 1, reader.line_num
            if not row or row[0].startswith("=="):
                continue
            if len(row) != width and not (len(row) == short and row[-1] == ""):
                raise CounterTableError(line, f"{len(row)} cells where the header has {width}: damaged or cut off")
            yield line, row
    except csv.Error as problem:
        raise CounterTableError(start + before + 1, f"damaged or cut off ({problem})") from problem


def _value(line: int, name: str, text: str, unit: str) -> float | None:
    """A value in the metric's base unit; None where ncu could not collect it, which is not zero."""
    if text.strip().lower() in _ABSENT:
        return None
    if not _NUMBER.fullmatch(text.strip()):
        raise CounterTableError(line, f"the value of {name} is {text!r}, not a number (export with LC_ALL=C)")
    number = float(text.replace(",", ""))
    base = metrics.unit(name)
    if base not in _SCALES:
        return number
    if unit not in _SCALES[base]:
        raise CounterTableError(line, f"the unit of {name} is {unit!r}, which is no multiple of {base}")
    return number * _SCALES[base][unit]


def kernel_name(text: str) -> str:
    """ncu's kernel name as the source writes it: ``void tile<(int)32>(const float *)`` is ``tile<32>``."""
    name = text.strip().removeprefix("void ")
    depth = 0
    for place, char in enumerate(name):
        depth += (char == "<") - (char == ">")
        if char == "(" and depth == 0:
            name = name[:place]
            break
    return re.sub(r"\((?:unsigned )?(?:int|long|bool|char|short)\)", "", name).strip()
