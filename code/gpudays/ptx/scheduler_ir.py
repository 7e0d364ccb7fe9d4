"""Tracer, room 9: the machine that runs blocks, as LLVM IR — who runs next, and when a barrier opens.

Warps of a block run one after another, each until it ends, waits at a barrier or has used up its allowance. A barrier
at which every living warp waits opens here; everything less common (named barriers, part of the block missing, nobody
able to go on) is asked of Python (launch.py).
"""

from __future__ import annotations

from gpudays.ptx import layout as at
from gpudays.ptx.ir import Function, splat_constant, vec


def move_to() -> Function:
    """`void @move_to(W, mask, block)`: the lanes of `mask` now stand at `block`."""
    f = Function("void @move_to(ptr %W, i32 %mask, i32 %block) noinline")
    kind = vec("i32")
    bools = f.let(f"bitcast i32 %mask to {vec('i1')}")
    old = f.load(kind, "%W", at.PCS, 32)
    new = f.let(f"select {vec('i1')} {bools}, {kind} {f.splat('i32', '%block')}, {kind} {old}")
    f.store(kind, new, "%W", at.PCS, 32)
    f.raw("ret void")
    return f


def reconverge() -> Function:
    """`i32 @reconverge(W)`: pick the lowest block that a runnable lane stands at, and the lanes there; −1 if none."""
    f = Function("i32 @reconverge(ptr %W) noinline")
    live = f.load("i32", "%W", at.LIVE)
    blocked = f.load("i32", "%W", at.BLOCKED)
    runnable = f.let(f"and i32 {live}, {f.let(f'xor i32 {blocked}, -1')}")
    some, none = f.label("some"), f.label("none")
    f.branch(f.let(f"icmp eq i32 {runnable}, 0"), none, some)
    f.at(none)
    f.raw("ret i32 -1")
    f.at(some)
    kind, nowhere = vec("i32"), splat_constant("i32", str(at.NOWHERE))
    places = f.load(kind, "%W", at.PCS, 32)
    bools = f.let(f"bitcast i32 {runnable} to {vec('i1')}")
    here = f.let(f"select {vec('i1')} {bools}, {kind} {places}, {kind} {nowhere}")
    first = f.call("i32", "@llvm.vector.reduce.smin.v32i32", (kind, here))
    at_first = f.let(f"icmp eq {kind} {here}, {f.splat('i32', first)}")
    active = f.let(f"bitcast {vec('i1')} {at_first} to i32")
    others = f.let(f"select {vec('i1')} {at_first}, {kind} {nowhere}, {kind} {here}")
    wait = f.call("i32", "@llvm.vector.reduce.smin.v32i32", (kind, others))
    f.store("i32", active, "%W", at.ACTIVE)
    f.store("i32", wait, "%W", at.NEXT_WAIT)
    f.store("i32", f.let(f"zext i1 {f.let(f'icmp ne i32 {active}, {live}')} to i32"), "%W", at.SPLIT)
    f.raw(f"ret i32 {first}")
    return f


