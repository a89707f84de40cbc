# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which ports are needed follows from the mode of the network, and what the mode does not use is not asked for."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_ports import (
    endpoints_of,
    flannel_backend,
    node_places,
    slice_endpoints,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.port_needs import Need, needs_of

from .network_samples import calico_node, felix
from .port_samples import NAMES, network_of, node_object, place, places, read_of

IPIP = {"cidr": "10.244.0.0/16", "ipipMode": "Always", "vxlanMode": "Never"}
VXLAN = {"cidr": "10.244.0.0/16", "ipipMode": "Never", "vxlanMode": "Always"}
NO_TUNNEL = {"cidr": "10.244.0.0/16", "ipipMode": "Never", "vxlanMode": "Never"}
TYPHA = [{"address": "10.0.0.12", "port": 5473}]


def rows(*calico: dict, **read: object) -> list[str]:
    """The rows that are needed beside the API server's, in words."""
    found = needs_of(network_of(*calico), read_of(**read))
    return [need.words for need in found if need.name != "API server"]


def need(name: str, *calico: dict, **read: object) -> Need:
    """The one row of this name."""
    (found,) = [item for item in needs_of(network_of(*calico), read_of(**read)) if item.name == name]
    return found


@pytest.mark.parametrize(
    ("calico", "read", "expected"),
    [
        ([], {}, []),
        ([calico_node()], {"pools": [NO_TUNNEL]}, ["TCP 179 (BGP)"]),
        ([calico_node()], {"pools": [IPIP]}, ["TCP 179 (BGP)", "protocol 4 (IP-in-IP)"]),
        ([calico_node()], {"pools": [{**IPIP, "disabled": True}]}, ["TCP 179 (BGP)"]),
        ([calico_node(CALICO_NETWORKING_BACKEND="vxlan")], {"pools": [VXLAN]}, ["UDP 4789 (VXLAN)"]),
        (
            [calico_node(CALICO_NETWORKING_BACKEND="vxlan"), felix(vxlanPort=8472)],
            {"pools": [VXLAN]},
            ["UDP 8472 (VXLAN)"],
        ),
        ([calico_node(CALICO_NETWORKING_BACKEND="none")], {"pools": [IPIP]}, []),
        (
            [calico_node(CALICO_NETWORKING_BACKEND="none"), felix(wireguardEnabled=True)],
            {},
            ["UDP 51820 (WireGuard)"],
        ),
        (
            [calico_node(CALICO_NETWORKING_BACKEND="none"), felix(wireguardEnabled=True, wireguardListeningPort=51999)],
            {},
            ["UDP 51999 (WireGuard)"],
        ),
        ([calico_node()], {"bgp": {"listenPort": 1179}}, ["TCP 1179 (BGP)"]),
        ([calico_node()], {"bgp": {"listenPort": 70000}}, ["TCP 179 (BGP)"]),
        ([calico_node()], {"bgp": {"nodeToNodeMeshEnabled": False}}, []),
        ([calico_node()], {"typha": TYPHA}, ["TCP 179 (BGP)", "TCP 5473 (Typha)"]),
        ([felix()], {"pools": [IPIP]}, []),
        ([], {"nodes": places(flannel_backend="vxlan")}, ["UDP 8472 (flannel VXLAN)"]),
        (
            [],
            {"nodes": places(flannel_backend="vxlan"), "flannel": {"type": "vxlan", "port": 4789}},
            ["UDP 4789 (flannel VXLAN)"],
        ),
        ([], {"nodes": places(flannel_backend="host-gw")}, []),
        (
            [calico_node(DATASTORE_TYPE="etcdv3", ETCD_ENDPOINTS="https://10.0.0.5:2379,https://10.0.0.6")],
            {"bgp": {"nodeToNodeMeshEnabled": False}},
            ["TCP 2379 (etcd)"],
        ),
    ],
    ids=[
        "no Calico",
        "BGP alone",
        "IPIP",
        "a pool that is disabled",
        "VXLAN",
        "VXLAN on another port",
        "policy only",
        "WireGuard",
        "WireGuard on another port",
        "BGP on another port",
        "BGP on a port that is none",
        "no mesh and no reflector",
        "Typha",
        "objects that are left over",
        "flannel",
        "flannel with a port",
        "flannel without a tunnel",
        "etcd",
    ],
)
def test_the_mode_decides(calico: list[dict], read: dict, expected: list[str]):
    assert rows(*calico, **read) == expected


