# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where every table header, key and value of a TOML 1.0 document lies (https://toml.io/en/v1.0.0).

An edit that keeps every other byte needs offsets, which no parser gives: C(tomllib) has none and is not on nodes with
Python below 3.11, and rewriting through a document model moves comments. The scanner finds places and checks only as
much of the grammar as that needs; the controller parses the same text with C(tomllib) before and after an edit.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRINGS = (
    re.compile(r'"""(?:\\.|[^\\])*?""""{0,2}', re.DOTALL),
    re.compile(r"'''.*?''''{0,2}", re.DOTALL),
    re.compile(r'"(?:\\.|[^"\\\r\n])*"'),
    re.compile(r"'[^'\r\n]*'"),
)
_SCALAR = re.compile(r"[^\s,\]}#]+(?: \d\d:[^\s,\]}#]*)?")  # a date may have a space before its time
_BLANK = re.compile(r"[ \t]*")
# Nearly all lines of a real configuration are of these two forms: one match for the line instead of one for each part.
_PLAIN_PART = r"""[A-Za-z0-9_-]+|"[^"\\\r\n]*"|'[^'\r\n]*'"""
_PLAIN_PARTS = re.compile(_PLAIN_PART)
_PLAIN_END = r"[ \t]*(?P<comment>#[^\r\n]*)?(?:\r?\n|\r?\Z)"
_PLAIN_HEADER = re.compile(rf"[ \t]*\[((?:{_PLAIN_PART})(?:\.(?:{_PLAIN_PART}))*)\]{_PLAIN_END}")
_PLAIN_PAIR = re.compile(
    r"""[ \t]*([A-Za-z0-9_-]+)[ \t]*=[ \t]*("[^"\\\r\n]*"(?!")|'[^'\r\n]*'(?!')|[A-Za-z0-9_+.-]+)""" + _PLAIN_END
)
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_COMMENT = re.compile(r"#[^\r\n]*")
_LINE_END = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\r?\n|\r?\Z)")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(\r?\n\s*)|(.))", re.DOTALL)
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b", '"': '"', "\\": "\\"}


class ScanError(Exception):
    """The text is not TOML: C(line) (from 1) and C(reason)."""

    def __init__(self, text, offset, reason):
        self.line = text.count("\n", 0, offset) + 1
        self.reason = reason
        super().__init__(f"line {self.line}: {reason}")


class Header(NamedTuple):
    """A C([table]) or C([[table]]) line; offsets span the whole line with its newline."""

    path: tuple[str, ...]
    is_array: bool
    start: int
    end: int
    keys: tuple[str, ...]


class Entry(NamedTuple):
    """A key with its value.

    C(table) is the path of the header above, C(path) the full path, C(keys) the key as it is spelt, part by part.
    C(start) and C(end) span the statement's lines with the newline; inside an inline table, key and value only.
    """

    table: tuple[str, ...]
    path: tuple[str, ...]
    keys: tuple[str, ...]
    start: int
    key_start: int
    value_start: int
    value_end: int
    end: int
    inline: bool


class Document(NamedTuple):
    """The places of one document; entries in order of the text, an inline table before what it contains.

    C(comments) are spans from the mark to the end of the line, which is not in it.
    """

    text: str
    headers: list[Header]
    entries: list[Entry]
    comments: list[tuple[int, int]]

    def value(self, entry):
        """Return the source text of an entry's value."""
        return self.text[entry.value_start : entry.value_end]

    def find(self, path):
        """Return the first entry with this full path, or None."""
        return next((entry for entry in self.entries if entry.path == path), None)


