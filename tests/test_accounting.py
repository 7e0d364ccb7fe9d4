"""What addresses cost: by hand for patterns that everybody knows, and against a slow count for any."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudays.ptx import accounting

LANE = np.arange(32)
ALL = np.ones((1, 32), bool)


def sectors(addresses, active=ALL) -> int:
    return int(accounting.sectors(np.asarray(addresses)[None], active)[0])


def wavefronts(addresses, width=4, active=ALL, op="ld") -> int:
    return int(accounting.shared_wavefronts(np.asarray(addresses)[None], width, active, op)[0])


def conflicts(addresses, width=4, active=ALL, op="ld") -> int:
    return int(accounting.shared_conflicts(np.asarray(addresses)[None], width, active, op)[0])


@pytest.mark.parametrize(("addresses", "wanted"), [
    (4 * LANE, 4), (4 * LANE + 4, 5), (8 * LANE, 8), (128 * LANE, 32), (0 * LANE, 1), (16 * LANE, 16), (LANE, 1),
    (4 * LANE[::-1], 4), (4 * (LANE % 16) + 2048 * (LANE // 16), 4), (2048 * (LANE % 16) + 4 * (LANE // 16), 16),
])  # fmt: skip
def test_sectors_of_well_known_patterns(addresses, wanted):
    assert sectors(addresses) == wanted


def test_sectors_are_those_of_active_lanes_only():
    some = (LANE < 8)[None]
    assert sectors(4 * LANE, some) == 1
    assert sectors(4 * LANE, np.zeros((1, 32), bool)) == 0


def test_several_requests_at_once():
    addresses = np.stack([4 * LANE, 128 * LANE])
    np.testing.assert_array_equal(accounting.sectors(addresses, np.ones((2, 32), bool)), [4, 32])


@pytest.mark.parametrize(("addresses", "width", "op", "turns", "extra"), [
    (4 * LANE, 4, "ld", 1, 0),  # neighbouring words
    (0 * LANE, 4, "ld", 1, 0),  # a broadcast
    (4 * (LANE // 2), 4, "ld", 1, 0),  # shared in pairs
    (8 * LANE, 4, "ld", 2, 1),  # every other word
    (128 * LANE, 4, "ld", 32, 31),  # one bank
    (132 * LANE, 4, "ld", 1, 0),  # padded by a word
    (LANE, 1, "ld", 1, 0),  # bytes of eight words
    (128 * LANE, 4, "st", 32, 31),
    (8 * LANE, 8, "ld", 2, 0),  # 256 bytes: two phases, no conflict
    (16 * LANE, 16, "ld", 4, 0),  # 512 bytes: four phases
    (16 * (LANE // 2), 16, "ld", 2, 0),  # lanes agree in pairs: phases are packed
    (16 * (LANE // 2), 16, "st", 4, 0),  # … loads only
    (16 * (LANE % 2 + LANE // 4 * 2), 16, "ld", 2, 0),  # lane and lane^2 agree
    (0 * LANE, 16, "ld", 2, 0),
    (64 * LANE, 8, "ld", 16, 14),
])  # fmt: skip
def test_wavefronts_of_well_known_patterns(addresses, width, op, turns, extra):
    assert (wavefronts(addresses, width, op=op), conflicts(addresses, width, op=op)) == (turns, extra)


def test_interleaved_local_memory_is_coalesced():
    """The same word of all lanes fills four sectors, whatever its offset; 16 bytes a lane fill sixteen."""
    for width, wanted in ((4, 4), (8, 8), (16, 16), (1, 4)):
        addresses, active = accounting.interleaved(np.full((1, 32), 48), width, ALL)
        assert int(accounting.sectors(addresses, active)[0]) == wanted


# ---- against a slow count ------------------------------------------------------------------------------------------


def slow_wavefronts(addresses, width, active, op) -> int:
    """Phase by phase, bank by bank, in dictionaries."""
    lanes = [i for i in range(32) if active[i]]
    phases = {8: 2, 16: 4}.get(width, 1)
    pairs = any(all(addresses[i] == addresses[i ^ d] for i in lanes if i ^ d in lanes) for d in (1, 2))
    if phases > 1 and op == "ld" and pairs:
        phases //= 2
    turns = 0
    for phase in range(phases):
        wanted = defaultdict(set)
        for i in lanes:
            if i // (32 // phases) == phase:
                for byte in range(addresses[i], addresses[i] + width):
                    wanted[byte // 4 % 32].add(byte // 4)
        turns += max(map(len, wanted.values()), default=0)
    return turns


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_any_pattern(data):
    width = data.draw(st.sampled_from([1, 2, 4, 8, 16]))
    spread = data.draw(st.sampled_from([2, 8, 40, 400]))
    addresses = [width * i for i in data.draw(st.lists(st.integers(0, spread), min_size=32, max_size=32))]
    if data.draw(st.booleans()):
        step = data.draw(st.sampled_from([1, 2]))
        addresses = [addresses[i & ~step] for i in range(32)]
    active = data.draw(st.lists(st.booleans(), min_size=32, max_size=32))
    op = data.draw(st.sampled_from(["ld", "st"]))
    mask = np.array([active])
    assert wavefronts(addresses, width, mask, op) == slow_wavefronts(addresses, width, active, op)
    assert sectors(addresses, mask) == len({a // 32 for a, on in zip(addresses, active, strict=True) if on})
