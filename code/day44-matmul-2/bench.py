"""Tuning room of Day 44: compile many configurations of a kernel, check every one, time them side by side on one GPU.

Needs a CUDA GPU and CuPy. Configurations are compiled by NVRTC in parallel processes; each is checked against float64
at sizes that divide nothing before it is timed; the timed launches of all configurations and of cuBLAS (FP32, TF32 off)
are interleaved, so that a drift of the clock hits all alike.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import cupy
import numpy as np

ODD_SIZES = (1, 17, 130, 260, 513, 1000)  # 260 and 1000 are multiples of 4, but not of a tile
TOLERANCE = 1e-5  # largest error over largest |C|, against float64; float32 sums of 4096 terms stay far below it
GUARD = 1024  # floats behind C that no kernel may touch
CUBLAS = "cuBLAS"


@dataclass(frozen=True)
class Config:
    """One kernel to compile: ``label`` names it, ``macros`` become -D options, the rest is its launch geometry."""

    label: str
    kernel: str
    source: str
    macros: dict[str, str] = field(default_factory=dict, hash=False)
    bm: int = 128
    bn: int = 128
    threads: int | tuple[int, int] = 256
    shared_bytes: int = 0  # dynamic shared memory

    def grid(self, n: int) -> tuple[int, int]:
        """Blocks over (columns, rows)."""
        return (-(-n // self.bn), -(-n // self.bm))

    def block(self) -> tuple[int, ...]:
        return self.threads if isinstance(self.threads, tuple) else (self.threads,)


@dataclass
class Built:
    """A compiled configuration: its cubin, or the reason there is none; registers and spills as ptxas reports them."""

    config: Config
    cubin: bytes = b""
    registers: int = 0
    spill_stores: int = 0  # bytes
    spill_loads: int = 0
    static_shared: int = 0
    problem: str = ""


def build(config: Config, arch: str = "sm_90") -> Built:
    """Compile one configuration with NVRTC (no GPU needed)."""
    from cupy_backends.cuda.libs import nvrtc

    program = nvrtc.createProgram(config.source, config.label + ".cu", [], [])
    # Without --no-cache a second compilation of the same source may come from NVRTC's cache, with an empty log.
    options = ["-std=c++17", f"-arch={arch}", "--ptxas-options=-v", "--no-cache"]
    options += [f"-D{name}={value}" for name, value in config.macros.items()]
    try:
        nvrtc.compileProgram(program, options)
    except nvrtc.NVRTCError:
        return Built(config, problem=nvrtc.getProgramLog(program)[-600:])
    log = nvrtc.getProgramLog(program)
    report = log[log.index(f"'{config.kernel}'") :]  # ptxas reports kernel by kernel
    number = lambda pattern: int(found[1]) if (found := re.search(pattern, report)) else 0  # noqa: E731
    return Built(
        config,
        bytes(nvrtc.getCUBIN(program)),
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes spill stores"),
        number(r"(\d+) bytes spill loads"),
        number(r"(\d+) bytes smem"),
    )


def build_all(configs: Sequence[Config], processes: int = 16) -> list[Built]:
    """Compile in parallel processes, in the order given."""
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(build, configs))


class Bench:
    """Launches, checks and times built configurations and cuBLAS on the current device."""

    def __init__(self, built: Iterable[Built]):
        self.folder = tempfile.TemporaryDirectory()
        self.launchers: dict[str, Callable] = {CUBLAS: self._cublas()}
        self.built = {}
        self.kernels = {}
        for index, one in enumerate(built):
            if not one.problem:
                self.launchers[one.config.label] = self._launcher(one, index)
                self.built[one.config.label] = one
        # Holds the GPU back while the CPU queues a batch, so that launch overhead on the CPU is not timed.
        self.hold = cupy.RawKernel(
            'extern "C" __global__ void hold(long long cycles) '
            "{ const long long start = clock64(); while (clock64() - start < cycles) {} }",
            "hold",
        )

    def _launcher(self, one: Built, index: int) -> Callable:
        path = Path(self.folder.name) / f"{index}.cubin"
        path.write_bytes(one.cubin)
        kernel = cupy.RawModule(path=str(path)).get_function(one.config.kernel)
        if one.config.shared_bytes > 48 * 1024:
            kernel.max_dynamic_shared_size_bytes = one.config.shared_bytes
        config = one.config
        self.kernels[config.label] = kernel

        def launch(a, b, c, n):
            kernel(config.grid(n), config.block(), (a, b, c, np.uint64(n)), shared_mem=config.shared_bytes)

        return launch

    @staticmethod
    def _cublas() -> Callable:
        from cupy_backends.cuda.libs import cublas

        handle = cupy.cuda.device.get_cublas_handle()
        cublas.setMathMode(handle, 0)  # CUBLAS_DEFAULT_MATH: FP32, no TF32
        one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)

        def launch(a, b, c, n):  # cuBLAS is column-major: C^T = B^T A^T is the same memory
            pointers = (b.data.ptr, n, a.data.ptr, n)
            cublas.sgemm(handle, 0, 0, n, n, n, one.ctypes.data, *pointers, zero.ctypes.data, c.data.ptr, n)

        return launch

    def blocks_per_multiprocessor(self, label: str) -> int:
        """Blocks of a configuration that fit on one multiprocessor at a time."""
        config = self.built[label].config
        return cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            self.kernels[label].kernel.ptr, int(np.prod(config.block())), config.shared_bytes
        )

    def error(self, label: str, n: int, reference=None) -> float:
        """Largest error over largest |C| against float64, on fresh random input; inf for NaN or a write behind C."""
        if reference is None:
            reference = problem(n)
        a, b, exact = reference
        c = cupy.full(n * n + GUARD, cupy.nan, cupy.float32)
        self.launchers[label](a, b, c, n)
        cupy.cuda.runtime.deviceSynchronize()
        found, behind = c[: n * n].reshape(n, n), c[n * n :]
        if not bool(cupy.isnan(behind).all()) or bool(cupy.isnan(found).any()):
            return float("inf")
        return float(cupy.abs(found - exact).max() / cupy.abs(exact).max())

    def wrong(self, sizes: Sequence[int] = ODD_SIZES) -> dict[str, str]:
        """Labels of the configurations that miss the tolerance at some size, with what was seen."""
        found: dict[str, str] = {}
        for n in sizes:
            reference = problem(n)
            for label in self.launchers:
                if label in found:
                    continue
                error = self.error(label, n, reference)
                if not error < TOLERANCE:
                    found[label] = f"n = {n}: relative error {error:.3g}"
        for label in found:
            self.launchers.pop(label)
        return found

    def times(self, n: int, repeats: int = 10, labels: Sequence[str] | None = None, warm_up: int = 3) -> dict:
        """Milliseconds of each launch, interleaved: {label: array of ``repeats``}."""
        labels = list(self.launchers) if labels is None else [x for x in labels if x in self.launchers]
        a, b, _ = problem(n, exact=False)
        c = cupy.empty(n * n, cupy.float32)
        events = {label: [] for label in labels}
        for turn in range(warm_up + repeats):
            for first in range(0, len(labels), 8):  # eight launches take the CPU less than one hold
                self.hold((1,), (1,), (np.int64(800_000),))
                for label in labels[first : first + 8]:
                    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
                    start.record()
                    self.launchers[label](a, b, c, n)
                    stop.record()
                    if turn >= warm_up:
                        events[label].append((start, stop))
                cupy.cuda.runtime.deviceSynchronize()
        return {
            label: np.array([cupy.cuda.get_elapsed_time(start, stop) for start, stop in pairs])
            for label, pairs in events.items()
        }


def problem(n: int, exact: bool = True):
    """Random float32 A and B (n × n, row-major) and their product in float64 (or None)."""
    rng = cupy.random.default_rng(n)
    a = rng.standard_normal((n, n), dtype=cupy.float32)
    b = rng.standard_normal((n, n), dtype=cupy.float32)
    return a, b, (a.astype(cupy.float64) @ b.astype(cupy.float64) if exact else None)


def rows_of(times: dict, n: int) -> list[dict]:
    """One row per label: median, smallest and largest milliseconds, GFLOP/s and the fraction of cuBLAS in this run."""
    ceiling = np.median(times[CUBLAS])
    return [
        {
            "label": label,
            "n": n,
            "ms_median": float(np.median(t)),
            "ms_min": float(t.min()),
            "ms_max": float(t.max()),
            "gflops": 2 * n**3 / float(np.median(t)) / 1e6,
            "fraction_of_cublas": float(ceiling / np.median(t)),
        }
        for label, t in times.items()
    ]


def card() -> str:
    """The device's name, as in "NVIDIA H200"."""
    return cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()


def threads_per_multiprocessor() -> int:
    """Threads that fit on one multiprocessor of the device, at most."""
    return cupy.cuda.runtime.getDeviceProperties(0)["maxThreadsPerMultiProcessor"]