class _Scanner:
    def __init__(self, text):
        self.text = text
        self.at = 1 if text.startswith("\ufeff") else 0
        self.headers = []
        self.entries = []
        self.comments = []

    def fail(self, reason):
        raise ScanError(self.text, self.at, reason)

    def take(self, pattern):
        match = pattern.match(self.text, self.at)
        if not match:
            return None
        self.at = match.end()
        return match.group()

    def skip(self, pattern):
        """Take blanks, line breaks and comments, and say whether they are there."""
        start = self.at
        taken = self.take(pattern)
        if taken and "#" in taken:
            self.comments += [(start + item.start(), start + item.end()) for item in _COMMENT.finditer(taken)]
        return taken is not None

    def expect(self, mark, where):
        if not self.text.startswith(mark, self.at):
            found = self.text[self.at : self.at + 1]
            self.fail(f"expected {mark!r} {where}, found {repr(found) if found else 'the end'}")
        self.at += len(mark)

    def key(self):
        """Return the parts of a dotted key as (decoded, as spelt)."""
        decoded, spelt = [], []
        while True:
            self.take(_BLANK)
            part = self.take(_BARE_KEY)
            if part is None:
                part = self.take(_STRINGS[2]) or self.take(_STRINGS[3])
                if part is None:
                    self.fail(f"expected a key, found {self.text[self.at : self.at + 1]!r}")
            decoded.append(decode_string(part) if part[0] in "\"'" else part)
            spelt.append(part)
            self.take(_BLANK)
            if not self.text.startswith(".", self.at):
                return tuple(decoded), tuple(spelt)
            self.at += 1

    def value(self, table, path, inline):
        """Move past one value; record the entries of inline tables that are not inside an array."""
        mark = self.text[self.at : self.at + 1]
        if mark == "{":
            self.inline_table(table, path, inline)
        elif mark == "[":
            self.at += 1
            self.items("]", lambda: self.value(table, None, True))
        elif mark in ('"', "'"):
            if not any(self.take(pattern) for pattern in _STRINGS):
                self.fail("a string does not end")
        elif not self.take(_SCALAR):
            self.fail("expected a value")

    def items(self, closing, item):
        """Move past comma-separated items up to and with the closing mark."""
        self.skip(_SPACE)
        while not self.text.startswith(closing, self.at):
            item()
            self.skip(_SPACE)
            if not self.text.startswith(closing, self.at):
                self.expect(",", f"or {closing!r} after an item")
                self.skip(_SPACE)
        self.at += len(closing)

    def inline_table(self, table, path, inline):
        self.at += 1
        self.items("}", lambda: self.pair(table, path, True))

    def pair(self, table, prefix, inline):
        """Read C(key = value) and record it; a prefix of None is below an array, where no path leads."""
        start = self.at
        decoded, spelt = self.key()
        self.expect("=", "after a key")
        self.take(_BLANK)
        path = None if prefix is None else prefix + decoded
        index = len(self.entries)
        value_start = self.at
        self.value(table, path, inline)
        if path is not None:
            entry = Entry(table, path, spelt, start, start, value_start, self.at, self.at, inline)
            self.entries.insert(index, entry)
        return index

    def plain_line(self, table):
        """Read a table header or a pair of the usual form, and return the table that holds then; None: no such line."""
        start = self.at
        pair = _PLAIN_PAIR.match(self.text, start)
        if pair:
            self.at, key = pair.end(), pair.group(1)
            places = start, pair.start(1), pair.start(2), pair.end(2), self.at
            self.entries.append(Entry(table, (*table, key), (key,), *places, False))
            self.add_comment(pair)
            return table
        header = _PLAIN_HEADER.match(self.text, start)
        if not header:
            return None
        self.at, spelt = header.end(), tuple(_PLAIN_PARTS.findall(header.group(1)))
        decoded = tuple(part[1:-1] if part[0] in "\"'" else part for part in spelt)
        self.headers.append(Header(decoded, False, start, self.at, spelt))
        self.add_comment(header)
        return decoded

    def add_comment(self, line):
        if line.group("comment"):
            self.comments.append(line.span("comment"))

    def statement(self, table):
        line_start = self.at
        self.take(_BLANK)
        key_start = self.at
        index = self.pair(table, table, False)
        self.line_end()
        self.entries[index] = self.entries[index]._replace(start=line_start, key_start=key_start, end=self.at)

    def header(self):
        line_start = self.at
        self.take(_BLANK)
        is_array = self.text.startswith("[[", self.at)
        self.at += 2 if is_array else 1
        decoded, spelt = self.key()
        self.expect("]]" if is_array else "]", "after a table's name")
        self.line_end()
        self.headers.append(Header(decoded, is_array, line_start, self.at, spelt))
        return decoded

    def line_end(self):
        if not self.skip(_LINE_END):
            self.fail(f"expected the end of the line, found {self.text[self.at : self.at + 1]!r}")

    def run(self):
        table = ()
        while self.at < len(self.text):
            plain = self.plain_line(table)
            if plain is not None:
                table = plain
                continue
            if self.skip(_LINE_END):
                continue
            if self.text[_BLANK.match(self.text, self.at).end()] == "[":
                table = self.header()
            else:
                self.statement(table)
        return Document(self.text, self.headers, self.entries, self.comments)


@lru_cache(maxsize=16)
def scan(text: str) -> Document:
    """Return the places of a document; the same object for the same text, so not to be changed.

    :raises ScanError: where the text stops being TOML as far as finding places needs to know.
    """
    return _Scanner(text).run()


def decode_string(source: str) -> str:
    """Return the value of a TOML string of any of the four kinds, given with its quotes."""
    quotes = 3 if source[:3] in ('"""', "'''") else 1
    body = source[quotes:-quotes]
    if quotes == 3:
        body = re.sub(r"\A\r?\n", "", body)
    if source[0] == "'":
        return body
    return _ESCAPE.sub(_unescape, body)


def _unescape(match):
    if match.group(1) or match.group(2):
        return chr(int(match.group(1) or match.group(2), 16))
    return "" if match.group(3) else _ESCAPED.get(match.group(4), match.group(4))


def strings_in(source):
    # type: (str) -> Optional[list[str]]
    """Return the strings of a one-level array of strings given as source text, or None when it is something else."""
    scanner = _Scanner(source)
    found = []

    def item():
        literal = next(filter(None, map(scanner.take, _STRINGS)), None)
        if literal is None:
            scanner.fail("expected a string")
        found.append(decode_string(literal))

    try:
        scanner.expect("[", "before an array")
        scanner.items("]", item)
    except ScanError:
        return None
    return found
