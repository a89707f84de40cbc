# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of a YAML text change, every other byte stays: comments, order, quotes, line breaks, other documents.

libyaml's nodes say where things stand. Every edit is proven: the new text is loaded, and must differ in the wanted
values only. A round trip through ruamel.yaml was tried: it loses trailing spaces, tabs, CRLF and the folding of texts.
"""

from __future__ import annotations

import yaml

from .containerd_edit import BOM, EditError, newline_of
from .manifests import Loader
from .yaml_literal import Value, block_lines, flow_text, scalar_text, step_of

_EMPTY = (None, "")


def load_yaml(text: str) -> dict:
    """Return the values of a text that holds one mapping, none for an empty one.

    :raises EditError: it is no YAML, or holds something else.
    """
    documents = load_documents(text)
    if len(documents) > 1:
        raise EditError(f"it is no YAML of one document: it holds {len(documents)}")
    values = documents[0] if documents else None
    if values is not None and not isinstance(values, dict):
        raise EditError(f"it holds a {type(values).__name__}, not a mapping")
    return values or {}


def load_documents(text: str) -> list:
    """Return every document of a text, the empty ones as None.

    :raises EditError: it is no YAML.
    """
    try:
        return list(yaml.load_all(text.removeprefix(BOM), Loader))
    except (yaml.YAMLError, ValueError) as error:
        raise EditError(f"it is no YAML: {' '.join(str(error).split())}") from error


def set_yaml(text: str, path: tuple[str, ...], value: Value) -> str:
    """Return the text, of one document, with a value at a path of mappings.

    :raises EditError: it cannot be put there without rewriting what stands there.
    """
    load_yaml(text)
    change: Value = value
    for name in reversed(path):
        change = {name: change}
    return edit_yaml(text, change)


def edit_yaml(text: str, changes: dict, *, document: int = 0) -> str:
    """Return the text with the values of a tree in one of its documents.

    :param changes: mappings are merged, lists replaced; None takes a key away.
    :raises EditError: it is no YAML, or cannot be edited without changing something else.
    """
    if text.startswith(BOM):
        return BOM + edit_yaml(text[1:], changes, document=document)
    try:
        expected = [_copied(tree) for tree in load_documents(text)] or [None]
    except RecursionError as error:
        raise EditError("it holds a mapping within itself") from error
    if not isinstance(expected[document] or {}, dict):
        raise EditError(f"it holds a {type(expected[document]).__name__}, not a mapping")
    expected[document] = expected[document] or {}
    edited = text
    for path, value in _leaves(changes):
        if _set(expected[document], path, value):
            edited = _edited(edited, document, path, value)
    if edited != text and not is_same(load_documents(edited) or [None], expected):
        raise EditError(f"{', '.join(changes)} cannot be set without changing something else")
    return edited


def is_same(one: object, other: object) -> bool:
    """Compare two values as YAML does: true is not 1. An empty mapping is nothing: so reads a key without a value."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if one in (None, {}) and other in (None, {}):
        return True
    return type(one) is type(other) and one == other


def _copied(tree):
    """Return a copy in which an alias is a value of its own."""
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    return [_copied(value) for value in tree] if isinstance(tree, list) else tree


def _leaves(changes: dict, above: tuple[str, ...] = ()):
    """Yield path and value of everything that changes."""
    for name, value in changes.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value


def _set(table: dict, path: tuple[str, ...], value: Value) -> bool:
    """Put a value into a tree, or take it away with None; return whether that changes it.

    :raises EditError: the path leads through something that is no mapping.
    """
    for name in path[:-1]:
        if not isinstance(table.get(name), dict):
            if table.get(name) not in _EMPTY:
                raise EditError(f"{'.'.join(path)}: {name} is no mapping")
            if value is None:
                return False
            table[name] = {}
        table = table[name]
    name = path[-1]
    if value is None:
        return table.pop(name, table) is not table
    if name in table and (is_same(table[name], value) or (value == {} and isinstance(table[name], dict))):
        return False
    table[name] = value
    return True


def _edited(text: str, document: int, path: tuple[str, ...], value: Value) -> str:
    """Return the text with one value, not proven yet."""
    roots = list(yaml.compose_all(text, Loader))
    root = roots[document] if roots else None
    node, key, parent = root, None, None
    for depth, name in enumerate(path):
        if not isinstance(node, yaml.MappingNode):
            return _filled(text, (key, node), path[depth:], value, step_of(root))
        pairs = [pair for pair in node.value if pair[0].value == name]
        if not pairs:
            return _added(text, node, path[depth:], value, step_of(root))
        # Of a key that is there twice the last one counts.
        parent, (key, node) = node, pairs[-1]
    if value is None:
        return _removed(text, parent, path[-1])
    return _replaced(text, node, key, value, step_of(root))


def _filled(text: str, pair: tuple, path: tuple[str, ...], value: Value, step: int) -> str:
    """Put a mapping where there is nothing yet: in an empty text, or in place of a value that is none."""
    key, node = pair
    if key is None:
        at = node.start_mark.index if node is not None else len(text)
        return _inserted(text, at, block_lines(path, value, 0, step))
    for name in reversed(path):
        value = {name: value}
    return _replaced(text, node, key, value, step)


