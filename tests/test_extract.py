"""Extraction: kernels from programs, notebooks, zips and folders, each line where the student wrote it."""

import json
import sys
import zipfile
from pathlib import Path

import pytest

from gpudays import checking, compiler, cuda_syntax
from gpudays.course.steps import DAYS
from gpudays.extract import NothingToCheck, extract

ROOT = Path(__file__).parents[1]
KERNEL = 'extern "C" __global__ void matmulTiled(const float* a, const float* b, float* c, size_t n) { c[0] = a[0]; }\n'
OTHER = KERNEL.replace("matmulTiled", "matmulCoalescedCols")


def compiled(text: str) -> compiler.Program:
    return compiler.compile(cuda_syntax.kernels(text).source)


@pytest.mark.parametrize("day", DAYS.values(), ids=DAYS)
def test_the_courses_own_programs_give_up_their_kernels(day):
    text = (ROOT / day.program).read_text("utf-8")
    found = cuda_syntax.kernels(text)
    assert set(day.by_kernel) <= set(found.names) and not found.libraries
    assert set(found.names) <= set(compiled(text).kernels)
    theirs, ours = text.split("\n"), found.source.split("\n")
    assert len(theirs) == len(ours) and all(a.rstrip().endswith(b.strip()) for a, b in zip(theirs, ours, strict=True))
    assert any("main" in phrase for phrase in found.set_aside) and "main(" not in found.source


def test_what_a_kernel_needs_stays_and_nothing_else():
    text = r"""#include <vector>
using namespace std;
#define TILE 16
#define SQUARED (TILE * TILE)
#define CHECK(call) do { if (call) abort(); } while (0)
constexpr int HOST_ONLY = 3;
constexpr float SCALE = 1.0f;
struct Pair { float x, y; };
struct Options { std::vector<int> sizes; };
enum Which { FIRST, SECOND };
typedef unsigned int index_t;
using real = float;
__constant__ float weights[4];
template <int N> __device__ __forceinline__ real twice(real x) { return N * x * SCALE; }
template <typename T> __device__ T unused(T x) { return x; }
static float onHost(const std::vector<float>& v) { return v[0]; }
namespace mine {
__device__ real once(real x) { return x + weights[0]; }
int ofHost() { return HOST_ONLY; }
}
extern "C" {
__global__ void k(const real* a, real* c, index_t n) {
    __shared__ real tile[SQUARED];
    Pair p = {a[0], a[1]};
    tile[threadIdx.x] = twice<2>(p.x) + mine::once(p.y) + SECOND;
    c[n] = tile[threadIdx.x];
}
int host() { return 1; }
}
int main(int argc, char** argv) {
    Options options;
    k<<<1, SQUARED>>>(nullptr, nullptr, 1);
    return host();
}
"""
    found = cuda_syntax.kernels(text)
    assert list(compiled(text).kernels) == ["k"]
    for kept in ("TILE 16", "SQUARED", "SCALE", "Pair", "Which", "index_t", "real", "weights", "twice", "once"):
        assert kept in found.source
    for gone in ("vector", "CHECK", "HOST_ONLY", "Options", "unused", "onHost", "ofHost", "host()", "main"):
        assert gone not in found.source
    assert [launch.kernel for launch in found.launches] == ["k"] and found.launches[0].block == "SQUARED"


def test_conditionals_keep_their_branches():
    text = f"""#ifdef WIDE
#define WIDTH 4
#else
#define WIDTH 1
#endif
#ifdef HOST
int nothing;
#endif
{KERNEL.replace("c[0]", "c[WIDTH]")}"""
    found = cuda_syntax.kernels(text)
    assert "#define WIDTH 4" in found.source and "#else" in found.source and "HOST" not in found.source
    assert "matmulTiled" in compiled(text).kernels


def test_a_template_is_instantiated_as_the_host_launches_it():
    text = """template <typename T, int TILE>
__global__ void matmulTiled(const T* a, const T* b, T* c, size_t n) { c[TILE] = a[0]; }
void launch(float* a) { matmulTiled<float, 16><<<1, 1>>>(a, a, a, 1); }
"""
    program = compiled(text)
    assert [p.element for p in program.kernel("matmulTiled").params[:3]] == ["float"] * 3


def test_a_macro_that_declares_kernels_is_one():
    text = f"""#define KERNEL(name) extern "C" __global__ void name
KERNEL(matmulTiled)(const float* a, const float* b, float* c, size_t n) {{ c[0] = a[0]; }}
{OTHER}int main() {{ return 0; }}
"""
    assert cuda_syntax.kernels(text).names == ("matmulTiled", "matmulCoalescedCols")
    assert set(compiled(text).kernels) == {"matmulTiled", "matmulCoalescedCols"}


@pytest.mark.parametrize("name", ["uint32_t", "uint", "FLT_MAX", "std::min", "std::size_t"])
def test_what_a_host_header_declares_can_be_used(name):
    use = {"std::min": "std::min(n, n)", "std::size_t": "(std::size_t)n", "FLT_MAX": "FLT_MAX"}
    text = "#include <cstdint>\n" + KERNEL.replace("c[0]", f"c[0] = {use.get(name, f'({name})n')}; c[1]")
    program = compiled(text)
    assert "matmulTiled" in program.kernels
    assert len(program.source.split("\n")) == len(text.split("\n"))


