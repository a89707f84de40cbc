"""An installed Runtime Enforcer on a real API server: objects of ours with its labels, pods that sleep."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster import Cluster
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_requirements import evaluate_cluster

from tests import enforcer_manifests as enforcer
from tests.lab import Lab

IMAGE = "docker.io/library/busybox:1.33"
LEVEL = {"pod-security.kubernetes.io/enforce": "privileged"}
SPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": enforcer.NAMESPACE, "labels": LEVEL}}
PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "runtime-enforcer-priorityclass"},
    "value": 1000000,
}


# The lab's nodes have no CAP_SYS_RESOURCE to give; without it the agent starts, and the check has something to find.
LACKS = "runtime_enforcer.agent_rights"


def agent() -> dict:
    """The agent as a node of the lab can run it."""
    item = enforcer.agent(IMAGE)
    rights = item["spec"]["template"]["spec"]["containers"][0]["securityContext"]
    rights["capabilities"]["add"].remove("SYS_RESOURCE")
    return item


def objects(lab: Lab) -> list[dict]:
    """All that is installed."""
    config = yaml.safe_load(lab.kubeconfig.read_text(encoding="utf-8"))
    authority = config["clusters"][0]["cluster"]["certificate-authority-data"]
    return [
        SPACE,
        PRIORITY,
        agent(),
        enforcer.controller(IMAGE),
        enforcer.budget(),
        enforcer.service(),
        enforcer.webhooks(authority),
    ]


def kubectl(lab: Lab, *words: str, items: list[dict]) -> None:
    """Run kubectl with these objects."""
    lab.kubectl(*words, "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


@pytest.fixture(scope="module")
def installed(lab: Lab) -> Iterator[Lab]:
    """The lab's cluster with a Runtime Enforcer that is ready; nothing of it stays."""
    items = objects(lab)
    try:
        kubectl(lab, "apply", items=items[:1])
        kubectl(lab, "apply", items=items[1:])
        wait(lab)
        yield lab
    finally:
        kubectl(lab, "delete", "--ignore-not-found", "--wait=true", items=items[:0:-1])
        kubectl(lab, "delete", "--ignore-not-found", "--wait=true", items=items[:1])


def wait(lab: Lab) -> None:
    """Wait until agent and controller are there."""
    for name in ("daemonset/guard-runtime-enforcer-agent", "deployment/guard-runtime-enforcer-controller-manager"):
        lab.kubectl("-n", enforcer.NAMESPACE, "rollout", "status", name, "--timeout=60s")


def found(lab: Lab) -> dict[str, dict]:
    """What the profile finds in the cluster, by id; the inventory is not looked at."""
    probe = Cluster(str(lab.kubeconfig)).probe(enforcer.NAMESPACE)
    items = evaluate_cluster(probe, {}, "runtime_enforcer")
    return {item["id"]: item for item in items if not item["id"].startswith("inventory.")}


def test_where_it_is_not_installed_nothing_is_demanded(lab: Lab):
    assert found(lab) == {}


@pytest.mark.full
def test_of_an_installation_only_what_it_lacks_is_found(installed: Lab):
    items = found(installed)

    assert set(items) == {LACKS}
    assert "capabilities SYS_RESOURCE are missing" in items[LACKS]["observed"]


@pytest.mark.full
def test_faults_are_found_and_go_when_they_are_mended(installed: Lab):
    place = ("-n", enforcer.NAMESPACE)
    name = enforcer.controller()["metadata"]["name"]
    nowhere = agent()
    nowhere["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "nowhere"}
    try:
        installed.kubectl(*place, "scale", "deployment", name, "--replicas=0")
        installed.kubectl(*place, "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/component=controller")
        kubectl(installed, "apply", items=[nowhere, enforcer.other("debugger", IMAGE)])
        installed.kubectl("delete", "priorityclass", PRIORITY["metadata"]["name"])
        items = found(installed)
    finally:
        kubectl(installed, "delete", "--wait=false", items=[enforcer.other("debugger", IMAGE)])
        kubectl(installed, "apply", items=objects(installed))
        wait(installed)

    assert set(items) == {
        LACKS,
        "cluster.priority_class_missing",
        "runtime_enforcer.controller_replicas",
        "runtime_enforcer.webhook_not_answering",
        "runtime_enforcer.node_not_selected",
        "runtime_enforcer.debugger_on",
    }
    assert "has no ready endpoint" in items["runtime_enforcer.webhook_not_answering"]["observed"]
    assert set(found(installed)) == {LACKS}
