"""The optimisation suite's page: its figures are the shipped and published files', and its prose holds for them."""

import csv
import re
from pathlib import Path

import nbformat
import pytest

from gpudays import bench_suite, kernels_in_pages, metrics, suite_figures, suite_sweeps, suite_tables, verify
from gpudays.course import evidence as ev
from gpudays.course import suite
from gpudays.course import suite_predictions as predictions
from gpudays.course.evidence import Evidence
from gpudays.course.predictions import CANNOT, DID_NOT, MATCHED
from gpudays.course.suite_predictions import COARSENED, FAST, GUARDED, NAIVE, SIZES, TILED, N
from gpudays.ptx import model

ROOT = Path(__file__).parents[1]
PAGE = ROOT / suite.SUITE.page
NOTEBOOK = nbformat.read(PAGE.with_suffix(".ipynb"), as_version=4)
CODE = [cell for cell in NOTEBOOK.cells if cell.cell_type == "code"]
PROSE = " ".join("\n".join(cell.source for cell in NOTEBOOK.cells if cell.cell_type == "markdown").split())
HOLDING = [c for c in CODE if c.outputs]
FOLDER = ROOT / "content" / "profiles"


def said(containing: str) -> str:
    """What the one cell with a text printed, or the text of what it returned."""
    [cell] = [c for c in CODE if containing in c.source]
    return "".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in cell.outputs)


def rows(folder: str, file: str) -> list[dict[str, str]]:
    """A shipped CSV, read without the package."""
    with (FOLDER / folder / file).open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def number(text: str) -> float:
    return float(text.replace(",", "").rstrip("×%"))


@pytest.fixture(scope="module")
def both() -> suite_tables.Cards:
    return suite_tables.cards()


@pytest.fixture(scope="module")
def card(both) -> Evidence:
    return both.ours


def per_fma(card: Evidence, kernel: str, metric: str) -> float:
    return card.get(kernel, N, metric).value / (N**3 / 32)


# ---- figures on the page are the files' ------------------------------------------------------------------------------


def test_every_time_of_the_overview_stands_in_the_files():
    own = {(r["kernel"], int(r["n"])): float(r["ms_median"]) for r in rows("optimizer", "results.csv")}
    theirs = {r["kernel"]: r for r in rows("optimizer", "published-t4-benchmark.csv")}
    names = {ours: name for name, ours in suite.PUBLISHED.items()}
    lines = [line.split() for line in said("suite_tables.overview").splitlines()[1:-1]]
    assert [line[1] for line in lines] == [suite.ENTRIES[key].kernel for key in suite.KEYS]
    for _, kernel, *cells in lines:
        assert [number(x) for x in cells[:3]] == pytest.approx([own[kernel, n] for n in SIZES], rel=1e-4)
        assert number(cells[3]) == pytest.approx(own[suite.CUBLAS, N] / own[kernel, N], abs=5e-4)
        if kernel in names:
            published = [float(theirs[names[kernel]][f"n{n}_ms"]) for n in SIZES]
            assert [number(x) for x in cells[4:7]] == pytest.approx(published, rel=1e-4)
        else:
            assert kernel == FAST and cells[4:] == ["–"] * 4


@pytest.mark.parametrize("move", suite_tables.MOVES, ids="/".join)
def test_every_gain_is_a_quotient_of_the_files_times(move):
    before, after = move
    own = {(r["kernel"], int(r["n"])): float(r["ms_median"]) for r in rows("optimizer", "results.csv")}
    [line] = [text for text in said("suite_tables.gains").splitlines() if f"{after} / {before}" in text]
    shown = [number(x) for x in line.split()[3:6]]
    assert shown == pytest.approx([own[before, n] / own[after, n] for n in SIZES], abs=0.006)


