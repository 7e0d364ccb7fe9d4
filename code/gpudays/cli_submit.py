"""The command line's submission room: ``gpudays submit DAY`` packs what is handed in, or says what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer()


@app.command()
def submit(
    day: Annotated[str, typer.Argument(help="day16, day43 or day44")],
    path: Annotated[Path, typer.Argument(help="your file, or the folder with it")] = Path(),
    sentence: Annotated[str, typer.Option(help="which step you would have skipped, and why")] = "",
    times: Annotated[Path | None, typer.Option(help="the table your program writes with --csv")] = None,
    output: Annotated[Path | None, typer.Option(help="the zip (default: DAY.zip)")] = None,
) -> None:
    """Pack one zip: your .cu, the speed-ups, the sectors per request, the machine and your sentence."""
    from gpudays import checking
    from gpudays import submit as room

    wrong = Console(stderr=True, highlight=False, soft_wrap=True)
    target = output or Path(f"{day}.zip")
    try:
        with wrong.status(f"{day}: counting and timing"):
            made = room.collect(day, path, sentence, times)
        room.write(made, target)
    except (checking.NoExercise, room.Incomplete) as problem:
        wrong.print(f"gpudays: {problem}", markup=False)
        raise typer.Exit(1 if isinstance(problem, room.Incomplete) else 2) from problem
    typer.echo(f"{target}: {made.file}, {len(made.speedups)} speed-ups ({made.machine['card']}),")
    typer.echo(", ".join(f"{kernel} {value:g}" for kernel, value in made.sectors_per_request.items()))
