"""The command line's handout room: ``gpudays handout DAY OUT/`` writes what students get."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer()
say = Console(highlight=False, soft_wrap=True)


@app.command()
def handout(
    day: Annotated[str, typer.Argument(help="day16, day43 or day44")],
    out: Annotated[Path, typer.Argument(help="the folder to write")],
) -> None:
    """Write a day's exercise for students: notebook and program with stubs, and the tests that grade them."""
    from gpudays import checking, cuda_syntax
    from gpudays import handout as room
    from gpudays.cli_site import checkout
    from gpudays.notebooks import PageError

    try:
        written = room.write(checkout(), day, out)
    except (checking.NoExercise, room.HandoutError, cuda_syntax.NotCuda, PageError) as problem:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"gpudays: {problem}", markup=False)
        raise typer.Exit(2) from problem
    for path in written:
        say.print(path, markup=False)
