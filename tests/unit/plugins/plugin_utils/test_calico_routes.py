# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes of nodes against Calico's pools."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_pools import Pool, read_pools
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_routes import route_findings

POOLS = [Pool("p", "192.168.0.0/16", "object", 26, 1024), Pool("six", "fd00:10::/64", "object", 122, 1)]


def route(destination: str, interface: str = "eth0", *, gateway: str = "", protocol: int = 3) -> dict:
    """A route as the probe has it."""
    return {"destination": destination, "interface": interface, "gateway": gateway, "protocol": protocol}


def found(*routes: dict, addresses: tuple[str, ...] = ("10.0.0.1", "10.0.0.2"), error: str = "") -> list[str]:
    """What is observed on a node with these routes."""
    read = {"w1": {"routes": list(routes), "error": error}, "w2": None}
    return [item["observed"] for item in route_findings(POOLS, read, list(addresses), {"w1": "one"})]


@pytest.mark.parametrize(
    "item",
    [
        route("192.168.122.0/24", "virbr0", protocol=2),
        route("192.168.0.0/16", "tun0"),
        route("192.168.7.0/24", gateway="10.0.0.254", protocol=4),
        route("192.0.0.0/8", "eth1", protocol=2),
        route("fd00:10::/80", "docker0", protocol=2),
    ],
    ids=["libvirt", "the pool itself", "static", "attached and wider", "IPv6"],
)
def test_a_route_of_others_into_a_pool_is_found(item):
    assert len(found(item)) == 1


@pytest.mark.parametrize(
    "item",
    [
        route("192.168.5.64/26", "tunl0", gateway="10.0.0.2", protocol=12),
        route("192.168.5.64/26", gateway="10.0.0.9", protocol=12),
        route("192.168.5.64/26", "vxlan.calico", gateway="192.168.5.64", protocol=80),
        route("192.168.5.64/26", "vxlan.calico", gateway="192.168.5.64"),
        route("192.168.5.64/26", "wireguard.cali"),
        route("192.168.5.1/32", "cali123", protocol=3),
        route("192.168.5.1/32", "lo"),
        route("192.168.5.64/26", gateway="10.0.0.2", protocol=4),
        route("192.168.5.64/26", ""),
        route("192.0.0.0/8", gateway="10.0.0.254"),
        route("172.17.0.0/16", "docker0", protocol=2),
        route("10.0.0.0/24", protocol=2),
        route("fe80::/64", protocol=2),
    ],
    ids=[
        "BIRD",
        "BIRD by itself",
        "VXLAN",
        "VXLAN of an old Felix",
        "WireGuard",
        "a pod",
        "one address",
        "to another node",
        "several next hops",
        "wider through a gateway",
        "elsewhere",
        "the nodes' own",
        "link local",
    ],
)
def test_calicos_own_routes_and_those_elsewhere_are_none(item):
    assert found(item) == []


def test_the_routes_of_a_node_are_one_finding_by_pool():
    texts = found(route("192.168.122.0/24", "virbr0", protocol=2), route("192.168.9.0/24", gateway="10.0.0.254"))

    expected = "192.168.122.0/24 on virbr0, 192.168.9.0/24 via 10.0.0.254"
    assert texts == [f"pool p 192.168.0.0/16 has routes of others: {expected}"]


def test_a_pool_that_holds_addresses_of_nodes_is_found_as_that():
    assert found(route("192.168.1.0/24", protocol=2), addresses=("192.168.1.7",)) == []


def test_a_pool_of_load_balancers_may_lie_in_the_nodes_network():
    item = {
        "apiVersion": "crd.projectcalico.org/v1",
        "kind": "IPPool",
        "metadata": {"name": "lb"},
        "spec": {"cidr": "10.0.0.224/28", "allowedUses": ["LoadBalancer"]},
    }
    near = {"w1": {"routes": [route("10.0.0.0/24", protocol=2)], "error": ""}}

    pools, _notes = read_pools([item], {}, {})
    assert list(route_findings(pools, near, ["10.0.0.1"], {})) == []
    item["spec"]["allowedUses"] = ["LoadBalancer", "Workload"]
    pools, _notes = read_pools([item], {}, {})
    assert len(list(route_findings(pools, near, ["10.0.0.1"], {}))) == 1


def test_routes_that_are_not_seen_are_said():
    assert found(error="netlink: refused") == ["not all routes are seen: netlink: refused"]
