"""Oracle, room 2: a kernel as basic blocks in the order in which diverged lanes take turns.

Calls are expanded in place, so that what is left is one body of code. Its basic blocks are numbered so that every block
comes after those that lead to it, and the blocks of a loop stand together. A machine that always runs the lowest
numbered block that any lane of the warp waits at then brings lanes back together as early as control flow allows: at
the branch's immediate post-dominator or before. Lanes that go back to the head of a loop wait until no lane of their
warp is left inside the body (`Code.turn` numbers that waiting place just after the loop's last block).

Source for the idea: G. Diamos et al., "SIMD re-convergence at thread frontiers" (MICRO 2011).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpudays.ptx.model import UnsupportedInstruction
from gpudays.ptx.parser import Function, Group, Instruction, Module, Symbol, Variable, _renamed

_ENDS = ("bra", "brx", "ret", "exit", "bar", "barrier", "trap")


@dataclass(frozen=True)
class Body:
    """A kernel with its calls expanded: code, label → index, register → type, its variables and branch tables."""

    instructions: list[Instruction]
    labels: dict[str, int]
    registers: dict[str, str]
    variables: list[Variable]
    tables: dict[str, tuple[str, ...]]


def expand_calls(module: Module, function: Function, _stack: tuple[str, ...] = ()) -> Body:
    """Put the code of every called device function in place of the call.

    Arguments and results need no copying: the callee's parameter is the caller's argument variable under another name.
    A `ret` inside becomes a branch behind the call. Raises `UnsupportedInstruction` for recursion and for calls
    through a pointer; a call of a function without a body stays as it is.
    """
    body = Body([], {}, dict(function.registers), list(function.variables), dict(function.tables))
    position: dict[int, int] = {}
    for index, instruction in enumerate(function.instructions):
        position[index] = len(body.instructions)
        if instruction.parts[0] != "call" or not _expand(module, instruction, body, (*_stack, function.name)):
            body.instructions.append(instruction)
    position[len(function.instructions)] = len(body.instructions)
    body.labels.update({name: position[at] for name, at in function.labels.items()})
    return body


def _expand(module: Module, call: Instruction, body: Body, stack: tuple[str, ...]) -> bool:
    """Append the called function's code; False where the module does not have it."""
    target = next((o.name for o in call.operands if isinstance(o, Symbol)), None)
    if target is None or target in stack:
        why = "a call through a function pointer" if target is None else f"{target} calls itself"
        raise UnsupportedInstruction(call.opcode, call.line, call.ptx_line, why)
    callee = module.functions.get(target)
    if callee is None:
        return False
    inner = expand_calls(module, callee, stack)
    prefix, start = f"{len(body.instructions)}:{target}:", len(body.instructions)
    names = {v.name: v.name for v in inner.variables if v.space == "shared"}
    names |= _bind(call, callee)
    local = {*inner.registers, *inner.labels, *inner.tables, *(v.name for v in inner.variables)}
    behind = f"{prefix}behind"
    if call.predicate is not None:
        away = replace(call.predicate, negated=not call.predicate.negated)
        body.instructions.append(replace(call, opcode="bra", operands=(Symbol(behind),), predicate=away))
        start += 1

    def rename(name: str) -> str:
        return names.get(name, prefix + name if name in local else name)

    for instruction in inner.instructions:
        moved = _renamed(instruction, rename)
        if instruction.opcode in ("ret", "ret.uni") and not instruction.operands:
            moved = replace(moved, operands=(Symbol(behind),))
        body.instructions.append(moved)
    body.labels.update({rename(name): start + at for name, at in inner.labels.items()})
    body.labels[behind] = len(body.instructions)
    body.registers.update({rename(name): kind for name, kind in inner.registers.items()})
    body.tables.update({rename(name): tuple(map(rename, targets)) for name, targets in inner.tables.items()})
    body.variables.extend(replace(v, name=rename(v.name)) for v in inner.variables)
    return True


def _bind(call: Instruction, callee: Function) -> dict[str, str]:
    """The callee's parameter and result names → the caller's variables."""
    at = next(i for i, o in enumerate(call.operands) if isinstance(o, Symbol))
    results = call.operands[0].items if at else ()
    after = call.operands[at + 1] if len(call.operands) > at + 1 else None
    arguments = after.items if isinstance(after, Group) else ()
    formal = (*callee.results, *callee.params)
    actual = (*results, *arguments)
    if len(formal) != len(actual):
        raise UnsupportedInstruction(call.opcode, call.line, call.ptx_line, "argument count differs")
    return {f.name: a.name for f, a in zip(formal, actual, strict=True)}


# ---- basic blocks --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """Instructions that a lane runs from the first to the last; `next` is the block that follows, None at the end."""

    instructions: tuple[Instruction, ...]
    next: int | None


