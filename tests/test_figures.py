"""The figures: opaque, readable without colour, with alt text, and drawn from the numbers they are given."""

import io

import numpy as np
import pytest
from matplotlib.image import imread
from matplotlib.patches import Rectangle

from gpudays import figures, measurements, metrics
from gpudays.course import evidence as ev
from gpudays.course.geometry import warp_lanes
from gpudays.course.steps import DAY43

CARD = "NVIDIA H200"
KERNELS = [step.kernel for step in DAY43.steps]
N = 512


@pytest.fixture
def lines() -> list[figures.Series]:
    """Two sizes of a card that has times and sectors, and no other counters."""
    rows = []
    for n, times in ((512, (0.29, 0.06, 0.04)), (1024, (2.27, 0.43, 0.28))):
        for kernel, time, requests, each in zip(KERNELS, times, (16, 16, 1), (8.5, 2.0, 4.0), strict=True):
            rows.append(measurements.table(kernel, n, {metrics.TIME: time}, "shipped", CARD))
            counts = {ev.REQUESTS: requests * 1000, ev.SECTORS: requests * each * 1000}
            rows.append(measurements.table(kernel, n, counts, "traced"))
    return figures.series(ev.Evidence(measurements.with_derived(measurements.concat(rows)), CARD), [512, 1024])


@pytest.fixture
def loads() -> list[figures.WarpLoad]:
    lane = warp_lanes((16, 16))
    offsets = {
        ("step 1", "A"): lane.x * N, ("step 1", "B"): lane.y, ("step 2", "A"): lane.y * N, ("step 2", "B"): lane.x,
        ("step 3", "A"): lane.y * N + lane.x, ("step 3", "B"): lane.y * N + lane.x,
    }  # fmt: skip
    return [figures.WarpLoad(step, matrix, 4 * index) for (step, matrix), index in offsets.items()]


def drawn(name: str, lines, loads) -> figures.Picture:
    if name == "warp_sectors":
        return figures.warp_sectors(loads, N)
    return getattr(figures, name)(lines, DAY43.steps)


@pytest.mark.parametrize("name", figures.ALT)
def test_a_picture_is_opaque_and_white_and_names_what_it_shows(name, lines, loads):
    picture = drawn(name, lines, loads)
    pixels = imread(io.BytesIO(picture.png()))
    assert pixels.shape[2] == 3 or (pixels[..., 3] == 1).all()
    assert (pixels[0, 0, :3] == 1).all() and len(np.unique(pixels[..., 0])) > 10
    data, metadata = picture._repr_mimebundle_()
    assert metadata["image/png"]["alt"] == picture.alt == figures.ALT[name]
    assert picture.alt.endswith(".") and len(picture.alt.split()) > 10
    assert set(data) == {"image/png", "text/plain"} and "0x" not in data["text/plain"]


def test_lines_differ_by_marker_and_style_and_not_by_colour_alone():
    markers, styles = [m for _, m, _ in figures.MARKED], [s for _, _, s in figures.MARKED]
    assert len(set(markers)) == len(markers) and len(set(styles[:4])) == 4


def test_four_ratios_draw_sectors_and_say_what_is_missing(lines):
    picture = figures.four_ratios(lines, DAY43.steps)
    by_title = {axis.get_title().strip(): axis for axis in picture.axes}
    sectors = by_title["Sectors per load request"]
    assert [list(line.get_ydata()) for line in sectors.get_lines()] == [[8.5, 2.0, 4.0]] * 2
    said = {title: " ".join(t.get_text() for t in axis.texts) for title, axis in by_title.items()}
    assert "no figures" not in said["Sectors per load request"] and "traced" in said["Sectors per load request"]
    assert all("no figures" in said[title] for title in said if title != "Sectors per load request")


def test_speedups_stand_beside_the_sector_ratios(lines):
    axis = figures.speedup_beside_sectors(lines, DAY43.steps).axes[0]
    labels = [text.get_text() for text in axis.texts]
    assert labels == ["4.83×", "1.50×", "5.28×", "1.54×", "4.25×", "8.00×"]
    assert len({bar.get_hatch() for bars in axis.containers for bar in bars}) == 3
    assert "traced" in axis.get_title() and CARD in axis.get_title()


def test_nothing_to_show_is_still_a_picture():
    empty = figures.series(ev.Evidence(measurements.empty(), CARD), [512])
    assert len(figures.speedup_beside_sectors(empty, DAY43.steps).png()) > 1000


def test_warp_sectors_count_and_colour_what_is_read(loads):
    picture = figures.warp_sectors(loads, N)
    titles = {axis.get_title(): axis for axis in picture.axes}
    assert sorted(titles) == [
        "step 1, A: 16 sectors", "step 1, B: 1 sector", "step 2, A: 2 sectors", "step 2, B: 2 sectors",
        "step 3, A: 4 sectors", "step 3, B: 4 sectors",
    ]  # fmt: skip
    first = titles["step 1, A: 16 sectors"]
    solid = [p for p in first.patches if isinstance(p, Rectangle) and p.get_hatch() is None and p.get_fill()]
    assert sorted(p.get_y() for p in solid) == list(range(16)) and {p.get_x() for p in solid} == {0}
    assert first.get_xlabel() == "16 of 128 floats read, 2 lanes each"
    assert titles["step 3, A: 4 sectors"].get_xlabel() == "32 of 32 floats read"


def test_a_float4_load_is_drawn_with_all_its_floats():
    load = figures.WarpLoad("step 5", "A", np.arange(32) * 16, width=16)
    assert len(load.floats) == 128 and len(load.sectors) == 16
    picture = figures.warp_sectors([load], 128)
    assert picture.axes[0].get_xlabel() == "128 of 128 floats read"


def test_a_width_whose_rows_begin_inside_a_sector_is_refused(loads):
    with pytest.raises(ValueError, match="multiple of 8"):
        figures.warp_sectors(loads, 260)
