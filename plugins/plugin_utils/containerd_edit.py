# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of a TOML text as splices: text that goes out and text that comes in at one place, every other byte stays.

Every edit is proven before it is returned: the new text is parsed, and must differ from the old one in the value that
was asked for and in nothing else.
"""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from typing import Any, NamedTuple

from ..module_utils.containerd_toml import Document, Entry, Header, scan

BOM = "\ufeff"
Value = str | int | bool | list[str] | list[list[str]]
_COMMA_AFTER = re.compile(r"[ \t]*,[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_COMMENTS = re.compile(r"(?:[ \t]*#[^\n]*(?:\n|\Z))*")
_BLANK_LINES = re.compile(r"(?:[ \t]*\r?\n)*")
_AFTER_BLANK_LINE = re.compile(r"\n[ \t]*\r?\n\Z")
_QUOTE = re.compile(r"[\"']")
_LINE_BREAK = re.compile(r"\r?\n")


class EditError(Exception):
    """The text cannot be edited in place; the reason says which table stands in the way."""


class Splice(NamedTuple):
    """At C(start), C(removed) is replaced with C(inserted). Offsets are characters of the text before the edit."""

    start: int
    removed: str
    inserted: str


@lru_cache(maxsize=16)
def parse(text: str) -> dict:
    """Return the values of a text, with a byte order mark or without; the same object for the same text.

    :raises tomllib.TOMLDecodeError: it is not TOML 1.0.
    """
    return tomllib.loads(text.removeprefix(BOM))


def set_value(text: str, table: tuple[str, ...], key: str, value: Value) -> list[Splice]:
    """Return the splices that give C(key) in C(table) a value, in the style of the text; none when it has it.

    :param table: empty for a key of the root.
    :raises EditError: the place cannot be reached without rewriting what stands there.
    """
    path = (*table, key)
    old = value_at(parse(text), path)
    if is_same(old, value):
        return []
    if isinstance(old, dict):
        raise EditError(f"{dotted(path)} is a table here")
    document = scan(text)
    entry = document.find(path)
    splice = _replacement(document, entry, value) if entry else _insertion(document, table, key, value)
    _prove(text, [splice], pruned(_changed(parse(text), path, value)), f"{dotted(path)} cannot be set")
    return [splice]


def value_at(tree: dict, path: tuple[str, ...]) -> Any:
    """Return what stands at a path, None when nothing does.

    :raises EditError: the path leads through something that is no table.
    """
    for depth, name in enumerate(path):
        if not isinstance(tree, dict):
            raise EditError(f"{dotted(path[:depth])} is not a table here")
        if name not in tree:
            return None
        tree = tree[name]
    return tree


def is_same(one: Any, other: Any) -> bool:
    """Compare two values as TOML does: true is not 1, and 1.0 is not 1."""
    return type(one) is type(other) and one == other


def remove_path(text: str, path: tuple[str, ...]) -> list[Splice]:
    """Return the splices that take away everything at and below a path, in order; none when there is nothing.

    Comments stay, as lines of their own: whose they are cannot be known. Of blank lines above and below what goes
    only those of one side stay.

    :raises EditError: something else would change.
    """
    document = scan(text)
    depth = len(path)
    items = [item for item in (*document.headers, *document.entries) if item.path[:depth] == path]
    lines = [(item.start, item.end) for item in items if isinstance(item, Header) or not item.inline]
    pairs = [
        _pair_span(document, item)
        for item in items
        if isinstance(item, Entry) and item.inline and not any(start <= item.start < end for start, end in lines)
    ]
    splices = [_without_lines(document, start, end) for start, end in _merged(sorted(lines), text)]
    for start, end in _merged(sorted(pairs)):
        splices += _without_pair(document, start, end)
    splices.sort()
    if splices:
        _prove(text, splices, pruned(_changed(parse(text), path, None)), f"{dotted(path)} cannot be removed")
    return splices


def _pair_span(document: Document, entry: Entry) -> tuple[int, int]:
    """Return the span of a pair inside an inline table, with one of the commas beside it."""
    text = document.text
    after = _COMMA_AFTER.match(text, entry.value_end)
    if after:
        return entry.start, after.end()
    before = re.search(r"\s*,\s*\Z", text[: entry.start])
    return (before.start() if before else entry.start), entry.value_end


def _merged(spans: list[tuple[int, int]], text: str = "") -> list[tuple[int, int]]:
    """Join spans that touch, in a text also those with only blank lines between: what goes as one is one splice."""
    joined: list[tuple[int, int]] = []
    for start, end in spans:
        if joined and (start <= joined[-1][1] or _BLANK_LINES.fullmatch(text, joined[-1][1], start)):
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _without_lines(document: Document, start: int, end: int) -> Splice:
    """Return the splice that takes whole lines away; a text that ends without a line break still does so."""
    text = document.text
    kept = _comment_lines(document, start, end)
    if kept:
        kept = kept.removesuffix(newline_of(text)) if end == len(text) and _is_open(text) else kept
        return Splice(start, text[start:end], kept)
    above = text[:start].rstrip(" \t\r\n")
    if end == len(text):
        line_break = _LINE_BREAK.search(text, len(above), start)
        start = len(above) if not above.strip(BOM) else line_break.start() if _is_open(text) else line_break.end()
    elif not above.strip(BOM) or _AFTER_BLANK_LINE.search(text[:start]):
        end = _BLANK_LINES.match(text, end).end()
    return Splice(start, text[start:end], "")


def _without_pair(document: Document, start: int, end: int) -> list[Splice]:
    """Return the splices that take a pair out of an inline table; comments in it go above the table's statement."""
    statement = next(item for item in document.entries if not item.inline and item.start <= start < item.end)
    kept = _comment_lines(document, start, end)
    above = [Splice(statement.start, "", kept)] if kept else []
    return [*above, Splice(start, document.text[start:end], "")]


