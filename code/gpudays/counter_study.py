"""Counter-study room: the same kernels on a card under Nsight Compute and in the tracer, counter by counter.

`capture` runs on a GPU host and writes what the card counted; `trace` is the tracer's side and needs no GPU; `compare`
holds one against the other. A difference is either explained here, with its cause, or it is a bug of the tracer.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

import gpudays
from gpudays import gpu, metrics, profiler, profiles
from gpudays.course.steps import DAY16, DAY43, DAY44, Day, Size, label
from gpudays.kernels_in_pages import kernel_text
from gpudays.ptx import model

CARD_ARCH = "sm_90"  # Day 44's kernels differ by architecture: those of the card that the shipped table is from
FOLDER = "tracer"
STUDY = "counter-study/kernels.cu"
COLUMNS = ["case", "kernel", "metric", "card", "traced"]

# What the tracer is held against: the exact counter, where there is one (see `metrics.by_instruction`).
ON_CARD = {
    model.GLOBAL_LD_REQUESTS: model.GLOBAL_LD_REQUESTS,
    model.GLOBAL_ST_REQUESTS: model.GLOBAL_ST_REQUESTS,
    model.GLOBAL_LD_SECTORS: metrics.by_instruction("global", "ld"),
    model.GLOBAL_ST_SECTORS: metrics.by_instruction("global", "st"),
    model.ATOM_REQUESTS: model.ATOM_REQUESTS,
    model.RED_REQUESTS: model.RED_REQUESTS,
    model.ATOM_SECTORS: metrics.by_instruction("global", "atom"),
    model.RED_SECTORS: metrics.by_instruction("global", "red"),
    model.LOCAL_LD_REQUESTS: model.LOCAL_LD_REQUESTS,
    model.LOCAL_ST_REQUESTS: model.LOCAL_ST_REQUESTS,
    model.LOCAL_LD_SECTORS: metrics.by_instruction("local", "ld"),
    model.LOCAL_ST_SECTORS: metrics.by_instruction("local", "st"),
    model.SHARED_LD_REQUESTS: metrics.SHARED_LD_BY_SOME,
    model.SHARED_ST_REQUESTS: metrics.SHARED_ST_BY_SOME,
    model.SHARED_LD_WAVEFRONTS: metrics.by_instruction("shared", "ld"),
    model.SHARED_ST_WAVEFRONTS: metrics.by_instruction("shared", "st"),
}
# The unit counters beside them, to show how far sampling and arbitration move them.
UNIT_COUNTERS = (
    model.GLOBAL_LD_SECTORS, model.GLOBAL_ST_SECTORS, model.SHARED_LD_WAVEFRONTS, model.SHARED_ST_WAVEFRONTS,
    model.SHARED_LD_CONFLICTS, model.SHARED_ST_CONFLICTS,
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One launch: a source under ``code``, a kernel of it, and arguments made afresh by `args`."""

    name: str
    source: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: Callable[[], list]
    arch: str = "sm_75"  # whose PTX the tracer runs


def _floats(count: int, kind: type = np.float32) -> np.ndarray:
    return np.random.default_rng(count).random(count).astype(kind)


