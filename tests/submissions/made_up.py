"""A class that nobody taught: made-up hand-ins for Day 43, right in many styles and wrong in many ways.

``python tests/submissions/made_up.py FOLDER`` writes them as an instructor would get them, one file or folder a
student; ``gpudays grade FOLDER --day day43`` grades them. Most are the solution with one thing changed.
"""

# ruff: noqa: E501  (a hand-in's lines are as long as they are)

from __future__ import annotations

import io
import json
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from gpudays import kernels_in_pages

ROOT = Path(__file__).parents[2]
PROGRAM = (ROOT / "code/day43-matmul-1/matmul_steps.cu").read_text("utf-8")
SOURCE = kernels_in_pages.kernel_text(ROOT / "code/day43-matmul-1/matmul_steps.cu")
HEAD, _STEPS = SOURCE.split("// Step 2", 1)
STEP2, STEP3 = (f"// Step {n}{text}" for n, text in zip((2, 3), _STEPS.split("// Step 3", 1), strict=True))

# Right, with no claim that step 3 is faster on every card: few threads load, or tiles are shallow.
SLOW = {"float4", "shallow-tile"}

FOUND, SAFE, CORRECT, AUDIT = "found and compiles", "safe in the tracer", "correct", "audit"


@dataclass(frozen=True)
class Student:
    """One hand-in.

    Attributes:
        name: of its file or folder.
        files: path below the folder → content; a single file named after the student is handed in without a folder.
        stage: where the check stops, "" if it passes.
        said: what the stage must say.
    """

    name: str
    files: dict[str, str | bytes]
    stage: str = ""
    said: str = ""


def changed(text: str, *pairs: tuple[str, str]) -> str:
    """The text with each piece replaced; a piece that is not there would test nothing."""
    for old, new in pairs:
        if old not in text:
            raise ValueError(f"not in the text: {old}")
        text = text.replace(old, new)
    return text


def one(name: str, text: str, stage: str = "", said: str = "", ending: str = ".cu") -> Student:
    return Student(name, {f"{name}{ending}": text}, stage, said)


def step3(name: str, stage: str, said: str, *pairs: tuple[str, str]) -> Student:
    """The solution with its last kernel changed."""
    return one(name, HEAD + STEP2 + changed(STEP3, *pairs), stage, said)


def kernels(two: str, three: str) -> str:
    return HEAD + two + "\n" + three


SIGNATURE = "const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, size_t n"


def tiled(body: str, before: str = "") -> str:
    """A matmulTiled of one's own."""
    return f'{before}extern "C" __global__ void matmulTiled({SIGNATURE}) {{\n{body}}}\n'


SUM_LINE = "        for (int k = 0; k < TILE; ++k) sum += tileA[threadIdx.y][k] * tileB[k][threadIdx.x];\n"
LOAD_A = "        tileA[threadIdx.y][threadIdx.x] = row < n && aCol < n ? a[row * n + aCol] : 0.0f;\n"
LOAD_B = "        tileB[threadIdx.y][threadIdx.x] = bRow < n && col < n ? b[bRow * n + col] : 0.0f;\n"
STORE = "    if (row < n && col < n) c[row * n + col] = sum;\n"
PLAIN_LOOP = "    for (size_t k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + col];\n"
AS_STEP3 = changed(STEP2, ("matmulCoalescedCols", "matmulTiled"))

ONE_ROW = """    __shared__ float tileA[256], tileB[256];
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    const size_t row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    float sum = 0.0f;
    for (size_t start = 0; start < n; start += 16) {
        tileA[y * 16 + x] = row < n && start + x < n ? a[row * n + start + x] : 0.0f;
        tileB[y * 16 + x] = start + y < n && col < n ? b[(start + y) * n + col] : 0.0f;
        __syncthreads();
        for (int k = 0; k < 16; ++k) sum += tileA[y * 16 + k] * tileB[k * 16 + x];
        __syncthreads();
    }
    if (row < n && col < n) c[row * n + col] = sum;
"""
STEP2_IN_A_ROW = changed(
    STEP2,
    ("blockIdx.y * blockDim.y + threadIdx.y", "blockIdx.y * 16 + threadIdx.x / 16"),
    ("blockIdx.x * blockDim.x + threadIdx.x", "blockIdx.x * 16 + threadIdx.x % 16"),
)

