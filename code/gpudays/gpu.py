"""GPU room: the card through CuPy — what it is, launching on it, timing with CUDA events. Imports without a GPU."""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from gpudays import compiler, launches, nvrtc
from gpudays.compiler import CompileError, KernelSignature, Program
from gpudays.launches import LaunchError

WARM_UPS = 3
REPEATS = 10
# A kernel that keeps the card busy while Python queues what is to be timed: a launch costs Python more than a small
# kernel takes, and would be in its time.
HOLD = """
extern "C" __global__ void hold(long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {}
}
"""
HELD, HELD_AT_MOST = 1 << 18, 1 << 24  # cycles: a tenth of a millisecond, several


class NoGpu(RuntimeError):
    """There is no usable GPU here; the message says why."""


class GpuFault(RuntimeError):
    """The kernel stopped the card (an access outside its buffers, a misaligned one, a time-out)."""


@dataclass(frozen=True)
class Device:
    """The card.

    Attributes:
        name: "NVIDIA H200", "Tesla T4" …
        arch: "sm_90".
        sms: streaming multiprocessors.
        l2_bytes, memory_bytes: of the card.
        driver: "580.159.04", or CUDA's number for it when the system does not tell.
        cuda: the newest CUDA that the driver runs, as (13, 0).
    """

    name: str
    arch: str
    sms: int
    l2_bytes: int
    memory_bytes: int
    driver: str
    cuda: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.name} ({self.arch}, {self.sms} SMs, {self.l2_bytes / 2**20:.0f} MiB L2, driver {self.driver})"


@dataclass(frozen=True)
class Timing:
    """CUDA-event times of repeated launches, in ms."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.samples)

    @property
    def min(self) -> float:
        return min(self.samples)

    @property
    def max(self) -> float:
        return max(self.samples)

    def __str__(self) -> str:
        return f"{self.median:.4f} ms (median of {len(self.samples)}, {self.min:.4f} to {self.max:.4f})"


@lru_cache(maxsize=1)
def _probe() -> tuple[Device | None, str]:
    """The device, or None and why there is none."""
    try:
        import cupy
    except Exception as problem:  # a broken CuPy raises more than ImportError
        return None, f"CuPy cannot be imported ({_first_line(problem)})"
    try:
        if cupy.cuda.runtime.getDeviceCount() == 0:
            return None, "the driver sees no GPU"
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())
        number = cupy.cuda.runtime.driverGetVersion()
    except Exception as problem:
        if "InsufficientDriver" in str(problem) and not Path("/proc/driver/nvidia/version").exists():
            return None, "no NVIDIA driver here"
        return None, f"CUDA does not start ({_first_line(problem)})"
    return (
        Device(
            properties["name"].decode(),
            f"sm_{properties['major']}{properties['minor']}",
            properties["multiProcessorCount"],
            properties["l2CacheSize"],
            properties["totalGlobalMem"],
            driver_version() or f"for CUDA {number // 1000}.{number % 1000 // 10}",
            (number // 1000, number % 1000 // 10),
        ),
        "",
    )


def device() -> Device | None:
    """The card that CuPy uses, or None."""
    return _probe()[0]


def why_no_gpu() -> str:
    """Why there is no GPU; "" when there is one."""
    return _probe()[1]


def driver_version(path: str = "/proc/driver/nvidia/version") -> str:
    """The NVIDIA driver's version, from its kernel module or, where that is not visible (WSL, Windows), nvidia-smi; ""
    where there is none."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _asked_of_smi()
    found = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return found[1] if found else ""


def _asked_of_smi() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    command = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    lines = ran.stdout.split()
    return lines[0] if ran.returncode == 0 and lines else ""


