"""The pages' room: sliders for a warp. Block shape, matrix width and element size, and the sectors that a warp then
asks for, read off the addresses of a compiled kernel by the tracer.

``explore_warp()`` shows sliders where a kernel runs (JupyterLab, Colab) and a few fixed states everywhere else: in the
built site, on GitHub, and in a notebook that has just been opened.
"""

from __future__ import annotations

import numpy as np

from gpudays.microscope import trace_accesses
from gpudays.warp_svg import Request, draw

BLOCKS = {f"{x} × {256 // x}": (x, 256 // x) for x in (1, 2, 4, 8, 16, 32, 64, 128, 256)}
ELEMENTS = {  # in CUDA, in NumPy, bytes
    "char, 1 byte": ("char", np.int8, 1),
    "half, 2 bytes": ("unsigned short", np.uint16, 2),  # a half's size; its arithmetic plays no part here
    "float, 4 bytes": ("float", np.float32, 4),
    "double, 8 bytes": ("double", np.float64, 8),
    "float4, 16 bytes": ("float4", np.float32, 16),
}
ORDERS = {"x picks the column": ("y", "x"), "x picks the row": ("x", "y")}
WIDEST = 512

SOURCE = """
extern "C" __global__ void touch(const {type}* m, {type}* out, size_t width) {{
    const size_t row = threadIdx.{row};
    const size_t col = threadIdx.{col};
    if (col < width) out[row * width + col] = m[row * width + col];
}}
"""

FIXED = (
    ("16 × 16", 512, "float, 4 bytes", "x picks the row"),
    ("16 × 16", 512, "float, 4 bytes", "x picks the column"),
    ("16 × 16", 509, "float, 4 bytes", "x picks the column"),
    ("16 × 16", 512, "double, 8 bytes", "x picks the column"),
    ("32 × 8", 512, "char, 1 byte", "x picks the column"),
)


def warp_request(block: str, width: int, element: str, order: str) -> Request:
    """Trace what the first warp of a block loads from a matrix, one element for each thread.

    Args:
        block: a key of ``BLOCKS``; 256 threads.
        width: elements in a row of the matrix, 1 to 512.
        element: a key of ``ELEMENTS``.
        order: a key of ``ORDERS``: which of threadIdx's two picks the column.
    """
    c_type, dtype, size = ELEMENTS[element]
    row, col = ORDERS[order]
    matrix = np.zeros(256 * WIDEST * size, dtype=np.uint8).view(dtype)
    source = SOURCE.format(type=c_type, row=row, col=col)
    arguments = [matrix, matrix.copy(), np.uint64(width)]
    accesses = trace_accesses(source, "touch", (1, 1), BLOCKS[block], arguments, limit=1)
    load = next(access for access in accesses if access.op == "ld" and access.space == "global")
    return Request(load.offsets[load.active], size, width, f"block {block}, {element}, N = {width}, {order}")


def fixed_states() -> str:
    """The states of ``FIXED``, one below the other, as HTML."""
    return "".join(f"<p>{draw(warp_request(*state))}</p>" for state in FIXED)


class Explorer:
    """Sliders and the picture that follows them.

    Attributes:
        controls: the ipywidgets controls by name: block, width, element, order.
        picture: the ipywidgets HTML that holds the SVG.
        box: the widget that holds them all.
    """

    def __init__(self) -> None:
        import ipywidgets as widgets  # only here, so that a page without sliders does not need it

        wide = {"style": {"description_width": "7em"}, "layout": {"width": "28em", "max_width": "95%"}}
        self.controls = {
            "block": widgets.SelectionSlider(options=list(BLOCKS), value="16 × 16", description="block", **wide),
            "width": widgets.IntSlider(min=1, max=WIDEST, value=512, description="width N", **wide),
            "element": widgets.Dropdown(options=list(ELEMENTS), value="float, 4 bytes", description="element", **wide),
            "order": widgets.Dropdown(options=list(ORDERS), description="mapping", **wide),
        }
        self.picture = widgets.HTML()
        self.box = widgets.VBox([*self.controls.values(), self.picture])
        for control in self.controls.values():
            control.observe(self.redraw, names="value")
        self.redraw()

    def redraw(self, change: object = None) -> None:
        """Trace the present state and draw it."""
        state = {name: control.value for name, control in self.controls.items()}
        self.picture.value = draw(warp_request(**state))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        view = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        words = "\n".join(warp_request(*state).summary for state in FIXED)
        return {
            "application/vnd.jupyter.widget-view+json": view,
            "text/html": fixed_states(),
            "text/plain": words,
        }


def explore_warp() -> Explorer:
    """Sliders for block shape, matrix width, element size and order, with a warp's sectors drawn below."""
    return Explorer()
