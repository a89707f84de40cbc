# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Any single setting of containerd's main file: where it goes, and whether it takes effect there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .containerd_edit import EditError, Value, apply_splices, dotted, is_same, remove_path, set_value, value_at
from .containerd_effective import GRPC_CRI, IMAGES, V1_CRI, Daemon, effective_registry
from .containerd_files import ConfigFile, read_config
from .containerd_hosts_option import kind_of
from .containerd_judge import Reason
from .containerd_tables import NRI, V1_NRI, Path, effective_value, mixed_import, read_path

# What options of their own manage, with the option; a setting at, above or below such a path is refused.
_MANAGED: dict[Path, str] = {
    **{("plugins", name, "registry", "config_path"): "registry_config_path" for name in (V1_CRI, GRPC_CRI, IMAGES)},
    **{("plugins", name, "registry", "mirrors"): "convert_mirrors" for name in (V1_CRI, GRPC_CRI, IMAGES)},
    **{("plugins", name, "disable"): "nri" for name in (V1_NRI, NRI)},
    ("plugins", NRI, "default_validator", "enable"): "nri_required_plugins",
}
# What would make the other values of the file mean something else.
_FIXED = ("version", "imports", "plugins")
_MAX_INT = 2**63


@dataclass(frozen=True)
class Setting:
    """A value at a path of the main file; None: nothing is to be there."""

    path: Path
    value: Value | None

    @property
    def name(self) -> str:
        return dotted(self.path)


def parse_settings(items: Any) -> list[Setting]:
    """Return the settings of the module's option.

    :raises ValueError: with one line that says which one is wrong, and why.
    """
    settings: list[Setting] = []
    if items is not None and not isinstance(items, list):
        raise ValueError(f"settings must be a list, got {kind_of(items)}")
    for number, item in enumerate(items or [], 1):
        try:
            setting = _parse(item)
            _check_managed(setting.path)
            inside = next((other for other in settings if _overlap(other.path, setting.path)), None)
            if inside:
                raise ValueError(f"{setting.name} and {inside.name} are the same, or one is inside of the other")
        except ValueError as error:
            raise ValueError(f"settings, item {number}: {error}") from None
        settings.append(setting)
    return settings


def _parse(item: Any) -> Setting:
    if not isinstance(item, dict) or (unknown := sorted(set(item) - {"table", "key", "value", "state"})):
        raise ValueError(
            f"expected table, key, value and state, got {unknown if isinstance(item, dict) else kind_of(item)}"
        )
    table, key, value, state = item.get("table", []), item.get("key"), item.get("value"), item.get("state", "present")
    if not isinstance(table, list) or not all(isinstance(name, str) and name for name in table):
        raise ValueError(f'table must be a list of names, such as ["plugins", "{GRPC_CRI}"], got {table!r}')
    if not isinstance(key, str) or not key:
        raise ValueError(f"key must be a name, got {key!r}")
    if state not in ("present", "absent"):
        raise ValueError(f"state must be present or absent, got {state!r}")
    if state == "absent":
        if value is not None:
            raise ValueError("state absent takes no value")
    elif isinstance(value, list):
        if not all(isinstance(entry, str) for entry in value):
            raise ValueError(
                f"value must be a list of strings, got {', '.join(sorted(set(map(kind_of, value))))} in it"
            )
    elif not isinstance(value, str | int) or (isinstance(value, int) and not -_MAX_INT <= value < _MAX_INT):
        raise ValueError(
            f"value must be a string, a whole number of 64 bits, true, false or a list of strings, got "
            f"{value if isinstance(value, int | float) else kind_of(value)}"
        )
    # Templates give strings, lists and numbers of types of their own, which know where they come from.
    return Setting((*map(str, table), str(key)), _plain(value))


def _plain(value: Any) -> Value | None:
    if isinstance(value, list):
        return [str(entry) for entry in value]
    if isinstance(value, bool) or value is None:
        return value
    return str(value) if isinstance(value, str) else int(value)


def _check_managed(path: Path) -> None:
    if path[0] in _FIXED and len(path) == 1:
        raise ValueError(f"{dotted(path)} decides what the rest of the file means and is no setting")
    option = next((option for managed, option in _MANAGED.items() if _overlap(managed, path)), None)
    if path[2:3] == ("registry",) and path[3:4] == ("configs",) and path[5:6] == ("tls",):
        option = "convert_mirrors"
    if option:
        raise ValueError(f"{dotted(path)} belongs to the option {option}: use that")


