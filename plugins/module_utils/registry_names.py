# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names that containerd gives the directories and files of its registries; both halves of a module use them."""

from __future__ import annotations

# The directory of the requirement text's example: what is written where no file sets one.
DEFAULT_DIRECTORY = "/etc/containerd/certs.d"
FILE_NAME = "hosts.toml"
DEFAULT_NAMESPACE = "_default"


def directory_names(registry):
    """Return the directories of a registry in the order in which containerd looks (hostPaths of config_unix.go)."""
    host, colon, port = registry.rpartition(":")
    return [f"{host}_{port}_", registry] if colon else [registry]
