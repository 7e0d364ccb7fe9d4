"""The site room: builds the static site with Jupyter Book, and never loses the last good one.

Jupyter Book works in ``_build/work``; only a site that was built to the end is moved to ``_build/html``. Its cache of
executed pages looks at a page's own cells alone, so the cache goes when anything that the cells call has changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_cache.base import JupyterCacheAbstract
    from jupyter_cache.cache.db import NbProjectRecord
    from nbformat import NotebookNode

# What a page's outputs depend on besides its own cells, and what the site depends on besides those.
INPUTS = ("code", "content", "requirements.txt")
PAGES = ("book", "_config.yml", "_toc.yml")
EXECUTED = "_build/executed"  # pages as their tests executed them
TIMEOUT = 300  # seconds for a cell, as _config.yml gives Jupyter Book
STRICT = ("-n", "-W", "--keep-going")  # only a build from nothing can be trusted to report every warning


class SiteError(RuntimeError):
    """The site could not be built; the message says where the last good one is."""


def build(root: Path, reuse: bool) -> Path:
    """Build the site of the checkout at `root`.

    Args:
        reuse: build on what the last call left, for speed. Otherwise every page is built anew, and a warning is an
            error.

    Returns:
        The site's first page, ``_build/html/index.html``.

    Raises:
        SiteError: Jupyter Book failed (it has said why on the terminal); the previous site stays in place.
    """
    work, site = root / "_build/work", root / "_build/html"
    whole, noted = fingerprint(root, INPUTS + PAGES), root / "_build/built-from"
    if reuse and (site / "index.html").is_file() and noted.is_file() and noted.read_text() == whole:
        print("Nothing has changed since the site was built.")
        return site / "index.html"
    prepare(root, work, reuse)
    execute_ahead(root, work / "_build/.jupyter_cache")
    if jupyter_book(root, work, () if reuse else STRICT):
        kept = f"the previous one stays at {site}" if site.exists() else "there is no previous one"
        raise SiteError(f"the site was not built (Jupyter Book says why above); {kept}")
    replace(work / "_build/html", site)
    noted.write_text(whole)
    return site / "index.html"


def jupyter_book(root: Path, work: Path, options: tuple[str, ...]) -> int:
    """Run ``jb build``, its words on the terminal, and return its exit status.

    Its closing words name the work folder as the site; they are left out unless the build failed.
    """
    command = [Path(sys.executable).with_name("jb"), "build", root, "--path-output", work, *options]
    ended: list[str] = []
    with subprocess.Popen(
        list(map(str, command)), cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as build:
        for line in build.stdout or ():
            if ended or "=====" in line or line.startswith("The HTML pages are in"):
                ended.append(line)
            else:
                print(line, end="", flush=True)
    if build.returncode:
        print("".join(ended), end="", flush=True)
    return build.returncode


def execute_ahead(root: Path, cache_folder: Path) -> None:
    """Run the pages that Jupyter Book would have to run, side by side, into the cache that it reads.

    Jupyter Book itself runs one page after another. A page that fails here is left to it: it runs the page again, and
    says what failed where.
    """
    from jupyter_cache import get_cache
    from jupyter_cache.executors import load_executor

    cache = get_cache(str(cache_folder))
    reader = {"type": "plugin", "name": "myst_nb_md"}
    staged = [cache.add_nb_to_project(str(page), read_data=reader) for page in pages_of_site(root)]
    waiting = cache.list_unexecuted(filter_pks=[record.pk for record in staged])
    inputs = fingerprint(root, INPUTS)
    waiting = [record for record in waiting if not _take_over(root, cache, record, inputs)]
    if len(waiting) > 1:
        print(f"Executing {len(waiting)} pages side by side; this takes minutes, and is done once.", flush=True)
        executor = load_executor("local-parallel", cache)
        try:
            with silence():
                done = executor.run_and_cache(filter_pks=[record.pk for record in waiting], timeout=TIMEOUT)
        except OSError as problem:  # a container without shared memory has no locks for processes
            print(f"  they are executed one after another instead: {problem}", flush=True)
            return
        for path in done.succeeded:
            print(f"  {Path(path).stem}: executed", flush=True)


def keep_executed(root: Path, page: Path, executed: NotebookNode) -> None:
    """Keep a page's notebook as a test has just executed it, with all outputs, for the site of the same checkout."""
    import nbformat

    executed.metadata["inputs"] = fingerprint(root, INPUTS)
    folder = root / EXECUTED
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(executed, folder / page.with_suffix(".ipynb").name)


def _take_over(root: Path, cache: JupyterCacheAbstract, record: NbProjectRecord, inputs: str) -> bool:
    """Put what a test kept of a page into the cache; whether it is there, of the same code and of these inputs."""
    import nbformat
    from jupyter_cache.base import CacheBundleIn

    from gpudays import notebooks

    kept = root / EXECUTED / f"{Path(record.uri).stem}.ipynb"
    if not kept.is_file():
        return False
    page, executed = cache.get_project_notebook(record.pk).nb, nbformat.read(kept, as_version=4)
    if executed.metadata.get("inputs") != inputs or notebooks.fingerprint(page) != notebooks.fingerprint(executed):
        return False
    code = [[cell for cell in book.cells if cell.cell_type == "code"] for book in (page, executed)]
    for cell, done in zip(*code, strict=True):
        cell.outputs, cell.execution_count = done.outputs, done.execution_count
    page.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}  # as a kernel would say
    cache.cache_notebook_bundle(CacheBundleIn(page, record.uri), overwrite=True)
    print(f"  {Path(record.uri).stem}: as its test executed it", flush=True)
    return True


def pages_of_site(root: Path) -> list[Path]:
    """The pages with code that the table of contents names."""
    from gpudays import notebooks  # not at the top: an unchanged site is told without loading Jupyter's tools

    contents = (root / "_toc.yml").read_text("utf-8").split()
    return [page for page in notebooks.pages(root) if page.relative_to(root).with_suffix("").as_posix() in contents]


@contextmanager
def silence() -> Iterator[None]:
    """Drop what this process and its children write to the error stream: each kernel's warning that it listens on this
    machine without encryption, and failures that Jupyter Book will repeat in full."""
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def prepare(root: Path, work: Path, reuse: bool) -> None:
    """Leave in `work` what may be used again: everything, the executed pages alone, or nothing."""
    inputs, noted = fingerprint(root, INPUTS), work / "inputs"
    same = noted.is_file() and noted.read_text() == inputs
    if not same:
        shutil.rmtree(work, ignore_errors=True)
    elif not reuse:
        for folder in ("html", ".doctrees", "jupyter_execute"):
            shutil.rmtree(work / "_build" / folder, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    noted.write_text(inputs)


def fingerprint(root: Path, names: tuple[str, ...]) -> str:
    """A hash of every file under these names, less what Python and Jupyter leave behind and the notebooks."""
    digest = hashlib.sha256()
    for path in sorted(file for name in names for file in _files(root / name)):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def replace(built: Path, site: Path) -> None:
    """Put a copy of what was built in the site's place, so that the work folder can be built on again."""
    fresh, old = site.with_name("html.new"), site.with_name("html.old")
    for left in (fresh, old):
        shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(built, fresh)
    if site.exists():
        site.rename(old)
    fresh.rename(site)
    shutil.rmtree(old, ignore_errors=True)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    made = ("__pycache__", ".egg-info", ".ipynb")
    return [
        file for file in path.rglob("*") if file.is_file() and not any(m in part for part in file.parts for m in made)
    ]
