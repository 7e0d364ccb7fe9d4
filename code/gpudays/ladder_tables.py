"""Page-tables room, Day 44: tiles and registers, fractions of cuBLAS, counts per multiply-add, the sweep, the waits."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from gpudays import compiler, metrics, occupancy
from gpudays.compiler import Resources
from gpudays.course import day44, tiles
from gpudays.course import evidence as ev
from gpudays.course.day44_predictions import fraction
from gpudays.course.evidence import Evidence
from gpudays.course.steps import square
from gpudays.course.tiles import Tiles
from gpudays.page_tables import NOTHING
from gpudays.ptx import model
from gpudays.runs import Runs
from gpudays.tables import Shown

PIPES = {
    metrics.MEMORY_THROUGHPUT: "memory pipes busy, %",
    metrics.FMA_PIPE: "FP32 pipe busy, %",
    metrics.ISSUE_ACTIVE: "issue slots busy, %",
}
COMPILED = "compiled here, ptxas's own report"


def resources(runs: Runs, archs: Sequence[str]) -> Shown:
    """Tiles, registers, spills and theoretical occupancy of steps 4 to 6 on some architectures."""
    rows = []
    for arch in archs:
        for step in runs.day.steps:
            cut = tiles.declared(runs.source, step.kernel, arch)
            used = _used(compiler.report(runs.source, arch)[step.kernel], cut, arch)
            rows.append((step.number, arch, _tile(cut), cut.patch, cut.threads, *used))
    columns = ["step", "architecture", "block's tile", "patch", "threads", *_USED]
    return Shown(pd.DataFrame(rows, columns=columns), COMPILED, {"occupancy, %": ".1f"})


_ONLY_STEP_6 = (f"--ptxas-options=--entry={day44.WARPS}",)
_USED = ["registers", "spilled bytes", "shared bytes", "occupancy, %", "limited by"]


def _used(needs: Resources, cut: Tiles, arch: str) -> tuple[object, ...]:
    """What ptxas reports of a kernel, and the occupancy that follows."""
    held = occupancy.occupancy(arch, cut.threads, needs.registers, needs.shared_bytes)
    spilled = needs.spill_stores + needs.spill_loads
    return needs.registers, spilled, needs.shared_bytes, held.percent, " and ".join(held.limited_by)


def _tile(cut: Tiles) -> str:
    return f"{cut.bm}×{cut.bn}×{cut.bk}"


def fractions(evidence: Evidence, sizes: Sequence[int], how: str) -> Shown:
    """Each step's share of cuBLAS's speed, a row per step and a column per size; below, cuBLAS's own rate."""
    rows = []
    for step in day44.STEPS:
        shares = [_number(fraction(evidence, step.kernel, n)) for n in sizes]
        rows.append((f"step {step.number}", step.title, *shares))
    rates = [_rate(evidence, n) for n in sizes]
    rows.append((day44.CUBLAS, "TFLOP/s in FP32", *rates))
    if peak := day44.PUBLISHED_PEAK.get(evidence.card):
        rows.append((day44.CUBLAS, f"of the peak, {peak:g} TFLOP/s (published)", *(rate / peak for rate in rates)))
    names = [f"N = {n}" for n in sizes]
    frame = pd.DataFrame(rows, columns=["", "what is new", *names])
    there = fraction(evidence, day44.WARPS, sizes[-1])
    source = (
        evidence.origin([day44.CUBLAS, *day44.KERNELS], sizes, metrics.TIME)
        if there
        else NOTHING.format(what="times", day="day44")
    )
    return Shown(frame, source, {name: ".3f" for name in names}, how if there else "")


def two_rows(evidence: Evidence, sizes: Sequence[int]) -> Shown:
    """Fractions of cuBLAS of step 6 with its tiles for large matrices and with those for small ones."""
    kernels = {"for large matrices": day44.WARPS, "for small ones": day44.WARPS_SMALL}
    rows = []
    for name, kernel in kernels.items():
        found = [evidence.get(kernel, n, metrics.FRACTION_OF_CUBLAS) for n in sizes]
        rows.append((name, *(figure.value if figure else float("nan") for figure in found)))
    columns = ["step 6 with the tiles", *(f"N = {n}" for n in sizes)]
    source = evidence.origin([*kernels.values()], sizes, metrics.TIME) or NOTHING.format(what="times", day="day44")
    return Shown(pd.DataFrame(rows, columns=columns), source, {name: ".3f" for name in columns[1:]})


