# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kube-proxy's mode ipvs makes besides rules: the link kube-ipvs0, virtual servers, and sets of addresses.

Sources: ip_vs.h, ip_set.h, rtnetlink(7); /proc/net/ip_vs of net/netfilter/ipvs/ip_vs_ctl.c; pkg/proxy/ipvs of
Kubernetes 1.14 to 1.34.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import struct
import time

from .host import read_text
from .kernel_netlink import (
    IFLA_IFNAME,
    IPSET_PROTOCOL,
    IPSET_PROTOCOL_MINIMUM,
    IPSET_SETNAME,
    IPVS_ADDR,
    IPVS_AF,
    IPVS_CMD_ATTR_SERVICE,
    IPVS_PORT,
    IPVS_PROTOCOL,
    NETLINK_GENERIC,
    NETLINK_NETFILTER,
    NETLINK_ROUTE,
    NLM_F_ACK,
    NLM_F_REQUEST,
    ask,
    attribute,
    dump,
    ipvs_family,
    message,
    nested,
    parse_attributes,
)

LINK = "kube-ipvs0"
VIRTUAL_SERVERS = "/proc/net/ip_vs"
IP_SET_MODULE = "/sys/module/ip_set"
# The default range of NodePorts, for which a virtual server that is left is named.
NODE_PORTS = range(30000, 32768)
PROTOCOLS = {"TCP": socket.IPPROTO_TCP, "UDP": socket.IPPROTO_UDP, "SCTP": socket.IPPROTO_SCTP}
SERVER = re.compile(r"^(TCP|UDP|SCTP) +\[?([0-9A-Fa-f:]+?)\]?:([0-9A-Fa-f]{4}) +(\S+)", re.MULTILINE)
# Those of kube-router and of others begin alike. A name of IPv6 is cut at the length that sets may have.
SETS = (
    "LOOP-BACK", "CLUSTER-IP", "EXTERNAL-IP", "EXTERNAL-IP-LOCAL", "LOAD-BALANCER", "LOAD-BALANCER-LOCAL",
    "LOAD-BALANCER-FW", "LOAD-BALANCER-SOURCE-IP", "LOAD-BALANCER-SOURCE-CIDR", "NODE-PORT-TCP", "NODE-PORT-LOCAL-TCP",
    "NODE-PORT-UDP", "NODE-PORT-LOCAL-UDP", "NODE-PORT-SCTP", "NODE-PORT-LOCAL-SCTP", "NODE-PORT-SCTP-HASH",
    "NODE-PORT-LOCAL-SCTP-HASH", "HEALTH-CHECK-NODE-PORT", "IPVS-IPS",
)  # fmt: skip
NAME_LIMIT = 31
SET_NAMES = frozenset(f"{prefix}{name}"[:NAME_LIMIT] for prefix in ("KUBE-", "KUBE-6-") for name in SETS)
PORT_SET = re.compile(r"KUBE-(?:6-)?NODE-PORT(?:-LOCAL)?-(TCP|UDP|SCTP).*")
IPVS_CMD_DEL_SERVICE = 3
IPSET_DESTROY, IPSET_LIST = 6 << 8 | 3, 6 << 8 | 7
IPSET_FLAGS, IPSET_ADT, IPSET_FLAG_LIST_SETNAME = 6, 8, 2
# Inside a member, which is one of IPSET_ADT.
IPSET_MEMBER_PORT = 4
IPSET_ERR_BUSY = 4100
# nf_tables frees a rule, with its hold on a set, some time after it was deleted.
RELEASE_S, RELEASE_POLL_S = 2, 0.05
RTM_DELLINK, RTM_GETADDR = 17, 22
IFA_ADDRESS = 1
NFPROTO_UNSPEC = 0


def virtual_servers(text):
    """Return C([{protocol, address, port, scheduler}]) of a text of /proc/net/ip_vs."""
    found = []
    for protocol, address, port, scheduler in SERVER.findall(text):
        readable = str(ipaddress.ip_address(address if ":" in address else bytes.fromhex(address)))
        found.append({"protocol": protocol, "address": readable, "port": int(port, 16), "scheduler": scheduler})
    return found


def read_virtual_servers():
    """The virtual servers of this network namespace; none where IPVS is not there."""
    return virtual_servers(read_text(VIRTUAL_SERVERS) or "")


def link_index():
    """The number of kube-ipvs0, 0 where it is not there."""
    try:
        return socket.if_nametoindex(LINK)
    except OSError:
        return 0


def delete_link():
    """Delete kube-ipvs0. :raises OSError: the kernel's answer."""
    body = bytes(16) + attribute(IFLA_IFNAME, LINK)
    ask(NETLINK_ROUTE, message(RTM_DELLINK, NLM_F_REQUEST | NLM_F_ACK, body))


def link_addresses():
    """The addresses of kube-ipvs0, which are those of Services."""
    index, found = link_index(), set()
    for body in dump(NETLINK_ROUTE, RTM_GETADDR, bytes(8)) if index else ():
        address = parse_attributes(body[8:]).get(IFA_ADDRESS)
        if address and struct.unpack_from("=I", body, 4)[0] == index:
            found.add(str(ipaddress.ip_address(address)))
    return found


