# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Calico and kube-proxy must be in a cluster: findings from what cluster_objects read.

A finding that is the same on all nodes is one of the cluster; the others carry their node.
"""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import json
from collections.abc import Iterator, Mapping

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING, finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils import calico_install, kube_proxy
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_install import CalicoInstall
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_kube_proxy import proxy_conflicts
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_pools import Pool, encapsulations, overlaps
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_selector import SelectorError, selector_matches
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_effective import Effective
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import Version, parse_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_requirements import ENFORCEMENT, felix_findings
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy import KubeProxy
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_mapping, name_of, pod_spec

PROXY_MODES = "calico/Supported kube-proxy modes"
POOLS = "calico/IP address pool configuration"
# From here the API server holds an int32 field of a CRD to its range.
INT32_SINCE = (1, 36)
# Where pods have their addresses from elsewhere (calico_install's notes), pools decide nothing.
NO_POOLS = {"calico.host_local", "calico.policy_only"}
ADDRESSES_SHOWN = 3
# Network plugins that can do what kube-proxy does; so can Felix's eBPF dataplane.
PROXIES_OF_THEIR_OWN = {"antrea", "cilium", "kube-router", "ovn-kubernetes"}


@dataclasses.dataclass(frozen=True)
class Calico:
    """What the cluster says of Felix on one node. fits_int32: a mask must do without bit 31."""

    version: Version | None
    config: Effective
    fits_int32: bool = True
    # How pools wrap packets: ipip, vxlan.
    encapsulations: frozenset[str] = frozenset()


class Network:
    """Calico and kube-proxy as a cluster probe has them."""

    def __init__(self, probe: dict) -> None:
        """Read C(network), C(nodes) and the version of a cluster probe."""
        read = probe["network"]
        self.objects: list[dict] = read["calico"]
        self.install: CalicoInstall = calico_install.read_objects(self.objects)
        self.proxy: KubeProxy = kube_proxy.read_objects(read["kube_proxy"])
        self.is_openshift = any(item["kind"] == "Network" for item in read["kube_proxy"])
        self.disabled_pools = {
            name_of(item) for item in self.objects if item["kind"] == "IPPool" and item["spec"].get("disabled") is True
        }
        self.service_ranges: list[str] = read["service_ranges"]
        self.unseen: dict[str, str] = read["unseen"]
        self.nodes = {item["name"]: item for item in probe["nodes"]}
        self.providers: set[str] = {item["provider"] for item in probe.get("providers", [])}
        kubernetes = parse_version(probe["kubernetes"])
        self.fits_int32 = kubernetes is None or kubernetes >= INT32_SINCE

    @functools.cached_property
    def has_calico(self) -> bool:
        """Whether calico-node or an Installation is there; Calico's objects alone may be left over."""
        return self.install.method in {calico_install.MANIFEST, calico_install.OPERATOR}

    @functools.cached_property
    def pools(self) -> list[Pool]:
        """The pools that give addresses, none where pods have theirs from another plugin.

        The environment's pool is made only while there is none; the operator makes objects of its own.
        """
        if not self.has_calico or self.install.policy_only or NO_POOLS & self.install.notes.keys():
            return []
        known = self.install.pools
        pools = [pool for pool in known if pool.source == "object"] or list(known)
        return [pool for pool in pools if pool.name not in self.disabled_pools]

    @functools.cached_property
    def node_addresses(self) -> list[str]:
        """The addresses of all nodes."""
        found = {item for node in self.nodes.values() for item in node["addresses"]}
        return sorted(text for text in found if _is_range(text))

    @functools.cached_property
    def replaces_proxy(self) -> bool:
        """Whether the cluster has no kube-proxy, all that tells of one was read, and something can stand in for it."""
        if self.unseen or (self.proxy.found and self.proxy.runs):
            return False
        if self.has_calico and self.install.effective().value("bpfEnabled") is True:
            return True
        return bool(self.providers & PROXIES_OF_THEIR_OWN)

    def calico_on(self, node: str) -> Calico | None:
        """What is known of Felix on a node, None where it does not run."""
        if not self.has_calico or node not in self._keys:
            return None
        config = self._configs[self._keys[node]]
        return Calico(self.install.version, config, self.fits_int32, encapsulations(self.objects))

    def groups(self, modes: Mapping[str, str]) -> dict[tuple[tuple, str], list[str]]:
        """The nodes that are judged alike: by what concerns them of Felix's objects, and their live kube-proxy mode.

        :param modes: live modes by node; where it is not known the configured one counts.
        """
        found: dict[tuple[tuple, str], list[str]] = {}
        for node, key in self._keys.items():
            found.setdefault((key, modes.get(node) or self.proxy.mode), []).append(node)
        return found or {((), self.proxy.mode): []}

    def config_of(self, key: tuple) -> Effective:
        """Felix's configuration on the nodes with this key."""
        return self._configs[key] if key in self._configs else self.install.effective()

    @functools.cached_property
    def _keys(self) -> dict[str, tuple]:
        """By node on which calico-node runs, its own FelixConfiguration and those whose selector matches it."""
        felix = [item for item in self.objects if item["kind"] == "FelixConfiguration"]
        own = {name_of(item) for item in felix}
        selectors = [item["spec"]["nodeSelector"] for item in felix if "nodeSelector" in item["spec"]]
        return {
            name: (
                name if f"node.{name}" in own else "",
                *(selector for selector in selectors if _matches(selector, node["labels"])),
            )
            for name, node in self.nodes.items()
            if self._selects(node["labels"])
        }

    @functools.cached_property
    def _configs(self) -> dict[tuple, Effective]:
        """By such a key; the labels of any of its nodes do."""
        examples = {key: self.nodes[name]["labels"] for name, key in self._keys.items()}
        return {key: self.install.effective(node=key[0], labels=labels) for key, labels in examples.items()}

    def _selects(self, labels: dict[str, str]) -> bool:
        """Whether a DaemonSet of calico-node wants this node; without one it is not known, and taken so."""
        wanted = [
            as_mapping(pod_spec(item).get("nodeSelector")) for item in self.objects if item["kind"] == "DaemonSet"
        ]
        return not wanted or any(selector.items() <= labels.items() for selector in wanted)


