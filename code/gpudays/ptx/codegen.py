"""Tracer, room 7: a kernel's blocks become one LLVM function that runs a warp until it ends or must wait.

`i32 @warp(M, W)` continues the warp where it stands. Inside a block registers are LLVM values; what other blocks need
lies in the warp's memory between blocks, so that a barrier is simply a return. All lanes of a warp that stand at the
same block run together; when lanes part, each lane's block is written down and the lowest-numbered one goes first
(cfg.py says why that brings them together again).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from gpudays.ptx import cfg, dataflow
from gpudays.ptx import layout as at
from gpudays.ptx.ir import BITS, Function, vec
from gpudays.ptx.model import UnsupportedInstruction
from gpudays.ptx.parser import Address, Imm, Instruction, Operand, Reg, Special, Symbol
from gpudays.ptx.parser import Function as Kernel
from gpudays.ptx.values import ELEMENTS, Delta, Value, Values

PASS_ON = {"add", "sub", "mov", "cvta"}  # operations that leave an address's deltas as they are


@dataclass
class Site:
    """A memory instruction: what it is, for counting and for messages."""

    number: int
    instruction: Instruction
    op: str  # ld, st, atom, red
    space: str  # global, shared, local, const, generic
    width: int  # bytes per lane


@dataclass
class Slot:
    """Where a register lies between blocks: kind "scalar", "vector" or "affine" (base, shape, delta)."""

    kind: str
    offset: int
    element: str


@dataclass
class Plan:
    """What the code generator needs to know of a kernel's surroundings.

    `addresses`: where each variable lies, by name: (space, address). `cell` and `global_cell`: bytes per race record of
    shared and global memory.
    """

    kernel: Kernel
    graph: cfg.Graph
    facts: dataflow.Facts
    addresses: dict[str, tuple[str, int]]
    param_offsets: dict[str, int]
    local_bytes: int
    cell: int
    global_cell: int
    checks: bool


@dataclass
class Code:
    """A translated kernel: the LLVM function, its memory sites, the routines that it calls, a warp's size in bytes."""

    function: Function
    sites: list[Site] = field(default_factory=list)
    routines: set[tuple[str, str, int, int]] = field(default_factory=set)
    directed: set[tuple[str, str]] = field(default_factory=set)
    atomics: set[tuple[str, str, str, str, str]] = field(default_factory=set)
    warp_bytes: int = 0


