"""The command line's exercise room: ``gpudays check DAY FILE`` says what a hand-in does right and wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer()


@app.command()
def check(
    day: Annotated[str, typer.Argument(help="day16, day43 or day44")],
    file: Annotated[Path, typer.Argument(help="a .cu file, a notebook, or a folder with one")],
    as_json: Annotated[bool, typer.Option("--json", help="the report for machines")] = False,
    gpu: Annotated[bool | None, typer.Option(help="use the GPU (default: if there is one)")] = None,
) -> None:
    """Check an exercise; the exit status is 0 only if the day is passed."""
    from gpudays import checking
    from gpudays.sandbox import Sandbox

    wrong = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        with wrong.status(f"{day}: reading {file.name}") as line, Sandbox() as sandbox:
            report = checking.check(day, file, sandbox, gpu, lambda stage: line.update(f"{day}: {stage}"))
    except checking.NoExercise as problem:
        wrong.print(f"gpudays: {problem}", markup=False)
        raise typer.Exit(2) from problem
    typer.echo(json.dumps(report.as_dict(), indent=2, ensure_ascii=False) if as_json else repr(report))
    raise typer.Exit(0 if report.passed else 1)
