"""The tracer's counts of global memory against the shipped exports of a real card: equal, to the last unit.

Requests, and sectors counted by instruction, are exact on the card. Its unit counters of sectors may be sampled.
"""

from pathlib import Path

import pytest

from gpudays import kernels_in_pages, metrics, profiles
from gpudays.course.steps import DAYS, square
from gpudays.course.suite import SUITE
from gpudays.ptx import model
from gpudays.runs import Runs

ROOT = Path(__file__).parents[1]
REQUESTS = (model.GLOBAL_LD_REQUESTS, model.GLOBAL_ST_REQUESTS, model.ATOM_REQUESTS, model.RED_REQUESTS)
SECTORS = {
    model.GLOBAL_LD_SECTORS: metrics.by_instruction("global", "ld"),
    model.GLOBAL_ST_SECTORS: metrics.by_instruction("global", "st"),
}
WANDERS = 0.005  # the unit counters of sectors, which some cards sample: seen up to 0.33 % off, see metrics.py
LARGEST = 1024  # what the tracer runs whole in a test's time

LARGEST_OF_SUITE = 256  # its five kernels at 1024 would be four seconds each

EXPORTS = [
    pytest.param(day, path, id=path.name.removesuffix(".details.csv"))
    for day in (*DAYS.values(), SUITE)
    for path in sorted((ROOT / "content" / "profiles" / day.profiles).glob("*.details.csv"))
    if int(profiles.size_in_name(path)) <= (LARGEST_OF_SUITE if day is SUITE else LARGEST)
]


@pytest.mark.skipif(not EXPORTS, reason="nothing is shipped yet: gpudays profile on a GPU host makes the exports")
@pytest.mark.parametrize(("day", "path"), EXPORTS or [(None, None)])
def test_global_requests_and_sectors_are_those_of_the_card(day, path):
    n = int(profiles.size_in_name(path))
    shipped = profiles.shipped(day.profiles)
    exported = profiles.read_details(path, n, shipped.card).set_index(["kernel", "metric"])["value"]
    arch = shipped.machine["arch"] if day.launched else "sm_75"  # tiles that depend on the card: the card's
    runs = Runs(kernels_in_pages.kernel_text(ROOT / day.program), day, arch)
    for step in day.steps:
        traced = runs.traced(step.kernel, square(n)).total
        for metric in REQUESTS:
            assert exported[step.kernel, metric] == traced.get(metric, 0), (step.kernel, metric)
        for unit, exact in SECTORS.items():
            assert exported[step.kernel, unit] == pytest.approx(traced[unit], rel=WANDERS), (step.kernel, unit)
            by_instruction = exported.get((step.kernel, exact), 0)  # which leaves out what cp.async copies
            if by_instruction:
                assert by_instruction == traced[unit], (step.kernel, exact)


@pytest.mark.parametrize(("day", "path"), EXPORTS or [(None, None)])
def test_exports_hold_what_their_reports_hold(day, path):
    if path is None:
        pytest.skip("nothing is shipped yet")
    ncu_report = pytest.importorskip("ncu_report", reason="the optional package ncu-report reads the reports")
    report = path.with_name(path.name.replace(".details.csv", ".ncu-rep"))
    actions = ncu_report.load_report(str(report)).range_by_idx(0)
    n = profiles.size_in_name(path)
    exported = profiles.read_details(path, n, "any").set_index(["kernel", "metric"])["value"]
    for number in range(actions.num_actions()):
        action = actions.action_by_idx(number)
        for metric in (*REQUESTS, *SECTORS):
            assert action[metric].value() == exported[action.name(), metric]