def _number(value: float | None) -> float:
    return float("nan") if value is None else value


def _rate(evidence: Evidence, n: int, kernel: str = day44.CUBLAS) -> float:
    """TFLOP/s of a kernel, NaN where it was not timed."""
    found = evidence.get(kernel, n, metrics.TIME)
    return 2 * n**3 / found.value / 1e9 if found else float("nan")


def counts(counted: pd.DataFrame, n: int, arch: str) -> Shown:
    """What steps 3 to 6 ask of global and of shared memory, traced."""
    evidence = Evidence(counted, "", ("traced",))
    wanted = (ev.LOADS, ev.REQUESTS, ev.SECTORS, model.SHARED_LD_REQUESTS, model.SHARED_LD_WAVEFRONTS)
    rows = []
    for step in day44.STEPS[2:]:
        loads, requests, sectors, reads, wavefronts = (evidence.get(step.kernel, n, name).value for name in wanted)
        conflicts = evidence.get(step.kernel, n, model.SHARED_ST_CONFLICTS).value
        each = day44.multiply_adds(square(n))
        shared = (reads / each, wavefronts / each, int(conflicts))
        rows.append((step.number, step.kernel, loads, int(requests), int(sectors), sectors / requests, *shared))
    columns = ["step", "kernel", "loads/thread", "requests", "sectors", "sectors/request"]
    columns += ["shared reads/FMA", "wavefronts/FMA", "store conflicts"]
    frame = pd.DataFrame(rows, columns=columns)
    note = f"N = {n}, one block times their number; step 6 as compiled for {arch}. FMA: a warp's multiply-add."
    formats = {"sectors/request": ".2f", "shared reads/FMA": ".4g", "wavefronts/FMA": ".4g"}
    return Shown(frame, "traced", formats, note)


def share_of_stores(traced: Evidence, n: int) -> str:
    """One line: what stores are of step 5's shared wavefronts, and what conflicts are of those."""
    names = (model.SHARED_LD_WAVEFRONTS, model.SHARED_ST_WAVEFRONTS, model.SHARED_ST_CONFLICTS)
    loads, stores, conflicts = (traced.get(day44.VECTORS, n, name).value for name in names)
    both = loads + stores
    return f"stores {stores / both:.1%}, conflicts among them {conflicts / both:.1%} (traced, N = {n})"


def transplanted(source: str, archs: Sequence[str], evidence: Evidence, n: int) -> Shown:
    """Step 6 with the tiles that its launch table has for one architecture, compiled for another.

    Args:
        source: the whole source.
        archs: whose rows.
        evidence, n: of the card on which the rows were timed, and the size, if they were.
    """
    rows = []
    for home in archs:
        cut = tiles.declared(source, day44.WARPS, home)
        changed = tiles.with_tiles(source, day44.WARPS, cut)
        # The source as it stands was compiled for the page's first table; of the changed one only step 6 is wanted.
        wanted = {arch: (source, arch) if arch == home else (changed, arch, _ONLY_STEP_6) for arch in archs}
        used = {arch: compiler.report(*what)[day44.WARPS] for arch, what in wanted.items()}
        held = [_used(found, cut, arch) for arch, found in used.items()]
        text = [f"{r} registers, {spilled:,} B spilled, {share:.1f} %" for r, spilled, _, share, _ in held]
        share = _number(fraction(evidence, day44.transplant(home), n))
        rows.append((home, f"{_tile(cut)}, {cut.patch}", *text, share))
    columns = ["row of", "tile, patch", *(f"on {arch}" for arch in archs), f"of cuBLAS, N = {n}"]
    timed = evidence.origin([day44.transplant(home) for home in archs], [n], metrics.TIME)
    source_line = f"{COMPILED}, occupancy in %; times {timed or NOTHING.format(what='times', day='day44')}"
    return Shown(pd.DataFrame(rows, columns=columns), source_line, {columns[-1]: ".3f"})


