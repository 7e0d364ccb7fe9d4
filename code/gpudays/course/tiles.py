"""Tiles room: the tile sizes that Day 44's source declares, the launch they need, and what they cost on paper.

The numbers are read from the source that is run, so that changing them there changes the launch too. They are
the first ``#define REGISTER_TILES …`` (step 4), ``#define VECTOR_TILES …`` (step 5), ``#define WARP_TILES …`` (step 6),
or for step 6 a row of its launch table, the function ``warpTiles``: ``if (arch >= 90) return {…};``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpudays.course.geometry import FLOAT_BYTES, WARP_SIZE
from gpudays.course.models import ceil_div

MACROS = {
    "matmulRegisterTile": "REGISTER_TILES",
    "matmulVectorLoads": "VECTOR_TILES",
    "matmulWarpTiled": "WARP_TILES",
    "matmulWarpTiledSmall": "SMALL_WARP_TILES",
}
TABLES = {"WARP_TILES": "warpTiles", "SMALL_WARP_TILES": "smallWarpTiles"}  # functions that hold a launch table
_ROW = re.compile(r"if \(arch >= (\d+)\) return \{([\d, ]+)\};")
_LAST = re.compile(r"^\s*return \{([\d, ]+)\};", re.MULTILINE)


class TilesNotDeclared(ValueError):
    """A source that does not say its tile sizes; the message names the line that is wanted."""


@dataclass(frozen=True)
class Tiles:
    """How C is cut up.

    Attributes:
        bm, bn: rows and columns of C that a block computes.
        bk: how much of the inner dimension is staged at a time.
        tm, tn: rows and columns of C that a thread computes, its patch.
        wm, wn: of a warp; 0 where the kernel does not arrange its warps, but lets lanes run along the columns.
        stages: shared tiles in flight.
        blocks: blocks that the compiler is asked to make fit on one multiprocessor; 0: not asked.
    """

    bm: int
    bn: int
    bk: int
    tm: int
    tn: int
    wm: int = 0
    wn: int = 0
    stages: int = 1
    blocks: int = 0

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return (self.bm // self.tm) * (self.bn // self.tn)

    @property
    def outputs(self) -> int:
        """Elements of C that a thread computes."""
        return self.tm * self.tn

    @property
    def patch(self) -> str:
        """ "8×8", the patch as rows × columns."""
        return f"{self.tm}×{self.tn}"

    @property
    def lanes(self) -> tuple[int, int]:
        """Rows and columns of patches that the 32 lanes of a warp make up."""
        if self.wm:
            return self.wm // self.tm, self.wn // self.tn
        columns = min(self.bn // self.tn, WARP_SIZE)
        return WARP_SIZE // columns, columns

    def grid(self, size: tuple[int, int, int]) -> tuple[int, int]:
        """gridDim (x, y) for (m, n, k): x over the columns of C."""
        return ceil_div(size[1], self.bn), ceil_div(size[0], self.bm)

    def loads_per_thread(self, k: int) -> int:
        """Floats that a thread reads from global memory for a whole block: its share of both tiles, per tile step."""
        return (self.bm + self.bn) * self.bk // self.threads * ceil_div(k, self.bk)

    def loads_per_output(self, k: int) -> float:
        """Floats read from global memory for each element of C: 2k without tiles, k/64 for tiles of 128 × 128."""
        return (self.bm + self.bn) * self.bk * ceil_div(k, self.bk) / (self.bm * self.bn)

    @property
    def flops_per_byte(self) -> float:
        """Arithmetic intensity towards global memory: operations per byte that a block loads."""
        return 2 * self.bm * self.bn / (FLOAT_BYTES * (self.bm + self.bn))

    @property
    def fma_per_read(self) -> float:
        """Multiply-adds of a thread for each float that it reads from shared memory: tm·tn / (tm + tn)."""
        return self.outputs / (self.tm + self.tn)

    @property
    def registers(self) -> int:
        """Registers that the patch and its operands alone need; addresses and loop counters come on top."""
        return self.outputs + self.tm + self.tn

    def written(self, kernel: str) -> str:
        """The numbers in the order in which a kernel's macro takes them."""
        plain = (self.bm, self.bn, self.bk, self.tm, self.tn)
        whole = (self.bm, self.bn, self.bk, self.wm, self.wn, self.tm, self.tn, self.stages, self.blocks)
        return ", ".join(map(str, whole if MACROS[kernel] in TABLES else plain))


def with_tiles(source: str, kernel: str, tiles: Tiles) -> str:
    """The source with other tile sizes for one kernel: a ``#define`` in front, which the source's own gives way to."""
    return f"#define {MACROS[kernel]} {tiles.written(kernel)}\n{source}"


def declared(source: str, kernel: str, arch: str) -> Tiles:
    """The tile sizes of a kernel on an architecture, as the source has them.

    Args:
        source: Day 44's CUDA C++.
        kernel: one of its kernels.
        arch: "sm_75", …; only step 6 asks for it.

    Raises:
        TilesNotDeclared: the source does not say.
        KeyError: a kernel whose tiles are not declared.
    """
    macro = MACROS[kernel]
    if found := re.search(rf"^#define {macro}[ \t]+([\d, ]+)", source, re.MULTILINE):
        return _read(found[1], macro)
    if macro not in TABLES:
        raise TilesNotDeclared(f"{kernel}: the source has no line `#define {macro} 128, 128, 8, 8, 8`")
    table = re.search(rf"WarpTiles {TABLES[macro]}\(int arch\) \{{\n(.*?)^\}}", source, re.MULTILINE | re.DOTALL)
    number = int(re.sub(r"\D", "", arch))
    for row in _ROW.finditer(table[1]) if table else ():
        if number >= int(row[1]):
            return _read(row[2], macro)
    if table and (last := _LAST.search(table[1])):
        return _read(last[1], macro)
    raise TilesNotDeclared(f"{kernel}: the source has neither `#define {macro} …` nor a launch table for {arch}")


def _read(text: str, macro: str) -> Tiles:
    numbers = [int(n) for n in text.split(",") if n.strip()]
    names = ("bm", "bn", "bk", "wm", "wn", "tm", "tn", "stages", "blocks")
    names = names if macro in TABLES else ("bm", "bn", "bk", "tm", "tn")
    if len(numbers) != len(names):
        raise TilesNotDeclared(f"{macro} has {len(numbers)} numbers, and takes {len(names)}: {', '.join(names)}")
    return Tiles(**dict(zip(names, numbers, strict=True)))
