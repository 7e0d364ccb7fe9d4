"""Tracer, room 8: the routines behind ld and st, as LLVM IR — check, count, then move the data.

One routine per (operation, space, bytes per value, values per lane). An access comes as `base + delta[lane]`, the base
one number for the warp, the deltas usually those of the last time: then everything that the access costs is read from
their *shape* (layout.py) and nothing is worked out again. Whatever is unusual — a first time, an address outside its
buffer — is handed to Python (memory.py), which may do the whole access itself.

The values travel through the machine's staging area, one row of 32 per component.
"""

from __future__ import annotations

from contextlib import contextmanager

from gpudays.ptx import layout as at
from gpudays.ptx.ir import Function, splat_constant, vec

ARGUMENTS = "ptr %M, ptr %W, ptr %site, i64 %base, ptr %delta, ptr %S, i32 %mask"
SPACES = ("global", "shared", "local", "generic")


def routine_name(op: str, space: str, width: int, count: int) -> str:
    """`@ld.global.4x1` and so on; `width` bytes per value, `count` values per lane."""
    return f'@"{op}.{space}.{width}x{count}"'


class Routine:
    """Builds one access routine."""

    def __init__(
        self, op: str, space: str, width: int, count: int, cell: int, checks: bool, frame: int, global_cell: int
    ):
        self.op, self.space, self.width, self.count = op, space, width, count
        self.total = width * count
        self.cell, self.checks, self.frame = cell, checks, frame
        self.arguments, self.global_cell = ARGUMENTS, global_cell
        self.f = Function(f"void {routine_name(op, space, width, count)}({ARGUMENTS}) noinline")

    def build(self) -> Function:
        f = self.f
        some, none = f.label("some"), f.label("none")
        f.branch(f.let("icmp eq i32 %mask, 0"), none, some)
        f.at(none)
        f.raw("ret void")
        f.at(some)
        shape = self.shape()
        least = f.let(f"add i64 %base, {f.load('i64', shape, at.LEAST)}")
        most = f.let(f"add i64 %base, {f.load('i64', shape, at.MOST)}")
        if self.space == "generic":
            self.dispatch(least)
            return f
        self.bounds(shape, least, most)
        self.account(shape)
        if self.space == "shared":
            host = f.let(f"add i64 {f.load('i64', '%M', at.SHARED)}, %base")
            if self.checks:
                self.shared_checks(shape)
        elif self.space == "local":
            host = f.let(f"add i64 {f.load('i64', '%W', at.LOCAL)}, %base")
        else:
            host = f.let(f"add i64 %base, {f.load('i64', '%site', at.SHIFT)}")
            if self.checks:
                self.watch(shape)
        self.move(shape, host)
        return f

    def shape(self) -> str:
        f = self.f
        first, ready, ask, have = f.label("first"), f.label("ready"), f.label("ask"), f.label("have")
        f.goto(first)
        f.at(first)
        cached = f.load("ptr", "%S")
        f.branch(f.let(f"icmp eq ptr {cached}, null"), ask, ready, likely=False)
        f.at(ready)
        f.branch(f.let(f"icmp eq i32 {f.load('i32', cached, at.MASK)}, %mask"), have, ask, likely=True)
        f.at(ask)
        arguments = (("ptr", "%M"), ("ptr", "%site"), ("ptr", "%delta"), ("ptr", "%S"), ("i32", "%mask"))
        asked = f.call("ptr", "@shape", *arguments)
        f.goto(have)
        f.at(have)
        return f.let(f"phi ptr [ {cached}, %{ready} ], [ {asked}, %{ask} ]")

    def dispatch(self, least: str) -> None:
        """A generic address lies in the window of shared or local memory, or it is a global one."""
        f = self.f
        for space, window in (("shared", at.SHARED_WINDOW), ("local", at.LOCAL_WINDOW)):
            inside, outside = f.label("in"), f.label("out")
            offset = f.let(f"sub i64 {least}, {window}")
            f.branch(f.let(f"icmp ult i64 {offset}, {at.WINDOW_SIZE}"), inside, outside)
            f.at(inside)
            self.forward(space, f.let(f"sub i64 %base, {window}"))
            f.at(outside)
        self.forward("global", "%base")

    def forward_name(self, space: str) -> str:
        return routine_name(self.op, space, self.width, self.count)

    def forward(self, space: str, base: str) -> None:
        arguments = [tuple(argument.split()) for argument in ARGUMENTS.replace("%base", base).split(", ")]
        self.f.call("void", self.forward_name(space), *arguments)
        self.f.raw("ret void")

    def bounds(self, shape: str, least: str, most: str) -> None:
        """Go on only if every active lane is aligned and inside the buffer; else Python sees to it."""
        f = self.f
        if self.space == "shared":
            low, high = "0", f.load("i64", "%M", at.SHARED_SIZE)
        elif self.space == "local":
            low, high = "0", str(self.frame)
        else:
            low, high = f.load("i64", "%site", at.LOW), f.load("i64", "%site", at.HIGH)
        aligned = "true"
        if self.total > 1:
            bits = f.let(f"or i64 %base, {f.load('i64', shape, at.BITS)}")
            odd = f.let(f"and i64 {bits}, {self.total - 1}")
            aligned = f.let(f"icmp eq i64 {odd}, 0")
        fits = self.fits(least, most, low, high, aligned)
        good, odd_one, done = f.label("good"), f.label("odd"), f.label("done")
        f.branch(fits, good, odd_one, likely=True)
        f.at(odd_one)
        if self.space == "global":
            self.change_over(least, most, aligned, good)
            if self.op in ("ld", "st"):
                self.straddling(shape)
        callback = f.load("ptr", "%M", at.ON_ACCESS)
        space = SPACES.index(self.space)
        go = f.call(
            "i32", callback, ("ptr", "%M"), ("ptr", "%W"), ("ptr", "%site"), ("i64", "%base"), ("ptr", "%delta"),
            ("i32", "%mask"), ("i32", str(space)),
        )  # fmt: skip
        f.branch(f.let(f"icmp eq i32 {go}, 0"), done, good)
        f.at(done)
        f.raw("ret void")
        f.at(good)

    def fits(self, least: str, most: str, low: str, high: str, aligned: str) -> str:
        """Whether accesses from `least` to `most` are `aligned` and lie between `low` and `high` (i1)."""
        f = self.f
        # all three are needed: near the ends of the address space `most` may have wrapped round
        last = f.let(f"sub i64 {high}, {self.total}")
        tests = (f"sge i64 {least}, {low}", f"sge i64 {most}, {low}", f"sle i64 {most}, {last}")
        above, still_above, below = (f.let(f"icmp {t}") for t in tests)
        inside = f.let(f"and i1 {above}, {f.let(f'and i1 {still_above}, {below}')}")
        return f.let(f"and i1 {inside}, {aligned}")

    def change_over(self, least: str, most: str, aligned: str, good: str) -> None:
        """If the buffer that the site used before fits, it is the site's again: some alternate between two."""
        f = self.f
        low, high = f.load("i64", "%site", at.OTHER), f.load("i64", "%site", at.OTHER + 8)
        swap, stay = f.label("swap"), f.label("stay")
        f.branch(self.fits(least, most, low, high, aligned), swap, stay)
        f.at(swap)
        for number, field in enumerate(at.HOME):
            place = at.OTHER + 8 * number
            mine, other = f.load("i64", "%site", field), f.load("i64", "%site", place)
            f.store("i64", other, "%site", field)
            f.store("i64", mine, "%site", place)
        f.goto(good)
        f.at(stay)

    def straddling(self, shape: str) -> None:
        """Do the whole access here if its lanes lie in different buffers, each of which the site is known to use.

        Compilers make such requests of `inside ? matrix[i] : zero`: they choose between two addresses.
        """
        f = self.f
        hosts = f.alloca(f"[{at.LANES} x i64]")
        found = f.call(
            "i32", "@homes", ("ptr", "%M"), ("ptr", "%site"), ("i64", "%base"), ("ptr", "%delta"), ("i32", "%mask"),
            ("i64", str(self.total)), ("ptr", hosts),
        )  # fmt: skip
        with f.when(f.let(f"icmp ne i32 {found}, 0")):
            self.account(shape)
            with f.lanes("%mask") as lane:
                self.move_at(f.load("i64", f.let(f"getelementptr i64, ptr {hosts}, i64 {lane}")), lane)
            f.raw("ret void")
            f.at(f.label("never"))

    def account(self, shape: str) -> None:
        f = self.f
        f.add_to("i64", "1", "%site", at.REQUESTS)
        lanes = f.let(f"zext i32 {f.call('i32', '@llvm.ctpop.i32', ('i32', '%mask'))} to i64")
        f.add_to("i64", lanes, "%site", at.ACTIVE_LANES)
        if self.space == "shared" and self.op in ("ld", "st"):
            f.add_to("i64", self.cost(shape, f"shared.{self.op}"), "%site", at.COST)
            f.add_to("i64", self.cost(shape, f"conflicts.{self.op}"), "%site", at.CONFLICTS)
        elif self.space == "shared":
            return  # no counter of ours: a shared atomic is a loop in hardware before Maxwell, a unit of its own since
        else:
            f.add_to("i64", self.cost(shape, self.space), "%site", at.COST)

    def cost(self, shape: str, kind: str) -> str:
        f = self.f
        row = at.cost_row(kind, self.total)
        position = f.let("and i64 %base, 31")
        cell = f.let(f"add i64 {position}, {row}")
        address = f.let(f"getelementptr i8, ptr {shape}, i64 {cell}")
        seen, ask, have = f.label("seen"), f.label("ask"), f.label("have")
        f.goto(seen)
        f.at(seen)
        known = f.let(f"load i8, ptr {address}")
        f.branch(f.let(f"icmp eq i8 {known}, {at.UNKNOWN - 256}"), ask, have, likely=False)
        f.at(ask)
        number = at.COST_KINDS.index(kind)
        asked = f.call(
            "i32", "@cost", ("ptr", "%M"), ("ptr", shape), ("i64", position), ("i64", str(row)), ("i32", str(number)),
            ("i32", str(self.total)),
        )  # fmt: skip
        small = f.let(f"trunc i32 {asked} to i8")
        f.goto(have)
        f.at(have)
        value = f.let(f"phi i8 [ {known}, %{seen} ], [ {small}, %{ask} ]")
        return f.let(f"zext i8 {value} to i64")

    # -- shared memory: who read and wrote each cell since the last barrier

    def shared_checks(self, shape: str) -> None:
        f = self.f
        self.per_lane = max(1, self.total // self.cell)
        self.oldest = f.let(f"shl i64 {f.load('i64', '%M', at.FULL_TICK)}, 32")
        self.writes, self.reads = f.load("ptr", "%M", at.WRITES), f.load("ptr", "%M", at.READS)
        site = f.let(f"shl i64 {f.load('i64', '%site', at.SITE_ID)}, 16")
        tick = f.load("i64", "%M", at.TICK)
        self.stamp = f.let(f"or i64 {f.let(f'shl i64 {tick}, 32')}, {site}")
        self.warp = f.let(f"zext i32 {f.load('i32', '%W', at.WARP_ID)} to i64")
        self.self_seen = f.let(f"shl i64 {seen_itself(f, self.warp)}, 32")
        self.birth = f.let(f"shl i64 {f.load('i64', '%M', at.BLOCK_TICK)}, 32")
        if self.op != "ld":
            f.call("void", "@flush", ("ptr", "%M"))
            f.store("i64", tick, "%M", at.LAST_STORE)
            self.check_store(shape)
        else:
            self.check_load(shape, tick)

    def check_load(self, shape: str, tick: str) -> None:
        """Without a store since the last barrier a read is only noted, once its cells are known to be written."""
        f = self.f
        quiet, busy, done = f.label("quiet"), f.label("busy"), f.label("checked")
        stored = f.let(f"icmp uge i64 {f.load('i64', '%M', at.LAST_STORE)}, {f.load('i64', '%M', at.FULL_TICK)}")
        passing = f.let(f"icmp ne i8 {f.load('i8', shape, at.IS_SCRATCH)}, 0")
        f.branch(f.let(f"or i1 {stored}, {passing}"), busy, quiet)
        f.at(busy)
        self.each_cell(shape, self.check_cell)
        f.goto(done)
        f.at(quiet)
        verify, note = f.label("verify"), f.label("note")
        place = f.let(f"mul i64 {self.warp}, {at.VERIFIED_SIZE}")
        known = f.let(f"getelementptr i8, ptr {f.load('ptr', '%site', at.VERIFIED)}, i64 {place}")
        wanted = (("i64", "%base", 0), ("ptr", shape, 8), ("i64", f.load("i64", "%M", at.BLOCK_TICK), 16))
        same = [f.let(f"icmp eq {kind} {f.load(kind, known, where)}, {value}") for kind, value, where in wanted]
        both = f.let(f"and i1 {same[0]}, {same[1]}")
        f.branch(f.let(f"and i1 {both}, {same[2]}"), note, verify, likely=True)
        f.at(verify)
        self.each_cell(shape, self.check_written)
        for kind, value, where in wanted:
            f.store(kind, value, known, where)
        f.goto(note)
        f.at(note)
        count = f.load("i64", "%M", at.NOTE_COUNT)
        entry = f.let(
            f"getelementptr i8, ptr {f.load('ptr', '%M', at.NOTES)}, i64 {f.let(f'mul i64 {count}, {at.NOTE_SIZE}')}"
        )
        fields = (("ptr", "%site"), ("i64", "%base"), ("ptr", shape), ("i64", self.warp), ("i64", tick))
        for n, (kind, value) in enumerate((*fields, ("i64", str(self.per_lane)))):
            f.store(kind, value, entry, 8 * n)
        more = f.let(f"add i64 {count}, 1")
        f.store("i64", more, "%M", at.NOTE_COUNT)
        with f.when(f.let(f"icmp uge i64 {more}, {at.NOTE_LIMIT}"), likely=False):
            f.call("void", "@flush", ("ptr", "%M"))
        f.goto(done)
        f.at(done)

    def check_store(self, shape: str) -> None:
        """Rows of different cells are compared sixteen at a time; anything else, and any trouble, cell by cell."""
        f = self.f
        slow, done = f.label("slow"), f.label("checked")
        if self.total == self.cell:
            pattern = f.load("i8", shape, at.PATTERN + self.total.bit_length() - 1)
            rows, first = f.label("rows"), f.label("first")
            is_row = f.let(f"icmp eq i8 {pattern}, {at.ROW}")
            f.branch(is_row, rows, first)
            f.at(first)
            different = f.let(f"icmp eq i32 {f.load('i32', shape, at.DISTINCT)}, {at.LANES}")
            halves = f.let(f"icmp eq i8 {pattern}, {at.HALF_ROWS}")
            f.branch(f.let(f"and i1 {halves}, {different}"), rows, slow)
            f.at(rows)
            self.store_rows(shape, slow, done)
        else:
            f.goto(slow)
        f.at(slow)
        distinct = f.let(f"zext i32 {f.load('i32', shape, at.DISTINCT)} to i64")
        self.same_cell(distinct)
        self.each_cell(shape, self.check_cell)
        f.goto(done)
        f.at(done)

    def store_rows(self, shape: str, slow: str, done: str) -> None:
        f, half = self.f, at.LANES // 2
        kind = f"<{half} x i64>"

        def spread(value: str) -> str:
            one = f.let(f"insertelement {kind} undef, i64 {value}, i32 0")
            return f.let(f"shufflevector {kind} {one}, {kind} undef, <{half} x i32> zeroinitializer")

        oldest = spread(self.oldest)
        places, recent = [], None
        for lane in (0, half):
            cell = f.let(f"add i64 %base, {f.load('i64', shape, at.DELTA + 8 * lane)}")
            cell = f.let(f"lshr i64 {cell}, {self.cell.bit_length() - 1}")
            places.append(f.let(f"getelementptr i64, ptr {self.writes}, i64 {cell}"))
            read = f.let(f"getelementptr i64, ptr {self.reads}, i64 {cell}")
            for p in (places[-1], read):
                hit = f.let(f"icmp sge {kind} {f.load(kind, p, 0, 8)}, {oldest}")
                recent = hit if recent is None else f.let(f"or <{half} x i1> {recent}, {hit}")
        any_ = f.let(f"icmp ne i{half} {f.let(f'bitcast <{half} x i1> {recent} to i{half}')}, 0")
        write = f.label("write")
        f.branch(any_, slow, write, likely=False)
        f.at(write)
        base = spread(f.let(f"or i64 {self.stamp}, {f.let(f'shl i64 {self.warp}, 5')}"))
        for lane, p in zip((0, half), places, strict=True):
            lanes = "<" + ", ".join(f"i64 {lane + k}" for k in range(half)) + ">"
            f.store(kind, f.let(f"add {kind} {base}, {lanes}"), p, 0, 8)
        f.goto(done)

    def each_cell(self, shape: str, check) -> None:
        """`check(cell, who)` for every different cell of the access; `who` is its thread, or the mark of several."""
        f = self.f
        distinct = f.let(f"zext i32 {f.load('i32', shape, at.DISTINCT)} to i64")
        many = f.let(f"or i64 {self.warp}, {at.MANY}")
        first_thread = f.let(f"shl i64 {self.warp}, 5")
        with f.count_to(distinct) as i:
            slot = f.let(f"getelementptr i64, ptr {shape}, i64 {i}")
            owner = f.load("i64", slot, at.OWNERS)
            several = f.let(f"icmp eq i64 {owner}, {at.MANY}")
            thread = f.let(f"add i64 {first_thread}, {owner}")
            who = f.let(f"select i1 {several}, i64 {many}, i64 {thread}")
            cell = f.let(f"add i64 %base, {f.load('i64', slot, at.OFFSETS)}")
            cell = f.let(f"lshr i64 {cell}, {self.cell.bit_length() - 1}")
            for k in range(self.per_lane):
                check(f.let(f"add i64 {cell}, {k}") if k else cell, who)

    def check_written(self, cell: str, who: str) -> None:
        f = self.f
        wrote = f.load("i64", f.let(f"getelementptr i64, ptr {self.writes}, i64 {cell}"))
        self.complain(f.let(f"icmp ult i64 {wrote}, {self.birth}"), cell, who)

    def complain(self, condition: str, cell: str, who: str) -> None:
        f = self.f
        with f.when(condition, likely=False), self.unless_muted():
            callback = f.load("ptr", "%M", at.ON_RACE)
            mine = f.let(f"or i64 {self.stamp}, {who}")
            f.call(
                "void", callback, ("ptr", "%M"), ("ptr", "%W"), ("ptr", "%site"), ("i64", cell), ("i64", mine),
                ("i32", str(("ld", "st", "atom", "red").index(self.op))),
            )  # fmt: skip

    def check_cell(self, cell: str, who: str) -> None:
        f = self.f
        w = f.let(f"getelementptr i64, ptr {self.writes}, i64 {cell}")
        r = f.let(f"getelementptr i64, ptr {self.reads}, i64 {cell}")
        wrote, read = f.let(f"load i64, ptr {w}"), f.let(f"load i64, ptr {r}")
        clash = clashes(f, wrote, who, self.oldest)
        if self.op == "ld":
            never = f.let(f"icmp ult i64 {wrote}, {self.birth}")
            self.complain(f.let(f"or i1 {clash}, {never}"), cell, who)
            f.raw(f"store i64 {record_read(f, read, who, self.stamp, self.oldest, self.self_seen)}, ptr {r}")
        else:
            read_before = clashes(f, read, who, self.oldest)
            self.complain(f.let(f"or i1 {clash}, {read_before}"), cell, who)
            f.raw(f"store i64 {f.let(f'or i64 {self.stamp}, {who}')}, ptr {w}")

    def same_cell(self, distinct: str) -> None:
        """Lanes of one store that meet in one cell: Python looks whether they agree on the value."""
        f = self.f
        lanes = f.let(f"zext i32 {f.call('i32', '@llvm.ctpop.i32', ('i32', '%mask'))} to i64")
        with f.when(f.let(f"icmp ne i64 {lanes}, {distinct}"), likely=False), self.unless_muted():
            callback = f.load("ptr", "%M", at.ON_ACCESS)
            f.call(
                "i32", callback, ("ptr", "%M"), ("ptr", "%W"), ("ptr", "%site"), ("i64", "%base"), ("ptr", "%delta"),
                ("i32", "%mask"), ("i32", str(at.SAME_CELL)),
            )  # fmt: skip

    @contextmanager
    def unless_muted(self):
        """What a site has reported often enough is only counted."""
        f = self.f
        f.add_to("i64", "1", "%site", at.REPORTS)
        few = f.let(f"icmp ult i64 {f.load('i64', '%site', at.REPORTS)}, {at.ENOUGH}")
        with f.when(few):
            yield

    def watch(self, shape: str) -> None:
        """Global memory: only a buffer that the kernel writes has records."""
        f = self.f
        records = f.load("ptr", "%site", at.GLOBAL_WRITES)
        with f.when(f.let(f"icmp ne ptr {records}, null")):
            op = {"ld": 0, "st": 1}.get(self.op, 2)
            per_lane = max(1, self.total // self.global_cell)
            f.call(
                "void", "@watch", ("ptr", "%M"), ("ptr", "%W"), ("ptr", "%site"), ("i64", "%base"), ("ptr", shape),
                ("i64", str(per_lane)), ("i32", str(op)),
            )  # fmt: skip

    # -- moving the data

    def move(self, shape: str, host: str) -> None:
        f = self.f
        if self.space == "local":
            with f.lanes("%mask") as lane:
                own = f.let(f"mul i64 {lane}, {self.frame}")
                self.move_lane(shape, f.let(f"add i64 {host}, {own}"), lane)
            f.raw("ret void")
            return
        pattern = f.load("i8", shape, at.PATTERN + self.total.bit_length() - 1)
        cases = [(at.SAME, self.move_same), (at.HALF_SAME, self.move_half_same)]
        if self.count == 1:
            cases += [(at.ROW, self.move_row), (at.HALF_ROWS, self.move_half_rows)]
        if self.op == "st":
            cases = [c for c in cases if c[0] in (at.ROW, at.HALF_ROWS)]
        for code, action in cases:
            this, other = f.label("this"), f.label("other")
            f.branch(f.let(f"icmp eq i8 {pattern}, {code}"), this, other)
            f.at(this)
            action(shape, host)
            f.raw("ret void")
            f.at(other)
        if self.count == 1:
            full, part = f.label("full"), f.label("part")
            f.branch(f.let("icmp eq i32 %mask, -1"), full, part)
            f.at(full)
            for lane in range(at.LANES):
                self.move_lane(shape, host, str(lane))
            f.raw("ret void")
            f.at(part)
        with f.lanes("%mask") as lane:
            self.move_lane(shape, host, lane)
        f.raw("ret void")

    @property
    def element(self) -> str:
        return f"i{8 * self.width}"

    def host_pointer(self, host: str, shape: str, lane: int) -> str:
        """The host address of a lane that is known to be active."""
        f = self.f
        delta = f.load("i64", shape, at.DELTA + 8 * lane)
        return f.let(f"inttoptr i64 {f.let(f'add i64 {host}, {delta}')} to ptr")

    def move_same(self, shape: str, host: str) -> None:
        f = self.f
        least = f.load("i64", shape, at.LEAST)
        p = f.let(f"inttoptr i64 {f.let(f'add i64 {host}, {least}')} to ptr")
        for c in range(self.count):
            value = f.load(self.element, p, c * self.width, self.width)
            f.store(vec(self.element), f.splat(self.element, value), "%M", at.STAGE + c * at.STAGE_ROW, 32)

    def move_row(self, shape: str, host: str) -> None:
        self.copy(self.host_pointer(host, shape, 0), 0, at.LANES)

    def move_half_rows(self, shape: str, host: str) -> None:
        half = at.LANES // 2
        for lane in (0, half):
            self.copy(self.host_pointer(host, shape, lane), lane, half)

    def copy(self, p: str, lane: int, lanes: int) -> None:
        f = self.f
        kind = f"<{lanes} x {self.element}>"
        stage = at.STAGE + lane * self.width
        if self.op == "ld":
            f.store(kind, f.load(kind, p, 0, self.width), "%M", stage, self.width)
        else:
            f.store(kind, f.load(kind, "%M", stage, self.width), p, 0, self.width)

    def move_half_same(self, shape: str, host: str) -> None:
        f = self.f
        half = at.LANES // 2
        kind = f"<{half} x {self.element}>"
        for lane in (0, half):
            p = self.host_pointer(host, shape, lane)
            for c in range(self.count):
                value = f.load(self.element, p, c * self.width, self.width)
                one = f.let(f"insertelement {kind} undef, {self.element} {value}, i32 0")
                many = f.let(f"shufflevector {kind} {one}, {kind} undef, <{half} x i32> zeroinitializer")
                f.store(kind, many, "%M", at.STAGE + c * at.STAGE_ROW + lane * self.width, self.width)

    def move_lane(self, shape: str, host: str, lane: str) -> None:
        f = self.f
        slot = f.let(f"getelementptr i64, ptr {shape}, i64 {lane}")
        delta = f.load("i64", slot, at.DELTA)
        self.move_at(f.let(f"add i64 {host}, {delta}"), lane)

    def move_at(self, host: str, lane: str) -> None:
        """Move a lane's values from or to a host address."""
        f = self.f
        p = f.let(f"inttoptr i64 {host} to ptr")
        stage = f.let(f"getelementptr {self.element}, ptr %M, i64 {lane}")
        for c in range(self.count):
            place = at.STAGE + c * at.STAGE_ROW
            if self.op == "ld":
                f.store(self.element, f.load(self.element, p, c * self.width, self.width), stage, place)
            else:
                f.store(self.element, f.load(self.element, stage, place), p, c * self.width, self.width)


def clashes(f: Function, record: str, who: str, oldest: str) -> str:
    """Whether a record is of another thread, from after the last barrier of the whole block (i1)."""
    recent = f.let(f"icmp uge i64 {record}, {oldest}")
    before = f.let(f"and i64 {record}, 65535")
    other = f.let(f"icmp ne i64 {before}, {who}")
    several = f.let(f"icmp uge i64 {who}, {at.MANY}")
    return f.let(f"and i1 {recent}, {f.let(f'or i1 {other}, {several}')}")


def seen_itself(f: Function, warp: str) -> str:
    """The tick of the last barrier among the lanes of a warp itself."""
    place = f.let(f"mul i64 {warp}, {8 * (at.LANES + 1)}")
    return f.load("i64", f.let(f"getelementptr i8, ptr %M, i64 {place}"), at.ORDER)


def record_read(f: Function, read: str, who: str, stamp: str, oldest: str, seen: str) -> str:
    """The record of a cell's readers once `who` has read it too.

    Readers of the same warp from before its own last barrier (`seen`) need no mention any more: whoever comes after
    this reader comes after them.
    """
    recent = f.let(f"icmp uge i64 {read}, {oldest}")
    before = f.let(f"and i64 {read}, 65535")
    other = f.let(f"icmp ne i64 {before}, {who}")
    more = f.let(f"and i1 {recent}, {other}")
    # several readers: of one warp, if the earlier ones were of this warp too
    warp_before = _warp_of(f, before)
    same_warp = f.let(f"icmp eq i64 {warp_before}, {_warp_of(f, who)}")
    past = f.let(f"and i1 {same_warp}, {f.let(f'icmp ult i64 {read}, {seen}')}")
    more = f.let(f"and i1 {more}, {f.let(f'xor i1 {past}, true')}")
    many = f.let(f"or i64 {warp_before}, {at.MANY}")
    crowd = f.let(f"select i1 {same_warp}, i64 {many}, i64 {at.MANY_WARPS}")
    readers = f.let(f"select i1 {more}, i64 {crowd}, i64 {who}")
    return f.let(f"or i64 {stamp}, {readers}")


def _warp_of(f: Function, who: str) -> str:
    """The warp of a thread or of a MANY mark."""
    plain = f.let(f"lshr i64 {who}, 5")
    marked = f.let(f"and i64 {who}, {at.MANY - 1}")
    is_mark = f.let(f"icmp uge i64 {who}, {at.MANY}")
    return f.let(f"select i1 {is_mark}, i64 {marked}, i64 {plain}")


def flush(cell: int) -> Function:
    """`void @flush(M)`: turn the noted reads of shared memory into records; `cell` is the bytes per record."""
    f = Function("void @flush(ptr %M) noinline")
    count = f.load("i64", "%M", at.NOTE_COUNT)
    some, none = f.label("some"), f.label("none")
    f.branch(f.let(f"icmp eq i64 {count}, 0"), none, some)
    f.at(none)
    f.raw("ret void")
    f.at(some)
    notes, reads = f.load("ptr", "%M", at.NOTES), f.load("ptr", "%M", at.READS)
    oldest = f.let(f"shl i64 {f.load('i64', '%M', at.FULL_TICK)}, 32")
    with f.count_to(count) as n:
        note = f.let(f"getelementptr i8, ptr {notes}, i64 {f.let(f'mul i64 {n}, {at.NOTE_SIZE}')}")
        kinds = ("ptr", "i64", "ptr", "i64", "i64", "i64")
        site, base, shape, warp, tick, per_lane = (f.load(kind, note, 8 * k) for k, kind in enumerate(kinds))
        number = f.let(f"shl i64 {f.load('i64', site, at.SITE_ID)}, 16")
        stamp = f.let(f"or i64 {f.let(f'shl i64 {tick}, 32')}, {number}")
        first_thread = f.let(f"shl i64 {warp}, 5")
        seen = f.let(f"shl i64 {seen_itself(f, warp)}, 32")
        many = f.let(f"or i64 {warp}, {at.MANY}")
        distinct = f.let(f"zext i32 {f.load('i32', shape, at.DISTINCT)} to i64")
        with f.count_to(distinct) as i:
            slot = f.let(f"getelementptr i64, ptr {shape}, i64 {i}")
            owner = f.load("i64", slot, at.OWNERS)
            several = f.let(f"icmp eq i64 {owner}, {at.MANY}")
            who = f.let(f"select i1 {several}, i64 {many}, i64 {f.let(f'add i64 {first_thread}, {owner}')}")
            start = f.let(f"add i64 {base}, {f.load('i64', slot, at.OFFSETS)}")
            start = f.let(f"lshr i64 {start}, {cell.bit_length() - 1}")
            with f.count_to(per_lane) as k:
                r = f.let(f"getelementptr i64, ptr {reads}, i64 {f.let(f'add i64 {start}, {k}')}")
                f.raw(f"store i64 {record_read(f, f.let(f'load i64, ptr {r}'), who, stamp, oldest, seen)}, ptr {r}")
    f.store("i64", "0", "%M", at.NOTE_COUNT)
    f.raw("ret void")
    return f


def homes() -> Function:
    """`i32 @homes(M, site, base, delta, mask, bytes, hosts)`: the host address of each active lane's access.

    1 if every one of them is aligned and lies in one of at least two buffers that Python has seen the site use.
    """
    f = Function("i32 @homes(ptr %M, ptr %site, i64 %base, ptr %delta, i32 %mask, i64 %bytes, ptr %hosts) noinline")
    buffers, count = f.load("ptr", "%M", at.BUFFERS), f.load("i64", "%M", at.BUFFER_COUNT)
    touched = f.load("i64", "%site", at.TOUCHED)
    odd_bits, first, several = f.let("sub i64 %bytes, 1"), f.alloca("i64", 8), f.alloca("i32", 4)
    f.store("i64", "-1", first)
    f.store("i32", "0", several)
    with f.lanes("%mask") as lane:
        delta = f.load("i64", f.let(f"getelementptr i64, ptr %delta, i64 {lane}"))
        address = f.let(f"add i64 %base, {delta}")
        home = f.alloca("i64", 8)
        f.store("i64", "-1", home)
        with f.count_to(count) as n:
            buffer = f.let(f"getelementptr i8, ptr {buffers}, i64 {f.let(f'mul i64 {n}, {at.BUFFER_SIZE}')}")
            low, high, host = (f.load("i64", buffer, 8 * field) for field in range(3))
            last = f.let(f"sub i64 {high}, %bytes")
            inside = f.let(
                f"and i1 {f.let(f'icmp sge i64 {address}, {low}')}, {f.let(f'icmp sle i64 {address}, {last}')}"
            )
            known = f.let(f"trunc i64 {f.let(f'lshr i64 {touched}, {n}')} to i1")
            with f.when(f.let(f"and i1 {inside}, {known}")):
                f.store("i64", n, home)
                offset = f.let(f"sub i64 {address}, {low}")
                slot = f.let(f"getelementptr i64, ptr %hosts, i64 {lane}")
                f.store("i64", f.let(f"add i64 {host}, {offset}"), slot)
        mine, before = f.load("i64", home), f.load("i64", first)
        lost = f.let(f"icmp slt i64 {mine}, 0")
        odd = f.let(f"icmp ne i64 {f.let(f'and i64 {address}, {odd_bits}')}, 0")
        with f.when(f.let(f"or i1 {lost}, {odd}")):
            f.raw("ret i32 0")
            f.at(f.label("never"))
        new = f.let(f"icmp slt i64 {before}, 0")
        f.store("i64", f.let(f"select i1 {new}, i64 {mine}, i64 {before}"), first)
        differs = f.let(f"and i1 {f.let(f'xor i1 {new}, true')}, {f.let(f'icmp ne i64 {mine}, {before}')}")
        f.store("i32", f.let(f"or i32 {f.load('i32', several)}, {f.let(f'zext i1 {differs} to i32')}"), several)
    f.raw(f"ret i32 {f.load('i32', several)}")
    return f


def access_routine(
    op: str, space: str, width: int, count: int, cell: int, checks: bool, frame: int, global_cell: int
) -> Function:
    """The routine for `op` ("ld", "st") in `space`.

    `cell` and `global_cell` are the bytes per race record of shared and global memory, `checks` whether to keep
    records, `frame` a thread's bytes of local memory.
    """
    return Routine(op, space, width, count, cell, checks, frame, global_cell).build()


ZERO = f"@zero = internal constant {vec('i64')} {splat_constant('i64', '0')}, align 64\n"
