"""The compiled engine against the oracle: the same answers bit for bit, the same counters line by line, no findings."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_corpus import SAMPLES, Sample

from gpudays import compiler
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


@pytest.mark.parametrize("run", [run_oracle, run_compiled])
@pytest.mark.parametrize("name", SAMPLES)
def test_right_answer_and_no_finding(name, run):
    sample = SAMPLES[name]
    before, args = arguments(sample), arguments(sample)
    result = run(sample, args)
    check_answer(sample, before, args)
    assert result.findings == []


@pytest.mark.parametrize("name", SAMPLES)
def test_engines_agree(name):
    sample = SAMPLES[name]
    ours, theirs = arguments(sample), arguments(sample)
    oracle, compiled = run_oracle(sample, ours), run_compiled(sample, theirs)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
    if not sample.same_counts:
        return
    assert {k: v for k, v in compiled.total.items() if v} == {k: v for k, v in oracle.total.items() if v}
    lines = {(line, metric): value for line, metric, value in compiled.rows if value}
    assert lines == {key: value for key, value in oracle.line_counts.items() if value}
