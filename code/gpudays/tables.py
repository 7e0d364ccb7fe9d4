"""Tables room: how a page shows a table: numbers as people read them, and below them where they come from."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd


@dataclass(frozen=True, repr=False)
class Shown:
    """A table with its source.

    Attributes:
        frame: the figures, as numbers, for whoever wants to reckon with them.
        source: where they come from; a table without it is refused.
        formats: format spec by column, such as {"time": ".4f"}; text passes as it is, a missing figure shows as –.
        note: one more line below, "" for none.
        index: whether the frame's index is shown.
    """

    frame: pd.DataFrame
    source: str
    formats: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    index: bool = False

    def __post_init__(self) -> None:
        if not self.source:
            raise ValueError("a table says where its figures come from: source is empty")

    def text(self) -> pd.DataFrame:
        """The frame with every cell formatted."""
        shown = {
            name: [cell(value, self.formats.get(name, "")) for value in self.frame.iloc[:, place]]
            for place, name in enumerate(self.frame.columns)
        }
        return pd.DataFrame(shown, index=self.frame.index)

    @property
    def caption(self) -> str:
        """The line, or the two, below the table."""
        return f"Source: {self.source}." + (f"\n{self.note}" if self.note else "")

    def __repr__(self) -> str:
        if self.frame.empty:
            return self.caption
        with pd.option_context("display.width", 200, "display.max_colwidth", None):
            return f"{self.text().to_string(index=self.index)}\n{self.caption}"

    def _repr_html_(self) -> str:
        if self.frame.empty:
            return f"<p>{html.escape(self.caption)}</p>"
        caption = html.escape(self.caption).replace("\n", "<br>")
        return f"{self._table()}\n<p><small>{caption}</small></p>"

    def _table(self) -> str:
        """The table as HTML: text to the left, numbers to the right, whatever the theme makes of cells."""
        shown = self.text()
        sides = ["left" if self.frame.iloc[:, at].map(_is_text).any() else "right" for at in range(shown.shape[1])]
        names, rows = list(shown.columns), shown.to_numpy().tolist()
        if self.index:
            sides, names = ["left", *sides], [self.frame.index.name or "", *names]
            rows = [[label, *row] for label, row in zip(self.frame.index, rows, strict=True)]
        head = _row("th", names, sides)
        body = "\n".join(_row("td", row, sides) for row in rows)
        return f'<table class="dataframe">\n<thead>\n{head}\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>'


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _row(tag: str, cells: list[object], sides: list[str]) -> str:
    """One line of an HTML table."""
    both = zip(cells, sides, strict=True)
    return "<tr>" + "".join(f'<{tag} style="text-align: {s}">{html.escape(str(c))}</{tag}>' for c, s in both) + "</tr>"


def cell(value: object, spec: str = "") -> str:
    """One cell as text: by its format spec; without one, whole numbers with separators and others as they are."""
    if value is None or (isinstance(value, float) and pd.isna(value)):
        return "–"
    if isinstance(value, str):
        return value
    if not spec and float(value) == int(value):
        return f"{int(value):,}"
    return format(value, spec or "g")
