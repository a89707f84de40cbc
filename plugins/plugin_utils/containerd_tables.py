# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a daemon reads one setting: the tables of the CRI plugin by configuration version, and imports that win.

The keys of each table are those that C(containerd config default) prints on 1.7 and 2.2; what moves where was measured
with C(config dump) on 1.7, 2.0, 2.2, 2.3 and 2.4.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .containerd_edit import EditError, value_at
from .containerd_effective import GRPC_CRI, IMAGES, V1_CRI, Daemon
from .containerd_files import ConfigFile

RUNTIME = "io.containerd.cri.v1.runtime"
NRI = "io.containerd.nri.v1.nri"
V1_NRI = "nri"
CRI_PLUGINS = (V1_CRI, GRPC_CRI, IMAGES, RUNTIME)

Path = tuple[str, ...]

_FULL_NAME = re.compile(r"io\.containerd\.[\w.-]+?\.v\d+\.(.+)")
_STREAMING = frozenset(
    (
        "disable_tcp_service",
        "stream_server_address",
        "stream_server_port",
        "stream_idle_timeout",
        "enable_tls_streaming",
        "x509_key_pair_streaming",
    )
)
_OF_IMAGES = frozenset(
    (
        "registry",
        "image_decryption",
        "max_concurrent_downloads",
        "image_pull_progress_timeout",
        "image_pull_with_sync_fs",
        "stats_collect_period",
    )
)
# Keys that got another place in the table of images.
_RENAMED = {
    ("containerd", "snapshotter"): ("snapshotter",),
    ("containerd", "disable_snapshot_annotations"): ("disable_snapshot_annotations",),
    ("containerd", "discard_unpacked_layers"): ("discard_unpacked_layers",),
    ("sandbox_image",): ("pinned_images", "sandbox"),
}
# Measured on 2.0, 2.2, 2.3 and 2.4: no migration brings these to the table of images, the daemon's default is used.
_NOT_MIGRATED = tuple(keys for keys in _RENAMED if keys[0] == "containerd")
_RENAMED_BACK = {new: old for old, new in _RENAMED.items()}
# Tables of the root that version 4 made plugins; it ignores the old ones without a word.
_SERVERS = ("grpc", "ttrpc", "metrics")


def read_path(path: Path, main: ConfigFile, version: int, daemon: Daemon) -> Path:
    """Return the path under which the daemon reads a setting of its main file: the given one when it reads that.

    :param version: the configuration version that decides how plugins are named.
    """
    if version >= 4 and path[0] in _SERVERS:
        return ("plugins", f"io.containerd.server.v1.{path[0]}", *path[1:])
    if path[0] != "plugins" or len(path) < 2:
        return path
    if path[1] in CRI_PLUGINS:
        return _cri_path(path, main, version, daemon)
    name = path[1]
    if daemon.version < (2,) and version < 2:
        match = _FULL_NAME.fullmatch(name)
        name = match.group(1) if match else name
    elif name == V1_NRI:
        # 2.x takes the short name of a version 1 file for io.containerd.grpc.v1.nri, which nobody reads.
        name = NRI
    return ("plugins", name, *path[2:])


def effective_value(configs: Sequence[ConfigFile], daemon: Daemon, path: Path) -> tuple[Any, str]:
    """Return what the daemon uses for a setting, None for its own default, and the place that decides.

    1.x replaces a plugin's whole table with that of an imported file; 2.x merges values. Arrays are joined, and outside
    of plugins an empty value of an import does not count (mergo, in mergeConfig).

    :raises EditError: a file has something that is no table on the way.
    """
    value, place = None, ""
    main_version = configs[0].values.get("version", 0)
    for at, config in enumerate(configs):
        found, where = _find(config, _spellings(path, config, main_version, daemon))
        if at and path[0] != "plugins" and not found:
            continue
        replaces = _replaces_table(config, path, daemon)
        if found is None:
            value, place = (None, config.place(*path[:2])) if replaces else (value, place)
        elif isinstance(value, list) and isinstance(found, list) and not replaces:
            value, place = value + [item for item in found if item not in value], config.place(*where)
        else:
            value, place = found, config.place(*where)
    return value, place


