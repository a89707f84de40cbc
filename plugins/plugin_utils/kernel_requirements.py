# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel of a node must have: rows of the table of checks (requirements.py)."""

from __future__ import annotations

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kernel_observations import (
    kernel_locked_down,
    loose_rp_filter,
    missing_backend,
    missing_bpf,
    missing_btf,
    missing_conntrack,
    missing_ipip,
    missing_ipv6,
    missing_ipvs,
    missing_matches,
    missing_nftables,
    missing_rare,
    missing_sets,
    missing_targets,
    missing_tc,
    missing_vxlan,
    missing_wireguard,
    missing_xdp,
    no_cap_sys_admin,
    unseen_features,
)

MODULES = "calico/Node Requirements"
PRIVILEGES = "calico/Privileges"


def _load(*modules: str) -> str:
    """What makes a module available. A kernel that has it loads it by itself, so the file or the right is missing."""
    return (
        "install the package with the kernel's further modules (kernel-modules-extra, linux-modules-extra-KERNEL), "
        "take out of /etc/modprobe.d what bars it, or boot a kernel that has it; then run playbooks/site.yml "
        f"--tags fix, or on the node: modprobe {' '.join(modules)}"
    )


# id, severity, requirement, expected, remedy, predicate
KERNEL_ROWS = (
    (
        "kernel.iptables_match",
        BLOCKER,
        MODULES,
        "the matches set, rpfilter, addrtype, comment, conntrack, icmp, tcp, udp, mark, multiport, and ipvs with IPVS",
        _load("xt_set", "or the module that the evidence names"),
        missing_matches,
    ),
    (
        "kernel.iptables_target",
        BLOCKER,
        MODULES,
        "the targets REJECT, ACCEPT, DROP, MARK and MASQUERADE, and CT with VXLAN",
        _load("ipt_REJECT", "or the module that the evidence names"),
        missing_targets,
    ),
    (
        "kernel.iptables_backend",
        BLOCKER,
        MODULES,
        "the tables of iptables, legacy or over nftables",
        _load("nft_compat", "nft_chain_nat", "or iptable_filter iptable_mangle iptable_nat iptable_raw"),
        missing_backend,
    ),
    (
        "kernel.ip6tables",
        WARNING,
        MODULES,
        "the matches icmpv6 and rpfilter and the target REJECT for IPv6",
        _load("ip6t_rpfilter", "ip6t_REJECT")
        + "; where the cluster has no IPv6, set ipv6Support: false in the FelixConfiguration default",
        missing_ipv6,
    ),
    (
        "kernel.iptables_rare",
        WARNING,
        MODULES,
        "the match sctp, the target LOG and connection tracking of SCTP, for policies that use them",
        _load("xt_sctp", "xt_LOG") + "; nothing where no policy names SCTP or the action Log",
        missing_rare,
    ),
    (
        "kernel.nftables",
        BLOCKER,
        MODULES,
        "what the rules of Felix and kube-proxy are made of in mode nftables",
        _load("nf_tables", "nft_ct", "nft_fib_ipv4", "nft_reject_ipv4", "nft_chain_nat"),
        missing_nftables,
    ),
    (
        "kernel.ipset",
        BLOCKER,
        MODULES,
        "IP sets of the types hash:ip and hash:net",
        _load("ip_set_hash_ip", "ip_set_hash_net"),
        missing_sets,
    ),
    (
        "kernel.conntrack",
        BLOCKER,
        MODULES,
        "connection tracking",
        _load("nf_conntrack"),
        missing_conntrack,
    ),
    (
        "kernel.ipvs",
        BLOCKER,
        MODULES,
        "IPVS with the scheduler rr and dummy links, for kube-proxy's mode ipvs",
        _load("ip_vs", "ip_vs_rr", "dummy") + "; or set kube-proxy's mode to iptables",
        missing_ipvs,
    ),
    (
        "kernel.ipip",
        BLOCKER,
        MODULES,
        "IPIP links, for the pools with ipipMode",
        _load("ipip") + "; or set the pools to VXLAN",
        missing_ipip,
    ),
    (
        "kernel.vxlan",
        BLOCKER,
        MODULES,
        "VXLAN links, for the pools with vxlanMode",
        _load("vxlan") + "; or set the pools to IPIP",
        missing_vxlan,
    ),
    (
        "kernel.wireguard",
        WARNING,
        MODULES,
        "WireGuard links: without them Felix sends this node's traffic in the clear",
        _load("wireguard"),
        missing_wireguard,
    ),
    (
        "kernel.bpf",
        BLOCKER,
        MODULES,
        "the bpf system call",
        "boot a kernel with CONFIG_BPF_SYSCALL",
        missing_bpf,
    ),
    (
        "kernel.btf",
        BLOCKER,
        MODULES,
        "the kernel's BTF for engine {engine}",
        "boot a kernel with CONFIG_DEBUG_INFO_BTF, or choose another engine with portcullis_engine",
        missing_btf,
    ),
    (
        "kernel.tc",
        BLOCKER,
        MODULES,
        "clsact and BPF filters, for Calico's eBPF dataplane",
        _load("sch_ingress", "cls_bpf") + "; or set bpfEnabled: false in the FelixConfiguration default",
        missing_tc,
    ),
    (
        "kernel.xdp",
        BLOCKER,
        MODULES,
        "XDP, for Calico's eBPF dataplane",
        "boot a kernel of 4.8 or later, or set bpfEnabled: false in the FelixConfiguration default",
        missing_xdp,
    ),
    (
        "kernel.lockdown",
        BLOCKER,
        MODULES,
        "lockdown none or integrity for engine {engine}",
        "take lockdown=confidentiality out of the kernel's command line and reboot, or choose another engine with "
        "portcullis_engine",
        kernel_locked_down,
    ),
    (
        "kernel.rp_filter",
        BLOCKER,
        MODULES,
        "net.ipv4.conf.all.rp_filter 0 or 1: Felix of Calico 3.11 and before exits at 2",
        "run playbooks/site.yml --tags fix, or on the node: sysctl -w net.ipv4.conf.all.rp_filter=1, and the same in "
        "/etc/sysctl.d; or upgrade Calico",
        loose_rp_filter,
    ),
    (
        "node.cap_sys_admin",
        BLOCKER,
        PRIVILEGES,
        "a privileged container has CAP_SYS_ADMIN",
        "take the limit away: CapabilityBoundingSet of containerd's unit, or --capability of the container that the "
        "node is",
        no_cap_sys_admin,
    ),
    (
        "kernel.unseen",
        WARNING,
        MODULES,
        "something tells whether the kernel has what is needed here",
        "show the node its kernel's files: mount /lib/modules into it read-only; or load the modules (modprobe) where "
        "the kernel runs",
        unseen_features,
    ),
)