def run_blocks(warp_bytes: int) -> Function:
    """`i32 @run(M, blocks, count)`: run the thread blocks whose linear indices (i64) stand at `blocks`."""
    f = Function("i32 @run(ptr %M, ptr %blocks, i64 %count)")
    n_warps = f.let(f"sext i32 {f.load('i32', '%M', at.N_WARPS)} to i64")
    threads = f.load("i32", "%M", at.N_THREADS)
    warps = f.load("ptr", "%M", at.WARPS)
    waiting = f.alloca("i64", 8)
    done = f.alloca("i64", 8)
    lost = f.alloca("i32", 4)
    with f.count_to("%count") as k:
        place = f.let(f"getelementptr i64, ptr %blocks, i64 {k}")
        _enter_block(f, f.load("i64", place), n_warps, threads, warps, warp_bytes)
        f.store("i64", "0", done)
        turn, end = f.label("turn"), f.label("ended")
        f.goto(turn)
        f.at(turn)
        f.store("i64", "0", waiting)
        f.store("i32", "0", lost)
        with f.count_to(n_warps) as w:
            _run_warp(f, f.let(f"getelementptr i8, ptr {warps}, i64 {f.let(f'mul i64 {w}, {warp_bytes}')}"), waiting,
                      done, lost)  # fmt: skip
        finished = f.load("i64", done)
        rest, simple, hard, opened = f.label("rest"), f.label("simple"), f.label("hard"), f.label("open")
        f.branch(f.let(f"icmp eq i64 {finished}, {n_warps}"), end, rest)
        f.at(rest)
        # the plain case: all warps of the block wait at barrier 0 and no thread has ended
        everyone = f.let(f"icmp eq i64 {f.load('i64', waiting)}, {n_warps}")
        nobody_lost = f.let(f"icmp eq i32 {f.load('i32', lost)}, 0")
        settled = f.let(f"icmp eq i32 {f.load('i32', '%M', at.PENDING)}, 0")
        plain = f.let(f"and i1 {everyone}, {f.let(f'and i1 {nobody_lost}, {settled}')}")
        f.branch(plain, simple, hard, likely=True)
        f.at(simple)
        tick = f.let(f"add i64 {f.load('i64', '%M', at.TICK)}, 1")
        f.store("i64", tick, "%M", at.TICK)
        f.store("i64", tick, "%M", at.FULL_TICK)
        f.store("i64", "0", "%M", at.NOTE_COUNT)
        f.store("i64", f.load("i64", "%M", at.BARRIERS), "%M", at.BARRIERS + 8)
        f.store("i64", "0", "%M", at.BARRIERS)
        with f.count_to(n_warps) as w:
            warp = f.let(f"getelementptr i8, ptr {warps}, i64 {f.let(f'mul i64 {w}, {warp_bytes}')}")
            f.store("i32", "0", warp, at.STATUS)
            f.store("i32", "0", warp, at.BLOCKED)
        f.goto(turn)
        f.at(hard)
        callback = f.load("ptr", "%M", at.ON_BARRIER)
        stop = f.call("i32", callback, ("ptr", "%M"))
        f.branch(f.let(f"icmp eq i32 {stop}, 0"), opened, end)
        f.at(opened)
        f.goto(turn)
        f.at(end)
        pending = f.load("i32", "%M", at.PENDING)
        with f.when(f.let(f"icmp ne i32 {pending}, 0"), likely=False):
            f.call("i32", f.load("ptr", "%M", at.ON_BARRIER), ("ptr", "%M"))
        _stop_if_asked(f)
    f.raw("ret i32 0")
    return f


def _stop_if_asked(f: Function) -> None:
    stop = f.load("i32", "%M", at.STOP)
    with f.when(f.let(f"icmp ne i32 {stop}, 0"), likely=False):
        out, on = f.label("out"), f.label("on")
        f.branch("true", out, on)
        f.at(out)
        f.raw("ret i32 1")
        f.at(on)


def _enter_block(f: Function, block: str, n_warps: str, threads: str, warps: str, warp_bytes: int) -> None:
    """Indices, shared memory and warps as a new block finds them."""
    f.store("i64", block, "%M", at.BLOCK_ID)
    rest = block
    for axis in range(2):
        size = f.let(f"zext i32 {f.load('i32', '%M', at.NCTAID + 4 * axis)} to i64")
        index = f.let(f"urem i64 {rest}, {size}")
        rest = f.let(f"udiv i64 {rest}, {size}")
        f.store("i32", f.let(f"trunc i64 {index} to i32"), "%M", at.CTAID + 4 * axis)
    f.store("i32", f.let(f"trunc i64 {rest} to i32"), "%M", at.CTAID + 8)
    tick = f.let(f"add i64 {f.load('i64', '%M', at.TICK)}, 1")
    for field in (at.TICK, at.FULL_TICK, at.BLOCK_TICK):
        f.store("i64", tick, "%M", field)
    f.store("i64", "0", "%M", at.NOTE_COUNT)
    started = f.load("i64", "%M", at.BLOCKS_STARTED)
    log = f.load("ptr", "%M", at.BLOCK_TICKS)
    f.store("i64", tick, f.let(f"getelementptr i64, ptr {log}, i64 {started}"))
    f.store("i64", f.let(f"add i64 {started}, 1"), "%M", at.BLOCKS_STARTED)
    shared = f.let(f"inttoptr i64 {f.load('i64', '%M', at.SHARED)} to ptr")
    size = f.load("i64", "%M", at.SHARED_SIZE)
    f.call("void", "@llvm.memset.p0.i64", ("ptr", shared), ("i8", "-1"), ("i64", size), ("i1", "false"))
    with f.count_to(n_warps) as w:
        warp = f.let(f"getelementptr i8, ptr {warps}, i64 {f.let(f'mul i64 {w}, {warp_bytes}')}")
        first = f.let(f"shl i32 {f.let(f'trunc i64 {w} to i32')}, 5")
        left = f.let(f"sub i32 {threads}, {first}")
        all_ = f.let(f"icmp sge i32 {left}, {at.LANES}")
        bits = f.let(f"shl i32 1, {left}")
        some = f.let(f"sub i32 {bits}, 1")
        lanes = f.let(f"select i1 {all_}, i32 -1, i32 {some}")
        f.store("i32", lanes, warp, at.LIVE)
        f.store("i32", lanes, warp, at.FULL)
        for field in (at.BLOCKED, at.PC, at.SPLIT, at.STATUS):
            f.store("i32", "0", warp, field)
        f.store("i64", f.load("i64", "%M", at.ALLOWANCE), warp, at.WARP_BUDGET)


