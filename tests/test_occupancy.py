"""The occupancy room, held against known cases and against the CUDA toolkit's own calculator, compiled as C++."""

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from gpudays import nvrtc, occupancy
from gpudays.occupancy import ARCHITECTURES

# Drives cuda_occupancy.h with one launch per input line; device properties come on the line too.
DRIVER = r"""
#include <cuda_occupancy.h>
#include <cstdio>
int main() {
  int major, minor, threads, registers, warps, per_sm, optin, reserved, fixed, dynamic;
  while (scanf("%d%d%d%d%d%d%d%d%d%d", &major, &minor, &threads, &registers, &warps, &per_sm, &optin, &reserved, &fixed,
               &dynamic) == 10) {
    cudaOccDeviceProp p;
    p.computeMajor = major; p.computeMinor = minor; p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiprocessor = warps * 32; p.regsPerBlock = 65536; p.regsPerMultiprocessor = 65536;
    p.warpSize = 32; p.sharedMemPerBlock = 49152; p.sharedMemPerMultiprocessor = per_sm; p.numSms = 1;
    p.sharedMemPerBlockOptin = optin; p.reservedSharedMemPerBlock = reserved;
    cudaOccFuncAttributes a;
    a.maxThreadsPerBlock = 1024; a.numRegs = registers; a.sharedSizeBytes = fixed;
    a.partitionedGCConfig = PARTITIONED_GC_OFF; a.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    a.maxDynamicSharedSizeBytes = optin - fixed; a.numBlockBarriers = 1;
    cudaOccDeviceState s;
    s.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult r;
    int status = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, threads, dynamic);
    printf("%d\n", status == CUDA_OCC_SUCCESS ? r.activeBlocksPerMultiprocessor : -status);
  }
}
"""


@pytest.fixture(scope="module")
def calculator(tmp_path_factory):
    """The toolkit's calculator as a program, where there is a C++ compiler and the header."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    folder = next((f for f in nvrtc.include_folders() if Path(f, "cuda_occupancy.h").is_file()), None)
    if not compiler or not folder:
        pytest.skip("no C++ compiler or no cuda_occupancy.h here")
    place = tmp_path_factory.mktemp("occupancy")
    (place / "driver.cpp").write_text(DRIVER)
    subprocess.run([compiler, f"-I{folder}", "-o", place / "driver", place / "driver.cpp"], check=True)
    return place / "driver"


def test_agrees_with_the_toolkits_calculator(calculator):
    draw = random.Random(7)
    cases, lines = [], []
    for _ in range(3000):
        arch = draw.choice(list(ARCHITECTURES))
        card = ARCHITECTURES[arch]
        threads = draw.choice([draw.randint(1, 1024), 32, 64, 128, 256, 512, 1024])
        registers = draw.randint(1, 255)
        shared = draw.choice([0, draw.randint(0, 48 * 1024), draw.randint(0, card.shared_per_block)])
        fixed = min(shared, draw.choice([0, 2048, 48 * 1024]))
        number = arch.removeprefix("sm_")
        cases.append((arch, threads, registers, shared))
        lines.append(
            f"{number[:-1]} {number[-1]} {threads} {registers} {card.max_warps} {card.shared_bytes} "
            f"{card.shared_per_block} {card.shared_reserved} {fixed} {shared - fixed}"
        )
    said = subprocess.run([calculator], input="\n".join(lines), capture_output=True, text=True, check=True).stdout
    expected = [int(line) for line in said.split()]
    ours = [occupancy.occupancy(*case).blocks for case in cases]
    assert len(expected) == len(cases)
    wrong = [(c, o, e) for c, o, e in zip(cases, ours, expected, strict=True) if o != e]
    assert not wrong, f"{len(wrong)} differ, first: {wrong[0]}"
    assert 0 in ours and len(set(ours)) > 10, "the cases are too alike to tell anything"


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "shared", "blocks", "percent", "limited"),
    [
        # 16 × 16 blocks, 32 registers, two 16 × 16 tiles: the warps fill up first wherever registers allow it.
        ("sm_75", 256, 32, 2048, 4, 100.0, ("warps",)),
        ("sm_80", 256, 32, 2048, 8, 100.0, ("warps", "registers")),
        ("sm_86", 256, 32, 2048, 6, 100.0, ("warps",)),
        ("sm_90", 256, 33, 2048, 6, 75.0, ("registers",)),
        # 1024 threads on 48-warp cards: one block, a third of the SM empty.
        ("sm_89", 1024, 32, 0, 1, 200 / 3, ("warps",)),
        # 32 KB tiles: 64 KB hold two on sm_75; 1 KB reserved per block leaves room for 3 of 33 KB in 100 KB.
        ("sm_75", 256, 32, 32768, 2, 50.0, ("shared memory",)),
        ("sm_120", 256, 32, 32768, 3, 50.0, ("shared memory",)),
        ("sm_90", 256, 32, 32768, 6, 75.0, ("shared memory",)),
        # One warp a block: the number of blocks is the limit.
        ("sm_75", 32, 16, 0, 16, 50.0, ("blocks",)),
        ("sm_89", 32, 16, 0, 24, 50.0, ("blocks",)),
    ],
)
def test_known_launches(arch, threads, registers, shared, blocks, percent, limited):
    held = occupancy.occupancy(arch, threads, registers, shared)
    assert (held.blocks, held.limited_by) == (blocks, limited)
    assert held.percent == pytest.approx(percent)


def test_too_many_registers_for_1024_threads_is_a_refusal():
    held = occupancy.occupancy("sm_75", 1024, 116)
    assert held.blocks == 0 and held.limited_by == ("registers",)
    assert "refuses this launch: too much of registers" in str(held)


def test_what_no_card_takes_is_refused():
    with pytest.raises(ValueError, match="1 to 1024 threads, not 4096"):
        occupancy.occupancy("sm_75", 4096, 32)
    with pytest.raises(ValueError, match=r"sm_70; there is for sm_75, .*sm_120"):
        occupancy.occupancy("sm_70", 256, 32)
