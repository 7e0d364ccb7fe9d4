"""The command line's timing room: ``gpudays time DAY`` times a day's kernels on this card, as its page does."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer()
say = Console(highlight=False, soft_wrap=True)
COLUMNS = ["n", "step", "kernel", "ms_median", "ms_min", "ms_max", "card"]


@app.command("time")
def time_kernels(
    day: Annotated[str, typer.Argument(help="day43 or day16; day44 times its tiles for other cards")],
    size: Annotated[list[int] | None, typer.Option(help="matrix side; may be given again")] = None,
    output: Annotated[Path | None, typer.Option(help="CSV to write")] = None,
) -> None:
    """Verify and time a day's kernels with CUDA events; without --size at the first size past this card's L2."""
    from gpudays import gpu, kernels_in_pages, ladder, ladder_files, session
    from gpudays.cli_site import checkout
    from gpudays.course.day44 import DAY44, LARGE

    wrong = Console(stderr=True, highlight=False, soft_wrap=True)
    if day not in (days := [*session.DAYS, DAY44.name]):
        wrong.print(f"gpudays: no day is called {day!r}; there are {', '.join(days)}", markup=False)
        raise typer.Exit(2)
    if gpu.device() is None:
        wrong.print(f"gpudays: times need a GPU: {gpu.why_no_gpu()}", markup=False)
        raise typer.Exit(1)
    lab = ladder.start() if day == DAY44.name else session.start(day)
    source = kernels_in_pages.kernel_text(checkout() / lab.day.program)
    with say.status(f"{day} on {gpu.device().name} …"):
        if day == DAY44.name:
            shown = lab.transplanted(source, size[0] if size else LARGE[1])
        else:
            shown = lab.time(source, size or [lab.size_past_l2])
    say.print(repr(shown), markup=False)
    if output and day == DAY44.name:
        ladder_files.write_transplants(output, lab.measured[lab.measured["source"] == "live"], lab.homes)
    elif output:
        write(shown.frame, gpu.device().name, output)


def write(frame, card: str, output: Path) -> None:
    """The page's table of times as a shipped timing table: ``profiles.read_timing`` reads it."""
    with output.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for row in frame.to_dict("records"):
            ms = [f"{row[name]:.6f}" for name in ("ms", "fastest", "slowest")]
            table.writerow([row["N"], row["step"], row["kernel"], *ms, card])
