"""Bench room: how fast the tracer is on this machine, and against Numba's CUDA simulator. `python -m gpudays.bench`.

Everything counts while it runs: sectors, conflicts, races. Times are of this process on this machine and mean nothing
elsewhere; the ratio to the simulator is of one tiled kernel at N = 64 in the same run.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from gpudays import compile_cache, compiler
from gpudays.course.steps import DAYS, Day
from gpudays.kernels_in_pages import kernel_text
from gpudays.ptx import engine

ROOT = Path(__file__).parents[2]
ROWS = (
    ("day43", "matmulStridedRows", (256, 512, 1024)),
    ("day43", "matmulCoalescedCols", (256, 512, 1024)),
    ("day43", "matmulTiled", (256, 512, 1024)),
    ("day44", "matmulRegisterTile", (1024,)),
)
REPEATS = 3
SIMULATOR_N = 64

# The Day 43 tiled kernel in Numba's Python dialect; it prints the seconds of a second launch.
SIMULATOR = textwrap.dedent("""
    import time, sys
    import numpy as np
    from numba import cuda, float32
    TILE = 16
    @cuda.jit
    def tiled(a, b, c, n):
        tile_a = cuda.shared.array((TILE, TILE), float32)
        tile_b = cuda.shared.array((TILE, TILE), float32)
        tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
        row = cuda.blockIdx.y * TILE + ty
        col = cuda.blockIdx.x * TILE + tx
        total = float32(0)
        for start in range(0, n, TILE):
            tile_a[ty, tx] = a[row, start + tx] if row < n and start + tx < n else 0
            tile_b[ty, tx] = b[start + ty, col] if start + ty < n and col < n else 0
            cuda.syncthreads()
            for k in range(TILE):
                total += tile_a[ty, k] * tile_b[k, tx]
            cuda.syncthreads()
        if row < n and col < n:
            c[row, col] = total
    n = int(sys.argv[1])
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n)).astype(np.float32) for _ in "ab")
    c = np.zeros((n, n), np.float32)
    started = time.perf_counter()
    tiled[(-(-n // TILE),) * 2, (TILE, TILE)](a, b, c, n)
    seconds = time.perf_counter() - started
    assert np.allclose(c, a.astype(np.float64) @ b, rtol=1e-3, atol=1e-3)
    print(seconds)
""")


@dataclass(frozen=True)
class Timing:
    """One row: what ran, how long (median and extremes of the repeats), how much, and what compiling took before.

    `cpu_seconds` is what the cores worked in one run, median: on a busy machine it tells more than the clock.
    """

    kernel: str
    n: int
    first_call: float
    seconds: float
    fastest: float
    slowest: float
    cpu_seconds: float
    instructions: int

    @property
    def rate(self) -> float:
        """Million warp instructions per second, at the median."""
        return self.instructions / self.seconds / 1e6


def measure(day: Day, kernel: str, n: int) -> Timing:
    """Trace a day's kernel at N = n, checked against NumPy once."""
    source = kernel_text(ROOT / day.program)
    rng = np.random.default_rng(n)
    a, b = (rng.standard_normal((n, n)).astype(np.float32) for _ in "ab")
    c = np.full((n, n), np.nan, np.float32)
    started = time.perf_counter()
    program = compiler.compile(source)
    step = day.launch(kernel, source, program.arch)
    entry, grid = program.kernel(kernel).mangled, step.grid((n, n, n))
    args = [a, b, c, *day.scalars((n, n, n))]
    engine.execute(program.ptx, entry, grid, step.block, args, step.shared_bytes, blocks=[(0, 0, 0)])
    first = time.perf_counter() - started
    seconds, worked = [], []
    for _ in range(REPEATS):
        before = time.process_time()
        done = engine.execute(program.ptx, entry, grid, step.block, args, step.shared_bytes)
        worked.append(time.process_time() - before)
        seconds.append(done.seconds)
    if done.findings or not np.allclose(c, a.astype(np.float64) @ b, rtol=1e-3, atol=1e-2):
        raise RuntimeError(f"{kernel} at {n}: wrong result or findings: {done.findings}")
    middle, cpu = statistics.median(seconds), statistics.median(worked)
    return Timing(kernel, n, first, middle, min(seconds), max(seconds), cpu, done.warp_instructions)


def simulator_seconds(n: int = SIMULATOR_N) -> float | None:
    """Seconds that Numba's CUDA simulator takes for the tiled kernel; None where Numba is not installed."""
    command = [sys.executable, "-c", SIMULATOR, str(n)]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}, check=False
    )
    if done.returncode and "No module named 'numba'" in done.stderr:
        return None
    if done.returncode:
        raise RuntimeError(f"Numba's simulator failed:\n{done.stderr}")
    return float(done.stdout)


def peak_megabytes() -> float | None:
    """The most memory that this process has held so far; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def _cells(t: Timing) -> tuple[str, ...]:
    peak, per_cpu = peak_megabytes(), t.instructions / t.cpu_seconds / 1e6
    return (
        t.kernel, str(t.n), f"{t.first_call:.2f}", f"{t.seconds:.3f}", f"{t.fastest:.3f}–{t.slowest:.3f}",
        f"{t.rate:.0f}", f"{per_cpu:.0f}", f"{peak:.0f}" if peak else "?",
    )  # fmt: skip


def _load() -> str:
    """How busy the machine was before: clock times on a busy one are too long."""
    return f", load average {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""


def machine() -> str:
    """The processor and its number of cores, as far as the system tells."""
    info = Path("/proc/cpuinfo")
    models = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    name = models[0].split(":", 1)[1].strip() if models else platform.processor() or platform.machine()
    return f"{name}, {platform.machine()}, {os.cpu_count()} cores"


def write(timings: list[Timing], ratio: float | None, path: Path) -> None:
    """The rows as CSV, with the machine that they come from; `ratio` to Numba's simulator stands in each."""
    columns = ("kernel", "n", "first_call_s", "run_s", "run_s_min", "run_s_max", "million_warp_instructions_per_s")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*columns, "times_numba_simulator", "machine"])
        for t in timings:
            times = (f"{seconds:.3f}" for seconds in (t.first_call, t.seconds, t.fastest, t.slowest))
            writer.writerow([t.kernel, t.n, *times, f"{t.rate:.0f}", f"{ratio:.0f}" if ratio else "", machine()])


