"""CPU-loop room: the suite's kernel 0, compiled by this machine's C++ compiler and called from Python."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

import numpy as np


class NoCompiler(RuntimeError):
    """There is no C++ compiler here, or it does not compile the loop; the message says what was tried."""


@cache
def _library() -> ctypes.CDLL:
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise NoCompiler("kernel 0 is compiled C++ and there is no c++, g++ or clang++ here: install one (g++)")
    source = Path(__file__).parents[1] / "optimizer" / "cpu_loop.cpp"
    folder = tempfile.mkdtemp(prefix="gpudays-")
    try:
        target = Path(folder) / "libcpu_loop.so"
        command = [compiler, "-O3", "-shared", "-fPIC", "-o", str(target), str(source)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if ran.returncode:
            raise NoCompiler(f"{' '.join(command)}: {ran.stderr.strip()[-400:]}")
        return ctypes.CDLL(str(target))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def multiply(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """C = A·B by three loops on one thread: float32, C-contiguous, shapes (m, k), (k, n) and (m, n).

    Raises:
        NoCompiler: nothing here compiles it.
        ValueError: an array of another dtype, shape or layout.
    """
    (m, k), n = a.shape, b.shape[1]
    for name, array, shape in (("A", a, (m, k)), ("B", b, (k, n)), ("C", c, (m, n))):
        if array.dtype != np.float32 or array.shape != shape or not array.flags.c_contiguous:
            raise ValueError(f"{name} has to be a C-contiguous float32 array of shape {shape}")
    pointers = (array.ctypes.data_as(ctypes.c_void_p) for array in (a, b, c))
    _library().matmulCpu(*pointers, m, n, k)


def timed(a: np.ndarray, b: np.ndarray, repeats: int) -> tuple[float, ...]:
    """Milliseconds of each of some runs, by the monotonic clock; the loop returns when it is done."""
    c = np.empty((a.shape[0], b.shape[1]), np.float32)
    multiply(a[:1], b, c[:1])  # compiles and touches B
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        multiply(a, b, c)
        samples.append(1e3 * (time.perf_counter() - start))
    return tuple(samples)
