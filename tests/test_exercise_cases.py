"""Mistakes that people report, handed in for Day 16: each is told at the stage that finds it."""

import re
from pathlib import Path

import pytest

from gpudays import checking, cuda_syntax
from gpudays.exercise_report import FAILED
from gpudays.sandbox import Job, Sandbox

CASES = Path(__file__).parent / "cases"
SAFE, CORRECT = "safe in the tracer", "correct"
TOLD = {
    "03_leading_dimension_swapped": (SAFE, "at 35x79x19: out-of-bounds"),
    "05_tile_offset_scaled_twice": (SAFE, "out-of-bounds"),
    "06_missing_first_syncthreads": (SAFE, "shared-race"),
    "08_early_return_before_barrier_and_and_for_or": (SAFE, "out-of-bounds"),
    "11_float4_global_misaligned": (SAFE, "4 past a multiple of 16"),
    "16_block_64x64_invalid_configuration": (SAFE, "the tile is to stay 16"),
    "17_too_many_registers_for_1024_threads": (CORRECT, "never written"),
    "21_accumulates_into_C": (CORRECT, "adds to what C held"),
    "22_wrong_loop_variable_hidden_by_constant_data": (CORRECT, "wrong; first at row 0, column 0"),
    "24_float4_counts_as_one_load": (SAFE, "4 past a multiple of 16"),
    "26_tile32_kernel_launched_16x16": (SAFE, "the tile is to stay 16"),
}
RIGHT = ("00_control_correct_tiled16", "13_transposed_tile_bank_conflicts")


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox() as made:
        yield made


def checked(name: str, sandbox: Sandbox):
    text = re.sub(r"\bmatmul\w*(?=\s*\()", "matmulTiled", (CASES / name / "kernel.cu").read_text("utf-8"))
    return sandbox.check(Job("day16", cuda_syntax.kernels(text).source, checking.given("day16"), False))


@pytest.mark.parametrize("name", TOLD)
def test_each_is_told_where_it_is_found(name, sandbox):
    report = checked(name, sandbox)
    stage = next(stage for stage in report.stages if stage.status == FAILED)
    assert (stage.name, TOLD[name][1] in "\n".join(stage.seen)) == (TOLD[name][0], True), stage
    assert stage.hint


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_one_passes(name, sandbox):
    report = checked(name, sandbox)
    assert report.passed, repr(report)
