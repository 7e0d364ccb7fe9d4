"""Predictions meet measurements: an H200's, a T4's published ones, and what each of them cannot test."""

import pandas as pd
import pytest

from gpudays import measurements, metrics
from gpudays.course import evidence as ev
from gpudays.course.day43 import KERNELS, Predictions, paper_requests
from gpudays.course.evidence import Evidence
from gpudays.course.predictions import CANNOT, DID_NOT, MATCHED, Verdict, as_table

H200, T4 = "NVIDIA H200", "Tesla T4"
L2_H200, L2_T4 = 60 * 2**20, 4 * 2**20


def rows(metric, n, values, source, card):
    return [measurements.table(k, n, {metric: v}, source, card) for k, v in zip(KERNELS, values, strict=True)]


def traced(n: int) -> list[pd.DataFrame]:
    requests = paper_requests(n)
    sectors = [r * s for r, s in zip(requests, (8.5, 2.0, 4.0), strict=True)]
    return rows(ev.REQUESTS, n, requests, "traced", "") + rows(ev.SECTORS, n, sectors, "traced", "")


@pytest.fixture
def h200() -> pd.DataFrame:
    """What an H200 showed on 2026-11-30."""
    times = {512: (0.2903, 0.0603, 0.0405), 1024: (2.2713, 0.4295, 0.2777), 4096: (140.2849, 44.2250, 16.9684)}
    tables = traced(512) + traced(1024)
    for n, values in times.items():
        tables += rows(metrics.TIME, n, values, "shipped", H200)
    tables += rows(metrics.WARPS_ACTIVE, 512, (75.36, 95.83, 71.14), "shipped", H200)
    return measurements.with_derived(measurements.concat(tables))


@pytest.fixture
def t4() -> pd.DataFrame:
    """The figures published for a T4."""
    tables = rows(ev.REQUESTS, 512, (8388608, 8388608, 524288), "published", T4)
    tables += rows(ev.SECTORS, 512, (71303163, 16777072, 2084470), "published", T4)
    tables += rows(metrics.WARPS_ACTIVE, 512, (94.43, 95.33, 94.87), "published", T4)
    tables += rows(metrics.TIME, 512, (5.381, 1.024, 0.645), "published", T4)
    tables += rows(metrics.TIME, 1024, (22.952, 4.003, 2.735), "published", T4)
    return measurements.with_derived(measurements.concat(tables))


def graded(table, card, l2, predicted=None, order=ev.ORDER) -> dict[str, Verdict]:
    verdicts = (predicted or Predictions()).grade(Evidence(table, card, order, l2))
    return {v.number: v for v in verdicts}


def test_on_an_h200(h200):
    found = graded(h200, H200, L2_H200)
    assert {n: v.verdict for n, v in found.items()} == {
        "1": MATCHED, "2": MATCHED, "3": MATCHED, "4 at 1024": CANNOT, "4 at 4096": MATCHED, "5": DID_NOT,
    }  # fmt: skip
    assert "60 MiB" in found["4 at 1024"].reason
    assert "1.49× at 512, 2.61× at 4096" in found["4 at 4096"].figures
    assert "4.81× for 4.25×" in found["3"].figures
    assert "shipped, NVIDIA H200" in found["3"].figures and "traced" in found["1"].figures
    assert "at 512 it spreads over 25 points" in found["5"].reason


def test_on_the_published_t4(t4):
    found = graded(t4, T4, L2_T4, order=("published",))
    assert {n: v.verdict for n, v in found.items()} == {
        "1": MATCHED, "2": MATCHED, "3": MATCHED, "4 at 1024": DID_NOT, "5": MATCHED,
    }  # fmt: skip
    assert "1.59× at 512, 1.46× at 1024" in found["4 at 1024"].figures
    assert "3.98" in found["1"].figures


def test_another_prediction_gets_another_grade(t4, h200):
    wrong = Predictions((8.5, 2.0, 2.0), lambda n: paper_requests(n)[:2] * 1 + (0,), False, False, False)
    found = graded(t4, T4, L2_T4, wrong, ("published",))
    assert {n: v.verdict for n, v in found.items()} == {
        "1": DID_NOT, "2": DID_NOT, "3": DID_NOT, "4 at 1024": MATCHED, "5": DID_NOT,
    }  # fmt: skip
    assert graded(h200, H200, L2_H200, wrong)["4 at 4096"].verdict == DID_NOT


def test_a_gain_that_equals_its_sector_ratio_breaks_prediction_3(t4):
    strided = (t4["kernel"] == "matmulStridedRows") & (t4["metric"] == metrics.TIME) & (t4["n"] == 512)
    t4.loc[strided, "value"] = 1.024 * 4.25
    assert graded(t4, T4, L2_T4, order=("published",))["3"].verdict == DID_NOT


def test_whether_a_gain_equals_its_ratio_is_judged_by_the_launches_spread(h200):
    """4.81× stands for 4.25×: apart when the launches agree, not to be told apart when they scatter by a fifth."""
    for spread, verdict in ((0.01, MATCHED), (0.2, DID_NOT)):
        tables = [h200]
        for n, times in ((512, (0.2903, 0.0603, 0.0405)), (1024, (2.2713, 0.4295, 0.2777))):
            tables += rows(metrics.TIME_MIN, n, [t * (1 - spread) for t in times], "shipped", H200)
            tables += rows(metrics.TIME_MAX, n, [t * (1 + spread) for t in times], "shipped", H200)
        assert graded(measurements.concat(tables), H200, L2_H200)["3"].verdict == verdict


def test_times_of_one_card_never_meet_the_counters_of_another(h200):
    live = measurements.concat(rows(metrics.TIME, 512, (5.0, 1.0, 0.6), "live", "NVIDIA L4"))
    found = graded(measurements.concat([h200, live]), "NVIDIA L4", 48 * 2**20)
    assert found["5"].verdict == CANNOT and "NVIDIA L4" in found["5"].reason
    assert found["1"].verdict == MATCHED and found["3"].verdict == MATCHED
    assert "5.00×" in found["3"].figures and "4.81×" not in found["3"].figures
    assert found["4 at 4096"].verdict == CANNOT and "not timed at 1024" in found["4 at 1024"].reason


def test_live_comes_before_traced_and_shipped(h200):
    live = measurements.concat(rows(metrics.TIME, 512, (1.0, 0.5, 0.25), "live", H200))
    evidence = Evidence(measurements.concat([h200, live]), H200)
    assert str(evidence.get("matmulTiled", 512, metrics.TIME)) == "0.25 (live, NVIDIA H200)"
    assert evidence.get("matmulTiled", 1024, metrics.TIME).source == "shipped"
    assert evidence.gains(KERNELS, 512) == (2.0, 2.0)


def test_nothing_measured_grades_nothing():
    found = graded(measurements.empty(), H200, L2_H200)
    assert {v.verdict for v in found.values()} == {CANNOT}
    table = as_table(found.values())
    assert list(table.columns) == ["number", "claim", "verdict", "figures", "reason"]
    assert table["reason"].str.len().gt(0).all()


def test_an_l2_that_holds_neither_size_cannot_test_prediction_4(t4):
    found = graded(t4, T4, 2**20, order=("published",))
    assert [n for n in found if n.startswith("4")] == ["4 at 1024"]
    assert found["4 at 1024"].verdict == CANNOT and "even 512 leaves it" in found["4 at 1024"].reason


def test_a_verdict_is_one_of_three():
    with pytest.raises(ValueError, match="no verdict"):
        Verdict("1", "claim", "perhaps", "", "")
