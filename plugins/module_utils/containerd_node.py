# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node says about its containerd: unit, process, configuration files with imports, CRI. Reads only."""

from __future__ import annotations

import fnmatch
import functools
import json
import os
import re
import socket
import struct

from .containerd_toml import ScanError, decode_string, scan, strings_in
from .cri import CriClient, CriError
from .files import decoded, encoded, read_snapshot
from .host import SEARCH_PATH, flag_value, parse_os_release, parse_units, read_text, run_command

DEFAULT_CONFIG = "/etc/containerd/config.toml"
DEFAULT_SOCKET = "/run/containerd/containerd.sock"
UNIT = "containerd.service"
KUBELET_UNIT = "kubelet.service"
KUBELET_CONFIG = "/var/lib/kubelet/config.yaml"
# Sockets of a containerd that has another unit, or is part of something else: k3s and RKE2, k0s, MicroK8s.
OTHER_SOCKETS = (
    DEFAULT_SOCKET,
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
)
UNIT_PROPERTIES = (
    "Id",
    "LoadState",
    "ActiveState",
    "MainPID",
    "KillMode",
    "Restart",
    "ExecStartPre",
    "NeedDaemonReload",
    "FragmentPath",
    "DropInPaths",
    "RequiredBy",
    "BoundBy",
    "ConsistsOf",
)
# Paths that only a certain owner of the configuration has.
MARKS = (
    "/usr/bin/nodeadm",
    "/etc/eks/containerd",
    "/home/kubernetes/kube-env",
    "/etc/modules-load.d/kubespray-br_netfilter.conf",
    "/opt/azure/containers",
)
# What an owner makes its main file of, by the path of that: k3s and RKE2, MicroK8s, k0s. {0} is its directory.
SOURCES = (
    (
        re.compile(r"/agent/etc/containerd/config\.toml$"),
        (
            "{0}/config-v3.toml.tmpl",
            "{0}/config.toml.tmpl",
            "/etc/rancher/k3s/registries.yaml",
            "/etc/rancher/rke2/registries.yaml",
        ),
    ),
    (re.compile(r"^/var/snap/microk8s/[^/]+/args/containerd\.toml$"), ("{0}/containerd-template.toml",)),
    (re.compile(r"^/etc/k0s/containerd\.toml$"), ("/etc/k0s/containerd.d/portcullis.toml",)),
)
# Spegel puts here, below a registry directory, what it found there.
SPEGEL_BACKUP = "_backup"
CRI_TIMEOUT_S = 10
MAX_IMPORTS = 200


def observe(config_file, registry_config_path):
    """Return all facts that the controller decides on, as JSON-serializable values.

    :param config_file: the path that the user gave, empty for what the daemon reads.
    :param registry_config_path: the registry directory that may become effective.
    """
    name, unit, pid = find_daemon()
    argv = command_line(pid)
    daemon_config = flag_value(argv, "config", "c") or DEFAULT_CONFIG
    files = read_files(config_file or daemon_config)
    address = flag_value(argv, "address", "a") or socket_of(files["files"]) or DEFAULT_SOCKET
    binary = find_binary(pid)
    cri = ask_cri(address)
    return {
        "binary": binary,
        "version": cri["version"] or version_of(binary),
        "unit_name": name,
        "unit": unit,
        "dependents": active_dependents(unit),
        "daemon_config": daemon_config,
        "socket": address,
        "cri": cri,
        "os": parse_os_release(read_text("/etc/os-release") or ""),
        "marks": find_marks(files, registry_config_path),
        "sources": read_sources(files["config_file"]),
        **files,
    }


def find_marks(files, registry_config_path):
    """Return the paths that exist and tell who owns the configuration, or what is below a registry directory."""
    directories = registry_keys(files["files"])[0] | {registry_config_path}
    backups = [os.path.join(path, SPEGEL_BACKUP) for path in sorted(directories)]
    return [path for path in (*MARKS, files["config_file"] + ".bak", *backups) if os.path.exists(path)]


def read_sources(config_file):
    """Return what an owner may make the main file of, as [{path, real_path, content (base64 or None)}]."""
    names = next((names for pattern, names in SOURCES if pattern.search(config_file)), ())
    snapshots = [(path, read_snapshot(path)) for path in (name.format(os.path.dirname(config_file)) for name in names)]
    return [
        {
            "path": path,
            "real_path": snapshot.path,
            "content": encoded(snapshot.content),
        }
        for path, snapshot in snapshots
    ]


