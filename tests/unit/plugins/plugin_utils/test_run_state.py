"""What a run has come to, from what its tasks registered."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter

import pytest
from ansible.inventory.manager import InventoryManager
from ansible.parsing.dataloader import DataLoader
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report import build
from ansible_collections.portcullis.fleet.plugins.plugin_utils.run_state import NAMES, RunState, read_results

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


def state_of(results: dict, *, judgement: dict | None = None, phase: str = "change", **options: object) -> RunState:
    """A run over these hosts."""
    shared = judged() if judgement is None else judgement
    merged = {host: {**shared, **variables} for host, variables in results.items()}
    return RunState(results=read_results(merged.__getitem__, merged), phase=phase, **options)


def report_of(state: RunState) -> dict:
    """The report of a run."""
    return build(state.run(ended="2026-11-30T12:00:00+00:00", engine="native", playbook="site.yml", versions={}))


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


def lost(*messages: str) -> dict:
    """What a loop registers whose items did not reach the node, as ansible-core 2.19 does."""
    items = [{"changed": False, "unreachable": True, "msg": message} for message in messages]
    return {"changed": False, "unreachable": True, "msg": "All items completed", "results": items}


def test_a_loop_that_lost_its_node_says_so_once():
    refused = "Failed to connect to the host via ssh: Connection refused"
    variables = read(__containerd_config=CHANGED, __containerd_images=lost(refused, refused, ""))
    state = state_of({"w1": variables}, batch=("w1",))

    assert state.node_state("w1") == ("unreachable", refused)
    assert state.stopped() == {"phase": "change", "reason": f"w1: {refused}"}


@pytest.mark.parametrize("result", [lost(""), {"failed": True}], ids=["loop", "task"])
def test_a_failure_without_words_is_told_to_have_none(result: dict):
    assert state_of({"w1": read(__containerd_images=result)}).node_state("w1")[1] == "no reason was given"


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
    report = report_of(state_of(results, phase="done"))

    assert [change["nodes"] for change in report["changes"]] == [["w1"]]
    assert report["nodes"]["w1"]["facts"]["kube-proxy mode"] == "iptables"
    assert report["counts"]["changed"] == 1
    assert report["outcome"]["status"] == "completed"


GOING_ON = {
    "preflight": ({"w1": read(), "w2": read()}, ()),
    "change": ({"w1": read(__containerd_config=CHANGED), "w2": read()}, ("w1",)),
    "cluster": ({"w1": read(__containerd_config=CHANGED)}, ()),
    "verify": ({"w1": read(__containerd_config=CHANGED)}, ()),
}


@pytest.mark.parametrize(("phase", "run"), GOING_ON.items(), ids=GOING_ON)
def test_a_report_that_a_killed_run_leaves_does_not_claim_its_end(phase: str, run: tuple):
    results, batch = run
    outcome = report_of(state_of(results, phase=phase, batch=batch))["outcome"]

    assert (outcome["status"], outcome["phase"]) == ("running", phase)
    assert "ompleted" not in f"{outcome['sentence']} {outcome['detail']}"


def test_a_wave_to_come_has_not_been_stopped():
    state = state_of({"w1": read(__containerd_config=CHANGED), "w2": read()}, batch=("w1",))

    assert state.node_state("w2") == ("not_reached", "its turn had not come")


MENDED = {"__node_fix": {"changed": True, "fixes": [{"finding": BLOCKER["id"], "changes": ["x"]}]}}


def fixed(phase: str, *findings: dict, check_mode: bool = False, **result: object) -> RunState:
    """A run with --tags fix in which w2 had its turn."""
    variables = read(__node_fix={**MENDED["__node_fix"], **result})
    state = state_of({"w1": read(), "w2": variables}, judgement=judged(findings=findings), phase=phase)
    return dataclasses.replace(state, batch=("w2",) if phase == "fix" else (), check_mode=check_mode)


def test_while_findings_are_mended_they_stop_nothing_but_where_they_were_mended_in_vain():
    """What is in the way of a run may be what a later wave mends."""
    elsewhere = {**BLOCKER, "node": "w1"}

    assert fixed("fix", elsewhere).stopped() is None
    assert fixed("fix", BLOCKER, check_mode=True).stopped() is None
    assert fixed("fix", BLOCKER, elsewhere).stopped() == {
        "phase": "fix",
        "reason": f"w2: mended, and found all the same: {BLOCKER['id']}",
    }


def test_a_node_that_could_not_be_mended_stops_the_run_in_its_wave():
    state = fixed("fix", changed=False, failed=True, rolled_back=True, msg="boom")

    assert state.stopped() == {"phase": "fix", "reason": "w2: boom"}
    assert report_of(state)["outcome"]["sentence"] == "Stopped in wave 1: 1 rolled back."


def test_a_report_says_what_was_mended_and_that_blockers_are_left():
    assert report_of(fixed("done"))["outcome"]["status"] != "stopped"
    assert report_of(fixed("done"))["nodes"]["w2"]["state"] == "changed"

    outcome = report_of(fixed("done", {**BLOCKER, "node": "w1"}))["outcome"]
    assert (outcome["status"], outcome["phase"]) == ("stopped", "fix")
    assert outcome["sentence"] == "Not everything could be mended: 1 blocker left."
    predicted = report_of(fixed("done", BLOCKER, check_mode=True))["outcome"]
    assert predicted["sentence"] == (
        "Changed nothing: 1 blocker now, and only a real run shows which of them can be mended."
    )


def test_a_reason_from_outside_stops_the_run_in_its_phase():
    state = state_of({"w1": read(__containerd_config=CHANGED)}, phase="cluster", stopped_reason="Bad_Name:\nrefused")
    outcome = report_of(state)["outcome"]

    assert (outcome["status"], outcome["phase"], outcome["reason"]) == ("stopped", "cluster", "Bad_Name: refused")


def test_a_preflight_alone_has_looked_at_its_nodes():
    report = report_of(state_of({"w1": read(), "h1": BARE}, phase="done"))

    assert {node["state"] for node in report["nodes"].values()} == {"looked_at"}
    assert report["outcome"]["status"] == "completed"


def test_a_preflight_alone_that_finds_blockers_has_stopped():
    state = state_of({"w1": read(), "w2": read()}, phase="done", judgement=judged(findings=(BLOCKER,)))

    assert report_of(state)["outcome"]["phase"] == "preflight"
    assert state.node_state("w1") == ("not_reached", "blockers stopped the run before any change")


UNREACHABLE = {**BLOCKER, "id": "node.unreachable", "node": "w3"}


def verified_alone(*, findings: tuple = (BLOCKER, UNREACHABLE), **options: object) -> RunState:
    """verify.yml without a run before it: w1 is well, w2 is not, w3 does not answer, w4 is not in the limit."""
    blockers = [item for item in findings if not item["waived"]]
    found = {"__verify_requirements": {"findings": list(findings), "blockers": blockers, "changeable": ["w1", "w2"]}}
    results = {
        "w1": {"__verify_probe": {"probe": CLEAN_PROBE}, **found},
        "w2": {"__verify_probe": {"probe": CLEAN_PROBE}, **found},
        "w3": {"__verify_probe": {"unreachable": True, "msg": "no route"}, **found},
        "w4": {},
    }
    return state_of(results, judgement={}, phase="done", **options)


def test_a_verification_alone_says_which_nodes_are_proven():
    state = verified_alone()
    report = report_of(state)

    assert {host: state.node_state(host) for host in state.results} == {
        "w1": ("proven", ""),
        "w2": ("not_proven", "kubelet.not_healthy"),
        "w3": ("unreachable", "no route"),
        "w4": ("not_reached", "not part of this run"),
    }
    assert (report["outcome"]["status"], report["outcome"]["phase"]) == ("stopped", "verify")
    assert report["outcome"]["sentence"] == "Nothing was changed, and not all is proven."
    assert report["nodes"]["w1"]["facts"]["containerd"] == "1.6.20~ds1"


def test_what_was_accepted_keeps_no_node_from_being_proven_unless_a_run_leaves_it_out():
    accepted = {**BLOCKER, "waived": True}
    left_out = {**BLOCKER, "id": "containerd.cri_not_serving", "node": "w1", "waived": True}
    state = verified_alone(findings=(accepted, left_out))

    assert state.node_state("w1") == ("not_proven", "containerd.cri_not_serving")
    assert state.node_state("w2") == ("proven", "")


def test_check_mode_proves_nothing():
    assert verified_alone(check_mode=True).node_state("w1") == ("looked_at", "")


class CountedVariables(dict):
    """A host's variables that count how often each is read."""

    def __init__(self, variables: dict, reads: Counter) -> None:
        super().__init__(variables)
        self._reads = reads

    def __getitem__(self, name: str) -> object:
        self._reads[name] += 1
        return super().__getitem__(name)


