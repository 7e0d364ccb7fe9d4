"""Compile-error room: NVRTC's messages shown against the student's own lines, with one remedy for the usual causes."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

MESSAGE = re.compile(
    r"^(?P<file>\S.*?)\((?P<line>\d+)\): (?P<severity>(?:catastrophic )?error|warning)(?: #\S+)?: (?P<text>.*)$"
)
INCLUDE = re.compile(r'not open source file "([^"]+)"')
UNDEFINED = re.compile(r'identifier "([^"]+)" is undefined')

# Tried with NVRTC 12.9 and no header at all: each of these is there.
NO_HEADER_NEEDED = (
    "printf, assert, size_t, float4, dim3, memset, sqrtf, fmaxf, warpSize and NULL work without any header"
)
CUDA_HEADERS = re.compile(r"^(cuda|device_|vector_|cooperative_groups|mma|crt/|nv/|sm_\d)")
INSTEAD = {
    "uint": "unsigned int",
    "ushort": "unsigned short",
    "ulong": "unsigned long",
    "uchar": "unsigned char",
    "uint8_t": "unsigned char",
    "uint16_t": "unsigned short",
    "uint32_t": "unsigned int",
    "uint64_t": "unsigned long long",
    "int8_t": "signed char",
    "int16_t": "short",
    "int32_t": "int",
    "int64_t": "long long",
    "INFINITY": "__int_as_float(0x7f800000)",
    "NAN": "__int_as_float(0x7fffffff)",
    "FLT_MAX": "3.402823466e+38f",
    "FLT_MIN": "1.175494351e-38f",
    "FLT_EPSILON": "1.192092896e-07f",
    "INT_MAX": "2147483647",
    "UINT_MAX": "4294967295u",
    "M_PI": "3.14159265358979323846",
    "half": "half with #include <cuda_fp16.h> as the first line",
    "__half": "__half with #include <cuda_fp16.h> as the first line",
}
CUDA_NAMES = {
    *("threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize"),
    *("__global__", "__device__", "__shared__", "__constant__", "__restrict__", "__launch_bounds__"),
    *("__syncthreads", "__syncwarp", "__activemask", "__ballot_sync", "__any_sync", "__all_sync", "__threadfence"),
    *("__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync", "__ldg"),
    *("atomicAdd", "atomicMax", "atomicMin", "atomicCAS", "atomicExch"),
    *("float2", "float4", "int4", "make_float4", "size_t", "fmaf", "sqrtf", "fmaxf", "fminf"),
}
HOST_CALLS = re.compile(r"^(cuda[A-Z]\w*|malloc|free|exit|main|cout|endl|vector)$")


@dataclass(frozen=True)
class Diagnostic:
    """One message of NVRTC. ``line`` and ``column`` count from 1 (column 0: NVRTC pointed at none); ``in_source`` says
    whether it lies in the student's source or in a header."""

    file: str
    line: int
    column: int
    severity: str
    message: str
    shown: tuple[str, ...]
    in_source: bool


class CompileError(Exception):
    """The source does not compile.

    Attributes:
        log: NVRTC's own text, whole.
        diagnostics: the messages, in NVRTC's order.
        remedy: one line on what to do, or "" when the cause is none of the usual ones.
    """

    def __init__(self, source: str, log: str, file_name: str = "kernel.cu", compiler: str = "NVRTC") -> None:
        self.source = source
        self.log = log
        self.diagnostics = parse_log(log, file_name)
        self.remedy = remedy(source, self.diagnostics, log)
        errors = [d for d in self.diagnostics if d.severity != "warning"]
        count = f"{len(errors)} error{'s' if len(errors) != 1 else ''}" if errors else "no message that names a line"
        lines = source.splitlines()
        body = [_against(d, lines) for d in errors] if errors else [log.strip()]
        tail = [f"What to do: {self.remedy}"] if self.remedy else []
        super().__init__("\n\n".join([f"The CUDA C++ did not compile ({compiler}): {count}.", *body, *tail]))

    def _render_traceback_(self) -> list[str]:
        """In a notebook: the message alone. The frames between the cell and NVRTC would push it out of sight."""
        return [str(self)]


