"""Day 16's page: its experiments change what they say, its prose holds for the shipped card, its exercise works."""

import re
from pathlib import Path

import nbformat
import pytest

from gpudays import exercise, kernels_in_pages, metrics, profiles, tile_figures
from gpudays.course import evidence as ev
from gpudays.course.day16 import KERNELS, TILES
from gpudays.course.evidence import Evidence
from gpudays.course.models import matrix_bytes, size_past_l2
from gpudays.course.steps import DAY16
from gpudays.ptx import model

ROOT = Path(__file__).parents[1]
NOTEBOOK = nbformat.read((ROOT / DAY16.page).with_suffix(".ipynb"), as_version=4)
CODE = [cell for cell in NOTEBOOK.cells if cell.cell_type == "code"]
PROSE = "\n".join(cell.source for cell in NOTEBOOK.cells if cell.cell_type == "markdown")
SOURCE = "\n" + kernels_in_pages.kernel_text(ROOT / DAY16.program)


def cell(containing: str):
    [found] = [c for c in CODE if containing in c.source]
    return found


def said(found) -> str:
    """What a cell printed and the text of what it returned."""
    return "".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in found.outputs)


def run(containing: str, **names: object) -> dict[str, object]:
    """The assignments of one cell, executed with some names given."""
    lines = [line for line in cell(containing).source.split("\n") if re.match(r"[a-z_, ]+ = ", line)]
    found = {"source": SOURCE, "re": re, **names}
    for line in lines:
        if not re.search(r"lab\.|verify\.|np\.", line):
            exec(line, found)
    return found


# ---- experiments -----------------------------------------------------------------------------------------------------


def test_the_barriers_that_are_removed_are_the_two_of_the_kernel():
    names = run("no_first = ")
    assert SOURCE.count("__syncthreads()") == 2
    assert names["no_first"].count("__syncthreads()") == 1
    assert names["no_first"].count("\n") == SOURCE.count("\n")  # so that line numbers stay
    names = run("no_second = ", second=names["second"])
    assert names["no_second"].count("__syncthreads()") == 1 and names["no_second"] != names["source"]
    assert "before anyone overwrites" not in names["no_second"]


def test_the_race_is_reported_and_one_order_still_prints_the_right_answer():
    assert "no barrier between them" in said(cell("no_first = "))
    shown = said(cell("orders.orders"))
    assert re.search(r"in step.*4,096 4,096 right", shown) and re.search(r"after the other.*wrong", shown)
    second = said(cell("no_second = "))
    assert "K = 16: 0 findings, C is right" in second and re.search(r"K = 64: [1-9]\d* findings, C is wrong", second)


def test_skipping_in_place_of_zeros_changes_both_tiles_and_is_caught():
    skipping = run("skipping = ")["skipping"]
    changed = [a for a, b in zip(SOURCE.split("\n"), skipping.split("\n"), strict=True) if a != b]
    assert [line.split("[")[0].strip() for line in changed] == ["tileA", "tileB"]
    assert "which no thread of the block has written" in said(cell("skipping = "))
    assert "checked elements are wrong" in said(cell("skipping = "))


def test_the_transposed_tile_is_written_and_read_transposed():
    turned = run("turned = ")["turned"]
    assert turned.count("tileA[threadIdx.x][threadIdx.y] =") == 1 and turned.count("tileA[i][threadIdx.y]") == 1


def test_the_early_return_is_caught_at_the_barrier():
    names = run("early = ")
    assert names["early"].count("return;") == SOURCE.count("return;") + 1
    assert "waits at a barrier" in said(cell("early = "))


# ---- counts and figures ----------------------------------------------------------------------------------------------


def test_paper_and_tracer_agree_on_the_page():
    assert said(cell("def on_paper")) == "True"
    assert said(cell("def sectors")) == "naive: 2 of A, 2 of B\ntiled: 4 of A, 4 of B\n"
    assert "512 without tiles, 32 with them, 16.0 times fewer" in said(cell("TILE = 16\n"))


def test_all_sizes_of_the_day_are_verified():
    assert (
        "(35, 79, 19), (1, 1, 1), (17, 1, 33)" in cell("lab.verify").source
        and "sizes = [256, 512]" in cell("lab.verify").source
    )
    assert said(cell("lab.verify")).count(" right") == 10
    assert "lab.size_past_l2" in cell("all_sizes = ").source


def test_figures_carry_the_alt_text_of_the_room():
    drawn = [c.metadata["mystnb"]["image"]["alt"] for c in CODE if "mystnb" in c.metadata]
    wanted = ["staging", "banks", "banks", "tile_sweep", "what_fell"]
    assert drawn == [tile_figures.ALT[name] for name in wanted]


def test_every_row_of_the_closing_table_has_a_source():
    html = next(o["data"]["text/html"] for o in cell("tile_tables.fell").outputs if "data" in o)
    rows = html.split("<tbody>")[1].split("<tr>")[1:]
    assert len(rows) == 7
    assert all(re.search("traced|live|shipped|not here", row) for row in rows)


# ---- prose against the shipped card ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def card() -> Evidence:
    figures = profiles.shipped(DAY16.profiles)
    if not figures:
        pytest.skip("nothing is shipped yet")
    return Evidence(figures.table, figures.card, ("shipped",), figures.machine["l2_bytes"])


