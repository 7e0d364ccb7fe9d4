"""Tracer, room 10: LLVM IR becomes machine code in this process: quickly, and again with care if it runs long.

What was made is kept in files, as object code, for the next process (compile_cache.py).
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import llvmlite
import llvmlite.binding as llvm

from gpudays import compile_cache
from gpudays.ptx import ir
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
    triple, name, features = _cpu()
    target = llvm.Target.from_triple(triple)
    return target.create_target_machine(cpu=name, features=features, opt=effort, jit=True)


@lru_cache(maxsize=1)
def _cpu() -> tuple[str, str, str]:
    """What code is made for: (triple, the CPU's name, its features)."""
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


class Part:
    """A module of LLVM IR: functions that call each other and those of other parts, kept with their machine code.

    Attributes:
        text: the module.
        calls: the parts whose functions it calls.
        made: its machine code by tier, QUICK or CAREFUL, once it is there.
    """

    def __init__(self, functions: Sequence[ir.Function], calls: Sequence[Part] = (), extra: str = "") -> None:
        self.text = ir.module(list(functions), *layout_of_this_machine(), extra)
        self.lines = self.text.count("\n")
        self.calls = tuple(calls)
        self.made: dict[tuple[int, int], Native] = {}

    def compiled(self, tier: tuple[int, int]) -> Native:
        """Its machine code, made at the first call; careful code serves for quick, where it is there or was kept."""
        with _lock:
            have = self.made.get(CAREFUL) or self.made.get(tier)
            if have is None:
                calls = [part.compiled(tier) for part in self.calls]
                kept = _kept(self.text, *CAREFUL)
                best = CAREFUL if kept else tier
                have = self.made[best] = compile_ir(self.text, *best, calls, kept)
            return have

    def lines_without(self, tier: tuple[int, int]) -> int:
        """Lines of IR to compile before it and all that it calls has code of this tier."""
        parts, todo = set(), [self]
        while todo:
            part = todo.pop()
            if part not in parts and tier not in part.made:
                parts.add(part)
                todo += part.calls
        return sum(part.lines for part in parts)


@dataclass(eq=False)
class Native:
    """Machine code: where each function lies. Keeps its engine alive, and the code that it calls."""

    engine: object = field(repr=False)
    addresses: dict[str, int]
    calls: Sequence[Native] = field(repr=False)

    @cached_property
    def run(self):
        """`int run(machine, blocks, count)`, where the code is a kernel's."""
        return RUN(self.addresses["run"])


RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)


class Tiers:
    """A kernel's code: quick at first, careful from the moment that its running time makes that worth while.

    Which of the two runs a block makes no difference to what the block does; a launch may change between blocks.
    """

    def __init__(self, part: Part) -> None:
        self._part, self._making = part, threading.Lock()
        self._ran = 0.0
        self.code = part.compiled(QUICK)
        self.careful = CAREFUL in part.made

    def prepare(self) -> None:
        """Make the careful code of what the kernel calls: every kernel after it is going to call that too."""
        for part in self._part.calls:
            part.compiled(CAREFUL)

    def ran(self, seconds: float, left: float) -> None:
        """Note how long `code` ran just now and may have left to run, in seconds; `code` may be better afterwards."""
        self._ran += seconds
        if not self.careful and seconds > TELLING:
            cost = SECONDS_PER_LINE * self._part.lines_without(CAREFUL)
            if self._ran / 2 + left > WORTH * cost:
                self.improve()

    def improve(self) -> None:
        """Make the careful code, unless another thread is at it."""
        if self._making.acquire(blocking=False):
            try:
                self.code, self.careful = self._part.compiled(CAREFUL), True
                self._part.made.pop(QUICK, None)
            finally:
                self._making.release()


@dataclass(frozen=True)
class ObjectCode:
    """A module's machine code before it has its place: an object file, and the functions that it defines."""

    file: bytes
    functions: tuple[str, ...]


def compile_ir(
    text: str, level: int, effort: int, calls: Sequence[Native] = (), kept: ObjectCode | None = None
) -> Native:
    """Machine code for a module's text, of which `kept` is known already, if anything.

    Functions that it only declares are those of `calls`, or the process's.
    """
    with _lock:
        return _placed(kept or _kept(text, level, effort) or _made(text, level, effort), calls)


def _key(text: str, level: int, effort: int) -> str:
    return compile_cache.key("llvm", llvmlite.__version__, llvm.llvm_version_info, _cpu(), text, level, effort)


def _kept(text: str, level: int, effort: int) -> ObjectCode | None:
    """What this or another process made of the same text before."""
    entry = compile_cache.read(_key(text, level, effort))
    with contextlib.suppress(KeyError, TypeError, ValueError):
        return entry and ObjectCode(base64.b64decode(entry["object"], validate=True), tuple(entry["functions"]))
    return None


def _made(text: str, level: int, effort: int) -> ObjectCode:
    machine, context = target_machine(effort), _context()
    try:
        module = llvm.parse_assembly(text, context=context)
        module.verify()
    except RuntimeError as error:  # operands of types that the routines did not expect
        raise PtxSyntaxError(f"this PTX does not fit together: {str(error).strip()}") from error
    _optimise(module, machine, level)
    code = ObjectCode(machine.emit_object(module), tuple(f.name for f in module.functions if not f.is_declaration))
    entry = {"object": base64.b64encode(code.file).decode(), "functions": code.functions}
    compile_cache.write(_key(text, level, effort), entry)
    return code


def _placed(code: ObjectCode, calls: Sequence[Native]) -> Native:
    """Give object code its place in memory, and link it to the functions of `calls`."""
    known = {name: address for native in calls for name, address in native.addresses.items()}
    context = _context()
    target, layout = layout_of_this_machine()
    declared = [
        f'target triple = "{target}"',
        f'target datalayout = "{layout}"',
        *(f'declare void @"{n}"()' for n in known),
    ]
    module = llvm.parse_assembly("\n".join(declared), context=context)
    engine = llvm.create_mcjit_compiler(module, target_machine())
    for f in module.functions:
        engine.add_global_mapping(f, known[f.name])
    engine.add_object_file(llvm.ObjectFileRef.from_data(code.file))
    engine.finalize_object()
    native = Native(engine, {name: engine.get_function_address(name) for name in code.functions}, tuple(calls))
    # An engine has to go before its context, and garbage collection knows no order: both stay until the code goes.
    weakref.finalize(native, _close, engine, context).atexit = False
    return native


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


@lru_cache(maxsize=1)
def layout_of_this_machine() -> tuple[str, str]:
    """(target triple, data layout)."""
    return llvm.get_process_triple(), str(target_machine().target_data)
