# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the cluster and the inventory must be: findings from a cluster probe. Nothing here talks to a cluster."""

from __future__ import annotations

import dataclasses
from collections import Counter

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING, finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.admission import parse_refusal
from ansible_collections.portcullis.fleet.plugins.plugin_utils.admission_remedies import refused_by, remedy_for
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_survey import survey_findings
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_versions import Matrix, read_matrix
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_webhooks import is_dead
from ansible_collections.portcullis.fleet.plugins.plugin_utils.daemon_coverage import is_virtual
from ansible_collections.portcullis.fleet.plugins.plugin_utils.network_requirements import network_findings, network_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.requirements import probe_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.windows_requirements import is_windows, windows_findings


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One outcome of comparing the inventory with the cluster."""

    id: str
    severity: str
    observed: str
    expected: str
    remedy: str

    def found(self, node: str, observed: str = "") -> dict:
        """The finding for a node or host."""
        return finding(
            self.id,
            severity=self.severity,
            requirement="ansible/Coverage",
            node=node,
            observed=observed or self.observed,
            expected=self.expected,
            remedy=self.remedy,
        )


NODE_MISSING = Verdict(
    "inventory.node_missing",
    BLOCKER,
    "in the cluster, not in the inventory",
    "every node of the cluster is in control_plane or workers",
    "add the node to the inventory (portcullis_node_name where its inventory name differs), or accept that it stays "
    "unprotected",
)
# EKS Fargate, virtual-kubelet: such nodes come and go with a pod, and nobody can log in.
NO_HOST = dataclasses.replace(
    NODE_MISSING,
    severity=WARNING,
    observed="in the cluster, and no host: a virtual node, on which no DaemonSet runs",
    remedy="run what has to be protected on other nodes, and waive it for this one: inventory.node_missing@NODE",
)
NOT_IN_CLUSTER = Verdict(
    "inventory.not_in_cluster",
    BLOCKER,
    "in control_plane or workers, not a node of the cluster",
    "the cluster knows every host of these groups",
    "join it, set portcullis_node_name if it has another name there, or move it to plain_hosts",
)
NOT_COMPARED = Verdict(
    "inventory.not_compared",
    WARNING,
    "",
    "every host of the cluster can be told from the others",
    "run without a limit, or set portcullis_node_name for these hosts",
)


def host_record(name: str, hostvars: dict, result: dict) -> dict:
    """What may name this host in the cluster, from its variables and its probe."""
    probe = probe_of(result)
    system = probe.get("system", {})
    return {
        "node_name": hostvars.get("portcullis_node_name", ""),
        "address": hostvars.get("ansible_host", name),
        "hostname": system.get("hostname", ""),
        "machine_id": system.get("machine_id", ""),
        "read": bool(system),
        "proxy_mode": probe.get("kube_proxy", {}).get("mode", ""),
        "routes": probe.get("routes"),
    }


LABEL_SYNC = "security.openshift.io/scc.podSecurityLabelSync"
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

    :param hosts: by inventory name, C({node_name, address, hostname, machine_id}), any of them empty, and C(read),
        whether its probe came back.
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


def hosts_by_node(probes: dict[str, dict], hostvars: dict, nodes: list[dict]) -> dict[str, str]:
    """The inventory name of each node of the cluster whose probe came back.

    :param probes: by inventory name, what node_probe registered.
    """
    records = {name: host_record(name, hostvars.get(name, {}), result) for name, result in probes.items()}
    matched = match_nodes({name: record for name, record in records.items() if record["read"]}, nodes)
    return {node: host for host, node in matched.items()}


def inventory_findings(cluster_hosts: dict[str, dict], nodes: list[dict]) -> list[dict]:
    """Nodes that are not in the inventory (they would stay unprotected), and hosts that are not in the cluster.

    A host that was not read (limit, no answer) and whose inventory name is no node's may be any node that is left.
    """
    matched = match_nodes(cluster_hosts, nodes)
    # Hosts are Linux; windows_findings tells of the others.
    others = [node for node in nodes if node["name"] not in matched.values() and not is_windows(node)]
    virtual = [NO_HOST.found(node["name"]) for node in others if is_virtual(node)]
    missing = [node["name"] for node in others if not is_virtual(node)]
    unmatched = [name for name in cluster_hosts if name not in matched]
    unread = [name for name in unmatched if not cluster_hosts[name]["read"]]
    found = [NOT_IN_CLUSTER.found(name) for name in unmatched if name not in unread]
    if unread and len(missing) <= len(unread):
        words = (
            f"not read, and no node's name: {', '.join(unread)}; nodes without a host: {', '.join(missing) or 'none'}"
        )
        return [*virtual, *found, NOT_COMPARED.found("", words)]
    return [*virtual, *(NODE_MISSING.found(name) for name in missing), *found]


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
    """A namespace that would refuse the agent. Pod Security is mended by the run, any other refusal is not."""
    admission = probe["admission"]
    if admission is None or admission["admitted"]:
        return []
    if probe["namespace"]["terminating"]:
        return [
            finding(
                "cluster.namespace_terminating",
                severity=BLOCKER,
                requirement="secure-workload/Requirements and Prerequisites",
                observed=f"namespace {probe['namespace']['name']} is being deleted",
                expected="a namespace in which the agent can start",
                remedy="wait until it is gone; if it stays, kubectl get namespace -o yaml names the finalizers",
            )
        ]
    name, refusal = probe["namespace"]["name"], parse_refusal(admission["message"])
    if not admission.get("tried", True):
        return [
            finding(
                "cluster.admission_unknown",
                severity=WARNING,
                requirement="secure-workload/Requirements and Prerequisites",
                observed=f"namespace {name}: {admission['message']}: whether the agent is admitted is not known",
                expected="the agent's pod is admitted (server-side dry run)",
                remedy="leave out the namespace in that webhook's namespaceSelector, or make sure that it admits "
                "the agent there and waive it: cluster.admission_unknown",
            )
        ]
    dead = {item["name"] for item in probe.get("webhooks", []) if _refuses_pods(item)}
    if refusal.who == "webhook:unreachable" and refusal.rule in dead:
        return []  # webhook.could_block names its service
    by_level, who = refusal.who == "psa", refused_by(refusal)
    return [
        finding(
            "cluster.admission_refused",
            severity=WARNING if by_level else BLOCKER,
            requirement="secure-workload/Requirements and Prerequisites",
            observed=f"namespace {name}{f', refused by {who}' if who else ''}: {admission['message']}",
            expected="the agent's pod is admitted (server-side dry run)",
            remedy="nothing: site.yml labels the namespace (role cluster)" if by_level else remedy_for(refusal, name),
        )
    ]


def _refuses_pods(webhook: dict) -> bool:
    return is_dead(webhook) and "pods" in webhook["resources"] and not webhook["conditions"]


def label_sync_findings(namespace: dict) -> list[dict]:
    """A namespace whose Pod Security labels OpenShift is told to keep: it overwrites those of role cluster.

    Unset it keeps only labels that it made itself. Source: OpenShift's cluster-policy-controller, pod security
    admission label synchronization.
    """
    if namespace.get("labels", {}).get(LABEL_SYNC) != "true":
        return []
    return [
        finding(
            "cluster.label_syncer",
            severity=WARNING,
            requirement="secure-workload/Requirements and Prerequisites",
            observed=f"namespace {namespace['name']} has {LABEL_SYNC}=true: OpenShift sets its Pod Security labels "
            "back to what its service accounts may",
            expected="Pod Security labels that stay as role cluster sets them",
            remedy=f"oc label namespace {namespace['name']} {LABEL_SYNC}=false --overwrite, then run site.yml",
        )
    ]


def evaluate_cluster(
    probe: dict, cluster_hosts: dict[str, dict], engine: str = "native", matrix: Matrix | None = None
) -> list[dict]:
    """All findings of a cluster probe. Without the right to list nodes the inventory cannot be compared.

    :param cluster_hosts: as for match_nodes, each with C(proxy_mode), kube-proxy's live mode there, empty if not known,
        and if known C(routes) of its probe.
    :param matrix: which versions go together, the collection's own if None.
    """
    found = access_findings(probe["access"]) + admission_findings(probe)
    may_list = any(item["allowed"] for item in probe["access"] if item["resource"] == "nodes")
    if may_list:
        found += inventory_findings(cluster_hosts, probe["nodes"])
        found += windows_findings(probe["nodes"], engine)
    network = network_of(probe)
    if network:
        found += label_sync_findings(probe["namespace"]) if network.is_openshift else []
        hosts = {node: host for host, node in match_nodes(cluster_hosts, probe["nodes"]).items()}
        records = {node: cluster_hosts[host] for node, host in hosts.items()}
        modes = {node: record["proxy_mode"] for node, record in records.items()}
        found += network_findings(network, engine=engine, hosts=hosts, modes=modes)
        found += survey_findings(probe, network, matrix or read_matrix(), engine=engine, hosts=hosts, records=records)
    return found
