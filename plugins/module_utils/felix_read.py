# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node shows of Felix: its file, its answer to a health check, how long it has run, and the packet filters."""

from __future__ import annotations

import os

from .host import http_get, read_text
from .packet_filters import read_packet_filters

CONFIG_FILE = "/etc/calico/felix.cfg"


def is_felix(argv):
    """Whether these are the arguments of Felix: a program of its own up to 3.0, later one of calico-node's parts."""
    name = os.path.basename(argv[0]) if argv else ""
    return name == "calico-felix" or (name == "calico-node" and "-felix" in argv)


def felix_ages_s(proc="/proc"):
    """Return the seconds for which each process of Felix has run."""
    uptime_s = float((read_text(os.path.join(proc, "uptime")) or "0").split()[0])
    ticks, found = os.sysconf("SC_CLK_TCK"), []
    for pid in filter(str.isdigit, os.listdir(proc)):
        argv = (read_text(os.path.join(proc, pid, "cmdline")) or "").split("\0")
        stat = read_text(os.path.join(proc, pid, "stat")) if is_felix(argv) else None
        if stat:
            # The name in parentheses may hold blanks; the start is the 22nd field, proc(5).
            found.append(round(uptime_s - int(stat.rpartition(")")[2].split()[19]) / ticks, 1))
    return sorted(found)


def read_felix(health, active_units=()):
    """Return what shows Felix's configuration.

    :param health: C(host:port) of its health check, empty where it has none.
    :returns: C(file) (text, or None), C(file_path), C(readiness) (C(status), 0 without an answer, and C(error)),
        C(ages_s) and C(packet_filters).
    """
    status, error = 0, ""
    if health:
        host, _colon, port = health.rpartition(":")
        status, error = http_get(int(port), "/readiness", host or "localhost")
    return {
        "file": read_text(CONFIG_FILE),
        "file_path": CONFIG_FILE,
        "readiness": {"status": status or 0, "error": error},
        "ages_s": felix_ages_s(),
        "packet_filters": read_packet_filters(active_units),
    }
