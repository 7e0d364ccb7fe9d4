"""What the prose promises: the commands, targets and refusals that pages and README name are real."""

import re
from pathlib import Path

import pytest
import typer.main

from gpudays import cli, metrics, profiler

ROOT = Path(__file__).parents[1]
PROSE = [*sorted((ROOT / "book").rglob("*.md")), *(ROOT / f"{n}.md" for n in ("README", "CONTRIBUTING", "CHANGELOG"))]
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def code_of(file):
    """The page's code: fenced blocks and code spans."""
    text = file.read_text("utf-8")
    return re.findall(r"```.*?```", text, re.DOTALL) + re.findall(r"`[^`\n]+`", text)


@pytest.mark.parametrize("file", PROSE, ids=lambda file: file.stem)
def test_commands_and_targets_exist(file):
    commands = set(typer.main.get_command(cli.app).commands)
    for code in code_of(file):
        for named in re.findall(r"(?:-m |\bbin/|`|^)gpudays ([a-z][a-z-]*)", code, re.MULTILINE):
            assert named in commands, f"{file.name} names `gpudays {named}`; there are {sorted(commands)}"
        for named in re.findall(r"(?:^|`|&& )make ([a-z]+)", code, re.MULTILINE):
            assert named in TARGETS, f"{file.name} names `make {named}`; there are {sorted(TARGETS)}"


def test_every_refusal_that_is_recognised_has_a_remedy_on_its_page():
    table = (ROOT / "book/setup/counters.md").read_text("utf-8").split("## Every refusal")[1].split("\n## ")[0]
    firsts = [row.split("|")[1] for row in table.splitlines() if row.startswith("| ")]
    for pattern, code, _ in profiler._REFUSALS:
        assert any(re.search(pattern, first, re.IGNORECASE) for first in firsts), f"no row is about {code}"


def test_the_makefile_tells_its_targets():
    told = re.findall(r"^#   make ([a-z]+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(told) <= TARGETS
    assert {"book", "test", "lab", "pages", "stamp"} <= set(told)


def test_the_glossary_names_every_counter_of_the_card_and_no_other():
    text = (ROOT / "book/glossary.md").read_text("utf-8")
    named = set(re.findall(r"\b[a-z0-9]+__[a-z0-9_.]+", text)) | {
        first[: -len("ld.sum")] + ending
        for first, ending in re.findall(r"`([a-z0-9_]+_op_ld\.sum)`[^`]*`…_op_(st\.sum)`", text)
    }
    assert named <= set(metrics.METRICS)
    assert set(metrics.COUNTED_BY_HARDWARE) - {metrics.GPU_TIME} <= named
    assert {metrics.SECTORS_PER_REQUEST, *(m for m in metrics.COUNTED_BY_ADDRESS if "_mem_global_op_ld" in m)} <= named
