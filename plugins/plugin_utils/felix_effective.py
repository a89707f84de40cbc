# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Felix's effective configuration on one node: each setting's value, where it comes from, and what it overrides.

Environment variables beat /etc/calico/felix.cfg, which beats the FelixConfiguration node.NAME, then one with a
nodeSelector (3.32), then C(default), then the value built in. Felix parses the overridden values too, so that a fatal
one is fatal wherever it stands. Source: projectcalico/calico, felix/config/config_params.go, resolve().
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_selector import SelectorError, selector_matches
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_file import PATH, FelixFileError, parse_felix_file
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_object import object_values
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import (
    BY_CONFIG,
    DIE,
    LOCAL,
    NON_ZERO,
    PARAMETERS,
    BadValueError,
    Parameter,
    Value,
    Version,
)

ENVIRONMENT, FILE, NODE, SELECTOR, DEFAULT, BUILT_IN = (
    "environment",
    "file",
    "node",
    "selector",
    "default",
    "built-in",
)
_OBJECTS = {NODE, SELECTOR, DEFAULT}
# Selector-scoped objects came with 3.32; before, their name makes Felix ignore them.
SELECTOR_SINCE = (3, 32)
# The bits of the eBPF programs, which the mask has to cover. Source: felix/dataplane/driver.go, felix/bpf/tc/defs.
BPF_MARKS = 0x1FF00000


@dataclass(frozen=True)
class EnvValue:
    """An environment variable of the calico-node container. value: None when only known to be set."""

    value: str | None
    origin: str


@dataclass(frozen=True)
class Occurrence:
    """A value in one place. raw: as Felix receives it, None when not known; why: for one without effect, the reason."""

    source: str
    origin: str
    name: str
    raw: str | None
    why: str = ""


@dataclass(frozen=True)
class Setting:
    """A parameter's effective value, durations in seconds.

    value: None when not known or without a value. source: environment, file, node, selector, default or built-in.
    problem: what is wrong with the value that won. shadowed: values of lower places, which have no effect.
    """

    name: str
    value: Value
    source: str
    origin: str = ""
    raw: str | None = None
    problem: str = ""
    shadowed: tuple[Occurrence, ...] = ()


@dataclass(frozen=True)
class Effective:
    """What Felix runs with on a node.

    settings: by the name in a FelixConfiguration, every parameter of that version and what is set beside them.
    fatal: why Felix does not start; empty when it does. without_effect: values that Felix or the API server ignores.
    """

    settings: dict[str, Setting]
    fatal: tuple[str, ...] = ()
    without_effect: tuple[Occurrence, ...] = ()

    def value(self, name: str) -> Value:
        """The effective value of a parameter, None when this version does not have it."""
        return self.settings[name].value if name in self.settings else None

    def overrides(self) -> list[Setting]:
        """The settings whose value in a lower place has no effect."""
        return [setting for setting in self.settings.values() if setting.shadowed]


def effective(
    version: Version | None,
    *,
    environment: Mapping[str, EnvValue] | None = None,
    file_text: str = "",
    objects: Iterable[dict] = (),
    node: str = "",
    labels: Mapping[str, str] | None = None,
) -> Effective:
    """Compute Felix's configuration on a node.

    :param version: of Calico, None when not known.
    :param environment: of the calico-node container, any names.
    :param file_text: content of /etc/calico/felix.cfg as that container sees it.
    :param objects: FelixConfiguration objects of the cluster, or of a manifest.
    :param labels: of the node, None when not known: objects with a nodeSelector are then named, not applied.
    """
    fatal, ignored, found = [], [], _from_environment(environment or {})
    try:
        found += [Occurrence(FILE, PATH, name, raw) for name, raw in parse_felix_file(file_text).items()]
    except FelixFileError as error:
        fatal.append(f"{PATH}: {error}; Felix does not start")
    for source, item in _objects(version, list(objects), node, labels, ignored):
        name = f"FelixConfiguration {item['metadata'].get('name', '')}"
        values, refused = object_values(item)
        found += [Occurrence(source, name, key, raw) for key, raw in values.items()]
        ignored += [Occurrence(source, name, key, None, why) for key, why in refused.items()]
    grouped: dict[str, list[Occurrence]] = {}
    for occurrence in found:
        why = _without_effect(occurrence, version)
        if why:
            ignored.append(Occurrence(occurrence.source, occurrence.origin, occurrence.name, occurrence.raw, why))
        else:
            grouped.setdefault(_canonical(occurrence.name), []).append(occurrence)
    settings = {
        parameter.name: _built_in(parameter, version)
        for parameter in PARAMETERS.values()
        if parameter.exists(version) and parameter.name not in grouped
    }
    for name, occurrences in grouped.items():
        settings[name] = _resolve(name, occurrences, version, fatal)
    return Effective(dict(sorted(settings.items())), tuple(fatal + _contradictions(settings)), tuple(ignored))


