"""Tuning room of Day 44: the sweeps behind the launch table and the patch sweep, each one command.

    python tune.py shapes OUT     step 6 over tile shapes and sizes           -> OUT/shapes.csv
    python tune.py steps OUT      steps 4 and 5 over tile shapes              -> OUT/steps.csv
    python tune.py patches OUT    step 4 by outputs per thread, at n = 2048   -> OUT/patch-sweep.csv

The ladder itself is timed by the program, matmul_registers. Every configuration is checked before it is timed.
Needs a CUDA GPU, CuPy, pandas, rich and typer.
"""

from __future__ import annotations

from pathlib import Path

import bench
import pandas as pd
import typer
from bench import CUBLAS, Bench, Config
from rich.console import Console

HERE = Path(__file__).resolve().parent
console = Console(width=140)
app = typer.Typer(add_completion=False, help=__doc__)

PATCHES = ((1, 1), (2, 2), (2, 4), (4, 4), (8, 4), (8, 8), (16, 8), (16, 16))  # rows, columns of outputs per thread
# Step 6: bm, bn, bk, wm, wn, tm, tn, stages, blocks per multiprocessor.
LARGE_SHAPES = (
    (128, 256, 8, 64, 64, 16, 8, 3, 1),
    (128, 256, 8, 32, 128, 16, 8, 3, 1),
    (128, 256, 8, 64, 64, 16, 8, 2, 1),
    (128, 256, 4, 64, 64, 16, 8, 4, 1),
    (256, 128, 8, 64, 64, 16, 8, 3, 1),
    (128, 128, 8, 64, 64, 16, 8, 3, 2),
    (128, 128, 8, 64, 64, 16, 8, 4, 2),
    (128, 128, 8, 32, 128, 16, 8, 3, 2),
    (64, 256, 8, 32, 128, 16, 8, 3, 2),
    (128, 128, 8, 64, 32, 8, 8, 3, 2),
)
SMALL_SHAPES = (
    (64, 128, 8, 32, 64, 8, 8, 3, 3),
    (64, 128, 8, 32, 64, 8, 8, 4, 3),
    (64, 128, 8, 64, 32, 8, 8, 3, 3),
    (128, 64, 8, 64, 32, 8, 8, 3, 3),
    (64, 128, 16, 32, 64, 8, 8, 3, 3),
    (64, 128, 8, 32, 32, 8, 4, 4, 2),
    (64, 128, 16, 32, 32, 8, 4, 3, 2),
    (64, 64, 8, 32, 32, 8, 4, 4, 4),
    (64, 64, 16, 32, 32, 8, 4, 3, 4),
    (64, 64, 16, 32, 16, 4, 4, 3, 2),
    (64, 64, 16, 16, 32, 4, 4, 3, 2),
    (64, 32, 16, 32, 16, 4, 4, 3, 4),
    (32, 64, 16, 16, 32, 4, 4, 4, 4),
    (32, 32, 16, 16, 16, 4, 2, 4, 8),
)


def page_kernels(program: Path) -> str:
    """The kernels between a program's page markers."""
    text = program.read_text(encoding="utf-8")
    return text.split("// page: begin kernels\n")[1].split("// page: end kernels")[0]


SOURCE = page_kernels(HERE / "matmul_registers.cu")


