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
import http.client
import os
import platform
import socket
import subprocess
import sys
import time

from .containerd_dump import parse_dump
from .cri import CriClient, CriError

PROBE_VERSION = 1
COMMAND_TIMEOUT_S = 10
HTTP_TIMEOUT_S = 2
CRI_TIMEOUT_S = 5

CONTAINERD_UNIT = "containerd.service"
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
UFW_ENABLED = "ENABLED=yes"

DEFAULT_CONFIG = "/etc/containerd/config.toml"
DEFAULT_SOCKET = "/run/containerd/containerd.sock"
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

KUBE_PROXY_MODE = (10249, "/proxyMode")
KUBELET_HEALTH = (10248, "/healthz")
# adjtimex(2): the kernel's clock is not disciplined by anything.
STA_UNSYNC = 0x40


def run_command(argv):
    """Run a command with a fixed locale and no input.

    :returns: C((rc, stdout, stderr)) as text; rc 127 with the reason when it cannot be started or takes too long.
    """
    environment = {"PATH": SEARCH_PATH, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, "", str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def read_text(path):
    """The text of a small file, or None when it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return None


def parse_os_release(text):
    """C({id, version_id, pretty_name}) of an os-release(5) text; empty strings for what it does not say."""
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {key: fields.get(key.upper(), "").strip("\"'") for key in ("id", "version_id", "pretty_name")}


def parse_units(text):
    """C({unit: {property: value}}) of C(systemctl show) for several units, whose blocks a blank line separates."""
    units = {}
    for block in text.split("\n\n"):
        fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in fields:
            units[fields.pop("Id")] = fields
    return units


def read_units(names):
    """The state of systemd units as C(({unit: properties}, reason)); reason says why systemd could not be asked."""
    rc, out, err = run_command(["systemctl", "show", "--property=" + ",".join(UNIT_PROPERTIES), "--", *names])
    if rc != 0:
        return {}, "systemctl show failed: " + err.strip()
    return parse_units(out), ""


def is_active(units, name):
    """Whether a unit is active."""
    return units.get(name, {}).get("ActiveState") == "active"


def http_get(port, path):
    """GET from a loopback port as C((status, body)); C((None, reason)) when nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HTTP_TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read(256).decode("utf-8", "replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return None, str(error)
    finally:
        connection.close()


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


def flag_value(argv, long_name, short_name):
    """The value of a flag on a containerd command line in any of its spellings, else an empty string."""
    spellings = ("--" + long_name, "-" + long_name, "-" + short_name)
    for index, word in enumerate(argv):
        if word in spellings and index + 1 < len(argv):
            return argv[index + 1]
        name, separator, value = word.partition("=")
        if separator and name in spellings:
            return value
    return ""


def process_start_epoch(pid):
    """When a process was started, in seconds since the epoch, or None. Source: proc(5), fields of stat."""
    stat, uptime = read_text(f"/proc/{pid}/stat"), read_text("/proc/uptime")
    if not stat or not uptime:
        return None
    ticks = int(stat.rpartition(")")[2].split()[19])
    return time.time() - float(uptime.split()[0]) + ticks / float(os.sysconf("SC_CLK_TCK"))


def find_binary(pid):
    """The containerd binary: that of the running daemon, else the first on the usual path, else empty."""
    if pid:
        try:
            return os.readlink(f"/proc/{pid}/exe")
        except OSError:
            return ""
    candidates = (os.path.join(directory, "containerd") for directory in SEARCH_PATH.split(":"))
    return next((path for path in candidates if os.access(path, os.X_OK)), "")


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


def probe_containerd(units, images):
    """The daemon, the configuration that it merges, and its CRI. C({present: false}) where there is none."""
    pid = int(units.get(CONTAINERD_UNIT, {}).get("MainPID") or 0)
    binary = find_binary(pid)
    if not binary:
        return {"present": False}
    command_line = (read_text(f"/proc/{pid}/cmdline") or "").split("\0") if pid else []
    config_file = flag_value(command_line, "config", "c") or DEFAULT_CONFIG
    address = flag_value(command_line, "address", "a")
    # The daemon's own merge of imports is the effective configuration; only named keys of it leave the node.
    rc, out, err = run_command([binary, "--config", config_file, "config", "dump"])
    config = parse_dump(out) if rc == 0 else {}
    try:
        changed_after_start = pid and os.stat(config_file).st_mtime > (process_start_epoch(pid) or 0)
    except OSError:
        changed_after_start = False
    return {
        "present": True,
        "binary": binary,
        "active": is_active(units, CONTAINERD_UNIT),
        "unit_state": units.get(CONTAINERD_UNIT, {}).get("ActiveState", ""),
        "config_file": config_file,
        "config": config,
        "config_error": "" if rc == 0 else (err.strip().splitlines() or ["no output"])[-1],
        "config_changed_after_start": bool(changed_after_start),
        "cri": probe_cri(address or config.get("address") or DEFAULT_SOCKET, images),
    }


def probe_packet_filters(units):
    """The packet-filter managers that are at work: C([{name, evidence}])."""
    found = []
    for name in PACKET_FILTER_UNITS:
        if not is_active(units, name):
            continue
        # Debian's ufw.service is active whether or not ufw is switched on.
        if name == "ufw.service" and UFW_ENABLED not in (read_text(UFW_CONFIG) or "").split():
            continue
        state = units[name]
        evidence = f"{name} is active ({state['SubState']}), {state['UnitFileState'] or 'static'} at boot"
        found.append({"name": name.partition(".")[0], "evidence": evidence})
    return found


def probe_kube_proxy():
    """The live mode as kube-proxy itself says it: C({mode, error}). The ConfigMap says only what is wanted."""
    status, body = http_get(*KUBE_PROXY_MODE)
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
    """Free space where C(path) is or would be: C({path, free_bytes, free_inodes, read_only})."""
    existing = path
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    fs = os.statvfs(existing)
    # A file system without a fixed number of inodes (btrfs) says 0 of 0: nothing runs out there.
    inodes = fs.f_favail if fs.f_files else None
    free = fs.f_bavail * fs.f_frsize
    return {"path": path, "free_bytes": free, "free_inodes": inodes, "read_only": bool(fs.f_flag & os.ST_RDONLY)}


def collect(images, disk_paths):
    """Read the node.

    :param images: image references whose presence is asked over CRI.
    :param disk_paths: absolute paths that will be written to.
    :returns: the probe, a JSON-serializable dict.
    """
    started = time.monotonic()
    wanted = (CONTAINERD_UNIT, KUBELET_UNIT, *PACKET_FILTER_UNITS, *TIME_UNITS)
    units, unit_reason = read_units(wanted)
    probe = {
        "probe_version": PROBE_VERSION,
        "system": probe_system(),
        "containerd": probe_containerd(units, images),
        "packet_filters": probe_packet_filters(units),
        "kube_proxy": probe_kube_proxy(),
        "kubelet": probe_kubelet(units),
        "time": probe_time(units),
        "disks": [probe_disk(path) for path in disk_paths],
        "unseen": {"units": unit_reason} if unit_reason else {},
    }
    if os.geteuid() != 0:
        probe["unseen"]["root"] = os.strerror(errno.EACCES) + ": not root, so the CRI socket may be out of reach"
    probe["duration_ms"] = int((time.monotonic() - started) * 1000)
    return probe
