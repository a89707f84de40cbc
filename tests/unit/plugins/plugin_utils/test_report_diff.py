# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes are grouped by what is the same in them."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_diff import group_changes

NAMES = {name: [name] for name in ("node1", "node2", "node10")}


def change(node, diff, what="/etc/x"):
    return {"node": node, "what": what, "diff": diff}


@pytest.mark.parametrize(
    ("diff", "lines"),
    [
        pytest.param({"before": "a\nb\n", "after": "a\nc\n"}, ["@@ -1,2 +1,2 @@", " a", "-b", "+c"], id="text"),
        pytest.param({"before": "", "after": "a\n"}, ["@@ -0,0 +1 @@", "+a"], id="new file"),
        pytest.param(
            {"before": "a", "after": "a\n"},
            ["@@ -1 +1 @@", "-a", "\\ No newline at end of file", "+a"],
            id="newline at the end",
        ),
        pytest.param({"before": "a\r\n", "after": "a\n"}, ["@@ -1 +1 @@", "-a\\r", "+a"], id="carriage return"),
        pytest.param({"prepared": "-a\n+b\n"}, ["-a", "+b"], id="prepared"),
        pytest.param("-a\n+b\n", ["-a", "+b"], id="prepared text alone"),
        pytest.param(
            {"before": {"labels": {}}, "after": {"labels": {"a": "b"}, "password": "x"}},
            [
                "@@ -1,3 +1,6 @@",
                " {",
                '-  "labels": {}',
                '+  "labels": {',
                '+    "a": "b"',
                "+  },",
                '+  "password": "(hidden)"',
                " }",
            ],
            id="data",
        ),
        pytest.param([{"before": "a\n", "after": ""}, {"prepared": "+b"}], ["@@ -1 +0,0 @@", "-a", "+b"], id="list"),
        pytest.param({"before": "a\n", "after": "a\n"}, [""], id="equal"),
        pytest.param({"dst_binary": 1}, [""], id="no text"),
    ],
)
def test_diff_text(diff, lines):
    """Every form in which Ansible's tasks return a diff becomes unified lines without a header."""
    (found,) = group_changes([change("node1", diff)], NAMES)

    assert found["diff"].split("\n") == lines


def test_equal_changes_are_one_with_all_nodes():
    """Headers do not matter, since they hold temporary paths; the widest change is first."""
    wide = {"before": "a\n", "after": "b\n"}
    changes = [
        change("node2", {"before": "a\n", "after": "c\n"}),
        change("node10", wide | {"after_header": "/tmp/10"}),  # noqa: S108 - a text
        change("node2", wide | {"after_header": "/tmp/2"}),  # noqa: S108 - a text
    ]

    found = group_changes(changes, NAMES)

    assert [item["nodes"] for item in found] == [["node2", "node10"], ["node2"]]
    assert (found[0]["added"], found[0]["removed"]) == (1, 1)


def test_changes_that_differ_in_the_node_name_are_one():
    """The node's name is replaced where it stands as a whole word, in the diff and in what is changed."""
    changes = [
        change(name, {"before": "", "after": f"name={name}.example\nx={name}-a\n"}, what=f"/etc/{name}.conf")
        for name in ("node1", "node1", "node2")
    ]
    changes[-1]["diff"]["after"] = changes[-1]["diff"]["after"].replace("node2-a", "node1-a")

    (found,) = group_changes(changes, NAMES)

    assert found["what"] == "/etc/<node name>.conf"
    assert found["diff"].split("\n")[1:] == ["+name=<node name>.example", "+x=node1-a"]


def test_a_change_of_the_cluster_has_no_nodes():
    """The empty name stands for the cluster."""
    (found,) = group_changes([change("", {"before": "", "after": "a\n"})], NAMES)

    assert found["nodes"] == []


def test_very_long_texts_are_not_compared():
    """A dump of megabytes costs no time and says how long it is."""
    text = "line\n" * 100_000

    (found,) = group_changes([change("node1", {"before": text, "after": text + "x\n"})], NAMES)

    assert found["diff"] == "(too long to compare here: 100000 lines before, 100001 lines after)"
