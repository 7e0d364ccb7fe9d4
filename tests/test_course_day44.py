"""Day 44 on paper: tiles read from the source, wavefronts by hand against the tracer's rules, ceilings, predictions."""

from pathlib import Path

import numpy as np
import pytest

from gpudays import measurements, metrics
from gpudays.course import day44, tiles
from gpudays.course.day44_predictions import Predictions, fraction
from gpudays.course.evidence import Evidence
from gpudays.course.geometry import count_wavefronts
from gpudays.course.predictions import CANNOT, DID_NOT, MATCHED
from gpudays.course.steps import DAY44, square
from gpudays.course.tiles import Tiles, TilesNotDeclared
from gpudays.kernels_in_pages import kernel_text
from gpudays.ptx import accounting, model

ROOT = Path(__file__).parents[1]
SOURCE = kernel_text(ROOT / DAY44.program)
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_120")
H200 = "NVIDIA H200"

# ---- tiles ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kernel", tiles.MACROS)
def test_tiles_are_read_from_the_source_and_make_whole_warps(kernel, arch):
    cut = tiles.declared(SOURCE, kernel, arch)
    assert cut.threads % 32 == 0 and cut.threads <= 1024
    assert cut.lanes[0] * cut.lanes[1] == 32
    if cut.wm:
        assert (cut.bm // cut.wm) * (cut.bn // cut.wn) * 32 == cut.threads


@pytest.mark.parametrize("kernel", tiles.MACROS)
def test_other_tiles_put_in_front_of_a_source_are_the_ones_declared(kernel):
    cut = Tiles(64, 64, 8, 8, 4, 32, 32, 3, 2) if "Warp" in kernel else Tiles(64, 32, 8, 4, 4)
    changed = tiles.with_tiles(SOURCE, kernel, cut)
    assert tiles.declared(changed, kernel, "sm_90") == cut
    assert DAY44.launch(kernel, changed, "sm_90").covers == (cut.bn, cut.bm)


def test_step_6_takes_the_row_of_its_architecture():
    table = (
        "constexpr __host__ __device__ WarpTiles warpTiles(int arch) {\n"
        "    if (arch >= 90) return {128, 256, 8, 64, 64, 16, 8, 3, 1};\n"
        "    if (arch >= 80) return {128, 128, 8, 64, 64, 16, 8, 3, 1};\n"
        "    return {64, 64, 8, 32, 32, 8, 4, 2, 4};\n}\n"
    )
    bms = {arch: tiles.declared(table, day44.WARPS, arch).bm for arch in ARCHS}
    assert bms == {"sm_75": 64, "sm_80": 128, "sm_86": 128, "sm_89": 128, "sm_90": 128, "sm_120": 128}
    assert tiles.declared(table, day44.WARPS, "sm_90a").bn == 256


@pytest.mark.parametrize(
    "source, kernel, said",
    [
        ("", day44.REGISTERS, "no line `#define REGISTER_TILES"),
        ("#define VECTOR_TILES 128, 64, 16, 8\n", day44.VECTORS, "has 4 numbers, and takes 5"),
        ("#define WARP_TILES 128, 64, 16, 8, 8\n", day44.WARPS, "has 5 numbers, and takes 9"),
        ("int x;\n", day44.WARPS, "nor a launch table for sm_90"),
    ],
)
def test_a_source_that_does_not_say_its_tiles_is_told_what_is_missing(source, kernel, said):
    with pytest.raises(TilesNotDeclared, match=said):
        tiles.declared(source, kernel, "sm_90")


def test_what_tiles_cost():
    cut = Tiles(128, 128, 16, 8, 8)
    assert (cut.threads, cut.outputs, cut.patch, cut.registers) == (256, 64, "8×8", 80)
    assert cut.flops_per_byte == 32 and cut.fma_per_read == 4
    assert cut.loads_per_thread(512) == 512 and cut.loads_per_output(512) == 8
    assert cut.grid((35, 79, 19)) == (1, 1) and cut.grid(square(260)) == (3, 3)
    assert Tiles(16, 16, 16, 1, 1).flops_per_byte == 4


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kernel", tiles.MACROS)
def test_every_output_of_a_block_belongs_to_exactly_one_thread(kernel, arch):
    cut = tiles.declared(SOURCE, kernel, arch)
    owners = np.zeros((cut.bm, cut.bn), int)
    for thread in range(cut.threads):
        owners[np.ix_(*day44.outputs_of(kernel, cut, thread))] += 1
    assert (owners == 1).all()


# ---- wavefronts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("pattern", ["random", "broadcast", "strided", "pairs"])
def test_wavefronts_by_hand_are_the_tracer_s(width, pattern):
    random, each = np.random.default_rng(len(pattern) * width), width // 4
    lane = np.arange(32)
    for _ in range(50):
        stride = int(random.integers(1, 40))
        first = {
            "random": random.integers(0, 64, 32) * each,
            "broadcast": lane // random.integers(1, 33) * each * stride,
            "strided": lane * each * stride,
            "pairs": (lane // 2 if stride % 2 else lane // 4 * 2 + lane % 2) * each * stride,
        }[pattern]
        rule = accounting.shared_wavefronts(4 * first[None], width, np.ones((1, 32), bool), "ld")
        assert count_wavefronts(first, width) == rule[0]


def test_wavefronts_and_ceilings_of_the_page():
    step4, step5 = Tiles(128, 128, 16, 8, 8), Tiles(128, 64, 16, 8, 8)
    found = [
        day44.wavefronts_per_fma(day44.TILED),
        day44.wavefronts_per_fma(day44.REGISTERS, step4),
        day44.wavefronts_per_fma(day44.VECTORS, step5),
    ]
    assert found == [2, 0.25, 0.1875]
    assert [day44.ceiling(w, "sm_90") for w in found] == pytest.approx([1 / 8, 1, 4 / 3])
    assert day44.ceiling(2, "sm_75") == 1 / 4
    with pytest.raises(KeyError):
        day44.wavefronts_per_fma("matmulStridedRows")
    with pytest.raises(ValueError, match="no FP32 throughput for sm_70"):
        day44.fma_per_cycle("sm_70")


def test_larger_patches_never_take_more_wavefronts():
    found = [day44.scalar_wavefronts_per_fma(cut) for cut in day44.SWEEP.values()]
    assert found == sorted(found, reverse=True) and all(cut.threads == 256 for cut in day44.SWEEP.values())


# ---- predictions ---------------------------------------------------------------------------------------------------

PREDICTED = Predictions((4, 4, 16), (2, 0.25, 0.1875))
TIMES = {  # of an H200, 2026-11-30, N = 2048, ms
    day44.TILED: 2.127616, day44.REGISTERS: 0.545232, day44.VECTORS: 0.397904, day44.WARPS: 0.338160,
}  # fmt: skip


def rows(values, n, source="shipped", card=H200):
    return [measurements.table(kernel, n, figures, source, card) for kernel, figures in values.items()]


def h200(**changed) -> Evidence:
    """What an H200 showed, with some figures changed."""
    times = TIMES | changed.get("times", {})
    cublas = changed.get("cublas", 0.341264)
    found = rows({k: {metrics.TIME: t, metrics.FRACTION_OF_CUBLAS: cublas / t} for k, t in times.items()}, 2048)
    found += rows({day44.WARPS: {metrics.FRACTION_OF_CUBLAS: changed.get("at_4096", 1.0095)}}, 4096)
    sweep = {"8×8": 0.541776, "16×8": changed.get("16×8", 0.522896), "16×16": 2.93782}
    found += rows({day44.swept(patch): {metrics.TIME: t} for patch, t in sweep.items()}, 2048)
    busy = changed.get("busy", {day44.TILED: (87.5, 20.4, 90.6), day44.WARPS: (60.0, 88.0, 12.4)})
    names = (metrics.MEMORY_THROUGHPUT, metrics.FMA_PIPE, metrics.WARPS_ACTIVE)
    found += rows({kernel: dict(zip(names, values, strict=True)) for kernel, values in busy.items()}, 1024)
    each = day44.multiply_adds(square(1024))
    counts = zip(
        KERNELS3, changed.get("sectors", (4, 4, 16)), changed.get("wavefronts", (1.5, 0.19, 0.1875)), strict=True
    )
    found += rows(
        {k: {metrics.SECTORS_PER_REQUEST: s, model.SHARED_LD_WAVEFRONTS: w * each} for k, s, w in counts}, 1024
    )
    return Evidence(measurements.concat(found), H200, ("live", "shipped", "traced"))


KERNELS3 = (day44.TILED, day44.REGISTERS, day44.VECTORS)


def graded(evidence: Evidence, predicted: Predictions = PREDICTED) -> dict[str, str]:
    return {verdict.number: verdict.verdict for verdict in predicted.grade(evidence)}


def test_on_an_h200_five_predictions_hold_and_two_do_not():
    assert graded(h200()) == {
        "1": MATCHED, "2": DID_NOT, "3": MATCHED, "4": MATCHED, "5": MATCHED, "6": MATCHED, "7": DID_NOT,
    }  # fmt: skip
    said = {verdict.number: verdict for verdict in PREDICTED.grade(h200())}
    assert "machine code reads neighbouring words at once" in said["2"].reason
    assert "3.90 / 1.37 / 1.18" in said["4"].figures and "16×8 is fastest" in said["7"].reason
    assert all(H200 in verdict.figures for verdict in said.values())


@pytest.mark.parametrize(
    "number, changed, verdict",
    [
        ("1", {"sectors": (4, 4, 4)}, DID_NOT),
        ("2", {"wavefronts": (2, 0.25, 0.1875)}, MATCHED),
        ("3", {"busy": {day44.TILED: (87.5, 20.4, 90.6), day44.WARPS: (90.0, 88.0, 12.4)}}, DID_NOT),
        ("4", {"times": {day44.REGISTERS: 1.9}}, DID_NOT),
        ("5", {"busy": {day44.TILED: (87.5, 20.4, 90.6), day44.WARPS: (60.0, 88.0, 95.0)}}, DID_NOT),
        ("6", {"at_4096": 0.91}, DID_NOT),
        ("6", {"cublas": 0.3}, DID_NOT),
        ("7", {"16×8": 0.6}, MATCHED),
    ],
)
def test_a_verdict_follows_its_figures(number, changed, verdict):
    assert graded(h200(**changed))[number] == verdict


def test_what_is_not_measured_cannot_be_tested():
    nothing = Evidence(measurements.empty(), "")
    assert set(graded(nothing).values()) == {CANNOT}


def test_a_changed_prediction_changes_the_grade():
    other = Predictions((4, 4, 4), (1.5, 0.19, 0.1875), False, 5, False, 1.02, "16×8")
    assert list(graded(h200(), other).values()) == [DID_NOT, MATCHED, DID_NOT, DID_NOT, DID_NOT, DID_NOT, MATCHED]


def test_step_6_counts_with_the_better_of_its_two_rows():
    found = rows({day44.WARPS: {metrics.FRACTION_OF_CUBLAS: 0.175}}, 512)
    found += rows({day44.WARPS_SMALL: {metrics.FRACTION_OF_CUBLAS: 0.752}}, 512)
    evidence = Evidence(measurements.concat(found), H200)
    assert fraction(evidence, day44.WARPS, 512) == 0.752 and fraction(evidence, day44.WARPS, 1024) is None
