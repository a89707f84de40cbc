# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Features that are tried over netlink: links, queueing disciplines and filters, ip sets, IPVS services.

Each C(try_) function makes something in the network namespace it runs in, and returns nothing or raises OSError.
Formats: netlink(7), rtnetlink(7); constants of linux/if_link.h, pkt_sched.h, pkt_cls.h, netfilter/ipset/ip_set.h,
genetlink.h and ip_vs.h.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

TIMEOUT_S = 2
READ_OCTETS = 65536
NETLINK_ROUTE, NETLINK_NETFILTER, NETLINK_GENERIC = 0, 12, 16
NLM_F_REQUEST, NLM_F_ACK, NLM_F_EXCL, NLM_F_CREATE, NLM_F_DUMP = 1, 4, 0x200, 0x400, 0x300
MAKE = NLM_F_REQUEST | NLM_F_ACK | NLM_F_EXCL | NLM_F_CREATE
NLMSG_ERROR, NLMSG_DONE = 2, 3
NESTED, NETWORK_ORDER, TYPE_MASK = 0x8000, 0x4000, 0x3FFF
HEADER = struct.Struct("=IHHII")

RTM_NEWLINK, RTM_GETLINK, RTM_NEWQDISC, RTM_NEWTFILTER = 16, 18, 36, 44
IFLA_IFNAME, IFLA_LINKINFO, IFLA_XDP = 3, 18, 43
IFLA_INFO_KIND, IFLA_INFO_DATA = 1, 2
IFLA_VXLAN_ID, IFLA_VXLAN_PORT = 1, 15
IFLA_IPTUN_LOCAL, IFLA_IPTUN_REMOTE = 2, 3
LOOPBACK = 1
TCA_KIND, TCA_OPTIONS = 1, 2
TC_H_CLSACT, TC_H_INGRESS_CHAIN = 0xFFFFFFF1, 0xFFFFFFF2
CLSACT_HANDLE = 0xFFFF0000
ETH_P_ALL = 3
TCA_BPF_OPS_LEN, TCA_BPF_OPS = 4, 5
# One instruction of classic BPF, return -1, so that the filter is tried and not bpf(2). Source: linux/filter.h
RETURN = struct.pack("=HBBI", 0x06, 0, 0, 0xFFFFFFFF)

IPSET_CREATE = 6 << 8 | 2
IPSET_PROTOCOL, IPSET_SETNAME, IPSET_TYPENAME, IPSET_REVISION, IPSET_FAMILY, IPSET_DATA = 1, 2, 3, 4, 5, 7
IPSET_PROTOCOL_MINIMUM = 6
IPSET_ERR_FIND_TYPE = 4098

GENL_ID_CTRL, CTRL_CMD_GETFAMILY = 0x10, 3
CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 1, 2
IPVS_CMD_NEW_SERVICE, IPVS_CMD_ATTR_SERVICE = 1, 1
IPVS_AF, IPVS_PROTOCOL, IPVS_ADDR, IPVS_PORT, IPVS_SCHED, IPVS_FLAGS, IPVS_TIMEOUT, IPVS_NETMASK = (
    1, 2, 3, 4, 6, 7, 8, 9,
)  # fmt: skip


def attribute(kind, value):
    """A netlink attribute, padded; text ends with a zero octet."""
    octets = value.encode() + b"\0" if isinstance(value, str) else value
    return struct.pack("=HH", 4 + len(octets), kind) + octets + bytes(-len(octets) % 4)


def nested(kind, *attributes):
    """An attribute of attributes."""
    return attribute(kind | NESTED, b"".join(attributes))


def message(kind, flags, body):
    """A netlink message."""
    return HEADER.pack(HEADER.size + len(body), kind, flags, 1, 0) + body


def parse_messages(octets):
    """C([(kind, body)]) of what a netlink socket read."""
    found = []
    while len(octets) >= HEADER.size:
        length, kind, _flags, _sequence, _port = HEADER.unpack_from(octets)
        if length < HEADER.size or length > len(octets):
            break
        found.append((kind, octets[HEADER.size : length]))
        octets = octets[(length + 3) & ~3 :]
    return found


def parse_attributes(octets):
    """C({kind: value}) of attributes in a row."""
    found = {}
    while len(octets) >= 4:
        length, kind = struct.unpack_from("=HH", octets)
        if length < 4 or length > len(octets):
            break
        found[kind & TYPE_MASK] = octets[4:length]
        octets = octets[(length + 3) & ~3 :]
    return found


def ask(protocol, octets):
    """Send one message and return the body of the answer, b"" for an acknowledgement.

    :raises OSError: what the kernel answered, or that it did not within C(TIMEOUT_S).
    """
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as stream:
        stream.settimeout(TIMEOUT_S)
        stream.bind((0, 0))
        stream.send(octets)
        for kind, body in parse_messages(stream.recv(READ_OCTETS)):
            if kind != NLMSG_ERROR:
                return body
            code = -struct.unpack_from("=i", body)[0]
            if code:
                raise OSError(code, os.strerror(code))
    return b""


def dump(protocol, kind, body):
    """Ask for a list: C([the body of each message]).

    :raises OSError: what the kernel answered, or that it did not within C(TIMEOUT_S).
    """
    found = []
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as stream:
        stream.settimeout(TIMEOUT_S)
        stream.bind((0, 0))
        stream.send(message(kind, NLM_F_REQUEST | NLM_F_DUMP, body))
        while True:
            for answered, part in parse_messages(stream.recv(READ_OCTETS)):
                if answered == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", part)[0]
                    raise OSError(code, os.strerror(code))
                if answered == NLMSG_DONE:
                    return found
                found.append(part)


