"""A page's plumbing on the three machines of the course: with counters, with counters refused, with no GPU at all."""

import numpy as np
import pandas as pd
import pytest

from gpudays import gpu, kernels_in_pages, measurements, metrics, profiler, profiles, session
from gpudays.course.day43 import KERNELS, Predictions, paper_requests
from gpudays.course.steps import DAY43
from gpudays.machine import Machine
from gpudays.profiler import Permission
from gpudays.runs import Runs, sample_blocks, verify_sample
from gpudays.tables import Shown, cell

ROOT = profiles.home()
SOURCE = kernels_in_pages.kernel_text(ROOT / DAY43.program)
MIB = 2**20
CARD = gpu.Device("NVIDIA L4", "sm_89", 58, 48 * MIB, 24 * 2**30, "580.1", (13, 0))
REFUSED = Permission(False, "permission", "counters refused (ERR_NVGPUCTRPERM): the host keeps them to administrators")
ALLOWED = Permission(True, "allowed", "counters allowed: ncu reads them live")
NO_GPU = Permission(False, "no-gpu", "no counters without a GPU")
NOTHING = profiles.Figures(measurements.empty(), "no shipped figures: the folder is empty", ("the folder is empty",))


def lab(card=None, counters=NO_GPU, shipped=None) -> session.Session:
    shipped = profiles.shipped(DAY43.profiles) if shipped is None else shipped
    why = "" if card else "no NVIDIA driver here"
    return session.Session(DAY43, Machine(card, why, counters, shipped, profiles.published(DAY43.profiles)))


@pytest.fixture
def on_card(monkeypatch):
    """Launches answered by NumPy, times that depend on kernel and size: what a card would do, without one."""
    monkeypatch.setattr(Runs, "launch", lambda self, kernel, a, b, c, size: np.matmul(a, b, out=c))
    asked = []

    def time(self, kernel, size, repeats=None):
        asked.append((kernel, size[0], repeats))
        ms = {KERNELS[0]: 8.0, KERNELS[1]: 2.0, KERNELS[2]: 1.0}[kernel] * (size[0] / 512) ** 3
        return gpu.Timing((ms * 0.9, ms, ms * 1.1))

    monkeypatch.setattr(Runs, "time", time)
    return asked


# ---- no GPU ----------------------------------------------------------------------------------------------------------


def test_without_a_gpu_the_line_says_why_and_where_figures_come_from(capsys):
    page = lab()
    page.allows()
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and "No GPU (no NVIDIA driver here)" in said and "tracer" in said and "shipped" in said
    assert page.machine.card_name == "NVIDIA H200" and page.machine.l2_bytes == 60 * MIB and page.size_past_l2 == 4096


def test_without_a_gpu_answers_are_traced_and_sampled():
    table = lab().verify(SOURCE, [64, 260, 528])
    assert table.source == "traced" and list(table.frame["verdict"]) == ["right"] * 9
    assert set(table.frame["checked"]) == {"every element", "32 of 1,089 blocks"}


def test_traced_counts_equal_the_paper_and_stay_apart_from_the_cards():
    page = lab()
    table = page.trace(SOURCE, [64, 128])
    assert table.source == "traced"
    for n in (64, 128):
        rows = table.frame.query("N == @n")
        assert tuple(rows["requests"]) == paper_requests(n)
        assert list(rows["sectors/request"]) == [8.5, 2.0, 4.0]
        assert list(rows["loads/thread"]) == [2 * n, 2 * n, 2 * n / 16]
    assert set(page.measured[page.measured["source"] == "traced"]["card"]) == {""}


def test_shipped_times_are_shown_with_card_and_date():
    table = lab().time(SOURCE, [512, 1024, 2048])
    assert "No times at 2048." in table.note and "mean of" not in table.note
    assert table.source == "shipped, NVIDIA H200" and len(table.frame) == 6
    assert "2026" in table.note and "median of 10 launches after 3 warm-ups" in table.note