def large_fleet(count: int) -> dict[str, dict]:
    """The variables of the hosts of a fleet after its change and proof, with three warnings for each host."""
    hosts = [f"n{number}" for number in range(count)]
    warnings = tuple({**BLOCKER, "severity": "warning", "node": host} for host in hosts for _ in range(3))
    shared = judged(findings=warnings, changeable=tuple(hosts))
    variables = read(
        __containerd_config=CHANGED,
        __containerd_images=SAME,
        __report_state={"waves": dict.fromkeys(hosts, 1), "run": shared},
        __verify_probe={"probe": CLEAN_PROBE},
        __verify_requirements=shared["__preflight_requirements"],
        **shared,
    )
    return dict.fromkeys(hosts, variables)


def test_each_result_of_a_host_is_read_once():
    """However many hosts there are: reading one for each pair of hosts took minutes for 500."""
    fleet, asked, reads = large_fleet(500), Counter(), Counter()

    def variables_of(host: str) -> dict:
        asked[host] += 1
        return CountedVariables(fleet[host], reads)

    start = time.process_time()
    state = RunState(results=read_results(variables_of, fleet), phase="done")
    report = report_of(state)

    assert time.process_time() - start < 2
    assert report["counts"]["changed"] == 500
    assert set(asked.values()) == {1}
    assert set(reads) <= set(NAMES)
    assert set(reads.values()) == {500}


def test_what_ansible_hands_out_is_read_in_time():
    """500 hosts of a real inventory, with their results where Ansible keeps them, are summed up in under 2 s."""
    fleet, loader = large_fleet(500), DataLoader()
    inventory = InventoryManager(loader=loader, sources=f"{','.join(fleet)},")
    manager = VariableManager(loader=loader, inventory=inventory)
    for host, variables in fleet.items():
        manager.set_nonpersistent_facts(host, {name: variables[name] for name in variables if name != "group_names"})
    hostvars = HostVars(inventory=inventory, variable_manager=manager, loader=loader)

    start = time.process_time()
    state = RunState(results=read_results(hostvars.raw_get, fleet), phase="done")
    run = state.run(ended="2026-11-30T12:00:00+00:00", engine="native", playbook="site.yml", versions={})

    assert time.process_time() - start < 2
    assert run["nodes"]["n499"]["state"] == "changed"
    assert run["nodes"]["n499"]["groups"] == ["ungrouped"]