def mixed_import(configs: Sequence[ConfigFile], daemon: Daemon, path: Path) -> str:
    """Return the import of another version whose CRI tables replace those of the main file on 2.x, "" without one."""
    if daemon.version < (2,) or len(path) < 2 or path[1] not in CRI_PLUGINS:
        return ""
    main = configs[0].values.get("version", 0)
    for config in configs[1:]:
        has_cri = any(name in CRI_PLUGINS for name in config.values.get("plugins", {}))
        if has_cri and config.values.get("version", 0) not in (0, main):
            return config.path
    return ""


def _find(config: ConfigFile, paths: Sequence[Path]) -> tuple[Any, Path]:
    found = ((value_at(config.values, path), path) for path in paths)
    return next(((value, path) for value, path in found if value is not None), (None, ()))


def _spellings(path: Path, config: ConfigFile, main_version: int, daemon: Daemon) -> Sequence[Path]:
    """Return the paths by which the daemon reads a setting of one file, the one that wins first."""
    if daemon.version < (2,) or path[0] != "plugins" or len(path) < 2 or path[1] not in CRI_PLUGINS:
        return [path]
    version, old = config.values.get("version", 0), _old_keys(path)
    if old in _NOT_MIGRATED:
        names = []
    elif not daemon.migrates_each_file:
        # Up to 2.2 what was merged is migrated, by the version of the last file that has one.
        names = [GRPC_CRI] if (version or main_version) == 2 else []
    else:
        names = [] if version >= 4 else [GRPC_CRI] if version >= 2 else [V1_CRI, GRPC_CRI]
    return [*(("plugins", name, *old) for name in names), _new_path(path)]


def _replaces_table(config: ConfigFile, path: Path, daemon: Daemon) -> bool:
    if path[0] in ("stream_processors", "proxy_plugins") or (path[0] == "plugins" and daemon.version < (2,)):
        return len(path) > 1 and path[1] in config.values.get(path[0], {})
    return False


def _cri_path(path: Path, main: ConfigFile, version: int, daemon: Daemon) -> Path:
    new, old_keys = _new_path(path), _old_keys(path)
    if daemon.version < (2,):
        return ("plugins", V1_CRI if version < 2 else GRPC_CRI, *old_keys)
    if version >= 3 or (version < 2 and not daemon.migrates_each_file) or old_keys in _NOT_MIGRATED:
        return new
    # The old table is migrated, and replaces the new one where both are there.
    names = (GRPC_CRI,) if version == 2 else (V1_CRI, GRPC_CRI)
    # Both of these in one file become one table, of which either may be left.
    names = tuple(name for name in names if name in main.values.get("plugins", {})) or names
    in_use = [name for name in names if _has(main, ("plugins", name, *old_keys))]
    if path == new and new[1] != GRPC_CRI:
        return ("plugins", in_use[0], *old_keys) if in_use else new
    if _has(main, new) and not in_use:
        return new
    return ("plugins", path[1] if path[1] in names else names[0], *old_keys)


def _has(config: ConfigFile, path: Path) -> bool:
    """Say whether a file has the key of a plugin's table that a path leads through."""
    try:
        return value_at(config.values, path[:3]) is not None
    except EditError:
        return False


def _old_keys(path: Path) -> Path:
    """Return the keys below the one CRI table of 1.x."""
    if path[1] != IMAGES:
        return path[2:]
    return next(
        (old + path[2 + len(new) :] for new, old in _RENAMED_BACK.items() if path[2:][: len(new)] == new), path[2:]
    )


def _new_path(path: Path) -> Path:
    """Return the path in a file of version 3 or newer."""
    keys = path[2:]
    if path[1] in (IMAGES, RUNTIME) or not keys or keys[0] in _STREAMING:
        return ("plugins", path[1] if path[1] != V1_CRI else GRPC_CRI, *keys)
    for old, new in _RENAMED.items():
        if keys[: len(old)] == old:
            return ("plugins", IMAGES, *new, *keys[len(old) :])
    return ("plugins", IMAGES if keys[0] in _OF_IMAGES else RUNTIME, *keys)
