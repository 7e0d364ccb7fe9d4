"""Day 44's page: its exercise passes with the page's solution and with nothing less; its tables and figures."""

import io
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from kernel_corpus import page_source
from matplotlib.image import imread

from gpudays import (
    exercise,
    gpu,
    ladder,
    ladder_figures,
    ladder_files,
    measurements,
    metrics,
    profiler,
    profiles,
    tables,
)
from gpudays.course import day44, tiles
from gpudays.course.steps import DAY44
from gpudays.kernels_in_pages import kernel_text, page_parts, page_text
from gpudays.machine import Machine
from gpudays.profiles import ProfileError
from gpudays.ptx import model
from gpudays.session import WrongAnswer

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / DAY44.page).read_text("utf-8")
SOURCE, STEP4 = page_source(ROOT / DAY44.page), "\n" + page_parts(ROOT / DAY44.page)[0]
GIVEN = re.search(r'student = r"""\n(.*?)"""', PAGE, re.DOTALL)[1]
SOLUTION = re.search(r"```cuda\n(.*?)```", PAGE, re.DOTALL)[1]
BASELINE = ladder.first_steps_source()
H200 = "NVIDIA H200"


@pytest.fixture(scope="module")
def lab() -> ladder.Ladder:
    return ladder.start()


# ---- exercise ------------------------------------------------------------------------------------------------------


def checked(step4: str) -> exercise.Report:
    return exercise.check("day44", GIVEN + step4, BASELINE, on_gpu=False)


def stages(report: exercise.Report) -> dict[str, str]:
    return {stage.name: stage.status for stage in report.stages}


def test_the_page_s_solution_passes_and_says_its_ratios():
    report = checked(SOLUTION)
    assert report.passed, repr(report)
    ratios = {ratio.what: ratio for ratio in report.ratios}
    found = next(r for what, r in ratios.items() if "shared wavefronts" in what)
    assert found.value == 0.5 and found.status == "passed"
    speed = next(r for what, r in ratios.items() if "at 2048: speed-up" in what)
    assert speed.value is None and "no GPU" in speed.status + speed.needs


def test_step_3_alone_is_not_yet_written():
    assert stages(checked(""))["found and compiles"] == "not yet written"


def contiguous(text: str) -> str:
    """The solution with patches of neighbouring outputs: right, and full of bank conflicts."""
    text = text.replace("* WIDE + y,", "* WIDE + y * PATCH,").replace("* WIDE + x;", "* WIDE + x * PATCH;")
    for name, index in (("firstRow", "i"), ("firstCol", "i"), ("firstCol", "j")):
        text = text.replace(f"{name} + {index} * TILE", f"{name} + {index}")
    for name, index in (("y", "i"), ("x", "i"), ("x", "j")):
        text = text.replace(f"{name} + {index} * TILE", f"{name} * PATCH + {index}")
    return text


def test_patches_of_neighbours_are_right_and_fail_by_their_conflicts():
    report = checked(contiguous(SOLUTION))
    assert stages(report)["correct"] == "passed" and stages(report)["audit"] == "failed"
    audit = next(stage for stage in report.stages if stage.name == "audit")
    assert "1 shared wavefronts" in audit.seen[0] and "0.5 of them are bank conflicts" in audit.seen[0]
    assert "neighbouring words" in audit.hint


def test_a_missing_barrier_is_caught_in_the_tracer():
    report = checked(SOLUTION.replace("        __syncthreads();\n\n", "\n", 1))
    assert stages(report)["safe in the tracer"] == "failed"
    assert any("race" in line for stage in report.stages for line in stage.seen)


def test_a_loop_that_is_not_unrolled_keeps_the_patch_out_of_registers():
    loops = "            for (int i = 0; i < PATCH; ++i)\n                for (int j = 0; j < PATCH; ++j) sum"
    assert loops in SOLUTION
    report = checked(SOLUTION.replace(loops, "#pragma unroll 1\n" + loops))
    assert stages(report)["correct"] == "passed" and stages(report)["audit"] == "failed"
    audit = next(stage for stage in report.stages if stage.name == "audit")
    assert any("spills" in line for line in audit.seen) and "unrolled" in audit.hint


# ---- the source ----------------------------------------------------------------------------------------------------


def test_the_page_brings_one_step_in_each_cell():
    assert page_text(ROOT / DAY44.page) == kernel_text(ROOT / DAY44.program)
    strings = re.findall(r'^source \+?= r"""\n(.*?)"""', PAGE, re.DOTALL | re.MULTILINE)
    assert [re.match(r"// ---- Step (\d)", text)[1] for text in strings] == ["4", "5", "6"]


