# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Words and numbers for people."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import (
    clean,
    duration_words,
    natural_key,
    numbered,
    replace_names,
    visible,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 seconds"),
        (1, "1 second"),
        (60, "1 minute"),
        (3661, "1 hour 1 minute"),
        (3601, "1 hour 1 second"),
        (90000, "1 day 1 hour"),
        (172800, "2 days"),
    ],
)
def test_duration_words(seconds, words):
    """A duration is told in its two largest units."""
    assert duration_words(seconds) == words


@pytest.mark.parametrize(("count", "words"), [(0, "0 nodes"), (1, "1 node"), (2, "2 nodes")])
def test_numbered(count, words):
    """A count agrees with its noun."""
    assert numbered(count, "node") == words


def test_natural_key_sorts_any_names():
    """Numbers in names count as numbers; names that begin with a digit are no fault."""
    names = ["node10", "node2", "10.0.0.9", "10.0.0.10", "a", ""]

    assert sorted(names, key=natural_key) == ["", "10.0.0.9", "10.0.0.10", "a", "node2", "node10"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (3, "3"),
        ({"b": 1, "a": "ä"}, '{"a": "ä", "b": 1}'),
        ("a\tb\nc", "a\tb\nc"),
        ("\x00\r\x7f\x9b\u200b\ufeff", "\\x00\\r\\x7f\\x9b\\u200b\\ufeff"),
    ],
)
def test_visible(value, text):
    """Everything becomes text, and nothing in it is invisible."""
    assert visible(value) == text


@given(st.text(st.characters(categories=None)))
def test_visible_text_can_always_be_written(text):
    """Whatever a node sends is UTF-8 afterwards and printable apart from newline and tab."""
    shown = visible(text)

    shown.encode()
    assert not {ord(character) for character in shown} & ({*range(32), *range(127, 160)} - {9, 10})


def test_clean_hides_by_key_at_any_depth():
    """Only the values go; the keys tell that something was there."""
    assert clean({"a": [{"password": {"x": 1}}], "n": 1.5, "t": (True, None)}) == {
        "a": [{"password": "(hidden)"}],
        "n": 1.5,
        "t": [True, None],
    }


@pytest.mark.parametrize(
    ("text", "names", "replaced"),
    [
        ("on n1: n1.example, n10, an1, n1-x", ["n1"], "on <node name>: <node name>.example, n10, an1, n1-x"),
        ("10.0.0.1/24 110.0.0.1 10.0.0.11", ["10.0.0.1"], "<node name>/24 110.0.0.1 10.0.0.11"),
        ("n1.example and n1", ["n1.example", "n1"], "<node name> and <node name>"),
        ("nothing", [""], "nothing"),
    ],
)
def test_replace_names(text, names, replaced):
    """A name is replaced as a whole word only."""
    assert replace_names(text, names) == replaced
