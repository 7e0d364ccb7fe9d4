"""The GPU room. The first tests run anywhere; those marked `gpu` need a card."""

import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

import gpudays
from gpudays import gpu
from gpudays.launches import LaunchError

ADD = """
template <typename T> __device__ T twice(T x) { return x + x; }
extern "C" __global__ void add(const float* a, float* b, size_t n) {
  size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
  if (i < n) b[i] = twice(a[i]) + b[i];
}
template <int BY> __global__ void scale(float* b, int n) { if (threadIdx.x < n) b[threadIdx.x] *= BY; }
"""


def test_a_machine_says_what_its_card_is_or_why_there_is_none():
    card = gpu.device()
    assert (card is None) == bool(gpu.why_no_gpu())
    if card is not None:
        assert card.arch.startswith("sm_") and card.sms > 0 and card.l2_bytes > 0


def test_without_a_card_a_launch_says_what_to_do(monkeypatch):
    monkeypatch.setattr(gpu, "_probe", lambda: (None, "no NVIDIA driver here"))
    with pytest.raises(gpu.NoGpu, match=r"no NVIDIA driver here\. .*gpudays\.trace"):
        gpu.launch(ADD, "add", 1, 32, [])


def test_driver_version_is_read_from_the_kernel_module(tmp_path):
    path = tmp_path / "version"
    path.write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (root@x)\n")
    assert gpu.driver_version(str(path)) == "580.159.04"
    path.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n")
    assert gpu.driver_version(str(path)) == "535.183.01"


def test_driver_version_is_asked_of_nvidia_smi_where_the_module_does_not_show(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu.shutil, "which", lambda name: None)
    assert gpu.driver_version(str(tmp_path / "nothing")) == ""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 566.36\n")
    tool.chmod(0o755)
    monkeypatch.setattr(gpu.shutil, "which", lambda name: str(tool))
    assert gpu.driver_version(str(tmp_path / "nothing")) == "566.36"
    tool.write_text("#!/bin/sh\necho NVIDIA-SMI has failed\nexit 9\n")
    assert gpu.driver_version(str(tmp_path / "nothing")) == ""


def test_timing_leads_with_the_median():
    timing = gpu.Timing((3.0, 1.0, 2.0, 10.0))
    assert (timing.median, timing.mean, timing.min, timing.max) == (2.5, 4.0, 1.0, 10.0)
    assert str(timing) == "2.5000 ms (median of 4, 1.0000 to 10.0000)"


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        ("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access", gpu.GpuFault, "outside its buffers"),
        ("cudaErrorMisalignedAddress: misaligned address", gpu.GpuFault, "no multiple"),
        ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources", LaunchError, "fewer threads"),
        ("CUDA_ERROR_UNKNOWN: odd", gpu.GpuFault, "the card reports CUDA_ERROR_UNKNOWN"),
    ],
)
def test_what_the_card_complains_of_is_put_in_words(text, kind, told):
    fault = gpu._fault("add", text)
    assert isinstance(fault, kind) and told in str(fault) and text in str(fault)


@pytest.mark.gpu
def test_launch_writes_numpy_arrays_back_but_not_const_ones():
    a, b = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
    kernel = gpu.launch(ADD, "add", 4, 32, [a, b, np.uint64(100)])
    assert kernel.note == ""
    assert np.array_equal(b, 2 * np.arange(100, dtype=np.float32) + 1)
    assert np.array_equal(a, np.arange(100, dtype=np.float32))


@pytest.mark.gpu
def test_launch_uses_cupy_arrays_in_place_and_templates_by_name():
    import cupy

    b = cupy.ones(32, np.float32)
    gpu.launch(ADD, "scale<3>", 1, 32, [b, np.int32(8)])
    assert b.get().tolist() == [3.0] * 8 + [1.0] * 24


@pytest.mark.gpu
def test_launch_checks_before_it_runs():
    a, b = np.zeros(4, np.float32), np.zeros(4, np.float32)
    with pytest.raises(LaunchError, match="4096 > 1024"):
        gpu.launch(ADD, "add", 1, (64, 64), [a, b, np.uint64(4)])
    with pytest.raises(LaunchError, match="float64"):
        gpu.launch(ADD, "add", 1, 32, [a.astype(float), b, np.uint64(4)])
    with pytest.raises(gpudays.CompileError):
        gpu.launch("nonsense", "add", 1, 32, [])


