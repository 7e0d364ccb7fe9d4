"""Oracle, room 6: the interpreter — a small machine that runs PTX warp by warp, to be read and believed.

Every register is an array of shape (warps, 32): one number per lane. The machine picks a basic block, finds the lanes
that wait to enter it, and runs its instructions for all of those lanes at once; the others keep their values. It is
the oracle that the compiled engine is tested against, and what draws the pictures of one warp at work.

    fetch     the lowest numbered block at which a lane waits, in every warp where it is the lowest: `Machine.run`
    execute   arithmetic from the table in `arithmetic.py`; control flow, shuffles and barriers here: `Machine.step`
    account   requests, sectors, wavefronts of the active lanes: `access.py`
    check     bounds, alignment, unwritten shared memory, races, barriers, the budget
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gpudays.ptx import model as m
from gpudays.ptx.model import WARP, Finding, KernelTrap, UnsupportedInstruction
from gpudays.ptx.oracle.access import BYTES_LOADED, BYTES_STORED, MemoryPort
from gpudays.ptx.oracle.arguments import Launch
from gpudays.ptx.oracle.arithmetic import DTYPES, Alu, decode
from gpudays.ptx.oracle.flow import Code, expand_calls
from gpudays.ptx.oracle.races import Order
from gpudays.ptx.oracle.storage import GlobalMemory, Private, place, round_up
from gpudays.ptx.parser import TYPE_BYTES, Function, Imm, Instruction, Module, Pair, Reg, Special, Symbol, Vector

FOREVER = np.int64(1) << 40
PARKED = FOREVER  # the turn of a lane that waits at a barrier …
ENDED = FOREVER + 1  # … and of one that has left the kernel
BATCH_LANES = 1 << 15  # blocks that run together have at most this many lanes (but at least one block runs)
DEFAULT_BUDGET = 50_000_000  # warp instructions


@dataclass(frozen=True)
class Turn:
    """One turn of the watched warp: the instructions of a basic block, and the lanes (bool[32]) that ran them."""

    instructions: tuple[Instruction, ...]
    active: np.ndarray


@dataclass
class Run:
    """What a launch did. `counts` maps (line, metric) to a number; `total` a metric to its sum.

    `accesses` and `turns` are those of the warp that was watched.
    """

    counts: Counter
    findings: list[Finding]
    blocks_run: int
    blocks_total: int
    threads_run: int
    accesses: list[m.Access] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    @property
    def line_counts(self) -> dict[tuple[int, str], int]:
        """(line, metric) → count, for the metrics that lines have."""
        return {key: value for key, value in self.counts.items() if key[1] in m.LINE_METRICS}

    @cached_property
    def total(self) -> dict[str, int]:
        total = dict.fromkeys(m.LINE_METRICS, 0)
        for (_, metric), value in self.counts.items():
            total[metric] = total.get(metric, 0) + value
        for moved, metric in ((BYTES_LOADED, m.LOADS_PER_THREAD), (BYTES_STORED, m.STORES_PER_THREAD)):
            total[metric] = total.pop(moved, 0) / 4 / self.threads_run
        return total


def interpret(
    module: Module, function: Function, launch: Launch, budget: int | None = None, check_races: bool = True,
    watch: tuple[int, int] | None = None, limit: int | None = None,
) -> Run:  # fmt: skip
    """Run a launch of `function` and write its buffers back.

    `budget` is in warp instructions; `watch` (linear block, warp) records that warp's accesses, the first `limit` of
    them. Raises `UnsupportedInstruction` before anything runs, `KernelTrap` where the kernel traps.
    """
    return Execution(module, function, launch, budget or DEFAULT_BUDGET, check_races, watch, limit).run()


class Execution:
    """One launch: what all its batches of blocks share — global memory, counts, findings, the log of accesses."""

    def __init__(self, module, function, launch, budget, check_races, watch, limit):
        self.module, self.function, self.launch = module, function, launch
        self.body = expand_calls(module, function)
        self.code = Code(self.body)
        self.memory = GlobalMemory(launch.arrays, module)
        self.budget, self.check_races, self.watch, self.limit = budget, check_races, watch, limit
        self.counts: Counter = Counter()
        self.findings: dict[tuple, list] = {}
        self.accesses: list[m.Access] = []
        self.turns: list[Turn] = []
        self.warp_instructions = 0
        self.port = MemoryPort(self)

    def run(self) -> Run:
        blocks = self.launch.blocks
        lanes = round_up(self.launch.threads, WARP)
        size = max(1, BATCH_LANES // lanes)
        for start in range(0, len(blocks), size):
            machine = Machine(self, blocks[start : start + size], start)
            with np.errstate(all="ignore"):
                machine.run()
            self.port.report_block_races(machine)
            if self.warp_instructions > self.budget or self.watched_enough():
                break
        self.port.report_grid_races()
        self.memory.copy_back()
        found = [Finding(*key[:1], *first, count=count) for key, (first, count) in self.findings.items()]
        threads = len(blocks) * self.launch.threads
        return Run(self.counts, found, len(blocks), self.launch.blocks_total, threads, self.accesses, self.turns)

    def watched_row(self, machine: Machine) -> int | None:
        """The row of the watched warp among the machine's warps, if it is one of them."""
        if self.watch is None or self.watched_enough():
            return None
        row = (self.watch[0] - machine.first) * machine.warps_per_block + self.watch[1]
        return row if 0 <= row < machine.warps else None

    def watched_enough(self) -> bool:
        return self.limit is not None and len(self.accesses) >= self.limit

    def found(self, kind: str, line: int, block, thread, message: str, other_line: int | None = None, count=1, what=""):
        """Note a finding; the same kind at the same lines (and buffer, `what`) is one finding with a count."""
        key = (kind, line, other_line, what)
        entry = self.findings.setdefault(key, [(line, block, thread, message, other_line), 0])
        entry[1] += count