def test_step_4_stands_alone_for_the_sweep(lab):
    shown = lab.sweep(STEP4)
    table = shown.frame.set_index("patch")
    assert list(table.index) == list(day44.SWEEP)
    assert (table["spilled bytes"] > 0).to_dict() == {patch: patch == "16×16" for patch in day44.SWEEP}
    assert table.loc["16×16", "registers"] == 255 and table["registers"].is_monotonic_increasing
    assert "compiled here" in shown.source
    assert table["occupancy, %"].iloc[0] > table["occupancy, %"].iloc[-2]
    assert opaque(ladder_figures.sweep(shown))


def test_counted_as_on_paper(lab):
    table = lab.trace(SOURCE, 256).frame.set_index("step")
    cuts = lab.tiles(SOURCE, ladder.TRACED_ARCH)
    on_paper = {3: day44.wavefronts_per_fma(day44.TILED)}
    on_paper |= {
        number: day44.wavefronts_per_fma(kernel, cuts[kernel])
        for number, kernel in ((4, day44.REGISTERS), (5, day44.VECTORS))
    }
    assert table["wavefronts/FMA"][:3].to_dict() == on_paper
    assert table["wavefronts/FMA"][6] == pytest.approx(
        day44.wavefronts_per_fma(day44.WARPS, cuts[day44.WARPS]), rel=0.02
    )
    assert table["sectors/request"].to_list() == [4, 4, 16, 16]
    assert table["loads/thread"].to_list() == [
        2 * 256 / 16,
        *(cuts[k].loads_per_thread(256) for k in day44.KERNELS[3:]),
    ]
    assert "stores" in lab.share_of_stores(256)


def test_a_size_that_a_tile_does_not_divide_is_refused(lab):
    with pytest.raises(ValueError, match="do not divide 130"):
        lab.trace(SOURCE, 130)


# ---- what is shipped -----------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path) -> Path:
    """A copy of the day's folder that can be damaged."""
    shutil.copytree(profiles.folder(DAY44.profiles), tmp_path / "day44")
    return tmp_path / "day44"


def test_the_shipped_sweep_is_read_with_its_fractions(place):
    found = ladder_files.sweep_times(place, H200)
    value = measurements.value(found, day44.swept("8×8"), 2048, metrics.FRACTION_OF_CUBLAS)
    assert 0.5 < value < 0.8 and len(set(found["kernel"])) == len(day44.SWEEP)
    assert ladder_files.sweep_times(place, "").empty and ladder_files.sweep_times(None, H200).empty


@pytest.mark.parametrize(
    "old, new, said",
    [
        (H200, "Tesla T4", "line 2: the row is of a Tesla T4"),
        ("matmulRegisterTile,8,8,", "matmulRegisterTile,9,8,", "line 7: a patch of 9×8"),
        ("ms_median", "median", "no column ms_median"),
        ("0.541776", "fast", "line 7: ms_median is 'fast'"),
        ("0.541776", "-1", "line 7: ms_median is -1"),
    ],
)
def test_a_damaged_sweep_is_refused_with_its_line(place, old, new, said):
    path = place / ladder_files.SWEEP_FILE
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    with pytest.raises(ProfileError, match=said):
        ladder_files.sweep_times(place, H200)


def test_public_kernels_say_what_was_claimed_and_what_was_seen(place):
    table = ladder_files.public_kernels(place)
    assert (table["here"] < table["claimed"]).sum() == table["claimed"].notna().sum() == 6
    assert ladder_files.public_kernels(None).empty


def test_experiments_come_from_the_notes():
    shown = ladder.experiments(13, 2)
    assert shown.frame["#"].to_list() == ["13", "2"] and H200 in shown.source
    assert not shown.frame.apply(lambda column: column.str.contains(r"\*\*|`", regex=True)).any().any()
    with pytest.raises(ProfileError, match="no experiment 999"):
        ladder.experiments(999)


# ---- figures -------------------------------------------------------------------------------------------------------


def opaque(picture) -> bool:
    pixels = imread(io.BytesIO(picture.png()))
    return pixels.shape[2] == 3 or bool((pixels[..., 3] == 1).all())


@pytest.mark.parametrize("name", ladder_figures.ALT)
def test_alt_texts_are_sentences_and_stand_in_the_page(name):
    alt = ladder_figures.ALT[name]
    assert alt.endswith(".") and len(alt.split()) > 10
    assert f'alt: "{alt}"' in PAGE


