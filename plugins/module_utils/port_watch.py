# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A short-lived watcher that sees which probes of other nodes arrive at this one.

It watches with raw sockets. Such a socket gets a copy of what was delivered to this machine, behind the INPUT rules of
every packet filter and whether or not someone holds the port: the kernel's VXLAN and WireGuard do, and no other program
can bind it then. A packet socket would not do, since it sees what a rule drops afterwards. Binding the port would not
either: Felix or BIRD could not have it meanwhile. See raw(7).

The watcher is a process of its own (detached.py), since the other nodes send while no task runs here.
"""

from __future__ import annotations

import os
import select
import socket
import time

from . import detached
from .port_packets import PROTOCOLS, attach_filter, filter_program, parse_probe

READ_OCTETS = 65536
# So that no sender can fill the memory of a watcher.
SEEN_LIMIT = 20000


def watcher_name(nonce):
    """What tells the watcher of a run from others."""
    return f"ports-{nonce.hex()}"


def open_raw_sockets(nonce, watch):
    """The raw sockets: C([(protocol, family, socket)]).

    :param watch: C({protocol: [ports]}); the ports count for TCP alone, whose packets carry no nonce.
    :raises OSError: they are not allowed (root is needed).
    """
    opened = []
    try:
        for protocol, ports in watch.items():
            for family in _families(protocol):
                raw = socket.socket(family, socket.SOCK_RAW | socket.SOCK_NONBLOCK, PROTOCOLS[protocol])
                opened.append((protocol, family, raw))
                attach_filter(raw, filter_program(protocol, family, nonce, ports))
    except OSError:
        close_all(opened)
        raise
    return opened


def _families(protocol):
    """The IP versions to watch. Where there is no IPv6, asking for a socket of it would load its module."""
    has_ipv6 = protocol != "ipip" and os.path.exists("/proc/net/if_inet6")
    return (socket.AF_INET, socket.AF_INET6) if has_ipv6 else (socket.AF_INET,)


def close_all(opened):
    """Close what open_raw_sockets opened."""
    for _protocol, _family, raw in opened:
        raw.close()


def start_watcher(nonce, watch, deadline_s):
    """Leave a watcher behind that lives for at most C(deadline_s) seconds; it watches when this returns.

    :raises OSError: raw sockets are not allowed, or a watcher of this run is here already.
    """
    opened = open_raw_sockets(nonce, watch)
    kept = [raw.fileno() for _protocol, _family, raw in opened]
    try:
        detached.start(
            watcher_name(nonce), lambda door: _watch(nonce, opened, door, time.monotonic() + deadline_s), kept
        )
    finally:
        close_all(opened)


def _watch(nonce, opened, door, deadline):
    """Note what arrives until someone comes to fetch it, or the time is over."""
    by_number = {raw.fileno(): (protocol, family, raw) for protocol, family, raw in opened}
    seen = {}
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return
        ready, _write, _error = select.select([door, *by_number], [], [], left)
        for number in ready:
            if number is not door:
                _receive(*by_number[number], nonce, seen)
        if door in ready and detached.hand_over(door, list(seen.values())):
            return


def _receive(protocol, family, raw, nonce, seen):
    """Add what a raw socket has; a probe that came twice is one."""
    while True:
        try:
            octets, address = raw.recvfrom(READ_OCTETS)
        except OSError:
            return
        probe = parse_probe(protocol, family, octets, nonce)
        if probe and len(seen) < SEEN_LIMIT:
            probe["address"] = address[0].partition("%")[0]
            seen.setdefault(tuple(probe.values()), probe)


def collect_seen(nonce):
    """What the watcher of a run has seen, or None where there is none (any more)."""
    return detached.collect(watcher_name(nonce))
