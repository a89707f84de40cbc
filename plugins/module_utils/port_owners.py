# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds a port on this node, from /proc alone: neither ss nor lsof is needed."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
import sys
import time

from .host import read_text

TABLES = {"tcp": ("tcp", "tcp6"), "udp": ("udp", "udp6"), "ipip": ("raw", "raw6")}
# Source: include/net/tcp_states.h. A UDP or raw socket that is bound and not connected says TCP_CLOSE.
_LISTENS = {"tcp": 0x0A, "udp": 0x07, "ipip": 0x07}
# In the raw tables the port is the protocol's number.
_IPIP = 4
_SOCKET = re.compile(r"socket:\[(\d+)\]")
SECOND_LOOK_S = 1
TUNNEL_KINDS = ("vxlan", "wireguard")


def parse_address(text, byteorder):
    """C((address, port)) of an address in /proc/net: 32-bit words in the machine's order, then the port.

    :param byteorder: C(little) or C(big). :raises ValueError: it is none.
    """
    words, port = text.split(":")
    order = "<" if byteorder == "little" else ">"
    numbers = [int(words[at : at + 8], 16) for at in range(0, len(words), 8)]
    octets = struct.pack(f"{order}{len(numbers)}I", *numbers)
    family = socket.AF_INET if len(octets) == 4 else socket.AF_INET6
    return socket.inet_ntop(family, octets), int(port, 16)


def parse_table(protocol, text, byteorder=sys.byteorder):
    """The sockets of a table of /proc/net on which something can come in: C([{address, port, inode}])."""
    found = []
    for line in text.splitlines()[1:]:
        fields = line.split()
        try:
            if int(fields[3], 16) == _LISTENS[protocol]:
                address, port = parse_address(fields[1], byteorder)
                found.append({"address": address, "port": port, "inode": int(fields[9])})
        except (IndexError, ValueError):
            continue  # a line of a format that is not known hides no other
    return found


def socket_owners(inodes, proc="/proc"):
    """The processes that have these sockets open: C({inode: {pid, name}}), one for each socket.

    A socket without one is the kernel's own (VXLAN, WireGuard), or of a process that ended meanwhile.
    """
    wanted, found = set(inodes), {}
    for pid in filter(str.isdigit, os.listdir(proc) if wanted else ()):
        for inode in wanted.intersection(_open_sockets(f"{proc}/{pid}/fd")):
            found[inode] = {"pid": int(pid), "name": (read_text(f"{proc}/{pid}/comm") or "").strip()}
        wanted -= found.keys()
        if not wanted:
            break
    return found


def _open_sockets(directory):
    """The inodes of a process's sockets; none where it ended, or is not ours to look at."""
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):  # closed meanwhile, as the one that listdir itself had
            match = _SOCKET.fullmatch(os.readlink(f"{directory}/{name}"))
            if match:
                yield int(match.group(1))


def find_listeners(ports, proc="/proc", pause_s=SECOND_LOOK_S):
    """Who holds these ports: C([{protocol, port, address, pid, name}]); pid 0 and no name where it is the kernel.

    WireGuard's port is one that a program may get for a single question, so that a process has to hold it still
    C(pause_s) seconds later.

    :param ports: C([(protocol, port)]), for IPIP with port 0.
    """
    found = _holders(ports, proc)
    if any(item["pid"] and item["protocol"] == "udp" for item in found):
        time.sleep(pause_s)
        found = [item for item in _holders(ports, proc) if item in found]
    return found


def _holders(ports, proc):
    """One look at who holds these ports."""
    held = []
    for protocol, port in ports:
        number = _IPIP if protocol == "ipip" else port
        for table in TABLES[protocol]:
            sockets = parse_table(protocol, read_text(f"{proc}/net/{table}") or "")
            held += [(protocol, port, item) for item in sockets if item["port"] == number]
    owners = socket_owners([item["inode"] for _protocol, _port, item in held], proc)
    nobody = {"pid": 0, "name": ""}
    return [
        {"protocol": protocol, "port": port, "address": item["address"], **owners.get(item["inode"], nobody)}
        for protocol, port, item in held
    ]


def find_tunnels(directory="/sys/class/net"):
    """The node's interfaces that hold a UDP port in the kernel, by kind: C({vxlan: [names], wireguard: [names]})."""
    found = {kind: [] for kind in TUNNEL_KINDS}
    for name in sorted(os.listdir(directory)):
        kind = re.search(r"^DEVTYPE=(\w+)$", read_text(f"{directory}/{name}/uevent") or "", re.MULTILINE)
        if kind and kind.group(1) in found:
            found[kind.group(1)].append(name)
    return found
