"""The profiler room against a stand-in ncu: what it is asked, what it answers, and every way it refuses."""

import json
import os
import stat
import subprocess
import sys

import numpy as np
import pytest

from gpudays import gpu, metrics, ncu_csv, profiler
from gpudays.profiler import Launch, ProfilerRefused

LOADS, SECTORS = metrics.COUNTED_BY_ADDRESS[:2]
HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)
DENIED = """==PROF== Connected to process 4242 (/usr/bin/python3)
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device 0.
==PROF== Disconnected from process 4242
==WARNING== No kernels were profiled.
"""  # noqa: E501


def row(launch, kernel, metric, unit, value, section="Command line profiler metrics"):
    """A row as ncu writes it."""
    start = f'"{launch}","77","python3","127.0.0.1","{kernel}","1","7","(16, 16, 1)","(32, 32, 1)","0","9.0"'
    return f'{start},"{section}","{metric}","{unit}","{value}"'


def table(*rows):
    return "\n".join(["==PROF== Connected to process 77 (/usr/bin/python3)", "N = 512", HEADER, *rows]) + "\n"


GOOD = table(
    row(0, "matmulTiled", "Memory Throughput", "byte/s", "1,000", "Memory Workload Analysis"),
    row(0, "matmulTiled", "Memory Throughput", "%", "71.16", "GPU Speed Of Light Throughput"),
    row(0, "matmulTiled", LOADS, "request", "8,388,608"),
    row(0, "matmulTiled", SECTORS, "sector", "71303168"),
    row(0, "matmulTiled", "dram__bytes_read.sum", "Mbyte", "2.5"),
    row(0, "matmulTiled", "gpu__time_duration.sum", "us", "40.5"),
    row(0, "matmulTiled", "lts__t_sector_hit_rate.pct", "%", "N/A"),
    row(0, "matmulTiled", "Function Cache Configuration", "", "CachePreferNone", "Launch Statistics"),
    row(1, "void tile<(int)32>(const float *, float *)", LOADS, "request", "0"),
)


# ---- the table ------------------------------------------------------------------------------------------------------


def test_values_are_read_in_base_units_under_their_names():
    counters = ncu_csv.parse(GOOD)
    tiled = counters.rows[counters.rows["kernel"].eq("matmulTiled")].set_index("metric")
    assert tiled["value"].to_dict() == {
        metrics.MEMORY_THROUGHPUT: 71.16, LOADS: 8388608, SECTORS: 71303168, metrics.DRAM_READ: 2.5e6,
        metrics.GPU_TIME: 40500,
    }  # fmt: skip
    assert tiled["unit"][LOADS] == "request" and tiled["block"][LOADS] == "(16, 16, 1)"
    assert counters.absent == (("matmulTiled", metrics.L2_HIT_RATE),)


def test_a_counter_of_zero_is_zero_and_an_absent_one_is_absent():
    counters = ncu_csv.parse(GOOD)
    tidy = counters.tidy(512, "shipped", "NVIDIA H200")
    by_kernel = tidy.set_index(["kernel", "metric"])["value"]
    assert by_kernel["tile<32>", LOADS] == 0
    assert ("matmulTiled", metrics.L2_HIT_RATE) not in by_kernel.index
    assert set(tidy["n"]) == {512} and set(tidy["source"]) == {"shipped"}


def test_only_a_kernels_first_launch_counts():
    twice = table(row(3, "k", LOADS, "request", "5"), row(4, "k", LOADS, "request", "7"))
    assert list(ncu_csv.parse(twice).tidy(1, "live", "x")["value"]) == [5]


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("", 1, "the file is empty"),
        ("\n \n", 1, "the file is empty"),
        ("n,step,kernel\n512,1,a\n", 1, "begins with 'n,step,kernel'"),
        ('"ID","Kernel Name","gpu__time_duration.sum"\n"","","ns"\n', 1, "not the long table"),
        (DENIED, 1, "no header"),
        (table(), 3, "no launches"),
        (table(row(0, "k", LOADS, "request", "5"), '"0","77","python3"'), 5, "3 cells where the header has 15"),
        (table(row(0, "k", LOADS, "request", "5"), row(0, "k", SECTORS, "sector", "5")[:-3]), 5, "'', not a number"),
        (table(row(0, "k", LOADS, "request", "5"), row(0, "k", SECTORS, "sector", "5")[:-2]), 5, "cut off"),
        (table(row(0, "k", LOADS, "request", "9,00")), 4, "'9,00', not a number"),
        (table(row(0, "k", LOADS, "request", "five")), 4, "'five', not a number"),
        (table(row(0, "k", metrics.GPU_TIME, "fortnight", "5")), 4, "no multiple of ns"),
        (table(row("first", "k", LOADS, "request", "5")), 4, "ID should be"),
    ],
)
def test_what_is_no_counter_table_is_refused_with_its_line(text, line, told):
    with pytest.raises(ncu_csv.CounterTableError, match=told) as caught:
        ncu_csv.parse(text)
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        ("matmulTiled", "matmulTiled"),
        ("matmulTiled(const float *, const float *, float *, unsigned long)", "matmulTiled"),
        ("void tile<(int)32>(const float *, float *)", "tile<32>"),
        ("void a::k<(int)8, float, (bool)1>(float *)", "a::k<8, float, 1>"),
    ],
)
def test_kernel_names_are_those_of_the_source(shown, name):
    assert ncu_csv.kernel_name(shown) == name


