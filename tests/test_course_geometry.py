"""The paper model of a warp: which threads, which sectors."""

import numpy as np
import pytest

from gpudays.course import geometry
from gpudays.course.geometry import count_sectors, sectors, sectors_per_request, warp_lanes
from gpudays.course.steps import DAY43

N = 512


def step_addresses(kernel: str, warp: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Element indices of A and B that a warp of block (0, 0) asks for in the first round of each Day 43 kernel."""
    lanes = warp_lanes((16, 16), warp)
    if kernel == "matmulStridedRows":
        return lanes.x * N, lanes.y
    if kernel == "matmulCoalescedCols":
        return lanes.y * N, lanes.x
    return lanes.y * N + lanes.x, lanes.y * N + lanes.x


def test_a_warp_of_a_16x16_block_is_16_consecutive_x_by_2_consecutive_y():
    lanes = warp_lanes((16, 16), 3)
    assert list(lanes.x) == list(range(16)) * 2
    assert list(lanes.y) == [6] * 16 + [7] * 16
    assert set(lanes.z) == {0}


def test_a_block_of_three_dimensions_counts_x_then_y_then_z():
    lanes = warp_lanes((4, 2, 8), 1)
    assert (lanes.x[0], lanes.y[0], lanes.z[0]) == (0, 0, 4)
    assert list(lanes.z) == [4] * 8 + [5] * 8 + [6] * 8 + [7] * 8


def test_the_last_warp_of_a_small_block_is_short():
    assert len(warp_lanes((40,), 1)) == 8


@pytest.mark.parametrize("block, warp", [((16, 16), 8), ((16, 16), -1), ((0, 4), 0)])
def test_a_warp_that_does_not_exist_is_refused(block, warp):
    with pytest.raises(ValueError, match=r"warp|dimension"):
        warp_lanes(block, warp)


@pytest.mark.parametrize(
    "kernel, a, b", [("matmulStridedRows", 16, 1), ("matmulCoalescedCols", 2, 2), ("matmulTiled", 4, 4)]
)
def test_sectors_by_hand(kernel, a, b):
    of_a, of_b = step_addresses(kernel)
    assert (count_sectors(of_a), count_sectors(of_b)) == (a, b)
    assert sectors_per_request(of_a, of_b) == DAY43.step(kernel).sectors_per_request


def test_a_float4_costs_sixteen_sectors_and_a_misaligned_row_one_more():
    lane = np.arange(32)
    assert count_sectors(lane) == 4
    assert count_sectors(lane + 1) == 5
    assert count_sectors(lane, element_bytes=16) == 16


def test_sectors_name_each_sector_once_and_span_wide_elements():
    assert list(sectors([0, 7, 8, 8])) == [0, 1]
    assert list(sectors([0], element_bytes=100)) == [0, 1, 2, 3]
    assert count_sectors([]) == 0


def test_constants_agree_with_each_other():
    assert geometry.FLOATS_PER_SECTOR * geometry.FLOAT_BYTES == geometry.SECTOR_BYTES
