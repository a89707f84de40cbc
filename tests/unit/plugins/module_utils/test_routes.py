# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes as the kernel tells them."""

from __future__ import annotations

import socket
import struct

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.routes import others, parse_routes, read_routes

NAMES = {3: "eth0"}


def attribute(kind: int, value: bytes) -> bytes:
    """A netlink attribute."""
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def message(kind: int, body: bytes) -> bytes:
    """A netlink message."""
    return struct.pack("=IHHII", 16 + len(body), kind, 2, 1, 0) + body + bytes(-len(body) % 4)


def route(
    destination: str, bits: int, *, gateway: str = "", table: int = 254, kind: int = 1, protocol: int = 3
) -> bytes:
    """A route message; an empty destination is a default route."""
    family = socket.AF_INET6 if ":" in destination + gateway else socket.AF_INET
    body = struct.pack("=BBBBBBBBI", family, bits, 0, 0, table, protocol, 0, kind, 0)
    if destination:
        body += attribute(1, socket.inet_pton(family, destination))
    if gateway:
        body += attribute(5, socket.inet_pton(family, gateway))
    return message(24, body + attribute(4, struct.pack("=I", 3)))


def test_routes_are_read_with_who_made_them():
    data = route("10.1.0.0", 16, gateway="10.0.0.1", protocol=12) + route("fd00::", 64, protocol=2)

    assert parse_routes(data, NAMES) == (
        [
            {"destination": "10.1.0.0/16", "interface": "eth0", "gateway": "10.0.0.1", "protocol": 12},
            {"destination": "fd00::/64", "interface": "eth0", "gateway": "", "protocol": 2},
        ],
        False,
    )


@pytest.mark.parametrize(
    "data",
    [route("", 0, gateway="10.0.0.1"), route("10.1.0.0", 16, table=255), route("10.1.0.0", 26, kind=6), b"", b"\0" * 9],
    ids=["default", "local table", "blackhole", "nothing", "cut off"],
)
def test_what_is_no_way_to_a_network_is_left_out(data):
    assert parse_routes(data, NAMES) == ([], False)


def test_the_end_of_a_dump_is_seen():
    assert parse_routes(route("10.1.0.0", 16) + message(3, b"\0\0\0\0"), NAMES)[1] is True


@pytest.mark.parametrize("data", [message(2, struct.pack("=i", -1)), b"\0" * 16], ids=["refused", "no message"])
def test_an_answer_that_is_none_is_an_error(data):
    with pytest.raises(OSError):
        parse_routes(data, NAMES)


def test_calicos_routes_do_not_crowd_out_the_others():
    data = route("10.1.0.0", 26, protocol=12) + route("10.1.0.64", 26, protocol=80) + route("10.2.0.0", 16, protocol=2)

    assert [item["destination"] for item in others(parse_routes(data, NAMES)[0])] == ["10.2.0.0/16"]
    assert others(parse_routes(data, {3: "cali0123"})[0]) == []


def test_the_kernel_of_this_machine_answers():
    found = read_routes()

    assert found["error"] == ""
    assert all(set(item) == {"destination", "interface", "gateway", "protocol"} for item in found["routes"])
