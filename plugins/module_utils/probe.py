# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe: everything the checks need to know of a node, read in one trip and without changing anything.

A probe is a JSON document (C(probe_version) 1). It holds observations only; what they mean is decided on the
controller (plugin_utils/requirements.py), so that a saved probe can be judged without its node. What could not be
seen is named in C(unseen), a reason per section, instead of being left out silently. It holds no secrets: of
containerd's configuration only the named keys leave the node.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import socket
import sys
import time

from .containerd_dump import parse_dump
from .containerd_node import (
    DEFAULT_CONFIG,
    DEFAULT_SOCKET,
    active_dependents,
    command_line,
    find_binary,
    find_daemon,
)
from .cri import CriClient, CriError
from .host import flag_value, http_get, parse_os_release, parse_units, read_text, run_command
from .kernel_features import probe_kernel
from .node_fix_texts import is_ufw_on
from .node_settings import NETWORK_MANAGER_UNIT, read_settings
from .packet_filters import read_packet_filters
from .routes import read_routes

PROBE_VERSION = 1
CRI_TIMEOUT_S = 5

KUBELET_UNIT = "kubelet.service"
# Whoever of these runs may flush or reorder rules that Felix, kube-proxy and kubelet put in.
# Source: Calico's node requirements, "Firewalld installed or another iptables manager".
PACKET_FILTER_UNITS = (
    "firewalld.service",
    "ufw.service",
    "nftables.service",
    "netfilter-persistent.service",
    "iptables.service",
    "ip6tables.service",
    "shorewall.service",
)
TIME_UNITS = ("chrony.service", "chronyd.service", "ntp.service", "ntpd.service", "systemd-timesyncd.service")
UNIT_PROPERTIES = ("Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID")
UFW_CONFIG = "/etc/ufw/ufw.conf"

KUBE_PROXY_MODE = (10249, "/proxyMode")
KUBELET_HEALTH = (10248, "/healthz")
# adjtimex(2): the kernel's clock is not disciplined by anything.
STA_UNSYNC = 0x40


def read_units(names):
    """The state of systemd units as C(({unit: properties}, reason)); reason says why systemd could not be asked."""
    rc, out, err = run_command(["systemctl", "show", "--property=" + ",".join(UNIT_PROPERTIES), "--", *names])
    if rc != 0:
        return {}, "systemctl show failed: " + (err.strip() or f"exit status {rc}")
    answers = sum(line.startswith("Id=") for line in out.splitlines())
    if answers < len(names):  # systemd answers for a unit that does not exist, too
        return {}, f"systemctl show answered for {answers} of {len(names)} units"
    return parse_units(out), ""


def is_active(units, name):
    """Whether a unit is active."""
    return units.get(name, {}).get("ActiveState") == "active"


def probe_system():
    """Architecture, distribution, kernel, container and user: what every check may need."""
    # systemd writes this file in every container that it starts; docker and podman leave marks of their own.
    container = (read_text("/run/systemd/container") or "").strip()
    if not container:
        container = next((mark for mark in ("/.dockerenv", "/run/.containerenv") if os.path.exists(mark)), "")
    return {
        "architecture": platform.machine(),
        "byteorder": sys.byteorder,
        "hostname": socket.gethostname(),
        "machine_id": (read_text("/etc/machine-id") or "").strip(),
        "kernel": platform.release(),
        "os": parse_os_release(read_text("/etc/os-release") or ""),
        "container": container,
        "python": platform.python_version(),
        "euid": os.geteuid(),
    }


def process_start_epoch(pid):
    """When a process was started, in seconds since the epoch, or None. Source: proc(5), fields of stat."""
    stat, uptime = read_text(f"/proc/{pid}/stat"), read_text("/proc/uptime")
    if not stat or not uptime:
        return None
    ticks = int(stat.rpartition(")")[2].split()[19])
    return time.time() - float(uptime.split()[0]) + ticks / float(os.sysconf("SC_CLK_TCK"))


