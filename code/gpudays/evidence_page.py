"""The site room: ``book/evidence.md``, put together from the evidence file of each set of shipped profiles."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path("book/evidence.md")

OPENING = """\
% Written by `gpudays sync` from content/profiles/*/evidence.md: change those.

# Evidence

What was measured, where, with what, and by which commands. Every figure that a page calls *shipped* stands in one of
these folders of `content/profiles`, and every *published* one in a file beside it that names its origin.
"""
NOTHING = "\nNothing has been measured yet.\n"


def text(root: Path) -> str:
    """The page for the evidence files under `root`, each one heading level deeper, with its folder named."""
    found = sorted((root / "content/profiles").glob("*/evidence.md"))
    return OPENING + ("".join(_section(file) for file in found) or NOTHING)


def write(root: Path) -> bool:
    """Write the page; say whether it changed."""
    page, now = root / PAGE, text(root)
    if page.is_file() and page.read_text("utf-8") == now:
        return False
    page.write_text(now, "utf-8")
    return True


def _section(file: Path) -> str:
    """One evidence file as a section: headings deeper by one, but not those inside fenced blocks."""
    lines, fenced = [], False
    for line in file.read_text("utf-8").strip().splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        lines.append(line if fenced or not re.match(r"#{1,5} ", line) else "#" + line)
    folder = f"In `content/profiles/{file.parent.name}`.\n"
    at = next((number for number, line in enumerate(lines) if line.startswith("## ")), -1) + 1
    lines[at:at] = ["", folder] if at else [f"## {file.parent.name}", "", folder]
    return "\n" + "\n".join(lines) + "\n"
