# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values as YAML text, in the style of what stood there before: quotes, spelling of booleans, indentation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import yaml

from .manifests import Loader

Value = str | bool | int | float | None | list | dict
_WORD = re.compile(r"[A-Za-z/](?:[A-Za-z0-9_./:-]*[A-Za-z0-9_/-])?")
# Durations and IPv4 addresses, which no reader takes for a number; other digits are quoted.
_NUMBERED = re.compile(r"(?:\d+(?:\.\d+)?(?:ns|us|ms|s|m|h))+|\d+\.\d+\.\d+\.\d+(?:[:/]\d+)?")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9._-]*\+?")
_BOOLEANS = (
    "true false",
    "True False",
    "TRUE FALSE",
    "yes no",
    "Yes No",
    "YES NO",
    "on off",
    "On Off",
    "ON OFF",
    "y n",
)
_PRINTABLE = re.compile(r"[ -~]*")


def scalar_text(value: str | bool | int | float, style: str | None = None, old: str = "") -> str:
    """Return a value as it is written in place of another.

    :param style: the quote of what stood there, None without. :param old: its text: of booleans the spelling is kept.
    """
    if isinstance(value, bool):
        pair = next((each.split() for each in _BOOLEANS if old in each.split()), ("true", "false"))
        return pair[0] if value else pair[1]
    if not isinstance(value, str):
        return json.dumps(value)
    if style == "'" and _PRINTABLE.fullmatch(value):
        return "'" + value.replace("'", "''") + "'"
    is_plain = style != '"' and (_NUMBERED.fullmatch(value) or (_WORD.fullmatch(value) and _is_text(value)))
    return value if is_plain else json.dumps(value, ensure_ascii=False)


def _is_text(word: str) -> bool:
    """Whether a word without quotes is a text: no, on and null are not."""
    return yaml.load(word, Loader) == word  # noqa: S506 - a SafeLoader


def flow_text(value: Value, *, is_json: bool = False) -> str:
    """Return a value on one line, its mappings in braces.

    :param is_json: as JSON, with every key in quotes.
    """
    if isinstance(value, dict):
        pairs = (f"{_key(key, is_json)}: {flow_text(inner, is_json=is_json)}" for key, inner in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow_text(item, is_json=True) for item in value) + "]"
    return scalar_text(value, '"' if is_json else None)


def block_lines(path: tuple[str, ...], value: Value, column: int, step: int) -> list[str]:
    """Return the lines of a value below its keys, the first key at a column."""
    keys = [_key(name, False) for name in path]
    lines = [f"{' ' * (column + step * depth)}{key}:" for depth, key in enumerate(keys)]
    inner = column + step * len(path)
    if isinstance(value, dict) and value:
        return [*lines, *_children(value, inner, step)]
    if isinstance(value, list) and value:
        return [*lines, *(f"{' ' * inner}- {_item(item)}" for item in value)]
    return [*lines[:-1], f"{lines[-1]} {flow_text(value)}"]


def _children(value: dict, column: int, step: int) -> Iterator[str]:
    for name, inner in value.items():
        yield from block_lines((name,), inner, column, step)


def _item(value: Value) -> str:
    return scalar_text(value) if not isinstance(value, (dict, list)) else flow_text(value)


def _key(name: str, is_json: bool) -> str:
    is_plain = not is_json and _KEY.fullmatch(name) and _is_text(name)
    return name if is_plain else json.dumps(name, ensure_ascii=False)


def step_of(root: yaml.Node | None) -> int:
    """Return by how much a document indents its mappings, 2 where it has none."""
    for key, value in root.value if isinstance(root, yaml.MappingNode) and not root.flow_style else ():
        if isinstance(value, yaml.MappingNode) and not value.flow_style and value.value:
            step = value.value[0][0].start_mark.column - key.start_mark.column
            if step > 0:
                return step
    return 2
