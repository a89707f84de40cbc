# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel of a node lacks, in words: a predicate over its probe for each requirement (kernel_requirements.py).

Only what this cluster and engine use is demanded. A module that is not loaded but can be is there, since who uses a
feature makes the kernel load it. What nothing tells of is C(kernel.unseen), not a missing feature.
"""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.portcullis.fleet.plugins.module_utils.kernel_evidence import ABSENT, UNKNOWN
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_effective import dataplane
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_observations import Node

# Engines whose programs are loaded by bpf(2) and find the kernel's fields by BTF.
BPF_ENGINES = ("native", "runtime_enforcer")
# Felix up to here exits where reverse path filtering is loose on all interfaces; later ones filter by rules.
LOOSE_RP_FILTER = 2
RP_FILTER_UNTIL = (3, 11)
TABLES = ("filter", "mangle", "nat", "raw")
# What Felix writes whatever the policies are, and what the rules of Secure Workload (sets, chains in filter) are of.
FELIX_MATCHES = ("addrtype", "comment", "conntrack", "icmp", "mark", "multiport", "rpfilter", "set", "tcp", "udp")
AGENT_MATCHES = ("comment", "conntrack", "icmp", "set", "tcp", "udp")
FELIX_TARGETS = ("ACCEPT", "DROP", "MARK", "MASQUERADE", "REJECT")
AGENT_TARGETS = ("ACCEPT", "DROP")
SETS = ("ipset", "ipset.hash_ip", "ipset.hash_net")
# As Felix's native tables use them; sets are a part of nf_tables.
NFTABLES = ("nft.tables", "nft.ct", "nft.fib", "nft.masq", "nft.nat", "nft.nat_chain", "nft.reject")
# The tables of iptables over nftables.
COMPATIBLE = ("nft.tables", "nft.compat", "nft.nat_chain")


def _kernel(node: Node) -> dict:
    """What was read of the kernel; nothing in a probe that is older than that."""
    return node.probe.get("kernel_features") or {}


def _in_state(node: Node, names: Iterable[str], state: str) -> list[str]:
    """Those of the features that are in a state, with the evidence."""
    features = _kernel(node).get("features", {})
    found = {name: features[name] for name in names if features.get(name, {}).get("state") == state}
    return [f"{name}: {item['evidence']}" for name, item in found.items()]


def _absent(node: Node, names: Iterable[str]) -> str | None:
    return "; ".join(_in_state(node, names, ABSENT)) or None


def _plane(node: Node) -> str:
    """Felix's dataplane here: iptables, nftables or bpf; empty where it does not run."""
    if node.calico is None:
        return ""
    mode = _proxy_mode(node)
    kind = dataplane(node.calico.config, nftables=mode == "nftables" if mode else None).kind
    return "iptables" if kind == "auto" else kind


def _proxy_mode(node: Node) -> str:
    """kube-proxy's live mode, else the configured one."""
    return node.wanted.proxy_mode or node.probe["kube_proxy"]["mode"] or node.proxy_mode


def _writes_iptables(node: Node) -> bool:
    """Whether Felix writes rules of iptables here. In its eBPF mode it still does, for the host's own traffic."""
    return _plane(node) in {"iptables", "bpf"}


def _is_agents(node: Node) -> bool:
    return node.in_cluster and node.wanted.engine == "secure_workload"


def _is_bpf_engine(node: Node) -> bool:
    """Whether the engine runs here and is made of BPF programs; only the native one runs on plain hosts, too."""
    return node.wanted.engine == "native" or (node.in_cluster and node.wanted.engine in BPF_ENGINES)


def _matches(node: Node) -> list[str]:
    names = set(FELIX_MATCHES if _writes_iptables(node) else ())
    names |= set(AGENT_MATCHES if _is_agents(node) else ())
    if _writes_iptables(node) and _uses_ipvs(node):
        names.add("ipvs")
    return [f"iptables_match.{name}" for name in sorted(names)]