def _copy(kernel: str, n: int, threads: int | None = None, kind: type = np.float32, lanes: int = 1) -> Case:
    """y from x, n elements of `lanes` numbers each, blocks of 256."""
    grid = (-(-(threads or n) // 256),)
    return _case(kernel, grid, (256,), lambda: [_floats(n * lanes, kind), np.zeros(n * lanes, kind), np.int32(n)])


def _case(kernel: str, grid: tuple[int, ...], block: tuple[int, ...], args: Callable[[], list], name: str = "") -> Case:
    return Case(name or kernel, STUDY, kernel, grid, block, args)


def _bytes(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, n).astype(np.uint8)


def _bins(n: int, bins: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, bins, n).astype(np.int32)


def _shared(kernel: str, stride: int, kind: type, lanes: int = 1) -> Case:
    """256 threads read 1024 shared elements at a stride."""

    def args() -> list:
        x = _bytes(1024) if kind is np.uint8 else _floats(1024 * lanes, kind)
        return [x, np.zeros(4 * 256 * lanes, kind), np.int32(stride)]

    return _case(kernel, (4,), (256,), args, f"{kernel} stride {stride}")


def _share(kernel: str, lanes: int, divide: int, modulo: int) -> Case:
    """256 threads read elements of `lanes` floats that neighbours share."""

    def args() -> list:
        return [_floats(256 * lanes), np.zeros(1024 * lanes, np.float32), np.int32(divide), np.int32(modulo)]

    return _case(kernel, (4,), (256,), args, f"{kernel} i/{divide}%{modulo}")


def _transpose(kernel: str) -> Case:
    n = 128
    return _case(kernel, (4, 4), (32, 32), lambda: [_floats(n * n), np.zeros(n * n, np.float32), np.int32(n)])


def _study() -> list[Case]:
    n, odd = 16384, 10007
    index = np.random.default_rng(3).permutation(n).astype(np.int32)
    return [
        _copy("copyCoalesced", n),
        _copy("copyCoalesced", odd),
        _copy("copyShiftedByOne", n),
        _copy("copyStride2", n, n // 2),
        _copy("copyStride33", n, n // 33 + 1),
        _case("copyBytes", (n // 256,), (256,), lambda: [_bytes(n), np.zeros(n, np.uint8), np.int32(n)]),
        _copy("copyDoubles", n, kind=np.float64),
        _copy("copyFloat2", n, lanes=2),
        _copy("copyFloat4", n, lanes=4),
        _copy("copyFloat4Stride2", n, n // 2, lanes=4),
        _copy("copyReversed", odd),
        _case("gatherIndexed", (n // 256,), (256,), lambda: [_floats(n), index, np.zeros(n, np.float32), np.int32(n)]),
        _copy("loadBroadcast", n),
        _copy("stencil3", odd),
        _copy("everyThird", odd),
        _copy("twoBranches", odd),
        _copy("loopsOfDifferentLength", odd),
        _copy("halfWarpLeavesEarly", odd),
        _transpose("transposeNaive"),
        _transpose("transposeUnpadded"),
        _transpose("transposePadded"),
        *(_shared("sharedFloats", stride, np.float32) for stride in (1, 2, 32, 33)),
        *(_shared("sharedDoubles", stride, np.float64) for stride in (1, 2)),
        *(_shared("sharedFloat4", stride, np.float32, 4) for stride in (1, 2, 8)),
        *(_shared("sharedBytes", stride, np.uint8) for stride in (1, 4)),
        *(
            _share(kernel, lanes, divide, modulo)
            for kernel, lanes in (("shareFloats", 1), ("shareFloat2", 2), ("shareFloat4", 4))
            for divide, modulo in ((2, 256), (4, 256), (8, 256), (16, 256), (1, 2), (1, 4), (1, 8), (1, 16), (4, 2))
        ),
        _case("sharedBroadcast", (4,), (256,), lambda: [_floats(256), np.zeros(1024, np.float32), np.int32(5)]),
        _copy("reduceShuffle", n),
        _copy("reduceShared", n),
        _case("histogramGlobal", (n // 256,), (256,), lambda: [_bins(n, 64), np.zeros(64, np.int32), np.int32(n)]),
        _case(
            "takeTickets", (n // 256,), (256,),
            lambda: [_bins(n, 512), np.zeros(512, np.int32), np.zeros(n, np.int32), np.int32(n)],
        ),
        _case("histogramShared", (n // 256,), (256,), lambda: [_bins(n, 64), np.zeros(64, np.int32), np.int32(n)]),
        _case(
            "localArray", (4,), (256,),
            lambda: [_floats(48 * 1021 + 1024), np.zeros(1024, np.float32), np.int32(1021)],
        ),
    ]  # fmt: skip


def _course(day: Day, sizes: Sequence[Size], arch: str = "sm_75") -> list[Case]:
    """The kernels of a day at some sizes, launched as its page does on an architecture."""
    source = day.program.removeprefix("code/")
    cases = []
    for size in sizes:
        m, n, k = size

        def args(m=m, n=n, k=k, size=size) -> list:
            return [_floats(m * k), _floats(k * n), np.zeros(m * n, np.float32), *day.scalars(size)]

        for kernel in day.by_kernel:
            step = day.launch(kernel, _text(source), arch)
            name = f"{day.name} {kernel} {label(size)}"
            cases.append(Case(name, source, kernel, tuple(step.grid(size)), tuple(step.block), args, arch))
    return cases


@cache
def cases() -> tuple[Case, ...]:
    """All launches of the study, in order: single access patterns, then the course's kernels."""
    found = [*_study(), *_course(DAY43, [(256,) * 3, (65,) * 3]), *_course(DAY16, [(256,) * 3, (35, 79, 19)])]
    found += _course(DAY44, [(256,) * 3, (130,) * 3, (65,) * 3], CARD_ARCH)
    names: dict[str, int] = {}
    for case in found:
        names[case.name] = names.get(case.name, 0) + 1
    repeated = {name for name, count in names.items() if count > 1}
    return tuple(replace(c, name=f"{c.name} n={int(c.args()[-1])}") if c.name in repeated else c for c in found)


@cache
def _text(source: str) -> str:
    """The kernels of a file under ``code``: all of it, or what stands between its page markers."""
    path = Path(__file__).parents[1] / source
    return path.read_text(encoding="utf-8") if source == STUDY else kernel_text(path)


def trace(case: Case) -> dict[str, float]:
    """The tracer's counts of one launch, by the tracer's metric names. Raises what `gpudays.trace` raises."""
    result = gpudays.trace(_text(case.source), case.kernel, case.grid, case.block, case.args(), arch=case.arch)
    return {metric: float(result.total.get(metric, 0)) for metric in (*ON_CARD, *UNIT_COUNTERS)}


def count_on_card() -> dict[str, dict[str, float]]:
    """What Nsight Compute counts, by case and ncu's metric name. Raises `profiler.ProfilerRefused` without counters."""
    wanted = tuple(dict.fromkeys((*ON_CARD.values(), *UNIT_COUNTERS)))
    found: dict[str, dict[str, float]] = {}
    for source in dict.fromkeys(case.source for case in cases()):
        mine = [case for case in cases() if case.source == source]
        launches = [profiler.Launch(c.kernel, number, c.grid, c.block, c.args()) for number, c in enumerate(mine)]
        table = profiler.count(_text(source), launches, wanted)
        for number, case in enumerate(mine):
            rows = table[table["n"].eq(number)]
            found[case.name] = {r.metric: float(r.value) for r in rows.itertuples() if r.metric in wanted}
    return found


def compare(on_card: dict[str, dict[str, float]]) -> pd.DataFrame:
    """The table of both sides: case, kernel, metric (ncu's name), card, traced; rows that are zero on both left out."""
    rows = []
    for case in cases():
        traced, counted = trace(case), on_card[case.name]
        pairs = [*ON_CARD.items(), *((unit, unit) for unit in UNIT_COUNTERS)]
        for ours, theirs in pairs:
            both = (counted.get(theirs, float("nan")), traced[ours])
            if any(both):
                rows.append((case.name, case.kernel, theirs, *both))
    return pd.DataFrame(rows, columns=COLUMNS)


def capture(output: Path) -> pd.DataFrame:
    """Count on the card, trace, write table, machine and evidence under `output`; returns the table.

    Raises:
        gpu.NoGpu, profiler.ProfilerRefused: no card, or no counters.
    """
    card = gpu.device()
    if card is None:
        raise gpu.NoGpu(f"the study counts on a card: {gpu.why_no_gpu()}")
    table = compare(count_on_card())
    machine = {
        "card": card.name, "arch": card.arch, "sms": card.sms, "l2_bytes": card.l2_bytes, "driver": card.driver,
        "ncu": profiler.ncu_version(), "clock_control": profiler.CLOCK_CONTROL,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "commands": ["python -m gpudays study"],
    }  # fmt: skip
    output.mkdir(parents=True, exist_ok=True)
    (output / "machine.json").write_text(json.dumps(machine, indent=2) + "\n", encoding="utf-8")
    write(table, output)
    return table


def write(table: pd.DataFrame, output: Path) -> None:
    """Write ``counters.csv`` and ``evidence.md`` beside the ``machine.json`` that stands in `output`."""
    machine = json.loads((output / "machine.json").read_text(encoding="utf-8"))
    table.to_csv(output / "counters.csv", index=False)
    (output / "evidence.md").write_text(_evidence(table, machine), encoding="utf-8")


def _evidence(table: pd.DataFrame, machine: dict) -> str:
    """What was counted, on what, and every difference with its cause."""
    differing = table[table["card"].ne(table["traced"])]
    lines = [
        "# The counter study: evidence",
        "",
        f"Counted on {machine['date']} by `gpudays study` on {machine['card']} ({machine['arch']}), driver "
        f"{machine['driver']}, Nsight Compute {machine['ncu']}, `--clock-control {machine['clock_control']}`. Clocks "
        "and every other setting of the card were left as they were.",
        "",
        f"{table['case'].nunique()} launches of {table['kernel'].nunique()} kernels, {len(table)} counters: "
        f"{len(table) - len(differing)} equal, {len(differing)} not. All are in `counters.csv`; these are the latter.",
        "",
        "| case | counter | card | traced | why |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| {row.case} | `{row.metric}` | {row.card:,.0f} | {row.traced:,.0f} | "
            f"{explanation(row.case, row.metric) or 'not explained'} |"
            for row in differing.itertuples()
        ),
    ]
    return "\n".join(lines) + "\n"


def retraced(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the tracer's side counted again by this version of it; the card's stays. Needs no GPU."""
    on_card = {
        name: dict(zip(rows["metric"], rows["card"], strict=True)) for name, rows in table.groupby("case", sort=False)
    }
    metrics_counted = dict.fromkeys((*ON_CARD.values(), *UNIT_COUNTERS), 0.0)
    return compare({name: {**metrics_counted, **counted} for name, counted in on_card.items()})


def shipped() -> pd.DataFrame:
    """The committed table. Raises `profiles.ProfileError` when it is missing."""
    return _shipped("counters.csv", "run `gpudays study` on a GPU host")


def shipped_bench() -> pd.DataFrame:
    """The committed rows of `python -m gpudays.bench --csv`. Raises `profiles.ProfileError` when they are missing."""
    return _shipped("bench.csv", "run `python -m gpudays.bench --csv` on a quiet machine")


def _shipped(name: str, remedy: str) -> pd.DataFrame:
    path = (profiles.folder(FOLDER) or Path(FOLDER)) / name
    if not path.exists():
        raise profiles.ProfileError(path, 0, f"not shipped: {remedy}")
    return pd.read_csv(path)


# ---- why they differ, where they do ----------------------------------------------------------------------------------

_MERGED = (
    "ptxas joins neighbouring 32-bit reads of shared memory into one of 128 bits; the tracer counts those of the PTX"
)
_ASYNC = "the card counts the sectors of cp.async by instruction under a name of their own (op_ldgsts)"
_FEW_MORE = (
    "the card counts up to 0.4 % more warp instructions than the machine code runs, while the wavefronts of the same "
    "loads, read off their addresses, are equal; why is not known to us"
)
_ARBITRATION = (
    "the unit's counter adds cycles in which a request waits for another one; the counter by instruction beside it has "
    "no such cycles"
)
_MERGES = ("matmulTiled", "matmulRegisterTile")


def explanation(case: str, metric: str) -> str:
    """Why the card's counter may differ from the tracer's in a case of the study; "" where they have to be equal.

    Args:
        case: its name.
        metric: ncu's name of the counter.
    """
    is_unit = metric in UNIT_COUNTERS
    if "mem_shared" in metric or "op_shared" in metric:
        if ("shared_op_ld" in metric or "shared_ld" in metric) and any(name in case for name in _MERGES):
            return _MERGED
        if is_unit:
            return _ARBITRATION
        if "WarpTiled" in case and metric == metrics.SHARED_LD_BY_SOME:
            return _FEW_MORE
    if "WarpTiled" in case and metric == metrics.by_instruction("global", "ld"):
        return _ASYNC
    return ""
