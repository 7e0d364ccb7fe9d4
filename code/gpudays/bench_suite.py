"""Bench room: runs, verifies and times the suite's kernels; its CSV grows a row at a time, so that a bench resumes."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from gpudays import cpu_loop, gpu, measurements, profiles, verify
from gpudays.course import suite
from gpudays.course.models import flops
from gpudays.course.steps import Day, Size
from gpudays.course.suite import Entry
from gpudays.kernels_in_pages import kernel_text
from gpudays.runs import Runs

COLUMNS = (
    "kernel", "m", "n", "k", "ms_median", "ms_min", "ms_max", "gflops", "speedup_vs_cpu", "fraction_of_cublas", "card",
)  # fmt: skip
PATIENCE_MS = 5000.0  # what one kernel's repeats may take at one size
FEWEST = 3


@cache
def runs_of(day: Day) -> Runs:
    """The day's kernels, from its program."""
    return Runs(kernel_text(Path(__file__).parents[2] / day.program), day)


def multiply(entry: Entry, a: np.ndarray, b: np.ndarray, c: np.ndarray, size: Size, runs: Runs | None = None) -> None:
    """C = A·B by one entry: on the card where there is one, else in the tracer; the CPU loop on the CPU.

    Args:
        entry: the kernel.
        a, b, c: float32 arrays of shapes (m, k), (k, n), (m, n); C is written in place.
        size: (m, n, k).
        runs: the source that holds the kernel (default: its day's program).

    Raises:
        gpu.NoGpu: cuBLAS without a GPU.
        cpu_loop.NoCompiler: kernel 0 without a C++ compiler.
        RuntimeError: the tracer found a mistake in the kernel.
    """
    if entry.kernel == suite.CPU:
        cpu_loop.multiply(a, b, c)
    elif entry.kernel == suite.CUBLAS:
        _cublas(a, b, c)
    elif gpu.device() is not None:
        (runs or runs_of(entry.day)).launch(entry.kernel, a, b, c, size)
    else:
        result = (runs or runs_of(entry.day)).trace(entry.kernel, a, b, c, size)
        if result.findings:
            raise RuntimeError(f"{entry.kernel}: {result.findings[0].message}")


