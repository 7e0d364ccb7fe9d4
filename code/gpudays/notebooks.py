"""The pages' room: each page twice, ``NAME.md`` (MyST, the source) and ``NAME.ipynb`` (executed, with outputs).

Colab opens the ``.ipynb`` and nbval tests it; the site is built from the ``.md``. What is here carries the one into the
other without losing an output, and refuses to keep an output whose code has changed since.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path

import jupytext
import nbformat
import yaml
from jupytext.config import load_jupytext_configuration_file
from nbformat import NotebookNode

from gpudays import first_cell

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
CLONE = re.compile(r"git clone \S+ matmul-days")
STAMPED = re.compile(r"^REPOSITORY, BRANCH = .*$", re.MULTILINE)


class PageError(RuntimeError):
    """A page that cannot be read or does not run; the message names the page, the cell and the error."""


def pages(root: Path, names: list[str] | None = None) -> list[Path]:
    """The pages that hold code, as paths of their ``.md``, in order; `names` picks some ("day43-matmul-1").

    Raises:
        PageError: no page has one of those names.
    """
    found = {
        path.stem: path for path in sorted((root / "book").rglob("*.md")) if "```{code-cell}" in path.read_text("utf-8")
    }
    if unknown := sorted(set(names or ()) - set(found)):
        raise PageError(f"no page is called {', '.join(unknown)}; there are: {', '.join(found) or 'none'}")
    return [found[name] for name in names] if names else list(found.values())


def repository(root: Path) -> tuple[str, str]:
    """The course's repository as ``_config.yml`` names it: (address or "", branch)."""
    named = yaml.safe_load((root / "_config.yml").read_text("utf-8")).get("repository") or {}
    return str(named.get("url") or ""), str(named.get("branch") or "main")


def read_source(root: Path, page: Path) -> NotebookNode:
    """The page's ``.md`` as a notebook without outputs, with the metadata that ``jupytext.toml`` keeps."""
    config = load_jupytext_configuration_file(str(root / "jupytext.toml"))
    try:
        source = jupytext.read(page, fmt="md:myst", config=config)
    except Exception as problem:  # jupytext and its parsers raise many types
        raise PageError(f"{page.name} is not a MyST notebook: {problem}") from problem
    kept = {key: value for key, value in source.metadata.items() if key in ("kernelspec", "jupytext")}
    source.metadata = nbformat.from_dict(kept)
    return source


def stamp(root: Path, page: Path) -> bool:
    """Write the first cell, with the repository of ``_config.yml``, into a page; say whether the page changed.

    Only that cell is touched: it is replaced where it stands, or put before the first code cell.
    """
    text = page.read_text("utf-8")
    wanted = f"```{{code-cell}} ipython3\n:tags: [{', '.join(first_cell.TAGS)}]\n\n{_stamped(root)}\n```"
    start = text.index("```{code-cell}")
    end = text.index("\n```", start) + len("\n```")
    if first_cell.MARK in text[start:end]:
        after = text[:start] + wanted + text[end:]
    else:
        after = text[:start] + wanted + "\n\n" + text[start:]
    if after != text:
        page.write_text(after, "utf-8")
    return after != text


def stamp_words(root: Path) -> list[Path]:
    """Write the repository into the ``git clone`` lines of the setup pages and into ``CITATION.cff``.

    Returns:
        The files that changed.
    """
    address, _ = repository(root)
    changed = []
    for file in [*sorted((root / "book/setup").glob("*.md")), root / "CITATION.cff"]:
        before = file.read_text("utf-8")
        after = CLONE.sub(f"git clone {address or 'REPOSITORY'} matmul-days", before)
        if file.suffix == ".cff":
            cited = f'repository-code: "{address}"\n' if address else ""
            after = re.sub(r"^repository-code:.*\n", "", before, flags=re.MULTILINE).rstrip("\n") + "\n" + cited
        if after != before:
            file.write_text(after, "utf-8")
            changed.append(file)
    return changed