def split_servers(servers, addresses, node_ports):
    """Return C((kube-proxy's virtual servers, those of others)).

    :param addresses: of kube-ipvs0. :param node_ports: C({(protocol, port)}) of kube-proxy's sets.
    """
    own, others = [], []
    for item in servers:
        is_own = item["address"] in addresses or (item["protocol"], item["port"]) in node_ports
        (own if is_own else others).append(item)
    return own, others


def delete_server(server):
    """Delete a virtual server. :raises OSError: the kernel's answer."""
    address = ipaddress.ip_address(server["address"])
    kind = socket.AF_INET if address.version == 4 else socket.AF_INET6
    service = nested(
        IPVS_CMD_ATTR_SERVICE,
        attribute(IPVS_AF, struct.pack("=H", kind)),
        attribute(IPVS_PROTOCOL, struct.pack("=H", PROTOCOLS[server["protocol"]])),
        attribute(IPVS_ADDR, address.packed + bytes(16 - len(address.packed))),
        attribute(IPVS_PORT, struct.pack(">H", server["port"])),
    )
    body = struct.pack("=BBH", IPVS_CMD_DEL_SERVICE, 1, 0) + service
    ask(NETLINK_GENERIC, message(ipvs_family(), NLM_F_REQUEST | NLM_F_ACK, body))


def set_names():
    """The names of kube-proxy's sets. Where the kernel has no sets now, it is not asked, which would load them."""
    if not os.path.isdir(IP_SET_MODULE):
        return []
    flags = attribute(IPSET_FLAGS, struct.pack(">I", IPSET_FLAG_LIST_SETNAME))
    bodies = dump(NETLINK_NETFILTER, IPSET_LIST, _set_body() + flags)
    names = [parse_attributes(body[4:])[IPSET_SETNAME].rstrip(b"\0").decode() for body in bodies]
    return sorted(name for name in names if name in SET_NAMES)


def node_ports(names):
    """C({(protocol, port)}) of the NodePorts in these sets."""
    found = set()
    for name in names:
        match = PORT_SET.fullmatch(name)
        for body in dump(NETLINK_NETFILTER, IPSET_LIST, _set_body(name)) if match else ():
            found |= {(match.group(1), port) for port in member_ports(body)}
    return found


def member_ports(body):
    """The ports of the members in a message about a set."""
    members = parse_attributes(body[4:]).get(IPSET_ADT, b"")
    while len(members) >= 4:
        length = struct.unpack_from("=H", members)[0]
        port = parse_attributes(members[4:length]).get(IPSET_MEMBER_PORT)
        if port:
            yield struct.unpack(">H", port)[0]
        members = members[max(4, (length + 3) & ~3) :]


def delete_set(name, deadline):
    """Destroy a set that no rule uses, waiting up to a monotonic time until those that did are freed.

    :raises OSError: a rule uses it, or the kernel's other answer.
    """
    request = message(IPSET_DESTROY, NLM_F_REQUEST | NLM_F_ACK, _set_body(name))
    while True:
        try:
            ask(NETLINK_NETFILTER, request)
            return
        except OSError as error:
            if error.errno != IPSET_ERR_BUSY:
                raise
            if time.monotonic() > deadline:
                raise OSError(error.errno, "somebody else's rule uses it") from error
        time.sleep(RELEASE_POLL_S)


def _set_body(name=""):
    family = struct.pack("=BBH", NFPROTO_UNSPEC, 0, 0)
    protocol = attribute(IPSET_PROTOCOL, bytes([IPSET_PROTOCOL_MINIMUM]))
    return family + protocol + (attribute(IPSET_SETNAME, name) if name else b"")


def clean(check_mode):
    """Remove what kube-proxy in mode ipvs has made, after the rules, since they use the sets.

    :returns: C(([what was removed], [what stays, and why])).
    """
    sets = set_names()
    own, others = split_servers(read_virtual_servers(), link_addresses(), node_ports(sets))
    # Sets and link come last: they tell a run that comes after one that was killed which servers are kube-proxy's.
    deadline = time.monotonic() + RELEASE_S
    steps = [(f"virtual server {named(item)}", delete_server, (item,)) for item in own]
    steps += [(f"set {name}", delete_set, (name, deadline)) for name in sets]
    steps += [(f"link {LINK}", delete_link, ())] if link_index() else []
    left = [
        f"virtual server {named(item)}: neither {LINK} nor a set of kube-proxy names it"
        for item in others
        if item["port"] in NODE_PORTS
    ]
    removed = []
    for what, delete, arguments in steps:
        try:
            if not check_mode:
                delete(*arguments)
        except OSError as error:
            left.append(f"{what}: {error.strerror or error}")
        else:
            removed.append(what)
    return removed, left


def named(server):
    """A virtual server in words."""
    address = f"[{server['address']}]" if ":" in server["address"] else server["address"]
    return f"{server['protocol']} {address}:{server['port']}"
