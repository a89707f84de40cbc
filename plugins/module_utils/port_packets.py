# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is sent to try a port between two nodes, and how it is told from other traffic.

A probe carries a nonce of the run and the numbers of the nodes that it goes from and to. It is harmless to what holds
the port: to the kernel's VXLAN it is a frame of a network that nobody has, to WireGuard a message of no known type, to
IPIP a packet for a protocol that nobody speaks (253, RFC 3692), with a TTL of 1.
"""

from __future__ import annotations

import ctypes
import socket
import struct

NONCE_OCTETS = 8
PROTOCOLS = {"udp": socket.IPPROTO_UDP, "tcp": socket.IPPROTO_TCP, "ipip": socket.IPPROTO_IPIP}

# RFC 7348: the flag I, and a network identifier that neither Calico (4096) nor flannel (1) has.
_VXLAN_HEADER = struct.pack("!II", 0x08000000, 0xFFFFFE << 8)
_BODY = struct.Struct(f"!{NONCE_OCTETS}sHH")
_UDP_HEADER = 8
_INNER_HEADER = struct.Struct("!BBHHHBBH4s4s")
_EXPERIMENTAL = 253
_SYN, _SYN_FIN_RST_ACK = 0x02, 0x17

# Classic BPF. Source: linux/filter.h, linux/bpf_common.h.
_LDX_HEADER, _LD_WORD, _LD_HALF, _LD_OCTET = 0xB1, 0x40, 0x48, 0x50
_JUMP_EQUAL, _AND, _RETURN = 0x15, 0x54, 0x06
_WHOLE = 0xFFFF
SO_ATTACH_FILTER = 26


def internet_checksum(octets):
    """RFC 1071, over an even number of octets."""
    total = sum(struct.unpack(f"!{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def udp_payload(nonce, source, target):
    """The datagram of a probe.

    :param nonce: NONCE_OCTETS octets of the run. :param source: number of the node that sends. :param target: of the
        one that shall get it.
    """
    return _VXLAN_HEADER + _BODY.pack(nonce, source, target)


def ipip_payload(nonce, source, target, source_address, target_address):
    """The inner packet of a probe with protocol 4, between two IPv4 addresses as text."""
    size = _INNER_HEADER.size + _BODY.size
    ends = socket.inet_aton(source_address), socket.inet_aton(target_address)
    fields = (0x45, 0, size, 0, 0, 1, _EXPERIMENTAL)
    checksum = internet_checksum(_INNER_HEADER.pack(*fields, 0, *ends))
    return _INNER_HEADER.pack(*fields, checksum, *ends) + _BODY.pack(nonce, source, target)


def _header_size(family, octets):
    """A raw IPv4 socket sees the IP header, an IPv6 one does not. Source: raw(7), ipv6(7)."""
    return (octets[0] & 0xF) * 4 if family == socket.AF_INET else 0


def parse_probe(protocol, family, octets, nonce):
    """What a raw socket got, as C({protocol, port, ...}), or None where it is no probe of this run.

    Of UDP and IPIP C(source) and C(target) are the numbers in it, of TCP C(source_port) tells who asks. An IPIP probe
    has port 0.
    """
    try:
        at = _header_size(family, octets)
        if protocol == "tcp":
            source_port, port = struct.unpack_from("!HH", octets, at)
            return {"protocol": protocol, "port": port, "source_port": source_port}
        port = struct.unpack_from("!H", octets, at + 2)[0] if protocol == "udp" else 0
        found, source, target = _BODY.unpack_from(octets, at + _body_offset(protocol))
    except (struct.error, IndexError):
        return None
    return {"protocol": protocol, "port": port, "source": source, "target": target} if found == nonce else None


def _body_offset(protocol):
    return _UDP_HEADER + len(_VXLAN_HEADER) if protocol == "udp" else _INNER_HEADER.size


def filter_program(protocol, family, nonce, ports):
    """The socket filter that lets through this run's probes alone: C([(code, jump if true, if false, value)]).

    Without it a node's whole overlay traffic would be copied. Of TCP it is the first packet of a connection to one of
    C(ports).
    """
    start = [(_LDX_HEADER, 0, 0, 0)] if family == socket.AF_INET else []
    if protocol == "tcp":
        tests = [(_LD_OCTET, 13, _SYN_FIN_RST_ACK, [_SYN]), (_LD_HALF, 2, None, sorted(ports))]
    else:
        at = _body_offset(protocol)
        words = struct.unpack("!II", nonce)
        tests = [(_LD_WORD, at + 4 * index, None, [word]) for index, word in enumerate(words)]
    program = list(start)
    for load, offset, mask, values in tests:
        program.append((load, 0, 0, offset))
        if mask is not None:
            program.append((_AND, 0, 0, mask))
        for index, value in enumerate(values):
            # The last value that fits or does not decides; one that fits jumps over the others and the refusal.
            program.append((_JUMP_EQUAL, len(values) - index, 0, value))
        program.append((_RETURN, 0, 0, 0))
    return [*program, (_RETURN, 0, 0, _WHOLE)]


def attach_filter(raw, program):
    """Have a socket receive only what a filter program lets through. :raises OSError: it is refused."""
    code = b"".join(struct.pack("HBBI", *step) for step in program)
    memory = ctypes.create_string_buffer(code, len(code))
    raw.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(memory)))