def test_figures_without_any_figure_say_so(monkeypatch):
    monkeypatch.setattr(gpu, "device", lambda: None)  # on a card the race would be run
    lab = ladder.start()
    lab.measured = measurements.empty()
    for picture in (ladder_figures.ladder(lab.evidence()), ladder_figures.waits(lab.evidence(), 4096)):
        texts = [text.get_text() for axis in picture.axes for text in axis.texts]
        assert any("here" in text for text in texts) and opaque(picture)
    assert "nothing" in lab.race(SOURCE).source and "nothing" in lab.waits(4096).source
    assert isinstance(lab.two_rows(), tables.Shown)
    assert {verdict for verdict in lab.grade(day44_predictions()).frame["verdict"]} == {"cannot be tested here"}


def day44_predictions():
    from gpudays.course.day44_predictions import Predictions

    return Predictions((4, 4, 16), (2, 0.25, 0.1875))


def test_stall_reasons_are_stacked_largest_first():
    found = {"wait": np.array([1.0, 2.0]), "barrier": np.array([5.0, 0.0])}
    assert list(ladder_figures._largest(found)) == ["barrier", "wait", "all others"]


def test_patches_are_drawn_for_steps_4_to_6(lab):
    picture = ladder_figures.patches(lab.tiles(SOURCE, "sm_90"))
    assert [axis.get_title().split(":")[0] for axis in picture.axes] == ["step 4", "step 5", "step 6"]
    assert opaque(picture)


def test_tiles_of_other_cards_are_compiled_for_both(lab):
    table = lab.transplanted(SOURCE).frame
    assert table["row of"].to_list()[0] == "sm_75" and len(table) == 2
    own = tiles.declared(SOURCE, day44.WARPS, "sm_75")
    assert table["tile, patch"][0] == f"{own.bm}×{own.bn}×{own.bk}, {own.patch}"
    assert "0 B spilled" in table["on sm_75"][0]


def test_a_launch_counts_its_shared_stores(lab):
    table = lab.trace(SOURCE, 256).frame.set_index("step")
    assert table["store conflicts"][4] == 0 and table["store conflicts"][5] > 0
    assert model.SHARED_ST_CONFLICTS in set(lab.traced["metric"])


# ---- on a card -----------------------------------------------------------------------------------------------------


@pytest.fixture
def on_a_card(monkeypatch) -> ladder.Ladder:
    """A session on a card that computes with NumPy; every kernel takes 2 ms, cuBLAS 1 ms."""
    card = gpu.Device("A Card", "sm_75", 40, 4 * 2**20, 2**34, "580.1", (13, 0))

    def launch(source, name, grid, block, args, *rest):
        a, b, c = args[:3]
        c[...] = a @ b

    monkeypatch.setattr(gpu, "device", lambda: card)
    monkeypatch.setattr(gpu, "launch", launch)
    monkeypatch.setattr(gpu, "time_cublas", lambda *size, **how: gpu.Timing((1.0, 1.0, 1.1)))
    monkeypatch.setattr(gpu, "time_kernel", lambda *launch, **how: gpu.Timing((2.0, 1.9, 2.1)))
    nothing = profiles.Figures(measurements.empty(), "no shipped figures")
    refused = profiler.Permission(False, "permission", "counters refused")
    return ladder.Ladder(Machine(card, "", refused, nothing, nothing))


def test_on_a_card_the_ladder_is_live_and_in_fractions_of_one_run(on_a_card, capsys):
    shown = on_a_card.race(SOURCE, [64])
    assert shown.source == "live, A Card"
    assert shown.frame["N = 64"].to_list() == [0.5] * 6 + [pytest.approx(2 * 64**3 / 1e9)]
    on_a_card.count(SOURCE, [64])
    assert "counters refused" in capsys.readouterr().out
    assert on_a_card.verify(SOURCE, [17]).source == "live, A Card"


def test_on_a_card_sweep_and_transplants_are_timed(on_a_card, monkeypatch):
    monkeypatch.setattr(day44, "SWEEP", {"2×2": tiles.Tiles(32, 32, 16, 2, 2)})
    shown = on_a_card.sweep(STEP4, 64)
    assert shown.frame["of cuBLAS"].to_list() == [0.5] and "times live, A Card" in shown.source
    assert opaque(ladder_figures.sweep(shown))
    homes = on_a_card.transplanted(SOURCE, 64).frame
    assert homes["row of"].to_list() == ["sm_75", "sm_90"] and homes["of cuBLAS, N = 64"].to_list() == [0.5, 0.5]


def test_a_wrong_kernel_is_not_timed(on_a_card, monkeypatch):
    monkeypatch.setattr(gpu, "launch", lambda *launch: launch[4][2].fill(0.0))
    with pytest.raises(WrongAnswer, match="matmulStridedRows"):
        on_a_card.race(SOURCE, [64])
