"""The measurements room: the tidy table holds its promises, and every metric of the tracer is in the registry."""

import math

import pandas as pd
import pytest

from gpudays import measurements, metrics
from gpudays.measurements import MeasurementError
from gpudays.ptx import model

LOADS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"


def sample() -> pd.DataFrame:
    traced = measurements.table("step1", 512, {LOADS: 8388608, SECTORS: 71303168}, "traced")
    live = measurements.table("step1", 512, {LOADS: 8388608, metrics.L2_HIT_RATE: 98.97}, "live", "NVIDIA H200")
    shipped = measurements.table("step2", 512, {LOADS: 8388608, SECTORS: 16777072}, "published", "Tesla T4")
    return measurements.concat([traced, live, shipped])


def test_every_metric_of_the_tracer_is_registered():
    assert set(model.METRICS) <= set(metrics.METRICS)
    assert {m for m in model.METRICS if metrics.METRICS[m].decided_by != "address"} == {
        model.LOADS_PER_THREAD, model.STORES_PER_THREAD, model.WARP_INSTRUCTIONS, model.THREAD_INSTRUCTIONS,
    }  # fmt: skip
    plain = [m.plain for m in metrics.METRICS.values()]
    assert len(set(plain)) == len(plain), "two metrics share a plain name"


def test_rows_carry_unit_source_and_card():
    row = sample().iloc[0]
    assert list(sample().columns) == measurements.COLUMNS
    assert (row["kernel"], row["n"], row["unit"], row["source"], row["card"]) == ("step1", 512, "request", "traced", "")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"value": math.nan}, "no finite number"),
        ({"value": math.inf}, "no finite number"),
        ({"value": "N/A"}, "no finite number"),
        ({"source": "guessed"}, "a source other than"),
        ({"card": "Tesla T4"}, "traced figure that names a card"),
        ({"source": "live"}, "no card"),
    ],
)
def test_a_figure_without_its_origin_is_refused(change, told):
    one = measurements.table("k", 16, {LOADS: 1}, "traced").astype(object)
    for column, bad in change.items():
        one[column] = bad
    with pytest.raises(MeasurementError, match=told):
        measurements.validate(one)


def test_a_foreign_table_is_refused():
    with pytest.raises(MeasurementError, match="lacks the columns kernel, n, metric"):
        measurements.validate(pd.DataFrame({"a": [1]}))


def test_live_is_preferred_over_traced_figure_by_figure():
    best = measurements.preferred(sample())
    of_step1 = best[best["kernel"].eq("step1")].set_index("metric")["source"].to_dict()
    assert of_step1 == {LOADS: "live", SECTORS: "traced", metrics.L2_HIT_RATE: "live"}
    order = ("traced", "live", "shipped", "published")
    assert measurements.preferred(sample(), order).set_index(["kernel", "metric"])["source"]["step1", LOADS] == "traced"


def test_value_is_named_when_missing_or_double():
    measured = sample()
    assert measurements.value(measured, "step1", 512, SECTORS) == 71303168
    assert measurements.value(measured, "step1", 512, LOADS, source="traced") == 8388608
    with pytest.raises(MeasurementError, match=r"L2 hit rate .* of step2 at 512"):
        measurements.value(measured, "step2", 512, metrics.L2_HIT_RATE)
    twice = [measured, measurements.table("step1", 512, {metrics.L2_HIT_RATE: 97.0}, "live", "Tesla T4")]
    with pytest.raises(MeasurementError, match=r"98\.97 on NVIDIA H200, 97 on Tesla T4"):
        measurements.value(measurements.concat(twice), "step1", 512, metrics.L2_HIT_RATE)


def test_ratios_never_mix_sources():
    ratios = measurements.with_derived(sample())
    ratios = ratios[ratios["metric"].eq(metrics.SECTORS_PER_REQUEST)]
    assert dict(zip(ratios["kernel"], ratios["value"], strict=True)) == {
        "step1": 8.5, "step2": pytest.approx(2.0, abs=1e-4),
    }  # fmt: skip
    assert set(ratios["source"]) == {"traced", "published"}
    again = measurements.with_derived(measurements.with_derived(sample()))
    assert again["metric"].eq(metrics.SECTORS_PER_REQUEST).sum() == 2


def test_exact_sectors_are_preferred_in_ratios():
    exact = metrics.by_instruction("global", "ld")
    counted = measurements.table("k", 512, {LOADS: 100, SECTORS: 851, exact: 850}, "live", "NVIDIA H200")
    assert measurements.value(measurements.with_derived(counted), "k", 512, metrics.SECTORS_PER_REQUEST) == 8.5


def test_dram_bytes_are_summed_unless_they_are_there():
    both = measurements.table("k", 512, {metrics.DRAM_READ: 5e6, metrics.DRAM_WRITE: 1e6}, "shipped", "NVIDIA H200")
    assert measurements.value(measurements.with_derived(both), "k", 512, metrics.DRAM_BYTES) == 6e6
    published = measurements.table("k", 512, {metrics.DRAM_BYTES: 7.82e6}, "published", "Tesla T4")
    assert len(measurements.with_derived(published)) == 1


def test_equal_rows_count_once():
    assert len(measurements.concat([sample(), sample()])) == len(sample())
    assert measurements.concat([]).empty


def test_sizes_may_be_rectangles():
    rectangle = measurements.table("k", "35x79x19", {LOADS: 3}, "traced")
    assert measurements.value(measurements.concat([rectangle, sample()]), "k", "35x79x19", LOADS) == 3


def test_sectors_that_are_not_counted_by_instruction_are_taken_from_the_unit():
    """cp.async, of which an H200 counts the requests and the unit's sectors, and none by instruction."""
    counts = {
        model.GLOBAL_LD_REQUESTS: 196608,
        model.GLOBAL_LD_SECTORS: 1572864,
        metrics.by_instruction("global", "ld"): 0,
    }
    found = measurements.with_derived(measurements.table("k", 1024, counts, "shipped", "NVIDIA H200"))
    assert measurements.value(found, "k", 1024, metrics.SECTORS_PER_REQUEST) == 8
