# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations that a containerd does not start with, or that leave it without CRI: the reasons not to edit them.

A reason is C((finding id, observed, expected, remedy)).
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping

from .containerd_effective import GRPC_CRI, IMAGES, V1_CRI, Daemon, Registry, is_ambiguous, registry_tables, table_at
from .containerd_files import ConfigFile

Reason = tuple[str, str, str, str]


def judge_imports(files: Mapping[str, bytes | None]) -> Iterator[Reason]:
    """Refuse imports that do not exist; the first file is the main one, which may be absent."""
    main, *imports = files
    for path in imports:
        if files[path] is None:
            yield (
                "containerd.import_missing",
                f"{path} is imported by {main}, or by a file that it imports, and does not exist",
                "every import without a wildcard to exist, else containerd does not start again",
                f"create {path}, or remove it from imports",
            )


def judge_configs(configs: list[ConfigFile], registry: Registry, daemon: Daemon) -> Iterator[Reason]:
    """Refuse what this daemon does not take. C(registry) is what it makes of the files."""
    main_version = configs[0].values.get("version", 0)
    for at, config in enumerate(configs):
        yield from _judge_version(config, main_version, daemon)
        yield from _judge_plugins(config, registry.version, daemon)
        yield from _judge_registry(config, daemon, is_import=at > 0)


def _judge_registry(config: ConfigFile, daemon: Daemon, *, is_import: bool) -> Iterator[Reason]:
    """Refuse registry values of a type that the CRI plugin does not decode, and two tables of which one is read."""
    if is_ambiguous(config.values, daemon) and (is_import or daemon.migrates_each_file):
        yield (
            "containerd.config_ambiguous",
            f"{config.place('plugins', V1_CRI)}: plugins.{V1_CRI}, and {config.place('plugins', GRPC_CRI)}: "
            f'plugins."{GRPC_CRI}", in a file without a version',
            "one of them: containerd takes either, another one at each start",
            f'put version = 2 at the top and rename plugins.{V1_CRI} to plugins."{GRPC_CRI}"',
        )
    for table in registry_tables(config.values, daemon, is_import=is_import):
        for key, value in table_at(config.values, *table).items():
            is_table = isinstance(value, dict) and all(isinstance(item, dict) for item in value.values())
            if key == "config_path" and not isinstance(value, str):
                wanted = "a directory as a string"
            elif key in ("mirrors", "configs") and not is_table:
                wanted = f"a table with a table for each name below registry.{key}"
            else:
                continue
            yield (
                "containerd.config_invalid",
                f"{config.place(*table, key)}: registry.{key} is {reprlib.repr(value)}",
                wanted,
                "correct it; the CRI plugin does not load with it",
            )


def _judge_version(config: ConfigFile, main_version: int, daemon: Daemon) -> Iterator[Reason]:
    version, newest = config.values.get("version", 0), daemon.newest_config_version
    daemon_text = ".".join(map(str, daemon.version))
    if version > newest:
        yield (
            "containerd.config_version",
            f"{config.place('version')}: version = {version}",
            f"version = {newest} or older for containerd {daemon_text}",
            f"write the file for version {newest}, or run a containerd that reads version {version}",
        )
    elif daemon.refuses_newer_imports and version > main_version > 0:
        yield (
            "containerd.import_version",
            f"{config.place('version')}: version = {version}, above the main file's {main_version}",
            f"no imported file newer than the main one: containerd {daemon_text} refuses to start",
            f"set version = {version} in the main file after migrating its tables",
        )


def _judge_plugins(config: ConfigFile, version: int, daemon: Daemon) -> Iterator[Reason]:
    """C(version): the one that the daemon arrives at after merging."""
    for plugin in config.values.get("disabled_plugins", []):
        if plugin in (V1_CRI, GRPC_CRI, IMAGES):
            yield (
                "containerd.cri_disabled",
                f"{config.place('disabled_plugins')}: {plugin!r} in disabled_plugins",
                "the CRI plugin enabled, since kubelet needs it and registry settings are its own",
                f"remove {plugin!r} from disabled_plugins and restart containerd",
            )
    for plugin in config.values.get("plugins", {}):
        if daemon.refuses_short_plugin_names and version >= 2 and plugin.count(".") < 3:
            yield (
                "containerd.config_invalid",
                f"{config.place('plugins', plugin)}: plugins.{plugin}, a name of version 1",
                f"full names such as {GRPC_CRI} in version {version}",
                f"rename the table; containerd {'.'.join(map(str, daemon.version))} does not start with it",
            )
