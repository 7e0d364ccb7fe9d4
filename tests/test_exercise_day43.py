"""Day 43's exercise: a right hand-in passes, a wrong one fails at the stage that teaches why. More in test_grade.py."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpudays import checking, exercise, gpu, kernels_in_pages
from gpudays.exercise_gates import EXERCISES
from gpudays.exercise_report import FAILED, NOT_GATED, NOT_RUN, NOT_WRITTEN, PASSED, Report
from gpudays.runs import Runs

ROOT = Path(__file__).parents[1]
SOURCE = kernels_in_pages.kernel_text(ROOT / "code/day43-matmul-1/matmul_steps.cu")
HEAD, STEPS = SOURCE.split("// Step 2", 1)
STEP2, STEP3 = (part for part in STEPS.split("// Step 3", 1))
STEP2, STEP3 = f"// Step 2{STEP2}", f"// Step 3{STEP3}"


RETURN = "    if (row >= n || col >= n) return;\n"
WRITE = "    if (row == 0 && col == 0) const_cast<float*>(a)[0] = 2.0f;\n"


def check(source: str) -> Report:
    return exercise.check("day43", source, SOURCE, on_gpu=False)


def statuses(report: Report) -> list[str]:
    return [stage.status for stage in report.stages]


def stopped_at(report: Report) -> exercise.Stage:
    """The one failed stage; everything after it was not run."""
    failed = [stage for stage in report.stages if stage.status == FAILED]
    assert len(failed) == 1 and not report.passed
    after = report.stages[report.stages.index(failed[0]) + 1 :]
    assert all(stage.status == NOT_RUN for stage in after)
    return failed[0]


def replaced(source: str, *pairs: tuple[str, str]) -> str:
    """The source with each text replaced; a text that is not there would test nothing."""
    for old, new in pairs:
        assert old in source, old
        source = source.replace(old, new)
    return source


def test_the_solution_passes_and_reports_every_ratio():
    report = check(SOURCE)
    assert statuses(report) == [PASSED, PASSED, PASSED, PASSED, NOT_GATED] and report.passed
    ratios = {ratio.what: ratio for ratio in report.ratios}
    assert ratios["matmulTiled at 512: floats loaded per thread"].value == 64
    assert ratios["matmulTiled at 512: floats loaded per thread"].needs == "at most 72"
    assert ratios["matmulTiled at 1024: floats loaded per thread"].value == 128
    sectors = ratios["matmulCoalescedCols at 512: sectors per request"]
    assert sectors.value == 2.0 and "8.50" in sectors.needs and sectors.status == PASSED
    speedups = [ratio for what, ratio in ratios.items() if "speed-up" in what]
    assert len(speedups) == 6 and all(r.status == "not gated: no GPU" and r.value is None for r in speedups)
    assert "not gated: no GPU" in report.stages[-1].seen[0]


def test_the_stub_is_not_yet_written():
    report = check(HEAD)
    assert statuses(report) == [NOT_WRITTEN, *[NOT_RUN] * 4] and not report.passed
    assert "matmulCoalescedCols, matmulTiled" in report.stages[0].seen[0]


def test_a_correct_step_2_handed_in_as_step_3_is_told_why():
    copy = replaced(STEP2, ("matmulCoalescedCols", "matmulTiled"))
    report = check(HEAD + STEP2 + copy)
    stage = stopped_at(report)
    assert stage.name == "audit"
    assert "1,024 floats per thread" in stage.seen[0] and "at most 72" in stage.seen[0]
    assert "as in step 2" in stage.seen[0] and "nothing from shared memory" in stage.seen[0]


@pytest.mark.parametrize(
    "old, new, said",
    [
        pytest.param("__syncthreads();  // both tiles", "// both tiles", "race", id="first barrier missing"),
        pytest.param("__syncthreads();  // everyone", "// everyone", "race", id="second barrier missing"),
        pytest.param("    float sum", f"{RETURN}    float sum", "barrier", id="early return"),
        pytest.param("row < n && aCol < n ?", "row < n ?", "", id="unguarded tile of A"),
        pytest.param("if (row < n && col < n) c", "c", "out", id="unguarded store"),
        pytest.param("tileA[TILE][TILE]", "tileA[32][32]", "", id="reads past what was written"),
        pytest.param("start += TILE", "start += 0", "budget", id="endless loop"),
    ],
)  # fmt: skip
def test_what_is_unsafe_stops_in_the_tracer(old, new, said):
    pairs = [(old, new)]
    if "tileA[32]" in new:
        pairs += [("k < TILE; ++k) sum", "k < TILE + 1; ++k) sum"), ("tileB[TILE][TILE]", "tileB[32][32]")]
    stage = stopped_at(check(HEAD + STEP2 + replaced(STEP3, *pairs)))
    if old.startswith("row < n && aCol"):
        assert stage.name in ("safe in the tracer", "correct")
    else:
        assert stage.name == "safe in the tracer"
        assert said in " ".join(stage.seen).lower() and stage.hint


@pytest.mark.parametrize(
    "old, new, said",
    [
        pytest.param("c[row * n + col] = sum", "c[row * n + col] += sum", "adds to what C held", id="accumulates"),
        pytest.param("k < TILE; ++k", "k < TILE - 1; ++k", "row 0, column 0", id="one product short"),
        pytest.param("= sum;", "= sum / 0.0f - sum / 0.0f;", "NaN", id="NaN"),
        pytest.param("    float sum = 0.0f;", f"{WRITE}    float sum = 0.0f;", "input A", id="writes into A"),
    ],
)  # fmt: skip
def test_what_is_wrong_stops_at_correct(old, new, said):
    report = check(HEAD + STEP2 + replaced(STEP3, (old, new)))
    stage = stopped_at(report)
    assert stage.name in ("correct", "safe in the tracer")
    if stage.name == "correct":
        assert said in stage.seen[0]
    else:
        assert said == "input A" and "race" in stage.seen[0]


def test_names_and_parameters_are_told():
    stage = stopped_at(check(HEAD + STEP2))
    assert "no kernel matmulTiled" in stage.seen[0] and "matmulCoalescedCols" in stage.seen[0]
    stage = stopped_at(
        check(replaced(SOURCE, ("matmulTiled(const float* __restrict__ a", "matmulTiled(float s, const float* a")))
    )
    assert "other parameters" in stage.seen[0] and "size_t n" in stage.seen[0]


def test_compile_errors_show_the_students_own_line():
    stage = stopped_at(
        check(replaced(SOURCE, ("float sum = 0.0f;\n    for (size_t start", "float sum = 0.0f\n    for (size_t start")))
    )
    assert stage.name == "found and compiles"
    assert "for (size_t start = 0" in stage.seen[0] and 'expected a ";"' in stage.seen[0]


def test_a_day_without_an_exercise_is_refused():
    with pytest.raises(KeyError, match="day43"):
        exercise.check("day99", SOURCE, SOURCE)


# ---- the order of speed, with made-up times: the clock decides nothing here ---------------------------------------


def on_a_card(monkeypatch, times: dict[tuple[str, int], float], source: str = SOURCE) -> Report:
    """The check as on a GPU: launches answered by NumPy, times as given in ms, few sizes in the tracer."""
    few = replace(EXERCISES["day43"], small_sizes=((17, 17, 17),), sizes=((64, 64, 64),))
    monkeypatch.setitem(EXERCISES, "day43", few)
    monkeypatch.setattr(Runs, "launch", lambda self, kernel, a, b, c, size: np.matmul(a, b, out=c))
    monkeypatch.setattr(
        Runs, "time", lambda self, kernel, size, repeats=None: gpu.Timing((times[kernel, size[0]],) * 3)
    )
    return exercise.check("day43", source, SOURCE, on_gpu=True)


GOOD = {
    ("matmulStridedRows", 512): 0.29, ("matmulCoalescedCols", 512): 0.06, ("matmulTiled", 512): 0.04,
    ("matmulStridedRows", 1024): 2.27, ("matmulCoalescedCols", 1024): 0.43, ("matmulTiled", 1024): 0.28,
}  # fmt: skip


def test_the_order_on_a_card(monkeypatch):
    report = on_a_card(monkeypatch, GOOD)
    assert report.passed and statuses(report)[-1] == PASSED
    ratios = {r.what: (round(r.value, 2), r.status) for r in report.ratios if "speed-up" in r.what}
    assert ratios["matmulStridedRows → matmulCoalescedCols at 512: speed-up"] == (4.83, PASSED)
    assert ratios["matmulCoalescedCols → matmulTiled at 1024: speed-up"] == (1.54, PASSED)
    assert ratios["matmulCoalescedCols → matmulTiled at 512: speed-up"] == (1.5, NOT_GATED)


@pytest.mark.parametrize(
    "slow, passes",
    [
        (("matmulCoalescedCols", 512), False),
        (("matmulCoalescedCols", 1024), False),
        (("matmulTiled", 1024), False),
        (("matmulTiled", 512), True),
    ],
)
def test_a_step_that_is_no_faster_fails_where_it_is_gated(monkeypatch, slow, passes):
    report = on_a_card(
        monkeypatch, GOOD | {slow: 99.0, ("matmulTiled", slow[1]): 99.0 if slow[0] == "matmulTiled" else 0.01}
    )
    assert report.passed is passes
    assert len([r for r in report.ratios if "speed-up" in r.what]) == 6


@pytest.mark.parametrize(("gain", "passes"), [(0.99, False), (1.0, False), (1.03, False), (1.1, True)])
def test_what_two_runs_of_one_kernel_differ_by_is_no_gain(monkeypatch, gain, passes):
    as_step_1 = {("matmulCoalescedCols", n): GOOD["matmulStridedRows", n] / gain for n in (512, 1024)}
    assert on_a_card(monkeypatch, GOOD | as_step_1).passed is passes


def test_an_order_that_a_day_only_reports_gives_no_points(monkeypatch):
    source = checking.given("day16")
    monkeypatch.setattr(Runs, "launch", lambda self, kernel, a, b, c, size: np.matmul(a, b, out=c))
    monkeypatch.setattr(Runs, "time", lambda self, kernel, size, repeats=None: gpu.Timing((1.0,) * 3))
    solved = checking.read("day16", ROOT / "code/day16-tiled-matmul/matmul_tiled.cu", True)
    report = exercise.check("day16", solved.source, source, on_gpu=True)
    assert report.passed and report.points == report.out_of == 85
    assert statuses(report)[-1] == NOT_GATED and report.ratios[-1].value == 1.0
