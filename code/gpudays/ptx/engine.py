"""Tracer, room 12: the way in — PTX and a launch go in, arrays change in place, counts and findings come out."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from gpudays.ptx import model, parser
from gpudays.ptx.kernel import CompiledKernel, compile_kernel
from gpudays.ptx.launch import Launch, Outcome
from gpudays.ptx.model import Finding, LaunchError, Touch

MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
# Dynamic shared memory beyond 48 KiB needs an opt-in; this is the most a block can opt into.
# Source: NVIDIA, "CUDA C++ Programming Guide", "Technical Specifications per Compute Capability".
SHARED_LIMIT = {75: 65536, 80: 166912, 86: 101376, 89: 101376, 90: 232448, 100: 232448, 120: 101376}
STATIC_SHARED_LIMIT = 49152
THREADS = "GPUDAYS_THREADS"


@dataclass
class Result:
    """What one launch did.

    `rows` is a list of (line, metric, value); `total` the kernel's sum per metric; `findings` what was caught;
    `stopped` says that the launch was given up early, so that counts and results are of a part.
    """

    rows: list[tuple[int, str, int]]
    total: dict[str, float]
    findings: list[Finding]
    blocks_run: int
    blocks_total: int
    warp_instructions: int
    seconds: float
    printed: str = ""
    stopped: bool = False
    notes: list[str] = field(default_factory=list)
    touched: list[Touch] = field(default_factory=list)


@lru_cache(maxsize=64)
def parse_cached(text: str, kernel: str) -> tuple[parser.Module, str]:
    """The module of a PTX text, as far as one of its kernels needs it, and a key that tells it from others.

    Raises:
        PtxSyntaxError, LaunchError (there is no such kernel).
    """
    module = parser.parse(without_others(text, kernel))
    if kernel not in module.kernels:
        known = ", ".join(parser.parse(text).kernels) or "none"
        raise LaunchError(f"no kernel {kernel} in this PTX; it has {known}")
    return module, hashlib.sha256(text.encode()).hexdigest()


# A kernel as NVRTC and nvcc write it: from the first column to a brace in the first column.
_ENTRY = re.compile(r"^(?:\.visible |\.weak )?\.entry ([\w$%.]+)\(.*?^\}$", re.MULTILINE | re.DOTALL)


# A module's variable on a line of its own, as both write it. CUDA's cooperative groups alone bring a thousand.
_VARIABLE = re.compile(
    r"^(?:\.visible |\.weak )?\.(?:global|const) [^={\n]*?([\w$]+)(?:\[\d*\])*(?: = .*)?;$", re.MULTILINE
)
_NAME = re.compile(r"[\w$]+")


def without_others(text: str, kernel: str) -> str:
    """PTX without its other kernels, which none can call, and without the variables that nothing in it names.

    Lines keep their numbers. PTX set otherwise stays whole.
    """

    def blank(found: re.Match) -> str:
        alone = len(re.findall(r"\.(?:entry|func)\b", found[0])) == 1
        return found[0] if found[1] == kernel or not alone else "\n" * found[0].count("\n")

    return _without_unnamed(_ENTRY.sub(blank, text))


def _without_unnamed(text: str) -> str:
    """PTX without the variables that nothing in it names; what only such a variable names goes with it."""
    while variables := _VARIABLE.findall(text):
        named = Counter(_NAME.findall(text))
        unnamed = {name for name in variables if named[name] == 1}
        if not unnamed:
            break
        text = _VARIABLE.sub(lambda found: "" if found[1] in unnamed else found[0], text)  # noqa: B023  (used at once)
    return text


def prepare(text: str, name: str) -> None:
    """Compile ahead, and with care, what kernel `name` of PTX `text` calls, for it and for all others of its like.

    Raises:
        PtxSyntaxError, UnsupportedInstruction.
    """
    module, key = parse_cached(text, name)
    compile_kernel(module, name, True, key).native.prepare()


def execute(
    text: str,
    name: str,
    grid: Sequence[int] | int,
    block: Sequence[int] | int,
    args: Sequence,
    shared_bytes: int = 0,
    blocks: Sequence[Sequence[int]] | None = None,
    budget: int | None = None,
    check_races: bool = True,
    names: Sequence[str] = (),
    threads: int | None = None,
) -> Result:
    """Run kernel `name` of PTX `text`.

    Args:
        text: PTX.
        name: the kernel's name in the PTX.
        grid, block: up to three sizes, (x, y, z).
        args: NumPy arrays (device buffers, changed in place) and NumPy scalars, in the kernel's order.
        shared_bytes: dynamic shared memory.
        blocks: block indices (x, y, z) to run instead of all.
        budget: warp instructions that one warp may run before that is reported.
        check_races: whether shared memory is watched for races and uninitialised reads.
        names: the parameters' names, for messages.
        threads: OS threads at most (default: ``default_threads()``).

    Raises:
        PtxSyntaxError, UnsupportedInstruction, LaunchError.
    """
    module, key = parse_cached(text, name)
    grid3, block3 = _three(grid, "grid"), _three(block, "block")
    check_arguments(module.kernels[name], args, names)
    kernel = compile_kernel(module, name, check_races, key)
    check_launch(kernel, grid3, block3, shared_bytes, module.target)
    order = linear_blocks(blocks, grid3)
    launch = Launch(kernel, grid3, block3, args, shared_bytes, order, budget, threads or default_threads(), names)
    return summarise(kernel, launch.run(), grid3, block3)


def default_threads() -> int:
    """On how many OS threads a launch may run: ``$GPUDAYS_THREADS``, or the machine's cores, at most 8.

    One is best where several processes trace side by side, as when a class is graded.

    Raises:
        ValueError: the variable is no whole number of at least 1.
    """
    asked = os.environ.get(THREADS)
    if not asked:
        return min(8, os.cpu_count() or 1)
    if not asked.isdecimal() or int(asked) < 1:
        raise ValueError(f"{THREADS}={asked!r}: it must be a whole number of at least 1")
    return int(asked)


def _three(size: Sequence[int] | int, what: str) -> tuple[int, int, int]:
    try:
        given = tuple(int(v) for v in (size if np.ndim(size) else (size,)))
    except (TypeError, ValueError):
        raise LaunchError(f"{what}={size!r}: it must be one to three whole numbers (x, y, z)") from None
    if not 1 <= len(given) <= 3:
        raise LaunchError(f"{what}={size!r}: it must be one to three whole numbers (x, y, z)")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def check_arguments(function: parser.Function, args: Sequence, names: Sequence[str] = ()) -> None:
    """Raise LaunchError unless the arguments fit the kernel's parameters in number, kind and size."""
    params = function.params
    check_count(function.name, len(params), args)
    for n, (p, value) in enumerate(zip(params, args, strict=True)):
        what = f"argument {n}" + (f" ({names[n]})" if n < len(names) and names[n] else "")
        if isinstance(value, np.ndarray):
            if p.size != 8:
                raise LaunchError(f"{what} of {function.name} is {p.size} bytes, not a pointer: give a NumPy scalar")
            if value.dtype.hasobject:
                raise LaunchError(f"{what}: an array of Python objects cannot be device memory")
        elif isinstance(value, np.generic):
            if value.nbytes != p.size:
                raise LaunchError(
                    f"{what} of {function.name} has {p.size} bytes, {type(value).__name__} has {value.nbytes}: wrap it "
                    "in the NumPy type of the declared width"
                )
        else:
            raise LaunchError(
                f"{what} of {function.name} is a {type(value).__name__}: give a NumPy array for a pointer, a NumPy "
                "scalar such as np.int32(n) for anything else"
            )


