"""Tests of the standalone programs: they compile as their headers say, refuse bad input, and check before they time."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import gpudays
from gpudays.kernels_in_pages import kernel_text

ROOT = Path(__file__).resolve().parent.parent
CODE = ROOT / "code"
SOURCES = {
    "matmul_steps": CODE / "day43-matmul-1" / "matmul_steps.cu",
    "matmul_tiled": CODE / "day16-tiled-matmul" / "matmul_tiled.cu",
    "matmul_registers": CODE / "day44-matmul-2" / "matmul_registers.cu",
    "optimizer": CODE / "optimizer" / "optimizer.cu",
}
NO_DEVICE = 77

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc on this machine")
needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake on this machine")


def kernels_of(name: str) -> str:
    return kernel_text(SOURCES[name])


def function_of(name: str, kernel: str) -> str:
    """The text of one function of a program, from its name to the brace that closes it in the first column."""
    return re.search(rf"\b{kernel}\(.*?^\}}$", kernels_of(name), re.DOTALL | re.MULTILINE).group(0)


def run(*command: object, **keywords) -> subprocess.CompletedProcess:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, **keywords)


def documented_compile_line(name: str) -> list[str]:
    """The nvcc command of the header comment, without cuBLAS, whose words the header says can be left out."""
    words = shlex.split(re.search(r"^//\s+(nvcc .*)$", SOURCES[name].read_text(), re.MULTILINE).group(1))
    return [word for word in words if word not in ("-DWITH_CUBLAS", "-lcublas")]


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    """The folder in which CMake has built every program, without a warning."""
    folder = tmp_path_factory.mktemp("build")
    options = ["-DCMAKE_CUDA_ARCHITECTURES=75", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    configured = run("cmake", "-S", CODE, "-B", folder, *options)
    assert configured.returncode == 0, configured.stderr
    made = run("cmake", "--build", folder, "-j", "2")
    assert made.returncode == 0, made.stdout + made.stderr
    assert "warning" not in (made.stdout + made.stderr).lower()
    return folder


@pytest.fixture(scope="session")
def program(built):
    """A program's path by its name."""
    return lambda name: built / name


def without_gpu() -> dict[str, str]:
    return {**os.environ, "CUDA_VISIBLE_DEVICES": ""}


@needs_nvcc
@needs_cmake
@pytest.mark.parametrize("name", SOURCES)
def test_the_documented_command_is_the_one_that_is_tested(built, name):
    """The header's nvcc line names the sources and the options that CMake compiles with, and no others."""
    words = documented_compile_line(name)
    assert (words[0], words[words.index("-o") + 1]) == ("nvcc", name)
    sources = {(SOURCES[name].parent / word).resolve() for word in words if word.endswith((".cu", ".cpp"))}
    options = {word for word in words[1:] if word.startswith("-") and word != "-o"}
    commands = json.loads((built / "compile_commands.json").read_text())
    ours = [c for c in commands if f"{name}.dir" in c["command"]]
    assert {Path(c["file"]).resolve() for c in ours} == sources
    for command in ours:
        if command["file"].endswith(".cu"):
            used = set(shlex.split(command["command"]))
            assert {o for o in options if not o.startswith("-arch=")} <= used


@pytest.mark.gpu
@needs_nvcc
@pytest.mark.parametrize("name", SOURCES)
def test_compiles_as_documented(tmp_path, name):
    line = documented_compile_line(name)
    line[line.index("-o") + 1] = str(tmp_path / name)
    result = run(*line, "-Xcompiler", "-Wall,-Wextra", cwd=SOURCES[name].parent)
    assert result.returncode == 0, result.stderr
    assert result.stdout + result.stderr == "", "compiles with warnings"
    assert os.access(tmp_path / name, os.X_OK)


@needs_nvcc
@needs_cmake
@pytest.mark.parametrize("name", SOURCES)
def test_says_when_there_is_no_device(program, name):
    result = run(program(name), env=without_gpu())
    assert result.returncode == NO_DEVICE
    assert result.stderr.startswith("no CUDA device")


