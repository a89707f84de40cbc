# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel features that network plugins and enforcement engines use: what provides each, and how to try it.

Source: Calico's node requirements (its "DELETE, REGISTER" are DROP and LOG), kube-proxy's module list for IPVS, and the
Kconfig and Makefile of net/netfilter, net/ipv4/netfilter, net/ipv6/netfilter and net/sched for the names.
"""

from __future__ import annotations

from typing import NamedTuple

# Module: the configuration symbols under which it was ever built. The first that a configuration names decides.
MODULES = {
    "cls_bpf": ("NET_CLS_BPF",),
    "dummy": ("DUMMY",),
    "ip6_tables": ("IP6_NF_IPTABLES_LEGACY", "IP6_NF_IPTABLES"),
    "ip6t_REJECT": ("IP6_NF_TARGET_REJECT",),
    "ip6t_rpfilter": ("IP6_NF_MATCH_RPFILTER",),
    "ip6table_filter": ("IP6_NF_FILTER",),
    "ip6table_mangle": ("IP6_NF_MANGLE",),
    "ip6table_nat": ("IP6_NF_NAT",),
    "ip6table_raw": ("IP6_NF_RAW",),
    "ip_set": ("IP_SET",),
    "ip_set_hash_ip": ("IP_SET_HASH_IP",),
    "ip_set_hash_ipport": ("IP_SET_HASH_IPPORT",),
    "ip_set_hash_net": ("IP_SET_HASH_NET",),
    "ip_tables": ("IP_NF_IPTABLES_LEGACY", "IP_NF_IPTABLES"),
    "ip_vs": ("IP_VS",),
    "ip_vs_rr": ("IP_VS_RR",),
    "ipip": ("NET_IPIP",),
    "ipt_MASQUERADE": ("IP_NF_TARGET_MASQUERADE",),
    "ipt_REJECT": ("IP_NF_TARGET_REJECT",),
    "ipt_rpfilter": ("IP_NF_MATCH_RPFILTER",),
    "iptable_filter": ("IP_NF_FILTER",),
    "iptable_mangle": ("IP_NF_MANGLE",),
    "iptable_nat": ("IP_NF_NAT",),
    "iptable_raw": ("IP_NF_RAW",),
    "nf_conntrack": ("NF_CONNTRACK",),
    "nf_conntrack_ipv4": ("NF_CONNTRACK_IPV4",),
    "nf_conntrack_ipv6": ("NF_CONNTRACK_IPV6",),
    "nf_conntrack_proto_sctp": ("NF_CT_PROTO_SCTP",),
    "nf_log_ipv4": ("NF_LOG_IPV4",),
    "nf_log_ipv6": ("NF_LOG_IPV6",),
    "nf_log_syslog": ("NF_LOG_SYSLOG",),
    "nf_nat": ("NF_NAT",),
    "nf_tables": ("NF_TABLES",),
    "nf_tables_ipv4": ("NF_TABLES_IPV4",),
    "nf_tables_ipv6": ("NF_TABLES_IPV6",),
    "nfnetlink": ("NETFILTER_NETLINK",),
    "nft_chain_nat": ("NFT_NAT",),
    "nft_chain_nat_ipv4": ("NFT_CHAIN_NAT_IPV4",),
    "nft_chain_nat_ipv6": ("NFT_CHAIN_NAT_IPV6",),
    "nft_compat": ("NFT_COMPAT",),
    "nft_counter": ("NFT_COUNTER",),
    "nft_ct": ("NFT_CT",),
    "nft_fib": ("NFT_FIB",),
    "nft_fib_ipv4": ("NFT_FIB_IPV4",),
    "nft_fib_ipv6": ("NFT_FIB_IPV6",),
    "nft_log": ("NFT_LOG",),
    "nft_masq": ("NFT_MASQ",),
    "nft_meta": ("NFT_META",),
    "nft_nat": ("NFT_NAT",),
    "nft_reject": ("NFT_REJECT",),
    "nft_reject_ipv4": ("NFT_REJECT_IPV4",),
    "nft_reject_ipv6": ("NFT_REJECT_IPV6",),
    "sch_ingress": ("NET_SCH_INGRESS",),
    "vxlan": ("VXLAN",),
    "wireguard": ("WIREGUARD",),
    "x_tables": ("NETFILTER_XTABLES",),
    "xt_CT": ("NETFILTER_XT_TARGET_CT",),
    "xt_LOG": ("NETFILTER_XT_TARGET_LOG",),
    "xt_MASQUERADE": ("NETFILTER_XT_TARGET_MASQUERADE",),
    "xt_addrtype": ("NETFILTER_XT_MATCH_ADDRTYPE",),
    "xt_comment": ("NETFILTER_XT_MATCH_COMMENT",),
    "xt_connmark": ("NETFILTER_XT_CONNMARK",),
    "xt_conntrack": ("NETFILTER_XT_MATCH_CONNTRACK",),
    "xt_ipvs": ("NETFILTER_XT_MATCH_IPVS",),
    "xt_mark": ("NETFILTER_XT_MARK",),
    "xt_multiport": ("NETFILTER_XT_MATCH_MULTIPORT",),
    "xt_nat": ("NETFILTER_XT_NAT",),
    "xt_sctp": ("NETFILTER_XT_MATCH_SCTP",),
    "xt_set": ("NETFILTER_XT_SET",),
    "xt_tcpudp": ("NETFILTER_XTABLES",),
}

# Feature: the modules of which any one provides it. What no module provides is in kernel_features.
FEATURES = {
    "iptables_match.addrtype": ("xt_addrtype",),
    "iptables_match.comment": ("xt_comment",),
    "iptables_match.conntrack": ("xt_conntrack",),
    "iptables_match.icmp": ("xt_tcpudp", "ip_tables"),
    "iptables_match.icmpv6": ("xt_tcpudp", "ip6_tables"),
    "iptables_match.ipvs": ("xt_ipvs",),
    "iptables_match.mark": ("xt_mark",),
    "iptables_match.multiport": ("xt_multiport",),
    "iptables_match.rpfilter": ("ipt_rpfilter",),
    "iptables_match.rpfilter_ipv6": ("ip6t_rpfilter",),
    "iptables_match.sctp": ("xt_sctp",),
    "iptables_match.set": ("xt_set",),
    "iptables_match.tcp": ("xt_tcpudp",),
    "iptables_match.udp": ("xt_tcpudp",),
    "iptables_target.ACCEPT": ("x_tables",),
    "iptables_target.CONNMARK": ("xt_connmark",),
    "iptables_target.CT": ("xt_CT",),
    "iptables_target.DNAT": ("xt_nat",),
    "iptables_target.DROP": ("x_tables",),
    "iptables_target.LOG": ("xt_LOG",),
    "iptables_target.MARK": ("xt_mark",),
    "iptables_target.MASQUERADE": ("xt_MASQUERADE", "ipt_MASQUERADE"),
    "iptables_target.REJECT": ("ipt_REJECT",),
    "iptables_target.REJECT_ipv6": ("ip6t_REJECT",),
    "iptables_legacy.filter": ("iptable_filter",),
    "iptables_legacy.mangle": ("iptable_mangle",),
    "iptables_legacy.nat": ("iptable_nat",),
    "iptables_legacy.raw": ("iptable_raw",),
    "ip6tables_legacy.filter": ("ip6table_filter",),
    "ip6tables_legacy.mangle": ("ip6table_mangle",),
    "ip6tables_legacy.nat": ("ip6table_nat",),
    "ip6tables_legacy.raw": ("ip6table_raw",),
    "nft.compat": ("nft_compat",),
    "nft.ct": ("nft_ct",),
    "nft.fib": ("nft_fib_ipv4",),
    "nft.log": ("nft_log",),
    "nft.masq": ("nft_masq",),
    "nft.nat": ("nft_nat",),
    "nft.nat_chain": ("nft_chain_nat", "nft_chain_nat_ipv4"),
    "nft.reject": ("nft_reject_ipv4",),
    "nft.tables": ("nf_tables",),
    "ipset": ("ip_set",),
    "ipset.hash_ip": ("ip_set_hash_ip",),
    "ipset.hash_ipport": ("ip_set_hash_ipport",),
    "ipset.hash_net": ("ip_set_hash_net",),
    "conntrack": ("nf_conntrack",),
    "ipvs": ("ip_vs",),
    "ipvs.rr": ("ip_vs_rr",),
    "dummy": ("dummy",),
    "ipip": ("ipip",),
    "vxlan": ("vxlan",),
    "wireguard": ("wireguard",),
    "tc.clsact": ("sch_ingress",),
    "tc.bpf": ("cls_bpf",),
}


class Rule(NamedTuple):
    """A rule that needs a feature, in the words of iptables-restore, or of nft in a chain of type and hook C(table).

    also: modules it needs beside the feature's.
    """

    feature: str
    table: str
    text: str
    also: tuple = ()


_TRACKING = ("nf_conntrack", "nf_conntrack_ipv4", "nf_conntrack_ipv6", "nft_ct")
_LOGGING = ("nf_log_syslog", "nf_log_ipv4", "nf_log_ipv6", "nft_log")
_NAT = (*_TRACKING, "nf_nat", "nft_chain_nat", "nft_chain_nat_ipv4", "nft_chain_nat_ipv6", "nft_masq", "nft_nat")
_REJECTING = ("nft_reject", "nft_reject_ipv4", "nft_reject_ipv6")
SET_NAME = "portcullis"
# What both families have; a rule of the set needs the set of that name.
RULES = (
    Rule("iptables_match.addrtype", "filter", "-A INPUT -m addrtype --dst-type LOCAL"),
    Rule("iptables_match.comment", "filter", "-A INPUT -m comment --comment portcullis"),
    Rule("iptables_match.conntrack", "filter", "-A INPUT -m conntrack --ctstate INVALID", _TRACKING),
    Rule("iptables_match.ipvs", "filter", "-A INPUT -m ipvs --ipvs", ("ip_vs", *_TRACKING)),
    Rule("iptables_match.mark", "filter", "-A INPUT -m mark --mark 0x1/0x1"),
    Rule("iptables_match.multiport", "filter", "-A INPUT -p tcp -m multiport --dports 1,2", ("xt_tcpudp",)),
    Rule("iptables_match.sctp", "filter", "-A INPUT -p sctp -m sctp --dport 1"),
    Rule("iptables_match.tcp", "filter", "-A INPUT -p tcp -m tcp --dport 1", ("xt_tcpudp",)),
    Rule("iptables_match.udp", "filter", "-A INPUT -p udp -m udp --dport 1", ("xt_tcpudp",)),
    Rule("iptables_target.ACCEPT", "filter", "-A INPUT -j ACCEPT"),
    Rule("iptables_target.CONNMARK", "filter", "-A INPUT -j CONNMARK --save-mark", _TRACKING),
    Rule("iptables_target.CT", "raw", "-A PREROUTING -j CT --notrack", _TRACKING),
    Rule("iptables_target.DROP", "filter", "-A INPUT -j DROP"),
    Rule("iptables_target.LOG", "filter", "-A INPUT -j LOG", _LOGGING),
    Rule("iptables_target.MARK", "filter", "-A INPUT -j MARK --set-xmark 0x1/0x1"),
    Rule("iptables_target.MASQUERADE", "nat", "-A POSTROUTING -j MASQUERADE", _NAT),
)
IPV4_RULES = (
    *RULES,
    Rule("iptables_match.icmp", "filter", "-A INPUT -p icmp -m icmp --icmp-type 8", ("xt_tcpudp",)),
    Rule("iptables_match.rpfilter", "raw", "-A PREROUTING -m rpfilter --invert"),
    Rule(
        "iptables_match.set",
        "filter",
        f"-A INPUT -m set --match-set {SET_NAME} src",
        ("nfnetlink", "ip_set", "ip_set_hash_ip"),
    ),
    Rule("iptables_target.DNAT", "nat", "-A PREROUTING -p tcp -j DNAT --to-destination 127.0.0.2", _NAT),
    Rule("iptables_target.REJECT", "filter", "-A INPUT -j REJECT", _REJECTING),
)
IPV6_RULES = (
    *RULES,
    Rule("iptables_match.icmpv6", "filter", "-A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 128", ("xt_tcpudp",)),
    Rule("iptables_match.rpfilter_ipv6", "raw", "-A PREROUTING -m rpfilter --invert"),
    Rule("iptables_target.REJECT_ipv6", "filter", "-A INPUT -j REJECT", _REJECTING),
)
NFT_RULES = (
    Rule("nft.ct", "filter hook input", "ct state invalid drop", _TRACKING),
    Rule("nft.fib", "filter hook prerouting", "fib saddr . iif oif missing drop", ("nft_fib",)),
    Rule("nft.log", "filter hook input", "log", _LOGGING),
    Rule("nft.masq", "nat hook postrouting", "masquerade", _NAT),
    Rule("nft.nat", "nat hook prerouting", "dnat to 127.0.0.2", _NAT),
    Rule("nft.reject", "filter hook input", "reject", _REJECTING),
)
