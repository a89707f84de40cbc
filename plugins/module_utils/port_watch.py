# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A short-lived watcher that sees which probes of other nodes arrive at this one.

It watches with raw sockets. Such a socket gets a copy of what was delivered to this machine, behind the INPUT rules of
every packet filter and whether or not someone holds the port: the kernel's VXLAN and WireGuard do, and no other program
can bind it then. A packet socket would not do, since it sees what a rule drops afterwards. Binding the port would not
either: Felix or BIRD could not have it meanwhile. See raw(7).

The watcher is a process of its own, since the other nodes send while no task runs here. It is reached by a Unix socket
in the abstract name space and keeps everything in memory, so that there is no file to be left. It ends when it has been
asked for what it saw, and at its deadline in any case.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import time

from .port_packets import PROTOCOLS, attach_filter, filter_program, parse_probe

COLLECT_TIMEOUT_S = 5
READ_OCTETS = 65536
# So that no sender can fill the memory of a watcher.
SEEN_LIMIT = 20000
_UCRED = struct.Struct("3i")


def door_name(nonce):
    """The abstract name under which the watcher of a run is asked."""
    return b"\0portcullis-ports-" + nonce.hex().encode()


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
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    told, tell = os.pipe()
    try:
        door.bind(door_name(nonce))
        door.listen(1)
        child = os.fork()
        if child == 0:
            _become_watcher(nonce, opened, door, tell, deadline_s)
        os.close(tell)
        tell = -1
        os.waitpid(child, 0)
        os.read(told, 1)  # it has left this session, whose end it shall outlive
    finally:
        for number in (told, tell):
            if number >= 0:
                os.close(number)
        door.close()
        close_all(opened)


def _become_watcher(nonce, opened, door, tell, deadline_s):
    """Be the watcher, as nobody's child; never returns."""
    try:
        if os.fork():
            os._exit(0)
        os.setsid()
        os.chdir("/")
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _close_all_but({tell, door.fileno(), *(raw.fileno() for _protocol, _family, raw in opened)})
        os.write(tell, b"1")
        os.close(tell)
        _watch(nonce, opened, door, time.monotonic() + deadline_s)
    finally:
        os._exit(0)


def _close_all_but(kept):
    """Let go of the caller's pipes, since it waits for their end."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):
                os.close(number)


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
        if door in ready and _hand_over(door, list(seen.values())):
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


def _hand_over(door, seen):
    """Answer the one who asks; True when it was this user, after which the watcher has nothing left to do."""
    with door.accept()[0] as caller:
        caller.settimeout(COLLECT_TIMEOUT_S)
        credentials = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        if _UCRED.unpack(credentials)[1] != os.geteuid():
            return False
        with contextlib.suppress(OSError):
            caller.sendall(json.dumps(seen).encode())
        return True


def collect_seen(nonce):
    """What the watcher of a run has seen, or None where there is none (any more)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(COLLECT_TIMEOUT_S)
        try:
            caller.connect(door_name(nonce))
            return json.loads(b"".join(iter(lambda: caller.recv(READ_OCTETS), b"")))
        except (OSError, ValueError):
            return None
