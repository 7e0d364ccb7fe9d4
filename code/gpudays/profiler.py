"""Profiler room: Nsight Compute as a child process, its refusals recognised and said in one line.

Counters need administrator rights or a driver loaded with ``NVreg_RestrictProfilingToAdminUsers=0``: NVIDIA,
developer.nvidia.com/ERR_NVGPUCTRPERM. Nothing inside a container changes that.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from gpudays import gpu, measurements, metrics, ncu_csv

CLOCK_CONTROL = "none"  # never change a card's clocks unasked; relative counters do not depend on them
PARAMETERS = "/proc/driver/nvidia/params"
METRICS = metrics.COUNTED_BY_ADDRESS + metrics.COUNTED_BY_HARDWARE
_PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda*/bin/ncu")


@dataclass(frozen=True)
class Permission:
    """Whether counters can be read here.

    Attributes:
        allowed: they can.
        code: "allowed", "no-gpu", "no-ncu", "permission", "no-provider", "in-use", "unsupported", "no-kernels",
            "time-out" or "failed".
        line: one line that says which and why.
    """

    allowed: bool
    code: str
    line: str


class ProfilerRefused(RuntimeError):
    """ncu gave no counters; ``permission`` says why."""

    def __init__(self, permission: Permission, log: str = "") -> None:
        self.permission, self.log = permission, log
        super().__init__(permission.line)


_ELSE = "Counts that addresses decide are traced instead; the rest come from the shipped exports."
# Phrases of ncu's log, in the order in which they decide.
_REFUSALS = (
    (r"ERR_NVGPUCTRPERM|does not have permission to access NVIDIA GPU Performance Counters", "permission",
     "counters refused (ERR_NVGPUCTRPERM): the host's driver keeps them to administrators; neither the image nor the "
     "kernel can change it."),
    (r"(no|find|load|create)[^\n]{0,40}provider", "no-provider",
     "counters refused (no provider found): this rented or virtual GPU offers no performance counters."),
    (r"driver resource (was )?unavailable|another (tool|profiler)|concurrently (collecting|profil)", "in-use",
     "counters are in use by another tool (a monitoring service such as DCGM)."),
    (r"(not supported|unsupported)[^\n]*(device|GPU|vGPU|MIG)|(device|GPU)[^\n]*(not supported|unsupported)",
     "unsupported", "counters unavailable: this ncu does not support this GPU."),
    (r"No kernels were profiled", "no-kernels", "ncu ran and saw no kernel of the name asked for."),
)  # fmt: skip


def classify(log: str, returncode: int) -> Permission:
    """What a log of ncu that brought no counters means."""
    for pattern, code, line in _REFUSALS:
        if re.search(pattern, log, re.IGNORECASE):
            return Permission(False, code, f"{line} {_ELSE}")
    lines = [line.strip() for line in log.splitlines() if line.strip()] or ["nothing was said"]
    errors = [line.removeprefix("==ERROR==").strip() for line in lines if line.startswith("==ERROR==")]
    said = "; ".join(dict.fromkeys([*errors[:1], lines[-1]]))  # the last line is the program's own, if it failed
    return Permission(False, "failed", f"ncu gave no counters (exit {returncode}): {said[:300]}. {_ELSE}")


def unknown_metrics(log: str, wanted: Sequence[str]) -> list[str]:
    """The metrics asked for that ncu's errors name: not every card has every counter."""
    errors = "\n".join(line for line in log.splitlines() if line.startswith("==ERROR=="))
    return [name for name in wanted if name in errors]


def find_ncu() -> str | None:
    """The path of ncu: on the PATH, or where CUDA and Nsight Compute install it; the newest of several."""
    if found := shutil.which("ncu"):
        return found
    places = [path for pattern in _PLACES for path in sorted(glob.glob(pattern), reverse=True)]
    return next((path for path in places if os.access(path, os.X_OK)), None)


