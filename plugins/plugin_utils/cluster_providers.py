# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which network plugins run in a cluster, from its DaemonSets, and which of them leave addresses and routes to another.

A plugin that only enforces policy, or is chained behind another, is no second network provider.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING, finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import CONFIG_MAPS, DAEMON_SETS, Reader
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import (
    as_list,
    as_mapping,
    metadata,
    name_of,
    parse_documents,
    pod_spec,
)

# By the name of a container. Of a DaemonSet with several (canal, terway, GKE's anetd) the first in this order counts.
CONTAINERS = (
    ("terway", r"terway"),
    ("openshift-sdn", r"sdn"),
    ("ovn-kubernetes", r"ovnkube-(?:node|controller)"),
    ("kube-ovn", r"cni-server"),
    ("cilium", r"cilium-agent"),
    ("antrea", r"antrea-agent"),
    ("aws-vpc-cni", r"aws-node"),
    ("azure-cni", r"cns-container"),
    ("kube-router", r"kube-router"),
    ("weave", r"weave"),
    ("kindnet", r"kindnet-cni"),
    ("calico", r"calico-node"),
    ("flannel", r"kube-flannel"),
    ("nsx", r"nsx-node-agent"),
    ("aci", r"aci-containers-host"),
)
CANAL = ({"calico-node", "kube-flannel"}, "canal")
# The only plugin that Secure Workload's text names as tested.
TESTED = {"calico"}


def read_providers(reader: Reader) -> list[dict]:
    """Each DaemonSet of a network plugin for Linux nodes that has nodes to run on.

    C({provider, namespace, name, desired, ready, node_selector, chained}): chained says why it is no provider of its
    own as far as its own configuration tells, else "". Calico's is judged by its objects.
    """
    found = []
    for item in reader.list(DAEMON_SETS):
        provider, spec, status = provider_of(item), pod_spec(item), as_mapping(item.get("status"))
        if provider and status.get("desiredNumberScheduled"):
            found.append(
                {
                    "provider": provider,
                    "namespace": str(metadata(item).get("namespace") or ""),
                    "name": name_of(item),
                    "desired": status["desiredNumberScheduled"],
                    "ready": status.get("numberReady") or 0,
                    "node_selector": as_mapping(spec.get("nodeSelector")),
                    "chained": _router_off(spec) if provider == "kube-router" else "",
                }
            )
    if len({item["provider"] for item in found}) > 1:
        for item in found:
            item["chained"] = item["chained"] or _chained(reader, item)
    return found


def provider_of(daemon_set: dict) -> str:
    """The network plugin that a DaemonSet runs on Linux nodes, "" for none."""
    spec = pod_spec(daemon_set)
    if as_mapping(spec.get("nodeSelector")).get("kubernetes.io/os") == "windows":
        return ""
    names = {name_of(as_mapping(item)) for item in as_list(spec.get("containers"))}
    if CANAL[0] <= names:
        return CANAL[1]
    if names == {"sdn"} and metadata(daemon_set).get("namespace") != "openshift-sdn":
        return ""
    return next((provider for provider, name in CONTAINERS if any(re.fullmatch(name, each) for each in names)), "")


def _router_off(spec: dict) -> str:
    """kube-router as a mere firewall or service proxy."""
    words = [
        str(word)
        for container in map(as_mapping, as_list(spec.get("containers")))
        for word in [*as_list(container.get("command")), *as_list(container.get("args"))]
    ]
    return "--run-router=false" if "--run-router=false" in words else ""


def _chained(reader: Reader, item: dict) -> str:
    """What Cilium's and Antrea's own ConfigMap says of it."""
    if item["provider"] == "cilium":
        data = as_mapping(reader.one(CONFIG_MAPS, "cilium-config", item["namespace"]).get("data"))
        if data.get("cni-chaining-mode", "none") != "none":
            return f"cni-chaining-mode {data['cni-chaining-mode']}"
        return f"ipam {data['ipam']}" if data.get("ipam") == "delegated-plugin" else ""
    if item["provider"] == "antrea":
        data = as_mapping(reader.one(CONFIG_MAPS, "antrea-config", item["namespace"]).get("data"))
        settings = parse_documents(str(data.get("antrea-agent.conf") or "")).items
        if any(as_mapping(each).get("trafficEncapMode") == "networkPolicyOnly" for each in settings):
            return "trafficEncapMode networkPolicyOnly"
    return ""


def acting_providers(providers: Iterable[dict], *, calico_policy_only: bool) -> list[dict]:
    """Those that give addresses and routes."""
    return [
        item for item in providers if not item["chained"] and not (item["provider"] == "calico" and calico_policy_only)
    ]


def provider_findings(
    providers: list[dict], nodes: Mapping[str, Mapping[str, str]], *, calico_policy_only: bool, wants_tested: bool
) -> Iterator[dict]:
    """Several plugins on the same nodes, and one that Secure Workload's text does not name.

    :param providers: as read_providers returns them. :param nodes: labels by node; where there are none, they are not
        known and every DaemonSet is taken to run everywhere.
    """
    acting = acting_providers(providers, calico_policy_only=calico_policy_only)
    shared = _on_the_same_nodes(acting, nodes)
    if shared:
        has_calico = any(item["provider"] in {"calico", "canal"} for item in shared)
        yield finding(
            "network.several_providers",
            severity=BLOCKER if has_calico else WARNING,
            requirement="calico/Other network providers",
            observed=f"several network plugins run on the same nodes: {_named(shared)}",
            expected="one network plugin; others only chained behind it or for policy alone",
            remedy="take away the one that is not wanted: kubectl -n NAMESPACE delete daemonset NAME, its file in "
            "/etc/cni/net.d on every node, then reboot the nodes: its interfaces and rules stay",
        )
        return
    untested = [item for item in acting if item["provider"] not in TESTED]
    if wants_tested and untested:
        yield finding(
            "network.plugin_untested",
            severity=WARNING,
            requirement="secure-workload/Requirements for Policy Enforcement",
            observed=f"the network plugin is {_named(untested)}",
            expected="a network plugin with which Secure Workload was tested: Calico",
            remedy="try enforcement on one node first: addresses of pods must not be masqueraded, and mark bits 20 and "
            "21 must be free; then waive it: network.plugin_untested",
        )


def _on_the_same_nodes(acting: list[dict], nodes: Mapping[str, Mapping[str, str]]) -> list[dict]:
    if not nodes:
        return acting if len({item["provider"] for item in acting}) > 1 else []
    found = []
    for labels in nodes.values():
        here = [item for item in acting if item["node_selector"].items() <= labels.items()]
        if len({item["provider"] for item in here}) > 1:
            found += [item for item in here if item not in found]
    return found


def _named(providers: Iterable[dict]) -> str:
    return ", ".join(f"{item['provider']} (DaemonSet {item['namespace']}/{item['name']})" for item in providers)


def readiness_findings(providers: Iterable[dict]) -> Iterator[dict]:
    """Nodes on which Calico is not ready: calico-node is ready once it has read its datastore."""
    for item in providers:
        if item["provider"] in {"calico", "canal"} and item["ready"] < item["desired"]:
            yield finding(
                "calico.not_ready",
                severity=WARNING,
                requirement="calico/key/value store",
                observed=f"DaemonSet {item['namespace']}/{item['name']} is ready on {item['ready']} of "
                f"{item['desired']} nodes",
                expected="ready on all nodes: it then reaches its datastore",
                remedy=f"kubectl -n {item['namespace']} get pods -o wide, and kubectl -n {item['namespace']} logs "
                f"daemonset/{item['name']} -c calico-node: a datastore that is not reached is named there",
            )
