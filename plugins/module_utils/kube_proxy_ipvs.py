# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kube-proxy's mode ipvs makes besides rules: the link kube-ipvs0, virtual servers, and sets of addresses.

Sources: ip_vs.h, ip_set.h, genetlink.h; /proc/net/ip_vs of net/netfilter/ipvs/ip_vs_ctl.c; pkg/proxy/ipvs of
Kubernetes 1.34.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import struct

from .host import read_text, run_command
from .kernel_netlink import (
    CTRL_ATTR_FAMILY_ID,
    CTRL_ATTR_FAMILY_NAME,
    CTRL_CMD_GETFAMILY,
    GENL_ID_CTRL,
    HEADER,
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
    NLM_F_ACK,
    NLM_F_REQUEST,
    NLMSG_DONE,
    NLMSG_ERROR,
    READ_OCTETS,
    TIMEOUT_S,
    ask,
    attribute,
    message,
    nested,
    parse_attributes,
    parse_messages,
)

LINK = "kube-ipvs0"
VIRTUAL_SERVERS = "/proc/net/ip_vs"
NODE_PORTS = range(30000, 32768)
PROTOCOLS = {"TCP": socket.IPPROTO_TCP, "UDP": socket.IPPROTO_UDP, "SCTP": socket.IPPROTO_SCTP}
SERVER = re.compile(r"^(TCP|UDP|SCTP) +\[?([0-9A-Fa-f:]+?)\]?:([0-9A-Fa-f]{4}) +(\S+)", re.MULTILINE)
# Source: pkg/proxy/ipvs/proxier.go; those of kube-router and of others begin alike.
SET_NAME = re.compile(
    r"KUBE-(?:6-)?(?:LOOP-BACK|CLUSTER-IP|EXTERNAL-IP(?:-LOCAL)?|LOAD-BALANCER(?:-LOCAL|-FW|-SOURCE-IP|-SOURCE-CIDR)?"
    r"|NODE-PORT(?:-LOCAL)?-(?:TCP|UDP|SCTP(?:-HASH)?)|HEALTH-CHECK-NODE-PORT|IPVS-IPS)"
)
NLM_F_DUMP = 0x300
IPVS_CMD_DEL_SERVICE = 3
IPSET_DESTROY, IPSET_LIST = 6 << 8 | 3, 6 << 8 | 7
IPSET_FLAGS, IPSET_LIST_SETNAME = 8, 2


def virtual_servers(text):
    """Return C([{protocol, address, port, scheduler}]) of a text of /proc/net/ip_vs."""
    found = []
    for protocol, address, port, scheduler in SERVER.findall(text):
        readable = str(ipaddress.ip_address(address if ":" in address else bytes.fromhex(address)))
        found.append({"protocol": protocol, "address": readable, "port": int(port, 16), "scheduler": scheduler})
    return found


def read_virtual_servers():
    """The virtual servers of this node; none where IPVS is not there."""
    return virtual_servers(read_text(VIRTUAL_SERVERS) or "")


def has_link():
    """Whether kube-ipvs0 is there."""
    return os.path.isdir(f"/sys/class/net/{LINK}")


def delete_link(_item=None):
    """Delete kube-ipvs0. :raises OSError: what ip says."""
    rc, _out, error = run_command(("ip", "link", "delete", LINK))
    if rc:
        raise OSError(error.strip() or str(rc))


def link_addresses():
    """The addresses of kube-ipvs0, which are those of Services."""
    text = run_command(("ip", "-o", "addr", "show", "dev", LINK))[1]
    return set(re.findall(r" inet6? (\S+?)/", text))


def split_servers(servers, addresses):
    """Return C((kube-proxy's virtual servers, those of others)).

    kube-proxy's have an address of kube-ipvs0, or a port of the range for NodePorts on an address of the node.
    """
    own = [item for item in servers if item["address"] in addresses or item["port"] in NODE_PORTS]
    return own, [item for item in servers if item not in own]


def delete_server(server):
    """Delete a virtual server. :raises OSError: the kernel's answer."""
    name = struct.pack("=BBH", CTRL_CMD_GETFAMILY, 1, 0) + attribute(CTRL_ATTR_FAMILY_NAME, "IPVS")
    answer = ask(NETLINK_GENERIC, message(GENL_ID_CTRL, NLM_F_REQUEST, name))
    (family,) = struct.unpack("=H", parse_attributes(answer[4:])[CTRL_ATTR_FAMILY_ID])
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
    ask(NETLINK_GENERIC, message(family, NLM_F_REQUEST | NLM_F_ACK, body))


def set_names():
    """The names of kube-proxy's sets. :raises OSError: the kernel has no sets, or the question is not allowed."""
    flags = attribute(IPSET_FLAGS, struct.pack(">I", IPSET_LIST_SETNAME))
    found = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as stream:
        stream.settimeout(TIMEOUT_S)
        stream.bind((0, 0))
        stream.send(message(IPSET_LIST, NLM_F_REQUEST | NLM_F_DUMP, _set_body() + flags))
        done = False
        while not done:
            octets = stream.recv(READ_OCTETS)
            for kind, body in parse_messages(octets):
                if kind == NLMSG_ERROR and struct.unpack_from("=i", body)[0]:
                    raise OSError(-struct.unpack_from("=i", body)[0], "the kernel does not list its sets")
                done = done or kind in (NLMSG_DONE, NLMSG_ERROR)
                name = parse_attributes(body[4:]).get(IPSET_SETNAME) if kind not in (NLMSG_DONE, NLMSG_ERROR) else None
                if name:
                    found.append(name.rstrip(b"\0").decode())
            done = done or len(octets) < HEADER.size
    return sorted(name for name in found if SET_NAME.fullmatch(name))


def delete_set(name):
    """Destroy a set that no rule uses. :raises OSError: one does, or the kernel's other answer."""
    body = _set_body() + attribute(IPSET_SETNAME, name)
    ask(NETLINK_NETFILTER, message(IPSET_DESTROY, NLM_F_REQUEST | NLM_F_ACK, body))


def _set_body():
    family = struct.pack("=BBH", socket.AF_INET, 0, 0)
    return family + attribute(IPSET_PROTOCOL, bytes([IPSET_PROTOCOL_MINIMUM]))
