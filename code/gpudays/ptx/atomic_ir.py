"""Tracer, room 8: atom and red as LLVM IR — one lane after the other, lowest first.

A launch with global atomics runs on one OS thread, so plain loads and stores make them atomic, and every run gives the
same order. Source: NVIDIA, "Parallel Thread Execution ISA", "atom", "red".
"""

from __future__ import annotations

from gpudays.ptx import layout as at
from gpudays.ptx.ir import BITS, FLOATS, Function
from gpudays.ptx.memory_ir import Routine, clashes

INTEGER = ("add", "and", "or", "xor", "exch", "cas", "min", "max", "inc", "dec")
FLOATING = ("add", "min", "max", "exch", "cas")


def atomic_name(op: str, space: str, what: str, kind: str) -> str:
    """`@"atom.global.add.u32"`."""
    return f'@"{op}.{space}.{what}.{kind}"'


class Atomic(Routine):
    """The routine for one atomic operation.

    Operands are in rows 0 and 1 of the staging area; the old values come in row 0 of the second area.
    """

    def __init__(self, op: str, space: str, what: str, kind: str, element: str, *settings):
        super().__init__(op, space, BITS[element] // 8, 1, *settings)
        self.what, self.kind, self.type = what, kind, element
        self.name = atomic_name(op, space, what, kind)
        self.f = Function(f"void {self.name}({self.arguments}) noinline")

    def forward_name(self, space: str) -> str:
        return atomic_name(self.op, space, self.what, self.kind)

    def move(self, shape: str, host: str) -> None:
        f = self.f
        with f.lanes("%mask") as lane:
            own = f.let(f"mul i64 {lane}, {self.frame}") if self.space == "local" else "0"
            slot = f.let(f"getelementptr i64, ptr {shape}, i64 {lane}")
            place = f.let(f"add i64 {host}, {f.load('i64', slot, at.DELTA)}")
            p = f.let(f"inttoptr i64 {f.let(f'add i64 {place}, {own}')} to ptr")
            stage = f.let(f"getelementptr {self.type}, ptr %M, i64 {lane}")
            old = f.load(self.type, p, 0, self.width)
            b = f.load(self.type, stage, at.STAGE)
            c = f.load(self.type, stage, at.STAGE + at.STAGE_ROW)
            f.store(self.type, old, stage, at.STAGE_2)
            f.store(self.type, self.combine(old, b, c), p, 0, self.width)
        f.raw("ret void")

    def combine(self, old: str, b: str, c: str) -> str:
        """The new value."""
        f, t = self.f, self.type
        float_ = t in FLOATS
        match self.what:
            case "add":
                return f.let(f"{'fadd' if float_ else 'add'} {t} {old}, {b}")
            case "and" | "or" | "xor":
                return f.let(f"{self.what} {t} {old}, {b}")
            case "exch":
                return b
            case "cas":
                same = f.let(f"icmp eq {t} {old}, {b}")
                return f.let(f"select i1 {same}, {t} {c}, {t} {old}")
            case "min" | "max":
                sign = "s" if self.kind.startswith("s") else "u"
                test = f"icmp {sign}{'lt' if self.what == 'min' else 'gt'}"
                if float_:
                    test = f"fcmp {'olt' if self.what == 'min' else 'ogt'}"
                better = f.let(f"{test} {t} {b}, {old}")
                return f.let(f"select i1 {better}, {t} {b}, {t} {old}")
            case "inc":
                past = f.let(f"icmp uge {t} {old}, {b}")
                return f.let(f"select i1 {past}, {t} 0, {t} {f.let(f'add {t} {old}, 1')}")
        zero, above = f.let(f"icmp eq {t} {old}, 0"), f.let(f"icmp ugt {t} {old}, {b}")  # dec
        restart = f.let(f"or i1 {zero}, {above}")
        return f.let(f"select i1 {restart}, {t} {b}, {t} {f.let(f'sub {t} {old}, 1')}")

    def check_store(self, shape: str) -> None:
        self.each_cell(shape, self.check_cell)

    def check_cell(self, cell: str, who: str) -> None:
        """Atomics do not race with each other, only with plain loads and stores."""
        f = self.f
        w = f.let(f"getelementptr i64, ptr {self.writes}, i64 {cell}")
        r = f.let(f"getelementptr i64, ptr {self.reads}, i64 {cell}")
        wrote, read = f.let(f"load i64, ptr {w}"), f.let(f"load i64, ptr {r}")
        plain = f.let(f"icmp eq i64 {f.let(f'and i64 {wrote}, {at.ATOMIC_MARK}')}, 0")
        clash = f.let(f"and i1 {plain}, {clashes(f, wrote, who, self.oldest)}")
        never = f.let(f"icmp ult i64 {wrote}, {self.birth}")
        trouble = f.let(f"or i1 {clash}, {f.let(f'or i1 {never}, {clashes(f, read, who, self.oldest)}')}")
        self.complain(trouble, cell, who)
        mine = f.let(f"or i64 {f.let(f'or i64 {self.stamp}, {who}')}, {at.ATOMIC_MARK}")
        f.raw(f"store i64 {mine}, ptr {w}")
