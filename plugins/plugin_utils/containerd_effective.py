# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a containerd daemon makes of its configuration files: which registry table it reads, after imports.

Follows C(services/server/config/config.go) (1.x), C(cmd/containerd/server/config/config.go) (2.x) and
C(plugins/cri/images/plugin.go) of containerd at the tags named beside each rule.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from typing import Any

V1_CRI = "cri"
GRPC_CRI = "io.containerd.grpc.v1.cri"
IMAGES = "io.containerd.cri.v1.images"

# cmd/containerd: the list that 2.2 fills in by itself.
BUILT_IN_PATHS = "/etc/containerd/certs.d:/etc/docker/certs.d"


@dataclass(frozen=True)
class Daemon:
    """The rules of one daemon. C(version) is (major, minor, patch)."""

    version: tuple[int, int, int]

    @property
    def newest_config_version(self) -> int:
        return 2 if self.version < (2,) else 3 if self.version < (2, 3) else 4

    @property
    def merges_tables(self) -> bool:
        """2.0 merges the tables of imported files key by key; 1.x replaces the whole table of a plugin."""
        return self.version >= (2,)

    @property
    def migrates_each_file(self) -> bool:
        """From 2.3 every file is brought to the newest version before it is merged, so v1 and v3 files migrate too."""
        return self.version >= (2, 3)

    @property
    def refuses_newer_imports(self) -> bool:
        """2.3.0 to 2.3.4 do not start with an imported file of a higher version than the main one (#12891)."""
        return (2, 3) <= self.version < (2, 3, 5)

    @property
    def refuses_short_plugin_names(self) -> bool:
        """1.x takes only full plugin names from version 2 on (ValidateV2)."""
        return self.version < (2,)

    @property
    def reads_default_hosts(self) -> bool:
        """1.6.17 is the first that looks at C(_default) below the registry directory (config_unix.go)."""
        return self.version >= (1, 6, 17)

    @property
    def knows_referrers(self) -> bool:
        """Before 2.2 an unknown capability makes containerd refuse the whole hosts.toml (parseHostConfig)."""
        return self.version >= (2, 2)

    @property
    def has_nri(self) -> bool:
        return self.version >= (1, 7)

    @property
    def has_nri_validator(self) -> bool:
        """2.2 shows C(default_validator) in its defaults, 2.0 ignores it as unknown."""
        return self.version >= (2, 2)

    @property
    def refuses_bom(self) -> bool:
        return self.version >= (2,)

    @property
    def globs_from_parent(self) -> bool:
        """Before 1.6.29 and 1.7.16 a relative glob was looked up in the daemon's working directory."""
        return self.version >= (1, 6, 29) and not (1, 7) <= self.version < (1, 7, 16)

    @property
    def refuses_tls_beside_config_path(self) -> bool:
        return self.version < (2,)


def parse_version(text: str) -> Daemon | None:
    """Return the rules for a version as CRI and C(containerd --version) print it, None when there is none in it."""
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    return Daemon(tuple(map(int, match.groups()))) if match else None


@dataclass(frozen=True)
class Registry:
    """The registry settings that the daemon will use.

    config_path: "" when none. config_path_file: the file that decides it, "" for the daemon's own default.
    is_set: a file sets a config_path that is not empty. mirrors, tls: names that have an entry, with the file.
    version: configuration version after merging; 1 for files without one.
    """

    config_path: str
    config_path_file: str
    is_set: bool
    mirrors: dict[str, str]
    tls: dict[str, str]
    other: dict[str, Any]
    version: int


@dataclass(frozen=True)
class Leaf:
    """A value and the file that it comes from."""

    value: Any
    file: str


@dataclass
class _Merged:
    version: int = 0
    plugins: dict[str, Any] = field(default_factory=dict)


def effective_registry(files: list[tuple[str, dict]], daemon: Daemon) -> Registry:
    """Return what the daemon uses.

    :param files: parsed files with their paths in the order in which the daemon loads them: the main file, then its
        imports, then theirs.
    """
    merged = _merge_new(files) if daemon.migrates_each_file else _merge(files, daemon)
    plugin_id = _plugin_id(merged, daemon)
    registry = table_at(merged.plugins, plugin_id, "registry")
    path = registry.get("config_path")
    value, source = (path.value, path.file) if isinstance(path, Leaf) else (None, "")
    mirrors = {
        name: _file_of(tree) or _file_with(files, "mirrors", name)
        for name, tree in table_at(registry, "mirrors").items()
    }
    was_migrated = merged.version < 3 and GRPC_CRI in merged.plugins
    if not value and _fills_in(daemon, value, bool(mirrors), was_migrated):
        value, source = BUILT_IN_PATHS, ""
    return Registry(
        config_path=value or "",
        config_path_file=source,
        is_set=bool(value) and bool(source),
        mirrors=mirrors,
        tls={
            name: _file_of(tree["tls"]) or _file_with(files, "configs", name)
            for name, tree in table_at(registry, "configs").items()
            if isinstance(tree, dict) and "tls" in tree
        },
        other={key: _plain(value) for key, value in registry.items() if key != "config_path"},
        version=max(merged.version, 1),
    )


def _fills_in(daemon: Daemon, value: str | None, has_mirrors: bool, was_migrated: bool) -> bool:
    """Say whether 2.2 and later put their built-in directories in the place of an empty path.

    2.2.0 and 2.2.1 have them as the default of the key, whether there are mirrors or not, and also write them over an
    empty string while migrating an older file (migrateConfig at v2.2.1); from 2.2.2 only without mirrors.
    """
    if daemon.version < (2, 2):
        return False
    if daemon.version < (2, 2, 2):
        return value is None or was_migrated
    return not has_mirrors


