"""The cache room: a page opened again compiles nothing, and nothing that is kept is ever the wrong thing."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpudays import compile_cache, nvrtc

ADD = 'extern "C" __global__ void add(float* x) { x[threadIdx.x] += 1.0f; }'


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(compile_cache.VARIABLE, str(tmp_path))
    if nvrtc._library() is None:
        pytest.skip("this system does not tell which library compiles, so that nothing is kept")
    return tmp_path / "compiled"


@pytest.fixture
def compiled(monkeypatch) -> list[str]:
    """The sources that really were compiled."""
    sources, compile_ = [], nvrtc._compile
    monkeypatch.setattr(nvrtc, "_compile", lambda source, *rest: sources.append(source) or compile_(source, *rest))
    return sources


def test_what_was_compiled_once_is_found_again(folder, compiled):
    first = nvrtc.run(ADD, "compute_75", ("-lineinfo",))
    assert (len(compiled), first.ok, len(list(folder.iterdir()))) == (1, True, 1)
    assert nvrtc.run(ADD, "compute_75", ("-lineinfo",)) == first and len(compiled) == 1


def test_a_new_process_finds_it_too(folder):
    code = f"from gpudays import nvrtc; nvrtc._compile and print(nvrtc.run({ADD!r}, 'compute_75').ptx)"
    refuses = code.replace("nvrtc._compile and ", "setattr(nvrtc, '_compile', None) or ")
    said = [subprocess.run([sys.executable, "-c", c], capture_output=True, text=True).stdout for c in (code, refuses)]
    assert said[0] == said[1] and ".entry add(" in said[0]


@pytest.mark.parametrize(
    "other",
    [
        (ADD.replace("1.0f", "2.0f"), "compute_75", ()),
        (ADD, "compute_80", ()),
        (ADD, "compute_75", ("-lineinfo",)),
        (ADD.replace('extern "C" ', ""), "compute_75", (), ("add",)),
    ],
)
def test_whatever_differs_is_compiled_by_itself(compiled, other):
    done = [nvrtc.run(ADD, "compute_75"), nvrtc.run(*other)]
    assert len(compiled) == 2 and done[0] != done[1]


def test_cuda_s_own_headers_are_part_of_the_key(compiled, monkeypatch):
    source = "#include <cuda_fp16.h>\n" + ADD
    if not nvrtc.run(source, "compute_75").ok:
        pytest.skip("no CUDA headers here")
    assert nvrtc.run(source, "compute_75").ok and len(compiled) == 1
    monkeypatch.setattr(nvrtc, "_headers", lambda: ())
    nvrtc.run(source, "compute_75")
    nvrtc.run(ADD, "compute_75")
    assert len(compiled) == 3


def test_another_library_compiles_anew(compiled, monkeypatch):
    nvrtc.run(ADD, "compute_75")
    path, size, changed = nvrtc._library()
    monkeypatch.setattr(nvrtc, "_library", lambda: (path, size, changed + 1))
    nvrtc.run(ADD, "compute_75")
    assert len(compiled) == 2


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ('#include "mine.h"\n' + ADD, ()),
        ('#include <cuda_fp16.h>\n#include "mine.h"\n' + ADD, ()),
        ("#include </usr/include/errno.h>\n" + ADD, ()),
        ("#include <../../../../include/errno.h>\n" + ADD, ()),
        ("#define HEADER <cuda_fp16.h>\n#include HEADER\n" + ADD, ()),
        ("#if __has_include(<cuda_fp16.h>)\n#endif\n" + ADD, ()),
        (ADD, ("--pre-include=cuda_fp16.h",)),
        (ADD, ("-I/usr/include",)),
        (ADD.replace("+= 1.0f", "+= one"), ()),  # does not compile
    ],
)
def test_what_depends_on_files_or_fails_is_never_kept(folder, source, options):
    nvrtc.run(source, "compute_75", options)
    assert not folder.exists()


@pytest.mark.parametrize("damage", ["", "{", "[]", "{}", '{"ok": true}', "\x00\xff"])
def test_a_damaged_entry_is_as_good_as_none(folder, compiled, damage):
    right = nvrtc.run(ADD, "compute_75")
    entry = next(folder.iterdir())
    entry.write_bytes(damage.encode("latin-1"))
    assert nvrtc.run(ADD, "compute_75") == right and len(compiled) == 2
    assert json.loads(entry.read_text())["ptx"] == right.ptx


def test_a_cache_that_cannot_be_written_changes_nothing(tmp_path, monkeypatch, compiled):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(compile_cache.VARIABLE, str(tmp_path / "file"))
    assert nvrtc.run(ADD, "compute_75").ok and nvrtc.run(ADD, "compute_75").ok
    assert len(compiled) == 2


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="this system has no owners of files")
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, "another's"])
def test_a_cache_that_others_can_write_to_is_as_good_as_none(folder, compiled, monkeypatch, mode):
    """What lies there would be run."""
    nvrtc.run(ADD, "compute_75")
    assert folder.stat().st_mode & 0o777 == 0o700
    if mode == "another's":
        me = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: me + 1)
    else:
        folder.chmod(mode)
    nvrtc.run(ADD, "compute_75")
    nvrtc.run(ADD.replace("1.0f", "2.0f"), "compute_75")
    assert len(compiled) == 3 and len(list(folder.iterdir())) == 1


def test_many_writers_leave_whole_entries_and_nothing_else(folder):
    entry = {"text": "x" * 100_000}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: compile_cache.write(f"{n % 4}", entry), range(64)))
    assert sorted(path.name for path in folder.iterdir()) == ["0.json", "1.json", "2.json", "3.json"]
    assert all(compile_cache.read(str(n)) == entry for n in range(4))


def test_the_entries_used_last_stay(folder, monkeypatch):
    monkeypatch.setattr(compile_cache, "MOST", 10)
    for n in range(10):
        compile_cache.write(str(n), {"n": n})
        os.utime(folder / f"{n}.json", (n, n))
    assert compile_cache.read("0") == {"n": 0}
    compile_cache.write("new", {})
    left = {path.stem for path in folder.iterdir()}
    assert left == {"0", "new", "6", "7", "8", "9"}