class Generator:
    """Translates one kernel. Instruction semantics are in instructions.py; each is called with this object."""

    def __init__(self, plan: Plan, semantics):
        self.plan, self.semantics = plan, semantics
        self.instruction: Instruction | None = None
        self.f = Function("i32 @warp(ptr %M, ptr %W)")
        self.code = Code(self.f)
        self.v = Values(self.f)
        self.registers = plan.kernel.registers
        self.affine = _addresses(plan)
        self.slots = self._place_slots()
        self.env: dict[str, Value] = {}
        self.loaded: dict[str, Value] = {}
        self.active = ""
        self.carry: Value | None = None
        self.read_somewhere: set[str] | None = None

    # -- the whole function

    def generate(self) -> Code:
        f = self.f
        self.active_at = f.alloca("i32", 4)
        self.wait_at = f.alloca("i32", 4)
        self.next_at = f.alloca("i32", 4)
        split = f.load("i32", "%W", at.SPLIT)
        whole = f.label("whole")
        f.branch(f.let(f"icmp eq i32 {split}, 0"), whole, "again", likely=True)
        f.at(whole)
        f.store("i32", f.load("i32", "%W", at.LIVE), self.active_at)
        f.store("i32", str(at.NOWHERE), self.wait_at)
        f.store("i32", f.load("i32", "%W", at.PC), self.next_at)
        f.goto("dispatch")
        f.at("leave")  # the active lanes go to block `next`, but others wait at it or before it
        self.move_to(f.load("i32", self.active_at), f.load("i32", self.next_at))
        f.goto("again")
        f.at("again")
        first = f.call("i32", "@reconverge", ("ptr", "%W"))
        f.store("i32", first, self.next_at)
        f.store("i32", f.load("i32", "%W", at.ACTIVE), self.active_at)
        f.store("i32", f.load("i32", "%W", at.NEXT_WAIT), self.wait_at)
        f.branch(f.let(f"icmp slt i32 {first}, 0"), "nobody", "dispatch")
        f.at("nobody")  # every lane has ended or waits at a barrier
        live = f.load("i32", "%W", at.LIVE)
        ended = f.let(f"icmp eq i32 {live}, 0")
        f.raw(f"ret i32 {f.let(f'select i1 {ended}, i32 {at.DONE}, i32 {at.AT_BARRIER}')}")
        f.at("dispatch")
        f.goto("jump")
        f.at("jump")
        cases = " ".join(f"i32 {n}, label %b{n}" for n in range(len(self.plan.graph.blocks)))
        f.raw(f"switch i32 {f.load('i32', self.next_at)}, label %lost [ {cases} ]")
        f.at("lost")
        f.raw("unreachable")
        for n, block in enumerate(self.plan.graph.blocks):
            self.block(n, block)
        return self.code

    def block(self, n: int, block: cfg.Block) -> None:
        f = self.f
        f.at(f"b{n}")
        self.v.new_block()
        self.env, self.loaded, self.number, self.carry = {}, {}, n, None
        self.active = f.load("i32", self.active_at)
        if any(n in b.successors for b in self.plan.graph.blocks[n:]):
            self.spend(n)
        counts = f.load("ptr", "%M", at.BLOCK_COUNTS)
        f.add_to("i64", "1", counts, 16 * n)
        lanes = f.let(f"zext i32 {f.call('i32', '@llvm.ctpop.i32', ('i32', self.active))} to i64")
        f.add_to("i64", lanes, counts, 16 * n + 8)
        for i in block.instructions:
            self.translate(i)
        if block.end[0] == "barrier":
            self.instruction = block.end[1]
            self.semantics.arrive(self, block.end[1])
        self.instruction = block.end_instruction or self.instruction
        predicate = None
        if block.end[0] in ("branch", "switch"):
            predicate = self.read(block.end[1])
            if (predicate.element == "i1") != (block.end[0] == "branch"):
                raise self.unsupported("a register of the wrong type")
        self.write_back(block)
        self.leave(n, block, predicate)

    def translate(self, i: Instruction) -> None:
        self.instruction = i
        handler = self.semantics.find(i)
        if handler is None:
            raise self.unsupported()
        try:
            handler(self, i)
        except (AttributeError, AssertionError, IndexError, KeyError, TypeError, ValueError) as error:
            raise self.unsupported("its operands do not fit it") from error

    def unsupported(self, reason: str = "") -> UnsupportedInstruction:
        i = self.instruction
        if i is None:
            return UnsupportedInstruction(self.plan.kernel.name, 0, 0, reason)
        return UnsupportedInstruction(i.opcode, i.line, i.ptx_line, reason)

    # -- registers between blocks

    def _place_slots(self) -> dict[str, Slot]:
        slots: dict[str, Slot] = {}
        offset = at.REGISTERS
        for name in sorted(set().union(*self.plan.facts.live_in)):
            element = self.element(name)
            if name in self.plan.facts.uniform:
                kind, size = "scalar", 8
            elif name in self.affine:
                kind, size = "affine", 48 + 8 * at.LANES
            else:
                kind, size = "vector", 4 if element == "i1" else at.LANES * BITS[element] // 8
            if size >= 64:
                offset = (offset + 31) // 32 * 32
            slots[name] = Slot(kind, offset, element)
            offset += (size + 7) // 8 * 8
        self.code.warp_bytes = (offset + 63) // 64 * 64
        return slots

    def element(self, register: str) -> str:
        try:
            return ELEMENTS[self.registers[register]]
        except KeyError:
            raise self.unsupported(f"register {register} is of no known type") from None

    def fetch(self, name: str) -> Value:
        """A register's value, loaded from the warp's memory at its first use in a block."""
        if name not in self.env:
            if name not in self.registers:
                raise self.unsupported(f"no register {name}")
            slot = self.slots.get(name)
            self.env[name] = self._load_slot(slot) if slot else _undefined(self.element(name))
            self.loaded[name] = self.env[name]
        return self.env[name]

    def _load_slot(self, slot: Slot) -> Value:
        f, element = self.f, slot.element
        if slot.kind == "scalar":
            if element == "i1":
                byte = f.load("i8", "%W", slot.offset)
                return Value(element, scalar=f.let(f"trunc i8 {byte} to i1"))
            return Value(element, scalar=f.load(element, "%W", slot.offset))
        if slot.kind == "vector":
            if element == "i1":
                return Value(element, vector=f.load("i32", "%W", slot.offset))
            return Value(element, vector=f.load(vec(element), "%W", slot.offset, 32))
        return self._load_affine(slot)

    def _load_affine(self, slot: Slot) -> Value:
        f = self.f
        vector = f.pointer("%W", _delta_offset(slot))
        cell = f.pointer("%W", slot.offset + 8)
        return Value(slot.element, base=f.load(slot.element, "%W", slot.offset), delta=Delta(None, vector, cell))

    def write_back(self, block: cfg.Block) -> None:
        """Put what later blocks may read into the warp's memory."""
        needed = set().union(*(self.plan.facts.live_in[s] for s in block.successors))
        pending = []
        for name, value in self.env.items():
            if name in needed and self.loaded.get(name) is not value:
                pending.append((self.slots[name], name, value, *self._ready(name, value)))
        for slot, name, value, ready, shape in pending:
            self._store_slot(slot, name, value, ready, shape)

    def _ready(self, name: str, value: Value) -> tuple[str | None, str | None]:
        """Everything that must be read before any slot is overwritten."""
        slot = self.slots[name]
        if slot.kind == "scalar":
            if value.scalar is None:
                raise AssertionError(f"{name} was taken for uniform but is not")
            return value.scalar, None
        if slot.kind == "vector":
            return self.v.wide(value), None
        self.v.affine(value)
        old = self.loaded.get(name)
        if old is not None and old.delta is value.delta:
            return None, None  # only the base has moved
        shape = self.f.load("ptr", value.delta.cell) if value.delta.cell else "null"
        return self.v.delta_vector(value.delta), shape

    def _store_slot(self, slot: Slot, name: str, value: Value, ready: str | None, shape: str | None) -> None:
        f, element = self.f, slot.element
        if slot.kind == "scalar":
            if element == "i1":
                f.store("i8", f.let(f"zext i1 {ready} to i8"), "%W", slot.offset)
            else:
                f.store(element, ready, "%W", slot.offset)
        elif slot.kind == "vector":
            kind = "i32" if element == "i1" else vec(element)
            if name not in self.plan.facts.safe:
                ready = self.blend(element, self.active, ready, f.load(kind, "%W", slot.offset, 4))
            f.store(kind, ready, "%W", slot.offset, 4 if element == "i1" else 32)
        else:
            f.store(element, value.base, "%W", slot.offset)
            if ready is not None:
                f.store("ptr", shape, "%W", slot.offset + 8)
                f.store(vec("i64"), ready, "%W", _delta_offset(slot), 32)

    def blend(self, element: str, mask: str, new: str, old: str) -> str:
        """Per lane: `new` where the bit of `mask` is set, else `old`."""
        f = self.f
        if element == "i1":
            keep = f.let(f"and i32 {old}, {f.let(f'xor i32 {mask}, -1')}")
            return f.let(f"or i32 {f.let(f'and i32 {new}, {mask}')}, {keep}")
        bools = f.let(f"bitcast i32 {mask} to {vec('i1')}")
        return f.let(f"select {vec('i1')} {bools}, {vec(element)} {new}, {vec(element)} {old}")

    # -- operands

    def read(self, operand: Operand, element: str | None = None) -> Value:
        """An operand's value, as LLVM type `element` (default: the register's own)."""
        match operand:
            case Reg(name, negated):
                value = self.fetch(name)
                if negated:
                    value = self.negate(value)
            case Imm():
                value = self.literal(operand, element)
            case Special(name):
                value = self.semantics.special(self, name)
            case Symbol(name, offset):
                value = Value("i64", scalar=str(self.address_of(name) + offset))
            case _:
                raise self.unsupported("an operand that it cannot have")
        return self.v.cast(value, element) if element else value

    def negate(self, predicate: Value) -> Value:
        return self.v.apply("i1", lambda up, p: up.op("xor", "i1", p, up.const("i1", "true")), predicate)

    def literal(self, imm: Imm, element: str | None) -> Value:
        element = element or "i32"
        bits = imm.bits
        if element == "float" and bits is None:
            bits = struct.unpack("<I", struct.pack("<f", imm.value))[0]
        elif element == "double" and bits is None:
            bits = struct.unpack("<Q", struct.pack("<d", imm.value))[0]
        if element in ("float", "double"):
            return Value(element, scalar=self.f.let(f"bitcast i{BITS[element]} {bits} to {element}"))
        if element == "i1":
            return Value(element, scalar="true" if imm.value else "false")
        if bits is None and isinstance(imm.value, float):
            raise self.unsupported("a decimal fraction where bits are wanted")
        number = bits if bits is not None else imm.value
        return Value(element, scalar=str(_signed(number, BITS[element])))

    def address_of(self, name: str) -> int:
        if name not in self.plan.addresses:
            raise self.unsupported(f"no variable {name}")
        return self.plan.addresses[name][1]

    def write(self, target: Operand, value: Value, signed: bool = False) -> None:
        """Give a register its new value: widened to the register, and only where the predicate holds."""
        if target is None:
            return
        if not isinstance(target, Reg):
            raise self.unsupported("a result that is no register")
        element = self.element(target.name)
        if element != value.element:
            value = self._fit(value, element, signed)
        if self.instruction.predicate is not None:
            value = self._predicated(target.name, element, value)
        if target.name in self.affine and target.name in self.slots and value.scalar is None:
            value = self.v.affine(value)
        self.env[target.name] = value

    def _fit(self, value: Value, element: str, signed: bool) -> Value:
        have, want = BITS[value.element], BITS[element]
        if signed and have < want:
            return self.v.apply(element, lambda up, x: up.cast("sext", value.element, x, element), value)
        return self.v.cast(value, element)

    def _predicated(self, name: str, element: str, new: Value) -> Value:
        condition = self.condition()
        old = self.fetch(name)
        if condition.scalar is not None and new.scalar is not None and old.scalar is not None:
            chosen = self.f.let(f"select i1 {condition.scalar}, {element} {new.scalar}, {element} {old.scalar}")
            return Value(element, scalar=chosen)
        mask = self.v.wide(condition)
        return Value(element, vector=self.blend(element, mask, self.v.wide(new), self.v.wide(old)))

    def condition(self) -> Value:
        """The current instruction's predicate."""
        condition = self.read(self.instruction.predicate)
        if condition.element != "i1":
            raise self.unsupported("a predicate that is none")
        return condition

    def mask(self) -> str:
        """The lanes in which the current instruction takes effect (i32)."""
        if self.instruction.predicate is None:
            return self.active
        return self.f.let(f"and i32 {self.active}, {self.v.wide(self.condition())}")

    # -- memory

    def site(self, op: str, space: str, width: int) -> str:
        """Register a memory instruction; gives the pointer to its site."""
        number = len(self.code.sites)
        self.code.sites.append(Site(number, self.instruction, op, space, width))
        return self.f.pointer(self.f.load("ptr", "%M", at.SITES), number * at.SITE_SIZE)

    def address(self, operand: Operand, space: str) -> tuple[str, str, str]:
        """A memory operand as (base i64, pointer to deltas, pointer to the shape's cell)."""
        if not isinstance(operand, Address):
            raise self.unsupported("an address is wanted")
        f = self.f
        if isinstance(operand.base, Reg):
            value = self.fetch(operand.base.name)
            if value.element not in ("i32", "i64"):
                raise self.unsupported("an address must be a 32- or 64-bit register")
            value = self.v.affine(value)
            base = value.base if value.element == "i64" else f.let(f"zext i32 {value.base} to i64")
            delta = value.delta
        else:
            absolute = self.address_of(operand.base.name) if isinstance(operand.base, Symbol) else operand.base.value
            base, delta = str(absolute), self.v.zero_delta()
        if operand.offset:
            base = f.let(f"add i64 {base}, {operand.offset}")
        return base, *self.v.delta_memory(delta)

    def access(self, op: str, space: str, width: int, count: int, operand: Operand, where: Value | None = None) -> None:
        """Call the routine that performs an access of `count` values of `width` bytes per lane: of all, or of some."""
        routine = "global" if space == "const" else space
        self.code.routines.add((op, routine, width, count))
        site = self.site(op, space, width * count)
        base, delta, cell = self.address(operand, space)
        mask = self.mask()
        if where is not None:
            mask = self.f.let(f"and i32 {mask}, {self.v.wide(where)}")
        self.f.call(
            "void", f'@"{op}.{routine}.{width}x{count}"', ("ptr", "%M"), ("ptr", "%W"), ("ptr", site), ("i64", base),
            ("ptr", delta), ("ptr", cell), ("i32", mask),
        )  # fmt: skip

    def atomic(self, op: str, space: str, what: str, kind: str, element: str, operand: Operand) -> None:
        """Call the routine of an atomic operation; its operands are staged."""
        self.code.atomics.add((op, space, what, kind, element))
        site = self.site(op, space, BITS[element] // 8)
        base, delta, cell = self.address(operand, space)
        self.f.call(
            "void", f'@"{op}.{space}.{what}.{kind}"', ("ptr", "%M"), ("ptr", "%W"), ("ptr", site), ("i64", base),
            ("ptr", delta), ("ptr", cell), ("i32", self.mask()),
        )  # fmt: skip

    def directed(self, what: str, mode: str, *values: Value) -> Value:
        """float64 arithmetic in a rounding mode of its own (directed_ir.py)."""
        self.code.directed.add((what, mode))
        kind = vec("i64" if what.endswith("itofp") else "double")
        result = self.f.call(vec("double"), f'@"{what}.{mode}"', *((kind, self.v.wide(v)) for v in values))
        if all(v.scalar is not None for v in values):
            return Value("double", scalar=self.f.let(f"extractelement {vec('double')} {result}, i32 0"))
        return Value("double", vector=result)

    def is_read(self, target: Operand) -> bool:
        """Whether any instruction reads the register `target`."""
        if self.read_somewhere is None:
            blocks = self.plan.graph.blocks
            code = [*(i for b in blocks for i in b.instructions), *(b.end_instruction for b in blocks)]
            self.read_somewhere = {r.name for i in code if i is not None for r in dataflow.sources(i)}
        return isinstance(target, Reg) and target.name in self.read_somewhere

    def uniform_address(self, operand: Operand) -> bool:
        """Whether all lanes certainly have the same address."""
        if not isinstance(operand.base, Reg):
            return True
        value = self.fetch(operand.base.name)
        return value.scalar is not None or (value.delta is not None and value.delta.zero)

    # -- leaving a block

    def move_to(self, mask: str, block: str) -> None:
        self.f.call("void", "@move_to", ("ptr", "%W"), ("i32", mask), ("i32", block))

    def leave(self, n: int, block: cfg.Block, predicate: Value | None) -> None:
        f = self.f
        match block.end[0]:
            case "goto":
                self.go(block.end[1])
            case "branch":
                self.fork(predicate, block.end[2], block.end[3])
            case "switch":
                self.switch(predicate, block.end[2])
            case "barrier":
                self.wait(block.end[2])
            case "trap":
                self.semantics.trap(self, block.end[1])
            case "exit":
                live = f.load("i32", "%W", at.LIVE)
                f.store("i32", f.let(f"and i32 {live}, {f.let(f'xor i32 {self.active}, -1')}"), "%W", at.LIVE)
                f.goto("again")

    def go(self, to: int) -> None:
        """The active lanes go to block `to`: at once, unless other lanes wait there or before."""
        f = self.f
        wait, first = f.load("i32", self.wait_at), f.label("first")
        later = f.label("later")
        f.branch(f.let(f"icmp sgt i32 {wait}, {to}"), first, later, likely=True)
        f.at(later)
        f.store("i32", str(to), self.next_at)
        f.goto("leave")
        f.at(first)
        f.goto(f"b{to}")

    def fork(self, predicate: Value, then: int, otherwise: int) -> None:
        f = self.f
        yes, no = f.label("yes"), f.label("no")
        if predicate.scalar is not None:
            f.branch(predicate.scalar, yes, no)
        else:
            some, both, apart = f.label("some"), f.label("both"), f.label("apart")
            taken = f.let(f"and i32 {predicate.vector}, {self.active}")
            f.branch(f.let(f"icmp eq i32 {taken}, 0"), no, some)
            f.at(some)
            f.branch(f.let(f"icmp eq i32 {taken}, {self.active}"), yes, both)
            f.at(both)
            f.goto(apart)
            f.at(apart)
            self.move_to(taken, str(then))
            self.move_to(f.let(f"xor i32 {taken}, {self.active}"), str(otherwise))
            f.goto("again")
        f.at(yes)
        self.go(then)
        f.at(no)
        self.go(otherwise)

    def switch(self, index: Value, targets: tuple[int, ...]) -> None:
        f = self.f
        index = self.v.cast(index, "i32")
        for k, target in enumerate(targets):
            hit = self.v.apply("i1", lambda up, x, k=k: up.op("icmp eq", "i32", x, up.const("i32", k)), index)
            here = f.let(f"and i32 {self.v.wide(hit)}, {self.active}")
            self.move_to(here, str(target))
        f.goto("again")

    def wait(self, after: int) -> None:
        """A barrier: the warp returns, to go on at block `after`."""
        f = self.f
        whole, parted = f.label("whole"), f.label("parted")
        live = f.load("i32", "%W", at.LIVE)
        f.branch(f.let(f"icmp eq i32 {live}, {self.active}"), whole, parted, likely=True)
        f.at(parted)
        self.move_to(self.active, str(after))
        blocked = f.load("i32", "%W", at.BLOCKED)
        f.store("i32", f.let(f"or i32 {blocked}, {self.active}"), "%W", at.BLOCKED)
        self.event("divergent-barrier")
        f.goto("again")
        f.at(whole)
        f.store("i32", str(after), "%W", at.PC)
        f.store("i32", "0", "%W", at.SPLIT)
        f.raw(f"ret i32 {at.AT_BARRIER}")

    def spend(self, head: int) -> None:
        """At a loop's head: pay for one round; return when the warp's allowance is used up."""
        f = self.f
        last = max(n for n, b in enumerate(self.plan.graph.blocks) if head in b.successors)
        cost = sum(len(self.plan.graph.blocks[b].instructions) + 1 for b in range(head, last + 1))
        left = f.let(f"sub i64 {f.load('i64', '%W', at.WARP_BUDGET)}, {cost}")
        f.store("i64", left, "%W", at.WARP_BUDGET)
        go_on, spent = f.label("paid"), f.label("spent")
        f.branch(f.let(f"icmp sgt i64 {left}, 0"), go_on, spent, likely=True)
        f.at(spent)
        self.move_to(self.active, str(head))
        f.store("i32", "1", "%W", at.SPLIT)
        f.store("i32", str(head), "%W", at.PC)
        f.raw(f"ret i32 {at.YIELDED}")
        f.at(go_on)

    def event(self, name: str) -> None:
        """Tell Python of something rare; it may ask to stop."""
        f = self.f
        number = self.semantics.EVENTS.index(name)
        callback = f.load("ptr", "%M", at.ON_EVENT)
        stop = f.call(
            "i32", callback, ("ptr", "%M"), ("ptr", "%W"), ("i32", str(number)), ("i32", str(self.number)),
            ("i32", self.active),
        )  # fmt: skip
        go_on, ended = f.label("on"), f.label("stop")
        f.branch(f.let(f"icmp eq i32 {stop}, 0"), go_on, ended, likely=True)
        f.at(ended)
        f.raw(f"ret i32 {at.STOPPED}")
        f.at(go_on)


def _delta_offset(slot: Slot) -> int:
    return (slot.offset + 16 + 31) // 32 * 32


def _undefined(element: str) -> Value:
    """A register that no path has written: zero, so that every run does the same."""
    if element == "i1":
        return Value(element, scalar="false")
    return Value(element, scalar={"float": "0.0", "double": "0.0"}.get(element, "0"))


def _signed(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def _addresses(plan: Plan) -> set[str]:
    """The registers worth keeping affine: those that end up in an address by way of additions."""
    registers, facts = plan.kernel.registers, plan.facts

    def fit(name: str) -> bool:
        wide = ELEMENTS.get(registers.get(name, ""), "") in ("i32", "i64")
        return wide and name in facts.safe and name not in facts.uniform

    everything = [i for b in plan.graph.blocks for i in b.instructions]
    found = {
        o.base.name
        for i in everything
        for o in i.operands
        if isinstance(o, Address) and isinstance(o.base, Reg) and fit(o.base.name)
    }
    todo = True
    while todo:
        todo = False
        for i in everything:
            if i.parts[0] not in PASS_ON or not any(r.name in found for r in dataflow.results(i)):
                continue
            varying = [r.name for r in dataflow.sources(i) if r.name not in facts.uniform]
            if len(varying) == 1 and varying[0] not in found and fit(varying[0]):
                found.add(varying[0])
                todo = True
    return found
