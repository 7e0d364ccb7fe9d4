"""The command line's grading room: ``gpudays grade SUBMISSIONS/ --day day43 --output grades.csv``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

app = typer.Typer()
say = Console(highlight=False, soft_wrap=True)


@app.command()
def grade(
    folder: Annotated[Path, typer.Argument(help="one file or folder for each student")],
    day: Annotated[str, typer.Option(help="day16, day43 or day44")],
    output: Annotated[Path, typer.Option(help="the CSV; reports go into the folder of that name")] = Path("grades.csv"),
    scheduler: Annotated[str, typer.Option(help="a Dask scheduler, tcp://…, to use instead of this machine")] = "",
    jobs: Annotated[
        int, typer.Option(help="checks at a time here (default: a core each); they take turns on a GPU")
    ] = 0,
    gpu: Annotated[bool | None, typer.Option(help="use a GPU (default: where there is one)")] = None,
) -> None:
    """Grade a class: a CSV with points for each stage, and for each student a report."""
    from gpudays import checking, grading

    wrong = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, TimeRemainingColumn(), console=wrong, transient=True) as bars:
            bar = bars.add_task(day, total=None)

            def tell(row: grading.Graded, done: int, total: int) -> None:
                bars.update(bar, description=row.student, completed=done, total=total)

            with _executor(scheduler, jobs, gpu) as (executor, card):
                rows = grading.grade(folder, day, output, executor, card, tell)
    except (checking.NoExercise, NotADirectoryError, OSError) as problem:
        wrong.print(f"gpudays: {problem}", markup=False)
        raise typer.Exit(2) from problem
    except KeyboardInterrupt as stop:
        wrong.print(f"gpudays: stopped; what was graded is in {output}. The same command goes on from there.")
        raise typer.Exit(130) from stop
    finally:
        grading.close_sandboxes()
    passed, fresh = sum(row.report.passed for row in rows), sum(row.fresh for row in rows)
    say.print(
        f"{len(rows)} students: {passed} passed, {len(rows) - passed} not; {fresh} graded now, the rest as before"
    )
    checked = [row.used for row in rows if row.used.cpu_seconds]
    if checked:
        mean, most = sum(u.cpu_seconds for u in checked) / len(checked), max(u.peak_mib for u in checked)
        say.print(f"{len(checked)} were run: {mean:.2f} s of CPU each on average, at most {most:.0f} MiB")
    say.print(f"{output}, reports in {output.with_suffix('')}/", markup=False)


@contextmanager
def _executor(scheduler: str, jobs: int, gpu: bool | None) -> Iterator[tuple[Executor, str]]:
    """Where checks run, and the name of the card there: "" for none."""
    from gpudays import gpu as room

    if scheduler:
        from distributed import Client

        patience = os.environ.get("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "10s")
        with Client(scheduler, timeout=patience) as client:
            card = "" if gpu is False else client.submit(_card_name, pure=False).result()
            yield client.get_executor(pure=False), card
        return
    card = "" if gpu is False else _card_name()
    if gpu and not card:
        raise OSError(f"--gpu: {room.why_no_gpu()}")
    with ThreadPoolExecutor(jobs or min(8, os.cpu_count() or 1)) as pool:
        yield pool, card


def _card_name() -> str:
    """This machine's card, "" for none."""
    from gpudays import gpu as room

    card = room.device()
    return card.name if card else ""
