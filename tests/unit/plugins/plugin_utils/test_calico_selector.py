# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calico's selectors against labels."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_selector import SelectorError, selector_matches
from hypothesis import given
from hypothesis import strategies as st

LABELS = {"zone": "a-1", "kubernetes.io/os": "linux", "in": "x"}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("all()", True),
        ("has(zone)", True),
        ("!has(zone)", False),
        ("zone == 'a-1'", True),
        ('zone != "a-1"', False),
        ("rack != 'r1'", True),
        ("zone in {'b', 'a-1'}", True),
        ("zone not in { 'b' }", True),
        ("zone in {}", False),
        ("zone contains '-' && zone starts with 'a'", True),
        ("zone ends with '2' || kubernetes.io/os == 'linux' && has(zone)", True),
        ("!(has(zone) || has(rack)) || all()", True),
    ],
)
def test_matches(selector, matches):
    """Operators, precedence, and labels that are not there."""
    assert selector_matches(selector, LABELS) is matches


@pytest.mark.parametrize("selector", ["zone", "zone ==", "has(", "zone in {'a'", "all() all()", "zone = 'a'", "&&"])
def test_refused(selector):
    """The place is named."""
    with pytest.raises(SelectorError, match=r"zone|expected|read|end"):
        selector_matches(selector, LABELS)


@given(st.text(alphabet="ab&|!(){}'= ,", max_size=14))
def test_any_text_is_judged_or_refused(text):
    """No other error leaves the reader."""
    try:
        assert selector_matches(text, LABELS) in {True, False}
    except SelectorError as error:
        assert str(error)
