# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of a node that decide whether a network plugin and an agent can work there. Reads only.

Of each file only the named keys leave the node; what they mean is decided on the controller.
"""

from __future__ import annotations

import configparser
import json
import os
import re

from .containerd_node import command_line
from .cri import CriClient, CriError
from .host import flag_value, read_text

NETWORK_MANAGER_UNIT = "NetworkManager.service"
# In the order in which they are read; a file hides those of its name in the directories before it. Source:
# NetworkManager.conf(5).
NETWORK_MANAGER_DIRECTORIES = (
    "/usr/lib/NetworkManager/conf.d",
    "/run/NetworkManager/conf.d",
    "/etc/NetworkManager/conf.d",
)
NETWORK_MANAGER_MAIN = "/etc/NetworkManager/NetworkManager.conf"
NETWORK_MANAGER_KEYS = ("unmanaged-devices", "match-device", "managed", "stop-match")
KUBELET_FLAGS = ("network-plugin", "allow-privileged", "cgroup-driver", "container-runtime")
KUBELET_KEYS = ("cgroupDriver", "failCgroupV1")
# The file names that a runtime loads. Source: libcni, ConfFiles.
CNI_FILES = (".conf", ".conflist", ".json")
CNI_DIRECTORY = "/etc/cni/net.d"
CNI_PROGRAMS = "/opt/cni/bin"
MAX_FILES = 50
NRI_SOCKET = "/var/run/nri/nri.sock"
CRIO_SOCKET = "/var/run/crio/crio.sock"
CRI_TIMEOUT_S = 5
# /proc/net/unix, __SO_ACCEPTCON of Linux: somebody listens.
LISTENS = 1 << 16


def read_settings(units, containerd, root="/"):
    """Read all of them.

    :param units: C({unit: properties}) with those of kubelet and NetworkManager.
    :param containerd: the probe's section, for the directories that its daemon uses.
    :param root: where the node's files are, for tests.
    :returns: C(network_manager), C(kubelet), C(cni), C(nri) and C(crio) as the functions below have them.
    """
    config = containerd.get("config") or {}
    return {
        "network_manager": read_network_manager(units, root),
        "kubelet": read_kubelet(units.get("kubelet.service", {}).get("MainPID", ""), root),
        "cni": read_cni(config.get("cni") or {}, root),
        "nri": read_nri(config.get("nri") or {}, root),
        "crio": read_crio() if containerd.get("other_runtime") == "crio" else None,
    }


def under(root, path):
    """Return a path of the node as this process reaches it."""
    return os.path.join(root, path.lstrip("/"))


def names_in(directory, endings):
    """Return the sorted names of a directory that end so; none where it cannot be read."""
    try:
        return sorted(name for name in os.listdir(directory) if name.endswith(endings))
    except OSError:
        return []


def read_network_manager(units, root="/"):
    """Return what NetworkManager is told about devices.

    :returns: C(settings), in the order in which they count: [{file, section, values ({key: text}, the key as
        written, so with C(+) or C(-) at its end)}]; C(managed), the names of the devices that it says it manages;
        C(kept_off), of those that udev keeps from it. None where it is not active.
    """
    if units.get(NETWORK_MANAGER_UNIT, {}).get("ActiveState") != "active":
        return None
    settings = []
    for path in network_manager_files(root):
        settings += device_settings(path, read_text(under(root, path)) or "")
    return {"settings": settings, **read_devices(root)}


def network_manager_files(root="/"):
    """Return the files that count, in their order: packages, this boot, the main file, the administrator."""
    found = {}
    for directory in NETWORK_MANAGER_DIRECTORIES:
        for name in names_in(under(root, directory), ".conf"):
            found[name] = directory
    order = []
    for directory in NETWORK_MANAGER_DIRECTORIES:
        if directory == NETWORK_MANAGER_DIRECTORIES[-1]:
            order.append(NETWORK_MANAGER_MAIN)
        order += [f"{directory}/{name}" for name, chosen in sorted(found.items()) if chosen == directory][:MAX_FILES]
    return order


def device_settings(path, text):
    """Return the sections of one file that say something of devices.

    A file that is not a key file says nothing, nor does one that switches itself off, which the main file cannot.
    """
    parser = configparser.RawConfigParser(
        delimiters=("=",), comment_prefixes=("#", ";"), strict=False, empty_lines_in_values=False, allow_no_value=True
    )
    parser.optionxform = str
    try:
        parser.read_string(text)
    except configparser.Error:
        return []
    enabled = parser.get(".config", "enable", fallback="true") or "true"
    if path != NETWORK_MANAGER_MAIN and enabled.strip().lower() in ("0", "no", "false", "off"):
        return []
    found = []
    for section in parser.sections():
        values = {
            key.strip(): (value or "").strip()
            for key, value in parser.items(section)
            if re.sub(r"[+-]$", "", key.strip()) in NETWORK_MANAGER_KEYS
        }
        if values:
            found.append({"file": path, "section": section, "values": values})
    return found


def read_devices(root="/"):
    """Return C({managed, kept_off}), names of devices.

    C(managed) by NetworkManager's own notes (/run/NetworkManager/devices/INDEX), C(kept_off) by udev's: its rules,
    those of NetworkManager's package among them, set NM_UNMANAGED for veth devices.
    """
    found = {"managed": [], "kept_off": []}
    for name in names_in(under(root, "/sys/class/net"), ""):
        index = (read_text(under(root, f"/sys/class/net/{name}/ifindex")) or "").strip()
        if not index:
            continue
        if re.search(r"^managed=true$", read_text(under(root, f"/run/NetworkManager/devices/{index}")) or "", re.M):
            found["managed"].append(name)
        if re.search(r"^E:NM_UNMANAGED=1$", read_text(under(root, f"/run/udev/data/n{index}")) or "", re.M):
            found["kept_off"].append(name)
    return found


def read_kubelet(pid, root="/"):
    """Return C({flags, config, complete}): of the command line and of its --config file the keys that checks need.

    C(complete) is whether all was read, so that kubelet's own default holds for what is not there.

    :param pid: of kubelet's unit, as systemd says it.
    :returns: None where that is no kubelet: none runs, or it is a part of another program or of a container.
    """
    argv = command_line(int(pid)) if pid.isdigit() and pid != "0" else []
    if "kubelet" not in [os.path.basename(word) for word in argv[:2]]:
        return None
    flags = {name: flag_value(argv, name, name) for name in KUBELET_FLAGS}
    path = flag_value(argv, "config", "config")
    text = read_text(under(root, path)) if path else ""
    return {
        "flags": {name: value for name, value in flags.items() if value},
        "config": scalars(text or ""),
        "complete": text is not None and not flag_value(argv, "config-dir", "config-dir"),
    }


def scalars(text):
    """Return the wanted keys of a KubeletConfiguration, in YAML or JSON, that stand at its top, as text."""
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if isinstance(content, dict):
        return {key: str(content[key]).lower() for key in KUBELET_KEYS if content.get(key) not in (None, "")}
    found = {}
    for key in KUBELET_KEYS:
        match = re.search(rf"""(?:^|[{{,])\s*["']?{key}["']?\s*:\s*["']?([\w-]+)""", text, re.MULTILINE)
        if match:
            found[key] = match.group(1)
    return found


def read_cni(config, root="/"):
    """Return the network configurations that the runtime finds, in its order: the first one counts.

    :param config: C({conf_dir, bin_dirs}) of containerd's effective configuration.
    :returns: C(directory); C(files): [{name, network, types, missing, error}], C(types) the plugins that it calls and
        C(missing) those without a program in C(programs); C(programs), the directories of programs.
    """
    directory = config.get("conf_dir") or CNI_DIRECTORY
    programs = config.get("bin_dirs") or [CNI_PROGRAMS]
    files = []
    for name in names_in(under(root, directory), CNI_FILES)[:MAX_FILES]:
        item = cni_file(name, read_text(under(root, f"{directory}/{name}")) or "")
        called = dict.fromkeys([*item["types"], *item.pop("ipam")])
        missing = [kind for kind in called if not is_program(programs, kind, root)]
        files.append({"name": name, **item, "missing": missing})
    return {"directory": directory, "programs": programs, "files": files}


def is_program(directories, name, root):
    """Return whether one of the directories has it."""
    return any(os.path.isfile(under(root, os.path.join(directory, name))) for directory in directories)


def cni_file(name, text):
    """Return C({network, types, ipam, error}) of a network configuration (CNI specification, section 1).

    C(types) and C(ipam) are the plugins that it calls. A list has to be in a C(.conflist), one plugin in any other
    file; containerd takes neither for the other (go-cni, loadFromConfDir).
    """
    found = {"network": "", "types": [], "ipam": [], "error": ""}
    try:
        content = json.loads(text)
        plugins = content["plugins"] if name.endswith(".conflist") else [content]
        found["network"] = str(content.get("name", ""))
        found["types"] = [os.path.basename(str(plugin["type"])) for plugin in plugins]
        ipam = [(plugin.get("ipam") or {}).get("type") for plugin in plugins]
        found["ipam"] = [os.path.basename(str(kind)) for kind in ipam if kind]
        if not plugins:
            found["error"] = "calls no plugin"
    except KeyError as error:
        found["error"] = f"has no {error.args[0]}"
    except (ValueError, TypeError, AttributeError) as error:
        found["error"] = str(error)
    return found


def read_nri(config, root="/"):
    """Return C({socket, listening}): whether something takes NRI plugins.

    A plugin list says that NRI is well where it is switched off; who listens tells. The kernel is asked: who connects
    is taken for a plugin.

    :param config: C({socket_path}) of the runtime's effective configuration.
    """
    socket = config.get("socket_path") or NRI_SOCKET
    listed = listening_sockets(read_text(under(root, "/proc/net/unix")) or "")
    names = {socket, re.sub(r"^/var/run/", "/run/", socket), re.sub(r"^/run/", "/var/run/", socket)}
    return {"socket": socket, "listening": bool(names & set(listed))}


def listening_sockets(text):
    """Return the paths of the Unix sockets that somebody listens on, from /proc/net/unix (proc(5))."""
    rows = [line.split(None, 7) for line in text.splitlines()[1:]]
    return [row[7] for row in rows if len(row) == 8 and int(row[3], 16) & LISTENS]


def read_crio(socket=CRIO_SOCKET):
    """Return C({socket, version, error}) of CRI-O."""
    try:
        with CriClient(socket, timeout_s=CRI_TIMEOUT_S) as client:
            return {"socket": socket, "version": client.version()["runtime_version"], "error": ""}
    except CriError as error:
        return {"socket": socket, "version": "", "error": str(error)}
