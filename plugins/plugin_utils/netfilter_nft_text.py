# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules of C(nft -j) as the text that C(nft list ruleset) would show, to be quoted as evidence."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_marks_nft import mark_space

_OPERATORS = ("&", "|", "^", "<<", ">>")


def _text_of_reading(key: str, inner: dict) -> str:
    """C(meta mark), C(ct state), C(ip saddr): what an expression reads from the packet."""
    names = [inner.get("protocol"), inner.get("field")] if key == "payload" else [key, inner.get("key")]
    return " ".join(str(name) for name in names if name)


_EXPRESSIONS: dict[str, tuple[type, Callable[[str, Any], str]]] = {
    **{key: (list, lambda key, inner: f" {key} ".join(_operand(item) for item in inner)) for key in _OPERATORS},
    **dict.fromkeys(("meta", "ct", "payload"), (dict, _text_of_reading)),
    **{key: (dict, lambda key, inner: f"{key} {inner.get('target')}") for key in ("jump", "goto")},
    "prefix": (dict, lambda _, inner: f"{inner.get('addr')}/{inner.get('len')}"),
    "set": (list, lambda _, inner: f"{{ {', '.join(text_of(item) for item in inner)} }}"),
    "concat": (list, lambda _, inner: " . ".join(text_of(item) for item in inner)),
}


def text_of(value: object) -> str:
    """An expression of the JSON as nft would write it, near enough to be read as evidence."""
    if isinstance(value, dict) and len(value) == 1:
        ((key, inner),) = value.items()
        kind, render = _EXPRESSIONS.get(key, (dict, None))
        if render and isinstance(inner, kind):
            return render(key, inner)
        return f"{key} {text_of(inner)}".strip()
    if isinstance(value, list):
        return " : ".join(text_of(item) for item in value)
    if isinstance(value, (str, int)):
        return str(value)
    return "" if value is None else json.dumps(value, sort_keys=True)


def _operand(value: object) -> str:
    return f"{value:#x}" if isinstance(value, int) and not isinstance(value, bool) else text_of(value)


def _text_of_match(inner: dict) -> str:
    operator, left, right = inner.get("op"), inner.get("left"), inner.get("right")
    shown = _operand(right) if mark_space(left) else text_of(right)
    # A comparison of masked bits reads wrong without its operator; otherwise nft leaves it out.
    is_bare = operator in ("==", "in") and not (isinstance(left, dict) and "&" in left)
    return f"{text_of(left)} {shown}" if is_bare else f"{text_of(left)} {operator} {shown}"


_STATEMENTS: dict[str, Callable[[dict], str]] = {
    "counter": lambda _: "",
    "match": _text_of_match,
    "mangle": lambda inner: f"{text_of(inner.get('key'))} set {_operand(inner.get('value'))}",
    "xt": lambda inner: f'xt {inner.get("type")} "{inner.get("name")}"',
    "vmap": lambda inner: f"{text_of(inner.get('key'))} vmap {text_of(inner.get('data'))}",
    "reject": lambda inner: f"reject with {inner.get('type')} {inner.get('expr')}",
}


def text_of_statement(key: str, inner: object) -> str:
    """One statement of a rule as text; counters are left out."""
    render = _STATEMENTS.get(key)
    return render(inner) if render and isinstance(inner, dict) else text_of({key: inner})
