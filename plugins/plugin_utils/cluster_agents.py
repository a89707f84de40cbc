# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs in the agent's namespace: the PriorityClasses that it names, and the nodes that its DaemonSets reach."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING, finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import (
    DAEMON_SETS,
    DEPLOYMENTS,
    PODS,
    Reader,
    Resource,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.daemon_coverage import (
    NOT_TOLERATED,
    is_virtual,
    left_out,
    placement,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import (
    as_mapping,
    metadata,
    name_of,
    pod_spec,
)

PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass")
# The API server makes these itself and puts them back.
BUILT_IN_CLASSES = {"system-node-critical", "system-cluster-critical"}
USERS_SHOWN = 3
# Pods that are gone need no class; one page shows which classes pods name.
PODS_READ = 500


def read_agents(reader: Reader, namespace: str) -> dict:
    """C({daemon_sets, missing_classes}) of a namespace that exists.

    daemon_sets: C(name) and what placement returns. missing_classes: who names a PriorityClass that
    is not there, by its name.
    """
    daemon_sets = [item for item in reader.list(DAEMON_SETS) if metadata(item).get("namespace") == namespace]
    workloads = [(item, DAEMON_SETS.kind) for item in daemon_sets]
    workloads += [(item, DEPLOYMENTS.kind) for item in reader.list(DEPLOYMENTS, namespace=namespace)]
    workloads += [(item, PODS.kind) for item in reader.list(PODS, namespace=namespace, limit=PODS_READ) if _lives(item)]
    return {
        "daemon_sets": [_daemon_set(item) for item in daemon_sets],
        "missing_classes": _missing_classes(reader, workloads),
    }


def _lives(pod: dict) -> bool:
    return as_mapping(pod.get("status")).get("phase") not in {"Succeeded", "Failed"}


def _daemon_set(item: dict) -> dict:
    return {"name": name_of(item), **placement(pod_spec(item))}


def _missing_classes(reader: Reader, workloads: list[tuple[dict, str]]) -> dict[str, list[str]]:
    named: dict[str, list[str]] = {}
    for item, kind in workloads:
        name = str(pod_spec(item).get("priorityClassName") or "")
        if name and name not in BUILT_IN_CLASSES:
            named.setdefault(name, []).append(f"{kind} {name_of(item)}")
    if not named:
        return {}
    present = {name_of(item) for item in reader.list(PRIORITY_CLASSES)}
    if PRIORITY_CLASSES.plural in reader.unseen:
        return {}
    return {name: sorted(users) for name, users in named.items() if name not in present}


def priority_findings(agents: dict, namespace: str) -> Iterator[dict]:
    """PriorityClasses that are gone: what runs keeps running, a new pod that names one is refused."""
    for name, users in agents["missing_classes"].items():
        more = f" and {len(users) - USERS_SHOWN} more" if len(users) > USERS_SHOWN else ""
        yield finding(
            "cluster.priority_class_missing",
            severity=BLOCKER,
            requirement="runtime-enforcer/PriorityClass",
            observed=f"PriorityClass {name} is gone, named in namespace {namespace} by "
            f"{', '.join(users[:USERS_SHOWN])}{more}: new pods of it are refused",
            expected="the PriorityClasses that the agent's pods name exist",
            remedy=f"kubectl create priorityclass {name} --value=1000000, or name one that exists "
            "(system-node-critical) in the values of the agent's chart",
        )


def coverage_findings(
    agents: dict, namespace: str, nodes: list[dict], hosts: Mapping[str, str], engine: str
) -> Iterator[dict]:
    """Nodes that none of the agent's DaemonSets reaches: what runs there is not protected, and nothing else says so.

    The chart of Runtime Enforcer is judged elsewhere, with its values.

    :param nodes: as the probe has them. :param hosts: inventory names by node.
    """
    if engine != "secure_workload" or not agents["daemon_sets"]:
        return
    for node in nodes:
        left = {item["name"]: left_out(item, node) for item in agents["daemon_sets"]}
        if not all(left.values()) or is_virtual(node):
            continue
        chosen = {name: gap for name, gap in left.items() if gap.kind == NOT_TOLERATED}
        names = ", ".join(chosen or left)
        open_ones = sorted({str(taint) for gap in chosen.values() for taint in gap.taints})
        why = f"do not tolerate {', '.join(open_ones)}" if chosen else "do not select it"
        yield finding(
            "coverage.node_not_reached",
            severity=WARNING,
            requirement="secure-workload/Requirements and Prerequisites",
            node=hosts.get(node["name"], node["name"]),
            observed=f"DaemonSets of namespace {namespace} ({names}) {why}: the node has no agent",
            expected="the agent's DaemonSet reaches every node",
            remedy="install the agent with its --toleration flag for these taints, or waive it: "
            "coverage.node_not_reached"
            if chosen
            else f"change the nodeSelector (kubectl -n {namespace} get daemonsets -o wide), or waive it: "
            "coverage.node_not_reached",
        )
