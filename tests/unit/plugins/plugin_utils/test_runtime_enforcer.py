# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An installed Runtime Enforcer: as its production page has it nothing is found, and each fault is."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils import runtime_enforcer_demands
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import Reader
from ansible_collections.portcullis.fleet.plugins.plugin_utils.runtime_enforcer import (
    GROUP,
    OLD_GROUP,
    read_runtime_enforcer,
    release_of,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.runtime_enforcer_requirements import (
    runtime_enforcer_findings,
)

from tests.enforcer_manifests import (
    CONTROL_PLANE,
    NAMESPACE,
    agent,
    budget,
    controller,
    labels,
    other,
    webhooks,
)

EVERYWHERE = '{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"Exists"}]}'
REFUSED = (403, {"message": "forbidden"})


def node(name: str, *taints: dict, runtime: str = "containerd://2.2.0", ready: bool = True, **more: str) -> dict:
    """A node as the probe has it."""
    marks = {"kubernetes.io/os": "linux", **more}
    return {"name": name, "labels": marks, "taints": list(taints), "runtime": runtime, "ready": ready}


def pod(component: str, place: str, *, ready: bool = True, qos: str = "Guaranteed", phase: str = "Running") -> dict:
    """A pod of a part, on a node."""
    return {
        "metadata": {"name": f"{component}-{place}", "namespace": NAMESPACE, "labels": labels(component)},
        "spec": {"nodeName": place},
        "status": {
            "phase": phase,
            "qosClass": qos,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def governed(place: str, group: str = GROUP, **annotations: str) -> dict:
    """A pod of an application that names a policy."""
    names = {key.replace("_", "-"): value for key, value in annotations.items()}
    return {
        "metadata": {
            "name": f"shop-{place}",
            "namespace": "shop",
            "labels": {f"{group}/policy": "p"},
            "annotations": {f"{key}.noderesource.dev": value for key, value in names.items()},
        },
        "spec": {"nodeName": place},
        "status": {"phase": "Running"},
    }


class World:
    """The objects of a cluster that has a Runtime Enforcer as it should be; tests change them."""

    def __init__(self) -> None:
        """Two nodes, the control plane tainted."""
        self.agent, self.controller, self.budgets = agent(), controller(), [budget()]
        self.deployments: list[dict] = []
        self.pods = [pod("agent", "cp1"), pod("agent", "w1"), pod("controller", "cp1"), pod("controller", "w1")]
        self.governed: list[dict] = []
        self.webhooks = webhooks("Y2E=")
        self.endpoints = [{"addresses": ["192.0.2.1"], "conditions": {"ready": True}}]
        self.nodes = [node("cp1", CONTROL_PLANE), node("w1")]
        self.groups = {GROUP}
        self.kubernetes, self.namespace = "v1.34.4", NAMESPACE
        self.refused: tuple[str, ...] = ()

    @property
    def agent_spec(self) -> dict:
        """The spec of the agent's pods."""
        return self.agent["spec"]["template"]["spec"]

    @property
    def agent_container(self) -> dict:
        """The agent's container."""
        return self.agent_spec["containers"][0]

    def list_all(self, resource, **options):
        """All objects of a kind, as the API server has them."""
        if resource.plural in self.refused:
            return REFUSED
        if options.get("namespace", NAMESPACE) != NAMESPACE:
            return 200, []
        selector = options.get("label_selector", "")
        items = {
            "daemonsets": [self.agent] if self.agent else [],
            "deployments": ([self.controller] if self.controller else []) + self.deployments,
            "poddisruptionbudgets": self.budgets,
            "validatingwebhookconfigurations": [self.webhooks],
            "endpointslices": [{"endpoints": self.endpoints}],
            "pods": [item for item in self.governed if selector in item["metadata"]["labels"]]
            if selector
            else self.pods,
        }
        return 200, copy.deepcopy(items.get(resource.plural, []))

    def read(self) -> list[dict]:
        """What is read of it; it fits into JSON, as a saved probe."""
        reader = Reader(lambda *_where: (404, {}), self.list_all)
        reader.groups |= self.groups
        return json.loads(json.dumps(read_runtime_enforcer(reader, self.namespace)))

    def findings(self) -> list[dict]:
        """What is found."""
        hosts = {"w1": "worker-1"}
        return list(runtime_enforcer_findings(self.read(), self.namespace, self.kubernetes, self.nodes, hosts))


def test_an_installation_as_it_should_be_has_no_finding():
    assert World().findings() == []


def replace(world: World, **changes: object) -> None:
    """Set attributes of the world."""
    for name, value in changes.items():
        setattr(world, name, value)


def sizes(part: dict, **limits: str | None) -> None:
    """Change limits and requests of a part; None takes a limit away."""
    resources = part["spec"]["template"]["spec"]["containers"][0]["resources"]
    for name, value in limits.items():
        where, _sign, key = name.partition("_")
        if value is None:
            del resources[where][key]
        else:
            resources[where][key] = value


def keep_apart(world: World, selector: dict | None) -> None:
    """Give the controller this selector of the pods that it keeps away from."""
    affinity = world.controller["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    affinity["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"]["labelSelector"] = selector


Change = Callable[[World], object]
# What is changed, what alone is found, and words of it.
FAULTS: dict[str, tuple[Change, str, str]] = {
    "one replica": (
        lambda w: (
            w.controller["spec"].update(replicas=1),
            replace(w, pods=w.pods[:3], budgets=[budget(maxUnavailable=1)]),
        ),
        "controller_replicas",
        "has 1 replica",
    ),
    "a replica that is not ready": (
        lambda w: replace(w, pods=[*w.pods[:3], pod("controller", "w1", ready=False)]),
        "controller_not_ready",
        "1 of 2",
    ),
    "a replica that is nowhere": (lambda w: w.pods.pop(), "controller_not_ready", "1 of 2"),
    "no budget": (lambda w: replace(w, budgets=[]), "no_disruption_budget", "no PodDisruptionBudget"),
    "a budget for others": (
        lambda w: w.budgets[0]["spec"].update(selector={"matchLabels": labels("agent")}),
        "no_disruption_budget",
        "counts the pods",
    ),
    "all must stay": (lambda w: replace(w, budgets=[budget(minAvailable=2)]), "budget_blocks_drain", "minAvailable 2"),
    "all must stay, in per cent": (
        lambda w: replace(w, budgets=[budget(minAvailable="51%")]),
        "budget_blocks_drain",
        "minAvailable 51%",
    ),
    "none may go": (lambda w: replace(w, budgets=[budget(maxUnavailable=0)]), "budget_blocks_drain", "Unavailable 0"),
    "two budgets": (lambda w: w.budgets.append(budget("mine")), "budget_blocks_drain", "no eviction is allowed"),
    "both on one node": (
        lambda w: replace(w, pods=[*w.pods[:3], pod("controller", "cp1")]),
        "controller_not_spread",
        "all 2 pods",
    ),
    "nothing keeps them apart": (
        lambda w: w.controller["spec"]["template"]["spec"].pop("affinity"),
        "controller_not_spread",
        "neither podAntiAffinity",
    ),
    "what keeps others apart": (
        lambda w: keep_apart(w, {"matchLabels": labels("operator")}),
        "controller_not_spread",
        "over its own pods",
    ),
    "what keeps nothing apart": (lambda w: keep_apart(w, None), "controller_not_spread", "over its own pods"),
    "a constraint without a selector": (
        lambda w: w.controller["spec"]["template"]["spec"].update(
            affinity={}, topologySpreadConstraints=[{"topologyKey": "kubernetes.io/hostname"}]
        ),
        "controller_not_spread",
        "over its own pods",
    ),
    "a controller without a limit": (
        lambda w: sizes(w.controller, limits_memory=None, requests_memory=None),
        "controller_resources",
        "container manager has no limit of memory",
    ),
    "an agent that may be evicted": (
        lambda w: sizes(w.agent, limits_cpu="500m"),
        "agent_resources",
        "requests 250m cpu and is limited to 500m",
    ),
    "a small agent": (
        lambda w: sizes(w.agent, limits_memory="64Mi", requests_memory="64Mi"),
        "agent_resources",
        "64Mi memory, less than 256Mi",
    ),
    "what a LimitRange made of it": (
        lambda w: replace(w, pods=[pod("agent", "cp1", qos="Burstable"), *w.pods[1:]]),
        "agent_resources",
        "Burstable, not Guaranteed",
    ),
    "a taint": (
        lambda w: replace(w, nodes=[*w.nodes, node("w2", {"key": "gpu", "value": "a", "effect": "NoSchedule"})]),
        "taint_not_tolerated",
        "does not tolerate gpu=a:NoSchedule: pods that start there",
    ),
    "a control plane that is not tolerated": (
        lambda w: (w.agent_spec.pop("tolerations"), replace(w, pods=w.pods[1:])),
        "taint_not_tolerated",
        "control-plane:NoSchedule",
    ),
    "a taint that came when the agent was there": (
        lambda w: w.nodes[1]["taints"].append({"key": "gpu", "effect": "NoSchedule"}),
        "taint_not_tolerated",
        "the agent here does not tolerate gpu:NoSchedule: once it stops, none follows it",
    ),
    "a selector": (
        lambda w: (
            w.agent_spec.update(nodeSelector={"pool": "a"}),
            w.nodes[0]["labels"].update(pool="a"),
            w.pods.pop(1),
        ),
        "node_not_selected",
        "leaves the node out",
    ),
    "an affinity": (
        lambda w: (
            w.agent_spec.update(
                affinity={
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["cp1"]}]}
                            ]
                        }
                    }
                }
            ),
            w.pods.pop(1),
        ),
        "node_not_selected",
        "leaves the node out",
    ),
    "a node without a pod": (lambda w: w.pods.pop(1), "agent_not_ready", "has no pod here"),
    "a pod that is not ready, with one that names a policy": (
        lambda w: replace(w, pods=[w.pods[0], pod("agent", "w1", ready=False), *w.pods[2:]], governed=[governed("w1")]),
        "agent_not_ready",
        "not ready; pods shop/shop-w1 name a policy",
    ),
    "only a controller": (lambda w: replace(w, agent=None), "no_agent", "only a controller"),
    "an update that takes the old one first": (
        lambda w: w.agent["spec"].update(
            updateStrategy={"rollingUpdate": {"maxUnavailable": 1}, "type": "RollingUpdate"}
        ),
        "update_strategy",
        "maxUnavailable 1: protection lapses",
    ),
    "an update by hand": (
        lambda w: w.agent["spec"].update(updateStrategy={"type": "OnDelete"}),
        "update_strategy",
        "OnDelete",
    ),
    "no hostPID": (lambda w: w.agent_spec.update(hostPID=False), "agent_rights", "hostPID is not true"),
    "a capability less": (
        lambda w: w.agent_container["securityContext"]["capabilities"].update(add=["CAP_BPF", "perfmon", "SYS_PTRACE"]),
        "agent_rights",
        "capabilities SYS_RESOURCE are missing",
    ),
    "a capability less than what SYS_ADMIN includes": (
        lambda w: w.agent_container["securityContext"]["capabilities"].update(add=["SYS_ADMIN", "SYS_PTRACE"]),
        "agent_rights",
        ": capabilities SYS_RESOURCE are missing",
    ),
    "no NRI": (lambda w: w.agent_spec.update(volumes=[]), "agent_rights", "NRI's socket"),
    "another directory of the node": (
        lambda w: w.agent_spec.update(volumes=[{"name": "sys", "hostPath": {"path": "/sys"}}]),
        "agent_rights",
        "NRI's socket",
    ),
    "privileged": (
        lambda w: w.agent_container.update(securityContext={"privileged": True}),
        "agent_privileged",
        "runs privileged",
    ),
    "no class": (
        lambda w: w.agent_spec.pop("priorityClassName"),
        "no_priority_class",
        "guard-runtime-enforcer-agent name no",
    ),
    "the chart's collector": (
        lambda w: replace(w, deployments=[other("otel-collector")]),
        "telemetry",
        "own collector, guard-runtime-enforcer-otel-collector",
    ),
    "no collector": (lambda w: w.agent_container.update(env=[]), "telemetry", "counted nowhere"),
    "it learns everywhere": (
        lambda w: w.agent_container.update(args=[f"--learning-namespace-selector={EVERYWHERE}"]),
        "learns_everywhere",
        "every namespace",
    ),
    "it learns everywhere, with an empty list": (
        lambda w: w.agent_container.update(
            args=["--learning-namespace-selector=" + EVERYWHERE.replace("}]", ',"values":[]}]')]
        ),
        "learns_everywhere",
        "every namespace",
    ),
    "a debugger": (
        lambda w: replace(w, deployments=[other("debugger")]),
        "debugger_on",
        "guard-runtime-enforcer-debugger is running",
    ),
    "webhooks without an endpoint": (
        lambda w: w.endpoints[0].update(conditions={"ready": False}),
        "webhook_not_answering",
        "does not exist: a promotion",
    ),
    "webhooks without a certificate": (
        lambda w: replace(w, webhooks=webhooks("")),
        "webhook_not_answering",
        "no caBundle",
    ),
    "a runtime that does not know required plugins": (
        lambda w: replace(
            w,
            nodes=[w.nodes[0], node("w1", runtime="containerd://1.7.24")],
            governed=[governed("w1", required_plugins='["runtime-enforcer-agent"]')],
        ),
        "required_plugins_ignored",
        "containerd 1.7.24 does not know",
    ),
    "an old CRI-O": (
        lambda w: replace(
            w,
            nodes=[w.nodes[0], node("w1", runtime="cri-o://1.33.2")],
            governed=[governed("w1", required_plugins='["runtime-enforcer-agent"]')],
        ),
        "required_plugins_ignored",
        "cri-o 1.33.2",
    ),
    "a label of before 0.10": (
        lambda w: replace(w, governed=[governed("w1", OLD_GROUP)]),
        "label_not_read",
        "security.rancher.io/policy, which Runtime Enforcer 0.10.1 does not read",
    ),
    "an old Kubernetes": (lambda w: replace(w, kubernetes="v1.30.9"), "kubernetes_version", "1.31 or newer"),
    "another namespace": (lambda w: replace(w, namespace="guard"), "other_namespace", "the run looks at guard"),
}


