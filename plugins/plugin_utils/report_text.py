# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text from nodes, made fit for a report: nothing invisible, no secrets, the same words for the same thing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

NODE_NAME = "<node name>"
HIDDEN = "(hidden)"

# Control characters, direction marks and lone surrogates: a node must not repaint a terminal, reverse a line
# (CVE-2021-42574) or keep the report from being written as UTF-8.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
_SECRET_KEYS = {"content", "password", "token"}


def visible(value: object) -> str:
    """Return the value as text in which every invisible character but newline and tab is spelled out."""
    if not isinstance(value, str):
        value = "" if value is None else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    return _INVISIBLE.sub(lambda match: ascii(match[0])[1:-1], value)


def one_line(value: object) -> str:
    """Return a value's text on one line, each run of white space a blank: errors and reasons stand in sentences."""
    return " ".join(str(value).split())


def clean(value: object) -> object:
    """Return plain data with visible text; values of keys that name a secret are replaced."""
    if isinstance(value, Mapping):
        return {
            visible(key): HIDDEN if str(key).lower() in _SECRET_KEYS else clean(item) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float)) else visible(value)


def replace_names(text: str, names: Iterable[str]) -> str:
    """Return the text with a node's own names replaced, so that texts of several nodes compare equal."""
    for name in names:
        start = text.find(name) if name else -1
        while start >= 0:
            end = start + len(name)
            if not _in_word(text[start - 1 : start]) and not _in_word(text[end : end + 1]):
                text = text[:start] + NODE_NAME + text[end:]
                end = start + len(NODE_NAME)
            start = text.find(name, end)
    return text


def _in_word(character):
    return character.isalnum() or character in {"_", "-"}


def shown(raw: set, same: object) -> object:
    """Return what to show for a group: the text as it was when it is one, else the one with names replaced."""
    return next(iter(raw)) if len(raw) == 1 else same


def numbered(count: int, noun: str) -> str:
    """Return a count with its noun: 1 node, 2 nodes. The noun's plural takes an s."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def natural_key(name: str) -> list:
    """Sort key that puts node2 before node10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def duration_words(seconds: int) -> str:
    """Return a duration the way people say it, in its two largest units."""
    units = (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1))
    words = []
    for noun, size in units:
        amount, seconds = divmod(seconds, size)
        if amount or (noun == "second" and not words):
            words.append(numbered(amount, noun))
    return " ".join(words[:2])