def probe_cri(socket_path, images):
    """What the runtime answers over CRI: C({serving, error, version, conditions, images})."""
    found = {"socket": socket_path, "serving": False, "error": "", "version": "", "conditions": {}, "images": {}}
    try:
        with CriClient(socket_path, timeout_s=CRI_TIMEOUT_S) as client:
            version = client.version()
            found["version"] = version["runtime_version"]
            conditions = client.status()["conditions"]
            found["conditions"] = {item["type"]: item["status"] for item in conditions}
            found["serving"] = bool(found["conditions"].get("RuntimeReady"))
            for name in images:
                found["images"][name] = client.image_status(name) is not None
    except CriError as error:
        found["error"] = str(error)
    return found


def is_replaced(pid, argv):
    """Whether a restart would start another file than the one that runs, as after an upgrade without a restart."""
    try:
        if os.readlink(f"/proc/{pid}/exe").endswith(" (deleted)"):
            return True
        running, next_one = os.stat(f"/proc/{pid}/exe"), os.stat(argv[0] if os.path.isabs(argv[0]) else "")
    except OSError:
        return False
    # A wrapper script is another file as well, but one that was there before the start.
    is_newer = next_one.st_ctime > (process_start_epoch(pid) or time.time())
    return is_newer and not os.path.samestat(running, next_one)


def dump_config(argv0, config_file, executable):
    """The configuration that a containerd makes of its files, as C((what parse_dump returns, reason why not)).

    :param argv0: the daemon's own: a binary that is many programs in one (k3s) chooses by it.
    """
    rc, out, err = run_command([argv0, "--config", config_file, "config", "dump"], executable)
    return (parse_dump(out), "") if rc == 0 else ({}, (err.strip().splitlines() or ["no output"])[-1])


def probe_containerd(images):
    """The daemon that kubelet uses, the configuration that it merges, and its CRI.

    Where there is none it is C({present: false, other_runtime}), the program that kubelet uses instead, if any.
    """
    unit_name, unit, pid = find_daemon()
    argv, binary = command_line(pid), find_binary(pid)
    argv0 = argv[0] if argv else binary
    if "containerd" not in os.path.basename(argv0) + os.path.basename(binary):
        return {"present": False, "other_runtime": os.path.basename(argv0)}
    config_file = flag_value(argv, "config", "c") or DEFAULT_CONFIG
    replaced = bool(pid) and is_replaced(pid, argv)
    # The running file itself may be gone from its path, or in another mount namespace.
    running = f"/proc/{pid}/exe"
    config, config_error = dump_config(argv0, config_file, running if os.access(running, os.X_OK) else binary)
    if replaced and not config_error and os.access(binary, os.X_OK):
        config_error = dump_config(argv0, config_file, binary)[1]
    address = flag_value(argv, "address", "a") or config.get("address") or DEFAULT_SOCKET
    try:
        changed_after_start = pid and os.stat(config_file).st_mtime > (process_start_epoch(pid) or 0)
    except OSError:
        changed_after_start = False
    return {
        "present": True,
        "binary": binary,
        "binary_replaced": replaced,
        "unit_name": unit_name,
        "unit": unit,
        "dependents": active_dependents(unit),
        "active": unit.get("ActiveState") == "active",
        "unit_state": unit.get("ActiveState", ""),
        "config_file": config_file,
        "config_directory": os.path.dirname(os.path.realpath(config_file)),
        "config": config,
        "config_error": config_error,
        "config_changed_after_start": bool(changed_after_start),
        "cri": probe_cri(address, images),
    }


def probe_packet_filters(units):
    """The packet-filter managers that are at work: C([{name, evidence}]), or None when no unit could be asked."""
    if not units:
        return None
    found = []
    for name in PACKET_FILTER_UNITS:
        if not is_active(units, name):
            continue
        # Debian's ufw.service is active whether or not ufw is switched on.
        if name == "ufw.service" and not is_ufw_on(read_text(UFW_CONFIG) or ""):
            continue
        state = units[name]
        evidence = f"{name} is active ({state['SubState']}), {state['UnitFileState'] or 'static'} at boot"
        found.append({"name": name.partition(".")[0], "evidence": evidence})
    return found


