"""The sliders: what they draw is what the tracer counts, and what the paper says; and something to see without them."""

import re
import time
from itertools import product
from xml.etree import ElementTree

import numpy as np
import pytest

from gpudays.course import geometry
from gpudays.interactive import BLOCKS, ELEMENTS, FIXED, ORDERS, explore_warp, warp_request
from gpudays.warp_svg import draw

STATES = list(product(["1 × 256", "16 × 16", "256 × 1"], [512, 509, 7], ELEMENTS, ORDERS))


@pytest.mark.parametrize("state", STATES)
def test_traced_sectors_are_those_on_paper(state):
    block, width, element, order = state
    lanes = geometry.warp_lanes(BLOCKS[block])
    row, col = (lanes.y, lanes.x) if order == "x picks the column" else (lanes.x, lanes.y)
    index = (row * width + col)[col < width]
    size = ELEMENTS[element][2]
    request = warp_request(*state)
    assert sorted(request.offsets // size) == sorted(index)
    assert len(request.sectors) == geometry.count_sectors(index, size)


def test_the_fixed_states_tell_the_story_of_the_page():
    assert [len(warp_request(*state).sectors) for state in FIXED] == [16, 4, 5, 8, 1]


@pytest.mark.parametrize("state", FIXED)
def test_the_picture_is_svg_with_a_frame_for_each_sector_and_words_for_who_cannot_see_it(state):
    request = warp_request(*state)
    picture = ElementTree.fromstring(draw(request))
    boxes = list(picture.iter("{http://www.w3.org/2000/svg}rect"))[1:]  # the first is the paper
    assert sum(box.get("stroke") is not None for box in boxes) == len(request.sectors)
    assert picture.get("aria-label") == request.summary
    assert float(picture.get("viewBox").split()[3]) <= 600
    assert all(0 <= float(box.get("x")) <= 480 - float(box.get("width")) for box in boxes)


def test_moving_a_slider_redraws(monkeypatch):
    explorer = explore_warp()
    assert re.search(r"32 lanes, 4 sectors;", explorer.picture.value)
    explorer.controls["order"].value = "x picks the row"
    assert re.search(r"32 lanes, 16 sectors;", explorer.picture.value)


def test_without_a_kernel_the_fixed_states_are_there():
    shown = explore_warp()._repr_mimebundle_()
    assert shown["text/html"].count("<svg") == len(FIXED)
    assert shown["text/plain"].count("sector") == len(FIXED)


def test_a_redraw_is_quick_to_say(capsys):
    """Said, not judged: no test passes or fails by the clock."""
    explorer = explore_warp()
    took = []
    for width in range(480, 512, 2):
        start = time.perf_counter()
        explorer.controls["width"].value = width
        took.append(time.perf_counter() - start)
    assert re.search(r"N = 510", explorer.picture.value)
    print(f"redraw: median {np.median(took) * 1e3:.0f} ms, slowest {max(took) * 1e3:.0f} ms")