def sync(root: Path, page: Path) -> bool:
    """Carry a page's ``.md`` into its ``.ipynb``, keeping the outputs of cells whose code is unchanged.

    Returns:
        Whether the notebook changed.
    """
    target = page.with_suffix(".ipynb")
    before = nbformat.read(target, as_version=4) if target.exists() else nbformat.v4.new_notebook()
    after = read_source(root, page)
    old = defaultdict(deque)
    for cell in before.cells:
        old[cell.cell_type, _neutral(cell.source)].append(cell)
    for number, cell in enumerate(after.cells):
        same = old[cell.cell_type, _neutral(cell.source)]
        known = same.popleft() if same else None
        cell.id = known.id if known and "id" in known else f"{page.stem[:40]}-{number}"
        if cell.cell_type == "code" and known:
            cell.outputs, cell.execution_count = known.outputs, known.execution_count
    _unique_ids(after)
    if "gpudays" in before.metadata:
        after.metadata["gpudays"] = before.metadata["gpudays"]
    return _write_if_changed(target, after)


def execute(root: Path, page: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Run a page's notebook from its own folder and keep the outputs, if every cell ran.

    Args:
        progress: called after each code cell with (cells done, code cells in all).

    Raises:
        PageError: a cell raised; the notebook is left as it was.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
    from traitlets.config import Config

    target = page.with_suffix(".ipynb")
    notebook = nbformat.read(target, as_version=4)
    total = sum(cell.cell_type == "code" for cell in notebook.cells)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    with tempfile.TemporaryDirectory(prefix="kernel-") as folder:
        # Sockets that are files: over TCP every kernel warns that it is not encrypted.
        talk = {"transport": "ipc", "connection_file": f"{folder}/k.json"} if os.name == "posix" else {}
        client = NotebookClient(
            notebook,
            timeout=600,
            kernel_name="python3",
            record_timing=False,
            config=Config(KernelManager=talk),
            coalesce_streams=True,
            resources={"metadata": {"path": str(page.parent)}},
            on_cell_executed=lambda cell, cell_index, execute_reply: progress(_done(notebook), total),
        )
        try:
            client.execute()
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as problem:
            raise PageError(f"{target.name} stopped, and keeps its old outputs:\n{problem}") from problem
    _settle(notebook)
    nbformat.write(notebook, target)


def fingerprint(notebook: NotebookNode) -> str:
    """A hash of a notebook's code, but for the stamped address: recorded when it is executed, compared by the tests."""
    code = "\0".join(_neutral(cell.source) for cell in notebook.cells if cell.cell_type == "code")
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def _settle(notebook: NotebookNode) -> None:
    """Make an executed notebook fit to be committed: no widget without its kernel, nothing of this machine."""
    for key in ("widgets", "language_info"):
        notebook.metadata.pop(key, None)
    notebook.metadata["gpudays"] = {"executed": fingerprint(notebook)}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            for output in cell.outputs:
                if len(output.get("data", {})) > 1:
                    output.data.pop(WIDGET_VIEW, None)


def _stamped(root: Path) -> str:
    return first_cell.cell_source(*repository(root))


def _neutral(source: str) -> str:
    """A cell's text with the stamped address blanked, so that stamping a page does not count as changing it."""
    return STAMPED.sub("REPOSITORY", source) if source.startswith(first_cell.MARK) else source


def _unique_ids(notebook: NotebookNode) -> None:
    seen: set[str] = set()
    for number, cell in enumerate(notebook.cells):
        while cell.id in seen:
            cell.id = f"{cell.id[:48]}-{number}"
        seen.add(cell.id)


def _write_if_changed(target: Path, notebook: NotebookNode) -> bool:
    text = nbformat.writes(notebook) + "\n"
    if target.exists() and target.read_text("utf-8").rstrip("\n") == text.rstrip("\n"):
        return False
    target.write_text(text, "utf-8")
    return True


def _done(notebook: NotebookNode) -> int:
    return sum(cell.cell_type == "code" and cell.execution_count is not None for cell in notebook.cells)
