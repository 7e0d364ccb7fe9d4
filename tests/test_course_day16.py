"""Day 16's rooms: predictions on an H200 and a published T4, what a block stages, banks, orders, tables, gates."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpudays import (
    exercise,
    gpu,
    kernels_in_pages,
    measurements,
    metrics,
    orders,
    profiler,
    profiles,
    session,
    staging,
    tile_figures,
    tile_tables,
    verify,
)  # fmt: skip
from gpudays.course import evidence as ev
from gpudays.course.day16 import KERNELS, SWEEP, TILES, Predictions
from gpudays.course.evidence import Evidence
from gpudays.course.predictions import CANNOT, DID_NOT, MATCHED
from gpudays.course.steps import DAY16, square
from gpudays.machine import Machine
from gpudays.ptx import model
from gpudays.runs import Runs

ROOT = Path(__file__).parents[1]
SOURCE = "\n" + kernels_in_pages.kernel_text(ROOT / DAY16.program)
H200, T4 = "NVIDIA H200", "Tesla T4"
ODD = (35, 79, 19)


@pytest.fixture(scope="module")
def runs() -> Runs:
    return Runs(SOURCE, DAY16)


def rows(metric, n, values, source="traced", card="", kernels=KERNELS):
    return [measurements.table(k, n, {metric: v}, source, card) for k, v in zip(kernels, values, strict=True)]


def table(*tables):
    return measurements.with_derived(measurements.concat([t for group in tables for t in group]))


@pytest.fixture
def h200():
    """Round figures of an H200: requests and sectors as addresses give them, times as seen on 2026-11-30."""
    traced = []
    for n in (256, 512):
        traced += rows(ev.LOADS, n, (2 * n, n / 8)) + rows(ev.REQUESTS, n, (n**3 / 16, n**3 / 256))
        traced += rows(ev.SECTORS, n, (n**3 / 8, n**3 / 64))
    traced += rows(model.SHARED_LD_WAVEFRONTS, 512, (0, 8388608)) + rows(model.SHARED_LD_CONFLICTS, 512, (0, 0))
    traced += rows(model.SHARED_ST_WAVEFRONTS, 512, (0, 524288)) + rows(model.SHARED_ST_CONFLICTS, 512, (0, 0))
    times = {256: (0.0124, 0.0097), 512: (0.0603, 0.0405), 4096: (25.81, 16.90)}
    shipped = [t for n, v in times.items() for t in rows(metrics.TIME, n, v, "shipped", H200)]
    sweep = rows(metrics.TIME, 512, (0.0602, 0.0405, 0.0346), "shipped", H200, tuple(TILES.values()))
    return table(traced, shipped, sweep)


def graded(measured, card=H200, l2=60 * 2**20, predicted=None, order=ev.ORDER):
    found = (predicted or Predictions()).grade(Evidence(measured, card, order, l2))
    return {v.number: v for v in found}


def test_on_an_h200(h200):
    found = graded(h200)
    assert [v.verdict for v in found.values()] == [MATCHED, MATCHED, MATCHED, DID_NOT, DID_NOT, MATCHED]
    assert "512 / 32 at 256" in found["1"].figures and "traced" in found["1"].figures
    assert "8 times fewer sectors" in found["2"].reason
    assert "1.28×" in found["4"].figures and found["4"].figures.endswith("(shipped, NVIDIA H200)")
    assert "1.49× at 512, 1.53× at 4096" in found["5"].figures
    assert "192 MiB of matrices, 60 MiB of L2" in found["5"].reason


def test_other_predictions_get_other_verdicts(h200):
    wrong = Predictions(lambda k: (2 * k, k), (2.0, 2.0), True, 1.3, False, 16)
    assert [v.verdict for v in graded(h200, predicted=wrong).values()] == [
        DID_NOT, DID_NOT, DID_NOT, MATCHED, MATCHED, DID_NOT,
    ]  # fmt: skip
    assert graded(h200, predicted=wrong)["6"].reason == "TILE = 32 is the fastest here"


def test_a_clear_gain_past_the_l2_counts_as_more(h200):
    slower = h200["kernel"].eq("matmulNaive") & h200["n"].eq(4096) & h200["metric"].eq(metrics.TIME)
    h200.loc[slower, "value"] = 44.2
    assert graded(h200)["5"].verdict == MATCHED


@pytest.mark.parametrize(("conflicts", "verdict"), [(36380, MATCHED), (524288, DID_NOT)])
def test_a_few_turns_that_a_card_adds_are_no_bank_conflict(h200, conflicts, verdict):
    place = h200["kernel"].eq("matmulTiled") & h200["metric"].eq(model.SHARED_ST_CONFLICTS)
    h200.loc[place, "value"] = conflicts
    assert graded(h200)["3"].verdict == verdict


def test_the_published_t4_can_test_one_prediction():
    published = table(rows(metrics.TIME, 256, (0.165, 0.108), "published", T4))
    found = graded(published, T4, 4 * 2**20, order=("published",))
    assert [v.verdict for v in found.values()] == [CANNOT, CANNOT, CANNOT, DID_NOT, CANNOT, CANNOT]
    assert found["4"].figures == "1.53×: 0.1650 ms to 0.1080 ms (published, Tesla T4)"


def test_without_figures_nothing_is_graded():
    assert {v.verdict for v in graded(measurements.empty(), "", 0).values()} == {CANNOT}


# ---- the day's table -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tile", [8, 16, 32])
def test_each_tile_is_launched_with_blocks_of_its_side(tile):
    step = SWEEP.step(TILES[tile])
    assert step.block == (tile, tile)
    assert step.grid(ODD) == (-(-79 // tile), -(-35 // tile))
    assert step.loads_per_thread(256) == 512 // tile


@pytest.mark.parametrize("kernel", ["matmulNaive", *TILES.values()])
@pytest.mark.parametrize("size", [(35, 79, 19), (1, 1, 1), (17, 1, 33)])
def test_every_kernel_is_right_where_nothing_is_a_multiple_of_a_tile(runs, kernel, size):
    report = verify.verify(lambda a, b, c, s: runs.trace(kernel, a, b, c, s), [size], kernel)
    assert report.ok, report


@pytest.mark.parametrize("tile", [8, 16, 32])
def test_sectors_per_request_do_not_depend_on_the_tile(runs, tile):
    total = runs.traced(TILES[tile], square(64)).total
    assert total[model.GLOBAL_LD_SECTORS] == 4 * total[model.GLOBAL_LD_REQUESTS]
    assert total[model.GLOBAL_LD_REQUESTS] == 2 * (64 // tile) * 64 * 64 // 32
    assert total[model.SHARED_LD_WAVEFRONTS] == total[model.SHARED_LD_REQUESTS] == 2 * 64 * 64 * 64 // 32
    assert total[model.SHARED_LD_CONFLICTS] == total[model.SHARED_ST_CONFLICTS] == 0


@pytest.mark.parametrize("path", sorted((ROOT / "content/profiles" / DAY16.profiles).glob("*-256.details.csv")))
def test_the_sweep_s_requests_and_sectors_are_those_of_the_card(runs, path):
    exported = profiles.read_details(path, 256, H200).set_index(["kernel", "metric"])["value"]
    for kernel in TILES.values():
        total = runs.traced(kernel, square(256)).total
        for metric in (model.GLOBAL_LD_REQUESTS, model.GLOBAL_ST_REQUESTS, model.SHARED_ST_REQUESTS):
            assert exported[kernel, metric] == total[metric], (kernel, metric)
        # The card's unit counter of sectors may be sampled; ptxas joins four of a row's reads into one of 128 bits.
        assert exported[kernel, model.GLOBAL_LD_SECTORS] == pytest.approx(total[model.GLOBAL_LD_SECTORS], rel=0.005)
        assert exported[kernel, model.SHARED_LD_REQUESTS] == total[model.SHARED_LD_REQUESTS] * 5 / 8


# ---- what a block stages ---------------------------------------------------------------------------------------------


def test_a_block_inside_stages_two_whole_tiles(runs):
    panel = staging.staged(runs, "matmulTiled", ODD, (1, 1), 0)
    assert panel.zeros == 0
    a, b = panel.elements["A"], panel.elements["B"]
    assert sorted(map(tuple, a[:, :2])) == [(r, c) for r in range(16, 32) for c in range(16)]
    assert sorted(map(tuple, b[:, :2])) == [(r, c) for r in range(16) for c in range(16, 32)]
    assert all(row // 2 == warp for row, _, warp in b)  # a warp brings two rows of a tile


def test_the_last_step_in_the_corner_writes_zeros(runs):
    panel = staging.staged(runs, "matmulTiled", ODD, (4, 2), 1)
    assert {name: len(floats) for name, floats in panel.elements.items()} == {"A": 3 * 3, "B": 3 * 15}
    assert panel.zeros == 512 - 9 - 45
    assert panel.corners == {"A": (32, 16), "B": (16, 64), "C": (32, 64)}


@pytest.mark.parametrize(("block", "step"), [((5, 0), 0), ((0, 3), 0), ((0, 0), 2), ((-1, 0), 0)])
def test_a_block_that_is_not_there_is_refused_with_those_that_are(runs, block, step):
    with pytest.raises(ValueError, match=r"blocks \(0, 0\) to \(4, 2\) and tile steps 0 to 1"):
        staging.staged(runs, "matmulTiled", ODD, block, step)


def test_banks_of_both_tiles(runs):
    uses = {use.name: use for use in staging.bank_use(runs, "matmulTiled", square(64))}
    assert list(uses) == ["write tileA", "write tileB", "read tileA", "read tileB"]
    assert {use.wavefronts for use in uses.values()} == {1}
    assert sorted(uses["write tileA"].words) == list(range(32))
    assert np.unique(uses["read tileA"].words, return_counts=True)[1].tolist() == [16, 16]
    assert np.unique(uses["read tileB"].words).tolist() == list(range(16))


def transposed(source: str) -> str:
    turned = source.replace("tileA[threadIdx.y][threadIdx.x] =", "tileA[threadIdx.x][threadIdx.y] =")
    return turned.replace("tileA[threadIdx.y][i]", "tileA[i][threadIdx.y]")


def test_a_transposed_tile_conflicts_eightfold_and_is_right():
    turned = Runs(transposed(SOURCE), DAY16)
    first = staging.bank_use(turned, "matmulTiled", square(64))[0]
    assert (first.name, first.wavefronts) == ("write tileA", 8)
    assert verify.verify(lambda a, b, c, s: turned.trace("matmulTiled", a, b, c, s), [ODD]).ok
    assert turned.traced("matmulTiled", square(64)).total[model.SHARED_ST_CONFLICTS] == 7 * 4 * 16 * 8


# ---- barriers --------------------------------------------------------------------------------------------------------

FIRST, SECOND = [line for line in SOURCE.splitlines() if "__syncthreads()" in line]


@pytest.mark.parametrize("barrier", [FIRST, SECOND])
def test_without_a_barrier_one_order_is_right_another_wrong_and_the_race_is_reported(barrier):
    broken = Runs(SOURCE.replace(barrier, ""), DAY16)
    shown = orders.orders(broken, "matmulTiled", square(64)).frame.set_index("order of the warps")["C is"]
    assert shown["all warps in step, on the CPU"] == "right"
    assert shown["one warp after the other, on the CPU"] == "wrong"
    a, b = verify.inputs(square(64))
    findings = broken.trace("matmulTiled", a, b, np.empty((64, 64), np.float32), square(64)).findings
    assert findings and {f.kind for f in findings} <= {"shared-race", "uninitialized-shared"}
    assert "shared-race" in {f.kind for f in findings}


def test_with_both_barriers_every_order_is_right(runs):
    assert set(orders.orders(runs, "matmulTiled", square(64)).frame["C is"]) == {"right"}


def test_with_one_tile_step_the_second_barrier_is_not_missed():
    broken = Runs(SOURCE.replace(SECOND, ""), DAY16)
    a, b = verify.inputs(square(16))
    assert not broken.trace("matmulTiled", a, b, np.empty((16, 16), np.float32), square(16)).findings


# ---- tables and figures ----------------------------------------------------------------------------------------------


def test_counters_stand_beside_the_lines_that_cause_them(runs):
    counters = runs.traced("matmulTiled", square(64)).counters
    shown = tile_tables.by_line(counters, SOURCE, tile_tables.SHARED)
    lines = SOURCE.splitlines()
    assert [lines[n - 1].strip() for n in shown.frame["line"]] == list(shown.frame["source"])
    by_tile = shown.frame.set_index("source")["shared load requests"]
    assert by_tile[by_tile > 0].index.str.contains("sum +=", regex=False).all()
    assert by_tile.sum() == 2 * 64 * 64 * 64 // 32
    assert shown.source == "traced" and "shared load bank conflicts" not in shown.frame


def card_rows(n):
    both = {
        metrics.L1_HIT_RATE: (87.5, 2.0), metrics.DRAM_READ: (530000, 530000), metrics.L2_HIT_RATE: (88.0, 86.0),
        ev.REQUESTS: (1048576, 65536), ev.SECTORS: (2097152, 262144), metrics.GPU_TIME: (19808, 12416),
        model.SHARED_LD_REQUESTS: (0, 655360), model.SHARED_ST_REQUESTS: (0, 65536), metrics.TIME: (0.0124, 0.0097),
    }  # fmt: skip
    return [t for metric, values in both.items() for t in rows(metric, n, values, "shipped", H200)]


def test_what_fell_keeps_sources_apart():
    measured = table(card_rows(256), rows(ev.LOADS, 256, (512, 32)), rows(ev.SECTORS, 256, (2097152, 262144)))
    counted = Evidence(measured, H200)
    on_card = Evidence(measured, H200, ("live", "shipped"))
    shown = tile_tables.fell(counted, on_card, *KERNELS, [256, 4096]).frame
    by_name = shown.set_index("times fewer")
    ratios = by_name["256"]
    assert ratios["floats read per thread"] == 16 and ratios["global load sectors"] == 8
    assert ratios["sectors that the L1 did not have"] == pytest.approx(2097152 * 0.125 / (262144 * 0.98))
    assert ratios["memory instructions, global and shared"] == pytest.approx(1048576 / 786432)
    assert shown["4096"].isna().all()
    assert by_name["source"][["global load sectors", "time"]].tolist() == ["traced", "shipped, NVIDIA H200"]
    assert tile_figures.what_fell(shown).png()


def test_nothing_measured_is_said():
    nothing = Evidence(measurements.empty(), "")
    assert set(tile_tables.fell(nothing, nothing, *KERNELS, [256]).frame["source"]) == {"not here"}
    assert "not here" in tile_tables.residency(nothing, DAY16.steps).source
    assert tile_tables.waits(nothing, DAY16.steps, 512).source == "not here"


def test_residency_says_how_often_the_matrices_were_read():
    on_card = Evidence(table(card_rows(256)), H200, ("shipped",), 60 * 2**20)
    shown = tile_tables.residency(on_card, DAY16.steps)
    assert len(shown.frame) == 2 and shown.frame["times A and B"].tolist() == pytest.approx([530000 / 524288] * 2)
    assert shown.note == "A, B and C: 0.75 MiB at 256 (fit); L2 of the NVIDIA H200: 60 MiB."


def test_the_sweep_shows_occupancy_of_cards_with_48_warps(runs, h200):
    shown = tile_tables.sweep(runs.program, Evidence(h200, H200), SWEEP.steps, 512, ["sm_86", "sm_90"]).frame
    held = shown.set_index("N = 512").loc["occupancy, sm_86 (A10, RTX 30)"]
    assert [held[f"TILE = {t}"].split(":")[0] for t in (8, 16, 32)] == ["67 %", "100 %", "67 %"]
    assert shown["source"].ne("").all()
    panels = tile_tables.sweep_panels(runs.program, Evidence(h200, H200), SWEEP.steps, 512, ["sm_86"])
    assert panels["Time"][0]["time"].tolist() == [0.0602, 0.0405, 0.0346]
    assert tile_figures.tile_sweep(panels).alt == tile_figures.ALT["tile_sweep"]


def test_a_place_for_every_float_that_is_drawn(runs):
    picture = tile_figures.staging([staging.staged(runs, "matmulTiled", ODD, (4, 2), 1)])
    drawn = [patch for patch in picture.axes[0].patches if patch.get_width() == patch.get_height() == 1]
    assert len(drawn) == 9 + 45
    assert "writes 458 zeros" in picture.axes[0].get_title() and "traced" in picture.axes[0].get_title()


def test_a_conflict_is_drawn_as_one():
    uses = staging.bank_use(Runs(transposed(SOURCE), DAY16), "matmulTiled", square(64))
    picture = tile_figures.banks(uses[:2])
    assert [axis.get_title() for axis in picture.axes] == [
        "write tileA: 32 words, 8 wavefronts (traced)", "write tileB: 32 words, 1 wavefront (traced)",
    ]  # fmt: skip
    hatched = [[p for p in axis.patches if p.get_hatch()] for axis in picture.axes]
    assert [len(found) for found in hatched] == [32, 0]


# ---- session ---------------------------------------------------------------------------------------------------------


def lab(card: str, measured, counters_of=H200):
    """A page whose machine has a card without readable counters, and whose shipped figures are an H200's."""
    shipped = profiles.Figures(measured, "shipped", (), counters_of, {"l2_bytes": 60 * 2**20})
    device = gpu.Device(card, "sm_75", 40, 4 * 2**20, 16 * 2**30, "580.1", (13, 0)) if card else None
    refused = profiler.Permission(False, "permission", "counters refused")
    return session.Session(DAY16, Machine(device, "", refused, shipped, profiles.published(DAY16.profiles)))