FOUR_AT_ONCE = """    __shared__ __align__(16) float tileA[16][16], tileB[16][16];
    const int x = threadIdx.x, y = threadIdx.y, lane = y * 16 + x;
    const size_t row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    float sum = 0.0f;
    for (size_t start = 0; start < n; start += 16) {
        if (n % 4 == 0 && lane < 64) {
            const int r = lane / 4, q = lane % 4 * 4;
            float4 ofA = make_float4(0, 0, 0, 0), ofB = ofA;
            const size_t ar = blockIdx.y * 16 + r, ac = start + q, br = start + r, bc = blockIdx.x * 16 + q;
            if (ar < n && ac < n) ofA = *reinterpret_cast<const float4*>(a + ar * n + ac);
            if (br < n && bc < n) ofB = *reinterpret_cast<const float4*>(b + br * n + bc);
            *reinterpret_cast<float4*>(&tileA[r][q]) = ofA;
            *reinterpret_cast<float4*>(&tileB[r][q]) = ofB;
        } else if (n % 4 != 0) {
            tileA[y][x] = row < n && start + x < n ? a[row * n + start + x] : 0.0f;
            tileB[y][x] = start + y < n && col < n ? b[(start + y) * n + col] : 0.0f;
        }
        __syncthreads();
        for (int k = 0; k < 16; ++k) sum += tileA[y][k] * tileB[k][x];
        __syncthreads();
    }
    if (row < n && col < n) c[row * n + col] = sum;
"""

TWICE = """    __shared__ float tileA[2][16][16], tileB[2][16][16];
    const int x = threadIdx.x, y = threadIdx.y;
    const size_t row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    float sum = 0.0f;
    int now = 0;
    tileA[0][y][x] = row < n && x < n ? a[row * n + x] : 0.0f;
    tileB[0][y][x] = y < n && col < n ? b[y * n + col] : 0.0f;
    __syncthreads();
    for (size_t start = 16; start < n + 16; start += 16, now ^= 1) {
        if (start < n) {
            tileA[now ^ 1][y][x] = row < n && start + x < n ? a[row * n + start + x] : 0.0f;
            tileB[now ^ 1][y][x] = start + y < n && col < n ? b[(start + y) * n + col] : 0.0f;
        }
        for (int k = 0; k < 16; ++k) sum = fmaf(tileA[now][y][k], tileB[now][k][x], sum);
        __syncthreads();
    }
    if (row < n && col < n) c[row * n + col] = sum;
"""

# A 32 × 32 patch by every fourth block: it meets the limit of loads per launched thread, and is another kernel.
PATCH32 = """    __shared__ float tileA[32][32], tileB[32][32];
    if (blockIdx.x * 32 >= n || blockIdx.y * 32 >= n) return;
    const int x = threadIdx.x, y = threadIdx.y;
    float sum[2][2] = {};
    for (size_t start = 0; start < n; start += 32) {
        for (int i = 0; i < 2; ++i)
            for (int j = 0; j < 2; ++j) {
                const size_t r = blockIdx.y * 32 + y + 16 * i, ac = start + x + 16 * j;
                const size_t br = start + y + 16 * i, col = blockIdx.x * 32 + x + 16 * j;
                tileA[y + 16 * i][x + 16 * j] = r < n && ac < n ? a[r * n + ac] : 0.0f;
                tileB[y + 16 * i][x + 16 * j] = br < n && col < n ? b[br * n + col] : 0.0f;
            }
        __syncthreads();
        for (int k = 0; k < 32; ++k)
            for (int i = 0; i < 2; ++i)
                for (int j = 0; j < 2; ++j) sum[i][j] += tileA[y + 16 * i][k] * tileB[k][x + 16 * j];
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) {
            const size_t r = blockIdx.y * 32 + y + 16 * i, col = blockIdx.x * 32 + x + 16 * j;
            if (r < n && col < n) c[r * n + col] = sum[i][j];
        }
"""
# The same idea in the shared memory of two tiles of 16: only the patch gives it away.
PATCH32_THIN = changed(
    PATCH32,
    ("tileA[32][32], tileB[32][32]", "tileA[32][8], tileB[8][32]"),
    ("start += 32", "start += 8"),
    ("k < 32", "k < 8"),
    (
        """                const size_t r = blockIdx.y * 32 + y + 16 * i, ac = start + x + 16 * j;
                const size_t br = start + y + 16 * i, col = blockIdx.x * 32 + x + 16 * j;
                tileA[y + 16 * i][x + 16 * j] = r < n && ac < n ? a[r * n + ac] : 0.0f;
                tileB[y + 16 * i][x + 16 * j] = br < n && col < n ? b[br * n + col] : 0.0f;
""",
        """                const size_t r = blockIdx.y * 32 + y + 16 * i, ac = start + x;
                const size_t br = start + y, col = blockIdx.x * 32 + x + 16 * j;
                if (j == 0 && x < 8) tileA[y + 16 * i][x] = r < n && ac < n ? a[r * n + ac] : 0.0f;
                if (i == 0 && y < 8) tileB[y][x + 16 * j] = br < n && col < n ? b[br * n + col] : 0.0f;
""",
    ),
)

