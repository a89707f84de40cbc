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

from .containerd_node import command_line, listener
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
NETWORK_MANAGER_KEYS = ("unmanaged-devices", "match-device", "managed")
KUBELET_FLAGS = ("network-plugin", "allow-privileged", "cgroup-driver")
KUBELET_KEYS = ("cgroupDriver", "failCgroupV1")
# The file names that a runtime loads. Source: libcni, ConfFiles.
CNI_FILES = (".conf", ".conflist", ".json")
CNI_DIRECTORY = "/etc/cni/net.d"
CNI_PROGRAMS = "/opt/cni/bin"
MAX_FILES = 50
NRI_SOCKET = "/var/run/nri/nri.sock"
CRIO_SOCKET = "/var/run/crio/crio.sock"
CRI_TIMEOUT_S = 5


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
        "nri": read_nri(config.get("nri") or {}),
        "crio": read_crio() if containerd.get("other_runtime") == "crio" else None,
    }


def under(root, path):
    """Return a path of the node as this process reaches it."""
    return os.path.join(root, path.lstrip("/"))


def names_in(directory, endings):
    """Return the sorted names of a directory that end so; none where it cannot be read."""
    try:
        return sorted(name for name in os.listdir(directory) if name.endswith(endings))[:MAX_FILES]
    except OSError:
        return []


def read_network_manager(units, root="/"):
    """Return what NetworkManager is told about devices.

    :returns: C(settings), in the order in which they count: [{file, section, values ({key: text}, the key as
        written, so with C(+) or C(-) at its end)}]; C(managed), the names of the devices that it says it manages. None
        where it is not active.
    """
    if units.get(NETWORK_MANAGER_UNIT, {}).get("ActiveState") != "active":
        return None
    settings = []
    for path in network_manager_files(root):
        settings += device_settings(path, read_text(under(root, path)) or "")
    return {"settings": settings, "managed": managed_devices(root)}


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
        order += [f"{directory}/{name}" for name, chosen in sorted(found.items()) if chosen == directory]
    return order


def device_settings(path, text):
    """Return the sections of one file that say something of devices; a file that is not a key file says nothing."""
    parser = configparser.RawConfigParser(
        delimiters=("=",), comment_prefixes=("#", ";"), strict=False, empty_lines_in_values=False, allow_no_value=True
    )
    parser.optionxform = str
    try:
        parser.read_string(text)
    except configparser.Error:
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


def managed_devices(root="/"):
    """Return the names of the devices that NetworkManager notes as managed (/run/NetworkManager/devices/INDEX)."""
    found = []
    for name in names_in(under(root, "/sys/class/net"), ""):
        index = (read_text(under(root, f"/sys/class/net/{name}/ifindex")) or "").strip()
        state = read_text(under(root, f"/run/NetworkManager/devices/{index}")) if index else None
        if state and re.search(r"^managed=true$", state, re.MULTILINE):
            found.append(name)
    return found


def read_kubelet(pid, root="/"):
    """Return C({flags, config}): of the command line and of its --config file the keys that checks need.

    :param pid: of kubelet's unit, as systemd says it. Without one both are empty.
    """
    argv = command_line(int(pid)) if pid.isdigit() and pid != "0" else []
    flags = {name: flag_value(argv, name, name) for name in KUBELET_FLAGS}
    path = flag_value(argv, "config", "config")
    text = read_text(under(root, path)) if path else None
    return {"flags": {name: value for name, value in flags.items() if value}, "config": scalars(text or "")}


def scalars(text):
    """Return the wanted keys of a KubeletConfiguration, in YAML or JSON, that stand at its top."""
    found = {}
    for key in KUBELET_KEYS:
        match = re.search(rf"""^(?:\s*\{{?\s*)["']?{key}["']?\s*:\s*["']?([\w-]+)""", text, re.MULTILINE)
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
    for name in names_in(under(root, directory), CNI_FILES):
        item = cni_file(read_text(under(root, f"{directory}/{name}")) or "")
        present = [kind for kind in item["types"] if is_program(programs, kind, root)]
        files.append({"name": name, **item, "missing": [kind for kind in item["types"] if kind not in present]})
    return {"directory": directory, "programs": programs, "files": files}


def is_program(directories, name, root):
    """Return whether one of the directories has it."""
    return any(os.path.isfile(under(root, os.path.join(directory, name))) for directory in directories)


def cni_file(text):
    """Return C({network, types, error}) of a network configuration (CNI specification, section 1)."""
    found = {"network": "", "types": [], "error": ""}
    try:
        content = json.loads(text)
        plugins = content.get("plugins", [content])
        found["network"] = str(content.get("name", ""))
        found["types"] = [os.path.basename(str(plugin["type"])) for plugin in plugins]
    except KeyError:
        found["error"] = "a plugin without a type"
    except (ValueError, TypeError, AttributeError) as error:
        found["error"] = str(error)
    return found


def read_nri(config):
    """Return C({socket, listening}): whether something takes NRI plugins.

    A plugin list says that NRI is well where it is switched off; who listens tells.

    :param config: C({socket_path}) of containerd's effective configuration.
    """
    socket = config.get("socket_path") or NRI_SOCKET
    return {"socket": socket, "listening": listener(socket) > 0}


def read_crio(socket=CRIO_SOCKET):
    """Return C({socket, version, error}) of CRI-O."""
    try:
        with CriClient(socket, timeout_s=CRI_TIMEOUT_S) as client:
            return {"socket": socket, "version": client.version()["runtime_version"], "error": ""}
    except CriError as error:
        return {"socket": socket, "version": "", "error": str(error)}
