"""Findings of a fleet: waivers, groups, and the table that a person acts on."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.finding import finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.findings import (
    blockers,
    group_findings,
    parse_accept,
    render_table,
    unused_waivers,
    waive,
)


def found(finding_id: str = "kubelet.not_healthy", node: str = "w1", severity: str = "blocker", **words: str) -> dict:
    """A finding with words that do not matter."""
    texts = {"observed": "saw", "expected": "wanted", "remedy": "do", "requirement": "calico/Nodes", **words}
    return finding(finding_id, severity=severity, node=node, **texts)


def test_a_severity_that_nobody_knows_is_refused():
    with pytest.raises(ValueError, match="blocker, warning, got 'fatal'"):
        found(severity="fatal")


@pytest.mark.parametrize(
    ("accept", "stopping"),
    [
        ([], ["w1", "w2"]),
        (["kubelet.not_healthy"], []),
        (["kubelet.not_healthy@w1"], ["w2"]),
        (["other"], ["w1", "w2"]),
    ],
    ids=["none", "everywhere", "on one node", "of another finding"],
)
def test_a_waiver_is_for_a_finding_everywhere_or_on_one_node(accept, stopping):
    judged = waive([found(node="w1"), found(node="w2")], accept)

    assert [item["node"] for item in blockers(judged)] == stopping


def test_a_warning_stops_nothing():
    assert blockers(waive([found(severity="warning")], [])) == []


def test_a_waiver_that_no_finding_met_is_named():
    judged = waive([found()], ["kubelet.not_healthy", "kubelet.misspelt"])

    assert unused_waivers(judged, ["kubelet.not_healthy", "kubelet.misspelt"]) == ["kubelet.misspelt"]


@pytest.mark.parametrize(
    ("given", "parsed"),
    [(["a", "b@w1"], ["a", "b@w1"]), (["[a", "b]"], ["a", "b"]), (["['a'", ' "b"]'], ["a", "b"]), (["[]"], [])],
    ids=["list", "extra var as text", "with quotes", "empty"],
)
def test_accept_is_read_as_the_command_line_passes_it(given, parsed):
    assert parse_accept(given) == parsed


def test_the_same_finding_of_many_nodes_is_one_problem_and_blockers_come_first():
    many = [found("a.warning", node=f"w{number}", severity="warning") for number in range(20)]
    problems = group_findings(waive([*many, found("z.blocker")], []), {})

    assert [(problem["id"], problem["node_count"]) for problem in problems] == [("z.blocker", 1), ("a.warning", 20)]


def test_the_table_says_where_what_and_what_to_do():
    table = render_table(waive([found(node=f"w{number}", observed="a\nb") for number in range(8)], []))

    assert table.splitlines()[0].split() == "BLOCKER kubelet.not_healthy w0, w1, w2, w3, w4, w5 and 2 more".split()
    assert [line.split()[:2] for line in table.splitlines()[1:]] == [
        ["found", "a"],
        ["expected", "wanted"],
        ["do", "do"],
        ["source", "calico/Nodes"],
    ]


def test_one_problem_with_several_observations_names_the_nodes_of_each():
    table = render_table(waive([found(node="w1", observed="old"), found(node="w2", observed="older")], []))

    assert table.count("kubelet.not_healthy") == 1
    assert "w2: older" in table


def test_text_from_a_node_cannot_steer_the_terminal():
    assert "\x1b" not in render_table(waive([found(observed="\x1b[2Jgone")], []))


def test_long_words_are_wrapped_and_a_waived_finding_says_so():
    table = render_table(waive([found(node="", observed="word " * 60)], ["kubelet.not_healthy"]))

    assert max(len(line) for line in table.splitlines()) <= 110
    assert table.startswith("WAIVED   kubelet.not_healthy")
    assert "the fleet" in table
