# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds a port, from /proc."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.port_owners import (
    find_listeners,
    find_tunnels,
    parse_address,
    parse_table,
)

ANY = str(ipaddress.IPv4Address(0))
# Linux 6.18, without the last columns.
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:00B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 41723 1
   1: 0B00000A:00B3 0C00000A:9C40 01 00000000:00000000 00:00000000 00000000     0        0 41724 1
"""
UDP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when
  123: {zero}:12B5 {zero}:0000 07 00000000:00000000 00:00000000 00000000     0        0 991 2
""".format(zero="0" * 32)
RAW = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
    4: 00000000:0004 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 55 2
"""


@pytest.mark.parametrize(
    ("text", "byteorder", "expected"),
    [
        ("0B00000A:00B3", "little", ("10.0.0.11", 179)),
        ("0A00000B:00B3", "big", ("10.0.0.11", 179)),
        ("B80D0120000000000000000001000000:12B5", "little", ("2001:db8::1", 4789)),
    ],
    ids=["IPv4", "big-endian", "IPv6"],
)
def test_an_address_is_in_the_machines_order(text: str, byteorder: str, expected: tuple[str, int]):
    assert parse_address(text, byteorder) == expected


@pytest.mark.parametrize(
    ("protocol", "text", "expected"),
    [
        ("tcp", TCP, [{"address": ANY, "port": 179, "inode": 41723}]),
        ("udp", UDP6, [{"address": "::", "port": 4789, "inode": 991}]),
        ("ipip", RAW, [{"address": ANY, "port": 4, "inode": 55}]),
        ("tcp", "", []),
        ("tcp", "header\nnonsense\n 0: xx:yy 0 0A a b c d e 1\n", []),
    ],
    ids=["TCP, without connections", "UDP", "raw", "no table", "another format"],
)
def test_sockets_that_something_can_come_in_on_are_read(protocol: str, text: str, expected: list):
    assert parse_table(protocol, text, "little") == expected


def test_the_process_that_holds_a_port_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = find_listeners([("tcp", port), ("udp", port)])

    own = Path("/proc/self/comm").read_text().strip()
    assert found == [{"protocol": "tcp", "port": port, "address": "127.0.0.1", "pid": os.getpid(), "name": own}]


def test_a_program_that_holds_a_port_for_a_moment_does_not_count():
    """A resolver may be given WireGuard's port for one question."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as question:
        question.bind(("127.0.0.1", 0))
        port = question.getsockname()[1]
        timer = threading.Timer(0.2, question.close)
        timer.start()
        found = find_listeners([("udp", port)], pause_s=0.5)
        timer.join()

    assert found == []


def test_a_socket_without_a_process_is_the_kernels(tmp_path: Path):
    """So it is with VXLAN and WireGuard."""
    (tmp_path / "net").mkdir()
    (tmp_path / "net/udp6").write_text(UDP6)

    assert find_listeners([("udp", 4789)], str(tmp_path)) == [
        {"protocol": "udp", "port": 4789, "address": "::", "pid": 0, "name": ""}
    ]


def test_interfaces_that_hold_a_port_in_the_kernel_are_named(tmp_path: Path):
    for name, text in {"eth0": "INTERFACE=eth0\n", "wg0": "DEVTYPE=wireguard\nINTERFACE=wg0\n"}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "uevent").write_text(text)
    (tmp_path / "bonding_masters").write_text("")

    assert find_tunnels(str(tmp_path)) == {"vxlan": [], "wireguard": ["wg0"]}
