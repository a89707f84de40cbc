# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes of nodes that lead addresses of Calico's pools elsewhere: networks of docker, libvirt, a second interface.

A wider route through a gateway is none: the routes of the pools' blocks are narrower and win.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import WARNING, finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_pools import Pool

# rtnetlink(7): made by the kernel for an address, by BIRD, by Felix.
KERNEL, BIRD, FELIX = 2, 12, 80
CALICO_INTERFACES = re.compile(r"cali|tunl0$|vxlan(?:-v6)?\.calico$|wireguard\.cali$|wg-v6\.cali$|bpf(?:in|out)\.cali$")

ELSEWHERE = (
    "give that network other addresses (docker: bip, default-address-pools in daemon.json; libvirt: virsh net-edit), "
    "or make a pool elsewhere and disable this one"
)


def foreign_routes(pool: Pool, routes: Iterable[Mapping], node_addresses: frozenset[str]) -> list[Mapping]:
    """The routes of a node, as its probe has them, that are not Calico's and take addresses of a pool.

    :param node_addresses: of all nodes; what is routed to one of them, is routed there for Calico.
    """
    return [item for item in routes if not _is_calicos(item, node_addresses) and _takes(item, pool)]


def _is_calicos(route: Mapping, node_addresses: frozenset[str]) -> bool:
    return (
        route["protocol"] in {BIRD, FELIX}
        or CALICO_INTERFACES.match(route["interface"]) is not None
        or route["gateway"] in node_addresses
        # Several next hops, which the probe does not tell.
        or not (route["interface"] or route["gateway"])
    )


def _takes(route: Mapping, pool: Pool) -> bool:
    destination, own = ipaddress.ip_network(route["destination"], strict=False), ipaddress.ip_network(pool.cidr)
    if destination.version != own.version or destination.prefixlen == destination.max_prefixlen:
        return False
    is_attached = route["protocol"] == KERNEL and not route["gateway"]
    return destination.subnet_of(own) or (is_attached and own.subnet_of(destination))


def route_findings(
    pools: Iterable[Pool], routes: Mapping[str, Mapping | None], node_addresses: list[str], hosts: Mapping[str, str]
) -> Iterator[dict]:
    """Routes by node that take addresses of pools.

    A pool that holds addresses of nodes is found as that; one for load balancers may lie in the nodes' network.

    :param routes: C(routes) of the probe by node, None where it was not read. :param hosts: inventory names by node.
    """
    clear = [pool for pool in pools if pool.for_pods and not _holds(pool, node_addresses)]
    known = frozenset(node_addresses)
    for node, read in routes.items():
        for pool in clear if read else ():
            taken = foreign_routes(pool, read["routes"], known)
            if taken:
                texts = [f"{item['destination']} {_way(item)}" for item in taken]
                observed = f"pool {pool.name} {pool.cidr} has routes of others: {', '.join(texts)}"
                yield _finding(hosts.get(node, node), observed, ELSEWHERE)
        if clear and read and read["error"]:
            yield _finding(hosts.get(node, node), f"not all routes are seen: {read['error']}", "on the node: ip route")


def _holds(pool: Pool, addresses: list[str]) -> bool:
    own = ipaddress.ip_network(pool.cidr)
    return any(ipaddress.ip_address(text) in own for text in addresses)


def _way(route: Mapping) -> str:
    return f"via {route['gateway']}" if route["gateway"] else f"on {route['interface']}"


def _finding(node: str, observed: str, remedy: str) -> dict:
    return finding(
        "calico.pool_routes",
        severity=WARNING,
        requirement="calico/IP address pool configuration",
        node=node,
        observed=observed,
        expected="no route of the node but Calico's own leads to addresses of a pool",
        remedy=remedy,
    )
