"""The compiled engine's costs of any pattern of addresses, against the rules as accounting.py states them."""

from __future__ import annotations

import numpy as np
import pytest

import gpudays
from gpudays.ptx import accounting, model

TYPES = {"unsigned char": 1, "unsigned short": 2, "float": 4, "double": 8, "float4": 16}
DTYPES = {1: np.uint8, 2: np.uint16, 4: np.float32, 8: np.float64, 16: np.float32}
CELLS = 256

ROUNDS = 40


def patterns() -> np.ndarray:
    """int32[rounds, 32] of places: random, in rows, in strides, broadcasts, halves; −1 where a lane stays out."""
    rng = np.random.default_rng(5)
    lane = np.arange(32)
    rows = [lane, lane + 1, 2 * lane, lane % 16, lane // 16 * 32 + lane % 16, lane // 2, lane * 0 + 9, 255 - lane,
            lane * 7, lane % 4 * 33, lane // 8, (lane * 8 + lane // 8) % CELLS]  # fmt: skip
    rows += [rng.integers(0, CELLS, 32) for _ in range(ROUNDS - len(rows) - 8)]
    for step in range(8):
        row = rng.integers(0, 40, 32) if step % 2 else lane.copy()
        row[rng.random(32) < (step + 1) / 10] = -1
        rows.append(row)
    return np.array(rows, np.int32)


def expected(index: np.ndarray, width: int) -> tuple[int, int, int]:
    """(sectors, wavefronts, conflicts) of the loads, summed."""
    active = index >= 0
    addresses = np.where(active, index, 0).astype(np.int64) * width
    sectors = accounting.sectors(addresses, active).sum()
    turns = accounting.shared_wavefronts(addresses, width, active, "ld").sum()
    return int(sectors), int(turns), int(accounting.shared_conflicts(addresses, width, active, "ld").sum())


SOURCE = r"""
extern "C" __global__ void k(const T* a, const int* index, T* o, int rounds) {
    __shared__ T s[256];
    for (int i = threadIdx.x; i < 256; i += 32) s[i] = a[i];
    __syncthreads();
    for (int r = 0; r < rounds; ++r) {
        int i = index[32 * r + threadIdx.x];
        if (i >= 0) {
            asm volatile("// keep the guard");
            o[32 * r + threadIdx.x] = a[i];
            o[32 * (rounds + r) + threadIdx.x] = s[i];
        }
    }
}
"""


@pytest.mark.parametrize("kind", TYPES)
def test_any_pattern_costs_what_the_rules_say(kind):
    width = TYPES[kind]
    source = SOURCE.replace("const T*", f"const {kind}*").replace("T*", f"{kind}*").replace("T s[", f"{kind} s[")
    index = patterns()
    per = max(1, width // np.dtype(DTYPES[width]).itemsize)
    a = np.random.default_rng(1).integers(0, 200, CELLS * per).astype(DTYPES[width])
    o = np.zeros(2 * index.size * per, DTYPES[width])
    result = gpudays.trace(source, "k", 1, 32, [a, index, o, np.int32(len(index))])
    assert result.findings == []
    lines = source.splitlines()
    table = result.counters.set_index(["line", "metric"])["value"]
    at_a, at_s = (max(n for n, text in enumerate(lines, 1) if what in text) for what in ("= a[i]", "= s[i]"))
    sectors, turns, conflicts = expected(index, width)
    assert table[at_a, model.GLOBAL_LD_SECTORS] == sectors
    assert table[at_s, model.SHARED_LD_WAVEFRONTS] == turns
    assert table.get((at_s, model.SHARED_LD_CONFLICTS), 0) == conflicts
    values = o.reshape(2, *index.shape, per)
    wanted = a.reshape(CELLS, per)[np.maximum(index, 0)] * (index >= 0)[..., None]
    assert (values == wanted).all()
