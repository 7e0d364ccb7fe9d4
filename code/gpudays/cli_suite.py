"""Command room: the optimisation suite: ``gpudays run``, ``verify``, ``bench``, ``plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

app = typer.Typer()
say = Console(highlight=False)

Kernels = Annotated[
    list[str] | None,
    typer.Option("--kernel", "-k", help="0 to 5, 3f, step1 to step6, or a kernel's name; may be repeated"),
]
Side = Annotated[int | None, typer.Option(min=1, help="one side: A is M × K, B is K × N, C is M × N")]


def _stop(message: str, code: int = 1) -> NoReturn:
    say.print(message, style="red", markup=False, soft_wrap=True)
    raise typer.Exit(code)


def _entries(kernels: list[str] | None, default: tuple[str, ...]):
    from gpudays.course import suite

    try:
        return [suite.entry(key) for key in kernels or default]
    except KeyError as problem:
        _stop(problem.args[0], 2)


def _sides(size: int | None, m: int | None, n: int | None, k: int | None) -> tuple[int, int, int]:
    if size and (m or n or k):
        _stop("give --size, or --m, --n and --k, not both", 2)
    if (m or n or k) and not (m and n and k):
        _stop("--m, --n and --k go together", 2)
    return (m, n, k) if m and n and k else (size or 256,) * 3


@app.command()
def run(
    kernel: Annotated[str, typer.Option("--kernel", "-k", help="0 to 5, 3f, step1 to step6, or a kernel's name")] = "2",
    size: Annotated[int | None, typer.Option("--size", "-s", min=1, help="a square's side (256)")] = None,
    m: Side = None,
    n: Side = None,
    k: Side = None,
) -> None:
    """Run one kernel and verify its answer; on a GPU time it too, elsewhere show what the tracer counts."""
    from gpudays import bench_suite, gpu
    from gpudays.course.models import flops

    (entry,), sides = _entries([kernel], ()), _sides(size, m, n, k)
    if why := entry.refuses(sides):
        _stop(f"{entry.kernel} cannot multiply {'x'.join(map(str, sides))}: {why}", 2)
    with say.status(f"running {entry.kernel}"):
        report = _reported(entry, [sides])
    say.print(str(report), markup=False)
    if not report.ok:
        raise typer.Exit(1)
    if gpu.device() is not None:
        row = bench_suite.time_entry(entry, sides, 3, 10)
        rate = flops(*sides) / row.median / 1e6
        say.print(
            f"{row.median:.4f} ms, median of {row.repeats} ({row.fastest:.4f} to {row.slowest:.4f}); "
            f"{rate:,.1f} GFLOP/s; live, {gpu.device().name}"
        )
    elif entry.day is not None:
        _show_counts([entry], sides)


def _reported(entry, sizes):
    from gpudays import bench_suite, cpu_loop, gpu
    from gpudays.compiler import CompileError

    try:
        return bench_suite.check(entry, sizes)
    except (gpu.NoGpu, gpu.GpuFault, cpu_loop.NoCompiler, CompileError, RuntimeError) as problem:
        _stop(str(problem))


def _show_counts(entries, sides) -> None:
    from gpudays import bench_suite, metrics
    from gpudays.ptx import model

    counted = bench_suite.counts(entries, sides)
    shown = {
        "load requests": (model.GLOBAL_LD_REQUESTS, ",.0f"),
        "load sectors": (model.GLOBAL_LD_SECTORS, ",.0f"),
        "sectors per request": (metrics.SECTORS_PER_REQUEST, ".4g"),
        "floats per thread": (model.LOADS_PER_THREAD, ".4g"),
        "shared wavefronts": (model.SHARED_LD_WAVEFRONTS, ",.0f"),
        "PTX warp instr.": (model.WARP_INSTRUCTIONS, ",.0f"),
    }
    table = Table(box=None, pad_edge=False)
    table.add_column("traced", no_wrap=True)
    for title in shown:
        table.add_column(title, justify="right")
    for kernel, rows in counted.groupby("kernel", sort=False):
        values = dict(zip(rows["metric"], rows["value"], strict=True))
        table.add_row(kernel, *(format(values.get(name, 0), spec) for name, spec in shown.values()))
    Console(highlight=False, width=max(say.width, 110)).print(table)


@app.command()
def verify(
    kernels: Kernels = None,
    size: Annotated[list[int] | None, typer.Option("--size", "-s", min=1, help="squares to try instead")] = None,
) -> None:
    """Verify every kernel of the suite at many sizes, odd ones too, against float64; ends with 1 if one is wrong."""
    from gpudays import gpu
    from gpudays.course import suite

    entries = _entries(kernels, suite.KEYS)
    sizes = [(n,) * 3 for n in size] if size else list(suite.VERIFY_SIZES)
    wrong = 0
    with Progress(SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=say,
                  transient=True) as bar:  # fmt: skip
        task = bar.add_task("", total=len(entries))
        for entry in entries:
            bar.update(task, description=entry.kernel)
            if entry.kernel == suite.CUBLAS and gpu.device() is None:
                say.print(f"{entry.kernel}: not run: cuBLAS needs a GPU ({gpu.why_no_gpu()})", markup=False)
            else:
                report = _reported(entry, sizes)
                wrong += not report.ok
                say.print(str(report), style="" if report.ok else "red", markup=False, soft_wrap=True)
            bar.advance(task)
    if wrong:
        _stop(f"{wrong} of {len(entries)} kernels are wrong")


@app.command()
def bench(
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV to write, or to go on with")] = Path(
        "results.csv"
    ),
    kernels: Kernels = None,
    size: Annotated[list[int] | None, typer.Option("--size", "-s", min=1, help="squares (256, 1024, 4096)")] = None,
    m: Side = None,
    n: Side = None,
    k: Side = None,
    warm_ups: Annotated[int, typer.Option(min=0, help="launches before the timed ones")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="timed launches; slow kernels get fewer, and it says so")] = 100,
) -> None:
    """Time the suite with CUDA events, verified first. Stopped and called again with the same file, it goes on."""
    from gpudays import bench_suite, gpu, profiles
    from gpudays.course import suite
    from gpudays.verify import label

    entries = _entries(kernels, suite.KEYS)
    sizes = [_sides(None, m, n, k)] if m or n or k else [(s,) * 3 for s in size] if size else list(suite.BENCH_SIZES)
    if gpu.device() is None:
        say.print(f"Nothing is timed here: {gpu.why_no_gpu()}. What the tracer counts at 256:", soft_wrap=True)
        with say.status("tracing"):
            _show_counts(entries, (256, 256, 256))
        raise typer.Exit(1)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=say, transient=True) as bar:
        task = bar.add_task("", total=len(entries) * len(sizes))

        def tell(entry, at, row) -> None:
            bar.update(task, description=f"{entry.kernel} at {label(at)}")
            if row is not None:
                fewer = f" ({row.repeats} repeats)" if row.repeats < repeats else ""
                say.print(f"{entry.label} at {label(at)}: {row.median:.4f} ms{fewer}")
                bar.advance(task)

        try:
            failures = bench_suite.bench(output, entries, sizes, warm_ups, repeats, tell)
        except profiles.ProfileError as problem:
            _stop(str(problem))
    for failure in failures:
        say.print(failure, style="yellow", markup=False, soft_wrap=True)
    say.print(f"written to {output}")


@app.command()
def plot(
    results: Annotated[Path, typer.Argument(help="a bench's CSV")],
    output: Annotated[Path, typer.Option("--output", "-o", help="folder for the PNGs")] = Path("."),
) -> None:
    """Draw a bench: time, GFLOP/s, speed-up over the CPU loop, fraction of cuBLAS, one PNG each."""
    from gpudays import profiles, suite_figures

    try:
        written, lacking = suite_figures.write(results, output)
    except profiles.ProfileError as problem:
        _stop(str(problem))
    for path in written:
        say.print(str(path))
    for why in lacking:
        say.print(f"not drawn: {why}", style="yellow", markup=False, soft_wrap=True)
