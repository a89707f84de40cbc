# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who made a chain, a rule or a table of a packet filter.

A name, a comment or an interface tells it; nobody signs rules, so the evidence is told with the answer. Names are those
that each software's own source gives its chains.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_rules import (
    NATIVE,
    Chain,
    Rule,
    Table,
)

FELIX = "calico-felix"
KUBE_PROXY = "kube-proxy"
KUBELET = "kubelet"
SECURE_WORKLOAD = "secure-workload"
FIREWALLD = "firewalld"
TAILSCALE = "tailscale"
NFTABLES_SERVICE = "nftables.service"
BY_HAND = "by-hand"


class Claim(NamedTuple):
    """An owner and why it is thought to be the one."""

    owner: str
    evidence: str


@dataclasses.dataclass(frozen=True)
class Signature:
    """How one software's work is recognised; each pattern is a regular expression over a whole name."""

    owner: str
    chains: str = ""
    tables: str = ""
    # Searched for anywhere in a rule's comment.
    comments: str = ""
    interfaces: str = ""
    processes: tuple[str, ...] = ()
    units: tuple[str, ...] = ()
    # It removes its rules when it ends, so that they prove nothing unless it runs.
    leaves_nothing: bool = False


SIGNATURES = (
    Signature(
        FELIX,
        chains=r"(?:(?:raw|mangle|nat|filter)-)?cali-.+|cali(?:fw|tw|fh|th|pi|po)-.+|felix-.+",
        tables=r"calico(?:-arp)?",
        comments=r"^cali:",
        processes=("calico-felix", "calico-node"),
    ),
    Signature(
        "kube-router", chains=r"KUBE-(?:ROUTER-.+|POD-FW-.+|NWPLCY-.+|SRC-.+|DST-.+)", processes=("kube-router",)
    ),
    Signature("hostport", chains=r"KUBE-(?:HOSTPORTS|HP-.+)|CRIO-(?:HOSTPORTS|MASQ)-.+", tables=r"crio-hostports?"),
    Signature(
        KUBELET,
        chains=r"KUBE-(?:FIREWALL|KUBELET-CANARY|IPTABLES-HINT|MARK-DROP)",
        processes=("kubelet",),
        units=("kubelet",),
    ),
    Signature(KUBE_PROXY, chains=r"KUBE-.+", tables=r"kube-proxy", processes=("kube-proxy",)),
    Signature(
        SECURE_WORKLOAD,
        chains=r"TA_.+",
        tables=r"TA_.+",
        processes=("tet-enforcer", "tet-sensor", "csw-agent"),
        units=("csw-agent", "tetd"),
    ),
    Signature(
        FIREWALLD,
        chains=(
            r"(?:INPUT|OUTPUT|FORWARD|PREROUTING|POSTROUTING)(?:_IN|_OUT)?_"
            r"(?:direct|ZONES(?:_SOURCE)?|POLICIES_(?:pre|post))"
            r"|(?:IN|OUT|FWD[IO]?|PRE|POST)_(?:[\w-]+_(?:pre|log|deny|allow|post)|policy_[\w-]+"
            r"|public|trusted|home|work|internal|external|dmz|drop|block)"
        ),
        tables=r"firewalld(?:_policy_drop)?",
        processes=("firewalld",),
        units=("firewalld",),
    ),
    Signature("ufw", chains=r"ufw6?-.+", units=("ufw",)),
    Signature(
        "dockerd",
        chains=r"DOCKER(?:[-_].+)?",
        tables=r"docker-bridges",
        interfaces=r"docker0|br-[0-9a-f]{12}|docker_gwbridge",
        processes=("dockerd",),
        units=("docker",),
    ),
    Signature(
        "cni-portmap", chains=r"CNI-(?:HOSTPORT-.+|DN-.+|SN-.+)", tables=r"cni_hostport", comments="^CNI portfwd"
    ),
    Signature(
        "cni-plugins",
        chains=r"CNI-.+",
        tables=r"cni_plugins_masquerade",
        comments=r'^(?:masquerade )?name: "[^"]*" id: "',
    ),
    Signature(
        "fail2ban", chains=r"f(?:2b|ail2ban)-.+", tables=r"f2b-.+", processes=("fail2ban-server",), units=("fail2ban",)
    ),
    Signature(
        "libvirt",
        chains=r"LIBVIRT_.+",
        tables=r"libvirt_network",
        interfaces=r"virbr\d+(?:-nic)?",
        processes=("libvirtd", "virtnetworkd"),
        units=("libvirtd", "virtnetworkd"),
    ),
    Signature(
        TAILSCALE,
        chains=r"ts-.+",
        processes=("tailscaled",),
        units=("tailscaled",),
        leaves_nothing=True,
    ),
    Signature("istio", chains=r"ISTIO_.+", tables=r"istio-.+", comments=r"(?i)\bistio\b"),
    Signature("cilium", chains=r"(?:OLD_)?CILIUM_.+", comments="^cilium", processes=("cilium-agent",)),
    Signature(
        "aws-vpc-cni",
        chains=r"AWS-(?:SNAT|CONNMARK)-CHAIN-\d+",
        tables=r"aws-cni",
        comments="^AWS, |^AWS (?:SNAT|CONNMARK) CHAIN",
        processes=("aws-k8s-agent",),
    ),
    Signature("azure", chains=r"AZURE-NPM.*|AZURECNI.*|SWIFT.*"),
    Signature(
        "ovn-kubernetes",
        chains=r"OVN-KUBE-.+",
        tables=r"ovn-kubernetes(?:-.+)?",
        interfaces=r"ovn-k8s-mp\d+",
        processes=("ovnkube", "ovnkube-node"),
    ),
    Signature("kube-ovn", chains=r"OVN-.+", processes=("kube-ovn-daemon",)),
    Signature("openshift-sdn", chains=r"OPENSHIFT-.+", processes=("openshift-sdn-node",)),
    Signature("antrea", chains=r"ANTREA-.+", tables=r"antrea.*", processes=("antrea-agent",)),
    Signature("weave", chains=r"WEAVE(?:-.+)?", interfaces=r"weave|vethwe.*", processes=("weaver",)),
    Signature(
        "flannel", chains=r"FLANNEL-.+", tables=r"flannel-ipv[46]", comments="^flanneld ", processes=("flanneld",)
    ),
    Signature(
        "kindnet", chains=r"KIND-MASQ-AGENT", tables=r"kindnet-.+|kube-network-policies", processes=("kindnetd",)
    ),
    Signature("ip-masq-agent", chains=r"IP-MASQ(?:-AGENT)?", comments="^ip-masq-agent:"),
    Signature("node-local-dns", comments="^NodeLocal DNS Cache"),
    Signature("gke", chains=r"GKE-.+"),
    Signature("microk8s", comments="^generated for MicroK8s"),
    Signature("podman", chains=r"NETAVARK[-_].+", tables=r"netavark", interfaces=r"podman\d+|cni-podman\d+"),
    Signature("lxd", tables=r"lxd", comments="^generated for LXD", interfaces=r"lxdbr\d+", processes=("lxd",)),
    Signature(
        "incus", tables=r"incus", comments="^generated for Incus", interfaces=r"incusbr\d+", processes=("incusd",)
    ),
    Signature("networkmanager", chains=r"nm-sh-.+", tables=r"nm-shared-.+"),
    Signature("systemd-networkd", tables=r"io\.systemd\.nat"),
    Signature("wg-quick", tables=r"wg-quick-.+", comments="^wg-quick\\(8\\) rule"),
    Signature("crowdsec", chains=r"CROWDSEC_CHAIN.*", tables=r"crowdsec6?", processes=("crowdsec-firewall-bouncer",)),
    Signature("oracle-cloud", chains=r"(?:BareMetal)?InstanceServices"),
    Signature(NFTABLES_SERVICE, units=("nftables",)),
)

