"""Day 16 and Day 43 measure one pair twice: traced counters are equal, times agree, and a difference is told."""

from pathlib import Path

import pytest

from gpudays import kernels_in_pages, measurements, metrics, profiles
from gpudays.course import crosscheck
from gpudays.course.steps import DAY16, DAY43, square
from gpudays.ptx import model
from gpudays.runs import Runs

ROOT = Path(__file__).parents[1]
CARD = "NVIDIA H200"


@pytest.fixture(scope="module")
def traced():
    """Both days' measurements of the pair at 512, traced from their programs."""
    tables = {}
    for day, kernels in zip((DAY16, DAY43), zip(*crosscheck.PAIRS, strict=True), strict=True):
        runs = Runs(kernels_in_pages.kernel_text(ROOT / day.program), day)
        tables[day.name] = measurements.concat(
            measurements.table(kernel, 512, dict(runs.traced(kernel, square(512)).total), "traced")
            for kernel in kernels
        )
    return tables


def timed(naive: float, tiled: float, kernels=("matmulNaive", "matmulTiled"), source="shipped", card=CARD):
    pairs = zip(kernels, (naive, tiled), strict=True)
    return [measurements.table(kernel, 512, {metrics.TIME: value}, source, card) for kernel, value in pairs]


DAY43_KERNELS = ("matmulCoalescedCols", "matmulTiled")


def test_traced_counters_are_equal(traced):
    found = crosscheck.compare(traced["day16"], traced["day43"], CARD)
    counts = [c for c in found if c.metric != metrics.TIME]
    assert len(counts) == len(crosscheck.PAIRS) * len(crosscheck.COUNTED)
    assert {c.verdict for c in counts} == {crosscheck.EQUAL}
    by_metric = {(c.kernels[0], c.metric): c.day16 for c in counts}
    assert by_metric["matmulNaive", model.GLOBAL_LD_SECTORS] == 16777216
    assert by_metric["matmulTiled", model.GLOBAL_LD_REQUESTS] == 524288
    assert by_metric["matmulTiled", model.SHARED_LD_WAVEFRONTS] == 8388608


def test_shipped_times_agree(traced):
    tables = [profiles.shipped(day.profiles) for day in (DAY16, DAY43)]
    if not all(tables) or tables[0].card != tables[1].card:
        pytest.skip("no times of one card are shipped for both days")
    found = crosscheck.compare(tables[0].table, tables[1].table, tables[0].card)
    times = [c for c in found if c.metric == metrics.TIME]
    assert [c.verdict for c in times] == [crosscheck.WITHIN] * 2, crosscheck.verdict(found)
    assert all(c.source == f"shipped, {tables[0].card}" for c in times)


def test_what_agrees_is_said_in_one_sentence(traced):
    day16 = measurements.concat([traced["day16"], *timed(0.0603, 0.0405)])
    day43 = measurements.concat([traced["day43"], *timed(0.0664, 0.0414, DAY43_KERNELS)])
    said = crosscheck.verdict(crosscheck.compare(day16, day43, CARD))
    assert said == (
        "The two days agree: the traced counters are equal, to the last unit, and the times lie within 9.2 % "
        "(15 % allowed)."
    )


def test_a_difference_is_told_plainly(traced):
    wrong = traced["day16"].copy()
    place = wrong["kernel"].eq("matmulTiled") & wrong["metric"].eq(model.GLOBAL_LD_SECTORS)
    wrong.loc[place, "value"] += 1
    day16 = measurements.concat([wrong, *timed(0.0603, 0.0605)])
    day43 = measurements.concat([traced["day43"], *timed(0.0603, 0.0405, DAY43_KERNELS)])
    found = crosscheck.compare(day16, day43, CARD)
    assert [c.metric for c in found if c.verdict == crosscheck.DISAGREE] == [model.GLOBAL_LD_SECTORS, metrics.TIME]
    said = crosscheck.verdict(found)
    assert said.startswith("The two days disagree: global load sectors of matmulTiled")
    assert "time of matmulTiled is 0.0605 on Day 16 and 0.0405 on Day 43 (49.4 % apart, shipped, NVIDIA H200)" in said


def test_live_is_never_compared_with_shipped_nor_two_cards(traced):
    day16 = measurements.concat([traced["day16"], *timed(0.06, 0.04, source="live")])
    day43 = measurements.concat([traced["day43"], *timed(0.06, 0.04, DAY43_KERNELS)])
    found = crosscheck.compare(day16, day43, CARD)
    assert {c.verdict for c in found if c.metric == metrics.TIME} == {crosscheck.MISSING}
    assert "Not compared: time of matmulNaive, time of matmulTiled." in crosscheck.verdict(found)


def test_nothing_measured_twice_is_said():
    found = crosscheck.compare(measurements.empty(), measurements.empty(), CARD)
    assert {c.verdict for c in found} == {crosscheck.MISSING}
    assert crosscheck.verdict(found).startswith("Nothing was measured twice here.")


def test_the_table_leaves_out_what_neither_counts(traced):
    table = crosscheck.as_table(crosscheck.compare(traced["day16"], traced["day43"], CARD))
    assert set(table["verdict"]) == {crosscheck.EQUAL, crosscheck.MISSING}
    naive = table[table["kernels"].str.startswith("matmulNaive")]
    assert not naive["figure"].str.startswith("shared").any()
    assert "matmulNaive = matmulCoalescedCols" in set(table["kernels"])
