"""The compiled engine against the oracle: the same answers bit for bit, the same counters line by line, no findings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_corpus import SAMPLES, Sample, page_source
from test_tracer_findings import CASES, LEGAL, WRONG

from gpudays import compiler
from gpudays.course.steps import DAYS
from gpudays.ptx.engine import execute
from gpudays.ptx.oracle.arguments import prepare
from gpudays.ptx.oracle.interpreter import Run, interpret
from gpudays.ptx.parser import parse


def run_oracle(sample: Sample, args: list) -> Run:
    module = parse(compiler.compile(sample.source, arch=sample.arch).ptx)
    kernel = module.functions["k"]
    return interpret(module, kernel, prepare(kernel, sample.grid, sample.block, args, sample.shared_bytes))


def run_compiled(sample: Sample, args: list):
    ptx = compiler.compile(sample.source, arch=sample.arch).ptx
    return execute(ptx, "k", sample.grid, sample.block, args, sample.shared_bytes)


def arguments(sample: Sample) -> list:
    return sample.arguments(np.random.default_rng(7))


def check_answer(sample: Sample, before: list, after: list) -> None:
    for number, wanted in sample.expected(before).items():
        if sample.tolerance:
            np.testing.assert_allclose(after[number], wanted, rtol=sample.tolerance, atol=sample.tolerance)
        else:
            np.testing.assert_array_equal(after[number], wanted)


@pytest.mark.parametrize("name", SAMPLES)
def test_engines_are_right_and_agree(name):
    sample = SAMPLES[name]
    before, ours, theirs = (arguments(sample) for _ in range(3))
    oracle, compiled = run_oracle(sample, ours), run_compiled(sample, theirs)
    check_answer(sample, before, ours)
    assert oracle.findings == [] and compiled.findings == []
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
    if not sample.same_counts:
        return
    assert {k: v for k, v in compiled.total.items() if v} == {k: v for k, v in oracle.total.items() if v}
    lines = {(line, metric): value for line, metric, value in compiled.rows if value}
    assert lines == {key: value for key, value in oracle.line_counts.items() if value}


# ---- the course's kernels ------------------------------------------------------------------------------------------

ROOT = Path(__file__).parent.parent
COURSE = [(day, step, size) for day in DAYS.values() for step in day.steps for size in [(35, 35, 35), (1, 1, 1)]]
# Day 44's tiles are large, and the oracle slow: one size, of two rounds of k, is enough.
COURSE = [(d, s, (19, 19, 19) if d.name == "day44" else n) for d, s, n in COURSE if d.name != "day44" or n[0] > 1]


def both(ptx: str, kernel: str, grid, block, args: list, shared_bytes: int = 0, **options):
    """The two engines' results, and the two sets of arrays that they left."""
    ours = [np.copy(a) if isinstance(a, np.ndarray) else a for a in args]
    module = parse(ptx)
    function = module.functions[kernel]
    oracle = interpret(module, function, prepare(function, grid, block, ours, shared_bytes), **options)
    return oracle, execute(ptx, kernel, grid, block, args, shared_bytes, **options), ours, args


@pytest.mark.parametrize(("day", "step", "size"), COURSE, ids=[f"{s.kernel} {n[0]}" for _, s, n in COURSE])
def test_the_course_kernels_agree(day, step, size):
    m, n, k = size
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n)))
    args = [a, b, np.full((m, n), np.nan, np.float32), *day.scalars(size)]
    program = compiler.compile(page_source(ROOT / day.page))
    kernel = program.kernel(step.kernel).mangled
    oracle, compiled, ours, theirs = both(program.ptx, kernel, step.grid(size), step.block, args, step.shared_bytes)
    np.testing.assert_array_equal(ours[2], theirs[2])
    np.testing.assert_allclose(ours[2], a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4)
    assert oracle.findings == compiled.findings == []
    assert {key: v for key, v in compiled.total.items() if v} == {key: v for key, v in oracle.total.items() if v}


# ---- what they find ------------------------------------------------------------------------------------------------


def places(result) -> set[tuple]:
    """What was found where: a race's two lines in either order."""
    return {(f.kind, *sorted((f.line, f.other_line or 0))) for f in result.findings}


@pytest.mark.parametrize("number", ["00", "03", "05", "06", "08", "11", "13", "21", "22", "26"])
@pytest.mark.parametrize("size", [(32, 32, 32), (35, 19, 79)], ids=str)
def test_cases_are_found_by_both(number, size):
    m, n, k = size
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n)))
    args = [a, b, np.zeros((m, n), np.float32), *map(np.int32, size)]
    ptx = compiler.compile((next(CASES.glob(f"{number}_*")) / "kernel.cu").read_text()).ptx
    oracle, compiled, _, _ = both(ptx, "matmul", (-(-n // 16), -(-m // 16)), (16, 16), args)
    # Global races between accesses that stray out of their buffers depend on where the buffers lie.
    assert _but_global_races(compiled) == _but_global_races(oracle)


def _but_global_races(result) -> set[tuple]:
    return {place for place in places(result) if place[0] != "global-race"}


UNORDERED = LEGAL.replace("__syncwarp();", "")
LAUNCHES = [
    (LEGAL, "two_barriers", 128, lambda: [np.zeros(128, np.int32)]),
    (LEGAL, "warp_reduce", 128, lambda: [np.ones(128, np.float32), np.zeros(4, np.float32)]),
    (UNORDERED, "warp_reduce", 128, lambda: [np.ones(128, np.float32), np.zeros(4, np.float32)]),
    (LEGAL, "named", 192, lambda: [np.zeros(64, np.int32)]),
    (LEGAL, "flag", 64, lambda: [np.arange(64, dtype=np.int32), np.zeros(64, np.int32)]),
    (WRONG, "endless", 32, lambda: [np.zeros(1, np.int32)]),
    (WRONG, "divergent", 64, lambda: [np.zeros(64, np.int32)]),
    (WRONG, "hang", 64, lambda: [np.zeros(64, np.int32)]),
    (WRONG, "negative", 32, lambda: [np.arange(32, dtype=np.float32), np.zeros(32, np.float32)]),
    (WRONG, "local_array", 32, lambda: [np.zeros(32, np.float32), np.int32(1000)]),
    (WRONG, "wild", 32, lambda: [np.zeros(4, np.float32), np.int64(1 << 40)]),
    (WRONG, "same_cell", 32, lambda: [np.zeros(32, np.int32)]),
]  # fmt: skip


@pytest.mark.parametrize(("source", "kernel", "threads", "make"), LAUNCHES, ids=[str(x[1]) for x in LAUNCHES])
def test_small_mistakes_are_found_by_both(source, kernel, threads, make):
    oracle, compiled, _, _ = both(compiler.compile(source).ptx, kernel, 1, threads, make(), budget=20_000)
    assert places(oracle) == places(compiled)
