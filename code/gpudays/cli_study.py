"""Command room: ``gpudays study`` holds the tracer's counters against a card's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer()


@app.command()
def study(
    output: Annotated[Path, typer.Option(help="folder to write")] = Path("content/profiles/tracer"),
    retrace: Annotated[
        bool, typer.Option("--retrace", help="only the tracer's side again, beside the shipped card's")
    ] = False,
) -> None:
    """Count the study's kernels on this card and in the tracer, and write the table of both. Needs counters."""
    from gpudays import counter_study, gpu, profiler

    console = Console()
    if retrace:
        with console.status("tracing"):
            table = counter_study.retraced(counter_study.shipped())
        counter_study.write(table, output)
        _say(console, table, output)
        return
    try:
        with console.status(f"counting {len(counter_study.cases())} launches on the card and in the tracer"):
            table = counter_study.capture(output)
    except (gpu.NoGpu, profiler.ProfilerRefused) as problem:
        console.print(f"[red]{problem}")
        raise typer.Exit(1) from problem
    _say(console, table, output)


def _say(console: Console, table, output: Path) -> None:
    equal = int((table["card"] == table["traced"]).sum())
    console.print(f"{equal} of {len(table)} counters equal; written to {output / 'counters.csv'}")
