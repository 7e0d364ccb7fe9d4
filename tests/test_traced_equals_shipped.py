"""The tracer's counts of global memory against the shipped exports of a real card: equal, to the last unit."""

from pathlib import Path

import pytest

from gpudays import kernels_in_pages, profiles
from gpudays.course.steps import DAYS, square
from gpudays.ptx import model
from gpudays.runs import Runs

ROOT = Path(__file__).parents[1]
GLOBAL = (
    model.GLOBAL_LD_REQUESTS, model.GLOBAL_LD_SECTORS, model.GLOBAL_ST_REQUESTS, model.GLOBAL_ST_SECTORS,
    model.ATOM_REQUESTS, model.ATOM_SECTORS, model.RED_REQUESTS, model.RED_SECTORS,
)  # fmt: skip
LARGEST = 1024  # what the tracer runs whole in a test's time

EXPORTS = [
    pytest.param(day, path, id=path.name.removesuffix(".details.csv"))
    for day in DAYS.values()
    for path in sorted((ROOT / "content" / "profiles" / day.profiles).glob("*.details.csv"))
    if int(profiles.size_in_name(path)) <= LARGEST
]


@pytest.mark.skipif(not EXPORTS, reason="nothing is shipped yet: gpudays profile on a GPU host makes the exports")
@pytest.mark.parametrize(("day", "path"), EXPORTS or [(None, None)])
def test_global_requests_and_sectors_are_those_of_the_card(day, path):
    n = int(profiles.size_in_name(path))
    card = profiles.shipped(day.profiles).card
    exported = profiles.read_details(path, n, card).set_index(["kernel", "metric"])["value"]
    runs = Runs(kernels_in_pages.kernel_text(ROOT / day.program), day)
    for step in day.steps:
        traced = runs.traced(step.kernel, square(n)).total
        counted = {metric: exported[step.kernel, metric] for metric in GLOBAL}
        assert {metric: traced.get(metric, 0) for metric in GLOBAL} == counted, step.kernel


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
        for metric in GLOBAL:
            assert action[metric].value() == exported[action.name(), metric]
