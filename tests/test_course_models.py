"""The models on paper, and the days' tables."""

import numpy as np
import pytest

from gpudays.course import models, steps
from gpudays.course.steps import DAY16, DAY43, DAYS, square


def test_day43_on_paper_at_512():
    loads = [step.loads_per_thread(512) for step in DAY43.steps]
    assert loads == [1024, 1024, 64]
    assert [models.requests(each, 512 * 512) for each in loads] == [8_388_608, 8_388_608, 524_288]
    sectors = [
        models.requests(each, 512 * 512) * s.sectors_per_request for each, s in zip(loads, DAY43.steps, strict=True)
    ]
    assert sectors == [71_303_168, 16_777_216, 2_097_152]


def test_the_exercise_allows_72_floats_at_512():
    assert models.load_limit(512) == 72
    assert models.load_limit(260) == 2 * 17 + 8


@pytest.mark.parametrize("l2_mib, n", [(4, 1024), (5.5, 1024), (6, 2048), (40, 4096), (60, 4096), (72, 4096)])
def test_the_size_past_an_l2_exceeds_it_twice(l2_mib, n):
    l2 = int(l2_mib * 2**20)
    assert models.size_past_l2(l2) == n
    assert models.matrix_bytes(n) > 2 * l2 >= models.matrix_bytes(n // 2)


def test_an_l2_of_nothing_is_refused():
    with pytest.raises(ValueError, match="L2"):
        models.size_past_l2(0)


def test_sizes_of_rectangles():
    assert models.matrix_bytes(512) == 3 * 2**20
    assert models.matrix_bytes(35, 19, 79) == 4 * (35 * 79 + 79 * 19 + 35 * 19)
    assert models.flops(35, 19, 79) == 2 * 35 * 19 * 79
    assert steps.label((35, 19, 79)) == "35x19x79"
    assert steps.label(square(512)) == 512


@pytest.mark.parametrize("day", DAYS.values(), ids=lambda day: day.name)
def test_every_launch_covers_c_and_no_block_is_idle(day):
    for size in (*day.sizes, *day.odd_sizes):
        for step in day.steps:
            x, y = step.grid(size)
            rows_from_x = step.kernel == "matmulStridedRows"
            across, down = (size[0], size[1]) if rows_from_x else (size[1], size[0])
            assert 0 <= x * step.covers[0] - across < step.covers[0]
            assert 0 <= y * step.covers[1] - down < step.covers[1]


def test_scalars_have_the_declared_width():
    assert [s.dtype for s in DAY43.scalars(square(512))] == [np.dtype("uint64")]
    assert DAY16.scalars((35, 19, 79)) == [35, 19, 79]
    assert {s.dtype for s in DAY16.scalars((35, 19, 79))} == {np.dtype("int32")}


def test_an_unknown_kernel_names_those_there_are():
    with pytest.raises(KeyError, match="matmulStridedRows, matmulCoalescedCols, matmulTiled"):
        DAY43.step("matmulTild")
