"""The site room: what Sphinx is told beyond ``_config.yml``, so that a page can be read with no network.

Formulas become MathML when the site is built, which browsers draw themselves: no script, nothing from a CDN, and a
screen reader can read them. The repository's buttons appear once ``repository.url`` is set, and not before.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html import HTML5Translator

logger = logging.getLogger(__name__)
STATIC = Path(__file__).parent / "static"


def mathml(latex: str, display: str, node: nodes.Node) -> str:
    """A formula as MathML; one that cannot be converted is a warning, and is shown as it was written."""
    try:
        return convert(latex.strip(), display=display)
    except Exception as problem:  # latex2mathml raises a dozen types with no common base
        logger.warning("latex2mathml cannot read this formula (%r): %s", problem, latex, location=node)
        return f"<code>{html.escape(latex)}</code>"


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(mathml(node.astext(), "inline", node))
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math-block"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})</span>')
    self.body.append(mathml(node.astext(), "block", node))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def settle_options(app: Sphinx) -> None:
    """Turn the repository and issue buttons on where there is a repository to point at, and keep one search button:
    newer releases of the theme below Jupyter Book's put a second one into a bar of its own."""
    options = app.config.html_theme_options
    options["navbar_persistent"] = []
    app.config.html_static_path.append(str(STATIC))
    published = bool(options.get("repository_url"))
    options["use_repository_button"] = options["use_issues_button"] = published
    if not published:
        options.pop("launch_buttons", None)


def drop_thebe(
    app: Sphinx, page: str, template: str, context: dict[str, object], doctree: nodes.document | None
) -> None:
    """Leave out the scripts of sphinx-thebe, which Jupyter Book always loads: unused here, and one of them, put in
    twice
    with a ``const``, is an error in every reader's console."""
    scripts = context.get("script_files", [])
    context["script_files"] = [s for s in scripts if "thebe" not in str(s.filename) + s.attributes.get("body", "")]


def setup(app: Sphinx) -> dict[str, object]:
    """Sphinx's entry point."""
    app.add_html_math_renderer("mathml", inline_renderers=(visit_inline, None), block_renderers=(visit_block, None))
    app.connect("builder-inited", settle_options, priority=100)
    app.add_css_file("pages.css", priority=900)
    app.connect("html-page-context", drop_thebe, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
