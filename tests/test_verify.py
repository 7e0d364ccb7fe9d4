"""The verification room: right kernels pass at every size, and each classic mistake is named."""

import numpy as np
import pytest

from gpudays import verify
from gpudays.verify import ODD_SHAPES, ODD_SIDES, compare, inputs, label, tolerance

SIZES = (*ODD_SIDES, *ODD_SHAPES)


def right(a, b, c, size):
    """Sums in float32 in the order of a kernel's loop."""
    total = np.zeros(size[:2], np.float32)
    for k in range(size[2]):
        total += a[:, k : k + 1] * b[k : k + 1, :]
    c[...] = total


def only(report: verify.Report) -> str:
    """The kind of problem that every size shows."""
    kinds = {p.kind for p in report.problems}
    assert len(kinds) == 1, report
    return kinds.pop()


def test_a_right_kernel_passes_and_the_report_says_how_close():
    report = verify.verify(right, SIZES, "right")
    assert report.ok and report.notes == ()
    assert 0 < report.worst_error < report.allowed
    assert str(report).startswith("right: right at 1, 15, 16, 17, 33, 260, 35x79x19")


def test_tolerance_leaves_a_float32_sum_room_and_tf32_none():
    for k in (1, 16, 260, 4096):
        a, b = inputs((3, 5, k))
        c = np.empty((3, 5), np.float32)
        right(a, b, c, (3, 5, k))
        _, worst = compare(c, a, b)
        assert worst < tolerance(k) / 2, k
    tf32 = (a.view(np.uint32) & ~np.uint32(0x1FFF)).view(np.float32)
    assert compare((tf32 @ b).astype(np.float32), a, b)[0][0].kind == "wrong"


def test_inputs_are_neither_constant_nor_symmetric_nor_repeated():
    a, b = inputs((64, 64, 64))
    assert a.dtype == b.dtype == np.float32
    assert len(np.unique(a)) > 4000 and not np.allclose(a, a.T) and not np.array_equal(a, b)
    assert a.min() >= 0.5 and a.max() < 1.5
    assert np.array_equal(inputs((3, 4, 5), 9)[0], inputs((3, 4, 5), 9)[0])


def test_one_wrong_element_is_found_and_placed():
    def off(a, b, c, size):
        right(a, b, c, size)
        if size[0] > 30:
            c[7, 11] *= 1.001

    report = verify.verify(off, SIZES, "off")
    assert [label(p.size) for p in report.problems] == ["33", "260", "35x79x19"]
    assert all((p.row, p.col) == (7, 11) for p in report.problems)
    assert "wrong; first at row 7, column 11: got " in str(report)
    assert "1 of 1,089 checked elements" in report.problems[0].message


def test_nan_never_passes():
    def nan_corner(a, b, c, size):
        right(a, b, c, size)
        c[-1, -1] = np.nan

    assert only(verify.verify(nan_corner, SIZES)) == "never-written"

    def infinite(a, b, c, size):
        right(a, b, c, size)
        c[0, 0] = np.inf

    assert only(verify.verify(infinite, SIZES)) == "not-finite"


