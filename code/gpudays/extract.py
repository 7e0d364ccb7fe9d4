"""Extraction room: what a student hands in — a .cu file, a notebook, a zip or a folder of these — becomes kernels.

Host code, includes and ``main`` are set aside by ``cuda_syntax``; lines keep the numbers they have in the student's
file (in a notebook: in the string of the cell).
"""

from __future__ import annotations

import ast
import json
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpudays import cuda_syntax

PROGRAMS = (".cu", ".cuh", ".cpp", ".txt")
KINDS = (*PROGRAMS, ".ipynb", ".zip")
LARGEST = 2_000_000  # bytes of one file: a notebook with pictures is smaller, a table of answers is not
CELL_MAGIC = re.compile(r"^%%(writefile\s+(?:-a\s+)?\S+\.cuh?|cu|cuda\S*|nvcc\S*)\b[^\n]*\n")


class NothingToCheck(ValueError):
    """A hand-in that holds no kernels, or not in one place; the message says what was found and what is wanted."""


@dataclass(frozen=True)
class Extracted:
    """The kernels of a hand-in.

    Attributes:
        source: CUDA C++ for NVRTC: kernels and what they need, the rest blank.
        where: the file they come from, in a notebook with the cell.
        names: the kernels' names.
        notes: what the student should know: library calls that were set aside.
    """

    source: str
    where: str
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()


def extract(path: Path, wanted: Sequence[str]) -> Extracted:
    """The kernels of a hand-in.

    Args:
        path: a file, or a folder with one.
        wanted: the kernels that are asked for; they pick the file or the cell where there are several.

    Raises:
        NothingToCheck: no kernels, or the wanted ones in several places.
    """
    found = list(_candidates(path))
    read: list[Extracted] = []
    for where, text in found:
        try:
            read.append(_read(where, text))
        except cuda_syntax.NotCuda:
            continue
    if not read:
        looked = ", ".join(dict.fromkeys(where for where, _ in found)) or f"nothing that ends in {', '.join(KINDS)}"
        raise NothingToCheck(
            f"{path.name}: no kernel in it (looked at: {looked}). Hand in one .cu file or the notebook, with "
            f"{' and '.join(wanted)} declared __global__ void."
        )
    return _choose(read, wanted)


def _read(where: str, text: str) -> Extracted:
    found = cuda_syntax.kernels(text)
    notes = [
        f"{call}: a library call in host code, which is set aside; the check runs your own kernels"
        for call in found.libraries
    ]
    return Extracted(found.source, where, found.names, tuple(notes))


def _choose(read: list[Extracted], wanted: Sequence[str]) -> Extracted:
    """The one that holds most of the wanted kernels; in a notebook, what is called student before all else."""
    students = [one for one in read if one.where.endswith("(student)")]
    read = students or read
    count = [len(set(one.names) & set(wanted)) for one in read]
    best = {one.source: one for one, n in zip(read, count, strict=True) if n == max(count)}
    if len(best) > 1 and max(count) and not all(_in_notebook(one) for one in best.values()):
        places = ", ".join(one.where for one in best.values())
        both = ", ".join(sorted(set.intersection(*(set(one.names) for one in best.values())) & set(wanted)))
        what = f"all define {both}" if both else f"share {', '.join(wanted)} between them"
        raise NothingToCheck(f"{places} {what}: hand in one file with all of them, once")
    return list(best.values())[-1]


def _in_notebook(one: Extracted) -> bool:
    return ".ipynb, cell " in one.where


# ---- where text may be -----------------------------------------------------------------------------------------------


def _candidates(path: Path) -> Iterator[tuple[str, str]]:
    """(where, CUDA text) of all that may hold kernels."""
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            hidden = any(part.startswith((".", "__")) for part in file.relative_to(path).parts)
            if file.is_file() and not hidden and file.suffix.lower() in KINDS:
                yield from _of_file(file.relative_to(path).as_posix(), file.read_bytes())
    elif path.is_file():
        yield from _of_file(path.name, path.read_bytes())
    else:
        raise NothingToCheck(f"{path}: no such file or folder")


def _of_file(name: str, data: bytes) -> Iterator[tuple[str, str]]:
    if len(data) > LARGEST:
        raise NothingToCheck(f"{name}: {len(data):,} bytes; a hand-in has at most {LARGEST:,}")
    suffix = Path(name).suffix.lower()
    if suffix == ".zip":
        yield from _of_zip(name, data)
    elif suffix == ".ipynb":
        yield from _of_notebook(name, data)
    else:
        yield name, _decoded(data)


def _decoded(data: bytes) -> str:
    return data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")


def _of_zip(name: str, data: bytes) -> Iterator[tuple[str, str]]:
    """The files of a zip that may hold kernels; one that is no zip is told so."""
    import io

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in sorted(archive.infolist(), key=lambda e: e.filename):
                suffix = Path(entry.filename).suffix.lower()
                if suffix in (*PROGRAMS, ".ipynb") and not entry.filename.startswith("__"):
                    if entry.file_size > LARGEST:
                        raise NothingToCheck(f"{name}: {entry.filename} has {entry.file_size:,} bytes")
                    yield from _of_file(f"{name}/{entry.filename}", archive.read(entry))
    except zipfile.BadZipFile as problem:
        raise NothingToCheck(f"{name}: not a zip that can be read ({problem})") from problem


def _of_notebook(name: str, data: bytes) -> Iterator[tuple[str, str]]:
    """The CUDA strings of a notebook's cells, and cells that are CUDA themselves (``%%writefile my.cu``)."""
    try:
        cells = json.loads(_decoded(data))["cells"]
        sources = [(cell["cell_type"], _joined(cell["source"])) for cell in cells]
    except (json.JSONDecodeError, KeyError, TypeError) as problem:
        raise NothingToCheck(f"{name}: not a notebook that can be read ({problem})") from problem
    joined: dict[str, str] = {}
    for number, (kind, text) in enumerate(sources, 1):
        if kind != "code":
            continue
        if magic := CELL_MAGIC.match(text):
            yield f"{name}, cell {number}", "\n" + text[magic.end() :]
            continue
        for variable, value, adds in _strings(text):
            joined[variable] = joined.get(variable, "") + value if adds else value
            yield f"{name}, cell {number} ({variable})", joined[variable]


def _joined(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)


def _strings(text: str) -> Iterator[tuple[str, str, bool]]:
    """(variable, value, whether it is added) of every string that a cell assigns; lines for IPython are skipped."""
    plain = "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in text.split("\n"))
    try:
        tree = ast.parse(plain)
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Assign, ast.AugAssign)):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for target in targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value.value, isinstance(node, ast.AugAssign)