def _from_environment(environment: Mapping[str, EnvValue]) -> list[Occurrence]:
    return [
        Occurrence(ENVIRONMENT, item.origin or "environment", key[len("FELIX_") :], item.value)
        for key, item in environment.items()
        if key.lower().startswith("felix_")
    ]


def _canonical(name: str) -> str:
    parameter = BY_CONFIG.get(name.lower())
    return parameter.name if parameter else name.lower()


def _without_effect(occurrence: Occurrence, version: Version | None) -> str:
    """Why Felix skips a value; "" when it takes it."""
    parameter = BY_CONFIG.get(occurrence.name.lower())
    if occurrence.raw == "":
        return "is empty, and Felix ignores an empty value"
    if parameter is None:
        squeezed = occurrence.name.replace("_", "").replace("-", "").lower()
        near = BY_CONFIG.get(squeezed) or next(
            (item for item in PARAMETERS.values() if item.name.lower() == squeezed), None
        )
        if near:
            return f"is no parameter of Felix; it is spelt {near.environment} or {near.config}"
        return ""
    if LOCAL in parameter.flags and occurrence.source in _OBJECTS:
        return "is taken from the environment and the file only"
    if not parameter.exists(version):
        return f"is no parameter of Calico {version[0]}.{version[1]}"
    return ""


def _objects(
    version: Version | None, objects: list[dict], node: str, labels: Mapping[str, str] | None, ignored: list[Occurrence]
) -> list[tuple[str, dict]]:
    """The objects that concern the node, the strongest first, with their place; others are named in ignored."""
    ranked: dict[str, list[dict]] = {NODE: [], SELECTOR: [], DEFAULT: []}
    for item in ({**each, "metadata": each.get("metadata") or {}} for each in objects):
        name = item["metadata"].get("name", "")
        if name == "default":
            ranked[DEFAULT] = [item]
        elif name.startswith("node."):
            if node and name == f"node.{node}":
                ranked[NODE] = [item]
        elif why := _selector_misses(item, version, labels):
            ignored.append(Occurrence(SELECTOR, f"FelixConfiguration {name}", "nodeSelector", None, why))
        else:
            ranked[SELECTOR].append(item)
    # Felix takes the oldest of several that match.
    ranked[SELECTOR] = sorted(ranked[SELECTOR], key=lambda item: str(item["metadata"].get("creationTimestamp")))[:1]
    return [(source, item) for source, items in ranked.items() for item in items]


def _selector_misses(item: dict, version: Version | None, labels: Mapping[str, str] | None) -> str:
    selector = (item.get("spec") or {}).get("nodeSelector")
    if version is not None and version < SELECTOR_SINCE:
        return "its name is neither default nor node.NAME: this version of Felix does not read it"
    if not selector:
        return "its name is neither default nor node.NAME and it has no nodeSelector: Felix does not read it"
    if labels is None:
        return f"its nodeSelector {selector!r} cannot be judged without the node's labels"
    try:
        return "" if selector_matches(selector, labels) else f"its nodeSelector {selector!r} does not match the node"
    except SelectorError as error:
        return str(error)


def _built_in(parameter: Parameter, version: Version | None) -> Setting:
    value, known = parameter.default(version)
    return Setting(parameter.name, value, BUILT_IN, problem="" if known else "the built-in value is not known")


