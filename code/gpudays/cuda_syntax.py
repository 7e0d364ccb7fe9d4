"""Syntax room: the kernels of a CUDA C++ file, told from its host code by tree-sitter's CUDA grammar.

What a kernel needs is kept where it stands: other functions, constants, types, templates and macros that it names,
directly or through another. Everything else is blanked, so that a line keeps its number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from gpudays.cuda_headers import DEVICE_HEADERS, stand_ins

WORD = re.compile(r"[A-Za-z_]\w*")
CONTAINERS = {
    "preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "preproc_elifdef", "linkage_specification",
    "namespace_definition", "declaration_list",
}  # fmt: skip
MACROS = {"preproc_def", "preproc_function_def"}
TYPES = {"struct_specifier", "class_specifier", "union_specifier", "enum_specifier"}
LIBRARY = re.compile(r"^(cublas|cusparse|cusolver|cudnn|cutensor)[A-Za-z]\w*$|^(thrust|cub|cutlass|cute)$")


class NotCuda(ValueError):
    """Text in which no kernel can be told from the rest; the message says what was looked for."""


class MissingParser(RuntimeError):
    """tree-sitter or its CUDA grammar is not installed."""


@dataclass(frozen=True)
class Launch:
    """A launch in host code: the kernel as it is named there ("matmulTiled<16>"), grid and block as text, the line."""

    kernel: str
    grid: str
    block: str
    line: int


@dataclass(frozen=True)
class Kernels:
    """What a CUDA C++ text holds.

    Attributes:
        source: the kernels and all that they need; everything else is blank, so lines keep their numbers.
        names: the kernels' names, in order.
        set_aside: what was blanked, one phrase each ("main (line 80)").
        libraries: library calls of the host code ("cublasSgemm (line 91)").
        launches: the launches of the host code.
    """

    source: str
    names: tuple[str, ...]
    set_aside: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    launches: tuple[Launch, ...] = ()


@dataclass
class _Item:
    """A piece of the file between which it can be cut: a definition, a macro, an include."""

    node: object
    defines: frozenset[str]
    uses: frozenset[str]
    is_kernel: bool
    kept: bool = False
    parents: list = field(default_factory=list)


def kernels(text: str) -> Kernels:
    """Tell the kernels of a CUDA C++ text from its host code.

    Raises:
        NotCuda: the text defines no kernel.
    """
    data = text.encode()
    root = _parser().parse(data).root_node
    items = list(_items(root, [], _kernel_macros(root)))
    if not any(item.is_kernel for item in items):
        raise NotCuda("no kernel in it: a kernel is a function that is declared __global__ void")
    calls = [call for item in items if not item.is_kernel for call in _walk(item.node, "call_expression")]
    launches = tuple(launch for call in calls if (launch := _launch(call)))
    _keep(items, frozenset(word for launch in launches for word in WORD.findall(launch.kernel)))
    names = dict.fromkeys(_kernel_name(item.node) for item in items if item.is_kernel)
    source = _blanked(data, root, items) + _instances(items, launches)
    return Kernels(
        source,
        tuple(name for name in names if name),
        tuple(_phrase(item) for item in items if not item.kept and item.node.type != "comment"),
        tuple(dict.fromkeys(found for call in calls if (found := _library(call)))),
        launches,
    )


def stubbed(text: str, given: str, stub: str) -> str:
    """A program as it is handed to students: every kernel but one gets a stub for a body.

    Device functions that the remaining kernel does not need are taken out, and so are the comments right above what is
    taken out or stubbed: they say how it is done.

    Args:
        text: CUDA C++.
        given: the kernel that stays.
        stub: what stands between the braces of the others.

    Raises:
        NotCuda: no kernel has that name.
    """
    data = text.encode()
    root = _parser().parse(data).root_node
    items = list(_items(root, [], _kernel_macros(root)))
    kernels = {_kernel_name(item.node): item for item in items if item.is_kernel}
    if given not in kernels:
        raise NotCuda(f"no kernel {given} in it: there are {', '.join(kernels) or 'none'}")
    for name, item in kernels.items():
        item.is_kernel = name == given
    _keep(items, frozenset())
    cuts: list[tuple[int, int, bytes]] = []
    for place, item in enumerate(items):
        node = item.parents[-1] if item.parents and item.parents[-1].type == "linkage_specification" else item.node
        stubs = item in kernels.values() and not item.is_kernel
        gone = not item.kept and "__device__" in item.uses and not stubs
        if stubs:
            body = next(_walk(item.node, "compound_statement"))
            cuts.append((body.start_byte, body.end_byte, f"{{\n{stub}\n}}".encode()))
        elif gone:
            cuts.append((node.start_byte, node.end_byte, b""))
        if stubs or gone:
            cuts += [(n.start_byte, n.end_byte, b"") for n in _comments_above([i.node for i in items[:place]], node)]
    for start, end, new in sorted(cuts, reverse=True):
        data = data[:start] + new + data[end:]
    return re.sub(r"\n{3,}", "\n\n", data.decode())


def _comments_above(before: list, node) -> Iterator:
    """The comments that end in the line above a node, or above each other, last first."""
    line = node.start_point[0]
    for one in reversed(before):
        if one.type != "comment" or one.end_point[0] != line - 1 or "// page:" in _text(one):
            return
        yield one
        line = one.start_point[0]


@lru_cache(maxsize=1)
def _parser():
    try:
        import tree_sitter
        import tree_sitter_cuda
    except ImportError as problem:
        remedy = "python -m pip install tree-sitter tree-sitter-cuda"
        raise MissingParser(f"reading a hand-in needs tree-sitter's CUDA grammar: {remedy}") from problem
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


# ---- the file, cut into items ----------------------------------------------------------------------------------------


def _items(node, parents: list, kernel_macros: frozenset[str]) -> Iterator[_Item]:
    """The items of a container, in order; what holds items itself is gone into."""
    for child in node.named_children:
        if child.type in CONTAINERS:
            yield from _items(child, [*parents, child], kernel_macros)
        elif parents and node.type not in ("declaration_list",) and _is_head(node, child):
            continue
        else:
            words = frozenset(_words(child))
            is_kernel = bool(words & ({"__global__"} | kernel_macros)) and child.type not in MACROS
            yield _Item(child, frozenset(_defines(child)), words, is_kernel, parents=parents)


def _is_head(container, child) -> bool:
    """Whether a child is its container's condition or name rather than something it holds."""
    return any(container.child_by_field_name(name) == child for name in ("name", "condition", "value"))


