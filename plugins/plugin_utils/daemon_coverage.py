# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes a DaemonSet leaves out, and why, as its controller decides it. Nothing here talks to a cluster.

Source: kubernetes/kubernetes, pkg/controller/daemon/daemon_controller.go (NodeShouldRunDaemonPod) and
staging/src/k8s.io/component-helpers/scheduling/corev1/nodeaffinity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ansible_collections.portcullis.fleet.plugins.plugin_utils.label_selector import matches_labels
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_list, as_mapping
from ansible_collections.portcullis.fleet.plugins.plugin_utils.taints import (
    VIRTUAL,
    Taint,
    kind_of,
    plan_tolerations,
    read_taints,
    read_tolerations,
)

NOT_SELECTED, NOT_TOLERATED, NO_POD, NOT_READY = "not_selected", "not_tolerated", "no_pod", "not_ready"
# A pod that was there before the taint stays, and no other takes its place.
NOT_REPLACED = "not_replaced"


@dataclass(frozen=True)
class Gap:
    """Why a node has no pod of a DaemonSet that is ready, or none later. taints: not tolerated, and they stay."""

    kind: str
    taints: tuple[Taint, ...] = ()


def placement(pod_spec: Mapping) -> dict:
    """What of a pod's spec decides on which nodes a DaemonSet runs it, as a probe keeps it."""
    affinity = as_mapping(as_mapping(pod_spec.get("affinity")).get("nodeAffinity"))
    return {
        "node_selector": as_mapping(pod_spec.get("nodeSelector")),
        "affinity": as_mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution")),
        "tolerations": as_list(pod_spec.get("tolerations")),
        "host_network": pod_spec.get("hostNetwork") is True,
    }


def is_virtual(node: Mapping) -> bool:
    """Whether no DaemonSet can run on a node, since it is none."""
    return any(kind_of(taint) == VIRTUAL for taint in read_taints(node))


def left_out(daemon_set: Mapping, node: Mapping) -> Gap | None:
    """Why the controller makes no pod on a node; None where it does, or will once a taint that passes is gone.

    :param daemon_set: with what placement returns. :param node: as C(cluster_probe) returns it.
    """
    labels = as_mapping(node.get("labels"))
    if not daemon_set["node_selector"].items() <= labels.items() or not _has_affinity(daemon_set, node, labels):
        return Gap(NOT_SELECTED)
    tolerations = read_tolerations(daemon_set["tolerations"])
    plan = plan_tolerations({"": read_taints(node)}, tolerations, host_network=daemon_set["host_network"])
    return Gap(NOT_TOLERATED, plan.missing[""]) if plan.missing else None


def gaps(daemon_set: Mapping, nodes: Iterable[Mapping], pods: Iterable[Mapping]) -> dict[str, Gap]:
    """By node why it has no ready pod of a DaemonSet, or NOT_REPLACED where it has one that would not come again.

    Nodes that are not ready themselves or virtual are left out.

    :param pods: of the DaemonSet, C({node, ready}); while it is updated a node has two.
    """
    states: dict[str, bool] = {}
    for pod in pods:
        states[pod["node"]] = states.get(pod["node"], False) or pod["ready"]
    found = {}
    for node in nodes:
        name = node["name"]
        if is_virtual(node) or not node.get("ready", True):
            continue
        left = left_out(daemon_set, node)
        if not states.get(name):
            found[name] = Gap(NOT_READY) if name in states else left or Gap(NO_POD)
        elif left and left.kind == NOT_TOLERATED:
            found[name] = Gap(NOT_REPLACED, left.taints)
    return found


def _has_affinity(daemon_set: Mapping, node: Mapping, labels: Mapping) -> bool:
    """Whether one term of the required node affinity matches; a term that demands nothing matches no node."""
    required = as_mapping(daemon_set.get("affinity"))
    if not required:
        return True
    fields = {"metadata.name": node["name"]}
    return any(
        _matches_all(term.get("matchExpressions"), labels) and _matches_all(term.get("matchFields"), fields)
        for term in map(as_mapping, as_list(required.get("nodeSelectorTerms")))
        if term.get("matchExpressions") or term.get("matchFields")
    )


def _matches_all(expressions: object, labels: Mapping[str, str]) -> bool:
    return all(_matches(as_mapping(item), labels) for item in as_list(expressions))


def _matches(expression: dict, labels: Mapping[str, str]) -> bool:
    operator = expression.get("operator")
    if operator not in {"Gt", "Lt"}:
        return matches_labels({"matchExpressions": [expression]}, labels)
    try:
        theirs, wanted = int(labels[str(expression.get("key"))]), int(as_list(expression.get("values"))[0])
    except (KeyError, ValueError, IndexError, TypeError):
        return False
    return theirs > wanted if operator == "Gt" else theirs < wanted