def _added(text: str, node: yaml.MappingNode, path: tuple[str, ...], value: Value, step: int) -> str:
    """Put a key at the end of a mapping."""
    if not node.flow_style:
        column = node.value[0][0].start_mark.column
        return _inserted(text, _end(node), block_lines(path, value, column, step))
    for name in reversed(path[1:]):
        value = {name: value}
    is_json = not node.value or node.value[0][0].style == '"'
    pair = flow_text({path[0]: value}, is_json=is_json and bool(node.value))[1:-1]
    if not node.value:
        at = text.index("{", node.start_mark.index) + 1
        return text[:at] + pair + text[at:]
    at, first = _end(node, inside=True), node.value[-1][0].start_mark.index
    line = text[text.rfind("\n", 0, first) + 1 : first]
    between = newline_of(text) + line if not line.strip() and "\n" in text[:first] else " "
    return text[:at] + "," + between + pair + text[at:]


def _replaced(text: str, node: yaml.Node, key: yaml.Node, value: Value, step: int) -> str:
    """Put another value in place of a key's."""
    start, end = node.start_mark.index, _end(node)
    # A text of several lines ends behind its last line break.
    end = start + len(text[start:end].rstrip("\r\n"))
    is_json = key.style == '"'
    if isinstance(node, yaml.SequenceNode) and not node.flow_style and isinstance(value, list) and value:
        return _items_replaced(text, node, value)
    if isinstance(node, yaml.CollectionNode) and (not node.flow_style or not isinstance(value, (dict, list))):
        raise EditError(f"{key.value} is something else than what it would become")
    if start == end:
        if isinstance(value, (dict, list)) and value and not is_json:
            lines = block_lines((key.value,), value, key.start_mark.column, step)[1:]
            return _inserted(text, key.end_mark.index, lines)
        start = end = text.index(":", key.end_mark.index) + 1
        return f"{text[:start]} {flow_text(value, is_json=is_json)}{text[start:]}"
    if isinstance(value, (dict, list)):
        return text[:start] + flow_text(value, is_json=is_json) + text[end:]
    style = node.style if isinstance(node, yaml.ScalarNode) else None
    new = scalar_text(value, '"' if is_json and style is None else style, text[start:end])
    return text[:start] + new + text[end:]


def _items_replaced(text: str, node: yaml.SequenceNode, value: list) -> str:
    """Rewrite a list that has a line for each item; those that stay keep their lines, with comments."""
    starts = [text.rfind("\n", 0, item.start_mark.index) + 1 for item in node.value]
    end = _line_end(text, _end(node)) or len(text)
    known = {}
    for item, start, following in zip(node.value, starts, [*starts[1:], end], strict=True):
        if isinstance(item, yaml.ScalarNode):
            known[item.value] = _shortened(text[start:following])
    margin = " " * node.start_mark.column
    lines = [(known.get(item) if isinstance(item, str) else None) or f"{margin}- {flow_text(item)}" for item in value]
    last = text[end - 1] == "\n"
    newline = newline_of(text)
    return text[: starts[0]] + newline.join(lines) + (newline if last else "") + text[end:]


def _removed(text: str, node: yaml.MappingNode, name: str) -> str:
    """Take a key away, with the comment on its line."""
    for at in reversed([at for at, pair in enumerate(node.value) if pair[0].value == name]):
        key, value = node.value[at]
        start, end = key.start_mark.index, max(key.end_mark.index, _end(value))
        if node.flow_style:
            if at + 1 < len(node.value):
                end = node.value[at + 1][0].start_mark.index
            elif at:
                start = max(node.value[at - 1][0].end_mark.index, _end(node.value[at - 1][1]))
            text = text[:start] + text[end:]
            continue
        line = text.rfind("\n", 0, start) + 1
        if text[line:start].strip(" "):
            raise EditError(f"{name} cannot be removed: {text[line:start].strip()} stands before it on its line")
        text = text[:line] + text[_line_end(text, end) :] if _line_end(text, end) else _shortened(text[:line])
    return text


def _line_end(text: str, at: int) -> int:
    """Where the next line begins, 0 where the line of an offset is the last and has no line break."""
    return at if text[at - 1] == "\n" else text.find("\n", at) + 1


def _shortened(text: str) -> str:
    """Without the last line break: a text that had none at its end has none afterwards."""
    return text.removesuffix("\n").removesuffix("\r")


def _inserted(text: str, at: int, lines: list[str]) -> str:
    """Put lines below the line of an offset."""
    newline = newline_of(text)
    if at and text[at - 1] != "\n":
        line_end = text.find("\n", at)
        if line_end < 0:
            return text + newline + newline.join(lines)
        at = line_end + 1
    if at:
        newline = "\r\n" if text[:at].endswith("\r\n") else "\n"
    return text[:at] + "".join(line + newline for line in lines) + text[at:]


def _end(node: yaml.Node, *, inside: bool = False) -> int:
    """Return where a node's own text ends; libyaml counts what follows a block to it.

    :param inside: before the bracket that closes it.
    """
    if isinstance(node, yaml.ScalarNode) or (node.flow_style and not inside) or not node.value:
        return node.end_mark.index
    last = node.value[-1]
    if isinstance(last, tuple):
        key, value = last
        return max(key.end_mark.index, _end(value))
    return _end(last)
