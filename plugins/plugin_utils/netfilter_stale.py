# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules that nobody keeps any more: of another backend, another mode, or a process that is gone.

The kernel runs them all the same. Two copies can look alike, and then only what is known besides the rules tells the
live one; where nothing tells it, both are named.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_known import Known
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_owners import FELIX, KUBE_PROXY
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_rules import LEGACY, NATIVE, NFT
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_state import PacketFilters

# Chains by the mode of kube-proxy that alone makes them (pkg/proxy/iptables and ipvs of Kubernetes 1.19 to 1.34).
_IPTABLES_ONLY = re.compile(r"KUBE-(?:SVC|SEP|SVL|EXT|XLB|FW)-.+|KUBE-(?:EXTERNAL-SERVICES|NODEPORTS)")
_IPVS_ONLY = re.compile(r"KUBE-(?:NODE-PORT|LOAD-BALANCER(?:-FW)?|SOURCE-RANGES-FIREWALL|IPVS-(?:OUT-)?FILTER)")
# Plugins with a process of their own; flannel and kube-router also run inside k3s.
_NETWORK_PLUGINS = ("antrea", "aws-vpc-cni", "cilium", "kube-ovn", "openshift-sdn", "ovn-kubernetes", "weave")
_BACKENDS = (LEGACY, NFT)


class Stale(NamedTuple):
    """What is left over: whose, in which backend (C(legacy), C(nft), C(native)), which chains, and how that is known.

    C(is_certain) is false where one of two copies is stale and nothing tells which.
    """

    owner: str
    backend: str
    chains: tuple[str, ...]
    evidence: str
    is_certain: bool = True

    def __str__(self) -> str:
        shown = ", ".join(self.chains[:4]) + (f" and {len(self.chains) - 4} more" if len(self.chains) > 4 else "")
        where = "a native nft table" if self.backend == NATIVE else f"iptables-{self.backend}"
        return f"{self.owner} in {where}: {shown} ({self.evidence})"


def _chains(filters: PacketFilters, owner: str, backend: str) -> list[str]:
    """Names of an owner's chains in a backend, or of its native tables."""
    names = {}
    for table in filters.active():
        if table.backend != backend:
            continue
        if backend == NATIVE:
            if filters.owners.of_table(table).owner == owner:
                names[f"{table.family} {table.name}"] = None
            continue
        for chain in table.chains.values():
            if not chain.hook and filters.owners.of_chain(table, chain.name).owner == owner:
                names[chain.name] = None
    return sorted(names)


def find_stale(filters: PacketFilters, known: Known) -> list[Stale]:
    """Everything left over by kube-proxy, Felix and network plugins that are not there any more."""
    found = [*_stale_kube_proxy(filters, known), *_stale_felix(filters, known)]
    for owner in _NETWORK_PLUGINS:
        if _is_gone(owner, known):
            found.extend(_all_of(filters, owner, f"{owner} does not run"))
    return found


def _is_gone(owner: str, known: Known) -> bool:
    if owner == KUBE_PROXY and known.proxy_mode:
        return False
    return known.running is not None and owner not in known.running


def _all_of(filters: PacketFilters, owner: str, evidence: str, *, except_for: str = "") -> list[Stale]:
    found = []
    for backend in (*_BACKENDS, NATIVE):
        chains = _chains(filters, owner, backend) if backend != except_for else []
        if chains:
            found.append(Stale(owner, backend, tuple(chains), evidence))
    return found


def _stale_kube_proxy(filters: PacketFilters, known: Known) -> list[Stale]:
    if _is_gone(KUBE_PROXY, known):
        return _all_of(filters, KUBE_PROXY, "kube-proxy does not run")
    mode = known.proxy_mode
    if mode == "nftables":
        return _all_of(filters, KUBE_PROXY, "kube-proxy answers that its mode is nftables", except_for=NATIVE)
    found = []
    copies = {backend: _chains(filters, KUBE_PROXY, backend) for backend in (*_BACKENDS, NATIVE)}
    copies = {backend: chains for backend, chains in copies.items() if chains}
    if mode and NATIVE in copies:
        evidence = f"kube-proxy answers that its mode is {mode}"
        found.append(Stale(KUBE_PROXY, NATIVE, tuple(copies.pop(NATIVE)), evidence))
    live = known.proxy_backend if known.proxy_backend in copies else ""
    if len(copies) > 1 and live and NATIVE not in copies:
        for backend in copies.keys() - {live}:
            evidence = f"the iptables command of kube-proxy writes to iptables-{live}"
            found.append(Stale(KUBE_PROXY, backend, tuple(copies.pop(backend)), evidence))
    elif len(copies) > 1:
        several = "kube-proxy's chains are in more than one place, and nothing tells which are kept"
        return [*found, *(Stale(KUBE_PROXY, place, tuple(names), several, False) for place, names in copies.items())]
    other = {"iptables": _IPVS_ONLY, "ipvs": _IPTABLES_ONLY}.get(mode)
    for backend, names in copies.items() if other else ():
        left = tuple(name for name in names if other.fullmatch(name))
        if left:
            found.append(Stale(KUBE_PROXY, backend, left, f"kube-proxy answers that its mode is {mode}"))
    return found


def _stale_felix(filters: PacketFilters, known: Known) -> list[Stale]:
    if _is_gone(FELIX, known):
        return _all_of(filters, FELIX, "Felix does not run")
    places = {backend: _chains(filters, FELIX, backend) for backend in (*_BACKENDS, NATIVE)}
    places = {backend: names for backend, names in places.items() if names}
    live = known.felix.backend
    if live:
        evidence = f"Felix is configured for {'nftables' if live == NATIVE else f'iptables-{live}'}"
        return [Stale(FELIX, place, tuple(names), evidence) for place, names in places.items() if place != live]
    if len(places) > 1:
        both = "Felix's chains are in more than one place, and nothing tells where it writes now"
        return [Stale(FELIX, place, tuple(names), both, False) for place, names in places.items()]
    return []