def _first_line(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {str(problem).strip().splitlines()[0] if str(problem).strip() else 'no message'}"


def _required() -> Device:
    card = device()
    if card is None:
        raise NoGpu(f"this needs a GPU: {why_no_gpu()}. Without one, gpudays.trace runs the kernel on the CPU.")
    return card


def prepare(source: str | Program, name: str, options: tuple[str, ...] = ()) -> tuple[Program, KernelSignature]:
    """Compile a source for this card, and find the kernel in it.

    Raises:
        NoGpu: there is none.
        CompileError, compiler.KernelNotFound: as `compiler.compile` and `Program.kernel` do.
    """
    card = _required()
    if isinstance(source, Program):
        source, options, names = source.source, source.options, source.names
    else:
        names = (name,)
    program = compiler.compile(source, _known_arch(card.arch), options, names)
    return program, program.kernel(name)


def _known_arch(arch: str) -> str:
    """The card's architecture, or the newest before it when this NVRTC is older than the card."""
    wanted = int(arch.removeprefix("sm_"))
    return f"sm_{max(n for n in nvrtc.supported() if n <= wanted)}"


@lru_cache(maxsize=64)
def _function(program: Program, mangled: str):
    """The kernel as CuPy's RawKernel."""
    import cupy

    includes = tuple(f"-I{folder}" for folder in nvrtc.include_folders()) if "#include" in program.source else ()
    module = cupy.RawModule(
        code=program.source,
        options=("-std=c++17", "-lineinfo", *includes, *program.options),
        name_expressions=program.names or None,
    )
    try:
        return module.get_function(mangled)
    except cupy.cuda.compiler.CompileException as problem:
        raise CompileError(program.source, problem.get_message(), compiler="CuPy") from problem


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments on the card, ready to be run again and again."""

    program: Program
    kernel: KernelSignature
    function: object
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[object, ...]
    shared_bytes: int

    def __call__(self) -> None:
        """Put the launch on the current stream; returns before it has run."""
        self.function(self.grid, self.block, self.args, shared_mem=self.shared_bytes)


def prepare_launch(
    source: str | Program,
    name: str,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[object],
    shared_bytes: int = 0,
    options: tuple[str, ...] = (),
) -> Launch:
    """Everything of a launch but the launch: compiled, checked, its NumPy arrays copied to the card.

    Raises:
        LaunchError: the launch or its arguments do not fit; see `launches`.
    """
    import cupy

    program, kernel = prepare(source, name, options)
    launches.check_arguments(kernel, args)
    launches.check_launch(program, kernel, grid, block, shared_bytes, _known_arch(_required().arch))
    function = _function(program, kernel.mangled)
    if shared_bytes and shared_bytes + function.shared_size_bytes > launches.occupancy.STATIC_SHARED_BYTES:
        function.max_dynamic_shared_size_bytes = shared_bytes
    on_card = tuple(cupy.asarray(a) if isinstance(a, np.ndarray) and a.ndim else a for a in args)
    return Launch(program, kernel, function, launches.three(grid), launches.three(block), on_card, shared_bytes)


def launch(
    source: str | Program,
    name: str,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[object],
    shared_bytes: int = 0,
    options: tuple[str, ...] = (),
) -> KernelSignature:
    """Run a kernel once and wait for it.

    Args:
        source: CUDA C++ or a compiled program.
        name: the kernel.
        grid, block: up to three numbers each.
        args: NumPy arrays (copied to the card, and back unless declared const) or CuPy arrays (used in place), and
            NumPy scalars.
        shared_bytes: dynamic shared memory.
        options: further NVRTC options.

    Returns:
        The kernel that ran; its ``note`` is worth showing when it is not "".

    Raises:
        NoGpu, CompileError, compiler.KernelNotFound, LaunchError, GpuFault.
    """
    ready = prepare_launch(source, name, grid, block, args, shared_bytes, options)
    _run(ready, ready.kernel.name)
    for given, used, param in zip(args, ready.args, ready.kernel.params, strict=True):
        if given is not used and isinstance(given, np.ndarray) and not param.declared.startswith("const "):
            given[...] = used.get()
    return ready.kernel


def _run(call: Callable[[], None], name: str) -> None:
    """Call, wait, and turn what the card complains of into words."""
    import cupy

    try:
        call()
        cupy.cuda.get_current_stream().synchronize()
    except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as problem:
        raise _fault(name, str(problem)) from problem


_LOST = (
    "The process cannot use the GPU any more: restart the notebook's kernel. gpudays.trace runs the same launch on the "
    "CPU and names the line, block and thread."
)
_FAULTS = {  # by the CUDA error's name, which the driver and the runtime API spell differently
    "illegaladdress": f"accessed memory outside its buffers. {_LOST}",
    "misalignedaddress": f"used an address that is no multiple of the access's width. {_LOST}",
    "launchtimeout": f"ran longer than the system allows. {_LOST}",
    "outofresources": "needs more registers or shared memory than a block may have: use fewer threads per block.",
}


def _fault(name: str, text: str) -> Exception:
    plain = text.replace("_", "").lower()
    for code, words in _FAULTS.items():
        if code in plain:
            return (LaunchError if code == "outofresources" else GpuFault)(f"{name} {words} ({text.strip()})")
    return GpuFault(f"{name}: the card reports {text.strip()}")


def time_call(call: Callable[[], None], name: str = "", warm_ups: int = WARM_UPS, repeats: int = REPEATS) -> Timing:
    """Time something that puts work on the current stream, with CUDA events around each repeat.

    The card is held busy until the work and both events are queued, so that no time of the CPU is in a sample; where it
    came to the first event before that, it is held for longer and the sample is taken again.

    Args:
        call: puts the work on the current stream.
        name: for messages.
        warm_ups: runs that are not counted.
        repeats: runs that are.
    """
    import cupy

    _required()
    hold, cycles = cupy.RawKernel(HOLD, "hold"), HELD
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    samples, late = [], False

    def once() -> None:
        nonlocal late
        hold((1,), (1,), (np.int64(cycles),))
        start.record()
        call()
        stop.record()
        late = start.done
        stop.synchronize()

    for _ in range(warm_ups):
        _run(once, name)
    while len(samples) < repeats:
        _run(once, name)
        if late and cycles < HELD_AT_MOST:
            cycles *= 2
        else:
            samples.append(float(cupy.cuda.get_elapsed_time(start, stop)))
    return Timing(tuple(samples))


def time_kernel(
    source: str | Program,
    name: str,
    grid: Sequence[int],
    block: Sequence[int],
    args: Sequence[object],
    shared_bytes: int = 0,
    options: tuple[str, ...] = (),
    warm_ups: int = WARM_UPS,
    repeats: int = REPEATS,
) -> Timing:
    """Time a kernel with CUDA events. The arrays are on the card before the first launch; NumPy ones are not changed.

    Arguments and errors are those of `launch`.
    """
    ready = prepare_launch(source, name, grid, block, args, shared_bytes, options)
    return time_call(ready, ready.kernel.name, warm_ups, repeats)


def cublas_call(a, b, c) -> Callable[[], None]:
    """C = A·B by cuBLAS in FP32, TF32 off, as a call to be run or timed.

    Args:
        a, b, c: CuPy float32 arrays, row-major, of shapes (m, k), (k, n) and (m, n).
    """
    from cupy.cuda import device as cupy_device
    from cupy_backends.cuda.libs import cublas

    (m, k), n = a.shape, b.shape[1]
    handle = cupy_device.get_cublas_handle()
    one, zero = np.float32(1).reshape(1), np.float32(0).reshape(1)

    def call() -> None:
        cublas.setMathMode(handle, cublas.CUBLAS_DEFAULT_MATH)  # TF32 has to be asked for, and is not
        cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_HOST)
        # Row-major C = A·B is column-major Cᵀ = Bᵀ·Aᵀ, which cuBLAS computes with no transpose.
        cublas.sgemm(
            handle, 0, 0, n, m, k, one.ctypes.data, b.data.ptr, n, a.data.ptr, k, zero.ctypes.data, c.data.ptr, n,
        )  # fmt: skip

    return call


def time_cublas(m: int, n: int, k: int, warm_ups: int = WARM_UPS, repeats: int = REPEATS) -> Timing:
    """Time cuBLAS's FP32 matrix multiply of random (m, k) × (k, n) matrices."""
    _required()
    import cupy

    random = cupy.random.default_rng(1)
    a, b = (random.random(shape, dtype=np.float32) + np.float32(0.5) for shape in ((m, k), (k, n)))  # as verify.inputs
    return time_call(cublas_call(a, b, cupy.empty((m, n), np.float32)), "cuBLAS", warm_ups, repeats)