def test_the_sweeps_times_are_the_files(both):
    swept = {r["kernel"]: float(r["ms_median"]) for r in rows("optimizer", "results.csv") if r["n"] == str(N)}
    lines = said("by_outputs = ").splitlines()[1:-2]
    assert len(lines) == len(suite.SUITE.sweep)
    for step, line in zip(suite.SUITE.sweep, lines, strict=True):
        assert number(line.split()[-3]) == pytest.approx(swept[step.kernel], abs=6e-5)
    tiles = {(r["kernel"], r["n"]): float(r["ms_median"]) for r in rows("tiled-matmul", "tiled-matmul.timing.csv")}
    for (side, kernel), line in zip(suite_sweeps.TILE_SIDES.items(), said("by_tile = ").splitlines()[1:], strict=False):
        cells = line.split()
        times = [tiles[kernel, n] for n in ("256", "512", "1024", "4096")]
        assert int(cells[0]) == side and [float(x) for x in cells[-4:]] == pytest.approx(times, abs=6e-5)


def test_the_published_traffic_is_what_was_published():
    by_name = {(r["kernel"], r["metric"]): float(r["value"]) for r in rows("optimizer", "published-t4-more.csv")}
    loaded = [32 * by_name[name, ev.SECTORS] for name in ("1 GPU naive", "2 shared-memory tiling")]
    assert loaded == [4.29e9, 534e6]
    read = [by_name[name, metrics.DRAM_READ] / 1e6 for name in ("3 vectorized loads", "2 shared-memory tiling")]
    assert read == [207, 202] and "207 MB against 202 MB" in PROSE


def test_the_page_shows_what_its_functions_give_now(both, capsys):
    """Nothing was changed under an executed page."""
    assert said("print(both.origin)").strip() == both.origin
    assert said("on_cpu = ") == repr(suite_sweeps.cpu(both))
    assert said("suite_tables.traffic") == repr(suite_tables.traffic(both))
    assert said("suite_tables.overview") == repr(suite_tables.overview(both))
    assert said("suite_tables.fast_path").strip() == suite_tables.fast_path(both)


# ---- form ------------------------------------------------------------------------------------------------------------


def test_every_figure_and_table_says_where_it_comes_from():
    for cell in HOLDING:
        text = "".join(o.get("data", {}).get("text/plain", "") for o in cell.outputs)
        if any("text/html" in o.get("data", {}) for o in cell.outputs):
            assert re.search("^Source: .*(traced|shipped|published|live|nothing|own)", text, re.MULTILINE), cell.source
    drawn = [c.metadata["mystnb"]["image"]["alt"] for c in CODE if "mystnb" in c.metadata]
    assert [alt for alt in drawn if not alt.startswith("Arithmetic rate")] == [
        suite_figures.ALT[name] for name in ("cpu", "tiles", "coarsening", "gains")
    ]


def test_every_picture_writes_its_source_above_its_axes(both):
    pictures = [
        suite_figures.cpu(suite_sweeps.cpu(both)),
        suite_figures.gains(suite_tables.gains(both)),
        suite_figures.tiles(suite_sweeps.tile_sweep()),
        suite_figures.coarsening(suite_sweeps.coarsening(both, bench_suite.runs_of(suite.SUITE))),
    ]
    for picture in pictures:
        for axis in picture.axes:
            title = axis.get_title() + axis.get_title(loc="left")
            assert re.search("shipped|compiled", title), picture.name


def test_page_holds_the_program_s_kernels_and_the_cpu_loop():
    assert kernels_in_pages.differing(ROOT, suite.SUITE) == ""
    loop = (ROOT / suite.CPU_SOURCE).read_text("utf-8")
    shown = PAGE.read_text("utf-8").split("```cpp\n")[1].split("```")[0]
    assert shown.strip() and loop.endswith(shown)


def test_nothing_but_this_machine_is_left_out_of_the_comparison():
    ignored = [c.source.splitlines()[-1] for c in CODE if "nbval-ignore-output" in c.metadata.get("tags", [])]
    assert [re.sub(r"\(.*", "", last) for last in ignored[1:]] == [
        "suite_sweeps.cpu_here", "suite_tables.verified", "suite_tables.here",
    ]  # fmt: skip


# ---- prose against the shipped card ----------------------------------------------------------------------------------


def test_kernel_1_is_limited_by_the_way_to_the_l1_not_by_dram(card):
    assert per_fma(card, NAIVE, ev.REQUESTS) == 2
    assert card.get(NAIVE, N, metrics.DRAM_READ).value == pytest.approx(2 * 4 * N * N, rel=0.01), "each float once"
    assert card.get(NAIVE, N, metrics.L1_HIT_RATE).value > 80
    assert card.get(NAIVE, N, metrics.MEMORY_THROUGHPUT).value > 90 > 50 > card.get(NAIVE, N, metrics.FMA_PIPE).value