def registry_tables(values: dict, daemon: Daemon, *, is_import: bool = False) -> list[tuple[str, ...]]:
    """Return the registry tables of a file that the daemon may read, the most likely one first.

    Which of them takes effect also depends on the other files: the caller tries them with effective_registry.
    """
    version = values.get("version", 0)
    if daemon.version < (2,):
        names = [V1_CRI if version < 2 else GRPC_CRI]
        if is_import:
            names = [GRPC_CRI, V1_CRI]  # the last file with a version decides for all
    elif is_import and not version:
        names = [GRPC_CRI, V1_CRI, IMAGES]
    elif version >= 4 or (version < 2 and not daemon.migrates_each_file):
        names = [IMAGES]
    elif version == 3:
        names = [IMAGES, GRPC_CRI] if daemon.migrates_each_file else [IMAGES]
    else:
        names = [GRPC_CRI if version == 2 else V1_CRI, IMAGES, GRPC_CRI]
    if daemon.version >= (2,) and version < 2:
        # A table under the other name than the one in use would make the file ambiguous.
        names = [name for name in names if name == IMAGES or _cri_names(values) in ([], [name])]
    # The old table comes first: where both exist it replaces the new one.
    in_use = [name for name in (GRPC_CRI, V1_CRI, IMAGES) if "registry" in table_at(values, "plugins", name)]
    ordered = [name for name in in_use if name in names] + names
    return [("plugins", name, "registry") for name in dict.fromkeys(ordered)]


def is_ambiguous(values: dict, daemon: Daemon) -> bool:
    """Say whether a file without a version names CRI in both ways, and a registry in one.

    2.x makes one plugin of both names, and keeps the table that Go's random order of a map brings last (v1Migrate).
    """
    has_registry = any("registry" in table_at(values, "plugins", name) for name in (V1_CRI, GRPC_CRI))
    return daemon.version >= (2,) and values.get("version", 0) < 2 and len(_cri_names(values)) > 1 and has_registry


def _cri_names(values: dict) -> list[str]:
    return [name for name in (V1_CRI, GRPC_CRI) if name in table_at(values, "plugins")]


def _plugin_id(merged: _Merged, daemon: Daemon) -> str:
    if daemon.version >= (2,):
        return IMAGES
    return V1_CRI if merged.version < 2 else GRPC_CRI


def _merge(files: list[tuple[str, dict]], daemon: Daemon) -> _Merged:
    """Merge as 1.x and 2.0 to 2.2 do: first merge, then migrate the result by its final version."""
    merged = _Merged()
    for path, parsed in files:
        version = parsed.get("version", 0)
        plugins = _leaves(parsed.get("plugins", {}), path)
        if not daemon.merges_tables:
            merged.version = version or merged.version
            merged.plugins.update(plugins)
            continue
        if version < 2:
            plugins = _rename_v1(plugins)
            # MigrateConfigTo(out.Version): the version that was reached so far, the newest one for the main file.
            version = merged.version or daemon.newest_config_version
        merged.version = version
        _deep_merge(merged.plugins, plugins)
    if daemon.merges_tables and merged.version < 3:
        _migrate_registry(merged.plugins)
    return merged


def _merge_new(files: list[tuple[str, dict]]) -> _Merged:
    """Merge as 2.3 and later do: each file is migrated to version 4 by itself, then merged."""
    merged = _Merged(version=files[0][1].get("version", 0))
    for path, parsed in files:
        plugins = _leaves(parsed.get("plugins", {}), path)
        version = parsed.get("version", 0)
        if version < 2:
            plugins = _rename_v1(plugins)
        if version < 4:
            _migrate_registry(plugins)
        _deep_merge(merged.plugins, plugins)
    return merged


def _rename_v1(plugins: dict) -> dict:
    return {GRPC_CRI if name == V1_CRI else name: value for name, value in plugins.items()}


def _migrate_registry(plugins: dict) -> None:
    """Replace the new registry table with the old one where that exists (migrateConfig in plugins/cri/images)."""
    old = table_at(plugins, GRPC_CRI)
    if "registry" in old:
        # A copy: a file that is merged later may change the old table, which nobody reads any more.
        plugins.setdefault(IMAGES, {})["registry"] = copy.deepcopy(old["registry"])


def _deep_merge(into: dict, new: dict) -> None:
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _deep_merge(into[key], value)
        else:
            into[key] = value


def _leaves(tree: Any, file: str) -> Any:
    if isinstance(tree, dict):
        return {key: _leaves(value, file) for key, value in tree.items()}
    return Leaf(tree, file)


def _plain(tree: Any) -> Any:
    return {key: _plain(value) for key, value in tree.items()} if isinstance(tree, dict) else tree.value


def _file_of(tree: Any) -> str:
    """Return the file of any leaf below."""
    if isinstance(tree, Leaf):
        return tree.file
    return next((found for value in tree.values() if (found := _file_of(value))), "")


def _file_with(files: list[tuple[str, dict]], key: str, name: str) -> str:
    """Return the last file that has a name below a key of a registry table, for tables without any value."""
    tables = [
        (path, table_at(values, "plugins", plugin, "registry", key))
        for path, values in reversed(files)
        for plugin in (V1_CRI, GRPC_CRI, IMAGES)
    ]
    return next((path for path, table in tables if name in table), files[0][0])


def table_at(tree: dict, *path: str) -> dict:
    """Return the table at a path, empty when it is absent or no table."""
    for name in path:
        tree = tree.get(name)
        if not isinstance(tree, dict):
            return {}
    return tree