def test_what_is_said_of_tiles_holds_on_the_shipped_card(card):
    assert "TILE = 8 gains nothing over the naive kernel at 512 and" in PROSE
    past = size_past_l2(card.l2_bytes)
    times = {n: card.values(tuple(TILES.values()), n, metrics.TIME) for n in (256, 512, past)}
    fastest = {n: list(TILES)[values.index(min(values))] for n, values in times.items()}
    assert fastest == {256: 16, 512: 32, past: 32}
    for n in (512, past):
        assert card.get(KERNELS[0], n, metrics.TIME).value < 1.03 * times[n][0]
    assert (256 // 32) ** 2 == 64 and profiles.shipped(DAY16.profiles).machine["sms"] == 132


@pytest.mark.parametrize("n", [256, 512, 4096])
def test_what_is_said_of_the_caches_holds_on_the_shipped_card(card, n):
    naive, tiled = card.values(KERNELS, n, metrics.L1_HIT_RATE)
    assert naive == pytest.approx(87.5, abs=1.5), "seven of eight"
    assert tiled < 5, "next to none"
    sectors = card.values(KERNELS, n, ev.SECTORS)
    past_l1 = [s * (1 - hit / 100) for s, hit in zip(sectors, (naive, tiled), strict=True)]
    assert past_l1[0] / past_l1[1] == pytest.approx(1, abs=0.1), "what leaves the multiprocessor is the same"
    read = [value / (matrix_bytes(n) * 2 / 3) for value in card.values(KERNELS, n, metrics.DRAM_READ)]
    if matrix_bytes(n) <= card.l2_bytes:
        assert read == pytest.approx([1, 1], abs=0.05), "A and B once"
    else:
        assert min(read) > 10 and read[1] > read[0], "again and again, the tiled one more often"
        rates = [
            b / ns
            for b, ns in zip(*(card.values(KERNELS, n, m) for m in (metrics.DRAM_READ, metrics.GPU_TIME)), strict=True)
        ]
        assert max(rates) < 4800 / 3, "far from what the memory can deliver"


@pytest.mark.parametrize("n", [256, 512, 4096])
def test_what_is_said_of_instructions_and_time_holds_on_the_shipped_card(card, n):
    pipe = (ev.REQUESTS, model.SHARED_LD_REQUESTS, model.SHARED_ST_REQUESTS)
    issued = [sum(card.get(kernel, n, metric).value for metric in pipe) for kernel in KERNELS]
    assert 1 < issued[0] / issued[1] < 2, "only a little fewer"
    reads = card.get(KERNELS[1], n, model.SHARED_LD_REQUESTS).value
    assert reads == 2 * n**3 // 32 * 5 / 8, "four neighbours of a row of tileA at once: 1 + 1/4 reads in place of 2"
    assert 1.2 < card.gains(KERNELS, n)[0] < 1.8, "about one and a half times the speed"


def test_what_is_said_of_waiting_holds_on_the_shipped_card(card):
    waits = {
        name: card.values(KERNELS, 512, metrics.STALLS[name]) for name in ("long_scoreboard", "mio_throttle", "barrier")
    }
    assert waits["long_scoreboard"][0] > 2 * waits["long_scoreboard"][1]
    assert waits["mio_throttle"][1] > 10 * waits["mio_throttle"][0] and waits["barrier"][1] > 1 > waits["barrier"][0]


def test_the_published_figures_that_the_prose_quotes():
    t4 = Evidence(profiles.published(DAY16.profiles).table, "Tesla T4", ("published",))
    assert t4.values(KERNELS, 256, metrics.TIME) == (0.165, 0.108)
    assert t4.values(KERNELS, 256, metrics.GFLOPS) == (203.5, 312.0)
    assert "took 0.108 ms instead of 0.165" in PROSE and "on that T4 1.53 times the speed" in PROSE
    assert f"{t4.gains(KERNELS, 256)[0]:.2f}" == "1.53"
    assert matrix_bytes(256) == 768 * 1024 and "768 KiB" in PROSE


# ---- exercise --------------------------------------------------------------------------------------------------------


def test_the_starter_holds_the_naive_kernel_and_is_not_yet_written():
    found: dict[str, str] = {}
    exec(cell("student = ").source, found)
    naive = SOURCE[SOURCE.index('extern "C" __global__ void matmulNaive') : SOURCE.index("// A block of TILE")]
    assert naive.strip() in found["student"] and "__shared__" not in found["student"]
    assert "not yet written" in said(cell("lab.check"))


def test_the_folded_solution_passes_the_check():
    folded = PROSE[PROSE.index("<summary>Solution</summary>") :]
    solution = folded.split("```cuda\n")[1].split("```")[0]
    assert solution.count("__global__") == 1
    assert exercise.check("day16", solution, SOURCE, on_gpu=False).passed
    assert PROSE.index("<summary>Hint 1") < PROSE.index("<summary>Solution")


def test_it_ends_on_the_question_that_day_43_answers():
    ending = PROSE[PROSE.index("## Sixteen times fewer, and then?") : PROSE.index("## Exercise")]
    assert "**that is Day 43.**" in ending.replace("\n", " ") and "L2" in ending
    assert "(day43-matmul-1.md)" in PROSE