def find_daemon():
    """Find the containerd that kubelet uses, else the one of its own unit, else one that is part of something else.

    :returns: name and properties of the unit that a restart would restart, and the pid of containerd itself (0: none).
    """
    units = read_units((UNIT, KUBELET_UNIT))
    unit = units.get(UNIT, {})
    pid = int(unit.get("MainPID") or 0)
    endpoint = kubelet_endpoint(command_line(int(units.get(KUBELET_UNIT, {}).get("MainPID") or 0)))
    for path in filter(None, (endpoint, *(() if pid else OTHER_SOCKETS))):
        peer = listener(path)
        if peer and peer != pid:
            name = unit_of(read_text(f"/proc/{peer}/cgroup") or "")
            unit = read_units((name,)).get(name, {}) if name else {}
            # What was started by hand over SSH may be in the cgroup of ssh.service.
            started_by_unit = not unit or is_of_session(peer, int(unit.get("MainPID") or 0))
            return (name or UNIT, unit, peer) if started_by_unit else (UNIT, {}, peer)
    return UNIT, unit, pid


def kubelet_endpoint(argv):
    """Return the path of the socket that kubelet talks to, empty when it does not say."""
    endpoint = flag_value(argv, "container-runtime-endpoint", "")
    if not endpoint:
        text = read_text(flag_value(argv, "config", "") or KUBELET_CONFIG) or ""
        match = re.search(r"""^containerRuntimeEndpoint:\s*["']?([^\s"'#]+)""", text, re.MULTILINE)
        endpoint = match.group(1) if match else ""
    return endpoint[len("unix://") :] if endpoint.startswith("unix://") else endpoint


def listener(path):
    """Return the pid of the process that listens on a Unix socket, 0 when none does (SO_PEERCRED, unix(7))."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(CRI_TIMEOUT_S)
        try:
            connection.connect(path)
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return 0
    return struct.unpack("3i", credentials)[0]


def unit_of(cgroups):
    """Return the systemd service that a process belongs to, empty when none, from the text of its cgroup file."""
    for line in filter(None, cgroups.splitlines()):
        hierarchy, controllers, path = line.split(":", 2)
        services = [part for part in path.split("/") if part.endswith(".service")]
        if services and (hierarchy == "0" or controllers == "name=systemd"):
            return services[-1]
    return ""


def command_line(pid):
    """Return the arguments of a process, none when it is gone."""
    return (read_text(f"/proc/{pid}/cmdline") or "").split("\0") if pid else []


def is_of_session(pid, main_pid):
    """Return whether a process is a service's main process or in its session, which systemd makes at each start."""
    try:
        return pid == main_pid or (main_pid > 0 and os.getsid(pid) == os.getsid(main_pid))
    except OSError:
        return False


def find_binary(pid):
    """Return the path of the containerd binary: the running daemon's, else the first on the usual path, else empty.

    An upgrade may have put another file at the path since the start (proc(5): the link then ends with " (deleted)").
    k3s is one program for all its names: the one that it was started by lies beside it.
    """
    try:
        path = re.sub(r" \(deleted\)$", "", os.readlink(f"/proc/{pid}/exe"))
        name = os.path.join(os.path.dirname(path), os.path.basename(command_line(pid)[0]))
        return name if os.path.islink(name) and os.path.realpath(name) == path else path
    except OSError:  # no such process, or not root
        candidates = (os.path.join(directory, "containerd") for directory in SEARCH_PATH.split(":"))
        return next((path for path in candidates if os.access(path, os.X_OK)), "")


def daemon_socket():
    """Return the socket of the running daemon, from its command line, else its files, else the default."""
    argv = command_line(find_daemon()[2])
    files = read_files(flag_value(argv, "config", "c") or DEFAULT_CONFIG)["files"]
    return flag_value(argv, "address", "a") or socket_of(files) or DEFAULT_SOCKET


def read_units(names):
    """Return C({unit: {property: value}}); empty where systemd does not answer."""
    rc, out, _err = run_command(["systemctl", "show", "--property=" + ",".join(UNIT_PROPERTIES), "--", *names])
    return parse_units(out) if rc == 0 else {}


def active_dependents(unit):
    """Return the active units that systemd restarts with this one (systemd.unit(5): Requires, BindsTo, PartOf)."""
    names = sorted({name for key in ("RequiredBy", "BoundBy", "ConsistsOf") for name in unit.get(key, "").split()})
    units = read_units(names) if names else {}
    return [name for name in names if units.get(name, {}).get("ActiveState") == "active"]


def version_of(binary):
    """Return the version that the binary prints, empty when it does not."""
    if not binary:
        return ""
    rc, out, _err = run_command([binary, "--version"])
    match = re.search(r"\bv?(\d+\.\d+\.\d+\S*)", out) if rc == 0 else None
    return match.group(1) if match else ""