_CHAINS = [(signature, re.compile(signature.chains)) for signature in SIGNATURES if signature.chains]
_TABLES = [(signature, re.compile(signature.tables)) for signature in SIGNATURES if signature.tables]
_COMMENTS = [(signature, re.compile(signature.comments)) for signature in SIGNATURES if signature.comments]
_INTERFACES = [(signature, re.compile(signature.interfaces)) for signature in SIGNATURES if signature.interfaces]
# Source: firewalld's src/firewall/core/ipXtables.py, the rules of its default chains.
_OF_FIREWALLD = {
    ("ACCEPT", (("--ctstate", "RELATED,ESTABLISHED"),)),
    ("ACCEPT", (("--ctstate", "RELATED,ESTABLISHED,DNAT"),)),
    ("ACCEPT", (("-i", "lo"),)),
    ("ACCEPT", (("-o", "lo"),)),
    ("DROP", (("--ctstate", "INVALID"),)),
    ("REJECT", ()),
}
_XT_COMMENT = 'xt match "comment"'


def running_software(commands: Iterable[str], active_units: Iterable[str]) -> frozenset[str]:
    """The owners at work on a node, from the command lines of its processes and the names of its active units."""
    programs = set()
    for command in commands:
        words = command.split()
        # A Python program's own name is its second word.
        programs.update(os.path.basename(word) for word in words[:2])
    units = {unit.removesuffix(".service") for unit in active_units}
    return frozenset(
        signature.owner
        for signature in SIGNATURES
        if programs.intersection(signature.processes) or units.intersection(signature.units)
    )


