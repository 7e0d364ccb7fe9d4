"""Oracle, room 4: one memory instruction, for all active lanes: check it, account for it, do it, remember it.

check      each lane's address is aligned and inside a buffer or window; a lane that fails takes no part
account    what the request costs: `accounting.py` says
do         read or write the lanes' bytes; atomics one lane after the other
remember   which shared bytes were written, and who touched what when, for the race check: `races.py`
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gpudays.ptx import accounting
from gpudays.ptx import model as m
from gpudays.ptx.dataflow import sources
from gpudays.ptx.model import WARP, Access, UnsupportedInstruction
from gpudays.ptx.oracle.arithmetic import DTYPES
from gpudays.ptx.oracle.flow import Body
from gpudays.ptx.oracle.races import Order, Race, RaceLog
from gpudays.ptx.oracle.storage import GLOBAL_BASE, LOCAL_WINDOW, SHARED_WINDOW, WINDOW_BYTES, Image, place, round_up
from gpudays.ptx.parser import TYPE_BYTES, Address, Instruction, Reg, Symbol, Vector

if TYPE_CHECKING:
    from gpudays.ptx.oracle.interpreter import Execution, Machine

BYTES_LOADED, BYTES_STORED = "bytes loaded", "bytes stored"  # of global memory
_SPACES = ("global", "shared", "local", "const", "param")
_STRONG = {"relaxed", "acquire", "release", "acq_rel"}
_MODIFIERS = {
    *_SPACES, *_STRONG, "nc", "volatile", "weak", "cta", "cluster", "gpu", "sys", "v2", "v4", "ca", "cg", "cs", "lu",
    "cv", "wb", "wt", "shared::cta",
}  # fmt: skip


@dataclass(frozen=True)
class Touch:
    """One memory instruction in one space: which lanes take part, and where."""

    instruction: Instruction
    op: str
    space: str
    width: int
    addresses: np.ndarray  # int64[warps, 32]
    positions: np.ndarray  # int64[warps, 32], in the image; 0 in lanes that take no part
    lanes: np.ndarray  # bool[warps, 32]

    @property
    def strong(self) -> bool:
        parts = self.instruction.parts
        volatile = "volatile" in parts and self.space == "global"  # in shared memory `volatile` orders nobody
        return self.op in ("atom", "red") or volatile or bool(_STRONG & set(parts))


class MemoryPort:
    """The way from a memory instruction to bytes, counters and findings."""

    def __init__(self, execution: Execution):
        self.ex = execution
        body, function = execution.body, execution.function
        self._lay_out_shared(body)
        self.local_offsets, self.local_size = place([v for v in body.variables if v.space == "local"])
        params = [*function.params, *(v for v in body.variables if v.space == "param")]
        self.param_offsets, self.param_size = place(params)
        self.granule = min([4, *map(_element_bytes, body.instructions)])  # no access is finer: one cell of the log
        self.grid_log = RaceLog()
        self.block_logs = {"shared": RaceLog(), "global": RaceLog()}
        self.global_order = Order(len(execution.launch.blocks))
        self.released: dict[tuple, np.ndarray] = {}
        self.read_registers = {r.name for i in body.instructions for r in sources(i)}
        self.ordinal = 0

    def _lay_out_shared(self, body: Body) -> None:
        """Static arrays one after the other, then the `extern` array, which ends with the launch's dynamic bytes."""
        used = {o.name for i in body.instructions for o in _symbols(i)}
        found = [v for v in (*self.ex.module.variables, *body.variables) if v.space == "shared" and v.name in used]
        static = [v for v in {v.name: v for v in found}.values() if not v.extern]
        self.shared_offsets, end = place(static)
        self.shared_sizes = {v.name: v.size for v in static}
        dynamic = self.ex.launch.shared_bytes
        start = round_up(end, 16) if dynamic or any(v.extern for v in found) else end
        for variable in found:
            if variable.extern:
                self.shared_offsets[variable.name] = start
                self.shared_sizes[variable.name] = dynamic
        self.shared_size = start + dynamic

    # ---- addresses

    def address_of(self, symbol: Symbol) -> int:
        """The address of a variable in its own space."""
        for offsets in (self.shared_offsets, self.local_offsets, self.param_offsets):
            if symbol.name in offsets:
                return offsets[symbol.name] + symbol.offset
        if symbol.name in self.ex.memory.by_name:
            return self.ex.memory.address_of(symbol)
        raise UnsupportedInstruction(f"the address of {symbol.name}", 0)

    def window(self, space: str) -> int:
        return {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space, 0)

    def space_of(self, addresses: np.ndarray) -> np.ndarray:
        """The space that each generic address points into."""
        shared = (addresses >= SHARED_WINDOW) & (addresses < SHARED_WINDOW + WINDOW_BYTES)
        local = (addresses >= LOCAL_WINDOW) & (addresses < LOCAL_WINDOW + WINDOW_BYTES)
        return np.where(shared, "shared", np.where(local, "local", "global"))

    def _addresses(self, machine: Machine, operand: Address) -> np.ndarray:
        base = machine.read(operand.base, "u64").astype(np.int64)
        return np.broadcast_to(base + operand.offset, machine.shape)

    def _per_space(self, instruction, addresses, active) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
        """(space, addresses in it, lanes): one for an explicit space; a generic access may reach several."""
        explicit = next((p.split("::")[0] for p in instruction.parts if p.split("::")[0] in _SPACES), None)
        if explicit:
            yield explicit, addresses, active
            return
        spaces = self.space_of(addresses)
        for space in ("global", "shared", "local"):
            lanes = active & (spaces == space)
            if lanes.any():
                yield space, addresses - self.window(space), lanes

    # ---- check, account

    def _touch(self, machine: Machine, instruction, op, space, addresses, lanes, width) -> Touch:
        """Check and account for an access; the result names the lanes that may go through with it."""
        if space == "param":
            return Touch(instruction, op, space, width, addresses, self._windows(machine, space, addresses), lanes)
        aligned = addresses % width == 0
        if (lanes & ~aligned).any():
            self._report_address(machine, instruction, "misaligned", space, addresses, lanes & ~aligned, width)
        inside = self._inside(machine, space, addresses, width)
        outside = lanes & aligned & ~inside
        if outside.any():
            self._report_address(machine, instruction, "out-of-bounds", space, addresses, outside, width)
        lanes = lanes & aligned & inside
        positions = np.where(lanes, self._windows(machine, space, addresses), 0)
        touch = Touch(instruction, op, space, width, addresses, positions, lanes)
        self._account(touch)
        self._record(machine, touch)
        return touch

    def _inside(self, machine: Machine, space: str, addresses: np.ndarray, width: int) -> np.ndarray:
        if space in ("global", "const"):
            return self.ex.memory.inside(addresses, width)
        size = self.shared_size if space == "shared" else self.local_size
        return (addresses >= 0) & (addresses + width <= size)

    def _windows(self, machine: Machine, space: str, addresses: np.ndarray) -> np.ndarray:
        """Positions in the image from addresses in the space: each block or thread has its own window."""
        if space in ("global", "const"):
            return addresses - GLOBAL_BASE
        if space == "shared":
            return machine.block_of[:, None] * machine.shared.stride + addresses
        stride = (machine.local if space == "local" else machine.param).stride
        return np.arange(machine.warps * WARP).reshape(machine.shape) * stride + addresses

    def _image(self, machine: Machine, space: str) -> Image:
        return {"shared": machine.shared, "local": machine.local, "param": machine.param}.get(space, self.ex.memory)

    def _report_address(self, machine, instruction, kind, space, addresses, lanes, width) -> None:
        warp, lane = np.argwhere(lanes)[0]
        address = int(addresses[warp, lane])
        what = {"ld": "read", "st": "write"}.get(instruction.parts[0], "access")
        if kind == "misaligned":
            text = f"{width}-byte {space} {what} at {address:#x}, {address % width} bytes past a multiple of {width}"
        elif space in ("global", "const"):
            text = f"{width}-byte {space} {what}, {self.ex.memory.describe(address, width)}"
        else:
            size = self.shared_size if space == "shared" else self.local_size
            text = f"{width}-byte {space} {what} at byte {address} of {size}"
        machine.report(kind, instruction, lanes, text, what=space)

    def _account(self, touch: Touch) -> None:
        """Count requests, and what they cost, for the lanes that take part."""
        lanes = touch.lanes[touch.lanes.any(axis=1)]
        if not len(lanes):
            return
        addresses = touch.addresses[touch.lanes.any(axis=1)]
        line, op, width, counts = touch.instruction.line, touch.op, touch.width, self.ex.counts
        if touch.space == "shared" and op in ("ld", "st") and touch.instruction.parts[0] != "cp":
            requests, waves, conflicts = {
                "ld": (m.SHARED_LD_REQUESTS, m.SHARED_LD_WAVEFRONTS, m.SHARED_LD_CONFLICTS),
                "st": (m.SHARED_ST_REQUESTS, m.SHARED_ST_WAVEFRONTS, m.SHARED_ST_CONFLICTS),
            }[op]
            counts[line, requests] += len(lanes)
            counts[line, waves] += int(accounting.shared_wavefronts(addresses, width, lanes, op).sum())
            counts[line, conflicts] += int(accounting.shared_conflicts(addresses, width, lanes, op).sum())
        elif touch.space in ("global", "local"):
            if touch.space == "local":
                addresses, lanes = accounting.interleaved(addresses, width, lanes)
            counts[line, m.requests(touch.space, op)] += len(lanes)
            counts[line, m.sectors(touch.space, op)] += int(accounting.sectors(addresses, lanes).sum())
            if touch.space == "global" and op in ("ld", "st"):
                counts[line, BYTES_LOADED if op == "ld" else BYTES_STORED] += width * int(lanes.sum())

    def _record(self, machine: Machine, touch: Touch) -> None:
        """Keep the access of the warp that is watched."""
        warp = self.ex.watched_row(machine)
        if warp is None or not touch.lanes[warp].any():
            return
        addresses, lanes, buffer, start = touch.addresses[warp].copy(), touch.lanes[warp], None, 0
        if touch.space in ("global", "const"):
            buffer = self.ex.memory.buffers[int(self.ex.memory.owner(addresses[lanes][:1])[0])]
            start = buffer.address
        name, index = (buffer.name, buffer.index) if buffer else ("", -1)
        self.ex.accesses.append(
            Access(touch.instruction.line, touch.op, touch.space, touch.width, index, name, addresses,
                   addresses - start, lanes.copy(), self.ordinal)
        )  # fmt: skip
        self.ordinal += 1

    # ---- do

    def load(self, machine: Machine, instruction: Instruction, active: np.ndarray) -> None:
        target, source = instruction.operands
        kind, targets = self._shape(instruction, target)
        width = TYPE_BYTES[kind] * len(targets)
        addresses = self._addresses(machine, source)
        for space, local_addresses, lanes in self._per_space(instruction, addresses, active):
            touch = self._touch(machine, instruction, "ld", space, local_addresses, lanes, width)
            self._check_written(machine, touch)
            image, dtype = self._image(machine, space), DTYPES[f"b{8 * TYPE_BYTES[kind]}"]
            for i, register in enumerate(targets):
                value = image.read(touch.positions + i * dtype.itemsize, dtype)
                value = np.where(touch.lanes, value, dtype.type(0)).view(DTYPES.get(kind, dtype))
                machine.write(register, value, kind, lanes)
            self._synchronize(machine, touch)
            self._remember(machine, touch)

    def store(self, machine: Machine, instruction: Instruction, active: np.ndarray) -> None:
        target, source = instruction.operands
        kind, sources = self._shape(instruction, source)
        size = TYPE_BYTES[kind]
        values = [np.broadcast_to(machine.read(s, f"b{8 * size}"), machine.shape) for s in sources]
        addresses = self._addresses(machine, target)
        for space, local_addresses, lanes in self._per_space(instruction, addresses, active):
            touch = self._touch(machine, instruction, "st", space, local_addresses, lanes, size * len(values))
            ok = touch.lanes
            for i, value in enumerate(values):
                self._image(machine, space).write(touch.positions[ok] + i * size, value[ok], value.dtype)
            self._synchronize(machine, touch)
            self._remember(machine, touch, np.stack([v[ok] for v in values], axis=-1))
            if not touch.strong:
                machine.fenced &= ~ok

    def _shape(self, instruction: Instruction, operand) -> tuple[str, tuple]:
        """The element type and the registers of a load or store; refuses modifiers that it does not know."""
        parts = [p for p in instruction.parts[1:-1] if not p.startswith(("L1::", "L2::"))]
        kind = instruction.parts[-1]
        if kind not in TYPE_BYTES or kind not in DTYPES or not set(parts) <= _MODIFIERS:
            raise UnsupportedInstruction(instruction.opcode, instruction.line, instruction.ptx_line)
        return kind, operand.items if isinstance(operand, Vector) else (operand,)

    def atomic(self, machine: Machine, instruction: Instruction, active: np.ndarray) -> None:
        """Read, combine, write: one lane after the other where several want one place. `red` keeps no result."""
        op = instruction.parts[0]
        target, place_, *operands = instruction.operands if op == "atom" else (None, *instruction.operands)
        kind, name = instruction.parts[-1], next((p for p in instruction.parts if p in ATOMICS), None)
        is_read = not isinstance(target, Reg) or target.name in self.read_registers
        if op == "atom" and name not in ("exch", "cas") and not is_read:
            op = "red"  # nobody wants the old value: ptxas makes a reduction of it
        if name is None or kind not in DTYPES or isinstance(target, Vector):
            raise UnsupportedInstruction(instruction.opcode, instruction.line, instruction.ptx_line)
        dtype = DTYPES[kind]
        sources = [np.broadcast_to(machine.read(o, kind), machine.shape) for o in operands]
        addresses = self._addresses(machine, place_)
        old = np.zeros(machine.shape, dtype)
        for space, local_addresses, lanes in self._per_space(instruction, addresses, active):
            touch = self._touch(machine, instruction, op, space, local_addresses, lanes, dtype.itemsize)
            self._check_written(machine, touch)
            image = self._image(machine, space)
            for turn in _turns(touch):
                before = image.read(touch.positions[turn], dtype)
                after = ATOMICS[name](before, *(s[turn] for s in sources))
                image.write(touch.positions[turn], after.astype(dtype), dtype)
                old[turn] = before
            self._synchronize(machine, touch)
            self._remember(machine, touch, old[touch.lanes][:, None].view(f"u{dtype.itemsize}"))
        machine.write(target, old, kind, active)

    def copy_async(self, machine: Machine, instruction: Instruction, active: np.ndarray) -> None:
        """cp.async: the copy lands in shared memory only when its thread waits for it."""
        parts = instruction.parts
        if parts[:3] == ("cp", "async", "commit_group"):
            machine.copy_group[active] += 1
        elif parts[:3] == ("cp", "async", "wait_all"):
            self._land(machine, active, machine.copy_group + 1)
        elif parts[:3] == ("cp", "async", "wait_group"):
            left = machine.read(instruction.operands[0], "u32").astype(np.int64)
            self._land(machine, active, machine.copy_group - left)
        elif parts[1] == "async" and parts[2] in ("ca", "cg") and "global" in parts:
            self._issue_copy(machine, instruction, active)
        else:
            raise UnsupportedInstruction(instruction.opcode, instruction.line, instruction.ptx_line)

    def _issue_copy(self, machine: Machine, instruction: Instruction, active: np.ndarray) -> None:
        target, source, size, *limit = instruction.operands
        width = int(size.value)
        given = np.broadcast_to(machine.read(limit[0], "u32") if limit else np.uint32(width), machine.shape)
        reading = active & (given > 0)
        read = self._touch(machine, instruction, "ld", "global", self._addresses(machine, source), reading, width)
        self._remember(machine, read)
        addresses = self._addresses(machine, target)
        write = self._touch(machine, instruction, "st", "shared", addresses, active & (read.lanes | ~reading), width)
        each = np.arange(width)
        data = self.ex.memory.bytes[read.positions[..., None] + each]
        data = np.where(each < given[..., None], data, np.uint8(0))
        self._mark(machine, write, False)
        machine.copies.append((write, data, machine.copy_group.copy()))

    def _land(self, machine: Machine, active: np.ndarray, before: np.ndarray) -> None:
        """Complete the copies of the active lanes whose group is older than `before`."""
        waiting = []
        for write, data, group in machine.copies:
            done = write.lanes & active & (group < before)
            landed = Touch(write.instruction, "st", "shared", write.width, write.addresses, write.positions, done)
            each = np.arange(write.width)
            machine.shared.bytes[write.positions[done][:, None] + each] = data[done]
            self._remember(machine, landed, data[done])
            rest = write.lanes & ~done
            if rest.any():
                pending = Touch(write.instruction, "st", "shared", write.width, write.addresses, write.positions, rest)
                waiting.append((pending, data, group))
        machine.copies = waiting

    # ---- remember

    def _cells(self, touch: Touch) -> np.ndarray:
        """The cells of the log that each taking-part lane touches: int64[lanes, cells]."""
        count = max(1, touch.width // self.granule)
        return touch.positions[touch.lanes][:, None] // self.granule + np.arange(count)

    def _check_written(self, machine: Machine, touch: Touch) -> None:
        """A read of shared memory that nobody wrote."""
        if touch.space != "shared" or not touch.lanes.any():
            return
        unwritten = np.zeros(machine.shape, bool)
        unwritten[touch.lanes] = ~machine.written[self._cells(touch)].all(axis=1)
        if unwritten.any():
            warp, lane = np.argwhere(unwritten)[0]
            text = (
                f"reads {self.shared_name(int(touch.addresses[warp, lane]))}, which no thread of the block has written"
            )
            machine.report("uninitialized-shared", touch.instruction, unwritten, text)

    def _mark(self, machine: Machine, touch: Touch, written: bool) -> None:
        machine.written[self._cells(touch)] = written

    def _remember(self, machine: Machine, touch: Touch, values: np.ndarray | None = None) -> None:
        """Mark what was written, and log the access; `values` unsigned[lanes, elements] are what a store wrote."""
        ok = touch.lanes
        if touch.space not in ("global", "shared") or not ok.any():
            return
        if touch.space == "shared" and touch.op != "ld":
            self._mark(machine, touch, True)
        if not self.ex.check_races:
            return
        cells = self._cells(touch)
        value = np.zeros(cells.shape, np.uint64)
        if values is not None:
            value[:] = np.ascontiguousarray(values).view(f"u{min(self.granule, touch.width)}")
        for log, columns in self._agents(machine, touch):
            columns = {name: np.repeat(column, cells.shape[1]) for name, column in columns.items()}
            log.add(
                cell=cells.ravel(), value=value.ravel(), line=touch.instruction.line, write=touch.op != "ld",
                strong=touch.strong, **columns,
            )  # fmt: skip

    def _agents(self, machine: Machine, touch: Touch) -> Iterator[tuple[RaceLog, dict[str, np.ndarray]]]:
        """The logs to write, and who is at work in each taking-part lane, by its clock and knowledge.

        In every memory the threads of a block meet each other; in global memory the blocks do so too.
        """
        warp, _ = np.nonzero(touch.lanes)
        block, thread = machine.block_of[warp], machine.thread[touch.lanes]
        clock = np.stack([o.clock for o in machine.orders])[block, thread]
        row = np.stack([o.row_of for o in machine.orders])[block, thread]
        where = {"group": block, "epoch": machine.epoch[block], "agent": thread, "thread": thread}
        yield self.block_logs[touch.space], {**where, "clock": clock, "row": row}
        if touch.space == "global" and len(self.ex.launch.blocks) > 1:
            agent, order = block + machine.first, self.global_order
            knows = {"clock": order.clock[agent], "row": order.row_of[agent]}
            yield self.grid_log, {"agent": agent, "thread": thread, **knows}

    def _synchronize(self, machine: Machine, touch: Touch) -> None:
        """Strong operations pass knowledge on: a release leaves it at the place, a later acquire there takes it over.

        A relaxed operation releases what came before the thread's last fence. Any strong read acquires.
        """
        if not self.ex.check_races or not touch.strong or touch.space not in ("global", "shared"):
            return
        parts = touch.instruction.parts
        releasing = touch.lanes & (machine.fenced | bool({"release", "acq_rel"} & set(parts)))
        if touch.op == "ld":
            releasing = np.zeros_like(releasing)
        acquiring = touch.lanes & (touch.op in ("ld", "atom"))
        if not releasing.any() and not self.released:
            return
        for warp, lane in np.argwhere(touch.lanes):
            for order, agent, key in self._orders(machine, touch, warp, lane):
                if acquiring[warp, lane] and key in self.released:
                    order.acquire(agent, self.released[key])
                if releasing[warp, lane]:
                    row = order.release(agent)
                    self.released[key] = np.maximum(row, self.released.get(key, row))

    def _orders(self, machine: Machine, touch: Touch, warp: int, lane: int) -> Iterator[tuple[Order, int, tuple]]:
        """The orders that a strong operation takes part in, as which agent, and where it leaves what it knows."""
        block, position = int(machine.block_of[warp]), int(touch.positions[warp, lane])
        yield machine.orders[block], int(machine.thread[warp, lane]), (block, touch.space, position)
        if touch.space == "global":
            yield self.global_order, block + machine.first, ("grid", position)

    # ---- races

    def shared_name(self, address: int) -> str:
        """Which shared array, and which byte of it, an address lies in."""
        for name, start in self.shared_offsets.items():
            if start <= address < start + self.shared_sizes[name]:
                return f"byte {address - start} of {name}"
        return f"byte {address} of shared memory"

    def report_block_races(self, machine: Machine) -> None:
        """Check what the batch's blocks logged, each for itself, and start anew."""
        for space, log in self.block_logs.items():
            for race in log.races(dict(enumerate(machine.orders))):
                block = machine.blocks[int(race.write["group"])]
                at = int(race.write["cell"]) * self.granule
                where = self._global_name(at) if space == "global" else self.shared_name(at % machine.shared.stride)
                thread, other = (self.ex.launch.thread_index(int(e["agent"])) for e in (race.write, race.other))
                text = f"{where}: thread {thread} writes, thread {other} {_verb(race)}, no barrier between"
                self._report_race(f"{space}-race", race, block, thread, text)
            self.block_logs[space] = RaceLog()
        self.released = {key: row for key, row in self.released.items() if key[0] == "grid"}

    def report_grid_races(self) -> None:
        """Check the launch's log of global memory: nothing orders two blocks but a release and an acquire."""
        for race in self.grid_log.races({0: self.global_order}):
            block, other = (self.ex.launch.blocks[int(e["agent"])] for e in (race.write, race.other))
            where = self._global_name(int(race.write["cell"]) * self.granule)
            text = f"{where}: block {block} writes, block {other} {_verb(race)}"
            thread = self.ex.launch.thread_index(int(race.write["thread"]))
            self._report_race("global-race", race, block, thread, text)

    def _global_name(self, position: int) -> str:
        number = int(np.searchsorted(self.ex.memory.starts, position, side="right")) - 1
        buffer = self.ex.memory.buffers[number]
        return f"byte {position - buffer.start} of {buffer.name}"

    def _report_race(self, kind: str, race: Race, block, thread, text: str) -> None:
        line, other = int(race.write["line"]), int(race.other["line"])
        self.ex.found(kind, line, block, thread, text, other_line=other, count=race.count)


def _verb(race: Race) -> str:
    return "writes" if race.other["write"] else "reads"


def _element_bytes(instruction: Instruction) -> int:
    """The bytes of one element of a memory instruction; 4 for all others."""
    parts = instruction.parts
    if parts[0] in ("ld", "st", "atom", "red") and "param" not in parts:
        return TYPE_BYTES.get(parts[-1], 1)
    return 4


def _symbols(instruction: Instruction) -> Iterator[Symbol]:
    for operand in instruction.operands:
        if isinstance(operand, Symbol):
            yield operand
        elif isinstance(operand, Address) and isinstance(operand.base, Symbol):
            yield operand.base


# ---- atomics -------------------------------------------------------------------------------------------------------


def _turns(touch: Touch) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Index arrays of lanes with different places, so that lanes that share a place come one after the other."""
    warp, lane = np.nonzero(touch.lanes)
    places = touch.positions[warp, lane]
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(ordered) else np.zeros(0, int)
    rank = np.empty(len(places), np.int64)
    rank[order] = np.arange(len(places)) - np.repeat(first, np.diff(np.append(first, len(places))))
    for turn in range(int(rank.max(initial=-1)) + 1):
        yield warp[rank == turn], lane[rank == turn]


ATOMICS = {
    "add": lambda old, a: old + a,
    "min": lambda old, a: np.minimum(old, a),
    "max": lambda old, a: np.maximum(old, a),
    "and": lambda old, a: old & a,
    "or": lambda old, a: old | a,
    "xor": lambda old, a: old ^ a,
    "exch": lambda old, a: a,
    "cas": lambda old, compare, new: np.where(old == compare, new, old),
    "inc": lambda old, limit: np.where(old >= limit, 0, old + old.dtype.type(1)),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1)),
}
