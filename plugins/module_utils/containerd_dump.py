# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The few keys that checks need out of C(containerd config dump).

The dump is written by one encoder: a table header, a key or a value per line, keys and strings quoted one way. That
makes it readable without a TOML parser, which Python on nodes has only from 3.11. A user's own config.toml is never
read like this: plugin_utils does that on the controller.
"""

from __future__ import annotations

import json
import re

# Where each line keeps the registry settings. Source: containerd docs/cri/registry.md of 1.7 and 2.0.
REGISTRY_TABLES = (
    ("plugins", "io.containerd.cri.v1.images", "registry"),
    ("plugins", "io.containerd.grpc.v1.cri", "registry"),
    ("plugins", "cri", "registry"),
)
_KEY = re.compile(r"""\s*(?:'([^']*)'|"((?:[^"\\]|\\.)*)"|([A-Za-z0-9_-]+))\s*(?:\.|$)""")


def split_key(text):
    """The parts of a dotted TOML key, quotes removed: C(plugins."a.b".registry) -> C((plugins, a.b, registry))."""
    parts, position = [], 0
    while position < len(text):
        match = _KEY.match(text, position)
        if not match:
            return ()
        parts.append(next(group for group in match.groups() if group is not None))
        position = match.end()
    return tuple(parts)


def read_string(text):
    """The value of a one-line TOML string, or None when it is something else."""
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1]
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, str) else None


def parse_dump(text):
    """Read a dump.

    :returns: C({version, address, config_path, mirrors, tls}): the configuration version (int, None when absent),
        the socket of the API, the registry C(config_path) of the table that the daemon reads, the names under
        C(registry.mirrors), the endpoints with C(registry.configs.*.tls).
    """
    found = {"version": None, "address": "", "config_path": "", "mirrors": [], "tls": []}
    by_table = {}
    table = ()
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            table = split_key(line.strip("[]").strip())
            _note_registry_table(found, table)
            continue
        key, separator, value = line.partition("=")
        if not separator:
            continue
        key = key.strip()
        if not table and key == "version":
            found["version"] = int(value)
        elif key == "address" and table == ("grpc",):
            found["address"] = read_string(value) or ""
        elif key == "config_path" and table in REGISTRY_TABLES:
            by_table[table] = read_string(value) or ""
    found["config_path"] = next((by_table[name] for name in REGISTRY_TABLES if name in by_table), "")
    return found


def _note_registry_table(found, table):
    """Remember a mirror or a TLS table by its header."""
    if table[:3] not in REGISTRY_TABLES:
        return
    if len(table) == 5 and table[3] == "mirrors":
        found["mirrors"].append(table[4])
    elif len(table) == 6 and table[3] == "configs" and table[5] == "tls":
        found["tls"].append(table[4])