def test_cooperative_groups_stay():
    text = """#include <iostream>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(float* c) { cg::this_thread_block().sync(); c[0] = 1; }
int main() { std::cout << 1; }
"""
    assert "k" in compiled(text).kernels


def test_a_library_call_is_noted(tmp_path):
    path = tmp_path / "my.cu"
    path.write_text(f"#include <cublas_v2.h>\n{KERNEL}int main() {{\n    cublasSgemm(handle, 0, 0);\n}}\n")
    found = extract(path, ["matmulTiled"])
    assert "cublasSgemm (line 4)" in found.notes[0] and "cublas" not in found.source


def test_an_error_is_told_at_the_students_line():
    text = "#include <cstdio>\n\nint unused;\n" + KERNEL.replace("a[0];", "a[0]") + "int main() { return 0; }\n"
    with pytest.raises(compiler.CompileError) as told:
        compiled(text)
    assert told.value.diagnostics[0].line == 4


def test_a_program_without_kernels_is_told_so(tmp_path):
    path = tmp_path / "main.cu"
    path.write_text("int main() { return 0; }\n")
    with pytest.raises(NothingToCheck, match=r"main.cu: no kernel in it.*matmulTiled declared __global__"):
        extract(path, ["matmulTiled"])
    with pytest.raises(NothingToCheck, match="no such file"):
        extract(tmp_path / "absent.cu", ["matmulTiled"])


def test_a_missing_parser_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tree_sitter_cuda", None)
    cuda_syntax._parser.cache_clear()
    (tmp_path / "my.cu").write_text(KERNEL)
    with pytest.raises(checking.NoExercise, match="pip install tree-sitter tree-sitter-cuda"):
        checking.read("day43", tmp_path / "my.cu")


# ---- notebooks, zips, folders ----------------------------------------------------------------------------------------


def notebook(path: Path, *cells: str) -> Path:
    made = [{"cell_type": "code", "source": text.splitlines(keepends=True), "metadata": {}} for text in cells]
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": "# A page"}, *made]}))
    return path


def test_a_notebooks_student_string_is_taken(tmp_path):
    page = f'source = r"""\n{KERNEL}{OTHER}"""'
    mine = f'%time 1\nstudent = r"""\n{KERNEL}// mine\n"""'
    path = notebook(tmp_path / "page.ipynb", page, mine, "lab.check(student)")
    found = extract(path, ["matmulTiled", "matmulCoalescedCols"])
    assert found.where == "page.ipynb, cell 3 (student)" and "// mine" in found.source


def test_a_string_in_parts_and_a_cell_that_writes_a_file(tmp_path):
    path = notebook(tmp_path / "parts.ipynb", f'mine = r"""\n{KERNEL}"""', f'mine += r"""\n{OTHER}"""')
    assert extract(path, ["matmulTiled", "matmulCoalescedCols"]).names == ("matmulTiled", "matmulCoalescedCols")
    path = notebook(tmp_path / "cell.ipynb", f"%%writefile my.cu\n{KERNEL}int main() {{}}\n")
    assert extract(path, ["matmulTiled"]).where == "cell.ipynb, cell 2"


def test_a_folder_and_a_zip(tmp_path):
    folder = tmp_path / "ada"
    (folder / "__MACOSX").mkdir(parents=True)
    (folder / "__MACOSX/my.cu").write_text("junk")
    (folder / "notes.txt").write_text("I would skip step 2")
    (folder / "sub").mkdir()
    (folder / "sub/my.cu").write_text(KERNEL)
    assert extract(folder, ["matmulTiled"]).where == "sub/my.cu"
    with zipfile.ZipFile(tmp_path / "ada.zip", "w") as archive:
        archive.writestr("x/my.cu", KERNEL)
        archive.writestr("submission.json", "{}")
    assert extract(tmp_path / "ada.zip", ["matmulTiled"]).where == "ada.zip/x/my.cu"


def test_kernels_in_two_files_are_refused_with_their_names(tmp_path):
    (tmp_path / "one.cu").write_text(KERNEL)
    (tmp_path / "two.cu").write_text(KERNEL.replace("a[0]", "b[0]"))
    with pytest.raises(NothingToCheck, match=r"one.cu, two.cu all define matmulTiled"):
        extract(tmp_path, ["matmulTiled"])
    (tmp_path / "two.cu").write_text(OTHER)
    with pytest.raises(NothingToCheck, match="share matmulTiled, matmulCoalescedCols between them"):
        extract(tmp_path, ["matmulTiled", "matmulCoalescedCols"])


@pytest.mark.parametrize("name, data", [("a.ipynb", b"{}"), ("a.ipynb", b"\xff\x00"), ("a.zip", b"no zip")])
def test_what_cannot_be_read_is_told(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(NothingToCheck, match="can be read"):
        extract(tmp_path / name, ["matmulTiled"])


def test_a_file_of_answers_is_too_large(tmp_path):
    (tmp_path / "big.cu").write_text("/" * 2_000_001)
    with pytest.raises(NothingToCheck, match="2,000,001 bytes"):
        extract(tmp_path / "big.cu", ["matmulTiled"])
