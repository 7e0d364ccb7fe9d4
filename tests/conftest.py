"""What the tests share: tests marked `gpu` are skipped, with the reason, where there is no card."""

import pytest

from gpudays import gpu


def pytest_collection_modifyitems(items):
    if not any("gpu" in item.keywords for item in items) or gpu.device() is not None:
        return
    skip = pytest.mark.skip(reason=f"no GPU: {gpu.why_no_gpu()}")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
