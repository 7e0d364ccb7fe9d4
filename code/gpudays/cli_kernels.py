"""The command line's kernel room: ``gpudays sync-kernels`` carries the kernels of the programs into the pages."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from gpudays import kernels_in_pages
from gpudays.cli_site import checkout

app = typer.Typer()
say = Console(highlight=False, soft_wrap=True)


@app.command("sync-kernels")
def sync_kernels(
    check: Annotated[bool, typer.Option("--check", help="change nothing; exit with 1 if a page differs")] = False,
) -> None:
    """Carry the kernels from the programs' .cu files into the pages' CUDA strings, or say where they differ."""
    root = checkout()
    try:
        found = kernels_in_pages.check(root) if check else kernels_in_pages.sync(root)
    except kernels_in_pages.KernelTextError as problem:
        Console(stderr=True, soft_wrap=True).print(f"gpudays: {problem}", markup=False)
        raise typer.Exit(1) from problem
    for line in found:
        say.print(line if check else f"{line}: kernels carried over", markup=False)
    if not found:
        say.print("pages and programs hold the same kernels")
    raise typer.Exit(1 if check and found else 0)