def check_count(name: str, count: int, args: Sequence) -> None:
    """Raise LaunchError unless there are `count` arguments."""
    if len(args) != count:
        raise LaunchError(f"{name} takes {count} arguments, {len(args)} were given")


def check_launch(kernel: CompiledKernel, grid, block, shared_bytes: int, target: str) -> None:
    """Raise LaunchError where a card would refuse the configuration."""
    for what, size, limit in (("grid", grid, MAX_GRID), ("block", block, MAX_BLOCK)):
        for axis, n, most in zip("xyz", size, limit, strict=True):
            if not 1 <= n <= most:
                raise LaunchError(f"{what} {size}: {axis} is {n}, it must lie between 1 and {most}")
    threads = block[0] * block[1] * block[2]
    if threads > MAX_THREADS:
        raise LaunchError(f"block {block} has {threads} threads, a block can have at most {MAX_THREADS}")
    limits = kernel.function.limits
    for directive, sizes in limits.items():
        most = int(np.prod(sizes)) if sizes else 0
        if directive == "maxntid" and threads > most:
            raise LaunchError(f"block {block} has {threads} threads, __launch_bounds__ allows {most}")
        if directive == "reqntid" and tuple((*sizes, 1, 1)[:3]) != block:
            raise LaunchError(f"block {block}: the kernel requires {tuple((*sizes, 1, 1)[:3])}")
    if not isinstance(shared_bytes, int | np.integer) or shared_bytes < 0:
        raise LaunchError(f"shared_bytes={shared_bytes!r}: it must be a whole number of bytes, 0 or more")
    if kernel.shared_bytes > STATIC_SHARED_LIMIT:
        raise LaunchError(
            f"{kernel.shared_bytes} bytes of static shared memory, at most {STATIC_SHARED_LIMIT} are allowed"
        )
    version = int("".join(c for c in target.split(",")[0] if c.isdigit()) or 75)
    most = SHARED_LIMIT.get(version, STATIC_SHARED_LIMIT)
    total = kernel.shared_bytes + int(shared_bytes)
    if total > most:
        raise LaunchError(f"{total} bytes of shared memory per block, {target} has {most}")