def _targets(node: Node) -> list[str]:
    names = set(FELIX_TARGETS if _writes_iptables(node) else ()) | set(AGENT_TARGETS if _is_agents(node) else ())
    if _writes_iptables(node) and encapsulates(node, "vxlan"):
        names.add("CT")  # its packets are not tracked
    return [f"iptables_target.{name}" for name in sorted(names)]


def _ipv6(node: Node) -> list[str]:
    """Felix writes rules for IPv6 unless it is told not to or the kernel has none."""
    if not _writes_iptables(node) or not _kernel(node).get("ipv6"):
        return []
    if node.calico.config.value("ipv6Support") is False:
        return []
    return ["iptables_match.icmpv6", "iptables_match.rpfilter_ipv6", "iptables_target.REJECT_ipv6"]


def _backends(node: Node) -> list[list[str]]:
    """The features of each backend that will do; any one does."""
    if not _writes_iptables(node) and not _is_agents(node):
        return []
    legacy = [f"iptables_legacy.{name}" for name in (TABLES if _writes_iptables(node) else ("filter",))]
    chosen = node.calico.config.value("iptablesBackend") if _writes_iptables(node) else None
    return {"Legacy": [legacy], "NFT": [list(COMPATIBLE)]}.get(str(chosen), [legacy, list(COMPATIBLE)])


def _uses_ipvs(node: Node) -> bool:
    return node.in_cluster and _proxy_mode(node) == "ipvs"


def _ipvs(node: Node) -> list[str]:
    """Where kube-proxy runs in this mode, its kernel has it."""
    is_live = node.probe["kube_proxy"]["mode"] == "ipvs"
    return ["ipvs", "ipvs.rr", "dummy"] if _uses_ipvs(node) and not is_live else []


def encapsulates(node: Node, kind: str) -> bool:
    """Whether Felix wraps packets this way: told so, or by the pools where its version follows them."""
    if node.calico is None:
        return False
    told = node.calico.config.value(f"{kind}Enabled")
    return told is True or (told is not False and kind in node.calico.encapsulations)


def uses_wireguard(node: Node) -> bool:
    """Whether Felix encrypts what leaves the node."""
    config = node.calico.config if node.calico else None
    return bool(config) and any(config.value(name) is True for name in ("wireguardEnabled", "wireguardEnabledV6"))


def _wireguard(node: Node) -> list[str]:
    return ["wireguard"] if uses_wireguard(node) else []


def _bpf(node: Node) -> list[str]:
    return ["bpf"] if _is_bpf_engine(node) or _plane(node) == "bpf" else []


def _btf(node: Node) -> list[str]:
    return ["btf"] if _is_bpf_engine(node) else []


def _nftables(node: Node) -> tuple[str, ...]:
    used = _plane(node) == "nftables" or (node.in_cluster and node.wanted.proxy_mode == "nftables")
    return NFTABLES if used else ()


def _sets(node: Node) -> tuple[str, ...]:
    return SETS if _writes_iptables(node) or _is_agents(node) else ()


def _conntrack(node: Node) -> list[str]:
    return ["conntrack"] if _plane(node) or _is_agents(node) else []


def _rare(node: Node) -> list[str]:
    """What only some policies need."""
    if _plane(node) == "nftables":
        return ["nft.log", "conntrack_sctp"]
    return ["iptables_match.sctp", "iptables_target.LOG", "conntrack_sctp"] if _writes_iptables(node) else []


def _tc(node: Node) -> list[str]:
    return ["tc.clsact", "tc.bpf"] if _plane(node) == "bpf" else []


def missing_matches(node: Node) -> str | None:
    """Matches of iptables that the rules of Felix or Secure Workload are made of."""
    return _absent(node, _matches(node))


def missing_targets(node: Node) -> str | None:
    """Targets of iptables that the rules of Felix or Secure Workload end in."""
    return _absent(node, _targets(node))


def missing_ipv6(node: Node) -> str | None:
    """Matches and targets of ip6tables on a node with IPv6."""
    return _absent(node, _ipv6(node))


def missing_rare(node: Node) -> str | None:
    """What policies with SCTP or the action Log need, and no others."""
    return _absent(node, _rare(node))


