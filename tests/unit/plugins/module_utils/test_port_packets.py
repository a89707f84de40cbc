# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Probes between nodes: what is sent is what is found, and nothing else is."""

from __future__ import annotations

import socket
import struct

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.port_packets import (
    filter_program,
    internet_checksum,
    ipip_payload,
    parse_probe,
    udp_payload,
)

NONCE = bytes.fromhex("0102030405060708")
OTHER = bytes(8)
IP_HEADER = bytes([0x45]) + bytes(19)
IP_HEADER_WITH_OPTIONS = bytes([0x46]) + bytes(23)


def udp(nonce: bytes = NONCE, port: int = 4789, header: bytes = IP_HEADER) -> bytes:
    """A datagram as a raw socket has it."""
    payload = udp_payload(nonce, 3, 7)
    return header + struct.pack("!HHHH", 40000, port, 8 + len(payload), 0) + payload


def ipip(nonce: bytes = NONCE) -> bytes:
    """A packet of protocol 4 as a raw socket has it."""
    return IP_HEADER + ipip_payload(nonce, 3, 7, "10.0.0.1", "10.0.0.2")


def tcp(port: int = 179, flags: int = 0x02) -> bytes:
    """A TCP header behind an IP header."""
    return IP_HEADER + struct.pack("!HHIIBBHHH", 50000, port, 1, 0, 0x50, flags, 0, 0, 0)


def passes(program: list[tuple[int, int, int, int]], octets: bytes) -> bool:
    """What the kernel makes of a filter program, in the words of linux/filter.h."""
    at, accumulator, index = 0, 0, 0
    sizes = {0x40: "!I", 0x48: "!H", 0x50: "!B"}
    while True:
        code, if_true, if_false, value = program[at]
        at += 1
        if code == 0xB1:
            index = 4 * (octets[value] & 0xF)
        elif code in sizes:
            try:
                accumulator = struct.unpack_from(sizes[code], octets, index + value)[0]
            except struct.error:
                return False
        elif code == 0x54:
            accumulator &= value
        elif code == 0x15:
            at += if_true if accumulator == value else if_false
        else:
            return bool(value)


def test_a_datagram_says_who_sent_it_to_whom():
    expected = {"protocol": "udp", "port": 4789, "source": 3, "target": 7}

    assert parse_probe("udp", socket.AF_INET, udp(), NONCE) == expected
    assert parse_probe("udp", socket.AF_INET, udp(header=IP_HEADER_WITH_OPTIONS), NONCE) == expected
    assert parse_probe("udp", socket.AF_INET6, udp(header=b""), NONCE) == expected


def test_a_packet_of_protocol_4_says_who_sent_it_to_whom():
    expected = {"protocol": "ipip", "port": 0, "source": 3, "target": 7}

    assert parse_probe("ipip", socket.AF_INET, ipip(), NONCE) == expected


def test_the_inner_packet_is_a_sound_one():
    """Something on the way may look into it."""
    inner = ipip_payload(NONCE, 3, 7, "10.0.0.1", "10.0.0.2")

    assert internet_checksum(inner[:20]) == 0
    assert struct.unpack_from("!H", inner, 2) == (len(inner),)


@pytest.mark.parametrize("octets", [udp(OTHER), udp()[:40], b"", b"\x45"], ids=["other run", "short", "empty", "one"])
def test_what_is_no_probe_of_this_run_is_none(octets: bytes):
    assert parse_probe("udp", socket.AF_INET, octets, NONCE) is None


@pytest.mark.parametrize(
    ("protocol", "octets", "is_let_through"),
    [
        ("udp", udp(), True),
        ("udp", udp(header=IP_HEADER_WITH_OPTIONS), True),
        ("udp", udp(OTHER), False),
        ("udp", udp()[:30], False),
        ("ipip", ipip(), True),
        ("ipip", ipip(OTHER), False),
        ("tcp", tcp(), True),
        ("tcp", tcp(5473), True),
        ("tcp", tcp(443), False),
        ("tcp", tcp(flags=0x12), False),
        ("tcp", tcp(flags=0xC2), True),
    ],
    ids=["UDP", "IP options", "other run", "short", "IPIP", "other IPIP", "179", "5473", "443", "an answer", "ECN"],
)
def test_the_filter_lets_this_runs_probes_through_alone(protocol: str, octets: bytes, is_let_through: bool):
    program = filter_program(protocol, socket.AF_INET, NONCE, [5473, 179])

    assert passes(program, octets) is is_let_through
