"""The command line's doctor room: ``gpudays doctor`` says what this machine can do and what to do about the rest."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer()
say = Console(highlight=False)
_STYLES = {"ok": "green", "missing": "bold red", "not here": "yellow"}


@app.command()
def doctor(
    counters: Annotated[bool, typer.Option(help="try to read hardware counters, where there is a GPU")] = True,
) -> None:
    """Say what this machine can do for the course and what to do about the rest; ends with 1 if pages cannot run."""
    from gpudays import doctor as room

    with say.status("looking at this machine"):
        items = room.examine(counters)
    table = Table("", "", box=None, pad_edge=False)
    table.add_column("found", overflow="fold")
    table.add_column("gives", overflow="fold")
    for item in items:
        verdict = f"[{_STYLES[item.verdict]}]{item.verdict}[/]"
        table.add_row(verdict, item.name, item.found.replace("[", "\\["), item.gives)
    say.print(table)
    for item in items:
        if not item.there and item.remedy:
            say.print(f"{item.name}: {item.remedy}", markup=False, soft_wrap=True)
    runs = room.usable(items)
    card = next(item.there for item in items if item.name == "GPU")
    say.print(
        "The pages run here, on the GPU." if runs and card
        else "The pages run here: the tracer answers and counts, times are shipped." if runs
        else "The pages do not run here yet: see what is missing above."
    )  # fmt: skip
    raise typer.Exit(0 if runs else 1)