def probe_kube_proxy():
    """The live mode as kube-proxy itself says it: C({mode, error}). The ConfigMap says only what is wanted."""
    status, body = http_get(*KUBE_PROXY_MODE)
    if status == 200 and not re.fullmatch(r"[a-z]+", body):  # something else listens there
        return {"mode": "", "error": f"an answer that is no mode: {body[:40]!r}"}
    return {"mode": body, "error": ""} if status == 200 else {"mode": "", "error": body}


def probe_kubelet(units):
    """Whether kubelet runs and says that it is well: C({active, healthy, error})."""
    status, body = http_get(*KUBELET_HEALTH)
    healthy = status == 200
    return {"active": is_active(units, KUBELET_UNIT), "healthy": healthy, "error": "" if healthy else body}


class _Timex(ctypes.Structure):
    """The head of struct timex, and room for the rest of it. Source: adjtimex(2)."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("_rest", ctypes.c_byte * 256),
    ]


def probe_time(units):
    """The clock: C({epoch_s, synchronised, maxerror_us, service, error}); synchronised is None when unknown."""
    timex = _Timex(modes=0)
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    error = "" if state >= 0 else os.strerror(ctypes.get_errno())
    return {
        "epoch_s": time.time(),
        "synchronised": None if error else not timex.status & STA_UNSYNC,
        "maxerror_us": None if error else timex.maxerror,
        "service": next((name for name in TIME_UNITS if is_active(units, name)), ""),
        "error": error,
    }


def probe_disk(path):
    """Free space where a directory is or would be: C({path, free_bytes, free_inodes, read_only, obstacle}).

    C(obstacle) is what stands where the directory, or one above it, would have to be: a file or a dangling link.
    """
    existing, obstacle = path, ""
    while not os.path.isdir(existing):
        if os.path.lexists(existing):
            obstacle = existing
        existing = os.path.dirname(existing)
    fs = os.statvfs(existing)
    # A file system without a fixed number of inodes (btrfs) says 0 of 0: nothing runs out there.
    inodes = fs.f_favail if fs.f_files else None
    free = fs.f_bavail * fs.f_frsize
    return {
        "path": path,
        "free_bytes": free,
        "free_inodes": inodes,
        "read_only": bool(fs.f_flag & os.ST_RDONLY),
        "obstacle": obstacle,
    }


def runtime_pid(containerd):
    """The process of containerd's unit, 0 when it is not known."""
    pid = containerd.get("unit", {}).get("MainPID", "")
    return int(pid) if pid.isdigit() else 0


def collect(images, disk_paths, probe_deep=False):
    """Read the node.

    :param images: image references whose presence is asked over CRI.
    :param disk_paths: absolute paths of directories that will be written to; that of containerd's configuration is
        added.
    :param probe_deep: whether kernel modules may be loaded for the time of the probe.
    :returns: the probe, a JSON-serializable dict.
    """
    started = time.monotonic()
    wanted = (KUBELET_UNIT, NETWORK_MANAGER_UNIT, *PACKET_FILTER_UNITS, *TIME_UNITS)
    units, unit_reason = read_units(wanted)
    containerd = probe_containerd(images)
    system = probe_system()
    directories = [*disk_paths, *([containerd["config_directory"]] if containerd["present"] else [])]
    probe = {
        "probe_version": PROBE_VERSION,
        "system": system,
        "containerd": containerd,
        "packet_filters": probe_packet_filters(units),
        "packet_filter_rules": read_packet_filters([name for name in PACKET_FILTER_UNITS if is_active(units, name)]),
        "routes": read_routes(),
        "kube_proxy": probe_kube_proxy(),
        "kubelet": probe_kubelet(units),
        "time": probe_time(units),
        "disks": [probe_disk(path) for path in dict.fromkeys(directories)],
        "kernel_features": probe_kernel(bool(system["container"]), runtime_pid(containerd), probe_deep),
        "settings": read_settings(units, containerd),
        "unseen": {"units": unit_reason} if unit_reason else {},
    }
    if os.geteuid() != 0:
        probe["unseen"]["root"] = os.strerror(errno.EACCES) + ": not root, so the CRI socket may be out of reach"
    probe["duration_ms"] = int((time.monotonic() - started) * 1000)
    return probe
