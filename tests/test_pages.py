"""The days' pages: the program's kernels in plain sight, small cells, alt text, tables with their source."""

from pathlib import Path

import nbformat
import pytest

from gpudays import figures, first_cell, kernels_in_pages, metrics, notebooks, profiles
from gpudays.course.steps import DAYS
from gpudays.kernels_in_pages import KernelTextError

ROOT = Path(__file__).parents[1]
WRITTEN = kernels_in_pages.written(ROOT)
MOST_LINES = 15


def cells(day, kind="code"):
    path = (ROOT / day.page).with_suffix(".ipynb")
    assert path.is_file(), f"{path.name} is missing: run `make pages`"
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


def is_source(cell) -> bool:
    """A cell that holds CUDA C++."""
    return "__global__" in cell.source


@pytest.fixture(params=WRITTEN, ids=lambda day: day.name)
def day(request):
    return request.param


def test_the_page_of_day_43_is_written():
    assert "day43" in [day.name for day in WRITTEN]


def test_page_and_program_hold_the_same_kernels(day):
    assert kernels_in_pages.differing(ROOT, day) == ""
    strings = [cell.source for cell in cells(day) if cell.source.startswith(('source = r"""', 'source += r"""'))]
    found: dict[str, str] = {}
    exec("\n".join(strings), found)
    lines = [line for line in kernels_in_pages.kernel_text(ROOT / day.program).split("\n") if line]
    assert [line for line in found["source"].split("\n") if line] == lines
    if len(strings) == 1:
        assert found["source"] == "\n" + kernels_in_pages.kernel_text(ROOT / day.program)


def test_the_folded_solution_is_the_program_s(day):
    if day.name == "day44":
        pytest.skip("its solution is a kernel of its own, which tests/test_page_day44.py checks")
    kernels = kernels_in_pages.kernel_text(ROOT / day.program)
    shown = [text.split("```")[0] for cell in cells(day, "markdown") for text in cell.source.split("```cuda\n")[1:]]
    assert all(text.strip() in kernels for text in shown if "extern" in text)
    if day.name == "day43":
        assert [text.count("__global__") for text in shown] == [2]


def test_cells_are_small(day):
    long = {c.source.split("\n")[0]: c.source.count("\n") + 1 for c in cells(day) if not is_source(c)}
    first = {line: n for line, n in long.items() if line.startswith(first_cell.MARK)}
    assert {line: n for line, n in long.items() if n > MOST_LINES and line not in first} == {}


def test_every_cell_was_run_and_none_failed(day):
    found = cells(day)
    assert [cell.execution_count for cell in found] == list(range(1, len(found) + 1))
    assert not [o for cell in found for o in cell.outputs if o.output_type == "error"]


def test_every_image_has_a_sentence_of_alt_text(day):
    drawn = [(c, o) for c in cells(day) for o in c.outputs if "image/png" in o.get("data", {})]
    for cell, output in drawn:
        alt = cell.metadata["mystnb"]["image"]["alt"]
        assert alt == output.metadata["image/png"]["alt"], "the page's alt text is the figure's own"
        assert alt.endswith(".") and len(alt.split()) > 10
    if day.name == "day43":
        assert [c.metadata["mystnb"]["image"]["alt"] for c, _ in drawn] == [
            figures.ALT[name] for name in ("warp_sectors", "four_ratios", "speedup_beside_sectors")
        ]


def test_every_table_says_where_its_figures_come_from(day):
    for cell in cells(day):
        for output in cell.outputs:
            table = output.get("data", {}).get("text/html", "")
            if "<table" in table:
                said = output.data["text/plain"]
                assert "Source: " in said or "on paper" in said, cell.source


def test_what_is_traced_or_derived_is_compared_to_the_letter():
    compared = [c.source for c in cells(DAYS["day43"]) if "nbval-ignore-output" not in c.metadata.get("tags", [])]
    for needed in ("sectors(row * n + k)", "lab.trace(", "warp_sectors", 'on="published"', "on_paper"):
        assert any(needed in source for source in compared), needed