@needs_nvcc
@needs_cmake
@pytest.mark.parametrize("name", SOURCES)
def test_help_needs_no_device(program, name):
    result = run(program(name), "--help", env=without_gpu())
    assert result.returncode == 0
    assert result.stdout.startswith(f"usage: {name} ")


@needs_nvcc
@needs_cmake
@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("matmul_steps", "513", "cannot use '513'"),
        ("matmul_steps", "--csv", "--csv needs a value"),
        ("matmul_tiled", "256 256", "M, N and K are given together"),
        ("matmul_tiled", "1 2 3 4", "cannot use '4'"),
        ("matmul_tiled", "16 16 sixteen", "K must be a whole number of at least 1, not 'sixteen'"),
        ("matmul_tiled", "0 16 16", "M must be a whole number of at least 1, not '0'"),
        ("matmul_tiled", "-3 16 16", "M must be a whole number of at least 1, not '-3'"),
        ("matmul_tiled", "16 16 1e3", "K must be a whole number of at least 1, not '1e3'"),
        ("matmul_tiled", "16 16 99999999999", "K must be a whole number of at least 1"),
        ("matmul_tiled", "50000 50000 50000", "has a matrix of 2500000000 elements"),
        ("matmul_tiled", "1048561 1 1", "M can be at most 1048560"),
        ("matmul_tiled", "524281 1 1 --sweep", "M can be at most 524280"),
        ("matmul_tiled", "--fast", "cannot use '--fast'"),
        ("optimizer", "--kernel 9", "no kernel '9'"),
        ("optimizer", "--size 0", "--size must be a whole number"),
        ("optimizer", "--m", "--m needs a value"),
        ("matmul_registers", "0", "0"),
        ("matmul_registers", "-4", "-4"),
        ("matmul_registers", "many", "many"),
        ("matmul_registers", "--csv", "--csv needs a value"),
        ("matmul_registers", "50000", "50000"),
    ],
)
def test_refuses_bad_arguments_before_it_touches_cuda(program, name, arguments, message):
    result = run(program(name), *arguments.split(), env=without_gpu())
    assert result.returncode == 2
    assert message in result.stderr
    assert f"usage: {name} " in result.stderr


@needs_nvcc
@needs_cmake
def test_a_kernel_that_was_left_out_is_named(built, program):
    if "-DWITH_CUBLAS" in (built / "compile_commands.json").read_text():
        pytest.skip("built with cuBLAS")
    result = run(program("optimizer"), "--kernel", 5, env=without_gpu())
    assert result.returncode == 2 and "built without cuBLAS" in result.stderr


@needs_nvcc
def test_host_parts(tmp_path):
    target, table = tmp_path / "host_parts", tmp_path / "table.csv"
    sources = [ROOT / "tests" / "programs" / "host_parts.cu", CODE / "optimizer" / "cpu_loop.cpp"]
    compiled = run("nvcc", "-std=c++17", "-O1", "-arch=sm_75", "-o", target, *sources)
    assert compiled.returncode == 0, compiled.stderr
    result = run(target, table)
    assert result.returncode == 0, result.stdout

    # Numbers stand to the right, words to the left.
    assert result.stdout.splitlines() == [
        "   n  kernel              ms",
        " 512  plain             0.64",
        '1024  a "quoted", one  12.00',
    ]
    with table.open() as file:
        assert list(csv.reader(file)) == [
            ["n", "kernel", "ms"],
            ["512", "plain", "0.64"],
            ["1024", 'a "quoted", one', "12.00"],
        ]
    assert "MISMATCH allNaN at 3x5x7: first at row 0, column 0: got nan, expected" in result.stderr
    assert "MISMATCH oneWrong at 3x5x7: first at row 1, column 3: got nan, expected" in result.stderr
    assert "MISMATCH oneWrong at 3x5x7: first at row 1, column 3: got inf, expected" in result.stderr