def test_where_counters_are_refused_the_shipped_card_stands_in_and_is_named():
    page = lab(T4, table(card_rows(256)))
    page.learn(table(rows(metrics.TIME, 256, (0.17, 0.11), "live", T4)))
    on_card = page.on_card()
    assert (on_card.card, on_card.l2_bytes) == (H200, 60 * 2**20)
    shown = tile_tables.fell(page.evidence(), on_card, *KERNELS, [256]).frame.set_index("times fewer")
    assert shown.loc["time", "source"] == f"live, {T4}" and shown.loc["time", "256"] == pytest.approx(0.17 / 0.11)
    assert shown.loc["bytes read from DRAM", "source"] == f"shipped, {H200}"


def test_a_card_s_own_counters_come_first():
    page = lab(T4, table(card_rows(256)))
    page.learn(table(rows(metrics.L2_HIT_RATE, 256, (97.0, 96.0), "live", T4)))
    assert page.on_card().card == T4 and page.on_card().l2_bytes == 4 * 2**20


def test_the_program_s_kernels_are_the_page_s():
    assert "\n" + lab("", table(card_rows(256))).program() == SOURCE


# ---- the exercise ----------------------------------------------------------------------------------------------------

TILED_ALONE = SOURCE[SOURCE.index("// A block of TILE") : SOURCE.index('extern "C" __global__ void matmulTiled8')]
NAIVE_ALONE = SOURCE[: SOURCE.index("// A block of TILE")]