def _kernel_macros(root) -> frozenset[str]:
    """Macros whose text holds ``__global__``: what they are put before is a kernel."""
    found = [node for kind in MACROS for node in _walk(root, kind) if "__global__" in _words(node)]
    return frozenset(_text(node.child_by_field_name("name")) for node in found)


def _walk(node, kind: str) -> Iterator:
    """All nodes of a kind under a node, itself included, in the order of the text."""
    stack = [node]
    while stack:
        top = stack.pop()
        if top.type == kind:
            yield top
        stack.extend(reversed(top.children))


def _text(node) -> str:
    return node.text.decode() if node is not None else ""


def _words(node) -> Iterator[str]:
    """Every name in the code of a node: comments and strings are no code."""
    stack = [node]
    while stack:
        top = stack.pop()
        if top.type in ("comment", "string_literal", "char_literal"):
            continue
        if top.child_count == 0:
            yield from WORD.findall(_text(top))
        stack.extend(top.children)


def _defines(node) -> Iterator[str]:
    """The names that an item introduces."""
    if node.type in MACROS or node.type in TYPES or node.type == "alias_declaration":
        yield _text(node.child_by_field_name("name"))
    if node.type == "enum_specifier":
        yield from (_text(e.child_by_field_name("name")) for e in _walk(node, "enumerator"))
    elif node.type == "template_declaration":
        for child in node.named_children:
            yield from _defines(child)
    elif node.type == "namespace_alias_definition":
        yield _text(node.child_by_field_name("name") or node.named_children[0])
    elif node.type in ("declaration", "function_definition", "type_definition", "field_declaration"):
        for declarator in node.children_by_field_name("declarator"):
            yield _declared(declarator)
        declared_type = node.child_by_field_name("type")
        if declared_type is not None and declared_type.type in TYPES:
            yield from _defines(declared_type)


def _declared(node) -> str:
    """The name in a declarator."""
    while True:
        inner = node.child_by_field_name("declarator") or node.child_by_field_name("name")
        if inner is None:
            inner = next((c for c in node.named_children if c.type.endswith(("declarator", "identifier"))), None)
        if inner is None or node.child_count == 0:
            return _text(node)
        node = inner


def _kernel_name(node) -> str:
    """The name of the kernel that an item defines."""
    for function in _walk(node, "function_declarator"):
        inner = function.child_by_field_name("declarator")
        if inner is not None and inner.type == "function_declarator":  # MACRO(name)(parameters)
            return _text(inner.child_by_field_name("parameters")).strip("() ")
        name = _declared(function)
        if not name.startswith("__"):
            return name
    return ""


# ---- what is kept ----------------------------------------------------------------------------------------------------


def _keep(items: list[_Item], launched: frozenset[str]) -> None:
    """Mark the kernels and, again and again, what the marked items name; launches name template arguments."""
    for item in items:
        item.kept = item.is_kernel or item.node.type == "comment" or _is_device_header(item.node)
    while True:
        needed = launched | {word for item in items if item.kept for word in _needs(item)}
        found = [item for item in items if not item.kept and _wanted(item, needed)]
        for item in found:
            item.kept = True
        if not found:
            return


def _needs(item: _Item) -> Iterator[str]:
    if item.node.type == "comment":
        return
    yield from item.uses
    for parent in item.parents:
        for name in ("name", "condition"):
            if (head := parent.child_by_field_name(name)) is not None:
                yield from _words(head)


