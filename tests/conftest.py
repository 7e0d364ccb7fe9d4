"""What the tests share: what takes longest begins first; tests marked `gpu` are skipped where there is no card."""

import pytest

from gpudays import gpu

# Workers take whole files, in this order and then in the alphabet's: no worker is left alone with a long one.
LONGEST = (
    "test_lab", "test_grade", "day44-matmul-2", "day43-matmul-1", "test_engines_agree", "test_programs", "test_suite",
    "test_page_day44", "test_handout", "test_site", "test_semantics_properties", "test_check", "test_grade_dask",
    "test_alone",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.stem, len(places)))
    if not any("gpu" in item.keywords for item in items) or gpu.device() is not None:
        return
    skip = pytest.mark.skip(reason=f"no GPU: {gpu.why_no_gpu()}")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