def ncu_version() -> str:
    """ "2025.3.1.0", or "" where there is no ncu."""
    ncu = find_ncu()
    if ncu is None:
        return ""
    said = subprocess.run([ncu, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"Version (\S+)", said)
    return found[1] if found else said.strip()


def kept_to_administrators(path: str = PARAMETERS) -> bool | None:
    """What the driver says about counters: kept to administrators (True), free to all, or nothing (None)."""
    try:
        found = re.search(r"RmProfilingAdminOnly:\s*(\d)", Path(path).read_text(encoding="utf-8"))
    except OSError:
        return None
    return found[1] == "1" if found else None


@lru_cache(maxsize=1)
def counters_allowed() -> Permission:
    """Try it: profile one tiny kernel in a child process. The answer is kept for this process."""
    if gpu.device() is None:
        return Permission(False, "no-gpu", f"no counters without a GPU ({gpu.why_no_gpu()}). {_ELSE}")
    if find_ncu() is None:
        line = "no ncu here: it comes with the CUDA toolkit or as the package nsight-compute."
        return Permission(False, "no-ncu", f"{line} {_ELSE}")
    probe = Launch("probe", 1, (1,), (32,), [np.zeros(32, np.float32)])
    source = 'extern "C" __global__ void probe(float* y) { y[threadIdx.x] = threadIdx.x; }'
    try:
        count(source, [probe], ("smsp__inst_executed.sum", *metrics.COUNTED_BY_ADDRESS[:1]), timeout=120)
    except ProfilerRefused as refused:
        return _with_driver(refused.permission)
    return Permission(True, "allowed", f"counters allowed: ncu {ncu_version()} reads them live")


def _with_driver(permission: Permission) -> Permission:
    """A refusal with the driver's own setting added."""
    if permission.code != "permission" or kept_to_administrators() is None:
        return permission
    setting = f"RmProfilingAdminOnly: {int(bool(kept_to_administrators()))} in {PARAMETERS}"
    return Permission(False, permission.code, permission.line.replace(_ELSE, f"({setting}.) {_ELSE}"))


@dataclass(frozen=True)
class Launch:
    """A launch to count: the kernel, the size it is labelled with, and what `gpu.launch` takes."""

    kernel: str
    n: int | str
    grid: Sequence[int]
    block: Sequence[int]
    args: Sequence[object]
    shared_bytes: int = 0


def command(
    program: Sequence[str],
    wanted: Sequence[str] = METRICS,
    kernels: Sequence[str] = (),
    launch_count: int | None = None,
    clock_control: str = CLOCK_CONTROL,
    more: Sequence[str] = (),
) -> list[str]:
    """The ncu command line that counts named metrics of a program's kernels.

    Args:
        program: the command to profile.
        wanted: metric names.
        kernels: names of the kernels to count (default: all).
        launch_count: stop after so many matching launches.
        clock_control: "none" or "base".
        more: further options.

    Raises:
        ProfilerRefused: no ncu.
    """
    ncu = find_ncu()
    if ncu is None:
        raise ProfilerRefused(Permission(False, "no-ncu", f"no ncu here. {_ELSE}"))
    bases = dict.fromkeys(re.escape(name.split("<", 1)[0].rsplit("::", 1)[-1]) for name in kernels)
    filters = ["-k", f"regex:^({'|'.join(bases)})$"] if bases else []
    counted = ["--launch-count", str(launch_count)] if launch_count else []
    named = ["--metrics", ",".join(wanted)] if wanted else []
    return [ncu, "--clock-control", clock_control, *filters, *counted, *named, *more, *program]


def profile(
    program: Sequence[str],
    wanted: Sequence[str] = METRICS,
    kernels: Sequence[str] = (),
    launch_count: int | None = None,
    clock_control: str = CLOCK_CONTROL,
    timeout: float | None = None,
    environment: dict[str, str] | None = None,
) -> ncu_csv.Counters:
    """Run a program under ncu and read its counters.

    Arguments as in `command`; ``timeout`` in seconds, ``environment`` variables added to this process's.

    Raises:
        ProfilerRefused: no ncu, or no counters; says why. Never an empty table.
    """
    log, ran = _run(command(program, wanted, kernels, launch_count, clock_control), timeout, environment or {})
    everything = "\n".join([log, ran.stdout, ran.stderr])
    try:
        counters = ncu_csv.parse(log)
    except ncu_csv.CounterTableError:
        counters = None
    if counters is not None and not counters.rows.empty:
        return counters
    unknown = unknown_metrics(everything, wanted)
    if unknown and len(unknown) < len(wanted):
        fewer = [name for name in wanted if name not in unknown]
        return profile(program, fewer, kernels, launch_count, clock_control, timeout, environment)
    raise ProfilerRefused(classify(everything, ran.returncode), everything)


def _run(
    line: list[str], timeout: float | None, environment: dict[str, str]
) -> tuple[str, subprocess.CompletedProcess[str]]:
    """Run an ncu command line; returns what ncu wrote, apart from what the program wrote, and the process."""
    ncu, *rest = line
    with tempfile.TemporaryDirectory(prefix="gpudays-") as folder:
        log_file = Path(folder, "ncu.csv")
        full = [ncu, "--csv", "--print-units", "base", "--log-file", str(log_file), *rest]
        variables = {**os.environ, **environment, "LC_ALL": "C"}  # ncu writes numbers as the locale does
        try:
            ran = subprocess.run(full, capture_output=True, text=True, env=variables, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            permission = Permission(False, "time-out", f"ncu did not finish within {timeout:.0f} s. {_ELSE}")
            raise ProfilerRefused(permission) from None
        return log_file.read_text(encoding="utf-8", errors="replace") if log_file.exists() else "", ran


def count(
    source: str,
    launches: Sequence[Launch],
    wanted: Sequence[str] = METRICS,
    options: tuple[str, ...] = (),
    clock_control: str = CLOCK_CONTROL,
    timeout: float | None = 600,
) -> pd.DataFrame:
    """Count launches of a page's kernels live: a child process launches them under ncu.

    Args:
        source: the page's CUDA C++.
        launches: what to launch, in order.
        wanted: metric names.
        options: further NVRTC options.

    Returns:
        The tidy table, source "live", with sectors per request added.

    Raises:
        ProfilerRefused: no counters; says why.
    """
    card = gpu.device()
    if card is None:
        raise ProfilerRefused(Permission(False, "no-gpu", f"no counters without a GPU ({gpu.why_no_gpu()}). {_ELSE}"))
    with tempfile.TemporaryDirectory(prefix="gpudays-") as folder:
        script = write_script(Path(folder), source, launches, options)
        names = [launch.kernel for launch in launches]
        package = str(Path(__file__).parents[1])
        path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
        counters = profile(
            [sys.executable, str(script)], wanted, names, len(launches), clock_control, timeout, {"PYTHONPATH": path}
        )
    rows = counters.rows
    seen = sorted(rows["launch"].unique())
    if len(seen) != len(launches):
        line = f"ncu counted {len(seen)} of {len(launches)} launches. {_ELSE}"
        raise ProfilerRefused(Permission(False, "failed", line))
    tables = []
    for launch, number in zip(launches, seen, strict=True):
        own = rows[rows["launch"].eq(number)]
        values = dict(zip(own["metric"], own["value"], strict=True))
        tables.append(measurements.table(launch.kernel, launch.n, values, "live", card.name))
    return measurements.with_derived(measurements.concat(tables))


_SCRIPT = '''"""Launches a page's kernels once each, for ncu to count; written by gpudays.profiler."""
import json
from pathlib import Path

import numpy as np

from gpudays import gpu

here = Path(__file__).parent
plan = json.loads((here / "plan.json").read_text())
source = (here / "kernel.cu").read_text()
for step in plan["launches"]:
    args = [np.load(here / a["file"]) if "file" in a else np.dtype(a["dtype"]).type(a["value"]) for a in step["args"]]
    options = tuple(plan["options"])
    gpu.launch(source, step["kernel"], step["grid"], step["block"], args, step["shared_bytes"], options)
'''


def write_script(folder: Path, source: str, launches: Sequence[Launch], options: tuple[str, ...] = ()) -> Path:
    """Write a Python script that launches kernels in order, with their arrays beside it; returns its path."""
    files: dict[int, str] = {}

    def described(arg) -> dict:
        if getattr(arg, "ndim", 0) == 0:
            return {"dtype": str(arg.dtype), "value": arg.item()}
        if id(arg) not in files:
            files[id(arg)] = f"array{len(files)}.npy"
            np.save(folder / files[id(arg)], arg if isinstance(arg, np.ndarray) else arg.get())
        return {"file": files[id(arg)]}

    plan = [
        {
            "kernel": launch.kernel,
            "grid": [int(g) for g in launch.grid],
            "block": [int(b) for b in launch.block],
            "shared_bytes": launch.shared_bytes,
            "args": [described(arg) for arg in launch.args],
        }
        for launch in launches
    ]
    (folder / "kernel.cu").write_text(source, encoding="utf-8")
    (folder / "plan.json").write_text(json.dumps({"launches": plan, "options": list(options)}), encoding="utf-8")
    script = folder / "launches.py"
    script.write_text(_SCRIPT, encoding="utf-8")
    return script
