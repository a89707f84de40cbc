# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Try ports of other nodes from this one: TCP by a connection, UDP and protocol 4 by probes that their watchers see."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import struct
import time

from .port_packets import PROTOCOLS, ipip_payload, udp_payload

CONNECT_TIMEOUT_S = 3
AT_ONCE = 64
# A datagram may be lost: it is sent this often.
REPEATS = 3
PAUSE_S = 0.3
# Ends a connection at once, without a state that waits. Source: socket(7), SO_LINGER.
_NO_LINGER = struct.pack("ii", 1, 0)
CONNECTED, REFUSED, NO_ANSWER, SENT = "connected", "refused", "no answer", "sent"


def family_of(address):
    """AF_INET or AF_INET6 of an address as text."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def send_all(nonce, number, attempts):
    """Try each attempt and say what came of it.

    :param number: of this node. :param attempts: C([{protocol, port, address, target}]) with the number of the node
        that it goes to.
    :returns: for each attempt C({outcome, source_port}): connected, refused, no answer, sent, or the kernel's words for
        what this node did not even send. C(source_port) is 0 but for TCP.
    :raises OSError: protocol 4 is not allowed (root is needed), which says nothing of the network.
    """
    outcomes = [None] * len(attempts)
    streams = [index for index, item in enumerate(attempts) if item["protocol"] == "tcp"]
    for at in range(0, len(streams), AT_ONCE):
        batch = streams[at : at + AT_ONCE]
        for index, outcome in zip(batch, connect_all([attempts[index] for index in batch])):
            outcomes[index] = outcome
    others = [index for index in range(len(attempts)) if outcomes[index] is None]
    with contextlib.ExitStack() as stack:
        raw = None
        if any(attempts[index]["protocol"] == "ipip" for index in others):
            raw = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_RAW, PROTOCOLS["ipip"]))
        for repeat in range(REPEATS if others else 0):
            if repeat:
                time.sleep(PAUSE_S)
            for index in others:
                said = _send_one(nonce, number, attempts[index], raw)
                # Once out is out, whatever the others met.
                if outcomes[index] is None or said == SENT:
                    outcomes[index] = {"outcome": said, "source_port": 0}
    return outcomes


def _send_one(nonce, number, attempt, raw):
    address, target = attempt["address"], attempt["target"]
    try:
        if attempt["protocol"] == "udp":
            with socket.socket(family_of(address), socket.SOCK_DGRAM) as datagram:
                datagram.sendto(udp_payload(nonce, number, target), (address, attempt["port"]))
            return SENT
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
            route.connect((address, 9))  # sends nothing, and tells this node's address on the way there
            own = route.getsockname()[0]
        raw.sendto(ipip_payload(nonce, number, target, own, address), (address, 0))
        return SENT
    except OSError as error:
        return error.strerror or str(error)


def connect_all(attempts, timeout_s=CONNECT_TIMEOUT_S):
    """Connect to all at the same time: for each C({outcome, source_port})."""
    deadline = time.monotonic() + timeout_s
    found = [{"outcome": NO_ANSWER, "source_port": 0} for _attempt in attempts]
    opened = []
    with selectors.DefaultSelector() as waiting:
        try:
            for attempt, result in zip(attempts, found):
                try:
                    opened.append(_start(attempt, result, waiting))
                except OSError as error:  # a name that is not known, an IP version that the node does not have
                    result["outcome"] = error.strerror or str(error)
            while waiting.get_map() and time.monotonic() < deadline:
                for key, _events in waiting.select(max(0.0, deadline - time.monotonic())):
                    key.data["outcome"] = outcome_of(key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
                    waiting.unregister(key.fileobj)
        finally:
            for stream in opened:
                stream.close()
    return found


def _start(attempt, result, waiting):
    """Begin a connection; it is waited for unless it failed already. The address may be a name.

    :returns: the socket. :raises OSError: there is none to be had.
    """
    family, _kind, _protocol, _name, address = socket.getaddrinfo(
        attempt["address"], attempt["port"], type=socket.SOCK_STREAM
    )[0]
    stream = socket.socket(family, socket.SOCK_STREAM)
    stream.setblocking(False)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    code = stream.connect_ex(address)
    result["source_port"] = stream.getsockname()[1]
    if code in (0, errno.EINPROGRESS):
        waiting.register(stream, selectors.EVENT_WRITE, result)
    else:
        result["outcome"] = outcome_of(code)
    return stream


def outcome_of(code):
    """The words for an error number of connect(2)."""
    return {0: CONNECTED, errno.ECONNREFUSED: REFUSED, errno.ETIMEDOUT: NO_ANSWER}.get(code) or os.strerror(code)
