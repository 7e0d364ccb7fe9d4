"""The command line's capture room: ``gpudays profile DAY`` measures a program on a GPU host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

app = typer.Typer()
say = Console(highlight=False, soft_wrap=True)


@app.command()
def profile(
    day: Annotated[str, typer.Argument(help="day16, day43, day44 or optimizer")],
    output: Annotated[Path | None, typer.Option(help="folder to write (content/profiles/…)")] = None,
    nsys: Annotated[str | None, typer.Option(help="path of Nsight Systems' command")] = None,
    clock_control: Annotated[str, typer.Option(help="none leaves the card's clocks alone; base fixes them")] = "none",
) -> None:
    """Build, time and profile a day's program here, and write what the course ships of it (needs nvcc and ncu)."""
    from gpudays import capture, gpu
    from gpudays.cli_site import checkout

    wrong = Console(stderr=True, highlight=False, soft_wrap=True)
    if day not in capture.PLANS:
        wrong.print(f"gpudays: nothing is captured of {day!r}; there are {', '.join(capture.PLANS)}", markup=False)
        raise typer.Exit(2)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=say, transient=True) as bars:
        bar = bars.add_task(day)

        def tell(title: str, done: int, total: int) -> None:
            bars.update(bar, description=f"{day}: {title}", completed=done, total=total)

        try:
            failures = capture.capture(capture.PLANS[day], checkout(), output, nsys, clock_control, tell)
        except gpu.NoGpu as problem:
            wrong.print(f"gpudays: {problem}", markup=False)
            raise typer.Exit(1) from problem
    for failure in failures:
        wrong.print(f"gpudays: {failure}", markup=False)
    done = "all of it is there" if not failures else f"{len(failures)} step{'s' * (len(failures) > 1)} did not work"
    say.print(f"{day}: {done}; see evidence.md", markup=False)
    raise typer.Exit(1 if failures else 0)