class Machine:
    """A batch of blocks in flight: their warps' registers, and where each lane stands.

    `turn` int64[warps, 32] says which block each lane waits to enter (see `Code.turn`), or PARKED, or ENDED.
    """

    def __init__(self, execution: Execution, blocks: list[tuple[int, int, int]], first: int):
        self.ex, self.code, self.launch, self.blocks, self.first = (
            execution, execution.code, execution.launch, blocks, first,
        )  # fmt: skip
        self.warps_per_block = -(-self.launch.threads // WARP)
        self.warps = len(blocks) * self.warps_per_block
        self.shape = (self.warps, WARP)
        self.lane = np.arange(WARP)
        self.block_of = np.repeat(np.arange(len(blocks)), self.warps_per_block)
        self.thread = (np.arange(self.warps) % self.warps_per_block * WARP)[:, None] + self.lane
        self.real = self.thread < self.launch.threads  # the last warp of a block may be short
        self.turn = np.where(self.real, np.int64(0), ENDED)
        self.barrier = np.full(self.shape, -1)
        self.needed = np.zeros(self.shape, np.int64)  # threads that a barrier waits for; 0 means the whole block
        self.resume = np.zeros(self.shape, np.int64)
        self.barrier_at: dict[int, Instruction] = {}  # by the turn behind it
        self.registers: dict[str, np.ndarray] = {}
        self.types = execution.body.registers
        self.fenced = np.zeros(self.shape, bool)
        self.copies: list = []  # cp.async: issued, not yet waited for
        self.copy_group = np.zeros(self.shape, np.int64)
        self.epoch = np.zeros(len(blocks), np.int64)
        self.orders = [Order(self.launch.threads) for _ in blocks]
        self._make_memory()

    def _make_memory(self) -> None:
        port, function = self.ex.port, self.ex.function
        self.shared = Private(len(self.blocks), port.shared_size)
        self.shared.bytes[:] = 0xFF  # nobody wrote it: a float read from it is NaN
        self.written = np.zeros(len(self.shared.bytes) // port.granule, bool)
        threads = self.warps * WARP
        self.local = Private(threads, port.local_size)
        self.param = Private(threads, port.param_size)
        offsets, _ = place(list(function.params))
        addresses = [b.address for b in self.ex.memory.buffers]
        windows = self.param.bytes.reshape(threads, self.param.stride)
        for variable, data in zip(function.params, self.launch.parameter_bytes(addresses), strict=True):
            at = offsets[variable.name]
            windows[:, at : at + len(data)] = np.frombuffer(data, np.uint8)

    # ---- fetch

    def run(self) -> None:
        """Until every lane has ended: choose a block, run it for the lanes that wait there, open barriers."""
        steps = 0
        while True:
            lowest = self.turn.min(axis=1)
            ready = lowest[lowest < PARKED]
            if not len(ready):
                if not self.open_barriers(stuck=True):
                    return
                continue
            steps += 1
            # Now and then the warp that is furthest ahead gets a turn: another may be spinning until it acts.
            chosen = ready.max() if steps % 64 == 0 else ready.min()
            mask = (self.turn == chosen) & (lowest == chosen)[:, None]
            waiting = self.run_block(self.code.block_at(int(chosen)), mask)
            if waiting:
                self.open_barriers()
            if self.ex.watched_enough() or self._over_budget(mask):
                return

    def _over_budget(self, mask: np.ndarray) -> bool:
        if self.ex.warp_instructions <= self.ex.budget:
            return False
        message = f"the budget of {self.ex.budget:,} warp instructions is spent: a loop that does not end?"
        self.report("budget", self.code.blocks[self.here].instructions[0], mask, message)
        return True

    def run_block(self, number: int, mask: np.ndarray) -> bool:
        """Run one basic block for the lanes of `mask`. Returns whether lanes have parked or ended."""
        block = self.code.blocks[number]
        self.here = number
        row = self.ex.watched_row(self)
        if row is not None and mask[row].any():
            self.ex.turns.append(Turn(block.instructions, mask[row].copy()))
        self.turn[mask] = ENDED if block.next is None else self.code.turn(block.next, number)
        warps = int(mask.any(axis=1).sum())
        lanes = int(mask.sum())
        for instruction in block.instructions:
            self.ex.counts[instruction.line, m.WARP_INSTRUCTIONS] += warps
            self.ex.counts[instruction.line, m.THREAD_INSTRUCTIONS] += lanes
            active = mask
            if instruction.predicate is not None:
                active = mask & self.read(instruction.predicate, "pred")
            if active.any():
                self.step(instruction, active)
        self.ex.warp_instructions += warps * len(block.instructions)
        return bool((self.turn[mask] >= PARKED).any())

    # ---- execute

    def step(self, instruction: Instruction, active: np.ndarray) -> None:
        """Run one instruction for the `active` lanes."""
        special = getattr(self, f"do_{instruction.parts[0]}", None)
        if special is not None and special(instruction, active) is not NotImplemented:
            return
        alu = decode(instruction.parts)
        if alu is None:
            raise unknown(instruction)
        self.calculate(alu, instruction, active)

    def calculate(self, alu: Alu, instruction: Instruction, active: np.ndarray) -> None:
        """Arithmetic: read the sources as their types, compute every lane, keep the active ones."""
        target, *sources = instruction.operands
        if len(sources) != len(alu.sources):
            raise unknown(instruction, f"{len(sources)} sources instead of {len(alu.sources)}")
        values = [self.read(o, kind) for o, kind in zip(sources, alu.sources, strict=True)]
        result = alu.compute(*values)
        results = result if isinstance(result, tuple) else (result,)
        targets = (target.first, target.second) if isinstance(target, Pair) else (target,)
        for register, value, kind in zip(targets, results, alu.results, strict=False):
            self.write(register, value, kind, active)

    def read(self, operand, kind: str) -> np.ndarray:
        """An operand as a typed array, (warps, 32) or (1, 1) for a constant."""
        dtype = DTYPES[kind]
        if isinstance(operand, Reg):
            bits = self.register(operand.name)
            if kind == "pred":
                return ~bits if operand.negated else bits
            return _resized(bits, dtype.itemsize).view(dtype)
        if isinstance(operand, Imm):
            return _constant(operand, kind)
        if isinstance(operand, Special):
            return _resized(self.special(operand.name), dtype.itemsize).view(dtype)
        if isinstance(operand, Symbol):
            value = np.array([[self.ex.port.address_of(operand)]], np.uint64)
            return _resized(value, dtype.itemsize).view(dtype)
        raise ValueError(f"{operand} is no source of type {kind}")

    def register(self, name: str) -> np.ndarray:
        if name not in self.registers:
            kind = self.types[name]
            dtype = bool if kind == "pred" else f"u{TYPE_BYTES[kind]}"
            self.registers[name] = np.zeros(self.shape, dtype)
        return self.registers[name]

    def write(self, register: Reg | None, value: np.ndarray, kind: str, active: np.ndarray) -> None:
        """Keep `value` in the active lanes. A wider register is filled with the sign for `.s` types, else zeros."""
        if register is None:
            return
        bits = self.register(register.name)
        if bits.dtype != bool:
            if kind[0] == "s":
                value = value.astype(f"i{bits.dtype.itemsize}")
            value = _resized(np.ascontiguousarray(value), bits.dtype.itemsize)
            value = value.view(bits.dtype)
        np.copyto(bits, value, where=active)

    def special(self, name: str) -> np.ndarray:
        """A read-only register such as %tid.x, as u32 or u64."""
        if name not in self._specials:
            raise UnsupportedInstruction(f"mov from {name}", 0)
        value = self._specials[name]
        return value() if callable(value) else value

    @cached_property
    def _specials(self) -> dict:
        x, y, _ = self.launch.block
        index = np.array(self.blocks)[self.block_of]
        threads = (self.thread % x, self.thread // x % y, self.thread // (x * y))
        out = {"%laneid": self.lane[None, :], "%warpid": self.thread // WARP}
        for axis, letter in enumerate("xyz"):
            out[f"%tid.{letter}"] = threads[axis]
            out[f"%ntid.{letter}"] = np.array([[self.launch.block[axis]]])
            out[f"%ctaid.{letter}"] = index[:, axis, None]
            out[f"%nctaid.{letter}"] = np.array([[self.launch.grid[axis]]])
        masks = {"eq": 1 << self.lane, "lt": (1 << self.lane) - 1, "le": (2 << self.lane) - 1}
        masks |= {"ge": ~masks["lt"], "gt": ~masks["le"]}
        out |= {f"%lanemask_{name}": value[None, :] & 0xFFFFFFFF for name, value in masks.items()}
        dynamic = self.launch.shared_bytes
        out |= {"%nwarpid": np.array([[self.warps_per_block]]), "%dynamic_smem_size": np.array([[dynamic]])}
        out |= {"%total_smem_size": np.array([[self.ex.port.shared_size]]), "%gridid": np.array([[0]])}
        out = {name: np.ascontiguousarray(np.broadcast_to(v, self.shape)).astype(np.uint32) for name, v in out.items()}
        for clock in ("%clock", "%clock64", "%globaltimer"):  # counts instructions: there is no time here
            out[clock] = lambda: np.full(self.shape, self.ex.warp_instructions, np.uint64)
        return out

    def report(self, kind: str, instruction: Instruction, lanes: np.ndarray, message: str, **more) -> None:
        """A finding at the first of `lanes` (bool[warps, 32])."""
        warp, lane = np.argwhere(lanes)[0]
        block, thread = self.blocks[self.block_of[warp]], self.launch.thread_index(int(self.thread[warp, lane]))
        self.ex.found(kind, instruction.line, block, thread, message, count=int(lanes.sum()), **more)

    # ---- moves

    def do_mov(self, instruction: Instruction, active: np.ndarray):
        target, source = instruction.operands
        kind = instruction.parts[-1]
        if isinstance(source, Vector):  # pack
            width = TYPE_BYTES[kind] // len(source.items)
            parts = [self.read(item, f"b{8 * width}") for item in source.items]
            self.write(target, _joined(np.broadcast_arrays(*parts)), kind, active)
        elif isinstance(target, Vector):  # unpack
            width = TYPE_BYTES[kind] // len(target.items)
            whole = np.ascontiguousarray(np.broadcast_to(self.read(source, kind), self.shape))
            for i, part in enumerate(target.items):
                self.write(part, whole[..., None].view(f"u{width}")[..., i], f"b{8 * width}", active)
        else:
            return NotImplemented

    def do_cvta(self, instruction: Instruction, active: np.ndarray) -> None:
        parts = instruction.parts
        target, source = instruction.operands
        space = next((p for p in parts if p in ("global", "const", "shared", "local")), None)
        if space is None:
            raise unknown(instruction)
        base = np.uint64(self.ex.port.window(space))
        address = self.read(source, "u64")
        self.write(target, address - base if "to" in parts else address + base, "u64", active)

    def do_isspacep(self, instruction: Instruction, active: np.ndarray) -> None:
        address = self.read(instruction.operands[1], "u64").astype(np.int64)
        inside = self.ex.port.space_of(np.broadcast_to(address, self.shape)) == instruction.parts[1]
        self.write(instruction.operands[0], inside, "pred", active)

    # ---- memory: see access.py

    def do_ld(self, instruction: Instruction, active: np.ndarray) -> None:
        self.ex.port.load(self, instruction, active)

    def do_st(self, instruction: Instruction, active: np.ndarray) -> None:
        self.ex.port.store(self, instruction, active)

    def do_atom(self, instruction: Instruction, active: np.ndarray) -> None:
        self.ex.port.atomic(self, instruction, active)

    do_red = do_atom

    def do_cp(self, instruction: Instruction, active: np.ndarray) -> None:
        self.ex.port.copy_async(self, instruction, active)

    def do_membar(self, instruction: Instruction, active: np.ndarray) -> None:
        self.fenced |= active

    do_fence = do_membar

    def do_nanosleep(self, instruction: Instruction, active: np.ndarray) -> None:
        pass

    do_prefetch = do_prefetchu = do_nanosleep

    # ---- control flow: where the active lanes wait next

    def go(self, target: int | None, active: np.ndarray) -> None:
        self.turn[active] = ENDED if target is None else self.code.turn(target, self.here)

    def do_bra(self, instruction: Instruction, active: np.ndarray) -> None:
        self.go(self.code.target(instruction.operands[0].name), active)

    def do_brx(self, instruction: Instruction, active: np.ndarray) -> None:
        index = self.read(instruction.operands[0], "u32")
        for i, target in enumerate(self.code.targets(instruction.operands[1].name)):
            chosen = active & (index == i)
            if chosen.any():
                self.go(target, chosen)

    def do_ret(self, instruction: Instruction, active: np.ndarray) -> None:
        if instruction.operands:  # from a device function: behind the call
            self.do_bra(instruction, active)
        else:
            self.turn[active] = ENDED

    def do_exit(self, instruction: Instruction, active: np.ndarray) -> None:
        self.turn[active] = ENDED

    def do_call(self, instruction: Instruction, active: np.ndarray) -> None:
        """What is left of calls (see `flow.expand_calls`): functions whose code is not part of the program."""
        name = next(o.name for o in instruction.operands if isinstance(o, Symbol))
        if name == "__assertfail":
            self.do_trap(instruction, active)
        raise unknown(instruction, f"{name} is not part of the program")

    def do_trap(self, instruction: Instruction, active: np.ndarray) -> None:
        warp, lane = np.argwhere(active)[0]
        thread = self.launch.thread_index(int(self.thread[warp, lane]))
        raise KernelTrap(instruction.opcode, instruction.line, self.blocks[self.block_of[warp]], thread)

    # ---- barriers

    def do_bar(self, instruction: Instruction, active: np.ndarray) -> None:
        parts, operands = instruction.parts, list(instruction.operands)
        if "warp" in parts:
            self.meet_in_warps(active)
            return
        if "red" in parts:
            operands = operands[1:-1]
        elif "sync" not in parts:
            raise unknown(instruction)
        number = self.read(operands[0], "u32").astype(np.int64) if operands else np.zeros((1, 1), np.int64)
        count = self.read(operands[1], "u32").astype(np.int64) if len(operands) > 1 else np.zeros((1, 1), np.int64)
        np.copyto(self.barrier, number, where=active)
        np.copyto(self.needed, count, where=active)
        np.copyto(self.resume, self.turn, where=active)
        behind = int(self.resume[active][0])
        self.barrier_at[behind] = instruction
        self.turn[active] = PARKED

    do_barrier = do_bar

    def meet_in_warps(self, active: np.ndarray) -> None:
        """bar.warp.sync: the lanes of each warp have seen what the others did. They are together already."""
        if not self.ex.check_races:
            return
        for warp in np.flatnonzero(active.any(axis=1)):
            self.orders[self.block_of[warp]].meet(self.thread[warp][active[warp]])

    def open_barriers(self, stuck: bool = False) -> bool:
        """Let go of every barrier that is complete. `stuck`: nobody else can move, so a block that still waits, waits
        in vain. Returns whether any lane may go on."""
        by_block = (len(self.blocks), -1)
        parked = (self.turn == PARKED).reshape(by_block)
        running = (self.turn < PARKED).reshape(by_block)
        moved = False
        for block in np.flatnonzero(parked.any(axis=1)):
            opened = self._open(block, parked[block], not running[block].any())
            if stuck and not opened:
                self._give_up(block, parked[block])
            moved |= opened or stuck
        return moved

    def _view(self, array: np.ndarray, block: int) -> np.ndarray:
        """The part of a (warps, 32) array that belongs to one block, by thread."""
        return array.reshape(len(self.blocks), -1)[block]

    def _open(self, block: int, parked: np.ndarray, all_wait: bool) -> bool:
        numbers, needed = self._view(self.barrier, block), self._view(self.needed, block)
        for number in np.unique(numbers[parked]):
            here = parked & (numbers == number)
            want = int(needed[here].max())
            if want == 0 and all_wait and (here == parked).all():
                self._check_barrier(block, here)
                self.epoch[block] += 1
                self.orders[block].row_of[:] = 0  # what came before the barrier is an epoch apart
            elif want and WARP * int(here.reshape(-1, WARP).any(axis=1).sum()) >= want:
                self.orders[block].meet(self._view(self.thread, block)[here])
            else:
                continue
            turn = self._view(self.turn, block)
            self._reduce(block, here)
            turn[here] = self._view(self.resume, block)[here]
            return True
        return False

    def _reduce(self, block: int, here: np.ndarray) -> None:
        """bar.red: hand every thread the count, and, or or of all threads' predicates."""
        behind = int(self._view(self.resume, block)[here][0])
        instruction = self.barrier_at[behind]
        parts = instruction.parts
        if "red" not in parts:
            return
        target, *_, source = instruction.operands
        votes = self._view(np.broadcast_to(self.read(source, "pred"), self.shape), block)[here]
        result = {"popc": votes.sum(), "and": votes.all(), "or": votes.any()}
        value = next(result[p] for p in parts if p in result)
        chosen = np.zeros((len(self.blocks), here.size), bool)
        chosen[block] = here
        kind = "u32" if "popc" in parts else "pred"
        self.write(target, np.array([[value]], DTYPES[kind]), kind, chosen.reshape(self.shape))

    def _check_barrier(self, block: int, here: np.ndarray) -> None:
        """Every thread of the block should be here, and the lanes of a warp at one and the same instruction."""
        resume = self._view(self.resume, block)
        instruction = self.barrier_at[int(resume[here][0])]
        missing = self._view(self.real, block) & ~here
        if missing.any():
            text = f"{missing.sum()} of {self.launch.threads} threads of the block ended without reaching this barrier"
            self._report_thread("barrier", instruction, block, missing, text)
        for lanes in range(0, here.size, WARP):
            places = np.unique(resume[lanes : lanes + WARP][here[lanes : lanes + WARP]])
            aligned = [
                self.barrier_at[int(p)] for p in places if self.barrier_at[int(p)].parts[:2] != ("barrier", "sync")
            ]
            if len(places) > 1 and aligned:
                split = np.zeros_like(here)
                split[lanes : lanes + WARP] = resume[lanes : lanes + WARP] == places[-1]
                lines = sorted({self.barrier_at[int(p)].line for p in places})
                text = f"lanes of one warp wait at different barriers (lines {', '.join(map(str, lines))})"
                self._report_thread("barrier", aligned[0], block, split, text)

    def _give_up(self, block: int, parked: np.ndarray) -> None:
        instruction = self.barrier_at[int(self._view(self.resume, block)[parked][0])]
        text = f"{parked.sum()} threads wait at barriers that the rest of the block never reaches"
        self._report_thread("barrier", instruction, block, parked, text)
        self._view(self.turn, block)[parked] = ENDED

    def _report_thread(
        self, kind: str, instruction: Instruction, block: int, threads: np.ndarray, message: str
    ) -> None:
        thread = self.launch.thread_index(int(np.flatnonzero(threads)[0]))
        self.ex.found(kind, instruction.line, self.blocks[block], thread, message, count=int(threads.sum()))

    # ---- between the lanes of a warp

    def do_shfl(self, instruction: Instruction, active: np.ndarray) -> None:
        """Each lane reads a register of another lane of its segment; out of the segment, its own."""
        mode = instruction.parts[2]
        target, source, b, c, _ = instruction.operands
        value = np.broadcast_to(self.read(source, "b32"), self.shape)
        step = (self.read(b, "u32") & 31).astype(np.int64)
        clamp = self.read(c, "u32").astype(np.int64)
        segment, bound = clamp >> 8 & 31, clamp & 31
        first, last = self.lane & segment, self.lane & segment | bound & ~segment
        source_lane, inside = {
            "up": lambda: (self.lane - step, self.lane - step >= last),
            "down": lambda: (self.lane + step, self.lane + step <= last),
            "bfly": lambda: (self.lane ^ step, (self.lane ^ step) <= last),
            "idx": lambda: (first | step & ~segment, (first | step & ~segment) <= last),
        }[mode]()
        picked = np.broadcast_to(np.where(inside, source_lane, self.lane), self.shape)
        first_target, second = (target.first, target.second) if isinstance(target, Pair) else (target, None)
        self.write(first_target, np.take_along_axis(value, picked, axis=1), "b32", active)
        self.write(second, inside, "pred", active)

    def _members(self, operand, active: np.ndarray) -> np.ndarray:
        """The active lanes that a member mask names."""
        members = self.read(operand, "u32").astype(np.int64)
        return active & (members >> self.lane & 1).astype(bool)

    def do_vote(self, instruction: Instruction, active: np.ndarray) -> None:
        target, source, mask = instruction.operands
        voting = self._members(mask, active)
        yes = voting & self.read(source, "pred")
        mode = instruction.parts[2]
        if mode == "ballot":
            self.write(target, self._as_mask(yes), "b32", active)
            return
        every, some = (yes == voting).all(axis=1), yes.any(axis=1)
        result = {"all": every, "any": some, "uni": every | ~some}[mode]
        self.write(target, result[:, None], "pred", active)

    def _as_mask(self, lanes: np.ndarray) -> np.ndarray:
        return (lanes.astype(np.int64) << self.lane).sum(axis=1, keepdims=True).astype(np.uint32)

    def do_activemask(self, instruction: Instruction, active: np.ndarray) -> None:
        self.write(instruction.operands[0], self._as_mask(active), "b32", active)

    def do_match(self, instruction: Instruction, active: np.ndarray) -> None:
        target, source, mask = instruction.operands
        members = self._members(mask, active)
        value = np.broadcast_to(self.read(source, instruction.parts[-1]), self.shape)
        same = (value[:, :, None] == value[:, None, :]) & members[:, None, :]
        masks = (same.astype(np.int64) << self.lane).sum(axis=2).astype(np.uint32)
        if instruction.parts[1] == "any":
            self.write(target, masks, "b32", active)
            return
        first, second = (target.first, target.second) if isinstance(target, Pair) else (target, None)
        everyone = self._as_mask(members)
        agree = masks == everyone
        self.write(first, np.where(agree, everyone, np.uint32(0)), "b32", active)
        self.write(second, agree, "pred", active)

    def do_redux(self, instruction: Instruction, active: np.ndarray) -> None:
        target, source, mask = instruction.operands
        kind, members = instruction.parts[-1], self._members(mask, active)
        value = np.broadcast_to(self.read(source, kind), self.shape)
        combine = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
                   "xor": np.bitwise_xor}[instruction.parts[2]]  # fmt: skip
        result = np.zeros((self.warps, 1), value.dtype)
        for warp in np.flatnonzero(members.any(axis=1)):
            result[warp] = combine.reduce(value[warp][members[warp]])
        self.write(target, result, kind, active)


# ---- small helpers -------------------------------------------------------------------------------------------------


def unknown(instruction: Instruction, reason: str = "") -> UnsupportedInstruction:
    return UnsupportedInstruction(instruction.opcode, instruction.line, instruction.ptx_line, reason)


def _resized(bits: np.ndarray, width: int) -> np.ndarray:
    """The low `width` bytes of each number, or the number with zeros above it."""
    if bits.dtype.itemsize == width:
        return bits
    return bits.view(f"u{bits.dtype.itemsize}").astype(f"u{width}")


def _constant(imm: Imm, kind: str) -> np.ndarray:
    """A literal as an array of shape (1, 1)."""
    dtype = DTYPES[kind]
    if kind == "pred":
        return np.array([[bool(imm.value)]])
    if imm.bits is not None and not (dtype.kind == "f" and dtype.itemsize < 4):
        source = np.array([[imm.bits]], np.uint64)
        if dtype.kind == "f" and isinstance(imm.value, float) and dtype.itemsize == 4 and imm.bits >> 32:
            return np.array([[imm.value]], dtype)
        return _resized(source, dtype.itemsize).view(dtype)
    if dtype.kind == "f":
        return np.array([[imm.value]], dtype)
    return np.array([[int(imm.value) % (1 << 8 * dtype.itemsize)]], f"u{dtype.itemsize}").view(dtype)


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    """Pack narrow numbers into wide ones, the first lowest."""
    width = parts[0].dtype.itemsize * len(parts)
    return np.ascontiguousarray(np.stack(parts, axis=-1)).view(f"u{width}")[..., 0]