@needs_nvcc
@needs_cmake
def test_ctest_agrees(built):
    """Passes on a GPU; without one every check is skipped, none fails."""
    tested = run("ctest", "--test-dir", built, "--output-on-failure")
    assert tested.returncode == 0, tested.stdout
    assert "optimizer_35x79x19" in tested.stdout


@pytest.mark.parametrize(
    "name", sorted(set(SOURCES) - {"matmul_registers"})
)  # whose kernels test_day44_program.py compiles
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_kernels_stand_alone_under_nvrtc_without_spills(name, arch):
    compiled = gpudays.compile(kernels_of(name), arch=arch)
    assert compiled.log == ""
    declared = re.findall(r'extern "C" __global__ void (\w+)\(', kernels_of(name))
    assert sorted(compiled.kernels) == sorted(declared)
    for kernel, needs in compiled.resources(arch).items():
        assert needs.spill_stores == needs.spill_loads == needs.stack_bytes == 0, kernel


def test_steps_1_and_2_differ_in_the_two_index_lines_alone():
    first = function_of("matmul_steps", "matmulStridedRows").splitlines()[2:]
    second = function_of("matmul_steps", "matmulCoalescedCols").splitlines()[2:]
    assert len(first) == len(second)
    differing = [(one, two) for one, two in zip(first, second, strict=True) if one != two]
    swapped = {"x": "y", "y": "x"}
    assert [re.match(r"\s+const size_t (\w+) =", one).group(1) for one, _ in differing] == ["row", "col"]
    for one, two in differing:
        assert re.sub(r"\.([xy])\b", lambda axis: "." + swapped[axis.group(1)], one) == two


def test_day_16_and_the_suite_hold_one_naive_and_one_tiled_kernel():
    assert function_of("matmul_tiled", "matmulNaive") == function_of("optimizer", "matmulNaive")

    def body(text: str) -> list[str]:
        lines = text[text.index(") {") :].splitlines()
        return [line.split("//")[0].rstrip() for line in lines]

    assert body(function_of("matmul_tiled", "multiplyTiles")) == body(function_of("optimizer", "matmulTiled"))


@pytest.mark.gpu
@needs_nvcc
@needs_cmake
def test_matmul_steps_on_a_gpu(program, tmp_path):
    table = tmp_path / "steps.csv"
    result = run(program("matmul_steps"), "1024", "--csv", table)
    assert result.returncode == 0, result.stderr
    with table.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["n"], row["step"]) for row in rows] == [(n, step) for n in ("1024", "512") for step in "123"]
    assert [row["sectors_per_request"] for row in rows] == ["8.5", "2.0", "4.0"] * 2
    assert [row["loads_per_thread"] for row in rows] == ["2048", "2048", "128", "1024", "1024", "64"]
    assert all(0 < float(row["ms_min"]) <= float(row["ms_mean"]) <= float(row["ms_max"]) for row in rows)
    assert result.stdout.count("speed-up: step 1→2") == 2


@pytest.mark.gpu
@needs_nvcc
@needs_cmake
@pytest.mark.parametrize("extents", ["256 256 256", "35 79 19", "1 1 1", "17 1 33"])
def test_matmul_tiled_on_a_gpu(program, extents):
    result = run(program("matmul_tiled"), *extents.split(), "--sweep")
    assert result.returncode == 0, result.stderr
    assert extents.replace(" ", "x") in result.stdout
    assert "fewer floats read per thread" in result.stdout


@pytest.mark.gpu
@needs_nvcc
@needs_cmake
@pytest.mark.parametrize("extents", [(256, 256, 256), (1000, 1000, 1000), (1024, 1024, 1024), (35, 79, 19)])
def test_optimizer_on_a_gpu(program, extents):
    m, n, k = extents
    result = run(program("optimizer"), "--m", m, "--n", n, "--k", k, "--sweep", "--check")
    assert result.returncode == 0, result.stderr
    assert ("matmulVectorFast left out" in result.stdout) == (n % 4 != 0 or k % 4 != 0)
