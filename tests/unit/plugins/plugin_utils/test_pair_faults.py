# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which end of failed pairs is blamed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.pair_faults import FROM, TO, blamed


def tries(is_failed: Callable[[str, str], bool], names: str = "abc") -> list[tuple[str, str, bool]]:
    """All pairs of some nodes."""
    return [(one, other, is_failed(one, other)) for one in names for other in names if one != other]


@pytest.mark.parametrize(
    ("is_failed", "expected"),
    [
        (lambda one, other: False, set()),
        (lambda one, other: other == "b", {(TO, "b")}),
        (lambda one, other: one == "b", {(FROM, "b")}),
        (lambda one, other: "b" in (one, other), {(FROM, "b"), (TO, "b")}),
        (lambda one, other: (one, other) == ("a", "b"), {(TO, "b")}),
        (lambda one, other: True, {(TO, "a"), (TO, "b"), (TO, "c")}),
    ],
    ids=["nothing", "into one", "out of one", "one is cut off", "one pair", "everything"],
)
def test_the_end_that_all_failures_share_is_blamed(is_failed, expected):
    assert set(blamed(tries(is_failed))) == expected


def test_of_two_nodes_the_target_is_blamed():
    assert set(blamed(tries(lambda one, other: one == "a", "ab"))) == {(TO, "b")}


def test_what_is_outside_is_blamed_only_when_nobody_reaches_it():
    some = [("a", "api", True), ("b", "api", False)]

    assert set(blamed(some, {"api"})) == {(FROM, "a")}
    assert set(blamed([("a", "api", True), ("b", "api", True)], {"api"})) == {(TO, "api")}


def test_a_node_that_does_not_reach_itself_is_the_target():
    assert set(blamed([("a", "a", True), ("a", "b", False)])) == {(TO, "a")}


def test_thousands_of_failures_are_sorted_in_no_time():
    names = [str(number) for number in range(300)]
    found = blamed([(one, other, True) for one in names for other in names])

    assert len(found) == 300