@pytest.mark.parametrize(("change", "name", "words"), FAULTS.values(), ids=FAULTS)
def test_each_fault_is_found_and_nothing_else(change: Change, name: str, words: str):
    world = World()
    change(world)
    found = world.findings()

    assert [item["id"] for item in found] == [f"runtime_enforcer.{name}"]
    assert words in found[0]["observed"]
    assert "{" not in found[0]["remedy"].replace('{"', "").replace(':{"', "")


def test_each_demand_has_a_fault_here():
    demands = [
        item for item in vars(runtime_enforcer_demands).values() if isinstance(item, runtime_enforcer_demands.Demand)
    ]

    assert {item.id for item in demands} == {f"runtime_enforcer.{name}" for _change, name, _words in FAULTS.values()}


FINE: dict[str, Change] = {
    "not installed": lambda w: replace(w, agent=None, controller=None),
    "definitions left behind by an old one": lambda w: replace(w, agent=None, controller=None, groups={OLD_GROUP}),
    "limits only": lambda w: sizes(w.agent, requests_cpu=None, requests_memory=None),
    "the same in other units": lambda w: sizes(w.agent, requests_cpu="0.25", limits_memory="268435456"),
    "a budget in per cent": lambda w: replace(w, budgets=[budget(maxUnavailable="1%")]),
    "one node": lambda w: replace(w, nodes=w.nodes[:1], pods=[w.pods[0], *[pod("controller", "cp1")] * 2]),
    "topologySpreadConstraints": lambda w: w.controller["spec"]["template"]["spec"].update(
        affinity={},
        topologySpreadConstraints=[
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels("controller")}}
        ],
    ),
    "an address that is kept elsewhere": lambda w: w.agent_container.update(
        env=[{"name": "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]
    ),
    "a taint that passes": lambda w: w.nodes[1]["taints"].append(
        {"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}
    ),
    "a taint that only advises": lambda w: w.nodes[1]["taints"].append({"key": "gpu", "effect": "PreferNoSchedule"}),
    "learning off": lambda w: w.agent_container.update(args=[""]),
    "learning in two words": lambda w: w.agent_container.update(
        args=["--learning-namespace-selector", '{"matchLabels":{"env":"prod"}}']
    ),
    "a selector that is no JSON": lambda w: w.agent_container.update(args=["--learning-namespace-selector={"]),
    "a debugger that was scaled down": lambda w: replace(
        w, deployments=[{**other("debugger"), "spec": {**other("debugger")["spec"], "replicas": 0}}]
    ),
    "a debugger of others": lambda w: replace(
        w, deployments=[{"metadata": {"name": "debugger"}, "spec": {"template": {"spec": {"containers": []}}}}]
    ),
    "two pods while it is updated": lambda w: w.pods.append(pod("agent", "w1", ready=False)),
    "a pod that is over": lambda w: w.pods.append(pod("agent", "w1", ready=False, phase="Failed")),
    "a node that is not ready": lambda w: replace(w, nodes=[*w.nodes, node("w2", ready=False)]),
    "a Windows node": lambda w: replace(w, nodes=[*w.nodes, node("win", **{"kubernetes.io/os": "windows"})]),
    "a node that is none": lambda w: replace(
        w, nodes=[*w.nodes, node("v", {"key": "virtual-kubelet.io/provider", "effect": "NoSchedule"})]
    ),
    "all pods refused": lambda w: replace(w, pods=[], refused=("pods",)),
    "budgets refused": lambda w: replace(w, budgets=[], refused=("poddisruptionbudgets",)),
    "endpoints refused": lambda w: replace(w, endpoints=[], refused=("endpointslices",)),
    "deployments refused": lambda w: replace(w, controller=None, refused=("deployments",)),
    "the annotation where it is known": lambda w: replace(
        w, governed=[governed("w1", required_plugins='["runtime-enforcer-agent"]')]
    ),
    "another plugin required": lambda w: replace(
        w,
        nodes=[w.nodes[0], node("w1", runtime="containerd://1.7.24")],
        governed=[governed("w1", required_plugins="x")],
    ),
    "a webhook that may be left out": lambda w: w.webhooks["webhooks"][0].update(failurePolicy="Ignore"),
    "webhooks of nobody": lambda w: w.webhooks.update(webhooks=None),
    "an image of another registry without a version": lambda w: (
        w.agent_container.update(image="registry.example/guard@sha256:0"),
        w.agent["metadata"]["labels"].pop("app.kubernetes.io/version"),
        replace(w, kubernetes="v1.2.0"),
    ),
}


@pytest.mark.parametrize("change", FINE.values(), ids=FINE)
def test_what_is_not_wrong_is_no_finding(change: Change):
    world = World()
    change(world)

    assert world.findings() == []


def test_it_is_found_by_its_chart_or_image_whatever_it_is_called():
    by_chart, by_image = World(), World()
    for part in (by_chart.agent, by_chart.controller):
        part["metadata"]["labels"]["app.kubernetes.io/name"] = "guard"
        part["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"] = "guard"
    by_image.agent["metadata"]["labels"] = {}
    by_image.agent["spec"]["template"]["metadata"]["labels"] = {"app.kubernetes.io/component": "agent"}

    assert by_chart.read()[0]["version"] == by_image.read()[0]["version"] == "0.10.1"


def test_others_with_such_a_component_are_not_it():
    world = World()
    for part in (world.agent, world.controller):
        part["metadata"]["labels"] = {}
        part["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"] = "other"
        part["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/other/agent:v1"

    assert world.read() == []


def test_no_list_beside_that_of_daemonsets_is_asked_for_where_it_is_not_installed():
    asked = []

    def list_all(resource, **_options):
        asked.append(resource.plural)
        return 200, []

    assert read_runtime_enforcer(Reader(lambda *_where: (404, {}), list_all), NAMESPACE) == []
    assert asked == ["daemonsets"]


@pytest.mark.parametrize(
    ("version", "group"),
    [("v0.10.1", GROUP), ("0.11.0-dev", GROUP), ("v0.9.0", OLD_GROUP), ("latest", None), ("", None)],
)
def test_the_version_selects_the_row(version: str, group: str | None):
    row = release_of(version)

    assert (row.group if row else None) == group


@pytest.mark.parametrize("empty", [None, {}, [], "", 0])
def test_objects_with_holes_are_no_error(empty: object):
    """What a cluster holds may lack anything; the part that tells what it is stays."""
    for name in ("agent", "controller"):
        for path in (
            ("spec", "template", "spec", "containers", 0, "resources"),
            ("spec", "template", "spec", "containers", 0, "securityContext"),
            ("spec", "template", "spec", "containers", 0, "env"),
            ("spec", "template", "spec", "containers", 0, "args"),
            ("spec", "template", "spec", "volumes"),
            ("spec", "template", "spec", "affinity"),
            ("spec", "template", "spec", "tolerations"),
            ("spec", "updateStrategy"),
            ("spec", "selector"),
            ("spec", "replicas"),
            ("metadata", "labels"),
        ):
            world = World()
            at = getattr(world, name)
            for key in path[:-1]:
                at = at[key]
            at[path[-1]] = empty
            world.findings()
