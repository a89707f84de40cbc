# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real probes over the loopback interface: they are seen, and the watcher is gone when it is not needed."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.detached import door_name
from ansible_collections.portcullis.fleet.plugins.module_utils.port_send import connect_all, send_all
from ansible_collections.portcullis.fleet.plugins.module_utils.port_watch import (
    collect_seen,
    open_raw_sockets,
    start_watcher,
    watcher_name,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="raw sockets need root")
PORT = 4789


@pytest.fixture
def nonce() -> bytes:
    """A run of its own."""
    return os.urandom(8)


def attempt(protocol: str, port: int, address: str = "127.0.0.1") -> dict:
    """One attempt from node 1 to node 2."""
    return {"protocol": protocol, "port": port, "address": address, "target": 2}


def has_door(nonce: bytes) -> bool:
    """Whether a watcher of this run is there."""
    return f"@{door_name(watcher_name(nonce))[1:].decode()}" in Path("/proc/net/unix").read_text()


def wait_until_gone(nonce: bytes, seconds: float) -> None:
    """Return when the watcher has ended."""
    deadline = time.monotonic() + seconds
    while has_door(nonce):
        assert time.monotonic() < deadline, "the watcher does not end"
        time.sleep(0.05)


def test_probes_are_seen_and_the_watcher_ends_with_the_answer(nonce: bytes):
    start_watcher(nonce, {"udp": [PORT], "ipip": [0]}, 20)
    outcomes = send_all(nonce, 1, [attempt("udp", PORT), attempt("ipip", 0)])
    seen = collect_seen(nonce)

    assert [item["outcome"] for item in outcomes] == ["sent", "sent"]
    assert sorted(seen, key=lambda item: item["port"]) == [
        {"protocol": "ipip", "port": 0, "source": 1, "target": 2, "address": "127.0.0.1"},
        {"protocol": "udp", "port": PORT, "source": 1, "target": 2, "address": "127.0.0.1"},
    ]
    wait_until_gone(nonce, 2)
    assert collect_seen(nonce) is None


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="no IPv6 here")
def test_ipv6_is_watched_too(nonce: bytes):
    start_watcher(nonce, {"udp": [PORT], "tcp": [1]}, 20)
    (_udp, tcp) = send_all(nonce, 1, [attempt("udp", PORT, "::1"), attempt("tcp", 1, "::1")])

    assert sorted(collect_seen(nonce), key=lambda item: item["port"]) == [
        {"protocol": "tcp", "port": 1, "source_port": tcp["source_port"], "address": "::1"},
        {"protocol": "udp", "port": PORT, "source": 1, "target": 2, "address": "::1"},
    ]


def test_a_port_that_is_held_is_watched_all_the_same(nonce: bytes):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        start_watcher(nonce, {"udp": [port]}, 20)
        send_all(nonce, 1, [attempt("udp", port)])

    assert [item["port"] for item in collect_seen(nonce)] == [port]


def test_a_connection_that_is_refused_is_seen_to_arrive(nonce: bytes):
    """So a closed port is told from one that a firewall rejects."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    start_watcher(nonce, {"tcp": [port]}, 20)
    (outcome,) = send_all(nonce, 1, [attempt("tcp", port)])
    (seen,) = collect_seen(nonce)

    assert outcome["outcome"] == "refused"
    assert (seen["port"], seen["source_port"]) == (port, outcome["source_port"])


def test_a_watcher_that_nobody_asks_ends_at_its_deadline(nonce: bytes):
    start_watcher(nonce, {"udp": [PORT]}, 0.3)

    assert has_door(nonce)
    wait_until_gone(nonce, 3)


def test_a_second_watcher_of_a_run_is_refused(nonce: bytes):
    start_watcher(nonce, {"udp": [PORT]}, 20)
    try:
        with pytest.raises(OSError, match="in use"):
            start_watcher(nonce, {"udp": [PORT]}, 20)
    finally:
        assert collect_seen(nonce) == []


def test_the_filter_is_the_kernels(nonce: bytes):
    """What is no probe of this run does not even wake the watcher."""
    ((_protocol, _family, raw), *others) = open_raw_sockets(nonce, {"udp": [PORT]})
    try:
        send_all(bytes(8), 1, [attempt("udp", PORT)])
        with pytest.raises(BlockingIOError):
            raw.recv(100)
    finally:
        raw.close()
        for _protocol, _family, other in others:
            other.close()


def test_connections_say_what_came_of_them():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = connect_all([attempt("tcp", port), attempt("tcp", 1)], 2)

    assert [item["outcome"] for item in found] == ["connected", "refused"]


def test_a_name_that_is_not_known_spoils_no_other_attempt():
    """etcd may be named."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        named = [attempt("tcp", port, "name.invalid"), attempt("tcp", port, "localhost"), attempt("tcp", port)]
        unknown, *others = connect_all(named, 2)

    assert unknown["outcome"] not in ("connected", "refused", "no answer")
    assert "connected" in {item["outcome"] for item in others}
    assert others[1]["outcome"] == "connected"


def test_no_attempt_is_no_work():
    assert send_all(bytes(8), 1, []) == []