def _matches(selector: object, labels: Mapping[str, str]) -> bool:
    try:
        return selector_matches(str(selector), labels)
    except SelectorError:
        return False


def network_of(probe: dict) -> Network | None:
    """Calico and kube-proxy of a cluster probe, None where it was saved before they were read."""
    return Network(probe) if "network" in probe else None


def network_findings(
    network: Network, *, engine: str, hosts: Mapping[str, str], modes: Mapping[str, str]
) -> list[dict]:
    """All findings.

    :param hosts: inventory names by node. :param modes: live kube-proxy modes by node.
    """
    found = [*_unseen(network), *_openshift(network, engine, modes, hosts), *_mode_differs(network, modes, hosts)]
    if network.has_calico:
        found += [*_datastore(network), *_pools(network)]
        found += _by_node(network, engine, modes, hosts)
    return found


def _unseen(network: Network) -> Iterator[dict]:
    if network.unseen:
        yield finding(
            "cluster.unseen",
            severity=WARNING,
            requirement="secure-workload/Requirements and Prerequisites",
            observed="; ".join(f"{what}: {why}" for what, why in network.unseen.items()),
            expected="what decides Calico and kube-proxy can be read",
            remedy="name a kubeconfig of an administrator in portcullis_kubeconfig",
        )


def _datastore(network: Network) -> Iterator[dict]:
    """That the API server answers shows the one datastore reachable; of the other it shows nothing."""
    endpoints = network.install.etcd_endpoints
    if endpoints:
        yield finding(
            "calico.datastore_etcd",
            severity=WARNING,
            requirement="calico/key/value store",
            observed=f"calico-node keeps its objects in etcd ({endpoints}): FelixConfiguration and pools are not seen",
            expected="Calico's settings can be read through the API server",
            remedy="look at them with calicoctl get felixconfiguration,ippool -o yaml, then waive it: "
            "calico.datastore_etcd; a calico-node that is ready reaches its etcd",
        )


def _by_node(network: Network, engine: str, modes: Mapping[str, str], hosts: Mapping[str, str]) -> list[dict]:
    """Findings of Felix and its conflicts with kube-proxy: for the cluster what all nodes share, else by node."""
    judged = []
    for (key, mode), nodes in network.groups(modes).items():
        config = network.config_of(key)
        found = felix_findings(network.install, network.objects, config, engine=engine, proxy_mode=mode)
        runs = network.proxy.runs and bool(mode or network.proxy.found)
        found += _conflicts(network, config, mode, runs=runs)
        judged.append((nodes, found))
    shared = [item for item in judged[0][1] if all(item in found for _nodes, found in judged)]
    own = [
        {**item, "node": hosts.get(node, node)}
        for nodes, found in judged
        for node in nodes
        for item in found
        if item not in shared
    ]
    return shared + own


