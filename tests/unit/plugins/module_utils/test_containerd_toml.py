# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import string
import tomllib

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import containerd_toml
from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_toml import (
    ScanError,
    decode_string,
    scan,
    strings_in,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.plugins.plugin_utils.containerd_samples import documents


def leaves(tree, path=()):
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, key))
        elif not isinstance(value, dict):
            yield (*path, key), value


def found_strings(document):
    return {
        entry.path: decode_string(document.value(entry))
        for entry in document.entries
        if document.value(entry)[0] in "\"'"
    }


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("# only a comment", id="comment-without-newline"),
        pytest.param("version = 2", id="no-final-newline"),
        pytest.param("\ufeffversion = 2\r\n[a]\r\nb = 'c'\r\n", id="bom-and-crlf"),
        pytest.param('[plugins."io.containerd.grpc.v1.cri".registry]\nconfig_path = "/a" # why\n', id="quoted-header"),
        pytest.param("[plugins.'io.containerd.grpc.v1.cri']\n  registry.config_path = '/a'\n", id="dotted-key"),
        pytest.param('[ a . "b" ]\nc.d . e = "f"\n', id="spaces-around-dots"),
        pytest.param('a = { b = "c", d = { e = "f" } }\n', id="inline-tables"),
        pytest.param('a = [\n  "x", # one\n  "y",\n]\nb = "z"\n', id="array-over-lines"),
        pytest.param("a = [[1, 2], [\"}\", ']']]\nb = 'c'\n", id="brackets-in-strings"),
        pytest.param('a = """one\n"two" \\""" still"""\nb = "c"\n', id="multi-line-basic"),
        pytest.param("a = '''x''''\nb = 'c'\n", id="multi-line-literal-ending-in-a-quote"),
        pytest.param('a = """""\nb = 1"""""\nc = "d"\n', id="multi-line-ending-in-two-quotes"),
        pytest.param('a = "\\u00e9\\t\\"#"\n', id="escapes"),
        pytest.param("a = 1979-05-27 07:32:00 # date\nb = 'c'\n", id="date-with-a-space"),
        pytest.param("a = 0x1F\nb = inf\nc = 1e3\nd = 'e'\n", id="numbers"),
        pytest.param("[[a.b]]\nc = 'd'\n[e]\nf = 'g'\n", id="array-of-tables"),
    ],
)
def test_scan_finds_what_a_parser_finds(text):
    """Every string value lies where the scanner says, under the path that tomllib gives it."""
    parsed = dict(leaves(tomllib.loads(text.removeprefix("\ufeff"))))
    expected = {path: value for path, value in parsed.items() if isinstance(value, str)}
    document = scan(text)

    found = {
        path: value for path, value in found_strings(document).items() if path[:2] != ("a", "b") or path in expected
    }

    assert found == expected


def test_statement_spans_whole_lines():
    """A statement's lines, with comment and newline, are what is cut out when it goes."""
    text = "[t]\r\n  a = 1 # why\r\nb = [\r\n 2,\r\n]\r\n"
    document = scan(text)

    assert [text[item.start : item.end] for item in document.entries] == ["  a = 1 # why\r\n", "b = [\r\n 2,\r\n]\r\n"]
    assert [text[item.start : item.end] for item in document.headers] == ["[t]\r\n"]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        pytest.param("a = 1\nb = {{ x }}\n", 2, "expected a key, found '{'", id="template-value"),
        pytest.param("a = 1\n{% if x %}\n", 2, "expected a key, found '{'", id="template-line"),
        pytest.param("a = 1 b = 2\n", 1, "expected the end of the line", id="two-on-a-line"),
        pytest.param('a = "x\n', 1, "a string does not end", id="open-string"),
        pytest.param("a = [1, 2\n", 2, "or ']' after an item", id="open-array"),
        pytest.param("a =\n", 1, "expected a value", id="no-value"),
        pytest.param("a\n", 1, "expected '=' after a key", id="no-equals"),
        pytest.param("[a\n", 1, "expected ']' after a table's name", id="open-header"),
    ],
)
def test_scan_names_the_line(text, line, reason):
    """What is not TOML is refused with its line."""
    with pytest.raises(ScanError) as caught:
        scan(text)

    assert caught.value.line == line
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("[\"/etc/a.toml\", '/b/*.toml']", ["/etc/a.toml", "/b/*.toml"], id="both-quotes"),
        pytest.param('[\n  "a", # one\n]', ["a"], id="over-lines"),
        pytest.param("[]", [], id="empty"),
        pytest.param("[1]", None, id="numbers"),
        pytest.param('"a"', None, id="a-string"),
    ],
)
def test_strings_in(source, expected):
    """Imports are read without a parser; anything but an array of strings is none."""
    assert strings_in(source) == expected


@given(st.text(alphabet=string.printable + "é\ufeff", max_size=60))
def test_scan_of_anything_ends(text):
    """No text brings anything but a document or a ScanError, and what tomllib accepts is never refused."""
    try:
        scan(text)
    except ScanError:
        with pytest.raises(tomllib.TOMLDecodeError):
            tomllib.loads(text.removeprefix("\ufeff"))


class Slow(containerd_toml._Scanner):
    def plain_line(self, table):
        return None


@given(documents())
def test_lines_of_the_usual_form_are_read_as_all_others(text):
    """The short way gives what the long one does."""
    assert scan(text) == Slow(text).run()


@pytest.mark.parametrize(
    ("text", "comments"),
    [
        pytest.param('a = "#" # b # c\r\n', ["# b # c"], id="beside-a-pair-in-crlf"),
        pytest.param("[a] # b", ["# b"], id="beside-a-header-without-newline"),
        pytest.param("# a\n  # b\n", ["# a", "# b"], id="lines"),
        pytest.param("a = [ # b\n '#', # c\n]\n", ["# b", "# c"], id="in-an-array"),
        pytest.param('a = """\n# no\n"""\n', [], id="in-a-string"),
    ],
)
def test_comments(text, comments):
    """Comments are found where they are some, without the end of their line."""
    assert [text[start:end] for start, end in scan(text).comments] == comments