def _run_warp(f: Function, warp: str, waiting: str, done: str, lost: str) -> None:
    """Let one warp go on, if it can, and note how it stopped."""
    status = f.load("i32", warp, at.STATUS)
    can = f.let(f"icmp eq i32 {status}, 0")
    with f.when(can, likely=True):
        result = f.call("i32", "@warp", ("ptr", "%M"), ("ptr", warp))
        at_barrier = f.let(f"icmp eq i32 {result}, {at.AT_BARRIER}")
        ended = f.let(f"icmp eq i32 {result}, {at.DONE}")
        with f.when(at_barrier):
            f.store("i32", str(at.AT_BARRIER), warp, at.STATUS)
        with f.when(ended):
            f.store("i32", str(at.GONE), warp, at.STATUS)
            f.add_to("i64", "1", done, 0)
        with f.when(f.let(f"icmp ugt i32 {result}, {at.AT_BARRIER}"), likely=False):
            callback = f.load("ptr", "%M", at.ON_PAUSE)
            f.call("void", callback, ("ptr", "%M"), ("ptr", warp), ("i32", result))
    after = f.load("i32", warp, at.STATUS)
    plain = f.let(f"icmp eq i32 {f.load('i32', warp, at.BARRIER_ID)}, 0")
    whole = f.let(f"icmp eq i32 {f.load('i32', warp, at.BARRIER_COUNT)}, 0")
    here = f.let(f"icmp eq i32 {after}, {at.AT_BARRIER}")
    common = f.let(f"and i1 {here}, {f.let(f'and i1 {plain}, {whole}')}")
    with f.when(common):
        f.add_to("i64", "1", waiting, 0)
    live, first = f.load("i32", warp, at.LIVE), f.load("i32", warp, at.FULL)
    with f.when(f.let(f"icmp ne i32 {live}, {first}")):
        f.store("i32", "1", lost)


def permute() -> Function:
    """`void @permute(M)`: row 1 of the staging area = row 0 read at the lanes that the second area's row 0 names."""
    f = Function("void @permute(ptr %M) noinline")
    for lane in range(at.LANES):
        index = f.let(f"zext i32 {f.load('i32', '%M', at.STAGE_2 + 4 * lane)} to i64")
        value = f.load("i32", f.let(f"getelementptr i32, ptr %M, i64 {index}"), at.STAGE)
        f.store("i32", value, "%M", at.STAGE + at.STAGE_ROW + 4 * lane)
    f.raw("ret void")
    return f


def warp_sync() -> Function:
    """`void @warp_sync(M, W)`: from now on the warp has seen everything that its own lanes did so far."""
    f = Function("void @warp_sync(ptr %M, ptr %W) noinline")
    tick = f.let(f"add i64 {f.load('i64', '%M', at.TICK)}, 1")
    f.store("i64", tick, "%M", at.TICK)
    warp = f.let(f"zext i32 {f.load('i32', '%W', at.WARP_ID)} to i64")
    place = f.let(f"mul i64 {warp}, {8 * (at.LANES + 1)}")
    f.store("i64", tick, f.let(f"getelementptr i8, ptr %M, i64 {place}"), at.ORDER)
    f.raw("ret void")
    return f