def _resolve(name: str, occurrences: list[Occurrence], version: Version | None, fatal: list[str]) -> Setting:
    first, *shadowed = occurrences
    parameter = PARAMETERS.get(name)
    if parameter is None:
        return Setting(name, first.raw, first.source, first.origin, first.raw, "is not judged", tuple(shadowed))
    value, problem = _judge(parameter, first, version, fatal)
    for occurrence in shadowed:
        _judge(parameter, occurrence, version, fatal)
    return Setting(name, value, first.source, first.origin, first.raw, problem, tuple(shadowed))


def _judge(
    parameter: Parameter, occurrence: Occurrence, version: Version | None, fatal: list[str]
) -> tuple[Value, str]:
    """The value of one occurrence and what is wrong with it; what stops Felix is added to fatal."""
    if occurrence.raw is None:
        return None, "its value is not known"
    if occurrence.source in _OBJECTS and _crashes(parameter, occurrence.raw, version):
        fatal.append(f"iptablesBackend {occurrence.raw} in {occurrence.origin} crashes calico-node up to 3.24")
    try:
        return parameter.parse(occurrence.raw, version), ""
    except BadValueError as error:
        bad = f"{occurrence.raw!r} {error}"
        if DIE in parameter.flags or (occurrence.raw.lower() == "none" and NON_ZERO in parameter.flags):
            fatal.append(f"{parameter.name} from {occurrence.origin}: {bad}; Felix exits and is restarted for ever")
            return None, bad
        return parameter.default(version)[0], f"{bad}; Felix takes its built-in value"


def _crashes(parameter: Parameter, raw: str, version: Version | None) -> bool:
    """Whether an object's value is one that its reader does not survive. Source: projectcalico/calico#6772."""
    return parameter.name == "iptablesBackend" and raw.lower() == "auto" and version is not None and version < (3, 25)


def _contradictions(settings: dict[str, Setting]) -> list[str]:
    """What stops Felix though each value is right by itself."""
    bpf, mask = settings.get("bpfEnabled"), _mark_setting(settings)
    if bpf and bpf.value is True and isinstance(mask.value, int) and mask.value & BPF_MARKS != BPF_MARKS:
        return [
            f"{mask.name} {mask.value:#x} from {mask.origin or mask.source} does not cover {BPF_MARKS:#x}, which eBPF "
            "needs; Felix panics"
        ]
    return []


def _mark_setting(settings: dict[str, Setting]) -> Setting:
    mode = settings.get("nftablesMode")
    return settings["nftablesMarkMask" if mode and mode.value == "Enabled" else "iptablesMarkMask"]


@dataclass(frozen=True)
class Dataplane:
    """What decides about Felix's rules, and the settings that count there.

    kind: bpf, nftables, iptables, or auto (3.32: as kube-proxy does). idle: settings that are set without effect here.
    """

    kind: str
    chain_insert_mode: Setting
    refresh_interval: Setting
    filter_allow_action: Setting
    mangle_allow_action: Setting
    mark_mask: Setting
    idle: tuple[Setting, ...]


def dataplane(config: Effective, *, nftables: bool | None = None) -> Dataplane:
    """Which of the iptables and nftables settings count.

    :param nftables: whether Felix's rules are nftables ones, where that was seen on the node and nftablesMode is Auto.
    """
    settings, mode = config.settings, config.value("nftablesMode")
    enabled = nftables is True if mode == "Auto" and nftables is not None else mode == "Enabled"
    kind = "nftables" if enabled else "auto" if mode == "Auto" and nftables is None else "iptables"
    used, other = ("nftables", "iptables") if enabled else ("iptables", "nftables")
    idle = [
        item
        for name, item in settings.items()
        if item.source != BUILT_IN and name.startswith(other) and name not in {"nftablesMode"} and kind != "auto"
    ]
    if enabled and settings["chainInsertMode"].source != BUILT_IN:
        idle.append(settings["chainInsertMode"])
    return Dataplane(
        "bpf" if config.value("bpfEnabled") is True else kind,
        settings["chainInsertMode"],
        settings[f"{used}RefreshInterval"],
        settings[f"{used}FilterAllowAction"],
        settings[f"{used}MangleAllowAction"],
        settings[f"{used}MarkMask"],
        tuple(idle),
    )
