# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run collected becomes the report's data."""

from __future__ import annotations

import json
import time

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.finding import finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report import ReportInputError, build, to_json
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_html import render_html

from tests.unit.plugins.plugin_utils.report_sample import blocked_run, sample_run


def a_run(states=("changed", "unchanged"), **changed):
    run = {
        "started": "2026-11-30T20:00:00Z",
        "ended": "2026-11-30T21:01:01+00:00",
        "check_mode": False,
        "engine": "native",
        "playbook": "/home/somebody/fleet/site.yml",
        "phase": "done",
        "versions": {"ansible-core": "2.19.14"},
        "nodes": {f"node{number}": {"state": state, "wave": number} for number, state in enumerate(states, 1)},
        "findings": [],
        "changes": [],
        "stopped": None,
    }
    return run | changed


def a_finding(node="", **changed):
    fields = {
        "severity": "blocker",
        "requirement": "calico/1",
        "observed": "this",
        "expected": "that",
        "remedy": "do",
    }
    waived = changed.pop("waived", False)
    return finding("area.fact", node=node, **(fields | changed)) | {"waived": waived}


@pytest.mark.parametrize(
    ("run", "status", "words"),
    [
        pytest.param(
            a_run(),
            "completed",
            "Completed on 2 nodes: 1 changed, 1 already as wanted.",
            id="completed",
        ),
        pytest.param(
            a_run(("changed",)),
            "completed",
            "Completed on 1 node: 1 changed.",
            id="singular",
        ),
        pytest.param(
            a_run(("failed", "rolled_back", "unchanged")),
            "completed_with_trouble",
            "Completed, but not on every node: 1 failed, 1 rolled back. Of 3 nodes: 1 already as wanted.",
            id="trouble",
        ),
        pytest.param(
            a_run(("would_change", "unchanged"), check_mode=True),
            "completed",
            "Checked 2 nodes and changed nothing: 1 would change, 1 already as wanted.",
            id="check mode",
        ),
        pytest.param(
            a_run(("would_change",), check_mode=True, findings=[a_finding("node1")]),
            "completed",
            "Checked 1 node and changed nothing: 1 would change. "
            "A real run would stop before any change because of 1 blocker.",
            id="check mode with a blocker",
        ),
        pytest.param(
            a_run(
                ("not_reached", "not_reached"),
                findings=[a_finding("node1"), a_finding("node2"), a_finding(), a_finding("node1", waived=True)],
                stopped={"phase": "preflight", "reason": ""},
            ),
            "stopped",
            "Stopped before any change by 2 blockers, on 2 nodes and in the cluster or fleet as a whole.",
            id="blockers",
        ),
        pytest.param(
            a_run(("not_reached",), stopped={"phase": "preflight", "reason": "the kubeconfig does not answer."}),
            "stopped",
            "Stopped before any change: the kubeconfig does not answer.",
            id="preflight without blockers",
        ),
        pytest.param(
            a_run(
                ("changed", "failed", "unchanged", "not_reached"),
                stopped={"phase": "change", "reason": "node2 failed"},
            ),
            "stopped",
            "Stopped in wave 2 of 4: 1 failed. node2 failed. "
            "Of 4 nodes: 1 failed, 1 not reached, 1 changed, 1 already as wanted.",
            id="wave",
        ),
        pytest.param(
            a_run(
                ("rolled_back",),
                nodes={"a": {"state": "rolled_back", "wave": 1}, "b": {"state": "not_reached", "wave": None}},
                stopped={"phase": "change", "reason": ""},
            ),
            "stopped",
            "Stopped in wave 1: 1 rolled back. Of 2 nodes: 1 rolled back, 1 not reached.",
            id="later waves unknown",
        ),
        pytest.param(
            a_run((), stopped={"phase": "change", "reason": "namespace refused"}),
            "stopped",
            "Stopped during the changes. namespace refused.",
            id="no waves",
        ),
        pytest.param(
            a_run(("changed",), stopped={"phase": "verify", "reason": "an exec was not refused"}),
            "stopped",
            "The changes were made, but they could not be proven. an exec was not refused. Of 1 node: 1 changed.",
            id="verify",
        ),
        pytest.param(
            a_run(("unchanged", "not_proven"), stopped={"phase": "verify", "reason": "1 blocker"}),
            "stopped",
            "Nothing was changed, and not all is proven. 1 blocker. Of 2 nodes: 1 not proven, 1 already as wanted.",
            id="verify without changes",
        ),
        pytest.param(
            a_run(("changed",), phase="cluster", stopped={"phase": "cluster", "reason": "Bad_Name is no namespace"}),
            "stopped",
            "Stopped at the cluster's objects, after the nodes. Bad_Name is no namespace. Of 1 node: 1 changed.",
            id="cluster",
        ),
        pytest.param(
            a_run(("unchanged", "not_reached"), phase="preflight"),
            "running",
            "In progress when this was written: 0 of 2 nodes changed, the preflight had ended. "
            "Of 2 nodes: 1 not reached, 1 already as wanted. "
            "If this run is no longer at work, it was cut short and may have changed more since: "
            "run the playbook again.",
            id="running, preflight",
        ),
        pytest.param(
            a_run(
                phase="change",
                nodes={
                    "a": {"state": "changed", "wave": 1},
                    "b": {"state": "changed", "wave": 2},
                    "c": {"state": "not_reached"},
                },
            ),
            "running",
            "In progress when this was written: 2 of 3 nodes changed, wave 2 of the change had ended. "
            "Of 3 nodes: 1 not reached, 2 changed. If this run is no longer at work, it was cut short and may have "
            "changed more since: run the playbook again.",
            id="running, wave",
        ),
        pytest.param(
            a_run(("would_change", "unchanged"), phase="cluster", check_mode=True),
            "running",
            "In progress when this was written: 1 of 2 nodes would change, the cluster's objects had been seen to. "
            "Of 2 nodes: 1 would change, 1 already as wanted. "
            "If this run is no longer at work, it was cut short, and it changed nothing.",
            id="running, check mode",
        ),
        pytest.param(
            a_run(("looked_at", "looked_at"), findings=[a_finding("node1", severity="warning")]),
            "completed",
            "Looked at 2 nodes: nothing is in the way.",
            id="preflight alone",
        ),
        pytest.param(
            a_run(("looked_at", "not_reached"), findings=[a_finding("node2", waived=True)]),
            "completed_with_trouble",
            "Looked at 1 node: nothing is in the way but what was accepted. "
            "Not every node could be looked at: 1 not reached.",
            id="preflight alone, accepted",
        ),
        pytest.param(
            a_run(("proven", "proven")),
            "completed",
            "Completed on 2 nodes: 2 proven.",
            id="verify alone",
        ),
    ],
)
def test_outcome(run, status, words):
    """One sentence says how the run ended; a detail adds the counts where the sentence has none."""
    outcome = build(run)["outcome"]

    assert outcome["status"] == status
    assert f"{outcome['sentence']} {outcome['detail']}".rstrip() == words


