# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The few keys that checks need out of C(containerd config dump).

The dump is written by one encoder: a table header, a key or a value per line, so it is read line by line, and what a
wrapper prints around it does no harm. A user's own config.toml is never read like this: plugin_utils does that on the
controller.
"""

from __future__ import annotations

from .containerd_toml import ScanError, decode_string, scan, strings_in

# Where each line keeps the registry settings. Source: containerd docs/cri/registry.md of 1.7 and 2.0.
REGISTRY_TABLES = (
    ("plugins", "io.containerd.cri.v1.images", "registry"),
    ("plugins", "io.containerd.grpc.v1.cri", "registry"),
    ("plugins", "cri", "registry"),
)


# What the CRI plugin says of runtimes and CNI, and NRI's own table.
RUNTIME_PLUGINS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
NRI_TABLE = ("plugins", "io.containerd.nri.v1.nri")


def parse_dump(text):
    """Read a dump.

    :returns: C({version, address, config_path, mirrors, tls, cni, nri, systemd_cgroup, default_runtime}): the
        configuration version (int, None when absent), the socket of the API, the registry C(config_path) of the table
        that the daemon reads, the names under C(registry.mirrors), the endpoints with C(registry.configs.*.tls);
        C(cni) as C({conf_dir, bin_dirs}) and C(nri) as C({socket_path}), with what is said; C(systemd_cgroup) as
        C({runtime: bool}) of those that have the option, and the name of the runtime that pods get.
    """
    found = {"version": None, "address": "", "config_path": "", "mirrors": [], "tls": []}
    found.update({"cni": {}, "nri": {}, "systemd_cgroup": {}, "default_runtime": ""})
    by_table = {}
    table = ()
    for line in text.splitlines():
        try:
            document = scan(line)
        except ScanError:  # a part of a value that spans lines, or what is no part of the dump
            continue
        for header in document.headers:
            table = header.path
            _note_registry_table(found, table)
        for entry in document.entries[:1]:
            key, value = entry.path, document.value(entry)
            if not table and key == ("version",):
                found["version"] = int(value)
            elif table == ("grpc",) and key == ("address",):
                found["address"] = _string(value)
            elif table in REGISTRY_TABLES and key == ("config_path",):
                by_table[table] = _string(value)
            elif table == NRI_TABLE and key == ("socket_path",):
                found["nri"]["socket_path"] = _string(value)
            elif table[:1] == ("plugins",) and table[1:2] and table[1] in RUNTIME_PLUGINS:
                _note_runtime(found, table[2:], key[-1], value)
    found["config_path"] = next((by_table[name] for name in REGISTRY_TABLES if name in by_table), "")
    return found


def _note_runtime(found, table, key, value):
    """Remember what a table below the CRI plugin says of CNI and of cgroups."""
    if table == ("cni",):
        if key == "conf_dir":
            found["cni"][key] = _string(value)
        elif key in ("bin_dir", "bin_dirs"):
            names = strings_in(value) if key == "bin_dirs" else [_string(value)]
            found["cni"]["bin_dirs"] = [name for name in names or [] if name] or found["cni"].get("bin_dirs", [])
    elif table == ("containerd",) and key == "default_runtime_name":
        found["default_runtime"] = _string(value)
    elif table[:2] == ("containerd", "runtimes") and table[3:] == ("options",) and key == "SystemdCgroup":
        found["systemd_cgroup"][table[2]] = value.strip() == "true"


def _string(source):
    """The value of a string, empty for any other value."""
    return decode_string(source) if source[0] in "\"'" else ""


def _note_registry_table(found, table):
    """Remember a mirror or a TLS table by its header."""
    if table[:3] not in REGISTRY_TABLES:
        return
    if len(table) == 5 and table[3] == "mirrors":
        found["mirrors"].append(table[4])
    elif len(table) == 6 and table[3] == "configs" and table[5] == "tls":
        found["tls"].append(table[4])
