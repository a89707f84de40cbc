# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cluster and the inventory must be: findings from a cluster probe. Nothing here talks to a cluster."""

from __future__ import annotations

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING, finding

# Pod Security admission's own words. Source: k8s.io/pod-security-admission, admission.go.
PSA_REFUSAL = "violates PodSecurity"


def host_identities(name: str, host: dict) -> set[str]:
    """What a host of the inventory may be called in the cluster.

    :param host: C({node_name, address, hostname, machine_id}), any of them empty.
    """
    names = {host["node_name"]} if host["node_name"] else {name, host["hostname"], host["address"], host["machine_id"]}
    return names - {""}


def match_nodes(hosts: dict[str, dict], nodes: list[dict]) -> dict[str, str]:
    """Which node of the cluster each host is: C({host: node name}); hosts that are none are left out.

    A machine id that several hosts share (cloned disks) identifies none of them.
    """
    machine_ids = [host["machine_id"] for host in hosts.values()]
    matched = {}
    for name, host in hosts.items():
        unique = {**host, "machine_id": host["machine_id"] if machine_ids.count(host["machine_id"]) == 1 else ""}
        identities = host_identities(name, unique)
        for node in nodes:
            if identities & {node["name"], node["machine_id"], *node["addresses"]}:
                matched[name] = node["name"]
                break
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
