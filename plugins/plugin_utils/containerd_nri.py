# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Node Resource Interface of containerd: whether it is on, and the settings that switch it.

Its names and defaults are those that C(config dump) of 1.7, 2.0, 2.2, 2.3 and 2.4 shows; 1.6 has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .containerd_effective import Daemon
from .containerd_files import ConfigFile
from .containerd_judge import Reason
from .containerd_settings import Setting, naming_version
from .containerd_tables import NRI, V1_NRI, Path, effective_value

ENABLED, DISABLED, UNCHANGED, UNSUPPORTED = "enabled", "disabled", "unchanged", "unsupported"
_DISABLED_PLUGINS = ("disabled_plugins",)
_VALIDATOR = ("plugins", NRI, "default_validator", "enable")


def check_nri(nri: str, required_plugins: bool, settings: Iterable[Setting]) -> str:
    """Return why the options contradict each other, empty when they do not."""
    if required_plugins and nri != ENABLED:
        return f"nri_required_plugins needs nri: enabled, got nri: {nri}"
    for setting in settings:
        if nri == ENABLED and setting.path == _DISABLED_PLUGINS and {NRI, V1_NRI} & set(_strings(setting.value)):
            return "settings put NRI into disabled_plugins, but nri is enabled: leave one of them out"
    return ""


def nri_state(configs: list[ConfigFile], daemon: Daemon) -> dict:
    """Return C(state) of NRI, and whether its default validator is on: without that, required plugins are ignored."""
    if not daemon.has_nri:
        return {"state": UNSUPPORTED, "default_validator": False}
    name = _name(configs, daemon)
    is_off = _is_switched_off(configs, daemon, name) or any(name in _disabled_in(config) for config in configs)
    validator = daemon.has_nri_validator and bool(effective_value(configs, daemon, _VALIDATOR)[0])
    return {"state": DISABLED if is_off else ENABLED, "default_validator": validator}


def plan_nri(
    configs: list[ConfigFile], daemon: Daemon, nri: str, required_plugins: bool
) -> tuple[list[Setting], list[Reason]]:
    """Return the settings that make NRI what is wanted, none when it is so, and why that cannot be done."""
    state = nri_state(configs, daemon)
    if nri == UNCHANGED or (nri == DISABLED and state["state"] != ENABLED):
        return [], []
    text = ".".join(map(str, daemon.version))
    if not daemon.has_nri:
        reason = f"containerd {text} has no NRI", "containerd 1.7 or newer", "upgrade containerd, or leave nri out"
        return [], [("containerd.nri_unsupported", *reason)]
    if required_plugins and not daemon.has_nri_validator:
        reason = f"containerd {text} has no default validator of NRI plugins", "containerd 2.2 or newer"
        return [], [("containerd.nri_validator_unsupported", *reason, "upgrade it, or leave nri_required_plugins out")]
    name = _name(configs, daemon)
    is_off = _is_switched_off(configs, daemon, name)
    settings = [] if is_off == (nri == DISABLED) else [Setting(_switch(name), nri == DISABLED)]
    if nri == DISABLED:
        return settings, []
    if required_plugins and not state["default_validator"]:
        settings.append(Setting(_VALIDATOR, True))
    reasons = list(_judge_disabled(configs, name))
    if not reasons and name in _disabled_in(configs[0]):
        settings.append(Setting(_DISABLED_PLUGINS, [item for item in _disabled_in(configs[0]) if item != name]))
    return settings, reasons


def _judge_disabled(configs: list[ConfigFile], name: str) -> Iterator[Reason]:
    """Refuse to take NRI out of an array that has comments or several lines, or that imports add to."""
    main, *imports = configs
    holder = next((config for config in imports if name in _disabled_in(config)), None)
    if holder is None and name in _disabled_in(main):
        joined = any(_disabled_in(config) for config in imports)
        holder = main if joined or not main.is_one_line(_DISABLED_PLUGINS[0]) else None
    if holder:
        yield (
            "containerd.nri_disabled",
            f"{holder.place(*_DISABLED_PLUGINS)}: {name!r} in disabled_plugins",
            "NRI enabled",
            f"remove {name!r} from disabled_plugins there",
        )


def _name(configs: list[ConfigFile], daemon: Daemon) -> str:
    """Return what NRI is called: the short name counts only in files of version 1, and only on 1.x."""
    return V1_NRI if daemon.version < (2,) and naming_version(configs, daemon) < 2 else NRI


def _is_switched_off(configs: list[ConfigFile], daemon: Daemon, name: str) -> bool:
    """1.7 has NRI off by default, 2.x on."""
    value = effective_value(configs, daemon, _switch(name))[0]
    return daemon.version < (2,) if value is None else bool(value)


def _switch(name: str) -> Path:
    return ("plugins", name, "disable")


def _disabled_in(config: ConfigFile) -> list[str]:
    return config.values.get("disabled_plugins", [])


def _strings(value: object) -> list[str]:
    return value if isinstance(value, list) else []
