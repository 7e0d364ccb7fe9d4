"""Turns room: checks in several processes take turns on the card, so that no one's times are measured beside another's.

The turn is a lock on a file, which the system gives up for a process that ends or is killed.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Seconds that a turn may last before its process is ended; 0: as long as it takes. The sandbox's children set it.
limit = 0


@contextmanager
def turn() -> Iterator[None]:
    """Wait until no other check uses this machine's card, and keep it until the block ends.

    A kernel that never ends on the card keeps Python from running, so that only a signal's default action, the end of
    the process, can end it.
    """
    try:
        import fcntl
    except ImportError:  # Windows: checks run one after the other there
        yield
        return
    path = Path(tempfile.gettempdir()) / f"gpudays-card-{os.getuid()}.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if limit:
            signal.alarm(limit)
        try:
            yield
        finally:
            if limit:
                signal.alarm(0)
