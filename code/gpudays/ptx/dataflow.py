"""Tracer, room 3: what is known before a kernel runs — which registers live on, which hold one value for the warp.

Two facts per register make a warp cheap to run:

- *uniform*: in every lane that may read it the register holds the same value. It is kept once, not 32 times.
- *safe*: no lane that waits elsewhere still needs the register's old value while others write it. A safe register is
  written whole; any other is written only in the active lanes.

The question behind both is where lanes can wait. They wait only after a *divergent* branch (one whose predicate
differs between lanes): on the branch's other paths, or where the paths meet again (its immediate post-dominator).
Source of the idea: Karrenberg, Hack, "Whole-Function Vectorization", CGO 2011.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpudays.ptx.cfg import Graph, dominators, members
from gpudays.ptx.parser import Address, Group, Instruction, Operand, Pair, Reg, Special, Vector

NO_RESULT = {
    "st", "red", "bar", "barrier", "membar", "fence", "bra", "brx", "ret", "exit", "trap", "nanosleep", "cp",
    "prefetch", "prefetchu", "brkpt", "pmevent", "discard", "applypriority", "griddepcontrol", "setmaxnreg",
    "stacksave", "stackrestore", "assertfail",
}  # fmt: skip
_VARYING_SPECIALS = ("%tid", "%laneid", "%lanemask")
_VARYING_OPCODES = {"atom", "shfl", "match", "elect", "redux"}
_UNIFORM_SPACES = {"param", "const", "global", "shared"}


def results(i: Instruction) -> list[Reg]:
    """The registers that an instruction writes."""
    if i.parts[0] in NO_RESULT or not i.operands:
        return []
    return _registers(i.operands[0])


def sources(i: Instruction) -> list[Reg]:
    """The registers that an instruction reads, its predicate among them."""
    first = 1 if results(i) or (i.operands and i.parts[0] not in NO_RESULT) else 0
    out = [i.predicate] if i.predicate else []
    for operand in i.operands[first:]:
        out.extend(_registers(operand))
    return out


def _registers(operand: Operand) -> list[Reg]:
    match operand:
        case Reg():
            return [operand]
        case Address(base, _):
            return _registers(base)
        case Vector(items) | Group(items):
            return [r for item in items for r in _registers(item)]
        case Pair(first, second):
            return [r for r in (first, second) if r is not None]
    return []


@dataclass
class Facts:
    """Per kernel: `live_in[b]` the registers block b may read before writing; `uniform` and `safe` registers;
    `divergent` the blocks that end in a divergent branch."""

    live_in: list[set[str]]
    uniform: set[str]
    safe: set[str]
    divergent: set[int]


def analyse(graph: Graph, registers: dict[str, str]) -> Facts:
    """Liveness, uniformity and safety of every register of a kernel."""
    live = _liveness(graph)
    written = [_written(b) for b in graph.blocks]
    everything = set(registers)
    if not graph.reducible:  # lanes may meet anywhere: take nothing for granted
        ends = {n for n, b in enumerate(graph.blocks) if b.end[0] in ("branch", "switch")}
        return Facts(live, set(), set(), ends)
    regions = _Regions(graph)
    varying: set[str] = set()
    unsafe: set[str] = set()
    while True:
        divergent = {n for n, b in enumerate(graph.blocks) if _splits(b.end, varying)}
        unsafe_now = regions.unsafe(divergent, written, live) | unsafe
        varying_now = varying | unsafe_now
        _spread(graph, varying_now)
        if varying_now == varying and unsafe_now == unsafe:
            return Facts(live, everything - varying, everything - unsafe, divergent)
        varying, unsafe = varying_now, unsafe_now


def _splits(end: tuple, varying: set[str]) -> bool:
    return end[0] in ("branch", "switch") and end[1].name in varying


def _written(block) -> set[str]:
    return {r.name for i in block.instructions for r in results(i)}


def _spread(graph: Graph, varying: set[str]) -> None:
    """Add to `varying` every register computed from something that varies between lanes."""
    changed = True
    while changed:
        changed = False
        for block in graph.blocks:
            for i in block.instructions:
                targets = [r.name for r in results(i)]
                if any(t not in varying for t in targets) and _varies(i, targets, varying):
                    varying.update(targets)
                    changed = True


def _varies(i: Instruction, targets: list[str], varying: set[str]) -> bool:
    name = i.parts[0]
    if name in _VARYING_OPCODES or (name == "ld" and not _UNIFORM_SPACES & set(i.parts)):
        return True
    if name == "vote" or name == "activemask":
        return False
    if any(r.name in varying for r in sources(i)) or (i.predicate and any(t in varying for t in targets)):
        return True
    return any(_special_varies(o) for o in i.operands)


def _special_varies(operand: Operand) -> bool:
    if isinstance(operand, Special):
        return operand.name.startswith(_VARYING_SPECIALS)
    return isinstance(operand, Vector) and any(_special_varies(o) for o in operand.items)


def _liveness(graph: Graph) -> list[set[str]]:
    reads, kills = [], []
    for block in graph.blocks:
        read: set[str] = set()
        kill: set[str] = set()
        tail = [block.end[1]] if block.end[0] == "barrier" else []
        for i in [*block.instructions, *tail]:
            read |= {r.name for r in sources(i)} - kill
            wrote = {r.name for r in results(i)}
            if i.predicate is not None:
                read |= wrote - kill
            kill |= wrote
        if block.end[0] in ("branch", "switch"):
            read |= {block.end[1].name} - kill
        reads.append(read)
        kills.append(kill)
    live: list[set[str]] = [set() for _ in graph.blocks]
    changed = True
    while changed:
        changed = False
        for n in range(len(graph.blocks) - 1, -1, -1):
            out = set().union(*(live[s] for s in graph.blocks[n].successors))
            new = reads[n] | (out - kills[n])
            if new != live[n]:
                live[n], changed = new, True
    return live


class _Regions:
    """For each branch: the blocks its paths run through before they meet, and where waiting lanes may stand."""

    def __init__(self, graph: Graph):
        self.successors = graph.successors
        self.meet = _meeting_points(graph.successors)
        self.cache: dict[int, list[tuple[set[int], set[int]]]] = {}

    def paths(self, branch: int) -> list[tuple[set[int], set[int]]]:
        """For each way out of `branch`: (blocks on it, blocks where the lanes of the other ways may wait)."""
        if branch not in self.cache:
            meet = self.meet[branch]
            reach = [self._until(s, meet) for s in self.successors[branch]]
            waits = []
            for k in range(len(reach)):
                others = set().union(*(r for j, r in enumerate(reach) if j != k))
                waits.append(others | ({meet} if meet is not None else set()))
            self.cache[branch] = list(zip(reach, waits, strict=True))
        return self.cache[branch]

    def _until(self, start: int, meet: int | None) -> set[int]:
        seen: set[int] = set()
        todo = [start] if start != meet else []
        while todo:
            n = todo.pop()
            if n not in seen:
                seen.add(n)
                todo.extend(s for s in self.successors[n] if s != meet)
        return seen

    def unsafe(self, divergent: set[int], written: list[set[str]], live: list[set[str]]) -> set[str]:
        """Registers that some block may overwrite while a waiting lane still needs them."""
        out: set[str] = set()
        for branch in divergent:
            for blocks, waits in self.paths(branch):
                needed = set().union(*(live[w] for w in waits))
                out |= needed & set().union(*(written[b] for b in blocks))
        return out


def _meeting_points(successors: list[tuple[int, ...]]) -> list[int | None]:
    """The immediate post-dominator of each block; None where the paths only meet by ending."""
    exit_ = len(successors)
    backward: list[list[int]] = [[] for _ in range(exit_ + 1)]
    for n, after in enumerate(successors):
        for s in after:
            backward[s].append(n)
        if not after:
            backward[exit_].append(n)
    post = dominators([tuple(b) for b in backward], exit_)
    out: list[int | None] = []
    for n in range(exit_):
        if not post[n] >> exit_ & 1 or post[n].bit_count() > exit_:  # an endless loop: no path ends
            out.append(None)
            continue
        strict = post[n] & ~(1 << n)
        # the immediate one is that whose own post-dominators are exactly the strict ones
        found = [m for m in members(strict) if m != exit_ and post[m] == strict]
        out.append(found[0] if found else None)
    return out