def read_files(config_file):
    """Read the main file and its imports in the order in which containerd loads them (LoadConfig: first in, first out).

    :returns: C(config_file) as the real path, C(files) as [{path, sha256, content (base64 or None)}], and
        C(relative_globs), the imports whose place depends on the daemon's version.
    """
    files, globs, seen = [], [], set()
    pending = [os.path.abspath(config_file)]
    while pending and len(files) < MAX_IMPORTS:
        path = pending.pop(0)
        if path in seen:
            continue
        seen.add(path)
        snapshot = read_snapshot(path)
        content = encoded(snapshot.content)
        files.append({"path": path, "real_path": snapshot.path, "sha256": snapshot.sha256, "content": content})
        for pattern in imports_in(snapshot.content):
            if "*" in pattern and not os.path.isabs(pattern):
                globs.append(f"{path}: {pattern}")
            absolute = os.path.join(os.path.dirname(path), os.path.normpath(pattern))
            pending += expand(absolute) if "*" in absolute else [absolute]
    return {"config_file": files[0]["path"], "files": files, "relative_globs": globs}


def registry_keys(files):
    """Return the registry directories that the files name, and whether they have mirrors or registry TLS."""
    named, legacy = set(), False
    for item in files:
        document = scanned(decoded(item["content"]) or b"")
        if document is None:
            continue
        keys = [(entry.path, entry) for entry in document.entries] + [
            (header.path, None) for header in document.headers
        ]
        for path, entry in keys:
            below = path[path.index("registry") + 1 :] if "registry" in path else ()
            if below == ("config_path",) and entry and document.value(entry)[0] in "\"'":
                named.add(decode_string(document.value(entry)))
            legacy = legacy or below[:1] == ("mirrors",) or "tls" in below[2:3]
    return named - {""}, legacy


def imports_in(content):
    """Return the C(imports) of a file; none when it is absent or not TOML, which the controller explains."""
    document = scanned(content or b"")
    entry = document.find(("imports",)) if document else None
    return (strings_in(document.value(entry)) if entry else None) or []


@functools.lru_cache(maxsize=MAX_IMPORTS)
def scanned(content):
    """Return the document of a file that several questions are asked of, None when it is not TOML."""
    try:
        return scan(content.decode("utf-8"))
    except (UnicodeDecodeError, ScanError):
        return None


def expand(pattern):
    """Return the paths that match, in Go's order: by name, hidden ones included (path/filepath.Glob)."""
    directory, name = os.path.split(pattern)
    if not name:
        return [pattern] if os.path.exists(pattern) else []
    parents = expand(directory) if re.search(r"[*?\[]", directory) else [directory]
    name = name.replace("[^", "[!")
    found = []
    for parent in parents:
        try:
            children = sorted(os.listdir(parent))
        except OSError:
            continue
        found += [os.path.join(parent, child) for child in children if fnmatch.fnmatchcase(child, name)]
    return found


def socket_of(files):
    """Return the socket that the files configure, empty when none does; the last file wins."""
    found = ""
    for item in files:
        document = scanned(decoded(item["content"]) or b"")
        if document is None:
            continue
        for path in (("grpc", "address"), ("plugins", "io.containerd.server.v1.grpc", "address")):
            entry = document.find(path)
            if entry:
                found = decode_string(document.value(entry)) or found
    return found


def ask_cri(address):
    """Return whether CRI serves, and the registry directory that the daemon has loaded (None when it does not say)."""
    found = {"serving": False, "error": "", "code": "", "version": "", "conditions": [], "loaded_config_path": None}
    try:
        with CriClient(address, timeout_s=CRI_TIMEOUT_S) as client:
            found["version"] = client.version()["runtime_version"]
            status = client.status(verbose=True)
    except CriError as error:
        found["error"], found["code"] = str(error), error.code_name
        return found
    conditions = {item["type"]: item for item in status["conditions"]}
    found["conditions"] = sorted(name for name, item in conditions.items() if item["status"])
    found["serving"] = "RuntimeReady" in found["conditions"]
    if not found["serving"]:
        runtime = conditions.get("RuntimeReady", {"reason": "no condition RuntimeReady", "message": ""})
        found["error"] = f"{runtime['reason']}: {runtime['message']}"
    found["loaded_config_path"] = loaded_config_path(status["info"])
    return found


def loaded_config_path(info):
    """Return C(registry.config_path) out of the verbose CRI status, None when the daemon does not report it."""
    try:
        return json.loads(info["config"])["registry"]["configPath"]
    except (KeyError, TypeError, ValueError):
        return None


def running_containers(address):
    """Return C({id: {name, pid, started}}) of the running containers; C(started) tells a reused pid apart."""
    found = {}
    with CriClient(address, timeout_s=CRI_TIMEOUT_S) as client:
        for container in client.containers():
            if container["state"] != "CONTAINER_RUNNING":
                continue
            info = client.container_status(container["id"], verbose=True)["info"]
            pid = json.loads(info["info"])["pid"]
            found[container["id"]] = {"name": container["name"], "pid": pid, "started": start_ticks(pid)}
    return found


def start_ticks(pid):
    """Return the start time of a process in clock ticks, None when it is gone (proc(5), field 22 of stat)."""
    stat = read_text(f"/proc/{pid}/stat")
    return int(stat.rpartition(")")[2].split()[19]) if stat else None