def test_tiling_cuts_load_traffic_eight_times_on_both_cards(both):
    for one in both:
        assert one.gains((NAIVE, TILED), N, ev.SECTORS)[0] == pytest.approx(8, rel=0.005)
        assert all(1 < one.gains((NAIVE, TILED), n)[0] < 2 for n in SIZES)
    loads, waits = (
        both.ours.values((NAIVE, TILED), N, m) for m in (model.SHARED_LD_REQUESTS, metrics.STALLS["mio_throttle"])
    )
    assert 1 < loads[1] / (N**3 / 32) < 2 and waits[1] > 10 * waits[0]


def test_tile_sweep_reads_as_the_prose_says():
    table = suite_sweeps.tile_sweep().frame.set_index("TILE")
    times = table[[name for name in table if name.startswith("ms at")]]
    assert (times.loc[8] > times.loc[16]).all(), "8 loses at every size"
    assert list(times.idxmin()) == [16, 32, 32, 32]
    sectors = table["million sectors at 512"]
    assert sectors[8] / sectors[16] == pytest.approx(2, rel=0.01)
    assert sectors[16] / sectors[32] == pytest.approx(2, rel=0.01)
    assert set(table["occupancy, %"]) == {100} and set(table["registers"]) <= {31, 32}


def test_float4_changes_requests_and_barriers_not_bytes(card):
    for metric in (metrics.DRAM_READ, ev.SECTORS):
        tiled, *wide = card.values((TILED, GUARDED, FAST), N, metric)
        assert wide == pytest.approx([tiled, tiled], rel=0.005)
    assert card.gains((TILED, GUARDED), N, ev.REQUESTS) == (4.0,)
    assert "DEPTH = 4 * TILE" in kernels_in_pages.page_text(PAGE)
    tiled, guarded, fast = card.values((TILED, GUARDED, FAST), N, metrics.INSTRUCTIONS)
    assert fast < guarded < tiled


def test_kernels_2_3_and_3f_fill_the_same_pipe(card):
    wavefronts = [per_fma(card, kernel, model.SHARED_LD_WAVEFRONTS) for kernel in (TILED, GUARDED, FAST)]
    assert wavefronts == pytest.approx([1.5] * 3, rel=0.01)
    assert min(card.values((GUARDED, FAST), N, metrics.MEMORY_THROUGHPUT)) > 90
    assert max(card.values((GUARDED, FAST), N, metrics.ISSUE_ACTIVE)) < 50
    waits = card.values((GUARDED, FAST), N, metrics.STALLS["mio_throttle"])
    assert waits[1] > waits[0]


def test_the_guarded_kernel_gains_here_and_lost_there(both):
    assert all(both.ours.gains((TILED, GUARDED), n)[0] > 1 for n in SIZES)
    assert all(both.theirs.gains((TILED, GUARDED), n)[0] < 0.8 for n in SIZES)


def test_the_fast_path_brings_no_time_at_the_larger_sizes(card):
    assert all(card.gains((GUARDED, FAST), n)[0] < 1.02 for n in (1024, 4096))


def test_coarsening_halves_what_it_says(card):
    for metric in (ev.SECTORS, model.SHARED_LD_REQUESTS, model.SHARED_LD_WAVEFRONTS):
        assert card.gains((TILED, COARSENED), N, metric)[0] == pytest.approx(2, rel=0.01)
    small, *large = (card.gains((TILED, COARSENED), n)[0] for n in SIZES)
    assert small < 1 and all(1.7 < gain < 2.1 for gain in large)


def test_past_4_by_4_there_are_too_few_blocks(both):
    table = suite_sweeps.coarsening(both, bench_suite.runs_of(suite.SUITE)).frame.set_index("outputs")
    assert table["ms"].idxmin() == "4 × 4" and table["spilled, B"].eq(0).all()
    assert (
        table["instructions per FMA"].is_monotonic_decreasing and table["shared loads per FMA"].is_monotonic_decreasing
    )
    assert list(table["blocks"][-3:]) == [256, 128, 64] and both.sms == 132
    assert table["GFLOP/s per busy SM"].idxmax() == "8 × 8"
    assert said("blocks / both.sms") == "(64, '48% of 132 multiprocessors have one')"


