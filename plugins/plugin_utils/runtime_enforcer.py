# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of an installed Runtime Enforcer is read from a cluster: its agent, controller, webhooks and who names a policy.

Its objects are found by the labels of its chart or by its image, whatever the release and the namespace are called.
Source: kubewarden/runtime-enforcer, charts/runtime-enforcer, 0.7 to 0.10.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import (
    DAEMON_SETS,
    DEPLOYMENTS,
    PODS,
    Reader,
    Resource,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_webhooks import CONFIGURATIONS, service_state
from ansible_collections.portcullis.fleet.plugins.plugin_utils.daemon_coverage import placement
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import Version, parse_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.label_selector import matches_labels
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import (
    as_list,
    as_mapping,
    metadata,
    name_of,
    pod_spec,
)

BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
GROUP, OLD_GROUP = "runtimeenforcer.kubewarden.io", "security.rancher.io"
COMPONENT, INSTANCE = "app.kubernetes.io/component", "app.kubernetes.io/instance"
# The first versions called the agent daemon and the controller operator.
AGENT, CONTROLLER = {"agent", "daemon"}, {"controller", "operator"}
DEBUGGER, COLLECTOR = {"debugger"}, {"otel-collector"}
_OURS = re.compile(r"runtime-enforce(?:r|ment)(?:-\d.*)?")
_IMAGE = re.compile(r"/runtime-enforce(?:r|ment)/[\w-]+(?::v?(\d[^@]*))?")
LEARNING = "--learning-namespace-selector"
ENDPOINTS = {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"}
PLUGIN = "runtime-enforcer-agent"
REQUIRED_PLUGINS = "required-plugins.noderesource.dev"
# One page of pods that name a policy shows which nodes have such.
GOVERNED_READ = 500


class Release(NamedTuple):
    """What a line of versions brings. since: its first version. group: its API group and the prefix of its labels."""

    since: Version
    group: str
    kubernetes: Version


# As of 2026-11-30, newest first. Source: kubewarden/runtime-enforcer up to 0.10.1, its Compatibility page.
RELEASES = (Release((0, 10), GROUP, (1, 31)), Release((0, 0), OLD_GROUP, (1, 31)))


def release_of(version: str) -> Release | None:
    """The row of a version, None for one that cannot be read."""
    found = parse_version(version)
    return next((row for row in RELEASES if found >= row.since), None) if found else None


def read_runtime_enforcer(reader: Reader, namespace: str) -> list[dict]:
    """Each installation that there is, none in a cluster without; only then more than DaemonSets is asked for.

    C([{namespace, release, version, groups, agent, controller, budgets, collectors, debuggers, webhooks, governed}]),
    each part as the function for it returns it, agent and controller None where they are gone.

    :param namespace: where it is looked for besides the namespaces of its DaemonSets.
    """
    agents = [item for item in reader.list(DAEMON_SETS) if _is(item, AGENT)]
    groups = sorted({GROUP, OLD_GROUP} & reader.groups)
    if not agents and not groups:
        return []
    places = {str(metadata(item).get("namespace") or "") for item in agents} | {namespace}
    found = [_installation(reader, place, agents, groups) for place in sorted(places)]
    return [item for item in found if item["agent"] or item["controller"]]


def _installation(reader: Reader, namespace: str, agents: list[dict], groups: list[str]) -> dict:
    agent = next((item for item in agents if metadata(item).get("namespace") == namespace), None)
    deployments = reader.list(DEPLOYMENTS, namespace=namespace)
    controller = next((item for item in deployments if _is(item, CONTROLLER)), None)
    first = agent or controller
    if first is None:
        return {"agent": None, "controller": None}
    pods = _seen(reader, PODS, reader.list(PODS, namespace=namespace))
    return {
        "namespace": namespace,
        "release": str(_pod_labels(first).get(INSTANCE) or metadata(first).get("name")),
        "version": _version(first),
        "groups": groups,
        "agent": _agent(agent, pods) if agent else None,
        "controller": _controller(controller, pods) if controller else None,
        "budgets": _budgets(reader, controller, namespace) if controller else [],
        "collectors": [name_of(item) for item in deployments if _component(item) in COLLECTOR],
        "debuggers": [name_of(item) for item in deployments if _is(item, DEBUGGER) and _replicas(item)],
        "webhooks": _webhooks(reader),
        "governed": _governed(reader),
    }


def _pod_labels(workload: dict) -> dict:
    template = as_mapping(as_mapping(workload.get("spec")).get("template"))
    return as_mapping(metadata(template).get("labels"))


def _component(workload: dict) -> str:
    return str(_pod_labels(workload).get(COMPONENT) or "")


def _containers(workload: dict) -> list[dict]:
    return [as_mapping(item) for item in as_list(pod_spec(workload).get("containers"))]


def _images(workload: dict) -> list[str]:
    return [str(item.get("image") or "") for item in _containers(workload)]


def _is(workload: dict, components: set[str]) -> bool:
    """Whether a workload is such a part of Runtime Enforcer."""
    if _component(workload) not in components:
        return False
    labels = {**_pod_labels(workload), **as_mapping(metadata(workload).get("labels"))}
    names = (str(labels.get(key) or "") for key in ("app.kubernetes.io/name", "helm.sh/chart"))
    return any(map(_OURS.fullmatch, names)) or any(map(_IMAGE.search, _images(workload)))


def _version(workload: dict) -> str:
    """That of the image, else of the label, which is the chart's; empty where neither tells one (C(latest))."""
    tags = [match[1] for match in map(_IMAGE.search, _images(workload)) if match and match[1]]
    label = as_mapping(metadata(workload).get("labels")).get("app.kubernetes.io/version")
    return next((text for text in (*tags, str(label or "")) if parse_version(text)), "")


def _replicas(deployment: dict) -> int:
    count = as_mapping(deployment.get("spec")).get("replicas")
    return count if isinstance(count, int) else 1


def _seen(reader: Reader, resource: Resource, items: list[dict]) -> list[dict] | None:
    """The items of a list, None where it was refused: then none says nothing."""
    return None if resource.plural in reader.unseen else items


def _pods_of(workload: dict, pods: list[dict] | None) -> list[dict] | None:
    """C([{node, ready, qos}]) of a workload's pods that are on a node and not over; None where pods are not seen."""
    if pods is None:
        return None
    selector = as_mapping(workload.get("spec")).get("selector")
    found = []
    for pod in pods if selector else ():
        status, node = as_mapping(pod.get("status")), as_mapping(pod.get("spec")).get("nodeName")
        if node and status.get("phase") not in {"Succeeded", "Failed"} and matches_labels(selector, _labels(pod)):
            ready = any(
                item.get("type") == "Ready" and item.get("status") == "True"
                for item in map(as_mapping, as_list(status.get("conditions")))
            )
            found.append({"node": str(node), "ready": ready, "qos": str(status.get("qosClass") or "")})
    return found


def _labels(item: dict) -> dict:
    return as_mapping(metadata(item).get("labels"))


def _workload(item: dict, pods: list[dict] | None) -> dict:
    """C({name, priority_class, containers, pods}) of the agent or the controller."""
    return {
        "name": name_of(item),
        "priority_class": str(pod_spec(item).get("priorityClassName") or ""),
        "containers": [
            {"name": name_of(entry), "resources": as_mapping(entry.get("resources"))} for entry in _containers(item)
        ],
        "pods": _pods_of(item, pods),
    }


def _agent(item: dict, pods: list[dict] | None) -> dict:
    """Of the DaemonSet what a clause asks for: rights, place, update, learning, and whether it has a collector."""
    spec, containers = pod_spec(item), _containers(item)
    rights = [as_mapping(entry.get("securityContext")) for entry in containers]
    added = {str(name) for each in rights for name in as_list(as_mapping(each.get("capabilities")).get("add"))}
    variables = [as_mapping(entry) for each in containers for entry in as_list(each.get("env"))]
    arguments = [
        str(word) for each in containers for word in (*as_list(each.get("command")), *as_list(each.get("args")))
    ]
    strategy = as_mapping(as_mapping(item.get("spec")).get("updateStrategy"))
    rolling = as_mapping(strategy.get("rollingUpdate"))
    return {
        **_workload(item, pods),
        **placement(spec),
        "host_pid": spec.get("hostPID") is True,
        "privileged": any(each.get("privileged") is True for each in rights),
        "capabilities": sorted(name.upper().removeprefix("CAP_") for name in added),
        "nri_path": _nri_path(spec),
        "update": {
            "type": str(strategy.get("type") or ""),
            "max_unavailable": str(rolling.get("maxUnavailable", "")),
        },
        "learning": _learning(arguments),
        "exports": any(
            entry.get("name") in ENDPOINTS and bool(entry.get("value") or entry.get("valueFrom")) for entry in variables
        ),
    }


def _nri_path(spec: dict) -> str:
    """The node's directory with NRI's socket, empty where none is mounted; the chart lets users choose it."""
    for entry in map(as_mapping, as_list(spec.get("volumes"))):
        path = str(as_mapping(entry.get("hostPath")).get("path") or "")
        if path and "nri" in f"{name_of(entry)} {path}":
            return path
    return ""


def _learning(arguments: list[str]) -> dict | None:
    """The selector of namespaces in which it learns; None where it does not learn or the selector is none."""
    for at, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name == LEARNING:
            text = value if equals else next(iter(arguments[at + 1 :]), "")
            try:
                selector = json.loads(text)
            except ValueError:
                return None
            return selector if isinstance(selector, dict) and selector else None
    return None


def _controller(item: dict, pods: list[dict] | None) -> dict:
    return {**_workload(item, pods), "replicas": _replicas(item), "spreads": _spreads(item)}


def _spreads(item: dict) -> bool:
    """Whether a rule keeps a Deployment's pods apart; one without a selector, or with others' labels, does nothing."""
    spec = pod_spec(item)
    apart = as_mapping(as_mapping(spec.get("affinity")).get("podAntiAffinity"))
    preferred = as_list(apart.get("preferredDuringSchedulingIgnoredDuringExecution"))
    rules = [
        *as_list(apart.get("requiredDuringSchedulingIgnoredDuringExecution")),
        *(as_mapping(entry).get("podAffinityTerm") for entry in preferred),
        *as_list(spec.get("topologySpreadConstraints")),
    ]
    selectors = [as_mapping(rule).get("labelSelector") for rule in rules]
    return any(each is not None and matches_labels(each, _pod_labels(item)) for each in selectors)


def _budgets(reader: Reader, controller: dict, namespace: str) -> list[dict] | None:
    """C([{name, min_available, max_unavailable}]) of the budgets that count the controller's pods."""
    found, items = [], _seen(reader, BUDGETS, reader.list(BUDGETS, namespace=namespace))
    if items is None:
        return None
    for item in items:
        spec = as_mapping(item.get("spec"))
        # In policy/v1 an empty selector is all pods, none at all is no pod.
        if spec.get("selector") is not None and matches_labels(spec["selector"], _pod_labels(controller)):
            found.append(
                {
                    "name": name_of(item),
                    "min_available": spec.get("minAvailable"),
                    "max_unavailable": spec.get("maxUnavailable"),
                }
            )
    return found


def _webhooks(reader: Reader) -> list[dict]:
    """Webhooks with failurePolicy Fail that are asked about policies and proposals, and whether they answer.

    C([{kind, configuration, name, service, state, trusted}]); state as service_state tells it, trusted: whether the
    configuration has the certificate that the API server needs.
    """
    found = []
    for resource in CONFIGURATIONS:
        for configuration in reader.list(resource):
            for webhook in map(as_mapping, as_list(configuration.get("webhooks"))):
                rules = map(as_mapping, as_list(webhook.get("rules")))
                asked = {str(group) for rule in rules for group in as_list(rule.get("apiGroups"))}
                client = as_mapping(webhook.get("clientConfig"))
                service = as_mapping(client.get("service"))
                if service and {GROUP, OLD_GROUP} & asked and webhook.get("failurePolicy", "Fail") == "Fail":
                    place = (str(service.get("namespace") or ""), str(service.get("name") or ""))
                    found.append(
                        {
                            "kind": resource.kind,
                            "configuration": name_of(configuration),
                            "name": str(webhook.get("name") or ""),
                            "service": "/".join(place),
                            "state": service_state(reader, *place),
                            "trusted": bool(client.get("caBundle")),
                        }
                    )
    return found


def _governed(reader: Reader) -> list[dict]:
    """C([{pod, node, group, requires}]) of pods on a node that name a policy.

    group: whose label it is. requires: whether the pod shall not start without the agent.
    """
    found = []
    for group in (GROUP, OLD_GROUP):
        for pod in reader.list(PODS, label_selector=f"{group}/policy", limit=GOVERNED_READ):
            node = str(as_mapping(pod.get("spec")).get("nodeName") or "")
            if node and as_mapping(pod.get("status")).get("phase") not in {"Succeeded", "Failed"}:
                required = str(as_mapping(metadata(pod).get("annotations")).get(REQUIRED_PLUGINS) or "")
                place = f"{metadata(pod).get('namespace')}/{name_of(pod)}"
                found.append({"pod": place, "node": node, "group": group, "requires": PLUGIN in required})
    return found
