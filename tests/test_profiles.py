"""The profiles room: shipped and published figures are read; what is damaged, empty or foreign is refused by line."""

import json
from pathlib import Path

import pytest

from gpudays import measurements, metrics, profiles
from gpudays.profiles import ProfileError

LOADS = metrics.COUNTED_BY_ADDRESS[0]
START = '"0","matmulTiled","(16, 16, 1)","(32, 32, 1)","9.0",'
DETAILS = (
    '"ID","Kernel Name","Block Size","Grid Size","CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
    f'{START}"Command line profiler metrics","{LOADS}","request","524,288"\n'
    f'{START}"Memory Workload Analysis","L2 Hit Rate","%","94.08"\n'
)
TIMING = "n,step,kernel,ms_mean,ms_min,ms_max,gflops,card\n512,3,matmulTiled,0.0405,0.0401,0.0412,6628.0,NVIDIA H200\n"


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A course with one folder of shipped figures; returns the folder."""
    place = tmp_path / "content" / "profiles" / "some-day"
    place.mkdir(parents=True)
    machine = {"card": "NVIDIA H200", "driver": "580.159.04", "date": "2026-11-30"}
    (place / "machine.json").write_text(json.dumps(machine))
    (place / "some-day-512.details.csv").write_text(DETAILS)
    (place / "some-day.timing.csv").write_text(TIMING)
    monkeypatch.setenv("GPUDAYS_HOME", str(tmp_path))
    return place


def test_shipped_figures_carry_card_and_date(course):
    figures = profiles.shipped("some-day")
    assert figures and figures.missing == ()
    assert figures.origin == "shipped: NVIDIA H200, driver 580.159.04, 2026-11-30"
    value = {m: measurements.value(figures.table, "matmulTiled", 512, m) for m in figures.table["metric"]}
    assert value == {
        LOADS: 524288, metrics.L2_HIT_RATE: 94.08, metrics.TIME: 0.0405, metrics.TIME_MEAN: 0.0405,
        metrics.TIME_MIN: 0.0401, metrics.TIME_MAX: 0.0412, metrics.GFLOPS: 6628.0,
    }  # fmt: skip
    assert set(figures.table["source"]) == {"shipped"} and set(figures.table["card"]) == {"NVIDIA H200"}


def test_results_with_a_median_and_three_sides(course):
    (course / "results.csv").write_text(
        "kernel,step,m,n,k,ms_median,ms_min,ms_max,gflops,fraction_of_cublas,card\n"
        "matmulWarpTiled,6,4096,4096,4096,2.7,2.6,2.9,50903,0.99,NVIDIA H200\n"
        "matmulWarpTiled,6,35,79,19,0.1,0.1,0.2,1,,NVIDIA H200\n"
    )
    table = profiles.shipped("some-day").table
    assert measurements.value(table, "matmulWarpTiled", 4096, metrics.FRACTION_OF_CUBLAS) == 0.99
    assert measurements.value(table, "matmulWarpTiled", "35x79x19", metrics.TIME) == 0.1
    with pytest.raises(measurements.MeasurementError, match="no fraction of cuBLAS"):  # its cell is empty
        measurements.value(table, "matmulWarpTiled", "35x79x19", metrics.FRACTION_OF_CUBLAS)


@pytest.mark.parametrize(
    ("file", "text", "line", "told"),
    [
        ("some-day-512.details.csv", "", 1, "the file is empty"),
        ("some-day-512.details.csv", TIMING, 1, "not an export of ncu"),
        ("some-day-512.details.csv", DETAILS.splitlines()[0], 1, "no launches"),
        ("some-day-512.details.csv", DETAILS[:-12], 3, "cut off"),
        ("some-day-512.details.csv", DETAILS.replace("94.08", "94,08"), 3, "not a number"),
        ("some-day.details.csv", DETAILS, 1, "does not end in a size"),
        ("some-day.timing.csv", "", 1, "the file is empty"),
        ("some-day.timing.csv", DETAILS, 1, "no column kernel, n"),
        ("some-day.timing.csv", TIMING.splitlines()[0], 1, "no rows"),
        ("some-day.timing.csv", TIMING[:-30], 2, "cells where the header has 8"),
        ("some-day.timing.csv", TIMING.replace("0.0405", "fast"), 2, "ms_mean is 'fast', not a number"),
        ("some-day.timing.csv", TIMING.replace("0.0405", "nan"), 2, "not a finite number"),
        ("some-day.timing.csv", TIMING.replace("0.0405", "-1"), 2, "above zero"),
        ("some-day.timing.csv", TIMING.replace("512,3", "512.5,3"), 2, "not a whole number"),
        ("some-day.timing.csv", TIMING.replace("NVIDIA H200", "Tesla T4"), 2, "the folder of a NVIDIA H200"),
        ("some-day.timing.csv", TIMING + TIMING.splitlines()[1], 3, "a second time"),
        ("some-day.timing.csv", TIMING.replace("ms_mean", "seconds"), 1, "no column of times"),
        ("some-day.timing.csv", 'n,kernel,time_ms\n512,"k,1', 2, "cut off"),
        ("machine.json", "{", 1, "no JSON"),
        ("machine.json", "{}", 1, "does not name the card"),
    ],
)  # fmt: skip
def test_damage_is_refused_with_file_and_line(course, file, text, line, told):
    (course / file).write_text(text)
    with pytest.raises(ProfileError, match=told) as caught:
        profiles.shipped("some-day")
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{file}, line {line}: ")


def test_bytes_that_are_no_text_are_refused(course):
    (course / "some-day.timing.csv").write_bytes(b"\xff\xfe\x00kernel")
    with pytest.raises(ProfileError, match="no UTF-8"):
        profiles.shipped("some-day")


def test_nothing_shipped_leaves_a_page_running(course, monkeypatch):
    figures = profiles.shipped("another-day")
    assert not figures and figures.table.empty
    assert figures.origin.startswith("no shipped figures: ") and "has no another-day" in figures.origin
    (course / "machine.json").unlink()
    assert "which card" in profiles.shipped("some-day").origin
    monkeypatch.setenv("GPUDAYS_HOME", str(course))
    assert "set GPUDAYS_HOME" in profiles.shipped("some-day").origin


def test_half_of_a_folder_says_what_is_missing(course):
    (course / "some-day-512.details.csv").unlink()
    figures = profiles.shipped("some-day")
    assert figures and figures.missing == ("some-day: no .details.csv: no shipped counters",)


def test_the_checkout_is_found_from_the_package(monkeypatch, tmp_path):
    monkeypatch.delenv("GPUDAYS_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert profiles.home() == Path(__file__).resolve().parents[1]


def test_published_figures_of_day_43():
    figures = profiles.published("optimizing-matmul-1")
    table = figures.table
    assert figures.card == "Tesla T4" and set(table["source"]) == {"published"}
    assert measurements.value(table, "matmulStridedRows", 512, metrics.TIME) == 5.381
    assert measurements.value(table, "matmulStridedRows", 512, LOADS) == 8388608
    assert measurements.value(table, "matmulTiled", 512, metrics.DRAM_BYTES) == pytest.approx(4.60e6)
    assert measurements.value(table, "matmulCoalescedCols", 1024, metrics.L2_HIT_RATE) == 83.42
    ratio = measurements.value(table, "matmulTiled", 1024, metrics.SECTORS_PER_REQUEST)
    assert ratio == 3.97
    gain = [measurements.value(table, "matmulCoalescedCols", n, metrics.TIME) for n in (512, 1024)]
    gain = [
        g / measurements.value(table, "matmulTiled", n, metrics.TIME) for g, n in zip(gain, (512, 1024), strict=True)
    ]
    assert [round(g, 2) for g in gain] == [1.59, 1.46]


def test_published_ratios_are_those_of_the_published_counts():
    table = profiles.published("optimizing-matmul-1").table
    counts = profiles.read_published_counters(profiles.folder("optimizing-matmul-1") / "published-t4-counters.csv")
    derived = measurements.with_derived(counts)
    for kernel in ("matmulStridedRows", "matmulCoalescedCols", "matmulTiled"):
        computed = measurements.value(derived, kernel, 512, metrics.SECTORS_PER_REQUEST)
        stated = measurements.value(table, kernel, 512, metrics.SECTORS_PER_REQUEST)
        assert computed == pytest.approx(stated, abs=0.005)


def test_published_figures_of_day_16():
    table = profiles.published("tiled-matmul").table
    assert measurements.value(table, "matmulNaive", 256, metrics.TIME) == 0.165
    assert not profiles.published("nothing")


def test_published_figures_of_the_optimisation_suite():
    table = profiles.published("optimizer").table
    assert measurements.value(table, "3 vectorized loads", 1024, metrics.TIME) == 4.1402
    assert measurements.value(table, "5 cuBLAS", 4096, metrics.SPEEDUP_VS_CPU) == 780.8


def test_every_shipped_folder_can_be_read():
    for place in sorted((profiles.home() / "content" / "profiles").iterdir()):
        if place.is_dir():
            profiles.shipped(place.name)
            profiles.published(place.name)
