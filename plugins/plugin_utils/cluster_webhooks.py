# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Admission webhooks that the agent has to pass, and whether anything answers them.

A webhook with failurePolicy Fail that nobody answers refuses all that it is asked about. Only those are read that ask
about the agent's namespace, its DaemonSets or its pods there. Source: admissionregistration.k8s.io/v1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING, finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import (
    ENDPOINT_SLICES,
    ENDPOINTS,
    SERVICE_OF_SLICE,
    SERVICES,
    Reader,
    Resource,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.label_selector import matches_labels
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_list, as_mapping, name_of

GROUP = "admissionregistration.k8s.io"
CONFIGURATIONS = (
    Resource(GROUP, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
    Resource(GROUP, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
)
# The labels that role cluster gives a namespace that is not there yet, and the one that the API server adds.
LEVELS = {f"pod-security.kubernetes.io/{mode}": "privileged" for mode in ("enforce", "audit", "warn")}
NAME_LABEL = "kubernetes.io/metadata.name"


def read_webhooks(reader: Reader, namespace: dict) -> list[dict]:
    """Each webhook with failurePolicy Fail that is asked about the agent.

    C({kind, configuration, name, resources, conditions, service, state}): resources of C(pods), C(daemonsets) and
    C(namespaces); conditions: whether it has matchConditions, which only the API server can evaluate; service:
    C(namespace/name), "" where it is called by an address; state: of service_state, "" without a service.

    :param namespace: as the probe has it: C({name, exists, labels}).
    """
    found = []
    for resource in CONFIGURATIONS:
        for configuration in reader.list(resource):
            for webhook in map(as_mapping, as_list(configuration.get("webhooks"))):
                asked = asked_about(webhook, namespace)
                if asked and webhook.get("failurePolicy", "Fail") == "Fail":
                    found.append(_webhook(reader, resource.kind, name_of(configuration), webhook, asked))
    return found


def _webhook(reader: Reader, kind: str, configuration: str, webhook: dict, asked: list[str]) -> dict:
    service = as_mapping(as_mapping(webhook.get("clientConfig")).get("service"))
    place = (str(service.get("namespace") or ""), str(service.get("name") or ""))
    return {
        "kind": kind,
        "configuration": configuration,
        "name": str(webhook.get("name") or ""),
        "resources": asked,
        "conditions": bool(webhook.get("matchConditions")),
        "service": "/".join(place) if service else "",
        "state": service_state(reader, *place) if service else "",
    }


def service_state(reader: Reader, namespace: str, name: str) -> str:
    """C(ready), C(missing), C(no_endpoints), or C(unknown) where it cannot be seen or has no endpoints of its own."""
    known = len(reader.unseen)
    slices = reader.list(ENDPOINT_SLICES, namespace=namespace, label_selector=f"{SERVICE_OF_SLICE}={name}")
    endpoints = [as_mapping(item) for each in slices for item in as_list(each.get("endpoints"))]
    # A condition that is not told counts as true.
    if any(as_mapping(item.get("conditions")).get("ready") is not False for item in endpoints):
        return "ready"
    service = reader.one(SERVICES, name, namespace)
    # Before Kubernetes 1.21 there may be no slices.
    subsets = as_list(reader.one(ENDPOINTS, name, namespace).get("subsets")) if service and not slices else []
    if any(as_list(as_mapping(item).get("addresses")) for item in subsets):
        return "ready"
    if ENDPOINT_SLICES.plural in reader.unseen or len(reader.unseen) > known:
        return "unknown"
    if not service:
        return "missing"
    return "unknown" if as_mapping(service.get("spec")).get("type") == "ExternalName" else "no_endpoints"


def namespace_labels(namespace: dict) -> dict[str, str]:
    """The labels of the agent's namespace, or those that it will have."""
    labels = namespace["labels"] if namespace["exists"] else LEVELS
    return {NAME_LABEL: namespace["name"], **labels}


class _Target(NamedTuple):
    """What of the agent a webhook may be asked about."""

    plural: str
    group: str
    scope: str
    operations: set[str]
    labels: dict[str, str]


def asked_about(webhook: dict, namespace: dict) -> list[str]:
    """Of C(pods), C(daemonsets) and C(namespaces) those that the webhook is asked about.

    The agent's pods carry no label that a webhook of others wants.
    """
    labels = namespace_labels(namespace)
    if not matches_labels(webhook.get("namespaceSelector"), labels):
        return []
    targets = (
        _Target("pods", "", "Namespaced", {"CREATE"}, {}),
        _Target("daemonsets", "apps", "Namespaced", {"CREATE", "UPDATE"}, {}),
        _Target("namespaces", "", "Cluster", {"UPDATE" if namespace["exists"] else "CREATE"}, labels),
    )
    is_exact = webhook.get("matchPolicy") == "Exact"
    rules = [as_mapping(item) for item in as_list(webhook.get("rules"))]
    return [
        target.plural
        for target in targets
        if matches_labels(webhook.get("objectSelector"), target.labels)
        and any(_rule_matches(rule, target, is_exact=is_exact) for rule in rules)
    ]


def _rule_matches(rule: dict, target: _Target, *, is_exact: bool) -> bool:
    groups, operations, resources = (
        set(map(str, as_list(rule.get(key)))) for key in ("apiGroups", "operations", "resources")
    )
    # With Equivalent, the default, a rule for the group that served DaemonSets before counts as well.
    same = {target.group, "extensions"} if target.group and not is_exact else {target.group}
    return (
        ("*" in groups or bool(same & groups))
        and ("*" in operations or bool(target.operations & operations))
        and bool({target.plural, "*", "*/*"} & resources)
        and rule.get("scope", "*") in {"*", target.scope}
    )


def is_dead(webhook: dict) -> bool:
    """Whether nobody answers a webhook, so that it refuses what it is asked about, unless its conditions say no."""
    return webhook["state"] in {"missing", "no_endpoints"}


def webhook_findings(webhooks: list[dict], admission: dict | None) -> Iterator[dict]:
    """Webhooks that nobody answers and that refuse the agent by that.

    :param admission: of the probe. A pod that was admitted has passed all webhooks that are asked about pods.
    """
    passed = {"pods"} if admission and admission["admitted"] else set()
    for item in webhooks:
        asked = [name for name in item["resources"] if name not in passed]
        if not asked or not is_dead(item):
            continue
        namespace, _slash, name = item["service"].partition("/")
        state = "does not exist" if item["state"] == "missing" else "has no ready endpoint"
        unless = ", unless its matchConditions leave the agent out" if item["conditions"] else ""
        yield finding(
            "webhook.could_block",
            severity=WARNING if item["conditions"] else BLOCKER,
            requirement="secure-workload/Requirements and Prerequisites",
            observed=f"{item['kind']} {item['configuration']}, webhook {item['name']}, refuses {', '.join(asked)} of "
            f"the agent{unless}: its failurePolicy is Fail and its Service {item['service']} {state}",
            expected="webhooks that the agent has to pass answer",
            remedy=f"start what serves it (kubectl -n {namespace} get pods, and service {name}); where its software is "
            f"gone: kubectl delete {item['kind'].lower()} {item['configuration']}",
        )
