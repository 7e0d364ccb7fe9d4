"""Compiler room: CUDA C++ source in, a program out: PTX, its kernels, and what each needs of a card. No GPU needed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from gpudays import nvrtc, signatures
from gpudays.compile_errors import CompileError
from gpudays.signatures import KernelSignature, Param

__all__ = [
    "ARCHITECTURES",
    "CompileError",
    "KernelNotFound",
    "KernelSignature",
    "Param",
    "Program",
    "Resources",
    "compile",
]

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
LINKAGE = re.compile(r'extern\s*"C"')


class KernelNotFound(LookupError):
    """The program has no such kernel, or several; the message names those it has."""


@dataclass(frozen=True)
class Resources:
    """What one kernel needs on one architecture, as ptxas reports it (registers per thread, the rest in bytes).

    ``shared_bytes`` is static shared memory; what a launch adds dynamically is not in it. ``stack_bytes`` and the
    spills are per thread. ``constant_bytes`` is what ptxas reports: from sm_90 on it leaves out the parameters.
    """

    registers: int
    shared_bytes: int
    stack_bytes: int
    spill_stores: int
    spill_loads: int
    constant_bytes: int
    barriers: int


@dataclass(frozen=True)
class Program:
    """A compiled source.

    Attributes:
        source: the CUDA C++ as it was given; line numbers count in it.
        ptx: what NVRTC made of it for ``arch``, with ``-lineinfo``.
        arch: "sm_75", …
        options: further options it was compiled with.
        names: the name expressions (``matmulTiled<32>``) that were instantiated.
        log: NVRTC's warnings, "" when there are none.
    """

    source: str
    ptx: str = field(repr=False)
    arch: str
    options: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    log: str = field(default="", repr=False)
    lowered: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @cached_property
    def kernels(self) -> dict[str, KernelSignature]:
        """The kernels by C++ name, in PTX order."""
        mangled = ""
        if LINKAGE.search(self.source):  # extern "C" hides the parameters' types: ask for the C++ names once
            cpp, arch = LINKAGE.sub('extern "C++"', self.source), _virtual(self.arch)
            # As a debug build, whose code nobody runs: without optimisation it takes a tenth of the time.
            again = nvrtc.run(cpp, arch, ("--device-debug", *self.options), self.names)
            mangled = (again if again.ok else nvrtc.run(cpp, arch, self.options, self.names)).ptx
        return signatures.read(self.ptx, mangled)

    def kernel(self, name: str) -> KernelSignature:
        """Find a kernel by its PTX name, its name expression or its C++ name.

        A kernel without ``extern "C"`` is found by its plain name when exactly one has it; its ``note`` says so.

        Raises:
            KernelNotFound: none, or more than one, has that name.
        """
        by_mangled = {k.mangled: k for k in self.kernels.values()}
        wanted = dict(self.lowered).get(name, name)
        if wanted in by_mangled:
            return by_mangled[wanted]
        plain = [k for k in self.kernels.values() if name in (k.name, _base(k.name))]
        if len(plain) == 1:
            return _noted(plain[0], name)
        raise KernelNotFound(_not_found(name, plain, list(self.kernels.values())))

    def resources(self, arch: str | None = None) -> dict[str, Resources]:
        """Registers, shared memory, spills … of every kernel on an architecture (default: this program's).

        Raises:
            ValueError: this NVRTC does not know the architecture.
        """
        found = report(self.source, arch or self.arch, self.options, self.names)
        return {name: found[kernel.mangled] for name, kernel in self.kernels.items() if kernel.mangled in found}


def compile(source: str, arch: str = "sm_75", options: tuple[str, ...] = (), names: tuple[str, ...] = ()) -> Program:
    """Compile CUDA C++ to PTX with NVRTC, as C++17 with line information.

    Args:
        source: the CUDA C++ text, kernels only.
        arch: the architecture whose PTX is wanted, "sm_75" and later.
        options: further NVRTC options, such as ``("-DTILE=32",)``.
        names: kernels that will be asked for; those with template arguments (``matmulTiled<32>``) are instantiated.

    Raises:
        CompileError: the source does not compile; shows NVRTC's messages against its lines.
        ValueError: an architecture that this NVRTC does not know.
        nvrtc.NvrtcMissing: there is no NVRTC here.
    """
    templates = tuple(name for name in names if "<" in name)
    return _compile(source, arch, tuple(options), templates)


@lru_cache(maxsize=128)
def _compile(source: str, arch: str, options: tuple[str, ...], names: tuple[str, ...]) -> Program:
    done = nvrtc.run(source, _virtual(arch), ("-lineinfo", *options), names)
    if not done.ok:
        raise _error(source, done.log)
    return Program(source, done.ptx, arch, options, names, done.log.strip("\0\n "), tuple(done.lowered.items()))


def _error(source: str, log: str) -> CompileError:
    return CompileError(source, log, nvrtc.FILE_NAME, "NVRTC {}.{}".format(*nvrtc.version()))


def _virtual(arch: str) -> str:
    """ "sm_75" as NVRTC's "compute_75", after a look at whether it knows it."""
    match = re.fullmatch(r"(?:sm|compute)_?(\d+)([af]?)", arch)
    if not match:
        raise ValueError(f"{arch!r} is no architecture: write it as 'sm_75'")
    if int(match[1]) not in nvrtc.supported():
        known = ", ".join(f"sm_{n}" for n in nvrtc.supported())
        raise ValueError(f"NVRTC {'{}.{}'.format(*nvrtc.version())} does not compile for {arch}; it knows {known}")
    return f"compute_{match[1]}{match[2]}"


def _base(name: str) -> str:
    return name.split("<", 1)[0].rsplit("::", 1)[-1]


def _noted(kernel: KernelSignature, asked: str) -> KernelSignature:
    if "<" in kernel.name:
        note = f"{asked} is a template: ran {kernel.name}, its only instance"
    else:
        note = (
            f'{asked} has no extern "C", so the compiler calls it {kernel.mangled}: found, since it is the only one of '
            f'that name. Write extern "C" __global__ void {asked}(…) and any tool finds it'
        )
    return KernelSignature(kernel.name, kernel.mangled, kernel.params, note)


def _not_found(name: str, plain: list[KernelSignature], kernels: list[KernelSignature]) -> str:
    if plain:
        return f"{len(plain)} kernels are called {name}: {'; '.join(map(str, plain))}. Name one with its arguments."
    if not kernels:
        return (
            f"no kernel {name}: this source defines no __global__ function. A template exists only once it is named "
            'with its arguments, as in "matmulTiled<32>".'
        )
    return f"no kernel {name} in this source; it has {', '.join(map(str, kernels))}. Check the name's spelling."


@lru_cache(maxsize=256)
def report(source: str, arch: str, options: tuple[str, ...] = (), names: tuple[str, ...] = ()) -> dict[str, Resources]:
    """What ptxas reports of every kernel of a source, by PTX name; straight to machine code, which saves the PTX.

    Raises:
        CompileError: the source does not compile; shows NVRTC's messages against its lines.
        ValueError: this NVRTC does not know the architecture.
    """
    real = _virtual(arch).replace("compute", "sm")
    # NVRTC keeps what it compiled, and a second compilation of the same source then has an empty report.
    fresh = ("--no-cache",) if nvrtc.version() >= (12, 9) else ()
    done = nvrtc.run(source, real, ("--ptxas-options=-v", *fresh, *options), names)
    if not done.ok:
        raise _error(source, done.log)
    return parse_ptxas(done.log)


def parse_ptxas(log: str) -> dict[str, Resources]:
    """ptxas's ``-v`` report as Resources by PTX entry name.

    The stack and spill line of an entry follows "Function properties for NAME", its registers the "Used" line; device
    functions that were not inlined have properties of their own, which are not the entry's.
    """
    stacks: dict[str, tuple[int, int, int]] = {}
    found: dict[str, Resources] = {}
    entry = owner = ""
    for line in log.splitlines():
        if match := re.search(r"Compiling entry function '([^']+)'", line):
            entry = match[1]
        elif match := re.search(r"Function properties for (\S+)", line):
            owner = match[1]
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stacks[owner] = tuple(int(n) for n in match.groups())
        elif match := re.search(r"Used (\d+) registers", line):
            found[entry] = _used(line, int(match[1]), stacks.get(entry, (0, 0, 0)))
    return found


def _used(line: str, registers: int, stack: tuple[int, int, int]) -> Resources:
    def total(pattern: str) -> int:
        return sum(int(n) for n in re.findall(pattern, line))

    constant = total(r"(\d+) bytes cmem\[\d+\]")
    return Resources(registers, total(r"(\d+) bytes smem"), *stack, constant, total(r"used (\d+) barriers"))