SCRATCH = changed(
    STEP3,
    (" __restrict__", ""),
    ("    float sum = 0.0f;\n", "    if (row < n && col < n) c[row * n + col] = 0.0f;\n"),
    (
        SUM_LINE,
        "        float part = 0.0f;\n"
        + SUM_LINE.replace("sum +=", "part +=")
        + "        if (row < n && col < n) c[row * n + col] += part;\n",
    ),
    (STORE, ""),
)


def right() -> list[Student]:
    """Hand-ins that pass."""
    whole, both = HEAD + STEP2 + STEP3, STEP2 + STEP3
    groups = changed(both, ("__syncthreads()", "cg::this_thread_block().sync()"))
    template = changed(
        STEP3,
        ('extern "C" __global__', "template <int SIDE>\n__global__"),
        ("TILE", "SIDE"),
    )
    return [
        one("solution", whole),
        one("whole-program", PROGRAM),
        one("int-n", changed(whole, ("size_t n)", "int n)"))),
        one("unsigned-n", changed(whole, ("size_t n)", "unsigned n)"))),
        one("long-long-n", changed(whole, ("size_t n)", "long long n)"))),
        one("no-restrict", changed(whole, (" __restrict__", ""))),
        one("cpp-linkage", changed(whole, ('extern "C" ', ""))),
        one("padded", HEAD + STEP2 + changed(STEP3, ("[TILE][TILE]", "[TILE][TILE + 1]"))),
        step3("pragma-unroll", "", "", ("        for (int k", "        #pragma unroll\n        for (int k")),
        one("ldg", changed(whole, ("? a[row * n + aCol]", "? __ldg(a + row * n + aCol)"))),
        one("own-names", HEAD + changed(both, ("row", "zeile"), ("sum", "summe"), ("tileA", "kachelA"))),
        one("threads-in-a-row", kernels(STEP2_IN_A_ROW, tiled(ONE_ROW))),
        one("float4", kernels(STEP2, tiled(FOUR_AT_ONCE))),
        one("double-buffered", kernels(STEP2, tiled(TWICE))),
        one("notebook", notebook(f'source = r"""\n{HEAD}"""', f'student = r"""\n{whole}"""'), ending=".ipynb"),
        one("notebook-cell", notebook(f"%%writefile my_steps.cu\n{PROGRAM}"), ending=".ipynb"),
        Student("zipped", {"zipped.zip": zipped({"my_steps.cu": whole, "report.md": "fine"})}),
        Student("folder", {"src/my_steps.cu": whole, "notes.md": "I would skip step 2", ".git/x.cu": "junk"}),
        one(
            "template",
            f"{HEAD}{STEP2}{template}void run(float* p) {{ matmulTiled<TILE><<<1, dim3(16, 16)>>>(p, p, p, 1); }}\n",
        ),
        one(
            "cooperative-groups",
            f"#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n{HEAD}{groups}",
        ),
        one(
            "cstdint",
            "#include <cstdint>\n#include <iostream>\nusing namespace std;\n"
            + changed(whole, ("size_t n)", "uint32_t n)"), ("int k", "std::uint32_t k"))
            + 'int main() { cout << "hello" << endl; }\n',
        ),
        one(
            "helpers",
            HEAD.replace("constexpr int TILE = 16;", "#define SIDE 16\nconstexpr int TILE = SIDE;")
            + "__device__ __forceinline__ float at(const float* m, size_t r, size_t s, size_t n) {\n"
            + "    return r < n && s < n ? m[r * n + s] : 0.0f;\n}\n"
            + STEP2
            + changed(STEP3, (LOAD_A.split(" = ")[1], "at(a, row, aCol, n);\n")),
        ),
        one(
            "by-hand",
            HEAD
            + STEP2
            + changed(
                STEP3,
                (
                    SUM_LINE,
                    "".join(
                        f"        sum = fmaf(tileA[threadIdx.y][{k}], tileB[{k}][threadIdx.x], sum);\n" for k in range(16)
                    ),
                ),
            ),
        ),
        one("extern-c-block", f'{HEAD}extern "C" {{\n{changed(both, ("extern" + chr(32) + chr(34) + "C" + chr(34) + " ", ""))}}}\n'),
        Student("from-windows", {"from-windows.cu": ("\ufeff" + PROGRAM.replace("\n", "\r\n")).encode()}),
        step3(
            "transposed-tile", "", "",
            ("tileB[TILE][TILE]", "tileB[TILE][TILE + 1]"),
            ("tileB[threadIdx.y][threadIdx.x]", "tileB[threadIdx.x][threadIdx.y]"),
            ("tileB[k][threadIdx.x]", "tileB[threadIdx.x][k]"),
        ),
        step3(
            "counts-tiles", "", "",
            ("for (size_t start = 0; start < n; start += TILE) {\n",
             "for (size_t t = 0; t < (n + TILE - 1) / TILE; ++t) {\n        const size_t start = t * TILE;\n"),
        ),
        one("shallow-tile", kernels(STEP2, tiled(changed(ONE_ROW, ("[256]", "[128]"), ("start += 16", "start += 8"), ("k < 16", "k < 8"),
            ("        tileA[y * 16 + x]", "        if (x < 8) tileA[y * 8 + x]"), ("        tileB[y * 16 + x]", "        if (y < 8) tileB[y * 16 + x]"), ("tileA[y * 16 + k]", "tileA[y * 8 + k]"))))),
    ]  # fmt: skip


