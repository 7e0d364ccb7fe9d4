"""Figures room: one request of one warp as an SVG, light enough to be redrawn while a slider moves.

Rows lie as in the matrix. A row is drawn by its bytes: a filled cell is an element that a lane reads, a frame is a
32-byte sector that must come for it. Frames stand where the addresses put them, so that a row whose width is no
multiple of 32 bytes shows its sectors sticking out at either end.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import numpy as np

from gpudays.course.geometry import SECTOR_BYTES

BLUE, GREY, INK, PAPER = "#0072B2", "#DCE6EC", "#000000", "#FFFFFF"
WIDE, LEFT, TOP, ROW, BAR = 480, 58, 44, 17, 12  # pixels: all, the rows' labels, the heading, one row, the bar in it


@dataclass(frozen=True)
class Request:
    """What one warp's load touches in a row-major matrix.

    Attributes:
        offsets: byte offset into the matrix of each active lane.
        element: bytes that a lane reads.
        width: elements in a row of the matrix.
        title: what was launched, in words.
    """

    offsets: np.ndarray
    element: int
    width: int
    title: str

    @property
    def sectors(self) -> np.ndarray:
        """The numbers of the sectors that come, sorted, each once."""
        first = np.asarray(self.offsets, dtype=np.int64)
        return np.unique(np.concatenate([first, first + self.element - 1]) // SECTOR_BYTES)

    @property
    def used(self) -> int:
        """Bytes that the lanes read, each byte once."""
        return len(np.unique(self.offsets)) * self.element

    @property
    def count(self) -> str:
        """What it costs, in words."""
        fetched = len(self.sectors) * SECTOR_BYTES
        sectors = f"{len(self.sectors)} sector{'s' if len(self.sectors) != 1 else ''}"
        return (
            f"{len(self.offsets)} lanes, {sectors}; {self.used} of {fetched} bytes are read ({self.used / fetched:.0%})"
        )

    @property
    def summary(self) -> str:
        """The picture in a sentence."""
        return f"{self.title}: {self.count}."


def draw(request: Request) -> str:
    """A request as an ``<svg>`` element of at most 480 × 600 pixels, with its summary as accessible description."""
    row_bytes = request.width * request.element
    rows = np.unique(request.offsets // row_bytes)
    within = request.offsets % row_bytes
    start = int(within.min()) - SECTOR_BYTES
    scale = min((WIDE - LEFT - 4) / (int(within.max()) + request.element + SECTOR_BYTES - start), 3.2)
    height = TOP + ROW * len(rows) + 8
    parts = [_text(4, 16, request.title, 13), _text(4, 34, request.count, 13)]
    for line, row in enumerate(rows):
        y = TOP + ROW * line
        parts.append(_text(4, y + BAR - 1, f"row {row}", 11))
        parts += _row(request, int(row), row_bytes, lambda byte: LEFT + (byte - start) * scale, y)
    label = escape(request.summary, quote=True)
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {WIDE} {height}" style="max-width:100%;height:auto" '
        f'width="{WIDE}" font-family="sans-serif" xmlns="http://www.w3.org/2000/svg">'
        f'<rect width="{WIDE}" height="{height}" fill="{PAPER}"/>{"".join(parts)}</svg>'
    )


def _row(request: Request, row: int, row_bytes: int, x, y: int) -> list[str]:
    """The sectors and elements of one row; ``x`` turns a byte of the row into a pixel."""
    base = row * row_bytes
    inside = np.unique(request.offsets[request.offsets // row_bytes == row])
    sectors = np.unique(np.concatenate([inside, inside + request.element - 1]) // SECTOR_BYTES) * SECTOR_BYTES - base
    ground = [_rect(x(s), y, x(s + SECTOR_BYTES) - x(s), GREY) for s in sectors]
    read = [_rect(x(e), y, x(e + request.element) - x(e), BLUE, gap=0.6) for e in inside - base]
    frames = [_rect(x(s), y, x(s + SECTOR_BYTES) - x(s), "none", stroke=INK) for s in sectors]
    return ground + read + frames


def _rect(x: float, y: float, width: float, fill: str, stroke: str = "", gap: float = 0) -> str:
    line = f' stroke="{stroke}"' if stroke else ""
    return f'<rect x="{x:.1f}" y="{y}" width="{max(width - gap, 0.8):.1f}" height="{BAR}" fill="{fill}"{line}/>'


def _text(x: float, y: float, words: str, size: float) -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" fill="{INK}">{escape(words)}</text>'