def main(arguments: list[str] | None = None) -> None:
    """Print the table, the machine it comes from, and one line that sums it up."""
    options = argparse.ArgumentParser(prog="python -m gpudays.bench", description=__doc__.splitlines()[0])
    options.add_argument("--csv", type=Path, help="write the rows there as well")
    chosen = options.parse_args(arguments)
    console = Console(width=110)
    table = Table(title=f"The tracer on {machine()}{_load()}")
    for heading in ("kernel", "N", "first call s", "run s", "min–max", "M instr/s", "M instr per CPU s", "MB"):
        table.add_column(heading, justify="left" if heading == "kernel" else "right")
    timings: list[Timing] = []
    with console.status("tracing …") as status, tempfile.TemporaryDirectory() as empty:
        os.environ[compile_cache.VARIABLE] = empty  # a first call compiles: it finds nothing that was kept
        for day, kernel, sizes in ROWS:
            for n in sizes:
                status.update(f"{kernel} at {n}")
                t = measure(DAYS[day], kernel, n)
                timings.append(t)
                table.add_row(*_cells(t))
        status.update("Numba's simulator")
        ours = measure(DAYS["day43"], "matmulTiled", SIMULATOR_N)
        theirs = simulator_seconds()
    console.print(table)
    total = sum(t.instructions for t in timings) / sum(t.seconds for t in timings) / 1e6
    if chosen.csv:
        write(timings, theirs / ours.seconds if theirs else None, chosen.csv)
    if theirs is None:
        console.print("Numba is not installed: no comparison with its simulator", highlight=False)
        print(f"tracer: {total:.0f} million warp-instructions/s")
        return
    console.print(
        f"tiled kernel at N = {SIMULATOR_N}: tracer {ours.seconds:.4f} s, Numba's simulator {theirs:.2f} s",
        highlight=False,
    )
    print(f"tracer: {total:.0f} million warp-instructions/s, {theirs / ours.seconds:.0f} x Numba's simulator")


if __name__ == "__main__":
    main()
