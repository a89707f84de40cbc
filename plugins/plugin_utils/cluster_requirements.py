# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cluster and the inventory must be: findings from a cluster probe. Nothing here talks to a cluster."""

from __future__ import annotations

from collections import Counter

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING, finding

# Pod Security admission's own words. Source: k8s.io/pod-security-admission, admission.go.
PSA_REFUSAL = "violates PodSecurity"


# What may name a host in the cluster, the surest first.
IDENTITIES = ("name", "hostname", "address", "machine_id")


def identities(host: dict, shared: set[str]) -> list[str]:
    """The names to look for, the surest first. C(portcullis_node_name) leaves no other.

    :param shared: names of several hosts (cloned disks), which identify none of them.
    """
    if host["node_name"]:
        return [host["node_name"]]
    return [host[key] for key in IDENTITIES if host[key] and host[key] not in shared]


def match_nodes(hosts: dict[str, dict], nodes: list[dict]) -> dict[str, str]:
    """Which node of the cluster each host is: C({host: node name}); hosts that are none are left out.

    :param hosts: by inventory name, C({node_name, address, hostname, machine_id}), any of them empty.
    """
    named = {name: {**host, "name": name} for name, host in hosts.items()}
    counts = Counter(host[key] for host in named.values() for key in ("hostname", "address", "machine_id"))
    shared = {name for name, count in counts.items() if count > 1}
    by_name = {}
    for node in nodes:
        for known in (node["machine_id"], *node["addresses"], node["name"]):
            by_name[known] = node["name"]
    matched = {}
    for name, host in named.items():
        # An inventory name is unique even where another host's own host name is the same.
        found = (by_name.get(word) for word in identities(host, shared - {name}))
        node_name = next((word for word in found if word), None)
        if node_name:
            matched[name] = node_name
    return matched


def inventory_findings(cluster_hosts: dict[str, dict], nodes: list[dict]) -> list[dict]:
    """Nodes that are not in the inventory (they would stay unprotected), and hosts that are not in the cluster."""
    matched = match_nodes(cluster_hosts, nodes)
    missing = [node for node in nodes if node["name"] not in matched.values()]
    found = [
        finding(
            "inventory.node_missing",
            severity=BLOCKER,
            requirement="ansible/Coverage",
            node=node["name"],
            observed="in the cluster, not in the inventory",
            expected="every node of the cluster is in control_plane or workers",
            remedy="add the node to the inventory (portcullis_node_name where its inventory name differs), "
            "or accept that it stays unprotected",
        )
        for node in missing
    ]
    return found + [
        finding(
            "inventory.not_in_cluster",
            severity=BLOCKER,
            requirement="ansible/Coverage",
            node=name,
            observed="in control_plane or workers, not a node of the cluster",
            expected="the cluster knows every host of these groups",
            remedy="join it, set portcullis_node_name if it has another name there, or move it to plain_hosts",
        )
        for name in cluster_hosts
        if name not in matched
    ]


def access_findings(access: list[dict]) -> list[dict]:
    """Rights that the run needs and these credentials lack, in one finding."""
    denied = [f"{item['verb']} {item['resource']}" for item in access if not item["allowed"]]
    if not denied:
        return []
    return [
        finding(
            "cluster.access_denied",
            severity=BLOCKER,
            requirement="secure-workload/Requirements and Prerequisites",
            observed="these credentials may not: " + ", ".join(denied),
            expected="administrator credentials",
            remedy="name a kubeconfig of an administrator in portcullis_kubeconfig",
        )
    ]


def admission_findings(probe: dict) -> list[dict]:
    """A namespace that would refuse a privileged pod. Pod Security is mended by the run, any other refusal is not."""
    admission = probe["admission"]
    if admission is None or admission["admitted"]:
        return []
    by_level = PSA_REFUSAL in admission["message"]
    return [
        finding(
            "cluster.admission_refused",
            severity=WARNING if by_level else BLOCKER,
            requirement="secure-workload/Requirements and Prerequisites",
            observed=f"namespace {probe['namespace']['name']}: {admission['message']}",
            expected="a privileged pod is admitted (server-side dry run)",
            remedy="nothing: site.yml labels the namespace (role cluster)"
            if by_level
            else "exclude the namespace in the policy or webhook that the message names",
        )
    ]


def evaluate_cluster(probe: dict, cluster_hosts: dict[str, dict]) -> list[dict]:
    """All findings of a cluster probe. Without the right to list nodes the inventory cannot be compared."""
    found = access_findings(probe["access"]) + admission_findings(probe)
    may_list = any(item["allowed"] for item in probe["access"] if item["resource"] == "nodes")
    return found + (inventory_findings(cluster_hosts, probe["nodes"]) if may_list else [])
