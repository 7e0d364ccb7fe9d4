"""Tracer, room 6: float64 arithmetic rounded towards zero, up or down, as LLVM IR.

These are rare, so each is a function of its own that sets the CPU's rounding mode and puts it back. (float32 needs no
such thing: it is worked out in float64 and rounded once, see semantics_float.py.)
"""

from __future__ import annotations

from gpudays.ptx.ir import Function, vec

MODES = {"rz": 0, "rp": 2, "rm": 3}  # the numbers of llvm.set.rounding; 1 is to nearest
_WIDE = vec("double")


def directed_name(what: str, mode: str) -> str:
    """`@"fadd.rz"`; `what` is fadd, fsub, fmul, fdiv, fma, sqrt, sitofp or uitofp."""
    return f'@"{what}.{mode}"'


def directed(what: str, mode: str) -> Function:
    """The function `<32 x double> @"fadd.rz"(…)`; sitofp and uitofp take <32 x i64>."""
    count = {"fma": 3, "sqrt": 1, "sitofp": 1, "uitofp": 1}.get(what, 2)
    source = vec("i64") if what.endswith("itofp") else _WIDE
    arguments = ", ".join(f"{source} %a{n}" for n in range(count))
    f = Function(f"{_WIDE} {directed_name(what, mode)}({arguments}) noinline strictfp")
    types = ", ".join([source] * count + ["metadata", "metadata"])
    suffix = ".v32f64.v32i64" if what.endswith("itofp") else ".v32f64"
    intrinsic = f"@llvm.experimental.constrained.{what}{suffix}"
    f.declared |= {f"declare {_WIDE} {intrinsic}({types})", "declare void @llvm.set.rounding(i32)"}
    f.raw(f"call void @llvm.set.rounding(i32 {MODES[mode]}) strictfp")
    how = 'metadata !"round.dynamic", metadata !"fpexcept.ignore"'
    result = f.let(f"call {_WIDE} {intrinsic}({arguments}, {how}) strictfp")
    f.raw("call void @llvm.set.rounding(i32 1) strictfp")
    f.raw(f"ret {_WIDE} {result}")
    return f
