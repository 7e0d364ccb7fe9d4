"""Tracer, room 2: instructions become a control-flow graph whose block numbers say who waits for whom.

A warp whose lanes stand at different blocks always runs the lowest-numbered block next. For that to bring the lanes
together again where a GPU does — at the first block that all paths share — blocks are numbered so that

- a block comes after every block that leads to it (loops aside), and
- a loop's blocks are consecutive, its last block the only one that leads back to its head (one is added if need be).

Source of the terms (dominator, natural loop, reducible): Aho, Lam, Sethi, Ullman, "Compilers", chapter 9.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace

from gpudays.ptx.model import UnsupportedInstruction
from gpudays.ptx.parser import Function, Instruction, Reg, Symbol

BARRIER_OPCODES = ("bar", "barrier")


@dataclass
class Block:
    """Straight-line code. `end` is how it leaves:

    ("goto", block) · ("branch", predicate, then, else) · ("switch", register, blocks) · ("exit",) ·
    ("barrier", instruction, block) · ("trap", instruction)
    """

    instructions: list[Instruction] = field(default_factory=list)
    end: tuple = ("exit",)
    end_instruction: Instruction | None = None

    @property
    def successors(self) -> tuple[int, ...]:
        match self.end[0]:
            case "goto":
                return (self.end[1],)
            case "branch":
                return tuple(dict.fromkeys(self.end[2:4]))
            case "switch":
                return tuple(dict.fromkeys(self.end[2]))
            case "barrier":
                return (self.end[2],)
        return ()

    def redirect(self, new: dict[int, int]) -> None:
        """Replace successor numbers by `new`."""
        end = self.end
        match end[0]:
            case "goto":
                self.end = ("goto", new.get(end[1], end[1]))
            case "branch":
                self.end = ("branch", end[1], new.get(end[2], end[2]), new.get(end[3], end[3]))
            case "switch":
                self.end = ("switch", end[1], tuple(new.get(t, t) for t in end[2]))
            case "barrier":
                self.end = ("barrier", end[1], new.get(end[2], end[2]))


@dataclass
class Graph:
    """Blocks in their final order, block 0 the entry. `reducible` is False where two-headed loops defeat the order."""

    blocks: list[Block]
    reducible: bool

    @property
    def successors(self) -> list[tuple[int, ...]]:
        return [b.successors for b in self.blocks]


def build(function: Function) -> Graph:
    """The control-flow graph of `function`. Raises `UnsupportedInstruction` for branches that it cannot follow."""
    blocks = _split(function)
    blocks = _reachable(blocks)
    reducible = _add_latches(blocks)
    order = _order(blocks) if reducible else list(range(len(blocks)))
    new = {old: i for i, old in enumerate(order)}
    for block in blocks:
        block.redirect(new)
    return Graph([blocks[old] for old in order], reducible)


# ---- cutting the code into blocks ----------------------------------------------------------------------------------


def _is_barrier(i: Instruction) -> bool:
    return i.parts[0] in BARRIER_OPCODES and i.parts[1] not in ("warp", "cluster")


def _leaves(i: Instruction) -> bool:
    return i.parts[0] in ("bra", "ret", "exit", "trap", "brx") or _is_barrier(i)


def _split(function: Function) -> list[Block]:
    code = function.instructions
    starts = {0} | {at for at in function.labels.values()} | {n + 1 for n, i in enumerate(code) if _leaves(i)}
    ordered = sorted(s for s in starts if s < len(code)) or [0]
    number = {start: n for n, start in enumerate(ordered)}
    after = len(ordered)  # running off the end is a return
    number[len(code)] = after
    blocks = [Block() for _ in range(after + 1)]

    def target(label, instruction: Instruction) -> int:
        if not isinstance(label, Symbol) or label.name not in function.labels:
            raise UnsupportedInstruction(instruction.opcode, instruction.line, instruction.ptx_line, "no such label")
        return number[function.labels[label.name]]

    for n, start in enumerate(ordered):
        stop = ordered[n + 1] if n + 1 < len(ordered) else len(code)
        body = list(code[start:stop])
        if body and _leaves(body[-1]):
            last = body.pop()
            blocks[n].instructions = body
            blocks[n].end_instruction = last
            _set_end(blocks, n, last, n + 1, target, function)
        else:
            blocks[n].instructions = body
            blocks[n].end = ("goto", n + 1)
    return blocks


def _set_end(blocks: list[Block], n: int, last: Instruction, after: int, target, function: Function) -> None:
    name = last.parts[0]
    if name == "bra":
        to = target(last.operands[0], last)
        blocks[n].end = ("branch", last.predicate, to, after) if last.predicate else ("goto", to)
        return
    if name == "brx":
        end = ("switch", last.operands[0], tuple(target(t, last) for t in _table(last, function)))
    elif name in ("ret", "exit"):
        end = ("exit",)
    elif name == "trap":
        end = ("trap", last)
    elif "red" in last.parts:  # its result is read where the warp goes on
        result = replace(last, opcode=f"barresult.{last.opcode}", operands=last.operands[:2], predicate=None)
        blocks.append(Block([result], ("goto", after)))
        end = ("barrier", last, len(blocks) - 1)
    else:
        end = ("barrier", last, after)
    if last.predicate is None:
        blocks[n].end = end
    else:  # a guarded barrier, return or trap is a branch around a block of its own
        blocks.append(Block(end=end, end_instruction=last))
        blocks[n].end = ("branch", last.predicate, len(blocks) - 1, after)


def _table(last: Instruction, function: Function) -> tuple[Symbol, ...]:
    name = last.operands[1].name if len(last.operands) > 1 and isinstance(last.operands[1], Symbol) else ""
    if name not in function.tables or not isinstance(last.operands[0], Reg):
        raise UnsupportedInstruction(last.opcode, last.line, last.ptx_line, "no such branch table")
    return tuple(Symbol(t) for t in function.tables[name])


def _reachable(blocks: list[Block]) -> list[Block]:
    seen, todo = {0}, [0]
    while todo:
        for s in blocks[todo.pop()].successors:
            if s not in seen:
                seen.add(s)
                todo.append(s)
    kept = sorted(seen)
    new = {old: i for i, old in enumerate(kept)}
    for old in kept:
        blocks[old].redirect(new)
    return [blocks[old] for old in kept]


# ---- dominators and loops (sets of blocks are bits of Python integers) ---------------------------------------------


def predecessors(successors: list[tuple[int, ...]]) -> list[list[int]]:
    """Who leads to each block."""
    out: list[list[int]] = [[] for _ in successors]
    for n, after in enumerate(successors):
        for s in after:
            out[s].append(n)
    return out


def postorder(successors: list[tuple[int, ...]], root: int = 0) -> list[int]:
    """Blocks reachable from `root`, each after those it leads to (back edges aside)."""
    out, seen, stack = [], {root}, [(root, iter(successors[root]))]
    while stack:
        node, rest = stack[-1]
        for s in rest:
            if s not in seen:
                seen.add(s)
                stack.append((s, iter(successors[s])))
                break
        else:
            out.append(node)
            stack.pop()
    return out


def dominators(successors: list[tuple[int, ...]], root: int = 0) -> list[int]:
    """For each block the set (bits) of blocks on every path from `root` to it; all bits where there is no path."""
    before = predecessors(successors)
    order = postorder(successors, root)[::-1]
    everything = (1 << len(successors)) - 1
    dom = [everything] * len(successors)
    dom[root] = 1 << root
    changed = True
    while changed:
        changed = False
        for n in order:
            if n == root:
                continue
            new = everything
            for p in before[n]:
                new &= dom[p]
            new |= 1 << n
            if new != dom[n]:
                dom[n], changed = new, True
    return dom


def members(bits: int) -> list[int]:
    """The positions of the set bits."""
    out = []
    while bits:
        low = bits & -bits
        out.append(low.bit_length() - 1)
        bits ^= low
    return out


def _loops(blocks: list[Block]) -> tuple[dict[int, set[int]], dict[int, list[int]], bool]:
    """Natural loops: head -> blocks, head -> sources of its back edges; and whether the graph is reducible."""
    after = [b.successors for b in blocks]
    before, dom = predecessors(after), dominators(after)
    position = {n: i for i, n in enumerate(postorder(after)[::-1])}
    bodies: dict[int, set[int]] = {}
    latches: dict[int, list[int]] = {}
    reducible = True
    for n, succ in enumerate(after):
        for head in succ:
            if dom[n] >> head & 1:
                latches.setdefault(head, []).append(n)
                body, todo = bodies.setdefault(head, {head}), [n]
                while todo:
                    at = todo.pop()
                    if at not in body:
                        body.add(at)
                        todo.extend(before[at])
            elif position[head] <= position[n]:
                reducible = False
    return bodies, latches, reducible


def _add_latches(blocks: list[Block]) -> bool:
    """Give every loop a single way back to its head; False when the graph is not reducible."""
    _, latches, reducible = _loops(blocks)
    if reducible:
        for head, sources in latches.items():
            if len(sources) > 1:
                blocks.append(Block(end=("goto", head)))
                for n in sources:
                    blocks[n].redirect({head: len(blocks) - 1})
    return reducible


def _order(blocks: list[Block]) -> list[int]:
    """Topological order in which loops are consecutive."""
    bodies, _, _ = _loops(blocks)
    innermost: dict[int, int] = {}  # block -> head of its innermost loop
    for head in sorted(bodies, key=lambda h: -len(bodies[h])):
        for n in bodies[head]:
            innermost[n] = head
    parent = {}
    for head in bodies:
        around = [h for h in bodies if h != head and head in bodies[h]]
        parent[head] = min(around, key=lambda h: len(bodies[h]), default=None)

    def child(n: int, region: int | None) -> int | None:
        """The node of `region`'s own level that block n belongs to: itself or the head of a loop; None if outside."""
        head, inside = innermost.get(n), n
        while head != region:
            if head is None:
                return None
            inside, head = head, parent[head]
        return inside

    def arrange(region: int | None, nodes: set[int]) -> list[int]:
        own = {c for c in (child(n, region) for n in nodes) if c is not None}
        if region is not None:
            own.add(region)
        edges: dict[int, set[int]] = {n: set() for n in own}
        waiting = dict.fromkeys(own, 0)
        for n in nodes:
            source = region if n == region else child(n, region)
            for s in blocks[n].successors:
                to = child(s, region) if s in nodes else None
                if to is not None and to != source and s != region and to not in edges[source]:
                    edges[source].add(to)
                    waiting[to] += 1
        ready = [n for n in own if waiting[n] == 0]
        heapq.heapify(ready)
        out: list[int] = []
        while ready:
            n = heapq.heappop(ready)
            out.extend(arrange(n, bodies[n]) if n in bodies and n != region else [n])
            for to in edges[n]:
                waiting[to] -= 1
                if waiting[to] == 0:
                    heapq.heappush(ready, to)
        return out

    return arrange(None, set(range(len(blocks))))
