"""Tests room, notebooks: each kernel talks through files of its own, and what a tested page showed serves its site.

By default a kernel's ports are picked before it opens them, so that kernels which parallel workers start at the same
moment can be given the same ports, and die.
"""

import os
import tempfile

import nbval.kernel
import pytest
from jupyter_client.manager import KernelManager
from nbval.plugin import IPyNbCell


def _kernel_manager(**options: object) -> KernelManager:
    handle, file = tempfile.mkstemp(".json", "kernel-")
    os.close(handle)
    return KernelManager(transport="ipc", connection_file=file, **options)


def pytest_configure():
    if os.name == "posix":
        nbval.kernel.KernelManager = _kernel_manager


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Note what a cell that passed has put out; once a page's last cell has passed, keep the page for its site.

    Not on a card: times that were measured beside other tests are none to show.
    """
    done = yield
    if isinstance(item, IPyNbCell):
        page = item.parent
        item.cell.outputs, item.cell.execution_count = item.test_outputs, item.cell_num + 1
        page.passed = getattr(page, "passed", 0) + 1
        if page.passed == sum(cell.cell_type == "code" for cell in page.nb.cells):
            from gpudays import gpu, site

            if gpu.device() is None:
                site.keep_executed(item.config.rootpath, page.path, page.nb)
    return done
