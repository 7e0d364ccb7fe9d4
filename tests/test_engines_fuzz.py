"""Random kernels — nested branches, loops of any length, early exits, barriers, shuffles — through both engines."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpudays import compiler
from gpudays.ptx.engine import execute
from gpudays.ptx.oracle.arguments import prepare
from gpudays.ptx.oracle.interpreter import interpret
from gpudays.ptx.parser import parse

VARIABLES = "abcd"
OPERATORS = ["+", "-", "*", "&", "|", "^"]


class Writer:
    """Writes a random kernel body. Every loop ends, every index stays inside, all threads reach every barrier."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.loops = 0

    def expression(self, depth: int = 2) -> str:
        r = self.random
        if depth == 0 or r.random() < 0.2:
            return r.choice([*VARIABLES, "t", str(r.randint(-9, 99)), f"x[{r.choice(VARIABLES)} & 63]"])
        left, right = self.expression(depth - 1), self.expression(depth - 1)
        how = r.random()
        if how < 0.7:
            return f"({left} {r.choice(OPERATORS)} {right})"
        if how < 0.8:
            return f"({left} {r.choice(['<<', '>>'])} ({right} & 31))"
        if how < 0.9:
            return f"({left} {r.choice(['/', '%'])} (({right} & 15) + 1))"
        return f"({left} < {right} ? {left} : {right})"

    def condition(self) -> str:
        r = self.random
        if r.random() < 0.5:
            return f"({self.expression(1)} & {r.choice([1, 2, 3, 4])}) {r.choice(['==', '!='])} 0"
        return f"{self.expression(1)} {r.choice(['<', '>', '<=', '=='])} {self.expression(1)}"

    def statements(self, depth: int, in_loop: bool = False) -> list[str]:
        return [line for _ in range(self.random.randint(1, 3)) for line in self.statement(depth, in_loop)]

    def statement(self, depth: int, in_loop: bool) -> list[str]:
        r = self.random
        how = r.random()
        if depth and how < 0.35:
            out = [f"if ({self.condition()}) {{", *self.statements(depth - 1, in_loop), "}"]
            return out + (["else {", *self.statements(depth - 1, in_loop), "}"] if r.random() < 0.5 else [])
        if depth and how < 0.5:
            self.loops += 1
            i = f"i{self.loops}"
            bound = r.choice([f"({r.choice(VARIABLES)} & 7)", "(t & 3) + 1", "5"])
            unroll = r.choice(["#pragma unroll 1", ""])
            head = [unroll] if unroll else []
            return [*head, f"for (int {i} = 0; {i} < {bound}; ++{i}) {{", *self.statements(depth - 1, True), "}"]
        if in_loop and how < 0.6:
            return [f"if ({self.condition()}) {r.choice(['break', 'continue'])};"]
        if how < 0.68:
            return [f"y[(64 * blockIdx.x + t) * 4 + {r.randint(0, 3)}] = {self.expression()};"]
        return [f"{r.choice(VARIABLES)} = {self.expression()};"]

    def together(self) -> list[str]:
        """What all threads must do together."""
        v, w = self.random.choice(VARIABLES), self.random.choice(VARIABLES)
        exchange = f"s[t] = {v}; __syncthreads(); {w} += s[(t * 5 + 3) & 63]; __syncthreads();"
        shuffle = f"{w} ^= __shfl_xor_sync(~0u, {v}, {self.random.choice([1, 2, 8, 16])});"
        vote = f"{w} += __popc(__ballot_sync(~0u, {v} & 1));"
        return [self.random.choice([exchange, shuffle, vote])]

    def kernel(self) -> str:
        body = ["int t = threadIdx.x, a = t, b = x[t], c = 7 - t, d = blockIdx.x + 1;", "__shared__ int s[64];"]
        for _ in range(3):
            body += [*self.statements(3), *self.together()]
        if self.random.random() < 0.5:
            body.append(f"if ({self.condition()}) return;")
        body += self.statements(2)
        body.append("y[(64 * blockIdx.x + t) * 4] ^= a ^ b ^ c ^ d;")
        return 'extern "C" __global__ void k(const int* x, int* y) {\n' + "\n".join(body) + "\n}\n"


def both(seed: int):
    source = Writer(seed).kernel()
    ptx = compiler.compile(source).ptx
    rng = np.random.default_rng(seed)
    x, ours, theirs = rng.integers(-99, 99, 64).astype(np.int32), np.zeros(512, np.int32), np.zeros(512, np.int32)
    module = parse(ptx)
    kernel = module.functions["k"]
    oracle = interpret(module, kernel, prepare(kernel, 2, 64, [x, ours]))
    return source, oracle, execute(ptx, "k", 2, 64, [x, theirs]), ours, theirs


@pytest.mark.parametrize("seed", range(12))
def test_random_kernels_agree(seed):
    source, oracle, compiled, ours, theirs = both(seed)
    np.testing.assert_array_equal(ours, theirs, err_msg=source)
    assert oracle.findings == compiled.findings == [], source
    assert {k: v for k, v in compiled.total.items() if v} == {k: v for k, v in oracle.total.items() if v}, source
