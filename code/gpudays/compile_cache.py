"""Cache room: what compilers made before, in files, so that a page opened again need not compile again.

An entry is found by a hash of everything that it was made of: the compiler, the source, the options. It lies in
``$GPUDAYS_CACHE``, or in the user's cache folder; deleting that folder is always safe. A cache that cannot be read or
written is as good as none, and so is one that somebody else can write to: machine code is run as it is found.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path

import platformdirs

VARIABLE = "GPUDAYS_CACHE"
MOST = 2000  # entries; a page has some fifty, of 5 to 50 kB


def folder() -> Path:
    """Where the entries are."""
    return Path(os.environ.get(VARIABLE) or platformdirs.user_cache_path("gpudays")) / "compiled"


def key(*parts: object) -> str:
    """The name of the entry that is made of these parts, each of which must have a faithful ``repr``."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def read(name: str) -> dict | None:
    """An entry, or None where there is none that is whole."""
    here = folder()
    path = here / f"{name}.json"
    with contextlib.suppress(OSError, ValueError):
        if not _only_mine(here):
            return None
        entry = json.loads(path.read_text("utf-8"))
        os.utime(path)  # it was used: older ones go first
        return entry if isinstance(entry, dict) else None
    return None


def write(name: str, entry: dict) -> None:
    """Keep an entry; whoever reads at the same time finds all of it or nothing."""
    here = folder()
    with contextlib.suppress(OSError):
        here.mkdir(0o700, parents=True, exist_ok=True)
        if not _only_mine(here):
            return
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=here, delete=False) as file:
            json.dump(entry, file)
        os.replace(file.name, here / f"{name}.json")
        _forget_the_oldest(here)


def _only_mine(here: Path) -> bool:
    """Whether the folder is this user's, and no one else may write to it; where a system has no such notion, yes."""
    if not hasattr(os, "getuid"):
        return True
    found = here.stat()
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


def _forget_the_oldest(here: Path) -> None:
    entries = list(os.scandir(here))
    if len(entries) > MOST:
        for entry in sorted(entries, key=lambda entry: entry.stat().st_mtime)[: MOST // 2]:
            os.unlink(entry.path)