def test_with_nothing_shipped_the_page_runs_and_says_what_is_missing(capsys):
    page = lab(shipped=NOTHING)
    page.allows()
    page.count(SOURCE, [512])
    said = capsys.readouterr().out
    assert "the folder is empty" in said
    for table in (page.time(SOURCE, [512, page.size_past_l2]), page.speedups([512]), page.agreement([512])):
        assert table.frame.empty and "gpudays profile day43" in repr(table) and "<table" not in table._repr_html_()
    six = page.six_rows(512)
    assert set(six.frame["source"]) == {"not here"} and six.frame["Tesla T4, step 1"].notna().all()
    grades = page.grade(Predictions()).frame
    assert set(grades["verdict"]) == {"cannot be tested here"}


def test_the_first_loads_of_a_warp_are_those_of_the_paper():
    loads = lab().first_loads(SOURCE, 512)
    assert [(load.step, load.matrix, len(load.sectors)) for load in loads] == [
        ("step 1", "A", 16), ("step 1", "B", 1), ("step 2", "A", 2), ("step 2", "B", 2), ("step 3", "A", 4),
        ("step 3", "B", 4),
    ]  # fmt: skip


def test_a_wrong_kernel_stops_the_page():
    wrong = SOURCE.replace("c[row * n + col] = sum;", "c[row * n + col] = sum + 1.0f;")
    with pytest.raises(session.WrongAnswer, match="matmulStridedRows at 32: wrong; first at row 0, column 0"):
        lab().verify(wrong, [32])