def _cublas(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    if gpu.device() is None:
        raise gpu.NoGpu(f"cuBLAS runs on a GPU only: {gpu.why_no_gpu()}")
    import cupy

    on_card = cupy.asarray(c)
    gpu.cublas_call(cupy.asarray(a), cupy.asarray(b), on_card)()
    c[...] = on_card.get()


def check(
    entry: Entry, sizes: Sequence[Size], done: Callable[[Size], None] | None = None, runs: Runs | None = None
) -> verify.Report:
    """Verify one entry at the sizes that it takes; see `verify.verify` and `multiply`."""
    taken = [size for size in sizes if not entry.refuses(size)]
    return verify.verify(lambda a, b, c, size: multiply(entry, a, b, c, size, runs), taken, entry.kernel, done=done)


@dataclass(frozen=True)
class Row:
    """One kernel at one size: milliseconds, and how often it was run for them."""

    entry: Entry
    size: Size
    median: float
    fastest: float
    slowest: float
    repeats: int


def time_entry(entry: Entry, size: Size, warm_ups: int, repeats: int) -> Row:
    """Time one entry at one size; a slow one gets fewer repeats, at least three, as `Row.repeats` says.

    Raises:
        gpu.NoGpu: there is no card.
    """
    if gpu.device() is None:
        raise gpu.NoGpu(f"nothing is timed without a GPU: {gpu.why_no_gpu()}")
    once = _samples(entry, size, 0, 1)[0]
    fitting = min(repeats, max(FEWEST, int(PATIENCE_MS / max(once, 1e-6))))
    slow = fitting < repeats
    samples = _samples(entry, size, 1 if slow else warm_ups, fitting)
    return Row(entry, size, float(np.median(samples)), min(samples), max(samples), fitting)


def _samples(entry: Entry, size: Size, warm_ups: int, repeats: int) -> tuple[float, ...]:
    m, n, k = size
    if entry.kernel == suite.CPU:
        return cpu_loop.timed(*verify.inputs(size), repeats)
    if entry.kernel == suite.CUBLAS:
        return gpu.time_cublas(m, n, k, warm_ups, repeats).samples
    runs = runs_of(entry.day)
    step = runs.step_on_card(entry.kernel)
    a, b = verify.inputs(size)
    args = [a, b, np.empty((m, n), np.float32), *runs.arguments(entry.kernel, size)]
    timing = gpu.time_kernel(
        runs.source, entry.kernel, step.grid(size), step.block, args, step.shared_bytes,
        warm_ups=warm_ups, repeats=repeats,
    )  # fmt: skip
    return timing.samples


# ---- the table on disk -----------------------------------------------------------------------------------------------


def bench(
    output: Path,
    entries: Sequence[Entry],
    sizes: Sequence[Size],
    warm_ups: int,
    repeats: int,
    tell: Callable[[Entry, Size, Row | None], None] = lambda entry, size, row: None,
) -> list[str]:
    """Verify and time entries at sizes, writing a row each to `output`; what is there already is not run again.

    Args:
        output: the CSV, made or continued. Ratios to the CPU loop and cuBLAS are filled in at the end.
        tell: called before (row None) and after each measurement.

    Returns:
        What was left out or failed, one line each.

    Raises:
        gpu.NoGpu: no card.
        profiles.ProfileError: `output` is damaged, or of another card.
    """
    card = gpu.device()
    if card is None:
        raise gpu.NoGpu(f"nothing is timed without a GPU: {gpu.why_no_gpu()}")
    rows = _read(output, card.name)
    failures = []
    for size in sizes:
        for entry in entries:
            if (entry.label, *size) in rows:
                continue
            if why := entry.refuses(size):
                failures.append(f"{entry.kernel} left out at {verify.label(size)}: {why}")
                continue
            tell(entry, size, None)
            try:
                report = check(entry, [size])
                if not report.ok:
                    failures.append(str(report.problems[0]))
                    continue
                row = time_entry(entry, size, warm_ups, repeats)
            except (cpu_loop.NoCompiler, gpu.GpuFault) as problem:
                failures.append(str(problem))
                continue
            tell(entry, size, row)
            rows[(entry.label, *size)] = _written(row, card.name)
            _write(output, rows.values())
    _write(output, rows.values())
    return failures


def _written(row: Row, card: str) -> dict[str, object]:
    m, n, k = row.size
    return {
        "kernel": row.entry.label, "m": m, "n": n, "k": k, "ms_median": f"{row.median:.6f}",
        "ms_min": f"{row.fastest:.6f}", "ms_max": f"{row.slowest:.6f}",
        "gflops": f"{flops(m, n, k) / row.median / 1e6:.1f}", "card": card,
    }  # fmt: skip


def _read(output: Path, card: str) -> dict[tuple, dict[str, object]]:
    """The rows of an earlier run, by kernel and size."""
    if not output.exists():
        return {}
    profiles.read_timing(output, "live", card)  # refuses damage
    rows = profiles.read_csv(output, COLUMNS).to_dict("records")
    return {(r["kernel"], *_size(r)): r for r in rows}


def _size(row: dict[str, object]) -> Size:
    return int(row["m"]), int(row["n"]), int(row["k"])


def _write(output: Path, rows: Iterable[dict[str, object]]) -> None:
    """Write the table with the ratios that its rows allow, whole or not at all."""
    rows = list(rows)
    reference = {
        (name, *_size(r)): float(r["ms_median"]) for r in rows if (name := r["kernel"]) in (suite.CPU, suite.CUBLAS)
    }
    part = output.with_name(output.name + ".part")
    output.parent.mkdir(parents=True, exist_ok=True)
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            own = float(row["ms_median"])
            cpu, cublas = (reference.get((name, *_size(row))) for name in (suite.CPU, suite.CUBLAS))
            ratios = {
                "speedup_vs_cpu": f"{cpu / own:.2f}" if cpu else "",
                "fraction_of_cublas": f"{cublas / own:.4f}" if cublas else "",
            }
            writer.writerow({**row, **ratios})
    part.replace(output)


def counts(entries: Sequence[Entry], size: Size):
    """What the tracer counts of the entries that are kernels, as measurements; needs no GPU."""
    tables = []
    for entry in entries:
        if entry.day is None or entry.refuses(size):
            continue
        total = runs_of(entry.day).traced(entry.kernel, size).total
        tables.append(measurements.table(entry.kernel, measurements.size_label(*size), dict(total), "traced", ""))
    return measurements.with_derived(measurements.concat(tables))