def test_the_published_ratios_in_the_prose_are_the_published_files():
    folder = profiles.folder(DAYS["day43"].profiles)
    times = profiles.read_timing(folder / "published-t4-timing.csv", "published", "Tesla T4")
    of = times[times["metric"] == metrics.TIME].set_index(["kernel", "n"])["value"]
    first = [f"{of['matmulStridedRows', n] / of['matmulTiled', n]:.2f} at {n}" for n in (512, 1024)]
    again = profiles.read_csv(folder / "published-t4-recheck.csv", ("n", "speedup_step1_to_step3"))
    text = " ".join((ROOT / DAYS["day43"].page).read_text("utf-8").split())
    assert f"step 1 → 3 gained {' and '.join(first)}" in text
    assert f"it was {' and '.join(again['speedup_step1_to_step3'])}" in text


# ---- the room itself ---------------------------------------------------------------------------------------------

PROGRAM = "int before;\n// page: begin kernels\n__global__ void k() {}\n// page: end kernels\nint main() {}\n"
PAGE = '```{code-cell} ipython3\nsource = r"""\n__global__ void old() {}\n"""\n```\n'


@pytest.fixture
def small(tmp_path):
    """Day 43 with a program and a page of one line each, which differ."""
    day43 = DAYS["day43"]
    for name, text in ((day43.program, PROGRAM), (day43.page, PAGE)):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path, day43


def test_a_differing_line_is_shown_and_carried_over_once(small):
    root, day43 = small
    said = kernels_in_pages.check(root)
    assert len(said) == 1 and "line 1" in said[0] and "void k()" in said[0] and "void old()" in said[0]
    assert kernels_in_pages.sync(root) == [day43.page]
    assert kernels_in_pages.sync(root) == [] and kernels_in_pages.check(root) == []
    assert (root / day43.page).read_text("utf-8") == PAGE.replace("void old()", "void k()")


def test_a_page_may_bring_the_kernels_section_by_section(small):
    root, day43 = small
    both = "// ---- one\n__global__ void k() {}\n// ---- two\n__global__ void l() {}\n"
    (root / day43.program).write_text(PROGRAM.replace("__global__ void k() {}\n", both), "utf-8")
    (root / day43.page).write_text(PAGE + PAGE.replace("source =", "source +="), "utf-8")
    assert kernels_in_pages.sync(root) == [day43.page] and kernels_in_pages.check(root) == []
    assert [part.split("\n")[0] for part in kernels_in_pages.page_parts(root / day43.page)] == [
        "// ---- one",
        "// ---- two",
    ]
    (root / day43.program).write_text(PROGRAM, "utf-8")
    with pytest.raises(KernelTextError, match=r"2 strings of kernels.* 1 sections"):
        kernels_in_pages.sync(root)


@pytest.mark.parametrize(
    "program, page, said",
    [
        (PROGRAM.replace("// page: end kernels\n", ""), PAGE, "needs one line"),
        (PROGRAM.replace("void k() {}", 'void k() {} // """'), PAGE, '"""'),
        (PROGRAM.replace("void k() {}", "void k() {} \\"), PAGE, "backslash"),
        (PROGRAM, PAGE + PAGE, "has 2"),
        (PROGRAM, "no cell at all", "has 0"),
    ],
)
def test_a_program_or_page_that_cannot_be_read_is_named(small, program, page, said):
    root, day43 = small
    (root / day43.program).write_text(program, "utf-8")
    (root / day43.page).write_text(page, "utf-8")
    with pytest.raises(KernelTextError, match="day43") as caught:
        kernels_in_pages.sync(root)
    assert said in str(caught.value)


def test_a_page_that_is_stamped_keeps_its_kernels(tmp_path):
    """The first cell is written anew; the CUDA string is not touched by it."""
    day43 = DAYS["day43"]
    text = (ROOT / day43.page).read_text("utf-8")
    (tmp_path / "book").mkdir()
    (tmp_path / day43.page).write_text(text, "utf-8")
    (tmp_path / "_config.yml").write_text('repository:\n  url: "https://example.org/x"\n  branch: main\n')
    notebooks.stamp(tmp_path, tmp_path / day43.page)
    assert kernels_in_pages.page_text(tmp_path / day43.page) == kernels_in_pages.page_text(ROOT / day43.page)
