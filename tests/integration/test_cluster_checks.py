"""What a real API server says of a cluster, and what the checks make of it; nothing of it starts, all of it goes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster import Cluster
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_requirements import evaluate_cluster

from tests.lab import Lab

NAMESPACE = "portcullis-checks"
HERE = {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}}
NOBODY = {"failurePolicy": "Fail", "sideEffects": "None", "admissionReviewVersions": ["v1"], "namespaceSelector": HERE}
WEBHOOKS = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingWebhookConfiguration",
    "metadata": {"name": NAMESPACE},
    "webhooks": [
        {
            **NOBODY,
            "name": "dead.guard.example",
            "clientConfig": {"service": {"namespace": NAMESPACE, "name": "guard"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        },
        {
            **NOBODY,
            "name": "elsewhere.guard.example",
            "clientConfig": {"service": {"namespace": NAMESPACE, "name": "guard"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["secrets"]}],
        },
    ],
}
POLICY = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": NAMESPACE},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
            ]
        },
        "validations": [{"expression": "!object.spec.hostPID", "message": "hostPID is not allowed"}],
    },
}
BINDING = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": NAMESPACE},
    "spec": {
        "policyName": NAMESPACE,
        "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": HERE},
    },
}


def namespace(level: str) -> dict:
    """The namespace with a Pod Security level."""
    labels = {"pod-security.kubernetes.io/enforce": level}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def daemon_set(name: str, container: str, **spec: object) -> dict:
    """A DaemonSet for every node, whose PriorityClass is not there: so no pod of it is made."""
    labels = {"checks": name}
    pods = {"priorityClassName": "gone", "containers": [{"name": container, "image": "registry.invalid/x"}], **spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pods}},
    }


CALICO, FLANNEL = daemon_set("calico-node", "calico-node"), daemon_set("kube-flannel-ds", "kube-flannel")
OBJECTS = [WEBHOOKS, POLICY, BINDING, namespace("privileged")]


def apply(lab: Lab, *items: dict) -> None:
    """Apply objects."""
    lab.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


@pytest.fixture(scope="module")
def checks(lab: Lab) -> Iterator[Lab]:
    """The lab's cluster, from which the objects of this file are taken away afterwards."""
    try:
        yield lab
    finally:
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": OBJECTS})
        lab.kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=true", stdin=items)


def findings(lab: Lab, engine: str = "native") -> dict[str, dict]:
    """What the checks make of the cluster, by id; the inventory is not looked at."""
    found = evaluate_cluster(Cluster(str(lab.kubeconfig)).probe(NAMESPACE, engine), {}, engine)
    return {item["id"]: item for item in found if not item["id"].startswith("inventory.")}


def test_who_refuses_the_agent_is_named(checks: Lab):
    """Pod Security, then a webhook that nobody answers: the API server stops at the first that says no."""
    apply(checks, namespace("restricted"), WEBHOOKS)
    found = findings(checks)
    assert set(found) == {"cluster.admission_refused", "webhook.could_block"}
    assert "refused by psa (restricted:latest)" in found["cluster.admission_refused"]["observed"]
    assert "webhook dead.guard.example, refuses pods" in found["webhook.could_block"]["observed"]
    assert f"its Service {NAMESPACE}/guard does not exist" in found["webhook.could_block"]["observed"]

    fields = found["cluster.admission_refused"]["observed"].partition(": ")[0]
    of_the_other = findings(checks, "runtime_enforcer")["cluster.admission_refused"]["observed"].partition(": ")[0]
    assert "privileged" in fields
    assert "privileged" not in of_the_other
    assert "capabilities" in of_the_other

    apply(checks, namespace("privileged"))
    assert set(findings(checks)) == {"webhook.could_block"}, "the dead webhook, told once"

    checks.kubectl("delete", "validatingwebhookconfiguration", NAMESPACE)
    assert findings(checks) == {}


@pytest.mark.full
def test_a_policy_that_refuses_the_agent_is_named(checks: Lab):
    apply(checks, namespace("privileged"))
    apply(checks, POLICY, BINDING)
    # A new policy is in force some moments after it is there.
    for _try in range(30):
        found = findings(checks)
        if "cluster.admission_refused" in found:
            break

    assert set(found) == {"cluster.admission_refused"}
    checks.kubectl("delete", "validatingadmissionpolicybinding", NAMESPACE)
    assert f"validatingadmissionpolicy ({NAMESPACE} / {NAMESPACE})" in found["cluster.admission_refused"]["observed"]
    assert "because of hostPID" in found["cluster.admission_refused"]["observed"]


def test_a_second_network_plugin_and_a_class_that_is_gone_are_found(checks: Lab):
    apply(checks, namespace("privileged"), CALICO, FLANNEL)
    for name in ("calico-node", "kube-flannel-ds"):
        wanted = "--for=jsonpath={.status.desiredNumberScheduled}=2"
        checks.kubectl("-n", NAMESPACE, "wait", wanted, f"daemonset/{name}", "--timeout=20s")
    found = findings(checks, "secure_workload")

    assert {"network.several_providers", "cluster.priority_class_missing", "calico.not_ready"} <= set(found)
    assert "calico-node), flannel" in found["network.several_providers"]["observed"]
    assert "DaemonSet calico-node, DaemonSet kube-flannel-ds" in found["cluster.priority_class_missing"]["observed"]
    # Nothing tells the version of a Calico whose image is not one of Calico's.
    assert "calico.version_unknown" in found


def test_the_api_servers_real_port_is_read(lab: Lab):
    found = Cluster(str(lab.kubeconfig)).probe(NAMESPACE)["api_server"]

    assert (found["service_port"], found["target_port"]) == (443, 6443)
    assert [item["port"] for item in found["endpoints"]] == [6443]