def test_a_compile_error_shows_in_a_notebook_without_frames():
    """IPython asks the exception itself; what comes back is NVRTC's text against the reader's lines, and no more."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shell.user_ns |= {"lab": lab(shipped=NOTHING), "source": SOURCE.replace("float sum = 0.0f;", "float sum = 0.0f", 1)}
    shown = []
    shell._showtraceback = lambda kind, value, lines: shown.extend(lines)
    result = shell.run_cell("lab.compile(source)")
    assert type(result.error_in_exec).__name__ == "CompileError"
    text = "\n".join(shown)
    assert (
        'expected a ";"' in text and "for (size_t k = 0" in text and "site-packages" not in text and "Cell" not in text
    )


# ---- a GPU -----------------------------------------------------------------------------------------------------------


def test_on_a_card_times_are_live_verified_first_and_few_past_the_l2(on_card, monkeypatch):
    page, verified = lab(CARD, REFUSED), []
    monkeypatch.setattr(session.Session, "verify", lambda self, source, sizes: verified.extend(s[0] for s in sizes))
    monkeypatch.setattr(session, "size_past_l2", lambda l2: 2048)
    table = page.time(SOURCE, [512, page.size_past_l2])
    assert table.source == "live, NVIDIA L4" and list(table.frame["ms"][:3]) == [8.0, 2.0, 1.0]
    assert verified == [512, 2048]
    assert [repeats for _, _, repeats in on_card] == [None] * 3 + [session.FEW_REPEATS] * 3
    assert table.note == "CUDA events, median of 10 launches after 3 warm-ups; median of 3 at 2048."
    assert list(page.speedups([512]).frame.iloc[0]) == [512, 4.0, 2.0, 8.0]


def test_refused_counters_are_said_and_another_cards_never_stand_in(on_card, capsys):
    page = lab(CARD, REFUSED)
    page.allows()
    page.count(SOURCE, [512])
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2 and "answers and times are live" in said[0] and said[1].startswith("counters refused")
    page.trace(SOURCE, [64])
    page.time(SOURCE, [64])
    assert page.evidence().get(KERNELS[0], 512, metrics.WARPS_ACTIVE) is None
    grades = page.grade(Predictions()).frame.set_index("number")
    assert grades.loc["5", "verdict"] == "cannot be tested here" and "NVIDIA L4" in grades.loc["5", "reason"]


def test_allowed_counters_are_read_live_and_win_over_traced_ones(on_card, monkeypatch, capsys):
    page, asked = lab(CARD, ALLOWED), []

    def count(source, launches):
        asked.extend((launch.kernel, launch.n, launch.grid, launch.args[3].dtype) for launch in launches)
        rows = [measurements.table(k.kernel, k.n, {metrics.WARPS_ACTIVE: 90.0}, "live", CARD.name) for k in launches]
        return measurements.concat(rows)

    monkeypatch.setattr(profiler, "count", count)
    page.count(SOURCE, [64])
    assert "3 launches counted live" in capsys.readouterr().out
    assert asked == [(kernel, 64, (4, 4), np.dtype("uint64")) for kernel in KERNELS]
    assert page.evidence().get(KERNELS[0], 64, metrics.WARPS_ACTIVE).source == "live"


def test_counters_that_are_refused_after_all_are_said_and_the_page_goes_on(on_card, monkeypatch, capsys):
    def refuse(source, launches):
        raise profiler.ProfilerRefused(REFUSED)

    monkeypatch.setattr(profiler, "count", refuse)
    lab(CARD, ALLOWED).count(SOURCE, [64])
    assert "ERR_NVGPUCTRPERM" in capsys.readouterr().out


def test_what_is_measured_again_replaces_the_older_figure():
    page = lab(shipped=NOTHING)
    for value in (1.0, 2.0):
        page.learn(measurements.table(KERNELS[0], 512, {metrics.TIME: value}, "live", CARD.name))
    rows = page.measured.query("source == 'live'")
    assert list(rows["value"]) == [2.0]


# ---- small parts -----------------------------------------------------------------------------------------------------


def test_a_day_or_grade_that_does_not_exist_is_refused():
    with pytest.raises(KeyError, match="day43"):
        session.start("day42")
    with pytest.raises(ValueError, match="published"):
        lab(shipped=NOTHING).grade(Predictions(), on="t4")


def test_sampled_blocks_hold_the_corners_and_repeat():
    blocks = sample_blocks((64, 64), 32)
    assert len(set(blocks)) == 32 and {(0, 0, 0), (63, 0, 0), (0, 63, 0), (63, 63, 0)} <= set(blocks)
    assert blocks == sample_blocks((64, 64), 32)
    assert sample_blocks((3, 2), 32) == [(x, y, 0) for y in range(2) for x in range(3)]


def test_a_sample_sees_a_block_that_writes_too_little_or_wrongly():
    short = SOURCE.replace("if (row < n && col < n) c[", "if (row < n && col < n && threadIdx.x > 0) c[")
    problems, _, blocks = verify_sample(Runs(short, DAY43), "matmulTiled", (128, 128, 128), 8)
    assert blocks == 8 and "1,920 numbers" in problems[0].message and "2,048" in problems[0].message
    wrong = SOURCE.replace("float sum = 0.0f;", "float sum = 1.0f;")
    problems, _, _ = verify_sample(Runs(wrong, DAY43), "matmulTiled", (128, 128, 128), 8)
    assert problems[0].kind == "wrong"


def test_a_table_without_a_source_is_refused_and_missing_figures_show_as_a_dash():
    frame = pd.DataFrame({"n": [512, 1024], "x": [1.25, float("nan")]})
    with pytest.raises(ValueError, match="source"):
        Shown(frame, "")
    shown = Shown(frame, "traced", {"x": ".1f", "n": "d"})
    assert repr(shown).splitlines()[-1] == "Source: traced."
    assert (
        "–" in repr(shown)
        and '<td style="text-align: right">1.2</td>' in shown._repr_html_()
        and "Source: traced." in shown._repr_html_()
    )
    words = Shown(pd.DataFrame({"kernel": ["a<b"], "n": [1]}), "traced", index=True)._repr_html_()
    assert '<td style="text-align: left">a&lt;b</td><td style="text-align: right">1</td>' in words
    assert (cell(8388608), cell(0.5), cell("x"), cell(None)) == ("8,388,608", "0.5", "x", "–")