def test_counts_name_every_state():
    """A state without nodes is counted as 0, so that a reader of the JSON finds every key."""
    counts = build(a_run(("changed", "changed", "unreachable")))["counts"]

    assert counts == {
        "total": 3,
        "changed": 2,
        "unreachable": 1,
        "failed": 0,
        "rolled_back": 0,
        "not_reached": 0,
        "would_change": 0,
        "unchanged": 0,
        "not_proven": 0,
        "proven": 0,
        "looked_at": 0,
    }


def test_findings_with_the_same_words_are_one_problem():
    """The same id, observation, expectation and remedy are shown once with all nodes in natural order."""
    report = build(a_run(findings=[a_finding("node10"), a_finding("node2"), a_finding("node2", observed="other")]))

    (problem,) = report["findings"]
    assert problem["node_count"] == 2
    assert problem["observed"] == [
        {"observed": "this", "nodes": ["node2", "node10"]},
        {"observed": "other", "nodes": ["node2"]},
    ]


def test_findings_that_differ_in_the_node_name_are_one_problem():
    """A remedy that names the node does not split the problem; what one node alone says is shown as it was."""
    texts = {"observed": "{0} and {0}0 differ", "remedy": "ansible {0} -m ping"}
    found = [a_finding(name, **{key: text.format(name) for key, text in texts.items()}) for name in ("node1", "node2")]

    (problem,) = build(a_run(findings=found))["findings"]

    assert problem["remedy"] == "ansible <node name> -m ping"
    assert [variant["observed"] for variant in problem["observed"]] == [
        "node1 and node10 differ",
        "node2 and node20 differ",
    ]


def test_a_text_that_is_shown_for_one_node_keeps_its_name():
    """Names are replaced only where several nodes share the text."""
    (problem,) = build(a_run(findings=[a_finding("node1", remedy="ansible node1 -m ping")]))["findings"]

    assert problem["remedy"] == "ansible node1 -m ping"


def test_blockers_come_first_then_the_widest():
    """The order is that of urgency: blockers, the whole fleet, many nodes, few nodes."""
    found = [
        a_finding("node1", severity="warning"),
        a_finding("node1", remedy="narrow"),
        a_finding("node1", remedy="wide"),
        a_finding("node2", remedy="wide"),
        a_finding("", remedy="fleet"),
    ]

    remedies = [problem["remedy"] for problem in build(a_run(findings=found))["findings"]]

    assert remedies == ["fleet", "wide", "narrow", "do"]


def test_waived_findings_stand_apart():
    """What was accepted is not among the findings, and says by which variable."""
    report = build(a_run(findings=[a_finding("node1", waived=True)]))

    assert report["findings"] == []
    assert [problem["waived_by"] for problem in report["waived"]] == ["portcullis_accept"]
    assert report["nodes"]["node1"]["findings"] == {"blocker": 0, "warning": 0, "waived": 1}


