"""Kernels-in-pages room: a kernel is written once, in its day's ``.cu``; this carries it into the page's CUDA string.

In the program the kernels stand between ``// page: begin kernels`` and ``// page: end kernels``; in the page they are
the string of the one cell that reads ``source = r\"\"\"`` … ``\"\"\"``. The string begins with a line break, so that a
line's number in the source is its number in the cell.

A page may also bring them step by step: cells that read ``source += r\"\"\"`` … ``\"\"\"`` then follow, each holding
a section of the program's kernels, which begin with lines ``// ---- …``.
"""

from __future__ import annotations

import re
from pathlib import Path

from gpudays.course.steps import DAYS, Day
from gpudays.course.suite import SUITE

BEGIN, END = "// page: begin kernels\n", "// page: end kernels\n"
STRING = re.compile(r'^source (\+?=) r"""\n(.*?)"""$', re.DOTALL | re.MULTILINE)
SECTION = re.compile(r"^(?=// ---- )", re.MULTILINE)


class KernelTextError(ValueError):
    """A program without its markers, or a page without its CUDA string; the message names the file."""


def kernel_text(program: Path) -> str:
    """The kernels of a program, from the line after the first marker to the line before the second.

    Raises:
        KernelTextError: no such file, not exactly one pair of markers, or text that a raw Python string cannot hold.
    """
    if not program.is_file():
        raise KernelTextError(f"{program}: no such program, so its page's kernels cannot be carried over")
    text = program.read_text("utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(END) < text.index(BEGIN):
        raise KernelTextError(f"{program}: needs one line '{BEGIN.strip()}' and after it one line '{END.strip()}'")
    kernels = text.split(BEGIN)[1].split(END)[0]
    if '"""' in kernels or "\\\n" in kernels:
        line = text.index(BEGIN)
        raise KernelTextError(f'{program}: the kernels after character {line} hold """ or a line ending in a backslash')
    return kernels


def page_parts(page: Path) -> list[str]:
    """The strings of kernels that a page holds, in order, each without the line break that it begins with.

    Raises:
        KernelTextError: no such page, or not exactly one ``source = r\"\"\"`` string in it, the others added to it.
    """
    found = STRING.findall(page.read_text("utf-8")) if page.is_file() else []
    first = [how for how, _ in found].count("=")
    if first != 1 or found[0][0] != "=":
        raise KernelTextError(f'{page}: needs exactly one cell with source = r""" … """, and has {first}')
    return [text for _, text in found]


def page_text(page: Path) -> str:
    """The kernels that a page holds, its strings one after the other.

    Raises:
        KernelTextError: as `page_parts` does.
    """
    return "".join(page_parts(page))


def carry(root: Path, day: Day) -> bool:
    """Write the kernels of a day's program into its page; say whether the page changed.

    Raises:
        KernelTextError: as `page_parts` does, or the page has several strings, and the program other sections.
    """
    page, kernels = root / day.page, kernel_text(root / day.program)
    parts = page_parts(page)
    if "".join(parts) == kernels:
        return False
    sections = [kernels] if len(parts) == 1 else [text for text in SECTION.split(kernels) if text]
    if len(sections) != len(parts):
        what = f"{len(parts)} strings of kernels, and {day.program} {len(sections)} sections (// ---- …)"
        raise KernelTextError(f"{page} has {what}")
    new = iter(sections)
    text = STRING.sub(lambda found: f'source {found[1]} r"""\n{next(new)}"""', page.read_text("utf-8"))
    page.write_text(text, "utf-8")
    return True


def differing(root: Path, day: Day) -> str:
    """ "" if page and program hold the same kernels, else where they first differ."""
    program, page = root / day.program, root / day.page
    ours, theirs = kernel_text(program).split("\n"), page_text(page).split("\n")
    for number, (a, b) in enumerate(zip(ours, theirs, strict=False), 1):
        if a != b:
            return (
                f"{day.page} and {day.program} differ in line {number} of the kernels:\n  program: {a}\n  page:    {b}"
            )
    if len(ours) != len(theirs):
        return f"{day.page} has {len(theirs)} lines of kernels and {day.program} {len(ours)}"
    return ""


def written(root: Path) -> list[Day]:
    """The days, and the suite beside them, whose page is there."""
    return [day for day in (*DAYS.values(), SUITE) if (root / day.page).is_file()]


def sync(root: Path) -> list[str]:
    """Carry the kernels into every page that is there; the names of the pages that changed."""
    return [day.page for day in written(root) if carry(root, day)]


def check(root: Path) -> list[str]:
    """What differs between pages and programs, a message each; empty when all agree."""
    return [problem for day in written(root) if (problem := differing(root, day))]
