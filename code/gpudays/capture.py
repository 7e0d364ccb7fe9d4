"""Capture room: measures a program on a GPU host and writes what the course ships of it, with evidence.

Every step that fails is told and the others go on, so that one missing tool costs one file. Nothing of the card's
settings is touched: clocks stay as they are (``--clock-control none``).
"""

from __future__ import annotations

import csv
import datetime
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpudays import gpu, metrics, ncu_csv, profiler, profiles

LARGEST_REPORT = 1_000_000  # bytes; a repository is no place for more
BARE = ("PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")  # what a report may hold of the environment
TIME_LIMIT = 300  # seconds for one command
SECTIONS = (
    "SpeedOfLight", "MemoryWorkloadAnalysis", "Occupancy", "LaunchStats", "WarpStateStats", "ComputeWorkloadAnalysis",
)  # fmt: skip
WANTED = metrics.COUNTED_BY_ADDRESS + metrics.COUNTED_BY_HARDWARE + metrics.EXPLAINING
# Nsight Systems writes every process's command line and environment into its report; here it sees none but its own.
ALONE = ("unshare", "--pid", "--fork", "--mount-proc")
NSYS_PLACES = ("/opt/nvidia/nsight-compute/*", "/usr/local/cuda*/nsight-compute*", "/opt/nvidia/nsight-systems/*")


@dataclass(frozen=True)
class Plan:
    """What is captured of one program.

    Attributes:
        name: as on the command line, "day43".
        title: of the evidence.
        folder: under ``content/profiles``; also how its files' names begin.
        sources: CUDA and C++ files under ``code``.
        kernels: those whose first launch at each size is profiled.
        sizes: label of the size and the program's arguments for it; the profiled launches are the first of each kernel.
        timings: the arguments of the timed runs, each given ``--csv FILE`` as well.
        flags: further words for nvcc.
        results: the name of the timing table.
    """

    name: str
    title: str
    folder: str
    sources: tuple[str, ...]
    kernels: tuple[str, ...]
    sizes: tuple[tuple[str, tuple[str, ...]], ...]
    timings: tuple[tuple[str, ...], ...]
    flags: tuple[str, ...] = ()
    results: str = ""

    @property
    def program(self) -> str:
        """The executable's name."""
        return Path(self.sources[0]).stem

    @property
    def timing_file(self) -> str:
        return self.results or f"{self.folder}.timing.csv"


def _cubes(*sides: int) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Day 16's sizes: its program takes M N K, and with --sweep the tiles of 8 and 32 as well."""
    return tuple((str(n), (str(n), str(n), str(n), "--sweep")) for n in sides)


CUBLAS = ("-DWITH_CUBLAS", "-lcublas")
PLANS: dict[str, Plan] = {
    plan.name: plan
    for plan in (
        Plan(
            "day16", "Day 16 · Tiled matrix multiply", "tiled-matmul", ("day16-tiled-matmul/matmul_tiled.cu",),
            ("matmulNaive", "matmulTiled", "matmulTiled8", "matmulTiled32"), _cubes(256, 512, 4096),
            tuple(arguments for _, arguments in _cubes(256, 512, 1024, 4096)),
        ),
        Plan(
            "day43", "Day 43 · Optimizing matrix multiply, part 1", "optimizing-matmul-1",
            ("day43-matmul-1/matmul_steps.cu",), ("matmulStridedRows", "matmulCoalescedCols", "matmulTiled"),
            (("512", ("512",)), ("1024", ("1024",))), ((),),
        ),
        Plan(
            "day44", "Day 44 · Optimizing matrix multiply, part 2", "optimizing-matmul-2",
            ("day44-matmul-2/matmul_registers.cu",),
            ("matmulRegisterTile", "matmulVectorLoads", "matmulWarpTiled", "matmulTiled"),
            (("1024", ("1024",)), ("4096", ("4096",))), ((),), CUBLAS, "results.csv",
        ),
        Plan(
            "optimizer", "The optimisation suite", "optimizer", ("optimizer/optimizer.cu", "optimizer/cpu_loop.cpp"),
            ("matmulNaive", "matmulTiled", "matmulVectorGuarded", "matmulVectorFast", "matmulCoarsened2x2"),
            tuple((str(n), ("--size", str(n), "--check")) for n in (256, 1024)),
            (("--size", "256"), ("--size", "1024", "--sweep"), ("--size", "4096")), CUBLAS, "results.csv",
        ),
    )
}  # fmt: skip