def test_cublas_is_two_and_a_half_times_kernel_4_and_more(card):
    assert all(card.gains((COARSENED, suite.CUBLAS), n)[0] > 2.45 for n in (1024, 4096))
    assert card.gains((TILED, suite.CUBLAS), 256)[0] < 1


def test_both_cards_agree_on_signs_but_for_float4_behind_checks(both):
    for before, after in suite_tables.MOVES:
        signs = {one.gains((before, after), n)[0] > 1 for one in both for n in (1024, 4096)
                 if one.gains((before, after), n)}  # fmt: skip
        assert (len(signs) == 1) is ((before, after) != (TILED, GUARDED)) or (before, after) == (GUARDED, FAST)


# ---- grades, words, this machine -------------------------------------------------------------------------------------


def verdicts(evidence: Evidence, **changed: object) -> dict[str, str]:
    return {v.number: v.verdict for v in predictions.Predictions(**changed).grade(evidence)}


def test_predictions_are_graded_by_the_card_and_by_what_is_predicted(both):
    ours, theirs = verdicts(both.ours), verdicts(both.theirs)
    assert list(ours) == ["0", "1", "2", "3", "3f", "4", "5"]
    assert ours["3"] == DID_NOT and theirs["3"] == MATCHED and theirs["3f"] == CANNOT
    assert verdicts(both.ours, guarded_is_slower=False)["3"] == MATCHED
    assert verdicts(both.ours, cpu_rate_falls=False)["0"] == DID_NOT
    assert verdicts(both.ours, naive_gain=1e6)["1"] == verdicts(both.ours, tiling_gain=1.1)["2"] == DID_NOT
    assert verdicts(both.ours, of_cublas=0.1)["5"] == verdicts(both.ours, fast_gain=0.5)["3f"] == MATCHED
    assert set(verdicts(Evidence(both.shipped, "no such card", ("live",))).values()) == {CANNOT}


def _table(**times: float):
    from gpudays import measurements

    names = {"tiled": TILED, "guarded": GUARDED, "fast": FAST}
    return measurements.concat(
        measurements.table(names[kernel], n, {metrics.TIME: ms, metrics.INSTRUCTIONS: 1e6 * ms}, "shipped", "Card")
        for kernel, ms in times.items() for n in SIZES
    )  # fmt: skip


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        ({"tiled": 3, "guarded": 2, "fast": 1}, "nothing to win back"),
        ({"tiled": 3, "guarded": 4, "fast": 3}, "it was kept"),
        ({"tiled": 3, "guarded": 4, "fast": 3.5}, "it was not kept"),
        ({"tiled": 3, "guarded": 4}, "cannot be said"),
    ],
)
def test_the_paragraph_on_the_fast_path_follows_the_times(both, times, verdict):
    table = _table(**times)
    made = suite_tables.Cards(Evidence(table, "Card", ("shipped",)), both.theirs, 1, "", table)
    assert verdict in suite_tables.fast_path(made).replace("\n", " ")


def test_a_wrong_kernel_is_not_called_right():
    source = kernels_in_pages.page_text(PAGE).replace(
        "sum += tileA[threadIdx.y][i] *", "sum -= tileA[threadIdx.y][i] *"
    )
    shown = suite_tables.verified(bench_suite.Runs(source, suite.SUITE), [(17, 19, 16)]).frame.set_index("kernel")
    assert "wrong" in shown["verdict"][TILED] and shown["verdict"][NAIVE] == "right"
    assert shown["left out"][FAST] == "17x19x16"


def test_the_cpu_s_own_run_keeps_the_work_and_grows_b():
    frame = suite_sweeps.cpu_here(depths=(16, 64), columns=8, products=2**14).frame
    assert list(frame["A by B"]) == ["128 × 16 by 16 × 8", "32 × 64 by 64 × 8"]
    assert frame["B, MiB"][1] == 4 * frame["B, MiB"][0] and verify.inputs((1, 8, 16))[1].nbytes == 512
