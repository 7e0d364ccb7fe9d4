"""Measurements room: the one tidy table — kernel, n, metric, value, unit, source, card — and what is read from it."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from gpudays import metrics
from gpudays.ptx import model

COLUMNS = ["kernel", "n", "metric", "value", "unit", "source", "card"]
SOURCES = ("live", "traced", "shipped", "published")  # in the order in which a page prefers them
_KEYS = ["kernel", "n", "source", "card"]
_LOADED, _STORED = metrics.by_instruction("global", "ld"), metrics.by_instruction("global", "st")
_DERIVED = (  # what is computed, from which two, how; the first way that a kernel has the figures for counts
    (metrics.SECTORS_PER_REQUEST, _LOADED, model.GLOBAL_LD_REQUESTS, operator.truediv),
    (metrics.SECTORS_PER_REQUEST, model.GLOBAL_LD_SECTORS, model.GLOBAL_LD_REQUESTS, operator.truediv),
    (metrics.SECTORS_PER_REQUEST_STORE, _STORED, model.GLOBAL_ST_REQUESTS, operator.truediv),
    (metrics.SECTORS_PER_REQUEST_STORE, model.GLOBAL_ST_SECTORS, model.GLOBAL_ST_REQUESTS, operator.truediv),
    (metrics.DRAM_BYTES, metrics.DRAM_READ, metrics.DRAM_WRITE, operator.add),
)


class MeasurementError(ValueError):
    """A table that is no measurements table, or a figure that is not in it."""


def empty() -> pd.DataFrame:
    """The table with no rows."""
    return pd.DataFrame({name: pd.Series(dtype=float if name == "value" else object) for name in COLUMNS})


def table(kernel: str, n: int | str, values: Mapping[str, float], source: str, card: str = "") -> pd.DataFrame:
    """The rows of one kernel at one size.

    Args:
        kernel: the kernel's name.
        n: the matrix side, or "MxNxK"; see `size_label`.
        values: value by metric name, in the registry's units.
        source: live, traced, shipped or published.
        card: "NVIDIA H200", …; "" for traced.
    """
    rows = [(kernel, n, name, float(value), metrics.unit(name), source, card) for name, value in values.items()]
    return validate(pd.DataFrame(rows, columns=COLUMNS)) if rows else empty()


def size_label(m: int, n: int, k: int) -> int | str:
    """A size as the ``n`` column holds it: the side of a square, or "MxNxK"."""
    return m if m == n == k else f"{m}x{n}x{k}"


def validate(measured: pd.DataFrame) -> pd.DataFrame:
    """Return the table as it is, or say what is wrong with it.

    Raises:
        MeasurementError: columns missing, a value that is no finite number, an unknown source, a traced figure that
            names a card, or any other that names none.
    """
    missing = [name for name in COLUMNS if name not in measured.columns]
    if missing:
        raise MeasurementError(f"no measurements table: it lacks the columns {', '.join(missing)}")
    if measured.empty:
        return measured
    for place, figure in enumerate(zip(measured["value"], measured["source"], measured["card"], strict=True)):
        if wrong := _wrong(*figure):
            raise MeasurementError(f"the measurements hold {wrong}: {measured.iloc[place].to_dict()}")
    return measured


def _wrong(value: object, source: str, card: str) -> str:
    """What is wrong with a row's figure; "" where nothing is."""
    try:
        finite = math.isfinite(value)
    except TypeError:
        finite = False
    if not finite:
        return "a value that is no finite number"
    if source not in SOURCES:
        return f"a source other than {', '.join(SOURCES)}"
    if source == "traced" and card != "":
        return "a traced figure that names a card"
    if source != "traced" and card == "":
        return "a figure with no card"
    return ""


def concat(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Several tables under one another, numbered anew; equal rows once."""
    filled = [validate(t)[COLUMNS] for t in tables if not t.empty]
    return pd.concat(filled, ignore_index=True).drop_duplicates(ignore_index=True) if filled else empty()


def preferred(measured: pd.DataFrame, order: Sequence[str] = SOURCES) -> pd.DataFrame:
    """For each kernel, size and metric only the rows of the best source that has it, ``order`` saying what is best."""
    if measured.empty:
        return measured
    rank = measured["source"].map({source: place for place, source in enumerate(order)})
    best = rank.groupby([measured["kernel"], measured["n"].astype(str), measured["metric"]]).transform("min")
    return measured[rank.eq(best)].reset_index(drop=True)


def with_derived(measured: pd.DataFrame) -> pd.DataFrame:
    """The table with sectors per request and total DRAM bytes added, for every kernel that has what they are made of.

    Each is computed within one source and card, and none that is there already is computed again.
    """
    added = [measured]
    have = set(measured.set_index(["metric", *_KEYS]).index)
    for name, first, second, combine in _DERIVED:
        one, other = (measured[measured["metric"].eq(m)].set_index(_KEYS)["value"] for m in (first, second))
        for key, figure in combine(one, other).dropna().items():
            # No request touches no sector: counters by instruction leave cp.async out, and the unit's own count it.
            counted = combine is operator.add or figure > 0
            if counted and (name, *key) not in have:
                have.add((name, *key))
                kernel, n, source, card = key
                added.append(table(kernel, n, {name: figure}, source, card))
    return concat(added)


def value(measured: pd.DataFrame, kernel: str, n: int | str, metric: str, source: str | None = None) -> float:
    """One figure, from the best source that has it unless ``source`` names one.

    Raises:
        MeasurementError: it is not there, or one source gives two different values.
    """
    chosen = measured[measured["kernel"].eq(kernel) & measured["n"].eq(n) & measured["metric"].eq(metric)]
    chosen = preferred(chosen) if source is None else chosen[chosen["source"].eq(source)]
    what = f"{metrics.plain(metric)} ({metric}) of {kernel} at {n}" + (f", {source}" if source else "")
    if chosen.empty:
        raise MeasurementError(f"there is no {what} among these measurements")
    if chosen["value"].nunique() > 1:
        cards = ", ".join(f"{row.value:g} on {row.card or 'no card'}" for row in chosen.itertuples())
        raise MeasurementError(f"there is more than one {what}: {cards}")
    return float(chosen["value"].iloc[0])
