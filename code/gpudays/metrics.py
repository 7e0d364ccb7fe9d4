"""Metrics room: one registry of everything that is counted or timed — Nsight Compute's name, plain name, unit, decider.

Names, units and meanings: NVIDIA, "Nsight Compute" documentation, "Profiling Guide", sections "Metrics Reference" and
"Metrics Decoder" (docs.nvidia.com/nsight-compute/ProfilingGuide). Units are the base units of ``--print-units base``.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpudays.ptx import model as m


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes:
        name: Nsight Compute's name, or ours where the hardware has no such counter.
        plain: what a page calls it.
        unit: base unit of ``value`` in the tidy table.
        decided_by: "address" (the addresses of the lanes decide it, so the tracer counts it exactly), "program"
            (counted in PTX, no hardware counterpart), "hardware" (only a card can say) or "clock" (timed).
    """

    name: str
    plain: str
    unit: str
    decided_by: str


SM_THROUGHPUT = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY_THROUGHPUT = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
WARPS_ACTIVE = "sm__warps_active.avg.pct_of_peak_sustained_active"
L1_HIT_RATE = "l1tex__t_sector_hit_rate.pct"
L2_HIT_RATE = "lts__t_sector_hit_rate.pct"
DRAM_READ = "dram__bytes_read.sum"
DRAM_WRITE = "dram__bytes_write.sum"
DRAM_BYTES = "dram__bytes_read.sum+dram__bytes_write.sum"
GPU_TIME = "gpu__time_duration.sum"
INSTRUCTIONS = "smsp__inst_executed.sum"
REGISTERS = "launch__registers_per_thread"
FMA_PIPE = "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active"
ISSUE_ACTIVE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
SECTORS_PER_REQUEST = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
SECTORS_PER_REQUEST_STORE = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio"
TIME = "time_ms"
TIME_MIN, TIME_MAX, TIME_MEAN = "time_ms_min", "time_ms_max", "time_ms_mean"
GFLOPS = "gflops"
FRACTION_OF_CUBLAS = "fraction_of_cublas"
SPEEDUP_VS_CPU = "speedup_vs_cpu"

# Why a warp waits: the reasons of Nsight Compute's "Warp State Statistics", those a matrix multiply can meet.
STALLS = {
    reason: f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
    for reason in (
        "barrier", "dispatch_stall", "lg_throttle", "long_scoreboard", "math_pipe_throttle", "mio_throttle",
        "no_instruction", "not_selected", "short_scoreboard", "wait",
    )
}  # fmt: skip

# Unit counters of the L1 are sampled on some cards and scaled up: an H200's sectors of long kernels wander by some
# thousandths from run to run. These are read off each machine instruction's own addresses, and are exact.
_BY_INSTRUCTION = {
    **{
        ("global", op): f"smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_{op}.sum"
        for op in ("ld", "st", "atom", "red")
    },
    **{("local", op): f"smsp__sass_l1tex_t_sectors_pipe_lsu_mem_local_op_{op}.sum" for op in ("ld", "st")},
    **{("shared", op): f"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st")},
}
# An instruction that no lane takes part in still counts as executed; these leave it out, as requests do.
SHARED_LD_BY_SOME = "smsp__inst_executed_op_shared_ld_pred_on_any.sum"
SHARED_ST_BY_SOME = "smsp__inst_executed_op_shared_st_pred_on_any.sum"
_SPACES = {"global": "global", "local": "local (spilled)"}
_VERBS = {"ld": "load", "st": "store"}


def _accesses() -> list[Metric]:
    """Requests and sectors of every space and direction."""
    found = []
    for space, place in _SPACES.items():
        for op, verb in _VERBS.items():
            found.append(Metric(m.requests(space, op), f"{place} {verb} requests", "request", "address"))
            found.append(Metric(m.sectors(space, op), f"{place} {verb} sectors", "sector", "address"))
    for op, what in (("atom", "atomics with a result"), ("red", "atomics without one")):
        found.append(Metric(m.requests("global", op), f"requests of {what}", "request", "address"))
        found.append(Metric(m.sectors("global", op), f"sectors of {what}", "sector", "address"))
    return found