def _comment_lines(document: Document, start: int, end: int) -> str:
    """Return the comments of a span, each as a line with the indentation of the one that it stood on."""
    text, newline = document.text, newline_of(document.text)
    return "".join(
        _indent(document, text.rfind("\n", 0, at) + 1) + text[at:to] + newline
        for at, to in document.comments
        if start <= at < end
    )


def pruned(tree: dict) -> dict:
    """Return values without empty tables: a table that only its sub-tables made is gone with them."""
    found = {key: pruned(value) if isinstance(value, dict) else value for key, value in tree.items()}
    return {key: value for key, value in found.items() if value != {}}


def apply_splices(text: str, splices: list[Splice]) -> str:
    """Return the text after the splices, which must be in order and not overlap."""
    parts, at = [], 0
    for splice in splices:
        if text[splice.start : splice.start + len(splice.removed)] != splice.removed or splice.start < at:
            raise EditError(f"the text at offset {splice.start} is not the one that the edit was made for")
        parts += [text[at : splice.start], splice.inserted]
        at = splice.start + len(splice.removed)
    return "".join([*parts, text[at:]])


def quote(value: str, mark: str = '"') -> str:
    """Return a TOML string, with the given quotes where the value allows it."""
    if mark == "'" and "'" not in value and value.isprintable():
        return f"'{value}'"
    escaped = "".join(
        f"\\u{ord(char):04x}" if ord(char) < 0x20 or char == "\x7f" else "\\" + char if char in '"\\' else char
        for char in value
    )
    return f'"{escaped}"'


