"""The command line's site room: ``gpudays site``, ``sync``, ``execute`` and ``stamp``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import Progress

app = typer.Typer()
say = Console(highlight=False, soft_wrap=True)

Names = Annotated[list[str] | None, typer.Argument(help="pages, as day43-matmul-1; all when left out")]


@app.command()
def site(
    reuse: Annotated[
        bool, typer.Option("--reuse", help="build on what the last call left; warnings are allowed")
    ] = False,
) -> None:
    """Build the static site; without --reuse from nothing, with every warning an error."""
    from gpudays import site as room

    root = checkout()
    with _stop_at(room.SiteError):
        first = room.build(root, reuse)
    say.print(f"\nThe site: {first}")
    say.print(f"  open    {first.as_uri()}")
    say.print(f"  serve   python3 -m http.server 8000 --bind 127.0.0.1 --directory {first.parent.relative_to(root)}")


@app.command()
def sync(names: Names = None) -> None:
    """Carry kernels from their .cu files into the pages, evidence into its page, and the pages into their notebooks."""
    from gpudays import evidence_page, kernels_in_pages, notebooks

    root = checkout()
    with _stop_at(kernels_in_pages.KernelTextError):
        kernels_in_pages.sync(root)
    evidence_page.write(root)
    for page in _pages(root, names):
        with _stop_at(notebooks.PageError):
            changed = notebooks.sync(root, page)
        say.print(f"{page.stem}: {'notebook written' if changed else 'up to date'}")


@app.command()
def execute(names: Names = None) -> None:
    """Run the pages' notebooks and keep their outputs; one that fails keeps what it had."""
    from gpudays import notebooks

    root = checkout()
    with Progress(console=say, transient=True) as bars:
        for page in _pages(root, names):
            bar = bars.add_task(page.stem, total=None)

            def advance(done: int, total: int, bar=bar) -> None:
                bars.update(bar, completed=done, total=total)

            with _stop_at(notebooks.PageError):
                notebooks.execute(root, page, advance)
            say.print(f"{page.stem}: executed")


@app.command()
def stamp() -> None:
    """Write the repository of _config.yml into the first cell of every page and its notebook."""
    from gpudays import notebooks

    root = checkout()
    address, branch = notebooks.repository(root)
    for page in _pages(root, None):
        changed = notebooks.stamp(root, page)
        notebooks.sync(root, page)
        say.print(f"{page.stem}: {'stamped' if changed else 'up to date'}")
    for file in notebooks.stamp_words(root):
        say.print(f"{file.relative_to(root)}: stamped")
    say.print(f"repository: {address or 'not set (repository.url in _config.yml)'}, branch: {branch}")


@app.command()
def front_picture() -> None:
    """Draw the first page's picture of all steps, from counts traced now."""
    from gpudays import front_picture as room

    root = checkout()
    with say.status("tracing every step"):
        target = room.write(root)
    say.print(f"{target.relative_to(root)}: drawn")


def checkout() -> Path:
    """The checkout that the command works on: the working directory's, or else the package's own."""
    for folder in (Path.cwd(), *Path.cwd().parents, Path(__file__).parents[2]):
        if (folder / "_config.yml").is_file() and (folder / "book").is_dir():
            return folder
    _stop("no checkout of the course here: run this in a folder that holds _config.yml and book/")


def _pages(root: Path, names: list[str] | None) -> list[Path]:
    from gpudays import notebooks

    with _stop_at(notebooks.PageError):
        return notebooks.pages(root, names)


@contextmanager
def _stop_at(problem: type[Exception]) -> Iterator[None]:
    """Say a foreseen problem in one message and exit with 1; anything else is a bug and shows its traceback."""
    try:
        yield
    except problem as found:
        _stop(str(found))


def _stop(message: str) -> NoReturn:
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"gpudays: {message}", markup=False)
    raise typer.Exit(1)