_ALL = [
    Metric(SM_THROUGHPUT, "SM throughput", "%", "hardware"),
    Metric(MEMORY_THROUGHPUT, "memory throughput", "%", "hardware"),
    Metric(WARPS_ACTIVE, "achieved occupancy", "%", "hardware"),
    *_accesses(),
    Metric(SECTORS_PER_REQUEST, "sectors per load request", "sector/request", "address"),
    Metric(SECTORS_PER_REQUEST_STORE, "sectors per store request", "sector/request", "address"),
    Metric(m.SHARED_LD_REQUESTS, "shared load requests", "inst", "address"),
    Metric(m.SHARED_LD_WAVEFRONTS, "shared load wavefronts", "wavefront", "address"),
    Metric(m.SHARED_LD_CONFLICTS, "shared load bank conflicts", "conflict", "address"),
    Metric(m.SHARED_ST_REQUESTS, "shared store requests", "inst", "address"),
    Metric(m.SHARED_ST_WAVEFRONTS, "shared store wavefronts", "wavefront", "address"),
    Metric(m.SHARED_ST_CONFLICTS, "shared store bank conflicts", "conflict", "address"),
    Metric(L1_HIT_RATE, "L1 hit rate", "%", "hardware"),
    *(
        Metric(
            name,
            f"{space} {op} {'wavefronts' if space == 'shared' else 'sectors'}, by instruction",
            "wavefront" if space == "shared" else "sector",
            "address",
        )
        for (space, op), name in _BY_INSTRUCTION.items()
    ),
    Metric(SHARED_LD_BY_SOME, "shared load requests with a lane in them", "inst", "address"),
    Metric(SHARED_ST_BY_SOME, "shared store requests with a lane in them", "inst", "address"),
    Metric(L2_HIT_RATE, "L2 hit rate", "%", "hardware"),
    Metric(DRAM_READ, "DRAM bytes read", "byte", "hardware"),
    Metric(DRAM_WRITE, "DRAM bytes written", "byte", "hardware"),
    Metric(DRAM_BYTES, "DRAM bytes", "byte", "hardware"),
    Metric(GPU_TIME, "duration under the profiler", "ns", "clock"),
    Metric(INSTRUCTIONS, "machine instructions, per warp", "inst", "hardware"),
    Metric(REGISTERS, "registers per thread", "register/thread", "hardware"),
    Metric(FMA_PIPE, "FP32 pipe busy", "%", "hardware"),
    Metric(ISSUE_ACTIVE, "issue slots busy", "%", "hardware"),
    *(
        Metric(name, f"stalled warps: {reason.replace('_', ' ')}", "warp", "hardware")
        for reason, name in STALLS.items()
    ),
    Metric(m.LOADS_PER_THREAD, "floats loaded per thread", "float/thread", "program"),
    Metric(m.STORES_PER_THREAD, "floats stored per thread", "float/thread", "program"),
    Metric(m.WARP_INSTRUCTIONS, "PTX instructions, per warp", "inst", "program"),
    Metric(m.THREAD_INSTRUCTIONS, "PTX instructions, per thread", "inst", "program"),
    Metric(TIME, "time", "ms", "clock"),
    Metric(TIME_MIN, "time, fastest", "ms", "clock"),
    Metric(TIME_MAX, "time, slowest", "ms", "clock"),
    Metric(TIME_MEAN, "time, mean", "ms", "clock"),
    Metric(GFLOPS, "arithmetic rate", "GFLOP/s", "clock"),
    Metric(FRACTION_OF_CUBLAS, "fraction of cuBLAS", "", "clock"),
    Metric(SPEEDUP_VS_CPU, "speed-up over the CPU loop", "", "clock"),
]
METRICS: dict[str, Metric] = {metric.name: metric for metric in _ALL}

# What `ncu` is asked for, by name rather than by whole sections. Ratios are computed from the counts, not asked for.
COUNTED_BY_ADDRESS = tuple(x.name for x in _ALL if x.decided_by == "address" and x.name.endswith(".sum"))
COUNTED_BY_HARDWARE = (
    SM_THROUGHPUT, MEMORY_THROUGHPUT, WARPS_ACTIVE, L1_HIT_RATE, L2_HIT_RATE, DRAM_READ, DRAM_WRITE, GPU_TIME,
)  # fmt: skip
EXPLAINING = (INSTRUCTIONS, REGISTERS, FMA_PIPE, ISSUE_ACTIVE, *STALLS.values())


def plain(name: str) -> str:
    """What a page calls a metric; its own name where the registry does not know it."""
    return METRICS[name].plain if name in METRICS else name


def unit(name: str) -> str:
    """The base unit of a metric, "" where the registry does not know it."""
    return METRICS[name].unit if name in METRICS else ""


def by_instruction(space: str, op: str) -> str:
    """The exact counter of a space (global, local, shared) and op: its sectors, or for shared memory its wavefronts."""
    return _BY_INSTRUCTION[space, op]