def test_the_api_server_is_where_the_cluster_says():
    found = need("API server", api=[{"address": "10.0.0.11", "port": 16443}, {"address": "10.9.9.9", "port": 16443}])

    assert (found.port, found.sources) == (16443, NAMES)
    assert [(item.node, item.address) for item in found.targets] == [("cp1", "10.0.0.11"), ("", "10.9.9.9")]
    assert found.serves


def test_calicos_own_address_counts_before_the_nodes():
    found = need("BGP", calico_node(), nodes=[place("cp1", 1, calico={"4": "192.0.2.1"}), place("w1", 2)])

    assert [item.address for item in found.targets] == ["192.0.2.1", "10.0.0.2"]


def test_nodes_without_calico_take_no_part():
    found = need("BGP", calico_node(), nodes=[*places(), place("windows", 9)])

    assert found.sources == NAMES


def test_a_tunnel_across_subnets_is_not_asked_for_within_one():
    nodes = places(networks={"4": "10.0.0.0/24"})
    found = need("IP-in-IP", calico_node(), nodes=nodes, pools=[{**IPIP, "ipipMode": "CrossSubnet"}])

    assert found.other_subnet
    assert dict(found.networks) == dict.fromkeys(NAMES, "10.0.0.0/24")


def test_reflectors_are_asked_where_the_mesh_is_off():
    nodes = [place("cp1", 1, reflector=True), place("w1", 2), place("w2", 3)]
    found = need("BGP", calico_node(), nodes=nodes, bgp={"nodeToNodeMeshEnabled": False})

    assert [item.node for item in found.targets] == ["cp1"]
    assert not found.is_mesh


def test_one_node_has_no_pair():
    assert rows(calico_node(), nodes=[place("cp1", 1)], pools=[IPIP]) == []


def test_the_ebpf_dataplane_is_known_to_take_packets_first():
    found = need("VXLAN", calico_node(), felix(bpfEnabled=True), pools=[VXLAN])

    assert found.bypasses_sockets


def test_addresses_of_a_node_are_told_from_its_names():
    node = node_object(
        "w1",
        "10.0.0.12",
        "2001:db8::12",
        **{
            "projectcalico.org/IPv4Address": "192.0.2.12/24",
            "projectcalico.org/IPv6Address": "nonsense",
            "flannel.alpha.coreos.com/backend-type": "vxlan",
            "flannel.alpha.coreos.com/public-ip": "198.51.100.12",
        },
    )

    assert node_places(node) == place(
        "w1",
        0,
        internal={"4": "10.0.0.12", "6": "2001:db8::12"},
        calico={"4": "192.0.2.12"},
        networks={"4": "192.0.2.0/24"},
        flannel="198.51.100.12",
        flannel_backend="vxlan",
    )


@pytest.mark.parametrize("node", [{"metadata": {"name": "w1"}}, {"metadata": {"name": "w1"}, "status": None}])
def test_a_node_that_has_not_reported_has_no_address(node: dict):
    assert node_places(node)["internal"] == {}


def test_endpoints_of_both_kinds_are_the_same():
    slices = [
        {"endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}], "ports": [{"port": 6443}]},
        {"endpoints": None, "ports": None},
    ]
    endpoints = {
        "subsets": [
            {"addresses": [{"ip": "10.0.0.1"}], "notReadyAddresses": [{"ip": "10.0.0.2"}], "ports": [{"port": 6443}]}
        ]
    }
    expected = [{"address": "10.0.0.1", "port": 6443}, {"address": "10.0.0.2", "port": 6443}]

    assert slice_endpoints(slices) == endpoints_of(endpoints) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan", "Port": 4789}}', {"type": "vxlan", "port": 4789}),
        ('{"Backend": {"Type": "vxlan"}}', {"type": "vxlan", "port": None}),
        ("{", {"type": "", "port": None}),
        ("[]", {"type": "", "port": None}),
    ],
)
def test_flannels_port_is_read_from_its_configuration(text: str, expected: dict):
    assert flannel_backend({"data": {"net-conf.json": text}}) == expected
