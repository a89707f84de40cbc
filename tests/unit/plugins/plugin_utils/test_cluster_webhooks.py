# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Webhooks that could block the agent: which ask about it, and which of them nobody answers."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import Reader
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_webhooks import read_webhooks, webhook_findings
from ansible_collections.portcullis.fleet.plugins.plugin_utils.label_selector import matches_labels

NAMESPACE = {"name": "agents", "exists": True, "labels": {"team": "security"}}
ABSENT = {"name": "agents", "exists": False, "labels": {}}
PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
READY = [{"endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": True}}]}]
NOT_READY = [{"endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": False}}]}, {"endpoints": None}]
SERVICE = {"spec": {"type": "ClusterIP"}}


def webhook(*rules: dict, **changes: object) -> dict:
    """A webhook of a validating configuration, with failurePolicy Fail."""
    base = {
        "name": "pods.guard.example",
        "failurePolicy": "Fail",
        "clientConfig": {"service": {"namespace": "guard", "name": "guard"}},
        "rules": list(rules) or [PODS],
    }
    return {**base, **changes}


def read(
    item: dict,
    *,
    namespace: dict = NAMESPACE,
    slices: object = NOT_READY,
    service: object = SERVICE,
    endpoints: dict | None = None,
) -> list[dict]:
    """What is read of a cluster with this one webhook; slices and service may be a refusal."""
    refused = (403, {"message": "forbidden"})

    def list_all(resource, **_options):
        if resource.plural == "endpointslices":
            return (200, slices) if isinstance(slices, list) else refused
        if resource.plural == "validatingwebhookconfigurations":
            return 200, [{"metadata": {"name": "guard"}, "webhooks": [item]}]
        return 200, [{"metadata": {"name": "empty"}, "webhooks": None}]

    def get(resource, _name, _namespace):
        if resource.plural == "endpoints":
            return (200, endpoints) if endpoints else (404, {})
        return (404, {}) if service is None else (200, service)

    return read_webhooks(Reader(get, list_all), namespace)


def ids(found: list[dict], admission: dict | None = None) -> list[tuple[str, str]]:
    """Id and severity of what is found."""
    return [(item["id"], item["severity"]) for item in webhook_findings(found, admission)]


BLOCKED = [("webhook.could_block", "blocker")]
RULES = {
    "all": {"apiGroups": ["*"], "operations": ["*"], "resources": ["*/*"], "scope": "*"},
    "daemonsets": {"apiGroups": ["apps"], "operations": ["UPDATE"], "resources": ["daemonsets"]},
    "daemonsets of an old group": {"apiGroups": ["extensions"], "operations": ["CREATE"], "resources": ["daemonsets"]},
    "namespaces": {"apiGroups": [""], "operations": ["UPDATE"], "resources": ["namespaces"], "scope": "Cluster"},
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_what_the_run_and_the_agent_make_is_asked_about(rule):
    assert ids(read(webhook(rule))) == BLOCKED


NOT_ASKED = {
    "other resource": webhook({**PODS, "resources": ["pods/exec", "pods/*", "services"]}),
    "other group": webhook({**PODS, "apiGroups": ["batch"]}),
    "other operation": webhook({**PODS, "operations": ["DELETE", "CONNECT"]}),
    "other scope": webhook({**PODS, "scope": "Cluster"}),
    "exact group": webhook(RULES["daemonsets of an old group"], matchPolicy="Exact"),
    "no rules": webhook(rules=None),
    "fails open": webhook(failurePolicy="Ignore"),
    "namespace left out by name": webhook(
        namespaceSelector={
            "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["agents"]}]
        }
    ),
    "namespace not chosen": webhook(namespaceSelector={"matchLabels": {"istio-injection": "enabled"}}),
    "namespace left out by its label": webhook(
        namespaceSelector={"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}
    ),
    "object not chosen": webhook(objectSelector={"matchExpressions": [{"key": "inject", "operator": "Exists"}]}),
    "by address": webhook(clientConfig={"url": "https://guard.example/"}),
}


@pytest.mark.parametrize("item", NOT_ASKED.values(), ids=NOT_ASKED)
def test_what_cannot_block_the_agent_is_no_finding(item):
    assert ids(read(item)) == []


def test_a_namespace_that_is_not_there_yet_has_the_labels_that_the_run_gives_it():
    chosen = {"matchLabels": {"pod-security.kubernetes.io/enforce": "privileged"}}
    create = {**RULES["namespaces"], "operations": ["CREATE"]}

    assert ids(read(webhook(namespaceSelector=chosen), namespace=ABSENT)) == BLOCKED
    assert ids(read(webhook(create), namespace=ABSENT)) == BLOCKED
    assert ids(read(webhook(create))) == []


@pytest.mark.parametrize(
    ("slices", "service", "expected"),
    [
        (READY, SERVICE, []),
        ([{"endpoints": [{"addresses": ["192.0.2.1"]}]}], SERVICE, []),
        (NOT_READY, SERVICE, BLOCKED),
        ([], SERVICE, BLOCKED),
        ([], None, BLOCKED),
        ([], {"spec": {"type": "ExternalName"}}, []),
        ("refused", SERVICE, []),
    ],
    ids=["ready", "condition not told", "not ready", "no slices", "no service", "name outside", "not seen"],
)
def test_a_webhook_is_dead_when_its_service_has_nobody(slices, service, expected):
    assert ids(read(webhook(), slices=slices, service=service)) == expected


def test_a_cluster_of_before_slices_says_who_serves_by_endpoints():
    serving = {"subsets": [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 443}]}]}
    waiting = {"subsets": [{"notReadyAddresses": [{"ip": "192.0.2.1"}]}]}

    assert ids(read(webhook(), slices=[], endpoints=serving)) == []
    assert ids(read(webhook(), slices=[], endpoints=waiting)) == BLOCKED
    assert ids(read(webhook(), slices=NOT_READY, endpoints=serving)) == BLOCKED


def test_a_pod_that_was_admitted_has_passed_what_asks_about_pods():
    found = read(webhook())
    both = read(webhook(PODS, RULES["daemonsets"]))

    assert ids(found, {"admitted": True, "message": ""}) == []
    assert ids(found, {"admitted": False, "message": "failed calling webhook"}) == BLOCKED
    assert ids(both, {"admitted": True, "message": ""}) == BLOCKED


def test_conditions_that_only_the_api_server_evaluates_make_it_a_warning():
    (found,) = webhook_findings(read(webhook(matchConditions=[{"name": "x", "expression": "true"}])), None)

    assert found["severity"] == "warning"
    assert "unless its matchConditions leave the agent out" in found["observed"]


def test_the_finding_names_the_webhook_its_service_and_what_to_do():
    (found,) = webhook_findings(read(webhook(), service=None), None)

    assert "ValidatingWebhookConfiguration guard, webhook pods.guard.example, refuses pods" in found["observed"]
    assert "its Service guard/guard does not exist" in found["observed"]
    assert "kubectl delete validatingwebhookconfiguration guard" in found["remedy"]


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        (None, True),
        ({}, True),
        ({"matchLabels": {"a": "1"}}, True),
        ({"matchLabels": {"a": "2"}}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, True),
        ({"matchExpressions": [{"key": "b", "operator": "In", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]}, True),
        ({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}, False),
    ],
)
def test_a_label_selector_matches_as_kubernetes_has_it(selector, matches):
    assert matches_labels(selector, {"a": "1"}) is matches