def linear_blocks(blocks, grid: tuple[int, int, int]) -> np.ndarray | None:
    """Block indices (x, y, z) as linear ones."""
    if blocks is None:
        return None
    out = []
    for given in blocks:
        parts = tuple(int(v) for v in (given if np.ndim(given) else (given,)))
        x, y, z = (*parts, 0, 0)[:3]
        if len(parts) > 3 or not all(0 <= v < n for v, n in zip((x, y, z), grid, strict=True)):
            raise LaunchError(f"block index {given} lies outside of the grid {grid}")
        out.append(x + grid[0] * (y + grid[1] * z))
    if not out:
        raise LaunchError("blocks=[]: no block to run")
    return np.array(out, np.int64)


# ---- counters ------------------------------------------------------------------------------------------------------


def summarise(kernel: CompiledKernel, outcome: Outcome, grid, block) -> Result:
    """Counters by line and in total."""
    lines: dict[tuple[int, str], int] = {}

    def count(line: int, metric: str, value: int) -> None:
        if value:
            lines[line, metric] = lines.get((line, metric), 0) + int(value)

    loaded = stored = 0
    for site, (cost, conflicts, requests, lanes) in zip(kernel.code.sites, outcome.site_counts, strict=False):
        line = site.instruction.line
        if site.space == "shared" and site.instruction.parts[0] == "cp":
            continue  # what cp.async writes is no store to a card, whose counters of shared stores leave it out
        for metric, value in site_metrics(site.space, site.op, cost, conflicts, requests):
            count(line, metric, value)
        if site.space == "global":
            words = lanes * site.width / 4
            loaded += words if site.op == "ld" else 0
            stored += words if site.op == "st" else 0
    numbers, per_block = kernel.instructions_by_line
    by_line = outcome.block_counts.T @ per_block
    for metric, values in zip((model.WARP_INSTRUCTIONS, model.THREAD_INSTRUCTIONS), by_line.tolist(), strict=True):
        for line, value in zip(numbers, values, strict=True):
            count(line, metric, value)
    warp_total = int(by_line[0].sum())
    rows = [(line, metric, value) for (line, metric), value in sorted(lines.items())]
    total: dict[str, float] = dict.fromkeys(model.LINE_METRICS, 0)
    for _, metric, value in rows:
        total[metric] += value
    launched = outcome.blocks_run * block[0] * block[1] * block[2]
    total[model.LOADS_PER_THREAD] = per_thread(loaded, launched)
    total[model.STORES_PER_THREAD] = per_thread(stored, launched)
    return Result(
        rows, total, outcome.findings, outcome.blocks_run, int(np.prod(grid, dtype=np.int64)), warp_total,
        outcome.seconds, outcome.printed, outcome.stopped, outcome.notes, outcome.touched,
    )  # fmt: skip


def per_thread(words: float, threads: int) -> float:
    return float(words) / threads if threads else 0.0


def site_metrics(space: str, op: str, cost: int, conflicts: int, requests: int):
    """(metric, value) pairs of one memory instruction."""
    if space in ("global", "local"):
        return [(model.requests(space, op), requests), (model.sectors(space, op), cost)]
    if space == "shared" and op == "ld":
        names = (model.SHARED_LD_REQUESTS, model.SHARED_LD_WAVEFRONTS, model.SHARED_LD_CONFLICTS)
    elif space == "shared" and op == "st":
        names = (model.SHARED_ST_REQUESTS, model.SHARED_ST_WAVEFRONTS, model.SHARED_ST_CONFLICTS)
    else:
        return []
    return list(zip(names, (requests, cost, conflicts), strict=True))
