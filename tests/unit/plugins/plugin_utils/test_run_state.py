"""What a run has come to, from what its tasks registered."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report import build
from ansible_collections.portcullis.fleet.plugins.plugin_utils.run_state import RunState

from .probes import CLEAN_PROBE, probe_with

BARE = {"__preflight_probe": {"probe": probe_with(containerd={"present": False})}}
BLOCKER = {
    "id": "kubelet.not_healthy",
    "severity": "blocker",
    "requirement": "calico/Nodes",
    "node": "w2",
    "observed": "x",
    "expected": "y",
    "remedy": "z",
    "waived": False,
}


def read(**results: object) -> dict:
    """The variables of a host whose probe came back."""
    return {"__preflight_probe": {"probe": CLEAN_PROBE}, "group_names": ["workers"], **results}


def judged(*, findings: tuple = (), changeable: tuple = ("w1", "w2", "w3")) -> dict:
    """What the judgement registered, for all hosts."""
    found = list(findings)
    blockers = [item for item in found if item["severity"] == "blocker" and not item["waived"]]
    return {"__preflight_requirements": {"findings": found, "blockers": blockers, "changeable": list(changeable)}}


def state_of(results: dict, *, batch: tuple = (), check_mode: bool = False, judgement: dict | None = None) -> RunState:
    """A run over these hosts."""
    shared = judged() if judgement is None else judgement
    merged = {host: {**shared, **variables} for host, variables in results.items()}
    return RunState(results=merged, hosts=tuple(merged), check_mode=check_mode, batch=batch)


CHANGED = {"changed": True, "diff": [{"before": "a", "after": "b"}]}
SAME = {"changed": False}
NODE_STATES = {
    "changed": (read(__containerd_config=CHANGED, __containerd_images=SAME), "changed"),
    "image only": (read(__containerd_config=SAME, __containerd_images=CHANGED), "changed"),
    "as wanted": (read(__containerd_config=SAME, __containerd_images=SAME), "unchanged"),
    "failed": (read(__containerd_config={"failed": True, "msg": "boom"}), "failed"),
    "put back": (read(__containerd_config={"failed": True, "rolled_back": True, "msg": "boom"}), "rolled_back"),
    "image failed": (read(__containerd_config=CHANGED, __containerd_images={"failed": True, "msg": "x"}), "failed"),
    "lost in the change": (read(__containerd_config={"unreachable": True, "msg": "x"}), "unreachable"),
    "its turn did not come": (read(), "not_reached"),
    "never answered": ({"__preflight_probe": {"unreachable": True, "msg": "no route"}}, "unreachable"),
    "no python": ({"__preflight_probe": {"failed": True, "msg": "no Python"}}, "failed"),
    "not in the limit": ({}, "not_reached"),
}


@pytest.mark.parametrize(("variables", "expected"), NODE_STATES.values(), ids=NODE_STATES)
def test_the_state_of_a_node_is_what_its_last_result_says(variables, expected):
    assert state_of({"w1": variables}).node_state("w1")[0] == expected


def test_a_loop_that_failed_says_why_its_items_did():
    items = [{"changed": True}, {"failed": True, "msg": "no route to the registry"}]
    variables = read(__containerd_images={"failed": True, "msg": "One or more items failed", "results": items})

    assert state_of({"w1": variables}).node_state("w1") == ("failed", "no route to the registry")


def test_in_check_mode_a_node_would_change():
    state = state_of({"w1": read(__containerd_config=CHANGED)}, check_mode=True)

    assert state.node_state("w1") == ("would_change", "")


def test_a_skipped_image_task_after_a_failure_does_not_hide_it():
    variables = read(__containerd_config={"failed": True, "msg": "boom"}, __containerd_images={"skipped": True})

    assert state_of({"w1": variables}).node_state("w1") == ("failed", "boom")


def test_a_host_without_containerd_has_nothing_to_change():
    state = state_of({"h1": BARE}, judgement=judged(changeable=()))

    assert state.node_state("h1") == ("unchanged", "no containerd in use here, nothing to change")


def test_a_waived_node_is_left_out_with_the_reason():
    waived = {**BLOCKER, "id": "containerd.cri_not_serving", "node": "w1", "waived": True}
    state = state_of({"w1": read()}, judgement=judged(findings=(waived,), changeable=()))

    assert state.node_state("w1") == ("not_reached", "left out by its findings")


def test_blockers_stop_the_run_in_the_preflight_and_nothing_was_reached():
    state = state_of({"w1": read(), "w2": read()}, judgement=judged(findings=(BLOCKER,), changeable=("w1",)))

    assert state.stopped() == {"phase": "preflight", "reason": "1 blocker"}
    assert state.node_state("w1")[0] == "not_reached"


def test_waves_are_counted_and_a_failed_node_stops_the_run_with_its_reason():
    first = read(__containerd_config=CHANGED, __report_state={"waves": {"w1": 1}})
    results = {"w1": first, "w2": read(__containerd_config={"failed": True, "msg": "CRI\ndead"}), "w3": read()}
    state = state_of(results, batch=("w2",))

    assert state.waves() == {"w1": 1, "w2": 2}
    assert state.stopped() == {"phase": "change", "reason": "w2: CRI dead"}


def test_after_the_change_the_new_judgement_counts_for_the_nodes_that_it_covers():
    stale = {**BLOCKER, "severity": "warning", "node": "w1"}
    fresh = {**BLOCKER, "id": "image.missing", "node": "w1"}
    other = {**BLOCKER, "id": "inventory.node_missing", "node": "forgotten", "waived": True}
    verified = {
        "__verify_probe": {"probe": CLEAN_PROBE},
        "__verify_requirements": {"findings": [fresh], "blockers": [fresh]},
    }
    state = state_of({"w1": read(**verified)}, judgement=judged(findings=(stale, other)))

    assert [item["id"] for item in state.findings()] == ["inventory.node_missing", "image.missing"]
    assert state.stopped() == {"phase": "verify", "reason": "1 blocker"}


def test_a_run_is_what_the_report_takes():
    results = {"w1": read(__containerd_config=CHANGED), "w2": read(__containerd_config=SAME), "h1": BARE}
    run = state_of(results).run(ended="2026-11-30T12:00:00+00:00", engine="native", playbook="site.yml", versions={})
    report = build(run)

    assert [change["node"] for change in run["changes"]] == ["w1"]
    assert run["nodes"]["w1"]["facts"]["kube-proxy mode"] == "iptables"
    assert report["counts"]["changed"] == 1
