# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calico's selectors, such as C(has(zone) && rack in {'a', 'b'}), against a node's labels.

Source: projectcalico/calico, libcalico-go/lib/selector/parser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_TOKEN = re.compile(
    r"\s*(?:(?P<text>\"[^\"]*\"|'[^']*')|(?P<call>all\(\s*\)|global\(\s*\))|(?P<has>has\(\s*(?P<key>[\w./-]+)\s*\))"
    r"|(?P<word>not\s+in\b|starts\s+with\b|ends\s+with\b|(?:in|contains)\b(?![\w./-]))|(?P<sign>&&|\|\||==|!=|[!(){},])"
    r"|(?P<label>[\w./-]+))"
)
_COMPARE = {
    "==": lambda have, want: have == want,
    "!=": lambda have, want: have != want,
    "contains": lambda have, want: have is not None and want in have,
    "starts with": lambda have, want: have is not None and have.startswith(want),
    "ends with": lambda have, want: have is not None and have.endswith(want),
}


class SelectorError(ValueError):
    """The text is no selector; the message names the place."""


def selector_matches(text: str, labels: Mapping[str, str]) -> bool:
    """Whether the labels match; an empty selector matches all.

    :raises SelectorError: the text is no selector.
    """
    if not text.strip():
        return True
    reader = _Reader(text, labels)
    result = reader.either()
    if reader.tokens:
        raise SelectorError(f"{text!r}: {reader.tokens[0][1]!r} is not expected there")
    return result


class _Reader:
    """A recursive descent over the tokens; || binds less than &&."""

    def __init__(self, text: str, labels: Mapping[str, str]) -> None:
        self.text, self.labels = text, labels
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if not match:
                raise SelectorError(f"{text!r}: position {at + 1} cannot be read")
            kind = match.lastgroup if match.lastgroup != "key" else "has"
            value = match["key"] if kind == "has" else match[kind]
            self.tokens.append((kind, re.sub(r"\s+", " ", value) if kind == "word" else value))
            at = match.end()

    def take(self, *wanted: str) -> str:
        """Take the next token of one of these kinds, or one of these signs; "" when it is none."""
        if self.tokens and (self.tokens[0][0] in wanted or self.tokens[0][1] in wanted):
            return self.tokens.pop(0)[1]
        return ""

    def need(self, *wanted: str) -> str:
        found = self.take(*wanted)
        if not found:
            at = self.tokens[0][1] if self.tokens else "the end"
            raise SelectorError(f"{self.text!r}: {at!r} where {' or '.join(wanted)} is expected")
        return found

    def either(self) -> bool:
        result = self.both()
        while self.take("||"):
            other = self.both()
            result = result or other
        return result

    def both(self) -> bool:
        result = self.term()
        while self.take("&&"):
            other = self.term()
            result = result and other
        return result

    def term(self) -> bool:
        if self.take("!"):
            return not self.term()
        if self.take("("):
            result = self.either()
            self.need(")")
            return result
        if self.take("call"):
            return True
        if key := self.take("has"):
            return key in self.labels
        return self.comparison(self.labels.get(self.need("label")))

    def comparison(self, have: str | None) -> bool:
        operator = self.need("==", "!=", "word")
        if operator not in {"in", "not in"}:
            return _COMPARE[operator](have, self.need("text")[1:-1])
        self.need("{")
        values = [self.need("text")[1:-1]] if not self.take("}") else []
        while values and not self.take("}"):
            self.need(",")
            values.append(self.need("text")[1:-1])
        return (have in values) is (operator == "in")