def test_unfinished_nodes_are_grouped_by_reason():
    """Nodes that share state and reason share a row, failures first."""
    run = a_run(("not_reached", "failed", "not_reached", "changed"))
    for name in ("node1", "node3"):
        run["nodes"][name]["reason"] = f"the run stopped before {name}"

    assert build(run)["unfinished"] == [
        {"state": "failed", "reason": "", "nodes": ["node2"]},
        {"state": "not_reached", "reason": "the run stopped before <node name>", "nodes": ["node1", "node3"]},
    ]


def test_run_facts():
    """Times are in UTC, the duration in seconds, and the playbook's folder with its user is left out."""
    run = build(a_run(started="2026-11-30T22:00:00+02:00"))["run"]

    assert run["started"] == "2026-11-30T20:00:00+00:00"
    assert run["duration_s"] == 3661
    assert run["playbook"] == "site.yml"
    assert "somebody" not in json.dumps(run)


def test_a_clock_set_back_costs_no_report():
    """An end before the start gives a duration of 0."""
    assert build(a_run(ended="2026-11-30T19:00:00Z"))["run"]["duration_s"] == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        pytest.param({"started": "yesterday"}, "run.started is 'yesterday': give an ISO 8601 time", id="time"),
        pytest.param({"check_mode": "no"}, "run.check_mode is 'no': give true or false", id="type"),
        pytest.param({"nodes": {"n": {"state": "ok"}}}, "run.nodes['n'].state is 'ok': give one of failed", id="state"),
        pytest.param({"nodes": {"n": None}}, "run.nodes['n'].state is None", id="node"),
        pytest.param(
            {"nodes": {"n": {"state": "changed", "wave": "1"}}},
            "run.nodes['n'].wave is '1': give a whole number or null",
            id="wave",
        ),
        pytest.param({"findings": [{"id": "x"}]}, "run.findings[0] lacks severity, requirement", id="finding"),
        pytest.param({"findings": ["x"]}, "run.findings[0] is 'x'", id="no finding"),
        pytest.param(
            {"findings": [a_finding() | {"severity": "bad"}]},
            "run.findings[0].severity is 'bad': give one of blocker, warning",
            id="severity",
        ),
        pytest.param({"changes": [{"node": "n", "what": "f"}]}, "run.changes[0].diff is missing", id="change"),
        pytest.param(
            {"stopped": {"phase": "lunch"}}, "run.stopped.phase is 'lunch': give one of preflight", id="stopped phase"
        ),
        pytest.param(
            {"stopped": {"phase": "done"}}, "run.stopped.phase is 'done': give one of preflight", id="done and stopped"
        ),
        pytest.param({"phase": "lunch"}, "run.phase is 'lunch': give one of preflight", id="phase"),
    ],
)
def test_bad_input_is_refused(changed, message):
    """The message names the key, what it holds and what to give."""
    with pytest.raises(ReportInputError) as error:
        build(a_run(**changed))

    assert message in str(error.value)


@pytest.mark.parametrize("key", ["started", "nodes", "stopped"])
def test_a_missing_key_is_refused(key):
    """Every key of a run is needed."""
    run = a_run()
    del run[key]

    with pytest.raises(ReportInputError, match=f"run.{key} is missing"):
        build(run)


def test_no_node_can_hide_or_fake_text():
    """Control characters, direction marks and lone surrogates are spelled out; secrets by name are hidden."""
    run = a_run(findings=[a_finding("node1", observed="\x1b[2J\u202eab\udc80\u2028")])
    run["nodes"]["node1"]["facts"] = {"kernel": "6\x07", "registry": {"Token": "abc", "hosts": ["a"]}}

    report = build(run)

    assert report["findings"][0]["observed"][0]["observed"] == "\\x1b[2J\\u202eab\\udc80\\u2028"
    assert report["nodes"]["node1"]["facts"] == {"kernel": "6\\x07", "registry": {"Token": "(hidden)", "hosts": ["a"]}}
    assert to_json(report).encode()


@pytest.mark.parametrize("make_run", [sample_run, blocked_run])
def test_json_is_stable(make_run):
    """Equal runs give equal files, with sorted keys and the version, whatever the order of the nodes."""
    run = make_run()
    backwards = run | {"nodes": dict(reversed(run["nodes"].items())), "findings": run["findings"][::-1]}

    text = to_json(build(run))

    assert text == to_json(build(backwards))
    assert text.endswith("}\n")
    assert json.loads(text)["report_version"] == 1
    assert list(json.loads(text)) == sorted(json.loads(text))


def test_a_large_fleet_is_quick_and_small():
    """5000 nodes take under 2 s and give a page of under 3 MB."""
    run = sample_run(5000)
    start = time.process_time()

    report = build(run)
    page = render_html(report)
    text = to_json(report)

    assert time.process_time() - start < 2
    assert len(page) < 3_000_000
    assert len(text) < 5_000_000
