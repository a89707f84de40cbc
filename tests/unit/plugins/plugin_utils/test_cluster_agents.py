# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs in the agent's namespace: PriorityClasses that are gone, nodes that it does not reach."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_agents import (
    coverage_findings,
    priority_findings,
    read_agents,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import Reader

CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}


def workload(name: str, *, namespace: str = "tetration", **spec: object) -> dict:
    """A DaemonSet or a Deployment."""
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": {"containers": [], **spec}}},
    }


def pod(name: str, phase: str = "Running", **spec: object) -> dict:
    """A Pod."""
    return {"metadata": {"name": name}, "spec": {"containers": [], **spec}, "status": {"phase": phase}}


def read(*, classes: tuple[str, ...] | None = (), **lists: list[dict]) -> dict:
    """What is read of namespace tetration with these objects by plural; classes None is a refusal."""

    def list_all(resource, **_options):
        if resource.plural == "priorityclasses":
            if classes is None:
                return 403, {"message": "forbidden"}
            return 200, [{"metadata": {"name": name}} for name in classes]
        return 200, lists.get(resource.plural, [])

    return read_agents(Reader(lambda *_where: (404, {}), list_all), "tetration")


def node(name: str, *taints: dict, **labels: str) -> dict:
    """A node as the probe has it."""
    return {"name": name, "labels": {"os": "linux", **labels}, "taints": list(taints)}


@pytest.mark.parametrize(
    "lists",
    [
        {"daemonsets": [workload("agent", priorityClassName="gone")]},
        {"deployments": [workload("agent", priorityClassName="gone")]},
        {"pods": [pod("agent", priorityClassName="gone")]},
        {"pods": [pod("agent", "Pending", priorityClassName="gone")]},
    ],
)
def test_a_class_that_is_gone_is_named_with_who_names_it(lists):
    (found,) = priority_findings(read(classes=("other",), **lists), "tetration")

    assert (found["id"], found["severity"]) == ("cluster.priority_class_missing", "blocker")
    assert "PriorityClass gone is gone, named in namespace tetration by" in found["observed"]
    assert "agent: new pods" in found["observed"]


@pytest.mark.parametrize(
    ("classes", "lists"),
    [
        (("mine",), {"daemonsets": [workload("agent", priorityClassName="mine")]}),
        ((), {"daemonsets": [workload("agent", priorityClassName="system-node-critical")]}),
        ((), {"daemonsets": [workload("agent"), workload("x", namespace="other", priorityClassName="gone")]}),
        ((), {"pods": [pod("job", "Succeeded", priorityClassName="gone")]}),
        (None, {"daemonsets": [workload("agent", priorityClassName="gone")]}),
        ((), {}),
    ],
    ids=["there", "built in", "other namespace", "pod that is over", "not seen", "nothing"],
)
def test_classes_that_are_there_or_not_needed_are_no_finding(classes, lists):
    assert not list(priority_findings(read(classes=classes, **lists), "tetration"))


def test_many_users_of_a_class_are_one_finding():
    users = [pod(f"agent-{at}", priorityClassName="gone") for at in range(9)]
    (found,) = priority_findings(read(pods=users), "tetration")

    assert "Pod agent-0, Pod agent-1, Pod agent-2 and 6 more" in found["observed"]


AGENT = workload("tetration-agent", nodeSelector={"os": "linux"})


@pytest.mark.parametrize(
    ("daemon_sets", "nodes", "expected"),
    [
        ([AGENT], [node("w1"), node("cp1", CONTROL_PLANE)], {"cp1": "do not tolerate node-role"}),
        ([AGENT], [node("w1", {"key": "infra", "value": "x", "effect": "NoExecute"})], {"w1": "infra=x:NoExecute"}),
        ([AGENT], [node("win", os="windows")], {"win": "do not select it"}),
        ([AGENT, workload("win", nodeSelector={"os": "windows"})], [node("win", os="windows")], {}),
        ([workload("a", tolerations=[{"operator": "Exists"}])], [node("cp1", CONTROL_PLANE)], {}),
        ([AGENT], [node("w1", {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})], {}),
        ([AGENT], [node("w1", {"key": "spare", "effect": "PreferNoSchedule"})], {}),
        ([AGENT], [node("w1", {"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"})], {}),
        ([AGENT], [node("vk", {"key": "virtual-kubelet.io/provider", "effect": "NoSchedule"}, os="x")], {}),
        ([], [node("cp1", CONTROL_PLANE)], {}),
    ],
    ids=[
        "control plane",
        "a site's own",
        "not selected",
        "selected by another",
        "all tolerated",
        "cordoned",
        "advice",
        "leaves by itself",
        "no real node",
        "no agent yet",
    ],
)
def test_nodes_that_the_agent_does_not_reach_are_said(daemon_sets, nodes, expected):
    agents = read(daemonsets=daemon_sets)
    found = list(coverage_findings(agents, "tetration", nodes, {}, "secure_workload"))

    assert {item["node"] for item in found} == set(expected)
    assert all(expected[item["node"]] in item["observed"] for item in found)
    assert not list(coverage_findings(agents, "tetration", nodes, {}, "native"))
