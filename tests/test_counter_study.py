"""The counter study: the tracer's side of the shipped table is replayed, and every difference has its cause."""

from __future__ import annotations

import numpy as np
import pytest

from gpudays import counter_study
from gpudays.ptx import model

SHIPPED = counter_study.shipped()
OURS = {theirs: ours for ours, theirs in counter_study.ON_CARD.items()}
NAMES = list(dict.fromkeys(SHIPPED["case"]))


def test_the_table_is_of_these_kernels_and_of_at_least_twenty():
    assert set(NAMES) == {case.name for case in counter_study.cases()}
    assert SHIPPED["kernel"].nunique() >= 20
    assert SHIPPED[["card", "traced"]].notna().all().all()


@pytest.mark.parametrize("case", counter_study.cases(), ids=lambda c: c.name)
def test_the_tracer_counts_what_it_counted_beside_the_card(case):
    rows = SHIPPED[SHIPPED["case"].eq(case.name)]
    counted = counter_study.trace(case)
    now = [counted[OURS.get(row.metric, row.metric)] for row in rows.itertuples()]
    assert np.array_equal(now, rows["traced"])


def test_global_and_local_counters_are_equal_on_the_card_or_explained():
    rows = SHIPPED[SHIPPED["metric"].str.contains("requests|t_sectors")]
    by_instruction = rows[~rows["metric"].isin([model.GLOBAL_LD_SECTORS, model.GLOBAL_ST_SECTORS])]
    differing = by_instruction[by_instruction["card"].ne(by_instruction["traced"])]
    assert all(counter_study.explanation(row.case, row.metric) for row in differing.itertuples())
    assert len(differing) <= 0.1 * len(by_instruction)


def test_every_difference_is_explained():
    for row in SHIPPED[SHIPPED["card"].ne(SHIPPED["traced"])].itertuples():
        assert counter_study.explanation(row.case, row.metric), (row.case, row.metric, row.card, row.traced)


def test_sampled_counters_stay_near_the_exact_ones():
    pairs = SHIPPED[SHIPPED["metric"].isin([model.GLOBAL_LD_SECTORS, model.GLOBAL_ST_SECTORS])]
    pairs = pairs[[counter_study.explanation(c, m) == "" for c, m in zip(pairs["case"], pairs["metric"], strict=True)]]
    assert np.allclose(pairs["card"], pairs["traced"], rtol=0.005)
