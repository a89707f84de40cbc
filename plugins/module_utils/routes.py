# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The routes of the main table, asked of the kernel: /proc/net/route does not name who made a route.

Source: rtnetlink(7), linux/rtnetlink.h.
"""

from __future__ import annotations

import os
import socket
import struct

RTM_GETROUTE, RTM_NEWROUTE = 26, 24
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
RTA_DST, RTA_OIF, RTA_GATEWAY = 1, 4, 5
RT_TABLE_MAIN, RTN_UNICAST = 254, 1
HEADER = struct.Struct("=IHHII")
ROUTE = struct.Struct("=BBBBBBBBI")
ATTRIBUTE = struct.Struct("=HH")
TIMEOUT_S = 5
# A node of a large cluster has a route for each block of addresses; interfaces of pods have one each.
MOST = 1000
# Routes of this prefix are those of pods on the node: one each, and no network of others.
POD_INTERFACES = ("cali", "veth", "lxc")
# Made by BIRD and by Felix: one for each block of the other nodes, which are thousands in a large cluster.
CALICO_PROTOCOLS = (12, 80)


def parse_routes(data, names):
    """The routes in a dump: C([{destination, interface, gateway, protocol}]), without default routes and blackholes.

    :param data: netlink messages. :param names: interfaces by index.
    :returns: C((routes, done)); done is whether the dump ends here.
    :raises OSError: when the kernel answers with an error.
    """
    routes, at = [], 0
    while at + HEADER.size <= len(data):
        length, kind = HEADER.unpack_from(data, at)[:2]
        if kind == NLMSG_DONE:
            return routes, True
        if kind == NLMSG_ERROR:
            code = -struct.unpack_from("=i", data, at + HEADER.size)[0]
            raise OSError(code, os.strerror(code))
        if length < HEADER.size:
            raise OSError(0, f"netlink message of {length} bytes")
        if kind == RTM_NEWROUTE:
            route = _route(data[at + HEADER.size : at + length], names)
            if route:
                routes.append(route)
        at += (length + 3) & ~3
    return routes, False


def _route(message, names):
    family, bits, _bits, _tos, table, protocol, _scope, kind, _flags = ROUTE.unpack_from(message)
    found = dict(_attributes(message[ROUTE.size :]))
    if table != RT_TABLE_MAIN or kind != RTN_UNICAST or RTA_DST not in found:
        return None
    index = struct.unpack("=I", found[RTA_OIF])[0] if RTA_OIF in found else 0
    gateway = found.get(RTA_GATEWAY)
    return {
        "destination": f"{socket.inet_ntop(family, found[RTA_DST])}/{bits}",
        "interface": names.get(index, ""),
        "gateway": socket.inet_ntop(family, gateway) if gateway else "",
        "protocol": protocol,
    }


def _attributes(data):
    at = 0
    while at + ATTRIBUTE.size <= len(data):
        length, kind = ATTRIBUTE.unpack_from(data, at)
        if length < ATTRIBUTE.size:
            return
        yield kind, data[at + ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3


def _dump(family, names):
    """All routes of one family."""
    request = HEADER.pack(HEADER.size + ROUTE.size, RTM_GETROUTE, NLM_F_REQUEST | NLM_F_DUMP, 1, 0)
    found, done = [], False
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(TIMEOUT_S)
        kernel.send(request + ROUTE.pack(family, 0, 0, 0, 0, 0, 0, 0, 0))
        while not done:
            routes, done = parse_routes(kernel.recv(1 << 18), names)
            found += routes
    return found


def others(routes):
    """Those that neither lead to one pod nor were made by Calico."""
    return [
        item
        for item in routes
        if not item["interface"].startswith(POD_INTERFACES) and item["protocol"] not in CALICO_PROTOCOLS
    ]


def read_routes():
    """Routes that are not Calico's and lead somewhere else than to one pod of this node: C({routes, error}).

    C(error) says why the kernel does not tell, or that more than MOST are cut off.
    """
    names = dict(socket.if_nameindex())
    try:
        routes = _dump(socket.AF_INET, names) + _dump(socket.AF_INET6, names)
    except (OSError, struct.error) as error:
        return {"routes": [], "error": f"netlink: {error}"}
    routes = others(routes)
    cut = f"{len(routes)} routes, the first {MOST} kept" if len(routes) > MOST else ""
    return {"routes": routes[:MOST], "error": cut}
