# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What provokes each check of the kernel: its finding, where it is demanded, and what is wrong with the probe."""

from __future__ import annotations

from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_install import read_objects
from ansible_collections.portcullis.fleet.plugins.plugin_utils.network_requirements import Calico

from .network_samples import calico_node, felix


def calico(version: str = "v3.27.0", *encapsulations: str, **spec: object) -> Calico:
    """What a cluster with this Calico and these settings says of Felix on a node."""
    install = read_objects([calico_node(version), felix(**spec)])
    return Calico(install.version, install.effective(), encapsulations=frozenset(encapsulations))


def lacking(*features: str, state: str = "absent") -> dict:
    """Features that are not there."""
    return {name: {"state": state, "evidence": f"CONFIG of {name} is not set"} for name in features}


BOTH_BACKENDS = lacking("iptables_legacy.raw", "nft.compat")
# id, fields of the node, features, other keys of kernel_features, words of the finding
KERNEL_PROBLEMS = {
    "set match": ("kernel.iptables_match", {"calico": calico()}, lacking("iptables_match.set"), {}, "CONFIG of"),
    "ipvs match": (
        "kernel.iptables_match",
        {"calico": calico(), "proxy_mode": "ipvs", "live_mode": "ipvs"},
        lacking("iptables_match.ipvs"),
        {},
        "iptables_match.ipvs",
    ),
    "set match, Secure Workload": (
        "kernel.iptables_match",
        {"engine": "secure_workload"},
        lacking("iptables_match.set"),
        {},
        "iptables_match.set",
    ),
    "REJECT": ("kernel.iptables_target", {"calico": calico()}, lacking("iptables_target.REJECT"), {}, "REJECT"),
    "no backend": ("kernel.iptables_backend", {"calico": calico()}, BOTH_BACKENDS, {}, "iptables_legacy.raw"),
    "not the backend that is set": (
        "kernel.iptables_backend",
        {"calico": calico(iptablesBackend="Legacy")},
        lacking("iptables_legacy.filter"),
        {},
        "iptables_legacy.filter",
    ),
    "IPv6": ("kernel.ip6tables", {"calico": calico()}, lacking("iptables_match.rpfilter_ipv6"), {}, "rpfilter_ipv6"),
    "SCTP": ("kernel.iptables_rare", {"calico": calico()}, lacking("conntrack_sctp"), {}, "conntrack_sctp"),
    "nftables": (
        "kernel.nftables",
        {"calico": calico("v3.31.0", nftablesMode="Enabled"), "live_mode": "nftables"},
        lacking("nft.fib"),
        {},
        "nft.fib",
    ),
    "CT, VXLAN": (
        "kernel.iptables_target",
        {"calico": calico("v3.27.0", "vxlan")},
        lacking("iptables_target.CT"),
        {},
        "iptables_target.CT",
    ),
    "nftables, log": (
        "kernel.iptables_rare",
        {"calico": calico("v3.31.0", nftablesMode="Enabled"), "live_mode": "nftables"},
        lacking("nft.log"),
        {},
        "nft.log",
    ),
    "ip sets": ("kernel.ipset", {"calico": calico()}, lacking("ipset.hash_net"), {}, "ipset.hash_net"),
    "conntrack": ("kernel.conntrack", {"calico": calico()}, lacking("conntrack"), {}, "conntrack"),
    "IPVS": ("kernel.ipvs", {"proxy_mode": "ipvs", "live_mode": ""}, lacking("ipvs.rr"), {}, "ipvs.rr"),
    "IPIP": ("kernel.ipip", {"calico": calico("v3.27.0", "ipip")}, lacking("ipip"), {}, "ipip"),
    "IPIP by Felix": ("kernel.ipip", {"calico": calico(ipipEnabled=True)}, lacking("ipip"), {}, "ipip"),
    "VXLAN": ("kernel.vxlan", {"calico": calico("v3.27.0", "vxlan")}, lacking("vxlan"), {}, "vxlan"),
    "WireGuard": ("kernel.wireguard", {"calico": calico(wireguardEnabled=True)}, lacking("wireguard"), {}, "wireguard"),
    "bpf": ("kernel.bpf", {}, lacking("bpf"), {}, "bpf"),
    "BTF": ("kernel.btf", {}, lacking("btf"), {}, "btf"),
    "tc": ("kernel.tc", {"calico": calico(bpfEnabled=True)}, lacking("tc.bpf"), {}, "tc.bpf"),
    "XDP": ("kernel.xdp", {"calico": calico(bpfEnabled=True)}, lacking("xdp"), {}, "xdp"),
    "lockdown": ("kernel.lockdown", {}, {}, {"lockdown": "confidentiality"}, "confidentiality"),
    "rp_filter": ("kernel.rp_filter", {"calico": calico("v3.11.3")}, {}, {"rp_filter": 2}, "rp_filter is 2"),
    "CAP_SYS_ADMIN": ("node.cap_sys_admin", {}, {}, {"cap_sys_admin": False}, "CAP_SYS_ADMIN"),
    "nothing tells": (
        "kernel.unseen",
        {"calico": calico("v3.27.0", "vxlan")},
        lacking("vxlan", state="unknown"),
        {},
        "vxlan: CONFIG of vxlan",
    ),
}