def missing_backend(node: Node) -> str | None:
    """Neither backend of iptables, or not the one that Felix is told to use."""
    lacks = [(_in_state(node, names, ABSENT), _in_state(node, names, UNKNOWN)) for names in _backends(node)]
    if not lacks or any(not absent for absent, _unknown in lacks):
        return None
    return "; ".join(text for absent, _unknown in lacks for text in absent)


def missing_nftables(node: Node) -> str | None:
    """Parts of nftables that Felix's nftables dataplane is made of."""
    return _absent(node, _nftables(node))


def missing_sets(node: Node) -> str | None:
    """IP sets, or the types of them that rules refer to."""
    return _absent(node, _sets(node))


def missing_conntrack(node: Node) -> str | None:
    """Connection tracking."""
    return _absent(node, _conntrack(node))


def missing_ipvs(node: Node) -> str | None:
    """IPVS where kube-proxy is configured to use it and does not yet."""
    return _absent(node, _ipvs(node))


def missing_ipip(node: Node) -> str | None:
    """IPIP where a pool or Felix uses it."""
    return _absent(node, ["ipip"] if encapsulates(node, "ipip") else [])


def missing_vxlan(node: Node) -> str | None:
    """VXLAN where a pool or Felix uses it."""
    return _absent(node, ["vxlan"] if encapsulates(node, "vxlan") else [])


def missing_wireguard(node: Node) -> str | None:
    """WireGuard where Felix is to encrypt with it."""
    return _absent(node, _wireguard(node))


def missing_bpf(node: Node) -> str | None:
    """The bpf system call, for Calico's eBPF dataplane and the engines that are made of BPF programs."""
    return _absent(node, _bpf(node))


def missing_btf(node: Node) -> str | None:
    """The kernel's own type information, by which an engine's programs find its fields."""
    return _absent(node, _btf(node))


def missing_tc(node: Node) -> str | None:
    """Traffic control's hooks for BPF programs, for Calico's eBPF dataplane."""
    return _absent(node, _tc(node))


def missing_xdp(node: Node) -> str | None:
    """XDP, for Calico's eBPF dataplane."""
    return _absent(node, ["xdp"] if _plane(node) == "bpf" else [])


def kernel_locked_down(node: Node) -> str | None:
    """A kernel that lets no BPF program read its memory."""
    is_locked = _kernel(node).get("lockdown") == "confidentiality" and _is_bpf_engine(node)
    return "/sys/kernel/security/lockdown is confidentiality" if is_locked else None


def loose_rp_filter(node: Node) -> str | None:
    """Loose reverse path filtering under a Felix that exits because of it."""
    if node.calico is None or node.calico.version is None or node.calico.version[:2] > RP_FILTER_UNTIL:
        return None
    if _kernel(node).get("rp_filter") != LOOSE_RP_FILTER or node.calico.config.value("ignoreLooseRPF") is True:
        return None
    version = ".".join(map(str, node.calico.version))
    return f"net.ipv4.conf.all.rp_filter is {LOOSE_RP_FILTER}, and Felix is of Calico {version}"


def no_cap_sys_admin(node: Node) -> str | None:
    """A node whose containers cannot have CAP_SYS_ADMIN, privileged or not."""
    is_barred = node.in_cluster and _kernel(node).get("cap_sys_admin") is False
    return "the container runtime's bounding set lacks CAP_SYS_ADMIN" if is_barred else None


def unseen_features(node: Node) -> str | None:
    """Features that are needed here and that nothing tells of."""
    names = [
        *_matches(node), *_targets(node), *_ipv6(node), *_rare(node), *_nftables(node), *_sets(node),
        *_conntrack(node), *_ipvs(node), *_wireguard(node), *_bpf(node), *_btf(node), *_tc(node),
        *(kind for kind in ("ipip", "vxlan") if encapsulates(node, kind)),
    ]  # fmt: skip
    unknown = {name: _in_state(node, names, UNKNOWN) for names in _backends(node) for name in names}
    if all(_in_state(node, backend, UNKNOWN) + _in_state(node, backend, ABSENT) for backend in _backends(node)):
        names += unknown
    return "; ".join(_in_state(node, dict.fromkeys(names), UNKNOWN)) or None
