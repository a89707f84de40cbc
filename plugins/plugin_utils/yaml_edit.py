# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One value of a YAML text changes, every other byte stays: comments, order, quotes, line breaks.

PyYAML's nodes say where things stand. Every edit is proven: the new text is loaded, and must differ in that value only.
"""

from __future__ import annotations

import json
import re

import yaml

from .containerd_edit import EditError, newline_of

Value = str | bool | list[str]
# Addresses and paths; words such as no and on mean something else without quotes.
_PLAIN = re.compile(r"(?=.*/)[A-Za-z/][A-Za-z0-9./_:-]*[A-Za-z0-9/_-]")
_PLAIN_KEY = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")


def load_yaml(text: str) -> dict:
    """Return the values of a text that holds one mapping, none for an empty one.

    :raises EditError: it is no YAML, or holds something else.
    """
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise EditError(f"it is no YAML: {' '.join(str(error).split())}") from error
    if values is not None and not isinstance(values, dict):
        raise EditError(f"it holds a {type(values).__name__}, not a mapping")
    return values or {}


def set_yaml(text: str, path: tuple[str, ...], value: Value) -> str:
    """Return the text with a value at a path of mappings.

    :raises EditError: it cannot be put there without rewriting what stands there.
    """
    expected = _copied(load_yaml(text))
    table = expected
    for name in path[:-1]:
        if not isinstance(table.get(name), dict):
            if table.get(name) is not None:
                raise EditError(f"{'.'.join(path)}: {name} is no mapping")
            table[name] = {}
        table = table[name]
    if table.get(path[-1]) == value:
        return text
    table[path[-1]] = value
    edited = _edited(text, path, value)
    if load_yaml(edited) != expected:
        raise EditError(f"{'.'.join(path)} cannot be set without changing something else")
    return edited


def _copied(tree):
    """Return a copy in which an alias is a value of its own."""
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    return [_copied(value) for value in tree] if isinstance(tree, list) else tree


def _edited(text: str, path: tuple[str, ...], value: Value) -> str:
    """Return the text with the value, not proven yet."""
    node, key = yaml.compose(text, Loader=yaml.SafeLoader), None
    for depth, name in enumerate(path):
        if not isinstance(node, yaml.MappingNode):
            return _filled(text, node, key, path[depth:], value)
        if node.flow_style:
            raise EditError(f"{'.'.join(path[:depth]) or 'the root'} is written in braces, which cannot be added to")
        found = next((pair for pair in node.value if pair[0].value == name), None)
        if found is None:
            at = node.value[0][0].start_mark.column
            return _inserted(text, _end(node), _lines(path[depth:], value, at))
        key, node = found
    return _replaced(text, node, key, value)


def _filled(text: str, node: yaml.Node | None, key: yaml.Node | None, path: tuple[str, ...], value: Value) -> str:
    """Put a mapping where there is nothing yet: in an empty text, or below a key without a value."""
    if key is None:
        return _inserted(text, len(text), _lines(path, value, 0))
    if text[node.start_mark.index : node.end_mark.index]:
        raise EditError(f"{key.value} is written as {text[node.start_mark.index : node.end_mark.index]}")
    return _inserted(text, key.end_mark.index, _lines(path, value, key.start_mark.column + 2))


def _replaced(text: str, node: yaml.Node, key: yaml.Node, value: Value) -> str:
    start, end = node.start_mark.index, _end(node)
    if isinstance(value, list) and isinstance(node, yaml.SequenceNode) and not node.flow_style:
        lines = [f"{' ' * node.start_mark.column}- {_literal(item)}" for item in value]
        return text[:start] + newline_of(text).join(lines).lstrip(" ") + text[end:]
    if isinstance(node, yaml.MappingNode) or (isinstance(value, list) != isinstance(node, yaml.SequenceNode)):
        raise EditError(f"{key.value} is something else than what it would become")
    new = f"[{', '.join(map(json.dumps, value))}]" if isinstance(value, list) else _literal(value)
    return text[:start] + new + text[end:]


def _lines(path: tuple[str, ...], value: Value, column: int) -> list[str]:
    """Return the lines of a value below its keys, the first key at a column."""
    keys = [name if _PLAIN_KEY.fullmatch(name) else json.dumps(name) for name in path]
    lines = [f"{' ' * (column + 2 * depth)}{key}:" for depth, key in enumerate(keys)]
    if isinstance(value, list):
        return [*lines, *(f"{' ' * (column + 2 * len(path))}- {_literal(item)}" for item in value)]
    return [*lines[:-1], f"{lines[-1]} {_literal(value)}"]


def _inserted(text: str, at: int, lines: list[str]) -> str:
    """Put lines below the line of an offset."""
    newline = newline_of(text)
    if at and text[at - 1] != "\n":
        line_end = text.find("\n", at)
        if line_end < 0:
            return text + newline + newline.join(lines)
        at = line_end + 1
    return text[:at] + "".join(line + newline for line in lines) + text[at:]


def _end(node: yaml.Node) -> int:
    """Return where a node's own text ends; PyYAML counts what follows a block to it."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return node.end_mark.index
    last = node.value[-1]
    if isinstance(last, tuple):
        key, value = last
        return max(key.end_mark.index, _end(value))
    return _end(last)


def _literal(value: str | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if _PLAIN.fullmatch(value) else json.dumps(value)