def step6(shape: tuple[int, ...], kernel: str = "matmulWarpTiled") -> Config:
    """Step 6 with a shape in place of the launch table's."""
    bm, bn, _, _, _, tm, tn, _, _ = shape
    macros = {"WARP_TILES": ",".join(map(str, shape))}
    return Config("6: " + macros["WARP_TILES"], kernel, SOURCE, macros, bm, bn, (bm // tm) * (bn // tn))


def register_step(step: int, bm: int, bn: int, bk: int, tm: int, tn: int) -> Config:
    """Step 4 or 5 with other tiles."""
    kernel, macro = {4: ("matmulRegisterTile", "REGISTER_TILES"), 5: ("matmulVectorLoads", "VECTOR_TILES")}[step]
    text = f"{bm},{bn},{bk},{tm},{tn}"
    return Config(f"{step}: {text}", kernel, SOURCE, {macro: text}, bm, bn, (bm // tm) * (bn // tn))


def prepared(configs: list[Config], sizes: tuple[int, ...] = bench.ODD_SIZES) -> Bench:
    """Compiles and checks; what does not compile or compute rightly is named and left out."""
    with console.status(f"compiling {len(configs)} configurations"):
        built = bench.build_all(configs)
    for one in built:
        if one.problem:
            console.print(f"does not compile: {one.config.label}: {one.problem.strip().splitlines()[-1]}")
    ready = Bench(built)
    with console.status("checking"):
        for label, why in ready.wrong(sizes).items():
            console.print(f"WRONG {label}: {why}")
    return ready


def measured(ready: Bench, sizes: tuple[int, ...], repeats: int = 10) -> pd.DataFrame:
    """Times of everything at every size, with each configuration's registers and spills."""
    rows = []
    with console.status("timing"):
        for n in sizes:
            rows += bench.rows_of(ready.times(n, repeats), n)
    frame = pd.DataFrame(rows)
    frame["card"] = bench.card()
    for column, value in (
        ("registers", lambda one: one.registers),
        ("spill_bytes", lambda one: one.spill_stores + one.spill_loads),
    ):
        frame[column] = [value(ready.built[x]) if x in ready.built else None for x in frame["label"]]
    return frame


def show(frame: pd.DataFrame, by: int) -> None:
    """Fractions of cuBLAS, best first."""
    table = frame.pivot(index="label", columns="n", values="fraction_of_cublas")
    table = table.join(frame.drop_duplicates("label").set_index("label")[["registers", "spill_bytes"]])
    ceiling = frame[frame["label"] == CUBLAS].set_index("n")[["ms_median", "ms_min", "ms_max", "gflops"]]
    print(ceiling.round(4).to_string())
    print(table.sort_values(by, ascending=False).round(3).to_string())


@app.command()
def shapes(out: Path) -> None:
    """Step 6 over tile shapes and sizes."""
    ready = prepared([step6(shape) for shape in (*LARGE_SHAPES, *SMALL_SHAPES)])
    frame = measured(ready, (512, 1000, 1024, 1536, 2047, 2048, 4095, 4096))
    frame.to_csv(out / "shapes.csv", index=False, float_format="%.6g")
    show(frame, 4096)


@app.command()
def steps(out: Path) -> None:
    """Steps 4 and 5 over tile shapes."""
    tiles = ((128, 128, 8, 8, 8), (128, 128, 16, 8, 8), (128, 64, 16, 8, 8), (64, 64, 16, 8, 4), (64, 64, 16, 4, 4))
    ready = prepared([register_step(step, *tile) for step in (4, 5) for tile in tiles])
    frame = measured(ready, (1024, 2048, 4096))
    frame.to_csv(out / "steps.csv", index=False, float_format="%.6g")
    show(frame, 4096)


@app.command()
def patches(out: Path, n: int = 2048) -> None:
    """Step 4's kernel by outputs per thread: blocks of 16 × 16 threads, 16 steps of k at a time."""
    configs = {(tm, tn): register_step(4, 16 * tm, 16 * tn, 16, tm, tn) for tm, tn in PATCHES}
    ready = prepared(list(configs.values()))
    times = {row["label"]: row for row in bench.rows_of(ready.times(n, 20), n)}
    rows = []
    for (tm, tn), config in configs.items():
        one, blocks = ready.built[config.label], ready.blocks_per_multiprocessor(config.label)
        rows.append(
            {
                "kernel": config.kernel,
                "patch_rows": tm,
                "patch_cols": tn,
                "block_rows": config.bm,
                "block_cols": config.bn,
                "depth": 16,
                "threads": config.threads,
                "registers": one.registers,
                "spill_store_bytes": one.spill_stores,
                "spill_load_bytes": one.spill_loads,
                "shared_bytes": one.static_shared,
                "blocks_per_multiprocessor": blocks,
                "occupancy": blocks * config.threads / bench.threads_per_multiprocessor(),
                **{k: v for k, v in times[config.label].items() if k != "label"},
                "card": bench.card(),
            }
        )
    frame = pd.DataFrame(rows)
    frame.to_csv(out / "patch-sweep.csv", index=False, float_format="%.6g")
    columns = ["patch_rows", "patch_cols", "registers", "spill_store_bytes", "occupancy", "ms_median"]
    print(frame[[*columns, "ms_min", "ms_max", "fraction_of_cublas"]].round(4).to_string())


if __name__ == "__main__":
    app()
