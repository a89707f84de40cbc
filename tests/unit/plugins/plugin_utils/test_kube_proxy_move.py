"""A node changes hands between two DaemonSets; whatever fails on the way, a kube-proxy runs there with what it had."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import DAEMON_SETS, NODES, PODS, Resource
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_cluster import Twin
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_finish import Finish
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_move import Move
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_twin import LABEL, MOVING, NOTE, parked
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_call import NodeError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError, WorseError

REVISION = "abc"


def workload(name: str, uid: str) -> dict:
    return {
        "metadata": {"name": name, "namespace": "kube-system", "uid": uid, "annotations": {NOTE: "{}"}},
        "spec": {"selector": {"matchLabels": {"k8s-app": "kube-proxy"}}, "template": {"spec": {}}},
    }


class Cluster:
    """A node w1 whose pod is that of the DaemonSet which its label stands for."""

    def __init__(self, label: str | None = None, *, parked_original: bool = True) -> None:
        original = workload("kube-proxy", "original")
        self.original = parked(original) if parked_original else original
        self.label, self.labels, self.text = label, [], "before"

    def get(self, resource: Resource, name: str, _namespace: str = "") -> dict | None:
        if resource is NODES:
            return {"metadata": {"labels": {LABEL: self.label} if self.label else {}}}
        if resource is DAEMON_SETS:
            return self.original
        return {"data": {"config.conf": self.text}} if name == "kube-proxy" else None

    def list(self, resource: Resource, **_options: str) -> list[dict]:
        if resource is not PODS or self.label == MOVING:
            return []
        uid = "twin" if self.label else "original"
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        owner = {"uid": uid, "controller": True}
        return [{"metadata": {"name": uid, "ownerReferences": [owner]}, "spec": {"nodeName": "w1"}, "status": ready}]

    def patch(self, _resource: Resource, _name: str, body: dict) -> None:
        self.label = body["metadata"]["labels"][LABEL]
        self.labels.append(self.label)

    def update(self, _resource: Resource, _name: str, _namespace: str, change: object) -> dict:
        return change(twin().object)


def twin(**changes: object) -> Twin:
    note = {
        "state": "present", "before": "before", "after": "after", "key": "config.conf", "config_map": "kube-proxy",
        "daemon_set": "kube-proxy", "mode_before": "iptables", "mode_after": "nftables", "going_back": False, **changes,
    }  # fmt: skip
    return Twin("twin", "kube-system", "twin", REVISION, note, workload("twin", "twin"))


class NodeHalf:
    """What the node's half answers: by step, the mode that is live after each settle."""

    def __init__(self, *modes: str, first: str = "iptables", fails: str = "") -> None:
        self.modes, self.first, self.fails, self.steps = list(modes), first, fails, []

    def __call__(self, step: str, **options: object) -> dict:
        self.steps.append((step, options.get("mode", "")))
        if step == self.fails:
            raise NodeError({"unreachable": True, "msg": "no route to host"})
        if step == "read":
            return {"proxy_mode": self.first, "answers": True}
        if step == "settle":
            mode = self.modes.pop(0)
            return {"proxy_mode": mode, "in_kernel": True, "answers": True, "removed": ["rule"], "left": []}
        return {"service": {"longest_gap_s": 0.5}}


def move(
    cluster: Cluster, node: NodeHalf, *, to_original: bool = False, check_mode: bool = False, **note: object
) -> dict:
    return Move(cluster, twin(**note), "w1", node, 0.01).run(to_original=to_original, check_mode=check_mode)


def test_a_node_goes_to_the_twin_and_proves_it():
    cluster = Cluster()
    found = move(cluster, NodeHalf("nftables"))
    assert cluster.labels == [MOVING, REVISION]
    assert (found["changed"], found["mode_before"], found["mode"]) == (True, "iptables", "nftables")
    assert (found["removed"], found["service"]) == (["rule"], {"longest_gap_s": 0.5})


def test_a_mode_that_does_not_come_is_put_back():
    cluster = Cluster()
    with pytest.raises(
        WorseError, match=r"live mode is not nftables .*: iptables; the node was put back to mode iptables"
    ):
        move(cluster, NodeHalf("iptables", "iptables"))
    assert cluster.labels == [MOVING, REVISION, MOVING, None]


def test_what_cannot_be_put_back_either_is_said():
    cluster = Cluster()
    with pytest.raises(WorseError, match="and it could not be put back: kube-proxy's live mode is not iptables"):
        move(cluster, NodeHalf("", ""))


@pytest.mark.parametrize("step", ["clear", "settle"])
def test_a_node_that_is_not_reached_any_more_gets_its_former_kube_proxy(step: str):
    cluster = Cluster(label=REVISION)
    node = NodeHalf(first="nftables", fails=step)
    with pytest.raises(NodeError):
        move(cluster, node, to_original=True)
    assert cluster.label == REVISION


def test_rules_of_nftables_are_cleared_while_no_kube_proxy_runs():
    """Also where the former mode is not known, since a run was killed there."""
    for first in ("nftables", ""):
        cluster, node = Cluster(label=REVISION), NodeHalf("nftables", first=first)
        move(cluster, node, to_original=True)
        assert "clear" in [step for step, _mode in node.steps]
        assert cluster.labels == [MOVING, None]


def test_a_node_that_has_it_is_only_proven():
    cluster, node = Cluster(label=REVISION), NodeHalf("nftables", first="nftables")
    assert move(cluster, node)["changed"] is True  # a rule was left over
    assert cluster.labels == []


def test_check_mode_reads_alone():
    cluster, node = Cluster(), NodeHalf()
    assert move(cluster, node, check_mode=True)["changed"] is True
    assert (cluster.labels, node.steps) == ([], [("read", "")])


def test_an_original_that_somebody_has_written_stops_it_before_anything_is_changed():
    cluster = Cluster(parked_original=False)
    with pytest.raises(RolloutError, match="was written by somebody else since: run again from the step start"):
        move(cluster, NodeHalf())
    assert cluster.labels == []


def test_a_text_that_was_there_before_any_kube_proxy_read_it_is_written_when_all_have_it():
    cluster, same = Cluster(), {"before": "same", "after": "same"}
    cluster.text = "same"
    assert not Finish(cluster, twin(**same)).is_written()
    finish = Finish(cluster, twin(**same))
    finish.write()
    assert finish.is_written()
    cluster.text = "after"
    assert Finish(cluster, twin()).is_written()
    assert not Finish(cluster, twin(going_back=True)).is_written()
