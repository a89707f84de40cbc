# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_ip_rules import owner_of_route, parse_ip_rules
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_owners import Owners, running_software
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_rules import NATIVE, NFT, Table
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.plugins.plugin_utils.netfilter_samples import base_chain, ruleset, save, state

CHAINS = {
    "cali-FORWARD": "calico-felix",
    "cali-tw-cali349125f6540": "calico-felix",
    "califw-tap1": "calico-felix",
    "felix-FORWARD": "calico-felix",
    "KUBE-SVC-NPX46M4PTMTKRN6Y": "kube-proxy",
    "KUBE-IPVS-FILTER": "kube-proxy",
    "KUBE-FIREWALL": "kubelet",
    "KUBE-IPTABLES-HINT": "kubelet",
    "KUBE-ROUTER-INPUT": "kube-router",
    "KUBE-POD-FW-AAAA": "kube-router",
    "KUBE-HP-AAAA": "hostport",
    "TA_INPUT": "secure-workload",
    "TA_GOLDEN_OUTPUT": "secure-workload",
    "INPUT_ZONES": "firewalld",
    "FORWARD_IN_ZONES_SOURCE": "firewalld",
    "IN_public_allow": "firewalld",
    "FWDI_public": "firewalld",
    "PRE_docker_post": "firewalld",
    "OUTPUT_direct": "firewalld",
    "INPUT_mine": "by-hand",
    "OUT_web": "by-hand",
    "ufw-before-input": "ufw",
    "ufw6-user-input": "ufw",
    "DOCKER": "dockerd",
    "DOCKER-ISOLATION-STAGE-1": "dockerd",
    "DOCKERISH": "by-hand",
    "CNI-HOSTPORT-DNAT": "cni-portmap",
    "CNI-DN-4e5dbfafc1afde34a8c94": "cni-portmap",
    "CNI-FORWARD": "cni-plugins",
    "CNI-0f3bd2dd1fb6d8d4f5fa3d8c": "cni-plugins",
    "f2b-sshd": "fail2ban",
    "LIBVIRT_FWI": "libvirt",
    "ts-input": "tailscale",
    "ISTIO_OUTPUT": "istio",
    "CILIUM_FORWARD": "cilium",
    "OLD_CILIUM_PRE_raw": "cilium",
    "AWS-SNAT-CHAIN-0": "aws-vpc-cni",
    "AWS-CONNMARK-CHAIN-1": "aws-vpc-cni",
    "OVN-KUBE-NODEPORT": "ovn-kubernetes",
    "OVN-MASQUERADE": "kube-ovn",
    "OPENSHIFT-FIREWALL-ALLOW": "openshift-sdn",
    "ANTREA-FORWARD": "antrea",
    "WEAVE-NPC": "weave",
    "FLANNEL-FWD": "flannel",
    "NETAVARK_FORWARD": "podman",
    "MYCHAIN": "by-hand",
}


@pytest.mark.parametrize(("name", "owner"), CHAINS.items())
def test_owner_of_a_chain(name, owner):
    """A chain's name tells its maker; an unknown one is a person's."""
    claim = Owners().of_chain(Table(NFT, "ip", "filter"), name)

    assert claim.owner == owner
    assert name in claim.evidence


@pytest.mark.parametrize(
    ("family", "name", "running", "owner"),
    [
        ("ip", "kube-proxy", None, "kube-proxy"),
        ("ip6", "calico", None, "calico-felix"),
        ("inet", "firewalld", None, "firewalld"),
        ("inet", "f2b-table", None, "fail2ban"),
        ("ip", "aws-cni", None, "aws-vpc-cni"),
        ("ip", "docker-bridges", None, "dockerd"),
        ("inet", "filter", {"nftables.service"}, "nftables.service"),
        ("inet", "filter", set(), "by-hand"),
        ("inet", "filter", None, "by-hand"),
    ],
)
def test_owner_of_a_native_table(family, name, running, owner):
    """Its name tells it; what nftables.service loaded is told by the unit."""
    owners = Owners(None if running is None else frozenset(running))

    assert owners.of_table(Table(NATIVE, family, name)).owner == owner


@pytest.mark.parametrize(
    ("line", "owner"),
    [
        pytest.param("-j KUBE-FORWARD", "kube-proxy", id="its target's"),
        pytest.param(
            '-m comment --comment "cali:S93hc" -m mark --mark 0x1/0x1 -j ACCEPT', "calico-felix", id="comment"
        ),
        pytest.param("-i docker0 ! -o docker0 -j ACCEPT", "dockerd", id="interface"),
        pytest.param("-o virbr0 -j ACCEPT", "libvirt", id="libvirt's interface"),
        pytest.param(
            '-s 10.1.0.0/16 -m comment --comment "generated for MicroK8s pods" -j ACCEPT', "microk8s", id="microk8s"
        ),
        pytest.param(
            '-m comment --comment "NodeLocal DNS Cache: skip conntrack" -j ACCEPT', "node-local-dns", id="dns"
        ),
        pytest.param("-p tcp -m tcp --dport 22 -j ACCEPT", "by-hand", id="nothing tells"),
        pytest.param("-i tailscale0 -j ACCEPT", "by-hand", id="Tailscale keeps to its chains"),
        pytest.param("-j MYCHAIN", "by-hand", id="an unknown chain"),
    ],
)
def test_owner_of_a_rule_in_a_base_chain(line, owner):
    """Comment, target, interface, in this order."""
    filters = state(save(filter=f"-A FORWARD {line}\n-A KUBE-FORWARD -j RETURN\n-A MYCHAIN -j RETURN"))
    (table,) = filters.tables
    chain = table.chains["FORWARD"]

    assert filters.owners.of_rule(table, chain, chain.rules[0]).owner == owner