def status(student):
    report = exercise.check("day16", student, SOURCE, on_gpu=False)
    return report, {stage.name: stage for stage in report.stages}


def test_the_solution_passes():
    report, stages = status(NAIVE_ALONE + TILED_ALONE)
    assert report.passed, report
    assert "35x79x19" in stages["safe in the tracer"].seen[0]
    ratio = report.ratios[0]
    assert (ratio.value, ratio.needs) == (32.0, "at most 40")


def test_the_naive_kernel_handed_in_as_tiled_is_told_why():
    report, stages = status(NAIVE_ALONE.replace("matmulNaive", "matmulTiled"))
    assert not report.passed
    assert stages["correct"].status == exercise.PASSED and stages["audit"].status == exercise.FAILED
    assert "as in matmulNaive; the kernel reads nothing from shared memory" in stages["audit"].seen[0]


MISTAKES = {
    "no first barrier": (FIRST + "\n", "", "shared-race"),
    "no second barrier": (SECOND + "\n", "", "shared-race"),
    "row length of the wrong matrix": ("a[row * k + aCol]", "a[row * n + aCol]", "out-of-bounds"),
    "early return": ("    float sum", "    if (row >= m || col >= n) return;\n    float sum", "barrier"),
    "no guard along K": ("row < m && aCol < k ?", "row < m ?", ""),
    "a tile that is skipped": ("tileB[threadIdx.y][threadIdx.x] = bRow < k && col < n ? b[bRow * n + col] : 0.0f;",
                               "if (bRow < k && col < n) tileB[threadIdx.y][threadIdx.x] = b[bRow * n + col];",
                               "uninitialized-shared"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_caught_before_anything_is_timed(mistake):
    old, new, kind = MISTAKES[mistake]
    assert old in TILED_ALONE
    report, stages = status(NAIVE_ALONE + TILED_ALONE.replace(old, new))
    assert not report.passed and stages["order of speed"].status == exercise.NOT_RUN
    failed = next(stage for stage in report.stages if stage.status == exercise.FAILED)
    assert failed.name in ("safe in the tracer", "correct") and kind in failed.seen[0], failed


def test_the_starter_is_not_yet_written():
    report, stages = status(NAIVE_ALONE)
    assert stages["found and compiles"].status == exercise.NOT_WRITTEN and not report.passed


def test_the_sweep_is_a_day_of_its_own():
    assert replace(SWEEP, steps=DAY16.steps, sweep=DAY16.sweep) == DAY16