def _overlap(one: Path, other: Path) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def apply_settings(
    configs: list[ConfigFile], daemon: Daemon, settings: Iterable[Setting]
) -> tuple[list[ConfigFile], list[Reason]]:
    """Return the files with the settings in the main one, and why some of them cannot be there."""
    settings, reasons = list(settings), []
    for setting in settings:
        try:
            refusals = list(_judge_place(setting, configs, daemon))
            reasons += refusals
            if not refusals:
                configs = [_edited(setting, configs, daemon), *configs[1:]]
        except EditError as error:
            reasons.append(
                (
                    "containerd.setting_unsafe",
                    f"{configs[0].path}: {error}",
                    "a spelling that can be edited without touching anything else",
                    f"make {setting.name} what it shall be by hand",
                )
            )
    judges = (_judge_effect, _judge_runtime)
    return configs, reasons or [
        item for setting in settings for judge in judges for item in judge(setting, configs, daemon)
    ]


def naming_version(configs: list[ConfigFile], daemon: Daemon) -> int:
    """Return the version by which the plugins of the main file are named: 1.x takes that of the last file."""
    if daemon.version < (2,):
        return effective_registry([(config.path, config.values) for config in configs], daemon).version
    return max(configs[0].values.get("version", 0), 1)


def _judge_place(setting: Setting, configs: list[ConfigFile], daemon: Daemon) -> Iterator[Reason]:
    main, version = configs[0], naming_version(configs, daemon)
    right = read_path(setting.path, main, version, daemon)
    where = f"containerd {'.'.join(map(str, daemon.version))} with a file of version {version}"
    if right != setting.path:
        yield (
            "containerd.setting_ignored",
            f"{setting.name} in {main.path} is not read by {where}",
            f"the setting as {dotted(right)}",
            f"give table {list(right[:-1])} and key {right[-1]}",
        )
    elif version >= 2 and len(right) > 1 and right[0] == "plugins" and right[1].count(".") < 3:
        yield (
            "containerd.setting_ignored",
            f"plugins.{dotted(right[1:2])} is no full name of a plugin, as {where} needs it",
            f"a full name, such as {GRPC_CRI}",
            "take the name from containerd config default",
        )


def _edited(setting: Setting, configs: list[ConfigFile], daemon: Daemon) -> ConfigFile:
    main, path = configs[0], setting.path
    if setting.value is None:
        is_there = value_at(main.values, path) is not None
        splices = remove_path(main.text, path) if is_there else []
    elif is_same(effective_value(configs, daemon, path)[0], setting.value):
        splices = []
    else:
        splices = set_value(main.text, path[:-1], path[-1], setting.value)
    return read_config(main.path, apply_splices(main.text, splices).encode(), daemon) if splices else main


def _judge_effect(setting: Setting, configs: list[ConfigFile], daemon: Daemon) -> Iterator[Reason]:
    """Refuse a setting that an imported file takes the effect from."""
    value, place = effective_value(configs, daemon, setting.path)
    mixed = mixed_import(configs, daemon, setting.path)
    if is_same(value, setting.value) and not mixed:
        return
    if mixed:
        observed = f"{mixed} is of another version than {configs[0].path} and replaces its CRI tables"
    elif value is None:
        observed = f"{place} is loaded later and replaces the whole table of {dotted(setting.path[:2])}"
    else:
        observed = f"{setting.name} is also set at {place}, which wins over the main file"
    yield (
        "containerd.setting_overridden",
        observed,
        f"{setting.name} as the settings say",
        f"make the change at {mixed or place}, or take its table out",
    )


def _judge_runtime(setting: Setting, configs: list[ConfigFile], daemon: Daemon) -> Iterator[Reason]:
    """Refuse a runtime without a type: pods do not start with it (containerd#6964).

    A table of the file replaces a default one whole, up to 1.7 also that of runc.
    """
    if setting.value is None or len(setting.path) < 6 or setting.path[2:4] != ("containerd", "runtimes"):
        return
    path, name = (*setting.path[:5], "runtime_type"), setting.path[4]
    if effective_value(configs, daemon, path)[0] is None and (daemon.version < (2,) or name != "runc"):
        yield (
            "containerd.setting_incomplete",
            f"{setting.name} makes a table of the runtime {name!r} without runtime_type, in {configs[0].path}",
            "a runtime_type for each runtime that the file names",
            f'add to settings: table {list(path[:-1])}, key runtime_type, such as "io.containerd.runc.v2"',
        )
