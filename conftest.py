"""Tests room, notebooks: each kernel talks through files of its own.

By default a kernel's ports are picked before it opens them, so that kernels which parallel workers start at the same
moment can be given the same ports, and die.
"""

import os
import tempfile

import nbval.kernel
from jupyter_client.manager import KernelManager


def _kernel_manager(**options: object) -> KernelManager:
    handle, file = tempfile.mkstemp(".json", "kernel-")
    os.close(handle)
    return KernelManager(transport="ipc", connection_file=file, **options)


def pytest_configure():
    if os.name == "posix":
        nbval.kernel.KernelManager = _kernel_manager
