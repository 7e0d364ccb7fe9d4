"""Tracer, room 10: LLVM IR becomes machine code in this process: quickly, and again with care if it runs long."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import weakref
from dataclasses import dataclass

import llvmlite.binding as llvm

from gpudays.ptx.parser import PtxSyntaxError

_lock = threading.RLock()  # garbage collection in the middle of a compilation may close another engine
_ready = False

QUICK, CAREFUL = (0, 0), (1, 2)  # levels of LLVM's passes and of its code generator
# Careful code runs about twice as fast. What it costs to make, per line of IR, and when that is worth it: once quick
# code will run for twice as long, or has run for four times as long.
SECONDS_PER_LINE, WORTH = 1e-4, 2.0
TELLING = (
    0.02  # seconds; a shorter run says little of what is left: the first accesses of a launch are settled in Python
)


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


@dataclass(eq=False)
class Native:
    """Compiled code; keeps its engine alive. `run` is `int run(machine, blocks, count)`."""

    engine: object
    run: object


RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class Tiers:
    """A kernel's code: quick at first, careful from the moment that its running time makes that worth while.

    Which of the two runs a block makes no difference to what the block does; a launch may change between blocks.
    """

    def __init__(self, text: str) -> None:
        self._text, self._making = text, threading.Lock()
        self._cost = SECONDS_PER_LINE * text.count("\n")
        self._ran = 0.0
        self.code = compile_ir(text, *QUICK)
        self.careful = False

    def ran(self, seconds: float, left: float) -> None:
        """Note how long `code` ran just now and may have left to run, in seconds; `code` may be better afterwards."""
        self._ran += seconds
        if not self.careful and seconds > TELLING and self._ran / 2 + left > WORTH * self._cost:
            self.improve()

    def improve(self) -> None:
        """Make the careful code, unless another thread is at it."""
        if self._making.acquire(blocking=False):
            try:
                if not self.careful:
                    self.code, self.careful = compile_ir(self._text, *CAREFUL), True
            finally:
                self._making.release()


def compile_ir(text: str, level: int, effort: int) -> Native:
    """Machine code for a module's text, which defines `@run`."""
    with _lock:
        machine, context = target_machine(effort), _context()
        try:
            module = llvm.parse_assembly(text, context=context)
            module.verify()
        except RuntimeError as error:  # operands of types that the routines did not expect
            raise PtxSyntaxError(f"this PTX does not fit together: {str(error).strip()}") from error
        _optimise(module, machine, level)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        code = Native(engine, RUN(engine.get_function_address("run")))
        # An engine has to go before its context, and garbage collection knows no order: both stay until the code goes.
        weakref.finalize(code, _close, engine, context).atexit = False
        return code


def _close(engine, context) -> None:
    with _lock:
        engine.close()
        context.close()


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