def _conflicts(network: Network, config: Effective, mode: str, *, runs: bool) -> Iterator[dict]:
    version = network.install.version
    for name, text in proxy_conflicts(version, config, mode, runs=runs).items():
        what, _colon, remedy = text.partition(": ")
        is_old = name == "calico.nftables_version"
        yield finding(
            name,
            severity=BLOCKER if is_old else WARNING,
            requirement=PROXY_MODES,
            observed=what,
            expected="a kube-proxy mode that Felix's dataplane goes with",
            remedy="upgrade Calico, or set kube-proxy's mode to iptables" if is_old else remedy,
        )


def _openshift(network: Network, engine: str, modes: Mapping[str, str], hosts: Mapping[str, str]) -> Iterator[dict]:
    if not network.is_openshift:
        return
    places = [("", f"{network.proxy.place} sets mode ipvs")] if network.proxy.mode == "ipvs" else []
    places += [
        (hosts.get(node, node), "kube-proxy's live mode is ipvs") for node, mode in modes.items() if mode == "ipvs"
    ]
    for node, observed in places:
        yield finding(
            "kube_proxy.openshift_ipvs",
            severity=BLOCKER if engine == "secure_workload" else WARNING,
            requirement=ENFORCEMENT,
            node=node,
            observed=observed,
            expected="kube-proxy mode iptables on OpenShift: IPVS is not supported there",
            remedy="oc patch networks.operator.openshift.io cluster --type merge -p "
            + repr(json.dumps({"spec": {"kubeProxyConfig": {"proxyArguments": {"proxy-mode": ["iptables"]}}}})),
        )


def _mode_differs(network: Network, modes: Mapping[str, str], hosts: Mapping[str, str]) -> Iterator[dict]:
    """Nodes whose kube-proxy has not taken the configured mode: it was not restarted, or could not."""
    proxy = network.proxy
    if not proxy.mode:
        return
    for node, mode in modes.items():
        if mode and mode != proxy.mode:
            yield finding(
                "kube_proxy.mode_differs",
                severity=WARNING,
                requirement=PROXY_MODES,
                node=hosts.get(node, node),
                observed=f"kube-proxy's live mode is {mode}, {proxy.place} says {proxy.mode}",
                expected="kube-proxy runs in the mode that is configured",
                remedy="drain the node, restart its kube-proxy and look at its log: a kernel module may be missing; "
                f"reboot it, since rules of the old mode stay. To keep {mode}: "
                f"{proxy.lever or 'set that mode where it is configured'}",
            )


def _pools(network: Network) -> Iterator[dict]:
    """Pools that share addresses with services, nodes or each other."""
    pools = network.pools
    ranges = {"services": list(filter(_is_range, network.service_ranges)), "nodes": network.node_addresses}
    shared: dict[tuple[Pool, str], list[str]] = {}
    for pool, name, text in overlaps(pools, ranges):
        shared.setdefault((pool, f"addresses of {name}"), []).append(text)
    for at, pool in enumerate(pools):
        for _pool, name, text in overlaps([pool], {f"pool {item.name}": [item.cidr] for item in pools[at + 1 :]}):
            shared.setdefault((pool, name), []).append(text)
    for (pool, name), texts in shared.items():
        more = f" and {len(texts) - ADDRESSES_SHOWN} more" if len(texts) > ADDRESSES_SHOWN else ""
        yield finding(
            "calico.pool_overlaps",
            severity=BLOCKER,
            requirement=POOLS,
            observed=f"pool {pool.name} {pool.cidr} has {name}: {', '.join(texts[:ADDRESSES_SHOWN])}{more}",
            expected="pools that share no address with services, nodes or other pools",
            remedy=_replace_pool(network, pool),
        )


def _replace_pool(network: Network, pool: Pool) -> str:
    if network.install.method == calico_install.OPERATOR:
        return "change spec.calicoNetwork.ipPools of the Installation: make a pool elsewhere, disable this one"
    version = next(
        (item["apiVersion"] for item in network.objects if item["kind"] == "IPPool"), "crd.projectcalico.org/"
    )
    resource = f"ippools.{version.partition('/')[0]} {pool.name}"
    return (
        f'make a pool elsewhere, kubectl patch {resource} --type merge -p \'{{"spec":{{"disabled":true}}}}\', '
        "then restart the pods that have its addresses"
    )


def _is_range(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True