def literal(value: Value, mark: str = '"') -> str:
    """Return a value as TOML, strings with the given quotes where they allow it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(literal(item, mark) for item in value)}]"
    return quote(value, mark) if isinstance(value, str) else str(value)


def newline_of(text: str) -> str:
    """Return the line break that the text uses, judged by its first one."""
    match = _LINE_BREAK.search(text)
    return match.group() if match else "\n"


def _prove(text: str, splices: list[Splice], expected: dict, failure: str) -> None:
    """Parse the edited text and compare it, empty tables aside.

    :raises EditError: it differs; the text says C(failure) and why.
    """
    try:
        edited = parse(apply_splices(text, splices))
    except tomllib.TOMLDecodeError as error:
        raise EditError(f"{failure} in place: {error}") from error
    if pruned(edited) != expected:
        raise EditError(f"{failure} without changing something else")


def _changed(tree: dict, path: tuple[str, ...], value: Value | None) -> dict:
    """Return values with another one at a path, None: with none there; what was given stays as it is."""
    name, *below = path
    if below:
        table = tree.get(name, {})
        if not isinstance(table, dict):
            raise EditError(f"{dotted((name,))} is not a table here")
        return {**tree, name: _changed(table, tuple(below), value)}
    rest = {key: item for key, item in tree.items() if key != name}
    return rest if value is None else {**rest, name: value}


def dotted(path: tuple[str, ...], mark: str = '"') -> str:
    """Return a path as a TOML key, parts quoted where they must be."""
    return ".".join(part if _BARE_KEY.fullmatch(part) else quote(part, mark) for part in path)


def _replacement(document: Document, entry: Entry, value: Value) -> Splice:
    old = document.value(entry)
    first = _QUOTE.search(old)
    return Splice(entry.value_start, old, literal(value, first.group() if first else '"'))


def _insertion(document: Document, table: tuple[str, ...], key: str, value: Value) -> Splice:
    """Find where a new key of the table goes: its own header, an inline table, dotted keys, or a new header."""
    if not table:
        return _at_root(document, key, value)
    header = next((item for item in document.headers if item.path == table and not item.is_array), None)
    if header:
        return _below_header(document, header, key, value)
    above = [table[:length] for length in range(len(table), 0, -1)]
    inline = next((entry for path in above if (entry := _inline_table(document, path))), None)
    if inline:
        return _in_inline_table(document, inline, table, key, value)
    beside = next((entry for path in above if (entry := _dotted_below(document, path))), None)
    if beside:
        return _beside_dotted(document, beside, table, key, value)
    return _new_table(document, table, key, value)


def _at_root(document: Document, key: str, value: Value) -> Splice:
    """Put a key of the root after the last one there, else at the beginning: below a header it would be of that."""
    own = [item for item in document.entries if not item.inline and not item.table]
    indent = _indent(document, own[-1].start) if own else ""
    at = own[-1].end if own else len(document.text) - len(document.text.removeprefix(BOM))
    return _line_at(document, at, indent + _pair(document, (key,), value))


def _pair(document: Document, keys: tuple[str, ...], value: Value) -> str:
    return f"{dotted(keys, _mark(document))} = {literal(value, _mark(document))}"


def _inline_table(document: Document, path: tuple[str, ...]) -> Entry | None:
    return next((item for item in document.entries if item.path == path and document.value(item)[0] == "{"), None)


def _dotted_below(document: Document, path: tuple[str, ...]) -> Entry | None:
    """Return the last statement whose dotted key makes the table at this path: no header may name that again."""
    found = None
    for entry in document.entries:
        if not entry.inline and len(entry.table) < len(path) < len(entry.path) and entry.path[: len(path)] == path:
            found = entry
    return found


def _below_header(document: Document, header: Header, key: str, value: Value) -> Splice:
    """Put the key after the last key of the table, with its indentation, or right below the header."""
    following = next((item.start for item in document.headers if item.start > header.start), len(document.text))
    own = [item for item in document.entries if not item.inline and header.end <= item.start < following]
    indent = _indent(document, own[-1].start) if own else _indent(document, header.start) + _step(document)
    return _line_at(document, own[-1].end if own else header.end, f"{indent}{_pair(document, (key,), value)}")


def _in_inline_table(document: Document, inline: Entry, table: tuple[str, ...], key: str, value: Value) -> Splice:
    body_at = inline.value_start + 1
    pair = _pair(document, (*table[len(inline.path) :], key), value)
    body = document.text[body_at : inline.value_end - 1]
    if not body.strip():
        return Splice(body_at, body, f" {pair} ")
    return Splice(body_at, "", f" {pair}," if body[0].isspace() else f" {pair}, ")


def _beside_dotted(document: Document, beside: Entry, table: tuple[str, ...], key: str, value: Value) -> Splice:
    relative = table[len(beside.table) :]
    shared = 0
    while (
        shared < min(len(relative), len(beside.keys) - 1)
        and beside.path[len(beside.table) + shared] == relative[shared]
    ):
        shared += 1
    spelt = ".".join([*beside.keys[:shared], dotted((*relative[shared:], key), _mark(document))])
    line = f"{_indent(document, beside.start)}{spelt} = {literal(value, _mark(document))}"
    return _line_at(document, beside.end, line)


def _new_table(document: Document, table: tuple[str, ...], key: str, value: Value) -> Splice:
    """Put a new table below the last one of the same plugin, else at the end of the text."""
    text, newline = document.text, newline_of(document.text)
    indent = _indent_of_table(document, table)
    header = f"[{dotted(table, _mark(document))}]"
    lines = f"{indent}{header}{newline}{indent}{_step(document)}{_pair(document, (key,), value)}"
    last = next((item for item in reversed(document.headers) if item.path[:2] == table[:2]), None)
    at = _section_end(document, last) if last else len(text)
    if at == len(text):
        return Splice(at, "", _gap(text, newline) + lines + ("" if _is_open(text) else newline))
    stands_apart = _AFTER_BLANK_LINE.search(text[: last.start])
    return Splice(at, "", (newline if stands_apart else "") + lines + newline)


def _indent_of_table(document: Document, table: tuple[str, ...]) -> str:
    """Return the indentation of a table beside it, else what is below its parent where tables are indented."""
    parents = {item.path: _indent(document, item.start) for item in reversed(document.headers)}
    beside = next((indent for path, indent in parents.items() if path[:-1] == table[:-1]), None)
    if beside is not None:
        return beside
    return parents[table[:-1]] + _step(document) if parents.get(table[:-1]) else ""


def _section_end(document: Document, header: Header) -> int:
    """Return where a table ends: after its last key, and the comments below that do not lead up to the next table."""
    following = next((item.start for item in document.headers if item.start > header.start), len(document.text))
    own = [item.end for item in document.entries if not item.inline and header.end <= item.start < following]
    at = max([header.end, *own])
    comments = _COMMENTS.match(document.text, at).end()
    return at if comments == following else comments


def prepend_version(text: str, version: int) -> Splice:
    """Return the splice that gives a text without any statement a configuration version, after its comments."""
    newline = newline_of(text)
    return Splice(
        len(text), "", f"{_gap(text, newline)}version = {version}{'' if _is_open(text.strip(BOM)) else newline}"
    )


def _is_open(text: str) -> bool:
    """Say whether the last line does not end: then the text keeps ending without a line break."""
    return bool(text) and not text.endswith("\n")


def _gap(text: str, newline: str) -> str:
    """Return what sets an appended block off with one blank line."""
    if not text.strip(BOM):
        return ""
    if _is_open(text):
        return newline * 2
    return "" if _AFTER_BLANK_LINE.search(text) else newline


def _line_at(document: Document, at: int, line: str) -> Splice:
    """Insert a whole line; a text that ends without a line break still does afterwards."""
    newline = newline_of(document.text)
    if at == len(document.text) and _is_open(document.text):
        return Splice(at, "", newline + line)
    return Splice(at, "", line + newline)


def _indent(document: Document, line_start: int) -> str:
    return re.compile(r"[ \t]*").match(document.text, line_start).group()


def _step(document: Document) -> str:
    """Return how much deeper than their header the keys of this text stand, judged by the first table below another."""
    for header in document.headers:
        if len(header.path) > 1:
            entry = next((item for item in document.entries if item.table == header.path and not item.inline), None)
            if entry:
                deeper = _indent(document, entry.start).removeprefix(_indent(document, header.start))
                return deeper if len(deeper) <= 8 else "  "
    return "  "


def _mark(document: Document) -> str:
    """Return the quotes of plugin names in this text."""
    parts = (part for header in document.headers for part in header.keys)
    return next((part[0] for part in parts if part[0] in "\"'"), '"')
