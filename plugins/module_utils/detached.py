# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process that outlives the task that started it, watches something, and tells what it saw when it is asked.

It is reached by a Unix socket in the abstract name space and keeps everything in memory, so that there is no file to be
left. It ends when it has been asked for what it saw, and at its deadline in any case.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct

COLLECT_TIMEOUT_S = 5
READ_OCTETS = 65536
_UCRED = struct.Struct("3i")


def door_name(name):
    """The abstract name under which a watcher is asked."""
    return b"\0portcullis-" + name.encode()


def start(name, work, kept=()):
    """Leave C(work(door)) behind in a process of its own, nobody's child; it runs when this returns.

    :param name: what tells this watcher from others. :param work: what it does, until it returns. It gets the socket at
        which it is asked. :param kept: numbers of the files that it needs.
    :raises OSError: a watcher of this name is here already.
    """
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    told, tell = os.pipe()
    try:
        door.bind(door_name(name))
        door.listen(1)
        child = os.fork()
        if child == 0:
            _become_watcher(work, door, tell, kept)
        os.close(tell)
        tell = -1
        os.waitpid(child, 0)
        os.read(told, 1)  # it has left this session, whose end it shall outlive
    finally:
        for number in (told, tell):
            if number >= 0:
                os.close(number)
        door.close()


def _become_watcher(work, door, tell, kept):
    """Be the watcher, as nobody's child; never returns."""
    try:
        if os.fork():
            os._exit(0)
        os.setsid()
        os.chdir("/")
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _close_all_but({tell, door.fileno(), *kept})
        os.write(tell, b"1")
        os.close(tell)
        work(door)
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


def hand_over(door, seen):
    """Answer the one who asks; True when it was this user, after which the watcher has nothing left to do."""
    with door.accept()[0] as caller:
        caller.settimeout(COLLECT_TIMEOUT_S)
        credentials = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
        if _UCRED.unpack(credentials)[1] != os.geteuid():
            return False
        door.close()  # so that its name is free once the caller has its answer
        with contextlib.suppress(OSError):
            caller.sendall(json.dumps(seen).encode())
        return True


def collect(name):
    """What a watcher has seen, or None where there is none (any more)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(COLLECT_TIMEOUT_S)
        try:
            caller.connect(door_name(name))
            return json.loads(b"".join(iter(lambda: caller.recv(READ_OCTETS), b"")))
        except (OSError, ValueError):
            return None
