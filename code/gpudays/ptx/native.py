"""Tracer, room 10: LLVM IR becomes machine code in this process, once per kernel and CPU."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from dataclasses import dataclass

import llvmlite.binding as llvm

from gpudays.ptx.parser import PtxSyntaxError

_lock = threading.Lock()
_ready = False


def _prepare() -> None:
    global _ready
    if not _ready:
        with contextlib.suppress(RuntimeError):  # newer versions do this by themselves
            llvm.initialize()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        _ready = True


def target_machine(effort: int = 2):
    """The code generator for this CPU with all its vector instructions; `effort` 0 to 3 as in LLVM's `llc -O`."""
    _prepare()
    triple = llvm.get_process_triple()
    target = llvm.Target.from_triple(triple)
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=effort, jit=True)


@dataclass
class Native:
    """Compiled code; keeps its engine alive. `run` is `int run(machine, blocks, count)`."""

    engine: object
    run: object


RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


def compile_ir(text: str, level: int = 1, effort: int = 2) -> Native:
    """Machine code for a module's text, which defines `@run`."""
    with _lock:
        machine = target_machine(effort)
        try:
            module = llvm.parse_assembly(text, context=_context())
            module.verify()
        except RuntimeError as error:  # operands of types that the routines did not expect
            raise PtxSyntaxError(f"this PTX does not fit together: {str(error).strip()}") from error
        _optimise(module, machine, level)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        return Native(engine, RUN(engine.get_function_address("run")))


def _context():
    """An LLVM context of our own, with untyped pointers, which LLVM 15 (llvmlite 0.44) must be asked for."""
    if llvm.llvm_version_info[0] < 15:
        raise ImportError("the tracer needs llvmlite 0.44 or newer: pip install -U llvmlite")
    flags = sys.modules["llvmlite.binding.context"]
    asked = getattr(flags, "opaque_pointers_enabled", None)
    if asked is None:
        return llvm.create_context()
    flags.opaque_pointers_enabled = True
    try:
        return llvm.create_context()
    finally:
        flags.opaque_pointers_enabled = asked


def _optimise(module, machine, level: int) -> None:
    if hasattr(llvm, "create_pass_builder"):
        options = llvm.create_pipeline_tuning_options(speed_level=level)
        options.loop_vectorization = options.slp_vectorization = False
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    else:
        builder = llvm.PassManagerBuilder()
        builder.opt_level = level
        manager = llvm.ModulePassManager()
        builder.populate(manager)
        manager.run(module)


def layout_of_this_machine() -> tuple[str, str]:
    """(target triple, data layout)."""
    return llvm.get_process_triple(), str(target_machine().target_data)