def test_a_missing_edge_is_never_written():
    def whole_tiles(a, b, c, size):
        full = np.empty_like(c)
        right(a, b, full, size)
        m, n = (side // 16 * 16 for side in size[:2])
        c[:m, :n] = full[:m, :n]

    report = verify.verify(whole_tiles, (16, 33), "tiles")
    assert [(p.kind, label(p.size), p.row, p.col) for p in report.problems] == [("never-written", "33", 0, 32)]


def test_adding_to_c_is_told_from_not_writing_it():
    def adds(a, b, c, size):
        product = np.empty_like(c)
        right(a, b, product, size)
        c += product

    report = verify.verify(adds, (17, (35, 79, 19)), "adds")
    assert only(report) == "accumulates"
    assert "C += …" in str(report)


@pytest.mark.parametrize("size", [(1, 1, 1), (17, 17, 17), (35, 79, 19)])
def test_an_answer_kept_from_the_first_launch_is_unstable(size):
    """The second launch is on other matrices: what was right for the first ones, kept anywhere, is wrong for them."""
    kept = {}

    def from_memory(a, b, c, size):
        if size not in kept:
            right(a, b, c, size)
            kept[size] = c.copy()
        c[...] = kept[size]

    def leaves_what_is_there(a, b, c, size):
        if np.isnan(c).any():
            right(a, b, c, size)

    assert only(verify.verify(from_memory, (size,))) == "unstable"
    assert only(verify.verify(leaves_what_is_there, (size,))) == "unstable"


def test_a_result_that_changes_at_the_second_launch_is_unstable():
    calls = []

    def clears_once(a, b, c, size):
        product = np.empty_like(c)
        right(a, b, product, size)
        calls.append(size)
        c[...] = product if calls.count(size) == 1 else c + product

    assert only(verify.verify(clears_once, (17,))) == "unstable"
    calls.clear()
    assert verify.verify(clears_once, (17,), twice=False).ok


def test_written_inputs_are_noticed():
    def scribbles(a, b, c, size):
        right(a, b, c, size)
        b[0, 0] = 0

    report = verify.verify(scribbles, (16,))
    assert only(report) == "inputs-modified" and "input B" in str(report)


def test_a_row_length_of_the_wrong_matrix_shows_only_on_rectangles():
    def swapped(a, b, c, size):
        m, n, k = size
        flat = np.resize(a.reshape(-1), m * n + k)
        wrong = np.stack([flat[row * n : row * n + k] for row in range(m)])  # row * n where row * k is right
        right(wrong, b, c, size)

    squares = verify.verify(swapped, (15, 16, 33))
    assert squares.ok and "only square sizes" in squares.notes[0]
    assert not verify.verify(swapped, ODD_SHAPES).ok


def test_the_wrong_loop_variable_is_not_hidden_by_the_data():
    def tile_counter(a, b, c, size):
        k = size[2]
        right(a[:, np.arange(k) // 16], b[np.arange(k) // 16], c, size)

    assert only(verify.verify(tile_counter, (16, 33), twice=False)) == "wrong"
    ones = np.ones((32, 32), np.float32)
    c = np.empty_like(ones)
    tile_counter(ones, ones, c, (32, 32, 32))
    assert compare(c, ones, ones)[0] == []  # which is why constant inputs are never used


def test_a_sample_of_blocks_is_checked_where_it_ran():
    a, b = inputs((64, 64, 64))
    whole, some = np.empty((64, 64), np.float32), np.full((64, 64), np.nan, np.float32)
    right(a, b, whole, (64, 64, 64))
    where = np.zeros((64, 64), bool)
    where[16:32, 48:64] = True
    some[where] = whole[where]
    assert compare(some, a, b, where=where)[0] == []
    some[20, 50] = 0
    assert compare(some, a, b, where=where)[0][0].message.endswith("1 of 256 checked elements are wrong")


def test_signed_inputs_are_held_against_the_size_of_what_was_summed():
    random = np.random.default_rng(5)
    a, b = (random.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
    c = np.empty((64, 64), np.float32)
    right(a, b, c, (64, 64, 64))
    assert compare(c, a, b)[0] == []


def test_large_products_are_sampled_and_say_so():
    rows = verify.checked_rows((4096, 4096, 4096))
    assert len(rows) == 64 and rows[0] == 0 and rows[-1] == 4095
    assert len(verify.checked_rows((1024, 1024, 1024))) == 1024
    assert "64 evenly spread rows were checked at 4096" in verify._blind_spots([(4096,) * 3])[2]


def test_a_wrong_shape_is_no_crash():
    a, b = inputs((3, 4, 5))
    assert "shape (4, 3)" in compare(np.zeros((4, 3), np.float32), a, b)[0][0].message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_relative_error_of_what_is_not_finite_is_infinite(value):
    one = np.ones((1, 1))
    assert verify.relative_error(np.full((1, 1), value, np.float32), one, one)[0, 0] == np.inf