def beside(traced: Evidence, card: Evidence, n: int) -> Shown:
    """Sectors per request, and shared reads and wavefronts per multiply-add: traced from PTX, counted on the card."""
    each = day44.multiply_adds(square(n))
    rows = []
    for step in day44.STEPS[2:]:
        row = [step.number]
        for metric, per in (
            (metrics.SECTORS_PER_REQUEST, 1),
            (model.SHARED_LD_REQUESTS, each),
            (model.SHARED_LD_WAVEFRONTS, each),
        ):
            for evidence in (traced, card):
                found = evidence.get(step.kernel, n, metric)
                row.append(found.value / per if found else float("nan"))
        rows.append(row)
    names = [f"{what}, {who}" for what in ("sectors/request", "reads/FMA", "wavefronts/FMA") for who in ("PTX", "card")]
    source = card.origin([step.kernel for step in day44.STEPS[2:]], [n], model.SHARED_LD_WAVEFRONTS)
    source = f"PTX: traced; card: {source or NOTHING.format(what='counters', day='day44')}"
    frame = pd.DataFrame(rows, columns=["step", *names])
    note = f"N = {n}. Step 6 on the card may have other tiles than the one that was traced."
    return Shown(frame, source, {name: ".4f" for name in names[2:]} | {name: ".2f" for name in names[:2]}, note)


def sweep(source: str, arch: str, evidence: Evidence, n: int) -> Shown:
    """Step 4 by outputs per thread: what reuse is bought with which registers, and what it brings.

    Args:
        source: step 4.
        arch: whose registers.
        evidence: times, if there are any.
        n: at which size.
    """
    peak = day44.PUBLISHED_PEAK.get(evidence.card, float("nan"))
    rows = []
    for patch, cut in day44.SWEEP.items():
        found = compiler.report(tiles.with_tiles(source, day44.REGISTERS, cut), arch)[day44.REGISTERS]
        registers, spilled, _, percent, _ = _used(found, cut, arch)
        ceiling = 100 * day44.ceiling(day44.scalar_wavefronts_per_fma(cut), arch)
        time = evidence.get(day44.swept(patch), n, metrics.TIME)
        share = _number(fraction(evidence, day44.swept(patch), n))
        of_peak = _rate(evidence, n, day44.swept(patch)) / peak
        rows.append(
            (patch, _tile(cut), cut.fma_per_read, cut.flops_per_byte, min(ceiling, 100), registers, spilled, percent,
             time.value if time else float("nan"), of_peak, share)
        )  # fmt: skip
    columns = ["patch", "block's tile", "FMA/read", "FLOP/byte", "ceiling, %", "registers", "spilled bytes"]
    frame = pd.DataFrame(rows, columns=[*columns, "occupancy, %", "ms", "of the peak", "of cuBLAS"])
    timed = evidence.origin([day44.swept(patch) for patch in day44.SWEEP], [n], metrics.TIME)
    timed = timed or NOTHING.format(what="times", day="day44")
    formats = {"FMA/read": ".2f", "FLOP/byte": ".1f", "ceiling, %": ".1f", "occupancy, %": ".1f", "ms": ".3f"}
    formats |= {"of the peak": ".3f", "of cuBLAS": ".3f"}
    note = (
        f"N = {n}, {arch}. The ceiling is what shared memory allows of the FP32 peak, on paper; the peak is published."
    )
    return Shown(frame, f"registers and spills {COMPILED}; times {timed}", formats, note)


def waits(evidence: Evidence, n: int) -> Shown:
    """Pipes, issue slots, and the warps that waited per instruction issued, by reason, for steps 3 to 6."""
    rows = []
    names = {name: metric for metric, name in PIPES.items()}
    names |= {f"waiting: {reason.replace('_', ' ')}": name for reason, name in metrics.STALLS.items()}
    for name, metric in names.items():
        found = [evidence.get(step.kernel, n, metric) for step in day44.STEPS[2:]]
        if any(found):
            rows.append((name, *(figure.value if figure else float("nan") for figure in found)))
    columns = [f"N = {n}", *(f"step {step.number}" for step in day44.STEPS[2:])]
    frame = pd.DataFrame(rows, columns=columns)
    source = evidence.origin(day44.KERNELS, [n], metrics.FMA_PIPE) or NOTHING.format(what="stall reasons", day="day44")
    note = "Waiting: warps of a scheduler that waited for this reason, for each instruction that it issued."
    return Shown(frame, source, {name: ".2f" for name in columns[1:]}, note if rows else "")