def test_firewalld_with_the_iptables_backend():
    """Its fixed rules around its jumps are its own, a port opened among them is a person's."""
    rows = """
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT
-A INPUT -i lo -j ACCEPT
-A INPUT -j INPUT_ZONES
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A INPUT -m conntrack --ctstate INVALID -j DROP
-A INPUT -j REJECT --reject-with icmp-host-prohibited
-A FORWARD -j REJECT --reject-with icmp-host-prohibited
-A INPUT_ZONES -g IN_public
-A IN_public -j RETURN
"""
    filters = state(save("legacy", filter=rows))
    (table,) = filters.tables
    owners = {
        name: [filters.owners.of_rule(table, table.chains[name], rule).owner for rule in table.chains[name].rules]
        for name in ("INPUT", "FORWARD")
    }

    assert owners["INPUT"] == ["firewalld"] * 3 + ["by-hand"] + ["firewalld"] * 2
    assert owners["FORWARD"] == ["by-hand"]


@pytest.mark.parametrize(
    ("running", "owner"), [(None, "tailscale"), (("tailscale",), "tailscale"), (("kubelet",), "by-hand")]
)
def test_tailscale_counts_only_where_it_runs(running, owner):
    """It removes its rules when it ends: without it somebody typed them."""
    filters = state(save(filter="-A INPUT -j ts-input\n-A ts-input -i tailscale0 -j ACCEPT"), running=running)

    assert filters.chains_by_owner == {owner: ["nft/filter"]}


def test_running_software():
    """Processes by the name of their program, a Python program's too, and units."""
    commands = [
        "/usr/local/bin/kube-proxy --config=/x",
        "calico-node -felix",
        "/usr/bin/python3 /usr/sbin/firewalld --nofork",
    ]

    assert running_software(commands, ["nftables.service", "ssh"]) == {
        "kube-proxy",
        "calico-felix",
        "firewalld",
        "nftables.service",
    }


def test_places_and_native_tables():
    """Chains are told by table; a legacy table that only exists is nobody's."""
    filters = state(
        save("legacy", nat=""),
        save(filter="-A INPUT -j KUBE-FIREWALL\n-A KUBE-FIREWALL -j RETURN"),
        nft=ruleset(base_chain("mine", "in", "input")),
    )

    assert filters.chains_by_owner == {"by-hand": ["nft table inet mine"], "kubelet": ["nft/filter"]}
    assert [(table.name, claim.owner) for table, claim in filters.native_tables()] == [("mine", "by-hand")]
    assert filters.backends("by-hand") == ["native"]


@pytest.mark.parametrize(("family", "shared"), [("ip", set()), ("ip6", {"KUBE-FIREWALL"})])
def test_shared_chain(family, shared):
    """Only kube-proxy makes an IPv6 KUBE-FIREWALL beside kubelet's."""
    filters = state(save("nft", family, filter="-A INPUT -j KUBE-FIREWALL\n-A KUBE-FIREWALL -j RETURN"))

    assert filters.shared_chains().keys() == shared


@pytest.mark.parametrize(
    ("line", "owner", "mask"),
    [
        pytest.param("99:\tnot from all fwmark 0x100000/0x100000 lookup 1", "calico-felix", 0x100000, id="wireguard"),
        pytest.param("5210:\tfrom all fwmark 0x80000/0xff0000 lookup main", "tailscale", 0xFF0000, id="tailscale"),
        pytest.param("1024:\tfrom all fwmark 0x80/0x80 lookup main", "aws-vpc-cni", 0x80, id="aws"),
        pytest.param("1024:\tfrom all fwmark 0x80 lookup main", "aws-vpc-cni", 0xFFFFFFFF, id="aws before 1.4"),
        pytest.param("9:\tfrom all fwmark 0x200/0xf00 lookup 2004", "cilium", 0xF00, id="cilium"),
        pytest.param("32765:\tnot from all fwmark 0xca6c lookup 51820", "wg-quick", 0xFFFFFFFF, id="wg-quick"),
        pytest.param("100:\tfrom all fwmark 0x1/0x3 lookup 100", "by-hand", 3, id="by hand"),
    ],
)
def test_routing_rules(line, owner, mask):
    """Priority, mark and table tell the maker; without a mask the whole mark counts."""
    (route,) = parse_ip_rules(f"0:\tfrom all lookup local\n{line}\n32766:\tfrom all lookup main\n")

    assert (owner_of_route(route, None).owner, route.mask) == (owner, mask)
    assert route.has_mask == ("/" in line)
    assert "\t" not in route.text


@given(st.text(max_size=60))
def test_no_routing_text_raises(text):
    """Whatever ip prints."""
    parse_ip_rules(text)
