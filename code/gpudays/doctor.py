"""Doctor room: what this machine can do for the course, item by item, and what to do about what it lacks."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from gpudays import gpu, nvrtc, profiler

OLDEST_PYTHON = (3, 11)
TOOLKIT = "it comes with the CUDA toolkit (developer.nvidia.com/cuda-downloads)"


@dataclass(frozen=True)
class Item:
    """One thing looked at.

    Attributes:
        name: what.
        there: whether it is usable.
        found: version or place, or why not.
        needed: the pages cannot do without it.
        gives: what it is for.
        remedy: what to do when it is lacking.
    """

    name: str
    there: bool
    found: str
    needed: bool
    gives: str
    remedy: str = ""

    @property
    def verdict(self) -> str:
        return "ok" if self.there else "missing" if self.needed else "not here"


def examine(counters: bool = True) -> list[Item]:
    """Look at everything the course can use.

    Args:
        counters: also profile a tiny kernel to see whether counters are allowed, where there is a GPU and ncu.
    """
    looks: list[Callable[[], Item]] = [_python, _cupy, _nvrtc, _headers, _llvmlite, _driver, _gpu, _nvcc, _cmake, _ncu]
    items = [look() for look in looks]
    return [*items, _counters()] if counters else items


def usable(items: list[Item]) -> bool:
    """Whether the pages run here, with or without a GPU."""
    return all(item.there for item in items if item.needed)


def _python() -> Item:
    version = platform.python_version()
    remedy = f"install Python {'.'.join(map(str, OLDEST_PYTHON))} or newer"
    return Item("Python", sys.version_info >= OLDEST_PYTHON, version, True, "everything", remedy)


def installed(*names: str) -> list[str]:
    """Those of the packages that are installed, with their versions."""
    found = []
    for name in names:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _cupy() -> Item:
    wheels = installed("cupy-cuda12x", "cupy-cuda13x", "cupy-cuda11x", "cupy")
    gives = "the way to NVRTC, and on a GPU launches and times"
    if len(wheels) > 1:
        remedy = "keep the one that matches the driver: python -m pip uninstall the other"
        return Item("CuPy", False, f"{' and '.join(wheels)}: never two at once", True, gives, remedy)
    remedy = "python -m pip install cupy-cuda12x (on a GPU machine without a CUDA toolkit: 'cupy-cuda12x[ctk]')"
    return Item("CuPy", bool(wheels), wheels[0] if wheels else "not installed", True, gives, remedy)


def _nvrtc() -> Item:
    gives = "compiles the pages' CUDA C++, GPU or not"
    try:
        return Item("NVRTC", True, "{}.{}".format(*nvrtc.version()), True, gives)
    except nvrtc.NvrtcMissing as problem:
        why, *_, remedy = str(problem).splitlines()
        return Item("NVRTC", False, why, True, gives, remedy)


def _headers() -> Item:
    gives = "#include <cuda_fp16.h> and its like in a kernel"
    remedy = "python -m pip install nvidia-cuda-runtime-cu12"
    try:
        folders = [folder for folder in nvrtc.include_folders() if "_cccl" not in folder]
    except nvrtc.NvrtcMissing:
        folders = []
    return Item("CUDA headers", bool(folders), folders[0] if folders else "not found", False, gives, remedy)


def _llvmlite() -> Item:
    found = installed("llvmlite")
    remedy = "python -m pip install llvmlite"
    return Item("llvmlite", bool(found), "".join(found) or "not installed", True, "the tracer's engine", remedy)


def _driver() -> Item:
    found = gpu.driver_version()
    remedy = "on a machine with an NVIDIA GPU, install its driver; without one, the tracer does the work"
    return Item("NVIDIA driver", bool(found), found or "not loaded", False, "a GPU", remedy)


def _gpu() -> Item:
    card = gpu.device()
    remedy = "none needed: pages trace, and show shipped times; for live ones use Colab's T4 or a machine with a GPU"
    return Item("GPU", card is not None, str(card or gpu.why_no_gpu()), False, "live answers and times", remedy)


def _tool(name: str, gives: str, remedy: str, pattern: str) -> Item:
    path = shutil.which(name)
    if path is None:
        return Item(name, False, "not on the PATH", False, gives, remedy)
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
    found = re.search(pattern, said)
    return Item(name, True, found[1] if found else path, False, gives)


def _nvcc() -> Item:
    return _tool("nvcc", "the standalone programs", TOOLKIT, r"\bV(\d+\.\d+\.\d+)")


def _cmake() -> Item:
    return _tool("cmake", "building all programs at once", "python -m pip install cmake", r"version (\S+)")


def _ncu() -> Item:
    remedy = f"{TOOLKIT}, or alone as the package nsight-compute"
    found = profiler.find_ncu()
    version = profiler.ncu_version() if found else "not on the PATH, nor where CUDA installs it"
    return Item("ncu", bool(found), version, False, "hardware counters", remedy)


def _counters() -> Item:
    permission = profiler.counters_allowed()
    remedy = {
        "permission": "on a machine of your own: options nvidia NVreg_RestrictProfilingToAdminUsers=0 in "
        "/etc/modprobe.d, then reboot; in a container: --cap-add=SYS_ADMIN; on a rented machine: nothing, use the "
        "traced counts",
        "no-gpu": "none needed: counts that addresses decide are traced",
        "no-ncu": f"install ncu: {TOOLKIT}",
        "in-use": "stop the other tool, or use the traced counts",
    }.get(permission.code, "use the traced counts")
    return Item("counters", permission.allowed, permission.line, False, "live counts", remedy)
