"""NVRTC room: NVIDIA's runtime compiler, called through CuPy's binding, with or without a GPU.

The same module (``cupy_backends.cuda.libs.nvrtc``) finds the library of a pip wheel, of Colab's image or of a CUDA
toolkit. Only this room touches it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path

from gpudays import compile_cache

_OF_CUDA = re.compile(r"^\s*#\s*include\s*<(?!/)(?:(?!\.\.)[\w./-])+>", re.MULTILINE)  # in CUDA's folders alone
FILE_NAME = "kernel.cu"  # what NVRTC calls the student's source in its messages


class NvrtcMissing(RuntimeError):
    """NVRTC cannot be loaded here; the message says what to install."""


@dataclass(frozen=True)
class Compilation:
    """One run of NVRTC: whether it succeeded, its log, the PTX (or "" when a real architecture was asked for) and the
    lowered names of the name expressions."""

    ok: bool
    log: str
    ptx: str
    lowered: dict[str, str]


@lru_cache(maxsize=1)
def version() -> tuple[int, int]:
    """NVRTC's version, e.g. (12, 9).

    Raises:
        NvrtcMissing: no CuPy, or no NVRTC library that it can load.
    """
    return tuple(_binding().getVersion())


@lru_cache(maxsize=1)
def supported() -> tuple[int, ...]:
    """The compute capabilities that this NVRTC compiles for, as 75, 80, …"""
    return tuple(_binding().getSupportedArchs())


@lru_cache(maxsize=1)
def _binding():
    try:
        from cupy_backends.cuda.libs import nvrtc

        nvrtc.getVersion()
    except Exception as problem:  # CuPy raises ImportError, RuntimeError or its own type, by version and platform
        raise NvrtcMissing(f"NVRTC, the CUDA C++ compiler, cannot be loaded: {problem}\n{install_line()}") from problem
    return nvrtc


def install_line() -> str:
    """The pip command that brings NVRTC to this machine, for the CuPy that is already there."""
    names = {str(d.metadata["Name"]).lower() for d in importlib.metadata.distributions() if d.metadata["Name"]}
    if "cupy-cuda13x" in names:
        return 'Install it with: python -m pip install "nvidia-cuda-nvrtc>=13,<14" "nvidia-cuda-runtime>=13,<14"'
    wheels = "nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12"
    if "cupy-cuda12x" in names:  # never reinstall the CuPy that Colab brings
        return f"Install it with: python -m pip install {wheels}"
    return f"Install it with: python -m pip install cupy-cuda12x {wheels}"


def _package_folder(name: str) -> Path | None:
    """Where an installed package lies, without importing it."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or []) if spec else []
    return Path(places[0]) if places else None


def _toolkit_major(include: Path) -> int | None:
    """The CUDA major version of a header folder, from cuda_runtime_api.h's CUDART_VERSION."""
    header = include / "cuda_runtime_api.h"
    if not header.is_file():
        return None
    with header.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if found := re.match(r"#define\s+CUDART_VERSION\s+(\d+)", line):
                return int(found[1]) // 1000
    return None


@lru_cache(maxsize=1)
def include_folders() -> tuple[str, ...]:
    """Folders with CUDA's headers for this NVRTC (``cuda_fp16.h``, ``cooperative_groups.h`` …), possibly none.

    The toolkit's headers come from the pip wheel, ``CUDA_PATH`` or ``/usr/local/cuda``, whichever matches NVRTC's
    major version; ``nv/target`` and ``cuda/std`` from the copy that CuPy carries.
    """
    wheel = _package_folder("nvidia")
    candidates = [wheel / "cuda_runtime" / "include", wheel / "cu13" / "include"] if wheel else []
    candidates += [Path(os.environ[v]) / "include" for v in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(v)]
    candidates.append(Path("/usr/local/cuda/include"))
    found = next((c for c in candidates if _toolkit_major(c) == version()[0]), None)
    cupy = _package_folder("cupy")
    cccl = cupy / "_core" / "include" / "cupy" / "_cccl" / "libcudacxx" if cupy else None
    return tuple(str(p) for p in (found, cccl) if p and p.is_dir())


@lru_cache(maxsize=1)
def _library() -> tuple[str, int, int] | None:
    """Which library compiles, exactly: its path, size and time of change; None where the system does not tell.

    A compiler's version has two numbers, and PTX differs between builds of the same version.
    """
    _binding()
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            path = next(line.split(maxsplit=5)[5].strip() for line in maps if "libnvrtc.so" in line)
        found = os.stat(path)
    except (OSError, StopIteration, IndexError):
        return None
    return os.path.realpath(path), found.st_size, found.st_mtime_ns


@lru_cache(maxsize=1)
def _headers() -> tuple[tuple[str, int, int], ...]:
    """Which of CUDA's headers are included, exactly: each folder with the size and time of change of what is in it."""
    found = []
    for folder in include_folders():
        files = [entry.stat() for entry in os.scandir(folder)]
        found.append((folder, sum(file.st_size for file in files), max(file.st_mtime_ns for file in files)))
    return tuple(found)


def run(source: str, arch: str, options: tuple[str, ...] = (), names: tuple[str, ...] = ()) -> Compilation:
    """Compile, or find what was made of the same source before (compile_cache.py).

    What fails is compiled each time, and what includes other files than CUDA's own: nobody knows here what they hold.

    Args:
        source: CUDA C++.
        arch: ``compute_XX`` for PTX, ``sm_XX`` to run ptxas as well.
        options: further options of NVRTC.
        names: name expressions, such as ``matmulTiled<32>``, whose lowered names are wanted.
    """
    known = not any("include" in text or text.startswith("-I") for text in (_OF_CUDA.sub("", source), *options))
    library = _library() if known else None
    if library is None:
        return _compile(source, arch, options, names)
    key = compile_cache.key(library, _headers() if "include" in source else (), source, arch, options, names)
    kept = compile_cache.read(key)
    if kept is not None and set(kept) == {field.name for field in fields(Compilation)}:
        return Compilation(**kept)
    done = _compile(source, arch, options, names)
    if done.ok:
        compile_cache.write(key, asdict(done))
    return done


def _compile(source: str, arch: str, options: tuple[str, ...], names: tuple[str, ...]) -> Compilation:
    nvrtc = _binding()
    includes = [f"-I{folder}" for folder in include_folders()] if "include" in source else []
    program = nvrtc.createProgram(source, FILE_NAME, [], [])
    try:
        for name in names:
            nvrtc.addNameExpression(program, name)
        try:
            nvrtc.compileProgram(program, ["-std=c++17", f"-arch={arch}", *includes, *options])
        except nvrtc.NVRTCError as problem:
            log = nvrtc.getProgramLog(program)
            return Compilation(False, log if log.strip() else str(problem), "", {})
        ptx = nvrtc.getPTX(program) if arch.startswith("compute") else b""
        lowered = {name: nvrtc.getLoweredName(program, name) for name in names}
        return Compilation(True, nvrtc.getProgramLog(program), _without_folder(ptx), lowered)
    finally:
        nvrtc.destroyProgram(program)


def _without_folder(ptx: bytes | str) -> str:
    """PTX as text; NVRTC writes the working directory into ``.file``, which would make equal compilations differ."""
    text = ptx.decode() if isinstance(ptx, bytes) else ptx
    return re.sub(rf'(\.file\s+\d+\s+")[^"]*[/\\]({re.escape(FILE_NAME)}")', r"\1\2", text).rstrip("\0")