def _wanted(item: _Item, needed: frozenset[str]) -> bool:
    """Whether what is kept so far needs an item."""
    node = item.node
    if "main" in item.defines:
        return False
    if node.type == "using_declaration":
        of_device = item.uses & (needed | {"cooperative_groups", "nvcuda"})
        return bool(of_device) and not item.uses & {"std", "thrust", "cub"}
    if node.type == "preproc_call":  # #undef of a macro that is kept
        return _text(node).startswith("#undef") and bool(item.uses & needed)
    if node.type == "declaration" and not item.uses & {"__device__", "__global__"} and _is_prototype(node):
        return False
    return bool(item.defines & needed)


def _is_prototype(node) -> bool:
    return any(d.type == "function_declarator" for d in node.children_by_field_name("declarator"))


def _is_device_header(node) -> bool:
    return node.type == "preproc_include" and bool(DEVICE_HEADERS.match(_included(node)))


def _included(node) -> str:
    return _text(node.child_by_field_name("path")).strip('<>"')


# ---- the text that is left -------------------------------------------------------------------------------------------


def _blanked(data: bytes, root, items: list[_Item]) -> str:
    """The text with spaces for all that is not kept; on the first blank line, what a header would have declared."""
    holders = {parent.id: parent for item in items for parent in item.parents}
    alive = {parent.id for item in items if item.kept and item.node.type != "comment" for parent in item.parents}
    out = bytearray(data)
    for node in (*(i.node for i in items if not i.kept), *(n for key, n in holders.items() if key not in alive)):
        if node.type not in ("preproc_else", "preproc_elif", "preproc_elifdef"):
            _blank(out, data, node.start_byte, node.end_byte)
    text = "\n".join(line.rstrip() for line in out.decode(errors="replace").split("\n"))
    text = re.sub(r"(?m)^[ \t]*;[ \t]*$", "", text)  # what a struct or a class leaves behind
    return _with_stand_ins(text, [i for i in items if i.kept])


def _blank(out: bytearray, data: bytes, start: int, end: int) -> None:
    out[start:end] = bytes(b if b in b"\r\n" else 0x20 for b in data[start:end])


def _with_stand_ins(text: str, kept: list[_Item]) -> str:
    """Put what host headers would have declared on a blank line at the top, or before the first line of code."""
    used = frozenset(word for item in kept if item.node.type != "comment" for word in item.uses)
    defined = frozenset(name for item in kept for name in item.defines)
    declared = stand_ins(used - defined)
    if not declared:
        return text
    lines = text.split("\n")
    first_code = min((i.node.start_point[0] for i in kept if i.node.type != "comment"), default=0)
    blank = next((n for n in range(first_code) if not lines[n].strip()), None)
    if blank is not None:
        lines[blank] = declared
        return "\n".join(lines)
    return text if lines[0].lstrip().startswith(("#", "/*")) else f"{declared} {text}"


def _instances(items: list[_Item], launches: tuple[Launch, ...]) -> str:
    """Explicit instances of the template kernels that host code launches: NVRTC compiles no template by itself."""
    templates = {_kernel_name(i.node): i.node for i in items if i.is_kernel and i.node.type == "template_declaration"}
    lines = []
    for launch in dict.fromkeys(launch.kernel for launch in launches if "<" in launch.kernel):
        name, arguments = launch.split("<", 1)
        if name not in templates:
            continue
        template = templates[name]
        parameters = _text(next(_walk(template, "function_declarator")).child_by_field_name("parameters"))
        for parameter, value in zip(_template_parameters(template), arguments.rstrip("> ").split(","), strict=False):
            parameters = re.sub(rf"\b{re.escape(parameter)}\b", value.strip(), parameters)
        lines.append(f"template __global__ void {launch}{' '.join(parameters.split())};")
    return "".join(f"\n{line}" for line in lines)


def _template_parameters(template) -> list[str]:
    parameters = template.child_by_field_name("parameters").named_children
    return [_text(p.named_children[0]) if "type_parameter" in p.type else _declared(p) for p in parameters]


# ---- what the host code says -----------------------------------------------------------------------------------------


def _launch(call) -> Launch | None:
    how = next((c for c in call.children if c.type == "kernel_call_syntax"), None)
    if how is None:
        return None
    parts = [_text(c) for c in how.named_children]
    name = " ".join(_text(call.child_by_field_name("function")).split())
    return Launch(name, *[*parts, "", ""][:2], call.start_point[0] + 1)


def _library(call) -> str:
    """ "cublasSgemm (line 91)" for a call into a library, else ""."""
    function = call.child_by_field_name("function")
    found = next((w for w in _words(function) if LIBRARY.match(w)), "") if function is not None else ""
    if not found:
        return ""
    return f"{' '.join(_text(function).split())} (line {call.start_point[0] + 1})"


def _phrase(item: _Item) -> str:
    line = item.node.start_point[0] + 1
    if item.node.type == "preproc_include":
        return f"#include {_text(item.node.child_by_field_name('path'))} (line {line})"
    name = ", ".join(sorted(filter(None, item.defines))) or " ".join(_text(item.node).split())[:40]
    return f"{name} (line {line})"