class StepFailed(RuntimeError):
    """One step of a capture did not work; the message says what was run and what it said, ``said`` all of it."""

    def __init__(self, message: str, said: str = "") -> None:
        self.said = said
        super().__init__(message)


@dataclass
class Run:
    """One capture under way: where things are, what was run, what failed."""

    plan: Plan
    root: Path
    output: Path
    build: Path
    nsys: str | None
    clock_control: str
    commands: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def execute(self, command: Sequence[str], shown: bool = True, bare: bool = False) -> str:
        """Run a command in the checkout; returns what it wrote.

        Args:
            command: what to run.
            shown: whether it stands in the evidence.
            bare: run it in the build folder with hardly any environment, for tools that write both into their report.

        Raises:
            StepFailed: it is not there, fails or takes too long.
        """
        if shown:
            self.commands.append(self.readable(command))
        kept = {name: os.environ[name] for name in BARE if name in os.environ} if bare else os.environ
        environment = {**kept, "LC_ALL": "C"}
        try:
            ran = subprocess.run(
                list(command), cwd=self.build if bare else self.root, env=environment, capture_output=True, text=True,
                timeout=TIME_LIMIT, errors="replace", check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise StepFailed(f"{self.readable(command)}: {problem}") from problem
        said = f"{ran.stdout}\n{ran.stderr}".strip()
        if ran.returncode:
            raise StepFailed(f"{self.readable(command)} (exit {ran.returncode}): {_tail(said)}", said)
        return said

    def readable(self, command: Sequence[str]) -> str:
        """A command line without this machine's folders."""
        text = " ".join(shlex.quote(word) for word in command)
        text = re.sub(r"(?<!\S)/\S*/(nvcc|ncu|nsys)(?!\S)", r"\1", text)
        for folder, short in ((self.build, "build"), (self.output, self.output.name), (self.root, ".")):
            text = text.replace(str(folder), short)
        return text

    def file(self, suffix: str) -> Path:
        return self.output / f"{self.plan.folder}{suffix}"


def _tail(text: str) -> str:
    return " / ".join(line.strip() for line in text.splitlines()[-4:] if line.strip())[-600:] or "nothing was said"


def capture(
    plan: Plan,
    root: Path,
    output: Path | None = None,
    nsys: str | None = None,
    clock_control: str = profiler.CLOCK_CONTROL,
    tell: Callable[[str, int, int], None] = lambda title, done, total: None,
) -> list[str]:
    """Build, time and profile a program; write everything under ``output``.

    Args:
        plan: what to capture.
        root: the checkout.
        output: default ``content/profiles/FOLDER``.
        nsys: path of Nsight Systems' command (default: the PATH, or inside Nsight Compute).
        clock_control: "none" or "base".
        tell: called before each step with its title, how many are done and how many there are.

    Returns:
        What failed, one line each; empty when all is there.

    Raises:
        gpu.NoGpu: there is no card to measure.
    """
    card = gpu.device()
    if card is None:
        raise gpu.NoGpu(f"a capture needs a GPU: {gpu.why_no_gpu()}")
    output = output or root / "content" / "profiles" / plan.folder
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpudays-") as build:
        run = Run(plan, root.resolve(), output.resolve(), Path(build), nsys, clock_control)
        steps: list[tuple[str, Callable[[], None]]] = [("build", lambda: _build(run, card.arch))]
        steps.append(("time", lambda: _time(run)))
        for label, arguments in plan.sizes:
            steps.append((f"count at {label}", lambda label=label, a=arguments: _count(run, label, a)))
        steps.append(("timeline", lambda: _timeline(run)))
        steps.append(("check what was written", lambda: _check(run, card.name)))
        for number, (title, step) in enumerate(steps):
            tell(title, number, len(steps))
            try:
                step()
            except (StepFailed, profiler.ProfilerRefused, profiles.ProfileError, OSError) as problem:
                run.failures.append(f"{title}: {problem}")
            if title == "build" and not (run.build / plan.program).exists():
                break
        tell("evidence", len(steps), len(steps))
        machine = _machine(run, card)
        (output / "machine.json").write_text(json.dumps(machine, indent=2) + "\n", encoding="utf-8")
        (output / "evidence.md").write_text(_evidence(run, machine), encoding="utf-8")
    return run.failures


def _build(run: Run, arch: str) -> None:
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    sources = [f"code/{source}" for source in run.plan.sources]
    program = str(run.build / run.plan.program)
    command = [nvcc, "-std=c++17", "-O3", f"-arch={arch}", "-lineinfo", "-o", program, *sources]
    try:
        run.execute([*command, *run.plan.flags])
    except StepFailed as problem:
        if not run.plan.flags:
            raise
        run.execute(command)
        run.failures.append(f"build: without {' '.join(run.plan.flags)}, since {problem}")


def _time(run: Run) -> None:
    """The timed runs, without a profiler; their tables under one another."""
    lines: list[str] = []
    for number, arguments in enumerate(run.plan.timings):
        table = run.build / f"timing{number}.csv"
        run.execute([str(run.build / run.plan.program), *arguments, "--csv", str(table)])
        header, *rows = table.read_text(encoding="utf-8").splitlines()
        if lines and lines[0] != header:
            raise StepFailed(f"the tables of two runs differ in their columns: {lines[0]} and {header}")
        lines = [*(lines or [header]), *rows]
    lines = _first_of_each(lines)
    (run.output / run.plan.timing_file).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _first_of_each(lines: list[str]) -> list[str]:
    """A timing table without the rows that name a kernel and size again, as a sweep does with where it starts."""
    header, *rows = csv.reader(lines)
    key = [header.index(column) for column in ("kernel", "m", "n", "k") if column in header]
    first: dict[tuple[str, ...], str] = {}
    for line, row in zip(lines[1:], rows, strict=True):
        first.setdefault(tuple(row[at] for at in key), line)
    return [lines[0], *first.values()]


def _count(run: Run, label: str, arguments: tuple[str, ...]) -> None:
    """One Nsight Compute report of the kernels' first launches, and its exports.

    A report that is too large is taken again without the source, then with ever fewer sections: what the pages read are
    the metrics asked for by name, which stay.
    """
    report = run.file(f"-{label}.ncu-rep")
    for sections, source in ((SECTIONS, True), (SECTIONS, False), (SECTIONS[:1], False), ((), False)):
        more = [*(word for section in sections for word in ("--section", section))]
        more += ["--import-source", "yes"] if source else []
        _report(run, report, arguments, WANTED, more)
        size = report.stat().st_size
        if size <= LARGEST_REPORT:
            break
        run.notes.append(
            f"at {label} a report with {'the source and ' if source else ''}{len(sections)} sections has {size:,} "
            f"bytes, more than {LARGEST_REPORT:,}, and was taken again with less in it"
        )
    else:
        raise StepFailed(f"{report.name} has {size:,} bytes, more than {LARGEST_REPORT:,}")
    ncu = profiler.find_ncu() or "ncu"
    table = ["--page", "details", "--csv", "--print-units", "base"]
    for suffix, options in ((".details.csv", table), (".details.txt", ["--page", "details"])):
        text = run.execute([ncu, "--import", str(report), *options])
        run.file(f"-{label}{suffix}").write_text(_without_messages(text), encoding="utf-8")


def _without_messages(text: str) -> str:
    """What ncu printed, without its ``==PROF==`` lines."""
    return "\n".join(line.rstrip() for line in text.splitlines() if not line.startswith("==")).strip() + "\n"


def _report(run: Run, report: Path, arguments: tuple[str, ...], wanted: Sequence[str], more: list[str]) -> None:
    """Write an ncu report; metrics that this card does not have are left out and noted."""
    program = [str(run.build / run.plan.program), *arguments]
    options = [*more, "-f", "-o", str(report.with_suffix(""))]
    kernels = run.plan.kernels
    command = profiler.command(program, wanted, kernels, len(kernels), run.clock_control, options)
    report.unlink(missing_ok=True)
    try:
        said = run.execute(command)
    except StepFailed as problem:
        unknown = profiler.unknown_metrics(problem.said, wanted)
        if not unknown or len(unknown) == len(wanted):
            raise profiler.ProfilerRefused(profiler.classify(problem.said, 1), problem.said) from problem
        run.commands.pop()
        run.notes.append(f"this card or ncu has no {', '.join(unknown)}")
        _report(run, report, arguments, [metric for metric in wanted if metric not in unknown], more)
    else:
        if not report.exists():
            raise profiler.ProfilerRefused(profiler.classify(said, 0), said)


def _timeline(run: Run) -> None:
    """One Nsight Systems report of the first size."""
    nsys = run.nsys or find_nsys()
    if nsys is None:
        raise StepFailed("no nsys on the PATH or inside Nsight Compute; name it with --nsys")
    report = run.file(".nsys-rep")
    written = run.build / report.name
    program = [str(run.build / run.plan.program), *run.plan.sizes[0][1]]
    trace = ["-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", "-f", "true", "-o", str(written.with_suffix(""))]
    report.unlink(missing_ok=True)
    alone = _alone()
    run.execute([*alone, nsys, "profile", *trace, *program], bare=True)
    if not alone:
        run.notes.append(
            f"{report.name} was written where {ALONE[0]} is not allowed, and holds the command line and environment of "
            "every process of that machine: look into it before you publish it"
        )
    stopped = written.with_suffix(".qdstrm").exists()
    if written.exists():
        shutil.move(written, report)
    else:
        why = "it stopped at a .qdstrm: its importer lacks a library such as libdw.so.1" if stopped else "no report"
        raise StepFailed(f"nsys: {why}")


def _alone() -> tuple[str, ...]:
    """The words before a command that show it no process but its own; none where the system does not allow that."""
    for words in (ALONE, (ALONE[0], "--user", "--map-root-user", *ALONE[1:])):
        try:
            if subprocess.run([*words, "true"], capture_output=True, timeout=10, check=False).returncode == 0:
                return words
        except (OSError, subprocess.TimeoutExpired):
            continue
    return ()


def find_nsys() -> str | None:
    """Nsight Systems' command: on the PATH, or inside an installation of Nsight Compute or Systems."""
    if found := shutil.which("nsys"):
        return found
    for place in NSYS_PLACES:
        for folder in sorted(Path("/").glob(place.lstrip("/")), reverse=True):
            for inside in ("host/target-linux-x64/nsys", "target-linux-x64/nsys", "bin/nsys"):
                if os.access(folder / inside, os.X_OK):
                    return str(folder / inside)
    return None


def _check(run: Run, card: str) -> None:
    """Read the exports back, as a page will."""
    wrong = []
    for label, _ in run.plan.sizes:
        path = run.file(f"-{label}.details.csv")
        if not path.exists():
            continue  # told already
        try:
            rows = ncu_csv.parse(path.read_text(encoding="utf-8")).rows
        except ncu_csv.CounterTableError as problem:
            wrong.append(f"{path.name}: {problem}")
            continue
        for kernel in run.plan.kernels:
            have = set(rows.loc[rows["kernel"].eq(kernel), "metric"])
            lacking = [m for m in (*metrics.COUNTED_BY_ADDRESS[:2], *metrics.COUNTED_BY_HARDWARE) if m not in have]
            if lacking:
                wrong.append(f"{path.name} lacks {', '.join(lacking)} of {kernel}")
    timing = run.output / run.plan.timing_file
    if timing.exists():
        profiles.read_timing(timing, "shipped", card)
    if wrong:
        raise StepFailed("; ".join(wrong))


# ---- evidence --------------------------------------------------------------------------------------------------------


def _machine(run: Run, card: gpu.Device) -> dict[str, object]:
    """What machine.json holds."""
    return {
        "card": card.name,
        "arch": card.arch,
        "sms": card.sms,
        "l2_bytes": card.l2_bytes,
        "driver": card.driver,
        "cuda": _version(["nvcc", "--version"], r"\bV(\d+\.\d+\.\d+)"),
        "ncu": profiler.ncu_version(),
        "nsys": _version([run.nsys or find_nsys() or "nsys", "--version"], r"version (\S+)"),
        "clock_control": run.clock_control,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": _version(["git", "-C", str(run.root), "rev-parse", "--short", "HEAD"], r"^(\w+)$"),
        "commands": run.commands,
        "failures": run.failures,
    }


def _version(command: Sequence[str], pattern: str) -> str:
    try:
        ran = subprocess.run(list(command), capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(pattern, ran.stdout, re.MULTILINE)
    return found[1] if found else ""


def _evidence(run: Run, machine: dict[str, object]) -> str:
    """The evidence file: machine, commands, times, files, and what did not work."""
    known = {key: machine[key] or "not known" for key in ("driver", "cuda", "ncu", "nsys")}
    commit = f", at commit {machine['commit']}" if machine["commit"] else ""
    card = machine["card"]
    lines = [
        f"# {run.plan.title}: evidence",
        "",
        f"Captured on {machine['date']} by `gpudays profile {run.plan.name}`{commit}.",
        "",
        "| | |",
        "| --- | --- |",
        f"| card | {card}, {machine['arch']}, {machine['sms']} SMs, L2 {machine['l2_bytes'] / 2**20:.0f} MiB |",
        f"| driver | {known['driver']} |",
        f"| CUDA | {known['cuda']} (`nvcc`) |",
        f"| Nsight Compute | {known['ncu']}, `--clock-control {run.clock_control}` |",
        f"| Nsight Systems | {known['nsys']} |",
        "",
        "Clocks and every other setting of the card were left as they were.",
        "",
        "## Commands",
        "",
        "```sh",
        *run.commands,
        "```",
        "",
        *_times_table(run),
        "## Files",
        "",
        "| file | bytes |",
        "| --- | --- |",
        *(f"| `{path.name}` | {path.stat().st_size:,} |" for path in _written(run)),
    ]
    if run.notes:
        lines += ["", "## Notes", "", *(f"- {note}" for note in dict.fromkeys(run.notes))]
    if run.failures:
        lines += ["", "## What did not work", "", *(f"- {failure}" for failure in run.failures)]
    return "\n".join(lines) + "\n"


def _written(run: Run) -> list[Path]:
    own = [path for path in sorted(run.output.iterdir()) if path.name.startswith(run.plan.folder)]
    results = run.output / run.plan.timing_file
    return own if results in own or not results.exists() else [*own, results]


def _times_table(run: Run) -> list[str]:
    """The program's own timing table as Markdown."""
    path = run.output / run.plan.timing_file
    if not path.exists():
        return []
    header, *rows = csv.reader(path.read_text(encoding="utf-8").splitlines())
    keep = [i for i, name in enumerate(header) if name != "card"]
    shown = [[row[i] for i in keep] for row in (header, ["---"] * len(header), *rows) if len(row) == len(header)]
    return ["## Times", "", *("| " + " | ".join(row) + " |" for row in shown), ""]