class Code:
    """The basic blocks of a `Body`, in turn order. Block 0 is the entry."""

    def __init__(self, body: Body):
        starts = _block_starts(body)
        number = {start: i for i, start in enumerate(starts)}
        ends = [*starts[1:], len(body.instructions)]
        lists = [tuple(body.instructions[s:e]) for s, e in zip(starts, ends, strict=True)]
        self._label_block = {name: number.get(at) for name, at in body.labels.items()}
        self._tables = body.tables
        successors = [self._successors(block, i, len(lists)) for i, block in enumerate(lists)]
        order, loops = turn_order(successors)
        place = {old: new for new, old in enumerate(order)}
        self.blocks = [Block(lists[i], place.get(i + 1)) for i in order]
        self._label_block = {name: place.get(old) for name, old in self._label_block.items()}
        self._loop_end = {place[head]: max(place[b] for b in members) for head, members in loops.items()}

    def _successors(self, block: tuple[Instruction, ...], index: int, count: int) -> list[int]:
        """The blocks that may follow block `index` (original numbering); leaving the kernel is no block."""
        last = block[-1]
        out = [] if _always_leaves(last) else [index + 1]
        if last.parts[0] == "brx":
            out += [self._label_block[t] for t in self._tables[last.operands[1].name]]
        elif last.operands and last.parts[0] in ("bra", "ret"):
            out.append(self._label_block[last.operands[0].name])
        return [b for b in out if b is not None and b < count]

    def target(self, label: str) -> int | None:
        """The block at a label; None where the label stands behind the last instruction (the kernel ends there)."""
        return self._label_block[label]

    def targets(self, table: str) -> list[int | None]:
        return [self._label_block[name] for name in self._tables[table]]

    def turn(self, block: int, coming_from: int | None = None) -> int:
        """The turn number of lanes that wait to enter `block`: the lowest number runs first.

        Coming from inside the loop that `block` heads, the lanes wait behind the loop's last block; of nested loops
        that end together, the inner one's waiting place comes first.
        """
        count = len(self.blocks)
        end = self._loop_end.get(block)
        if coming_from is None or end is None or not block <= coming_from <= end:
            return block * (count + 1)
        return end * (count + 1) + count - block

    def block_at(self, turn: int) -> int:
        """The block that a turn number leads to: the inverse of `turn`."""
        count = len(self.blocks)
        block, waiting = divmod(turn, count + 1)
        return count - waiting if waiting else block


def _always_leaves(last: Instruction) -> bool:
    return last.predicate is None and last.parts[0] in ("bra", "brx", "ret", "exit", "trap")


def _block_starts(body: Body) -> list[int]:
    starts = {0, *(at for at in body.labels.values() if at < len(body.instructions))}
    ends = (i for i, x in enumerate(body.instructions[:-1]) if x.parts[0] in _ENDS and "warp" not in x.parts)
    starts |= {i + 1 for i in ends}
    return sorted(starts)


def turn_order(successors: list[list[int]]) -> tuple[list[int], dict[int, set[int]]]:
    """Number the blocks reachable from 0: predecessors first, loops in one piece.

    Returns the order and, for every loop head, the set of blocks in its loop. A loop is a strongly connected part of
    the graph; without the edges back to its head its inside is ordered in the same way.
    """
    order: list[int] = []
    loops: dict[int, set[int]] = {}

    def arrange(nodes: set[int], entry: int) -> None:
        edges = {n: [s for s in successors[n] if s in nodes and s != entry] for n in nodes}
        for part in reversed(_strong_components(edges, entry)):
            if len(part) == 1 and next(iter(part)) not in edges[next(iter(part))]:
                order.extend(part)
                continue
            entered = [s for n in nodes - part for s in edges[n] if s in part]
            head = min(entered)
            loops[head] = part
            arrange(part, head)

    nodes = _reachable(successors)
    if any(0 in successors[n] for n in nodes):
        parts = _strong_components({n: successors[n] for n in nodes}, 0)
        loops[0] = next(part for part in parts if 0 in part)
    arrange(nodes, 0)
    return order, loops


def _reachable(successors: list[list[int]]) -> set[int]:
    seen, todo = {0}, [0]
    while todo:
        fresh = set(successors[todo.pop()]) - seen
        seen |= fresh
        todo.extend(fresh)
    return seen


def _strong_components(edges: dict[int, list[int]], entry: int) -> list[set[int]]:
    """The strongly connected parts reachable from `entry`, the last in topological order first (R. Tarjan, 1972)."""
    index: dict[int, int] = {entry: 0}
    low: dict[int, int] = {entry: 0}
    stack, placed, out = [entry], set(), []
    work = [(entry, iter(edges[entry]))]
    while work:
        node, rest = work[-1]
        step = next(rest, None)
        if step is None:
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == index[node]:
                at = stack.index(node)
                out.append(set(stack[at:]))
                placed.update(stack[at:])
                del stack[at:]
        elif step not in index:
            index[step] = low[step] = len(index)
            stack.append(step)
            work.append((step, iter(edges[step])))
        elif step not in placed:
            low[node] = min(low[node], index[step])
    return out
