"""The first page's picture: drawn again from counts traced now, it is the one that is shipped, and is described so."""

from pathlib import Path

import pytest

from gpudays import front_picture
from gpudays.course.evidence import SECTORS

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def rungs():
    return front_picture.rungs(ROOT)


def test_the_shipped_picture_is_what_is_drawn_now(rungs):
    drawn = front_picture.draw(rungs).png()
    assert drawn == (ROOT / front_picture.PNG).read_bytes(), "run `gpudays front-picture`"


@pytest.mark.parametrize("page", ["book/intro.md", "README.md"])
def test_who_cannot_see_it_reads_the_same_numbers(rungs, page):
    assert f"![{front_picture.description(rungs)}](" in (ROOT / page).read_text("utf-8")


def test_the_first_three_steps_cost_what_the_paper_says(rungs):
    """2N loads for each of N² outputs, in requests of 8.5 and 2 sectors; then a sixteenth of them, of 4 sectors."""
    on_paper = [1000 * 2 / 32 * sectors for sectors in (8.5, 2.0, 4.0 / 16)]
    assert [rung.per_thousand[SECTORS] for rung in rungs[:3]] == on_paper
