"""The capture room, end to end with stand-ins for nvcc, ncu, nsys and the card: what is written, what failure costs."""

import dataclasses
import json
import os
import shutil
import stat
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpudays import capture, gpu, metrics, profiles
from gpudays.cli import app
from gpudays.course.steps import DAYS

CARD = gpu.Device("NVIDIA H200", "sm_90", 132, 60 << 20, 150 << 30, "580.159.04", (13, 0))
PLAN = capture.PLANS["day43"]

PROGRAM = """
import sys
sizes = [1024, 512] if sys.argv[1:2] == ["1024"] else [512, 1024]
rows = [f"{n},{s + 1},{k},0.1,0.09,0.12,100.0,NVIDIA H200" for n in sizes for s, k in enumerate(KERNELS)]
if "--csv" in sys.argv:
    with open(sys.argv[sys.argv.index("--csv") + 1], "w") as table:
        print("n,step,kernel,ms_mean,ms_min,ms_max,gflops,card", *rows, sep=chr(10), file=table)
"""
NCU = """
import pathlib, sys
args = sys.argv[1:]
if "--version" in args:
    print("Version 2025.3.1.0 (build 1)"); sys.exit()
if "--import" in args:
    print("==PROF== reading")
    if "--csv" not in args:
        print("  Section: Command line profiler metrics  "); sys.exit()
    print('"ID","Kernel Name","Block Size","Grid Size","CC","Section Name","Metric Name","Metric Unit","Metric Value"')
    named = pathlib.Path(args[args.index("--import") + 1]).read_text().split()
    for launch, kernel in enumerate(KERNELS):
        for metric in named:
            unit = "ns" if metric.startswith("gpu__time") else "byte" if metric.startswith("dram") else ""
            print(f'"{launch}","{kernel}","(16, 16, 1)","(1, 1, 1)","9.0","s","{metric}","{unit}","1,024"')
    sys.exit()
if DENIED:
    print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission"); sys.exit(1)
metrics = args[args.index("--metrics") + 1].split(",")
if UNKNOWN in metrics:
    print("==ERROR== Failed to find metric", UNKNOWN); sys.exit(1)
report = pathlib.Path(args[args.index("-o") + 1] + ".ncu-rep")
report.write_text(chr(10).join(metrics) + (" " * BIG if "--import-source" in args else ""))
"""
NSYS = """
import pathlib, sys
if "--version" in sys.argv:
    print("NVIDIA Nsight Systems version 2025.3.2"); sys.exit()
out = sys.argv[sys.argv.index("-o") + 1]
pathlib.Path(out + (".qdstrm" if STOPS else ".nsys-rep")).write_text("timeline")
"""


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A GPU host of stand-ins; returns a function that installs it and gives the checkout."""
    tools = tmp_path / "tools"
    tools.mkdir()

    def script(name: str, body: str) -> None:
        path = tools / name
        path.write_text(f"#!{sys.executable}\nKERNELS = {PLAN.kernels!r}\n{body}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def install(denied=False, unknown="", big=0, stops=False, broken=False) -> Path:
        built = f"shutil.copy({str(tools / 'program')!r}, sys.argv[sys.argv.index('-o') + 1])"
        copy = f"import shutil, sys\nprint('V13.0.88') if '--version' in sys.argv else {built}"
        script("program", PROGRAM)
        script("nvcc", "import sys; print('error: no'); sys.exit(2)" if broken else copy)
        script("ncu", f"DENIED, UNKNOWN, BIG = {denied!r}, {unknown!r}, {big!r}\n{NCU}")
        script("nsys", f"STOPS = {stops!r}\n{NSYS}")
        root = tmp_path / "checkout"
        (root / "content" / "profiles").mkdir(parents=True, exist_ok=True)
        monkeypatch.setenv("GPUDAYS_HOME", str(root))
        return root

    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(gpu, "_probe", lambda: (CARD, ""))
    return install


def test_everything_that_ships_is_written_and_readable(host):
    root = host()
    told = []
    assert capture.capture(PLAN, root, tell=lambda title, done, total: told.append((title, done, total))) == []
    place = root / "content" / "profiles" / "optimizing-matmul-1"
    assert sorted(path.name for path in place.iterdir()) == [
        "evidence.md", "machine.json",
        *(f"optimizing-matmul-1-{n}.{kind}" for n in (1024, 512) for kind in ("details.csv", "details.txt", "ncu-rep")),
        "optimizing-matmul-1.nsys-rep", "optimizing-matmul-1.timing.csv",
    ]  # fmt: skip
    figures = profiles.shipped("optimizing-matmul-1")
    assert figures.card == "NVIDIA H200" and figures.missing == ()
    assert set(figures.table["n"]) == {512, 1024} and metrics.TIME in set(figures.table["metric"])
    assert told[0] == ("build", 0, 6) and told[-1] == ("evidence", 6, 6)


def test_evidence_names_card_tools_commands_and_date(host):
    root = host()
    capture.capture(PLAN, root)
    place = root / "content" / "profiles" / "optimizing-matmul-1"
    text = (place / "evidence.md").read_text()
    for part in ("NVIDIA H200, sm_90, 132 SMs, L2 60 MiB", "580.159.04", "13.0.88", "2025.3.1.0", "2025.3.2",
                 "`--clock-control none`", "gpudays profile day43", "| 512 | 1 | matmulStridedRows | 0.1 |",
                 "optimizing-matmul-1-512.ncu-rep"):  # fmt: skip
        assert part in text, part
    machine = json.loads((place / "machine.json").read_text())
    assert machine["commands"][0] == (
        "nvcc -std=c++17 -O3 -arch=sm_90 -lineinfo -o build/matmul_steps code/day43-matmul-1/matmul_steps.cu"
    )
    counted = [line for line in machine["commands"] if line.startswith("ncu --clock-control none")]
    assert len(counted) == 2 and counted[0].endswith("build/matmul_steps 512")
    assert "regex:^(matmulStridedRows|matmulCoalescedCols|matmulTiled)$" in counted[0]
    assert "--launch-count 3" in counted[0] and "--import-source yes" in counted[0]
    assert str(root) not in text and "/tools/" not in text


def test_refused_counters_cost_the_counters_only(host):
    root = host(denied=True)
    failures = capture.capture(PLAN, root)
    assert [failure.split(":")[0] for failure in failures] == ["count at 512", "count at 1024"]
    assert "ERR_NVGPUCTRPERM" in failures[0]
    place = root / "content" / "profiles" / "optimizing-matmul-1"
    assert (place / "optimizing-matmul-1.timing.csv").exists() and (place / "optimizing-matmul-1.nsys-rep").exists()
    assert "## What did not work" in (place / "evidence.md").read_text()


def test_a_metric_that_the_card_lacks_is_noted(host):
    root = host(unknown=metrics.FMA_PIPE)
    assert capture.capture(PLAN, root) == []
    place = root / "content" / "profiles" / "optimizing-matmul-1"
    assert f"has no {metrics.FMA_PIPE}" in (place / "evidence.md").read_text()
    assert metrics.FMA_PIPE not in (place / "optimizing-matmul-1-512.details.csv").read_text()


def test_a_counter_that_is_missing_in_the_end_is_a_failure(host):
    failures = capture.capture(PLAN, host(unknown=metrics.L2_HIT_RATE))
    assert len(failures) == 1 and f"lacks {metrics.L2_HIT_RATE} of matmulStridedRows" in failures[0]


def test_a_large_report_is_written_again_without_the_source(host):
    root = host(big=capture.LARGEST_REPORT)
    assert capture.capture(PLAN, root) == []
    place = root / "content" / "profiles" / "optimizing-matmul-1"
    assert (place / "optimizing-matmul-1-512.ncu-rep").stat().st_size < capture.LARGEST_REPORT
    assert "at 512 a report with the source and 6 sections has" in (place / "evidence.md").read_text()


@pytest.mark.parametrize("isolated", [True, False])
def test_a_timeline_holds_nothing_of_the_environment_or_of_the_checkout(host, monkeypatch, isolated):
    """nsys records all processes that it sees: no other's, or else a note says so."""
    monkeypatch.setenv("A_SECRET", "hunter2")
    root = host()
    if not isolated:
        monkeypatch.setattr(capture, "ALONE", ("no-such-unshare",))
    elif not capture._alone():
        pytest.skip("this system lets nobody hide the other processes")
    nsys = Path(shutil.which("nsys"))
    nsys.write_text(
        nsys.read_text().replace(
            'write_text("timeline")', "write_text(repr((dict(os.environ), os.getcwd(), sys.argv, os.getpid())))"
        )
    )
    nsys.write_text(nsys.read_text().replace("import ", "import os, ", 1))
    assert capture.capture(PLAN, root) == []
    text = (root / "content/profiles/optimizing-matmul-1/optimizing-matmul-1.nsys-rep").read_text()
    assert "hunter2" not in text and str(root / "content") not in text and "optimizing-matmul-1" in text
    evidence = (root / "content/profiles/optimizing-matmul-1/evidence.md").read_text()
    assert text.endswith(", 1)") == isolated  # the first process of a world of its own
    assert ("look into it before you publish it" in evidence) == (not isolated)