# ---- the child process ----------------------------------------------------------------------------------------------


@pytest.fixture
def fake_ncu(tmp_path, monkeypatch):
    """Puts an `ncu` on the PATH that writes ``log`` to its --log-file and keeps its arguments."""

    def install(log: str, code: int = 0, stderr: str = "", run_program: bool = False, unknown: str = ""):
        script = f"""#!{sys.executable}
import json, subprocess, sys
args = sys.argv[1:]
if "--version" in args:
    print("Version 2025.3.1.0 (build 1)"); sys.exit()
with open({str(tmp_path / "asked.jsonl")!r}, "a") as kept:
    kept.write(json.dumps(args) + chr(10))
log = {log!r}
if {unknown!r} and {unknown!r} in args[args.index("--metrics") + 1]:
    log = "==ERROR== Failed to find metric " + {unknown!r} + chr(10)
open(args[args.index("--log-file") + 1], "w").write(log)
sys.stderr.write({stderr!r})
if {run_program!r}:
    start = args.index({sys.executable!r})
    sys.exit(subprocess.run(args[start:]).returncode)
sys.exit({code})
"""
        path = tmp_path / "bin" / "ncu"
        path.parent.mkdir(exist_ok=True)
        path.write_text(script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
        return lambda: [json.loads(line) for line in (tmp_path / "asked.jsonl").read_text().splitlines()]

    profiler.counters_allowed.cache_clear()
    yield install
    profiler.counters_allowed.cache_clear()


CARD = gpu.Device("Tesla T4", "sm_75", 40, 4 << 20, 15 << 30, "595.84", (12, 6))


@pytest.fixture
def card(monkeypatch):
    monkeypatch.setattr(gpu, "_probe", lambda: (CARD, ""))


def test_what_ncu_is_asked(fake_ncu):
    asked = fake_ncu(GOOD)
    profiler.profile(["./program", "512"], [LOADS, SECTORS], ["matmulTiled", "a::tile<32>"], 2)
    (args,) = asked()
    assert args[args.index("-k") + 1] == "regex:^(matmulTiled|tile)$"
    assert args[args.index("--launch-count") + 1] == "2"
    assert args[args.index("--clock-control") + 1] == "none"
    assert args[args.index("--metrics") + 1] == f"{LOADS},{SECTORS}"
    assert args[-2:] == ["./program", "512"]


@pytest.mark.parametrize(
    ("log", "stderr", "code", "told"),
    [
        (DENIED, "", "permission", "ERR_NVGPUCTRPERM.*host's driver"),
        ("==ERROR== No provider found for device 0\n", "", "no-provider", "no provider found"),
        ("==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool (like DCGM) "
         "is concurrently collecting profiling data.\n", "", "in-use", "another tool"),
        ("==ERROR== Profiling is not supported on device 0.\n", "", "unsupported", "does not support this GPU"),
        ("==WARNING== No kernels were profiled.\n", "", "no-kernels", "no kernel of the name"),
        ("==ERROR== The application returned an error code (1).\n", "ImportError: x\n", "failed", "ImportError: x"),
        ("", "", "failed", "nothing was said"),
        (table(), "", "failed", "exit 1"),
    ],
)  # fmt: skip
def test_a_refusal_is_said_in_one_line_and_never_counted_as_zero(fake_ncu, log, stderr, code, told):
    fake_ncu(log, code=1, stderr=stderr)
    with pytest.raises(ProfilerRefused, match=told) as caught:
        profiler.profile(["./program"], [LOADS])
    assert caught.value.permission.code == code and not caught.value.permission.allowed
    assert "\n" not in str(caught.value) and "traced" in str(caught.value)


def test_a_metric_that_the_card_lacks_is_left_out(fake_ncu):
    asked = fake_ncu(GOOD, unknown=SECTORS)
    profiler.profile(["./program"], [LOADS, SECTORS])
    assert [args[args.index("--metrics") + 1] for args in asked()] == [f"{LOADS},{SECTORS}", LOADS]


def test_a_program_that_hangs_is_stopped(fake_ncu, tmp_path):
    fake_ncu("", run_program=True)
    with pytest.raises(ProfilerRefused, match="did not finish") as caught:
        profiler.profile([sys.executable, "-c", "import time; time.sleep(60)"], [LOADS], timeout=2)
    assert caught.value.permission.code == "time-out"


def test_permission_is_probed_once_and_names_the_drivers_setting(fake_ncu, card, tmp_path, monkeypatch):
    asked = fake_ncu(DENIED, code=1)
    parameters = tmp_path / "params"
    parameters.write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n")
    monkeypatch.setattr(profiler, "kept_to_administrators", lambda: True)
    permission = profiler.counters_allowed()
    assert permission.code == "permission" and "RmProfilingAdminOnly: 1" in permission.line
    assert profiler.counters_allowed() is permission and len(asked()) == 1
    monkeypatch.undo()
    assert profiler.kept_to_administrators(str(parameters)) is True
    parameters.write_text("RmProfilingAdminOnly: 0\n")
    assert profiler.kept_to_administrators(str(parameters)) is False
    assert profiler.kept_to_administrators(str(tmp_path / "nothing")) is None


def test_permission_granted(fake_ncu, card):
    fake_ncu(table(row(0, "probe", LOADS, "request", "0")))
    permission = profiler.counters_allowed()
    assert permission.allowed and permission.line == "counters allowed: ncu 2025.3.1.0 reads them live"


def test_without_a_gpu_or_without_ncu_the_line_says_which(monkeypatch):
    profiler.counters_allowed.cache_clear()
    monkeypatch.setattr(gpu, "_probe", lambda: (None, "no NVIDIA driver here"))
    assert profiler.counters_allowed().line.startswith("no counters without a GPU (no NVIDIA driver here)")
    profiler.counters_allowed.cache_clear()
    monkeypatch.setattr(gpu, "_probe", lambda: (CARD, ""))
    monkeypatch.setattr(profiler, "find_ncu", lambda: None)
    assert profiler.counters_allowed().code == "no-ncu"
    profiler.counters_allowed.cache_clear()


def test_live_counts_are_labelled_with_their_launch(fake_ncu, card):
    a = np.ones(4, np.float32)
    launches = [Launch("k", 512, (1,), (32,), [a, np.uint64(4)]), Launch("k", 1024, (2,), (32,), [a, np.uint64(4)])]
    asked = fake_ncu(
        table(
            row(5, "k", LOADS, "request", "10"), row(5, "k", SECTORS, "sector", "40"),
            row(6, "k", LOADS, "request", "20"), row(6, "k", SECTORS, "sector", "40"),
        )
    )  # fmt: skip
    counted = profiler.count("source", launches, [LOADS, SECTORS])
    ratio = counted[counted["metric"].eq(metrics.SECTORS_PER_REQUEST)].set_index("n")["value"]
    assert ratio.to_dict() == {512: 4.0, 1024: 2.0}
    assert set(counted["source"]) == {"live"} and set(counted["card"]) == {"Tesla T4"}
    assert asked()[0][-1].endswith("launches.py")
    fake_ncu(table(row(5, "k", LOADS, "request", "10")))
    with pytest.raises(ProfilerRefused, match="1 of 2 launches"):
        profiler.count("source", launches, [LOADS])


def test_the_script_launches_in_order_with_the_same_arguments(tmp_path):
    a, c = np.arange(6, dtype=np.float32).reshape(2, 3), np.full(2, np.nan, np.float32)
    launches = [
        Launch("first", 1, (1, 2), (16, 16), [a, c, np.uint64(3)]),
        Launch("second<4>", 2, (3,), (8,), [a, np.float32(0.5)], shared_bytes=64),
    ]
    script = profiler.write_script(tmp_path, "the source", launches, ("-DX=1",))
    stub = tmp_path / "gpudays"
    stub.mkdir()
    (stub / "__init__.py").write_text("from . import gpu\n")
    (stub / "gpu.py").write_text(
        "def launch(source, name, grid, block, args, shared, options):\n"
        "    print([source, name, grid, block, [(str(a.dtype), a.tolist()) for a in args], shared, options])\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, cwd=tmp_path)
    first, second = (eval(line, {"nan": np.nan}) for line in ran.stdout.splitlines())
    assert first[:4] == ["the source", "first", [1, 2], [16, 16]] and first[5:] == [0, ("-DX=1",)]
    assert first[4][0] == ("float32", a.tolist()) and first[4][2] == ("uint64", 3)
    assert second[1] == "second<4>" and second[4][1] == ("float32", 0.5) and second[5] == 64
    assert len(list(tmp_path.glob("*.npy"))) == 2, "an array that two launches share is stored once"


@pytest.mark.gpu
def test_a_card_counts_what_its_addresses_say():
    permission = profiler.counters_allowed()
    if not permission.allowed:
        pytest.skip(permission.line)
    source = 'extern "C" __global__ void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x * 8]; }'
    launch = Launch("copy", 32, (1,), (32,), [np.zeros(256, np.float32), np.zeros(32, np.float32)])
    counted = profiler.count(source, [launch]).set_index("metric")["value"]
    assert (counted[LOADS], counted[SECTORS]) == (1, 32)
    assert counted[metrics.SECTORS_PER_REQUEST_STORE] == 4