@pytest.mark.gpu
def test_dynamic_shared_memory_beyond_48_kb():
    source = """
extern "C" __global__ void far(float* y, int n) {
  extern __shared__ float t[];
  for (int i = threadIdx.x; i < n; i += 32) t[i] = i;
  __syncthreads();
  y[threadIdx.x] = t[n - 1 - threadIdx.x];
}"""
    y = np.zeros(32, np.float32)
    gpu.launch(source, "far", 1, 32, [y, np.int32(15000)], shared_bytes=60000)
    assert y[0] == 14999 and y[31] == 14968


@pytest.mark.gpu
def test_timing_runs_warm_ups_and_repeats_and_leaves_numpy_alone():
    a, b = np.ones(1024, np.float32), np.zeros(1024, np.float32)
    timing = gpu.time_kernel(ADD, "add", 32, 32, [a, b, np.uint64(1024)], warm_ups=1, repeats=4)
    assert len(timing.samples) == 4 and timing.min > 0
    assert not b.any()


@pytest.mark.gpu
def test_cublas_multiplies_row_major_matrices_in_full_fp32():
    import cupy

    random = np.random.default_rng(3)
    a, b = random.standard_normal((35, 19)), random.standard_normal((19, 79))
    c = cupy.zeros((35, 79), np.float32)
    call = gpu.cublas_call(cupy.asarray(a, np.float32), cupy.asarray(b, np.float32), c)
    gpu.time_call(call, "cuBLAS", 0, 1)
    exact = a.astype(np.float32).astype(float) @ b.astype(np.float32).astype(float)
    assert np.abs(c.get() - exact).max() < 1e-5  # TF32 would be off by 1e-3
    assert gpu.time_cublas(64, 48, 32).median > 0


class CardOfPaper:
    """A stand-in for CuPy: a clock in ms that the CPU's calls move on, and a card that is busy until some moment."""

    def __init__(self, cpu_ms: float, work_ms: float):
        self.now, self.free_at, self.cpu_ms, self.work_ms, self.held = 0.0, 0.0, cpu_ms, work_ms, []
        card = self

        class Event:
            def record(self):
                self.at = max(card.now, card.free_at)

            @property
            def done(self):
                return card.now >= self.at

            def synchronize(self):
                card.now = max(card.now, self.at)

        def raw_kernel(source, name):
            return lambda grid, block, args: card.queue(float(args[0]) / 2e6) or card.held.append(int(args[0]))

        self.RawKernel = raw_kernel
        self.cuda = SimpleNamespace(
            Event=Event, get_elapsed_time=lambda a, b: b.at - a.at,
            get_current_stream=lambda: SimpleNamespace(synchronize=lambda: None),
            driver=SimpleNamespace(CUDADriverError=OSError), runtime=SimpleNamespace(CUDARuntimeError=OSError),
        )  # fmt: skip

    def queue(self, ms: float) -> None:
        self.free_at = max(self.now, self.free_at) + ms

    def call(self) -> None:
        self.now += self.cpu_ms  # what a launch costs Python, before the card hears of it
        self.queue(self.work_ms)


@pytest.mark.parametrize(("cpu_ms", "longer"), [(0.02, False), (1.0, True), (1000.0, True)])
def test_the_cpus_part_of_a_launch_is_not_in_its_time(monkeypatch, cpu_ms, longer):
    card = CardOfPaper(cpu_ms, work_ms=0.01)
    monkeypatch.setitem(sys.modules, "cupy", card)
    monkeypatch.setattr(gpu, "_required", lambda: None)
    timing = gpu.time_call(card.call, "small", warm_ups=1, repeats=5)
    assert len(timing.samples) == 5 and (max(card.held) > gpu.HELD) is longer
    if cpu_ms < 10:
        assert timing.max == pytest.approx(0.01)
    else:  # no hold is that long: the time is what it is, and the timing ends
        assert max(card.held) == gpu.HELD_AT_MOST and timing.median > 100


@pytest.mark.gpu
def test_what_the_cpu_does_between_the_events_is_not_timed():
    b = np.ones(32, np.float32)
    ready = gpu.prepare_launch(ADD, "add", 1, 32, [b.copy(), b, np.uint64(32)])

    def slow():
        time.sleep(0.002)
        ready()

    assert gpu.time_call(slow, "add").median < 1  # ms, of a kernel that takes a few microseconds
