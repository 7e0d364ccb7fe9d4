"""The way in: the first cell of every page, and what that cell installs. Imports nothing but the standard library.

``CELL`` is the one text that all pages carry; ``gpudays stamp`` writes it, with the repository of ``_config.yml``, into
each page and its notebook. The cell runs ``install_missing`` from this file by its path, so that it works in an
environment that has none of the course's packages yet.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

TAGS = ["hide-input", "nbval-ignore-output"]
MARK = "# @title First: the course itself"

CELL = """\
# @title First: the course itself, beside this page, installed, or fetched from its repository
REPOSITORY, BRANCH = {url}, {branch}  # written by `gpudays stamp` from _config.yml

import importlib.util, pathlib, runpy, subprocess, sys

here = pathlib.Path.cwd()
for folder in [here, *here.parents, here / "matmul-days"]:
    if (folder / "code/gpudays/first_cell.py").is_file():
        sys.path.insert(0, str(folder / "code"))
        break
if importlib.util.find_spec("gpudays") is None:
    if not REPOSITORY:
        raise RuntimeError("Set REPOSITORY, above, to the address of the course's git repository, then run this cell.")
    clone = ["git", "clone", "--quiet", "--depth", "1", "--branch", BRANCH, REPOSITORY, "matmul-days"]
    fetched = subprocess.run(clone, capture_output=True, text=True)
    if fetched.returncode:
        raise RuntimeError(f"The course could not be fetched from {{REPOSITORY}}: {{fetched.stderr}}")
    sys.path.insert(0, str(here / "matmul-days/code"))
course = pathlib.Path(importlib.util.find_spec("gpudays").origin).parent
installed = runpy.run_path(str(course / "first_cell.py"))["install_missing"]()
"""

# Module -> requirement, as in pyproject.toml (a test compares them). What is there and new enough is left alone.
REQUIREMENTS = {
    "numpy": "numpy>=1.26",
    "pandas": "pandas>=2.2",
    "matplotlib": "matplotlib>=3.8",
    "llvmlite": "llvmlite>=0.44",
    "platformdirs": "platformdirs>=3",
    "typer": "typer>=0.12",
    "rich": "rich>=13",
    "ipywidgets": "ipywidgets>=7.7",
}
CUDA_12 = ["nvidia-cuda-nvrtc-cu12", "nvidia-cuda-runtime-cu12"]
CUDA_13 = ["nvidia-cuda-nvrtc>=13,<14", "nvidia-cuda-runtime>=13,<14"]

# Asked in a process of its own: a library that failed to load once may not be tried again in this one.
NVRTC_LOADS = "from cupy_backends.cuda.libs import nvrtc; nvrtc.getVersion()"


def cell_source(url: str, branch: str) -> str:
    """The first cell's text for a repository, without a final newline. An empty `url` means: not yet published."""
    return CELL.format(url=json.dumps(url), branch=json.dumps(branch)).rstrip("\n")


def install_missing() -> list[str]:
    """Install with pip what this interpreter lacks, and nothing else; an importable CuPy is never touched.

    Returns:
        The requirements that were installed, in order; empty when nothing was missing.

    Raises:
        RuntimeError: no CUDA compiler exists for this system, or pip failed (its last lines are in the message).
    """
    wanted = [needed for module, needed in REQUIREMENTS.items() if not _importable(module) or _too_old(needed)]
    wanted += cuda_wanted()
    if wanted:
        print("Installing", ", ".join(wanted), "…", flush=True)
        _pip(wanted)
    return wanted


def cuda_wanted() -> list[str]:
    """The requirements that bring CuPy and NVRTC to this machine: none, when both are there."""
    if not _importable("cupy"):
        if sys.platform == "darwin":
            raise RuntimeError(
                "CUDA's compiler does not exist for macOS. Open this page in Colab, or in the course's dev container "
                "(docker and `.devcontainer/`): see the page 'Windows and macOS'."
            )
        if gpu_there() and not _toolkit_there():
            return ["cupy-cuda12x[ctk]"]
        return ["cupy-cuda12x", *([] if gpu_there() else CUDA_12)]
    if subprocess.run([sys.executable, "-c", NVRTC_LOADS], capture_output=True).returncode == 0:
        return []
    return CUDA_13 if _installed("cupy-cuda13x") else CUDA_12


def gpu_there() -> bool:
    """Whether NVIDIA's driver is loaded and counts at least one device."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def _toolkit_there() -> bool:
    return bool(shutil.which("nvcc") or os.environ.get("CUDA_PATH") or Path("/usr/local/cuda").exists())


def _importable(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _too_old(requirement: str) -> bool:
    """Whether what is installed is older than ``name>=version`` asks for; no, where no version is recorded."""
    name, _, least = requirement.partition(">=")
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return _numbers(found) < _numbers(least)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3]]


def _pip(requirements: list[str]) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-6:])
        raise RuntimeError(f"pip could not install {' '.join(requirements)}:\n{said}")
    importlib.invalidate_caches()