@functools.lru_cache(maxsize=65536)
def _named_chain(name: str) -> Signature | None:
    for signature, pattern in _CHAINS:
        if pattern.fullmatch(name):
            return signature
    return None


@functools.lru_cache(maxsize=65536)
def _named_by_comment(comment: str) -> Signature | None:
    for signature, pattern in _COMMENTS:
        if pattern.search(comment):
            return signature
    return None


@functools.lru_cache(maxsize=65536)
def _named_by_interface(name: str) -> Signature | None:
    for signature, pattern in _INTERFACES:
        if pattern.fullmatch(name):
            return signature
    return None


class Owners:
    """Answers who made what on one node. C(running) are the owners at work there, None when that is not known."""

    def __init__(self, running: frozenset[str] | None = None) -> None:
        self.running = running
        self._of_names: dict[str, Claim] = {}

    def _proven(self, signature: Signature, evidence: str) -> Claim:
        """The claim, or by hand for the name of a software that would have removed it when it ended."""
        if signature.leaves_nothing and self.running is not None and signature.owner not in self.running:
            return Claim(BY_HAND, f"{evidence}, but {signature.owner} does not run and removes its rules when it ends")
        return Claim(signature.owner, evidence)

    def of_table(self, table: Table) -> Claim:
        """The owner of a native table: by its name, else the unit that loads such tables, else a person."""
        for signature, pattern in _TABLES:
            if pattern.fullmatch(table.name):
                return self._proven(signature, f"table {table.family} {table.name}")
        if self.running and NFTABLES_SERVICE in self.running:
            return Claim(NFTABLES_SERVICE, f"table {table.family} {table.name}, and nftables.service is active")
        return Claim(BY_HAND, f"no software is known to name a table {table.family} {table.name}")

    def of_chain(self, table: Table, name: str) -> Claim:
        """The owner of a chain that only jumps lead to."""
        if table.backend == NATIVE:
            return self.of_table(table)
        if name not in self._of_names:
            signature = _named_chain(name)
            unknown = Claim(BY_HAND, f"no software is known to name a chain {name}")
            self._of_names[name] = self._proven(signature, f"chain {name}") if signature else unknown
        return self._of_names[name]

    def _is_of_firewalld(self, table: Table, chain: Chain, rule: Rule) -> bool:
        """Whether it is one of the fixed rules that firewalld's iptables backend puts around its own jumps."""
        conditions = tuple(item for item in rule.conditions if item[0] != "-m")
        if (rule.target, conditions) not in _OF_FIREWALLD:
            return False
        return any(
            other.target in table.chains and self.of_chain(table, other.target).owner == FIREWALLD
            for other in chain.rules
        )

    def of_rule(self, table: Table, chain: Chain, rule: Rule) -> Claim:
        """The owner of a rule: its chain's, or for one in a base chain what its comment, target or interface tell."""
        if table.backend == NATIVE or not chain.hook:
            return self.of_chain(table, chain.name)
        signature = _named_by_comment(rule.comment) if rule.comment else None
        if signature:
            return self._proven(signature, f"comment {rule.comment!r}")
        if rule.target in table.chains:
            return self.of_chain(table, rule.target)
        for option, value in rule.conditions:
            signature = _named_by_interface(value.lstrip("!")) if option in ("-i", "-o") else None
            if signature:
                return self._proven(signature, f"interface {value.lstrip('!')}")
        return self._of_unnamed_rule(table, chain, rule)

    def _of_unnamed_rule(self, table: Table, chain: Chain, rule: Rule) -> Claim:
        if self._is_of_firewalld(table, chain, rule):
            return Claim(FIREWALLD, "as firewalld puts it beside its own jumps")
        if _XT_COMMENT in rule.text and rule.marks and any(name.startswith("cali-") for name in table.chains):
            # nft's JSON leaves the comment's text out; Felix alone comments a mark rule in a base chain.
            return Claim(FELIX, "a commented mark rule beside cali-* chains")
        return Claim(BY_HAND, "nothing in the rule names a software")