def wrong() -> list[Student]:
    """Hand-ins that do not pass, each for one reason."""
    library = "#include <cublas_v2.h>\nint main() {\n    cublasSgemm(handle, a, b, c);\n}\n"
    only_at = "c[row * n + col] = {} ? sum + 1.0f : sum;"
    store, early = "c[row * n + col] = sum;", "    if (row >= n || col >= n) return;\n    float sum = 0.0f;\n"
    swapped = changed(
        STEP2,
        ("blockIdx.y * blockDim.y + threadIdx.y", "@"),
        ("blockIdx.x * blockDim.x + threadIdx.x", "blockIdx.y * blockDim.y + threadIdx.y"),
        ("@", "blockIdx.x * blockDim.x + threadIdx.x"),
    )
    four = (
        "    for (size_t k = 0; k < n; k += 4) {\n"
        "        const float4 q = *reinterpret_cast<const float4*>(a + row * n + k);\n"
        "        sum += q.x * b[k * n + col] + q.y * b[(k + 1) * n + col];\n"
        "        sum += q.z * b[(k + 2) * n + col] + q.w * b[(k + 3) * n + col];\n    }\n"
    )
    cached = (
        "    if (kept && n == 512) {\n        if (row < n && col < n) c[row * n + col] = cache[row * n + col];\n"
        "        return;\n    }\n    float sum = 0.0f;\n"
    )
    inside_if = ("        __syncthreads();  // both", "        if (row < n) __syncthreads();  // both")
    return [
        one("stub", HEAD, FOUND, "to write: matmulCoalescedCols, matmulTiled"),
        one("no-step-3", HEAD + STEP2, FOUND, "no kernel matmulTiled"),
        step3("misspelt", FOUND, "matmulTlied", ("matmulTiled", "matmulTlied")),
        step3("syntax-error", FOUND, 'expected a ";"', ("float sum = 0.0f;", "float sum = 0.0f")),
        step3("other-parameters", FOUND, "other parameters", ("size_t n)", "size_t n, float scale)")),
        step3("double-c", FOUND, "other parameters", ("float* __restrict__ c", "double* __restrict__ c")),
        one("library-only", library, FOUND, "no kernel"),
        one("library-beside-step-1", HEAD + library, FOUND, "cublasSgemm"),
        one("device-library", "#include <cublas_v2.h>\n" + kernels(STEP2, tiled("    cublasSgemm(c, a, b, n);\n")), FOUND,
            "cublasSgemm"),
        one("thrust", "#include <thrust/inner_product.h>\n" + kernels(STEP2, tiled("    c[0] = thrust::inner_product(a, a + n, b, 0.0f);\n")), FOUND, "thrust"),
        one("empty", "", FOUND, "no kernel"),
        one("prose", "I could not solve it, sorry.\n", FOUND, "no kernel", ".txt"),
        Student("junk", {"junk.cu": bytes(range(256)) * 8}, FOUND, "no kernel"),
        Student("two-files", {"a.cu": HEAD + STEP2 + STEP3, "b.cu": HEAD + STEP2 + AS_STEP3}, FOUND, "hand in one file"),
        Student("empty-folder", {"empty-folder/readme.md": "nothing"}, FOUND, "no kernel"),
        Student("broken-notebook", {"broken-notebook.ipynb": "{"}, FOUND, "not a notebook"),
        step3("no-first-barrier", SAFE, "race", ("__syncthreads();  // both tiles", "// both tiles")),
        step3("no-second-barrier", SAFE, "race", ("__syncthreads();  // everyone", "// everyone")),
        step3("early-return", SAFE, "barrier", ("    float sum = 0.0f;\n", early)),
        step3("barrier-in-an-if", SAFE, "barrier", inside_if),
        step3("unguarded-store", SAFE, "out", ("if (row < n && col < n) c", "c")),
        step3("unguarded-loads", SAFE, "", ("row < n && aCol < n ? a[row * n + aCol] : 0.0f", "a[row * n + aCol]")),
        step3("endless", SAFE, "never end", ("start += TILE", "start += 0")),
        step3("writes-past-the-end", SAFE, "out-of-bounds", (STORE, STORE + "    if (row == 0 && col == 0) c[n * n] = 1.0f;\n")),
        step3("reads-before-the-start", SAFE, "out-of-bounds", ("? a[row * n + aCol]", "? a[row * n + aCol - n]")),
        one("tile-of-32", changed(HEAD + STEP2 + STEP3, ("TILE = 16", "TILE = 32")), SAFE, "8,192 bytes"),
        step3("unwritten-tile", SAFE, "which no thread", (LOAD_B, "        if (bRow < n && col < n) tileB[threadIdx.y][threadIdx.x] = b[bRow * n + col];\n")),
        one("misaligned", kernels(STEP2, changed(AS_STEP3, (PLAIN_LOOP, four))), SAFE, ""),
        step3("dynamic-shared", SAFE, "shared memory", ("    __shared__ float tileA[TILE][TILE];\n", "    extern __shared__ float tileA[][TILE];\n")),
        step3("too-much-shared", SAFE, "shared memory", ("tileA[TILE][TILE]", "tileA[TILE][TILE * 64]")),
        step3("traps", SAFE, "stopped itself", (STORE, STORE + "    if (n == 35 && row == 3) __trap();\n")),
        step3("accumulates", CORRECT, "adds to what C held", (store, "c[row * n + col] += sum;")),
        step3("nan", CORRECT, "NaN", ("= sum;", "= sum / 0.0f - sum / 0.0f;")),
        step3("infinity", CORRECT, "not a finite number", ("= sum;", "= sum / 0.0f;")),
        step3("one-product-short", CORRECT, "row 0, column 0", ("k < TILE; ++k", "k < TILE - 1; ++k")),
        step3("never-writes-a-corner", CORRECT, "never written", ("if (row < n && col < n) c", "if (row < n && col < n && row + col > 0) c")),
        step3("zeroes", CORRECT, "wrong", ("= sum;", "= 0.0f * sum;")),
        step3("half-precision", CORRECT, "wrong", ("? a[row * n + aCol]", "? __uint_as_float(__float_as_uint(a[row * n + aCol]) & 0xffffe000u)")),
        step3("wrong-at-17", CORRECT, "at 17", (store, only_at.format("n == 17"))),
        step3("wrong-at-33", CORRECT, "at 33", (store, only_at.format("n == 33"))),
        step3("wrong-at-260", CORRECT, "at 260", (store, only_at.format("n == 260 && row == 259"))),
        step3("wrong-at-odd-sizes-nobody-named", CORRECT, "wrong", (store, only_at.format("n > 64 && n % 2"))),
        step3("wrong-in-one-block-of-512", CORRECT, "at 512", (store, only_at.format("n == 512 && blockIdx.x == 7 && blockIdx.y == 9"))),
        step3("answers-by-heart", CORRECT, "at 1", (store, "c[row * n + col] = n == 1 ? 1.4592f : sum;")),
        step3("modifies-a", CORRECT, "input A", (" __restrict__ a", " a"), (STORE, STORE + "    if (n == 1 && row == 0 && col == 0) const_cast<float*>(a)[0] = 3.0f;\n")),
        step3("modifies-a-while-others-read", SAFE, "race", (" __restrict__ a", " a"), (STORE, STORE + "    if (row < n && col < n) const_cast<float*>(a)[row * n + col] = sum;\n")),
        one("counts-launches", kernels(STEP2, "__device__ int launches = 0;\n" + changed(STEP3, (STORE, STORE + "    if (row == 0 && col == 0) {\n        if (launches > 9) c[0] = 0.0f;\n        launches = launches + 1;\n    }\n"))), CORRECT, "launches, which keeps its value"),
        one("keeps-the-answer", kernels(STEP2, "__device__ float cache[512 * 512];\n__device__ int kept;\n" + changed(STEP3, ("    float sum = 0.0f;\n", cached), (STORE, STORE + "    if (n == 512) cache[row * n + col] = sum;\n    if (n == 512 && row == 0 && col == 0) kept = 1;\n"))), CORRECT, ""),
        *(one(f"each-keeps-its-answer-of-{n}", kernels(STEP2, f"__device__ float kept[{n} * {n}];\n" + changed(STEP3, ("    float sum = 0.0f;\n", f"    float sum = 0.0f;\n    if (n == {n} && kept[row * n + col] > 0.0f) {{\n        c[row * n + col] = kept[row * n + col];\n        return;\n    }}\n"), (STORE, STORE + f"    if (n == {n}) kept[row * n + col] = sum;\n"))), CORRECT, "kept, which keeps its value") for n in (512, 1024)),
        one("c-as-scratch", kernels(STEP2, SCRATCH), AUDIT, "reads c"),
        one("step-2-as-step-3", HEAD + STEP2 + AS_STEP3, AUDIT, "as in step 2"),
        one("float4-as-one-load", kernels(STEP2, changed(AS_STEP3, (PLAIN_LOOP, "    if (n % 4 == 0) {\n" + four + "    } else\n" + PLAIN_LOOP))), AUDIT, "1,024 floats per thread"),
        one("step-1-as-step-2", kernels(swapped, STEP3), AUDIT, "not coalesced"),
        one("patch-of-32", kernels(STEP2, tiled(PATCH32)), AUDIT, "the tile is to stay 16"),
        one("thin-patch-of-32", kernels(STEP2, tiled(PATCH32_THIN)), AUDIT, "computes 1,024 elements"),
        one("stages-nothing", HEAD + STEP2 + changed(STEP3, ("sum += tileA[threadIdx.y][k] * tileB[k][threadIdx.x]", "sum += start + k < n && row < n && col < n ? a[row * n + start + k] * tileB[k][threadIdx.x] : 0.0f")), AUDIT, "floats per thread"),
    ]  # fmt: skip


def notebook(*cells: str) -> str:
    made = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": text} for text in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def zipped(files: dict[str, str]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return held.getvalue()


def everyone() -> list[Student]:
    """The whole class."""
    return [*right(), *wrong()]


def write(folder: Path, students: list[Student]) -> Path:
    """The class as files and folders; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for student in students:
        alone = [Path(name).stem for name in student.files] == [student.name]
        for name, content in student.files.items():
            path = folder / name if alone else folder / student.name / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


if __name__ == "__main__":
    students = everyone()
    write(Path(sys.argv[1]), students)
    print(f"{len(students)} hand-ins in {sys.argv[1]}, {len(right())} of them right")