def test_a_timeline_that_stops_halfway_says_why_and_leaves_nothing(host):
    root = host(stops=True)
    (failure,) = capture.capture(PLAN, root)
    assert failure.startswith("timeline: nsys: it stopped at a .qdstrm") and "libdw" in failure
    assert not list((root / "content").rglob("*.qdstrm"))


def test_a_program_that_does_not_build_stops_the_rest(host):
    (failure,) = capture.capture(PLAN, host(broken=True))
    assert failure.startswith("build: nvcc") and "exit 2" in failure and "error: no" in failure


def test_without_cublas_the_rest_is_measured_and_the_lack_told(host, tmp_path):
    root = host()
    nvcc = tmp_path / "tools" / "nvcc"
    imports = "import shutil, sys\n"
    nvcc.write_text(nvcc.read_text().replace(imports, f"{imports}assert '-lcublas' not in sys.argv\n"))
    plan = dataclasses.replace(PLAN, flags=capture.CUBLAS)
    (failure,) = capture.capture(plan, root)
    assert failure.startswith("build: without -DWITH_CUBLAS -lcublas, since nvcc")
    assert (root / "content" / "profiles" / "optimizing-matmul-1" / "optimizing-matmul-1.timing.csv").exists()


def test_the_command_ends_with_1_when_a_step_failed(host, monkeypatch):
    root = host(stops=True)
    (root / "_config.yml").write_text("")
    (root / "book").mkdir()
    monkeypatch.chdir(root)
    result = CliRunner().invoke(app, ["profile", "day43"])
    assert result.exit_code == 1 and "day43: 1 step did not work" in result.output
    host()
    result = CliRunner().invoke(app, ["profile", "day43"])
    assert result.exit_code == 0, result.output
    assert CliRunner().invoke(app, ["profile", "day99"]).exit_code == 2


def test_without_a_card_nothing_is_written(host, monkeypatch):
    root = host()
    monkeypatch.setattr(gpu, "_probe", lambda: (None, "no NVIDIA driver here"))
    with pytest.raises(gpu.NoGpu, match="no NVIDIA driver here"):
        capture.capture(PLAN, root)
    assert not list((root / "content" / "profiles").iterdir())


@pytest.mark.parametrize("name", sorted(set(capture.PLANS) & set(DAYS)))
def test_a_plan_captures_what_its_day_teaches(name):
    plan, day = capture.PLANS[name], DAYS[name]
    assert plan.folder == day.profiles
    assert f"code/{plan.sources[0]}" == day.program
    assert [step.kernel for step in day.steps] == list(plan.kernels)[: len(day.steps)]
    assert {label for label, _ in plan.sizes} >= {str(size[0]) for size in day.sizes if size[0] <= 1024}


@pytest.mark.parametrize("name", sorted(capture.PLANS))
def test_a_plans_sources_are_there_and_hold_its_kernels(name):
    plan = capture.PLANS[name]
    code = Path(__file__).parents[1] / "code"
    text = "".join((code / source).read_text() for source in plan.sources)
    for kernel in plan.kernels:
        assert kernel in text