def ipvs_family():
    """The number of IPVS among the generic families. Asking loads the module. :raises OSError: it is not there."""
    name = struct.pack("=BBH", CTRL_CMD_GETFAMILY, 1, 0) + attribute(CTRL_ATTR_FAMILY_NAME, "IPVS")
    answer = ask(NETLINK_GENERIC, message(GENL_ID_CTRL, NLM_F_REQUEST, name))
    return struct.unpack("=H", parse_attributes(answer[4:])[CTRL_ATTR_FAMILY_ID])[0]


def try_link(kind, *data):
    """Make a link of a kind, such as vxlan."""
    info = attribute(IFLA_INFO_KIND, kind), nested(IFLA_INFO_DATA, *data)
    body = bytes(16) + attribute(IFLA_IFNAME, f"try-{kind}") + nested(IFLA_LINKINFO, *info)
    ask(NETLINK_ROUTE, message(RTM_NEWLINK, MAKE, body))


def try_vxlan():
    """Make a VXLAN link."""
    try_link("vxlan", attribute(IFLA_VXLAN_ID, struct.pack("=I", 4096)), attribute(IFLA_VXLAN_PORT, b"\x12\xb5"))


def try_ipip():
    """Make an IPIP link with ends of its own, since the module's first one has none."""
    ends = socket.inet_aton("127.0.0.1"), socket.inet_aton("127.0.0.2")
    try_link("ipip", attribute(IFLA_IPTUN_LOCAL, ends[0]), attribute(IFLA_IPTUN_REMOTE, ends[1]))


def _qdisc(kind, parent, handle, info, *attributes):
    """The body of a message on loopback's queueing discipline or one of its filters."""
    return (
        struct.pack("=BxxxiIII", 0, LOOPBACK, handle, parent, info) + attribute(TCA_KIND, kind) + b"".join(attributes)
    )


def try_clsact():
    """Give loopback the queueing discipline that Calico's eBPF programs hang on."""
    ask(NETLINK_ROUTE, message(RTM_NEWQDISC, MAKE, _qdisc("clsact", TC_H_CLSACT, CLSACT_HANDLE, 0)))


def try_tc_bpf():
    """Give loopback, which has clsact, a filter that is a BPF program."""
    options = nested(
        TCA_OPTIONS, attribute(TCA_BPF_OPS_LEN, struct.pack("=H", len(RETURN) // 8)), attribute(TCA_BPF_OPS, RETURN)
    )
    info = 1 << 16 | socket.htons(ETH_P_ALL)
    ask(NETLINK_ROUTE, message(RTM_NEWTFILTER, MAKE, _qdisc("bpf", TC_H_INGRESS_CHAIN, 0, info, options)))


def try_ip_set(name, kind):
    """Make an ip set of IPv4 addresses, of a type such as hash:ip."""
    body = struct.pack("=BBH", socket.AF_INET, 0, 0) + b"".join(
        (
            attribute(IPSET_PROTOCOL, bytes([IPSET_PROTOCOL_MINIMUM])),
            attribute(IPSET_SETNAME, name),
            attribute(IPSET_TYPENAME, kind),
            attribute(IPSET_REVISION, b"\0"),
            attribute(IPSET_FAMILY, bytes([socket.AF_INET])),
            nested(IPSET_DATA),
        )
    )
    try:
        ask(NETLINK_NETFILTER, message(IPSET_CREATE, MAKE, body))
    except OSError as error:
        if error.errno == IPSET_ERR_FIND_TYPE:
            raise OSError(errno.ENOENT, f"no set of type {kind}") from error
        raise


def try_ipvs():
    """Make an IPVS service with round robin, which is kube-proxy's scheduler."""
    family = ipvs_family()
    service = nested(
        IPVS_CMD_ATTR_SERVICE,
        attribute(IPVS_AF, struct.pack("=H", socket.AF_INET)),
        attribute(IPVS_PROTOCOL, struct.pack("=H", socket.IPPROTO_TCP)),
        attribute(IPVS_ADDR, socket.inet_aton("127.0.0.1") + bytes(12)),
        attribute(IPVS_PORT, b"\0\1"),
        attribute(IPVS_SCHED, "rr"),
        attribute(IPVS_FLAGS, struct.pack("=II", 0, 0xFFFFFFFF)),
        attribute(IPVS_TIMEOUT, bytes(4)),
        attribute(IPVS_NETMASK, b"\xff\xff\xff\xff"),
    )
    body = struct.pack("=BBH", IPVS_CMD_NEW_SERVICE, 1, 0) + service
    ask(NETLINK_GENERIC, message(family, NLM_F_REQUEST | NLM_F_ACK, body))


def link_has_xdp():
    """Whether the kernel says of loopback whether an XDP program is there, which it does from 4.8 on.

    Only reads. :raises OSError: nothing answers.
    """
    answer = ask(NETLINK_ROUTE, message(RTM_GETLINK, NLM_F_REQUEST, struct.pack("=BxHiII", 0, 0, LOOPBACK, 0, 0)))
    return IFLA_XDP in parse_attributes(answer[16:])
