"""Oracle, room 5: races — two accesses to one place, one of them a write, that nothing puts in order.

A warp is never assumed to run in step: what orders two threads is a barrier, a `bar.warp.sync`, or a release and an
acquire. Every access is logged and the log is checked afterwards, place by place, so that no race hides behind the
order in which the interpreter happens to run.

Agents are the threads of a block, each block for itself; and, in global memory, also the blocks of the grid.
Two agents that write the same value to one place do not race: the result is the same whoever comes last.

Source: L. Lamport, "Time, clocks, and the ordering of events in a distributed system" (1978), for happens-before and
clocks; the terms strong, release and acquire are those of "Parallel Thread Execution ISA", "Memory Consistency Model".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

ENTRY = np.dtype(
    [("group", "i4"), ("epoch", "i4"), ("cell", "i8"), ("agent", "i4"), ("line", "i4"), ("write", "?"), ("strong", "?"),
     ("value", "u8"), ("clock", "i4"), ("row", "i4"), ("thread", "i4")]
)  # fmt: skip
_SAME = ["group", "epoch", "cell", "agent", "write", "strong", "value", "clock", "row", "line"]  # repeats if all equal
_COMPACT_AT = 1 << 21


class Order:
    """Who has seen what, among `agents`: `rows[row_of[b]][a]` is the last clock of agent a that agent b has seen.

    An access by a at clock c comes before an access by b when b's row, at the time, says c or more for a.
    """

    def __init__(self, agents: int):
        self.clock = np.ones(agents, np.int32)
        self.row_of = np.zeros(agents, np.int32)
        self.rows = [np.zeros(agents, np.int32)]

    def meet(self, agents: np.ndarray) -> None:
        """`agents` wait for each other: each now comes after all that the others did so far."""
        row = np.max([self.rows[r] for r in np.unique(self.row_of[agents])], axis=0)
        row[agents] = self.clock[agents]
        self.clock[agents] += 1
        self.row_of[agents] = len(self.rows)
        self.rows.append(row)

    def release(self, agent: int) -> np.ndarray:
        """What others may take over from `agent`: all it did or saw so far."""
        row = self.rows[self.row_of[agent]].copy()
        row[agent] = self.clock[agent]
        self.clock[agent] += 1
        return row

    def acquire(self, agent: int, row: np.ndarray) -> None:
        """`agent` comes after what `row` records."""
        own = self.rows[self.row_of[agent]]
        if (row > own).any():
            self.row_of[agent] = len(self.rows)
            self.rows.append(np.maximum(own, row))

    def ordered(self, a, b) -> bool:
        return self.rows[b["row"]][a["agent"]] >= a["clock"] or self.rows[a["row"]][b["agent"]] >= b["clock"]


@dataclass(frozen=True)
class Race:
    """A write and another access of one place, unordered: log entries, and how many places show this pair of lines."""

    write: np.void
    other: np.void
    count: int


class RaceLog:
    """The accesses of one memory. Entries of different `group` (block) or `epoch` (barrier interval) never meet."""

    def __init__(self):
        self.chunks: list[np.ndarray] = []
        self.size = 0

    def add(self, **columns) -> None:
        """Log accesses: one array (or scalar) per column of `ENTRY`."""
        chunk = np.zeros(len(columns["cell"]), ENTRY)
        for name, values in columns.items():
            chunk[name] = values
        self.chunks.append(chunk)
        self.size += len(chunk)
        if self.size > _COMPACT_AT:
            self.chunks = [_unique(np.concatenate(self.chunks))]
            self.size = len(self.chunks[0]) // 2  # compact again only after as many new ones

    def races(self, orders: dict[int, Order]) -> Iterator[Race]:
        """The races in the log, one per pair of source lines. `orders` holds, per group, what was synchronised."""
        if not self.chunks:
            return
        entries = _contested(_unique(np.concatenate(self.chunks)))
        hard = _any_in_place(entries, entries["strong"] | (entries["row"] > 0))
        pairs = [*_plain_pairs(entries[~hard]), *_ordered_pairs(entries[hard], orders)]
        merged: dict[tuple[int, int, bool], list] = {}
        for write, other in pairs:
            key = (int(write["line"]), int(other["line"]), bool(other["write"]))
            merged.setdefault(key, [write, other, 0])[2] += 1
        for write, other, count in merged.values():
            yield Race(write, other, count)


def _places(entries: np.ndarray) -> np.ndarray:
    """Where each run of entries on one place starts (entries are sorted)."""
    place = entries[["group", "epoch", "cell"]]
    return np.flatnonzero(np.append(True, place[1:] != place[:-1]))


def _unique(entries: np.ndarray) -> np.ndarray:
    """Sorted by place, then agent, without repetitions of the same access."""
    ordered = entries[np.lexsort([entries[name] for name in reversed(_SAME)])]
    same = ordered[_SAME]
    return ordered[np.append(True, same[1:] != same[:-1])]


def _spread(flags: np.ndarray, starts: np.ndarray, total: int) -> np.ndarray:
    return np.repeat(flags, np.diff(np.append(starts, total)))


def _any_in_place(entries: np.ndarray, flags: np.ndarray) -> np.ndarray:
    if not len(entries):
        return np.zeros(0, bool)
    starts = _places(entries)
    return _spread(np.logical_or.reduceat(flags, starts), starts, len(entries))


def _contested(entries: np.ndarray) -> np.ndarray:
    """The entries of places that two agents touch, one of them writing, not all of them by strong operations."""
    if not len(entries):
        return entries
    starts = _places(entries)
    agent = entries["agent"]
    several = np.minimum.reduceat(agent, starts) != np.maximum.reduceat(agent, starts)
    written = np.logical_or.reduceat(entries["write"], starts)
    strong = np.logical_and.reduceat(entries["strong"], starts)
    return entries[_spread(several & written & ~strong, starts, len(entries))]


def _plain_pairs(entries: np.ndarray) -> Iterator[tuple[np.void, np.void]]:
    """Where nothing was synchronised, any two accesses by different agents are unordered.

    A read races with any write by another agent, a write with any other agent's write of another value. All pairs
    within a place are tried, of a few entries that stand for all.
    """
    if not len(entries):
        return
    entries, place = _representatives(entries)
    for distance in range(1, int(np.bincount(place).max())):
        a, b = entries[:-distance], entries[distance:]
        both_write = a["write"] & b["write"]
        racing = (place[:-distance] == place[distance:]) & (a["agent"] != b["agent"]) & (a["write"] | b["write"])
        for i in np.flatnonzero(racing & ~(both_write & (a["value"] == b["value"]))):
            yield (a[i], b[i]) if a["write"][i] else (b[i], a[i])


def _representatives(entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each place, line and direction the entries of two agents — and of two more that write another value.

    Returns them with the number of the place that each belongs to.
    """
    starts = _places(entries)
    place = _spread(np.arange(len(starts)), starts, len(entries))
    order = np.lexsort([entries["agent"], entries["write"], entries["line"], place])
    entries, place = entries[order], place[order]
    group = _runs(place, entries["line"], entries["write"])
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    other = entries["write"] & (entries["value"] != entries["value"][first][group])
    order = np.lexsort([entries["agent"], other, group])
    entries, place, group, other = entries[order], place[order], group[order], other[order]
    kind = _runs(group, other)
    agent = _runs(kind, entries["agent"])
    first_of_kind = np.flatnonzero(np.append(True, kind[1:] != kind[:-1]))
    kept = (agent - agent[first_of_kind][kind] < 2) & np.append(True, agent[1:] != agent[:-1])
    return entries[kept], place[kept]


def _runs(*columns: np.ndarray) -> np.ndarray:
    """Number the runs of equal rows, from 0."""
    new = np.zeros(len(columns[0]), bool)
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.cumsum(new)


def _ordered_pairs(entries: np.ndarray, orders: dict[int, Order]) -> Iterator[tuple[np.void, np.void]]:
    """Where something was synchronised, every pair is looked at.

    An agent that works on a place with strong operations may look at it first with a plain read: the loop around
    `atomicCAS` starts so, and a stale value costs it one more turn.
    """
    if not len(entries):
        return
    for start, end in pairwise([*_places(entries), len(entries)]):
        place = entries[start:end]
        order = orders[int(place[0]["group"])]
        guesses = ~place["write"] & np.isin(place["agent"], place["agent"][place["strong"] & place["write"]])
        for write in place[place["write"]]:
            for other in place[~guesses] if write["strong"] else place:
                if _may_race(write, other) and not order.ordered(write, other):
                    yield write, other


def _may_race(write: np.void, other: np.void) -> bool:
    if write["agent"] == other["agent"] or (write["strong"] and other["strong"]):
        return False
    return not other["write"] or (write["agent"] < other["agent"] and write["value"] != other["value"])