def parse_log(log: str, file_name: str = "kernel.cu") -> tuple[Diagnostic, ...]:
    """NVRTC's log as messages; the two lines after a message are its source line and a caret."""
    lines = log.splitlines()
    found = []
    for number, line in enumerate(lines):
        match = MESSAGE.match(line)
        if not match:
            continue
        shown: list[str] = []
        for after in lines[number + 1 :]:
            if not after.strip() or MESSAGE.match(after):
                break
            shown.append(after)
        caret = next((text.index("^") - 1 for text in shown if text.strip() == "^"), 0)  # two columns of indent
        found.append(
            Diagnostic(
                match["file"], int(match["line"]), caret, match["severity"], match["text"], tuple(shown),
                match["file"] == file_name,
            )
        )  # fmt: skip
    return tuple(found)


def _against(diagnostic: Diagnostic, source: list[str]) -> str:
    """One message with the student's line before it, the line itself, its neighbour above and a caret."""
    place = f"{diagnostic.file}, line {diagnostic.line}" + (
        f", column {diagnostic.column}" if diagnostic.column else ""
    )
    head = f"{place}: {diagnostic.severity}: {diagnostic.message}"
    if not diagnostic.in_source or not 1 <= diagnostic.line <= len(source):
        return "\n".join([head, *diagnostic.shown])
    shown = [f"{n:5d} | {source[n - 1]}" for n in (diagnostic.line - 1, diagnostic.line) if n >= 1]
    if diagnostic.column:
        text = source[diagnostic.line - 1][: diagnostic.column - 1]
        shown.append("      | " + "".join("\t" if c == "\t" else " " for c in text) + "^")
    return "\n".join([head, *shown])


def remedy(source: str, diagnostics: tuple[Diagnostic, ...], log: str = "") -> str:
    """What to do about the first message whose cause is a usual one; "" if none is."""
    for diagnostic in diagnostics:
        for cure in (_include, _identifier, _other):
            if text := cure(diagnostic, source):
                return text
    if "name expression" in log:
        return "the name in angle brackets fits no template of this source: check its name and its arguments"
    return ""


def _include(diagnostic: Diagnostic, source: str) -> str:
    match = INCLUDE.search(diagnostic.message)
    if not match:
        return ""
    header, where = match[1], f"line {diagnostic.line}"
    if not diagnostic.in_source:
        return f"{diagnostic.file} needs the header {header}, which is not here: delete the #include that led to it."
    if CUDA_HEADERS.match(header):
        return (
            f"delete {where}, #include <{header}>, if only the basic names are needed ({NO_HEADER_NEEDED}); otherwise "
            "install CUDA's headers: python -m pip install nvidia-cuda-runtime-cu12"
        )
    return f"delete {where}, #include <{header}>: a host header, which NVRTC does not have. {NO_HEADER_NEEDED}."


def _identifier(diagnostic: Diagnostic, source: str) -> str:
    match = UNDEFINED.search(diagnostic.message)
    std = re.search(r'namespace "std" has no member "([^"]+)"', diagnostic.message)
    if std:
        return f"NVRTC has no std::{std[1]}: CUDA's own functions need no namespace (max, min, sqrtf, fmaxf, printf)."
    if not match:
        return ""
    name = match[1]
    if name in INSTEAD:
        return f"{name} comes from a header that is not here: write {INSTEAD[name]}."
    if HOST_CALLS.match(name):
        return f"{name} belongs to the host: this source holds kernels only, the page's Python allocates and launches."
    close = difflib.get_close_matches(name, sorted(CUDA_NAMES), n=1, cutoff=0.75)
    return f"{name} is not declared: did you mean {close[0]}?" if close else ""


def _other(diagnostic: Diagnostic, source: str) -> str:
    text = diagnostic.message
    if "without execution space annotations" in text:
        return (
            f"line {diagnostic.line} starts a host function: write __device__ before it if a kernel calls it, "
            "or delete it (main and launches stay in Python)."
        )
    if 'extern "C" linkage' in text or "linkage specification is not allowed" in text:
        return 'a template cannot be extern "C": remove extern "C" and name the instance, as in "matmulTiled<32>".'
    return ""
