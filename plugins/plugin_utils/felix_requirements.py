# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Felix's effective configuration must be: findings that say who sets a value, over whom, and how to change it.

The findings carry no node name: who asks for them sets it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING, finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_install import CalicoInstall
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_effective import (
    BUILT_IN,
    DEFAULT,
    ENVIRONMENT,
    NODE,
    SELECTOR,
    Dataplane,
    Effective,
    Occurrence,
    Setting,
    dataplane,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_object import ANNOTATION, spellings
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import (
    PARAMETERS,
    BadValueError,
    Value,
    Version,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import metadata, name_of

ENFORCEMENT = "secure-workload/Requirements for Policy Enforcement"
CALICO = "calico/Node Requirements"
# "All other options use their default values": those of them that change rules or marks. Every installer sets others.
RULE_SETTINGS = (
    "bpfEnabled",
    "nftablesMode",
    "iptablesMarkMask",
    "nftablesMarkMask",
    "iptablesFilterDenyAction",
    "nftablesFilterDenyAction",
    "iptablesPostWriteCheckInterval",
    "wireguardEnabled",
    "wireguardEnabledV6",
)
_RESTARTS = "Felix restarts on every node that it concerns; stage it with FelixConfiguration node.NAME"


def described(setting: Setting) -> str:
    """A setting's value, where it comes from, and whom it overrides."""
    value = setting.raw if setting.raw is not None else "not known" if setting.value is None else setting.value
    place = setting.source if setting.source == BUILT_IN else f"{setting.source}: {setting.origin}"
    over = ", ".join(f"{item.raw} of {item.origin}" for item in setting.shadowed)
    return f"{setting.name} {value} ({place}{f', over {over}' if over else ''})" + (
        f": {setting.problem}" if setting.problem and setting.raw is not None else ""
    )


def change_setting(install: CalicoInstall, objects: Iterable[dict], setting: Setting, value: Value) -> str:
    """The command that gives a setting a value, where its present one stands.

    :param objects: FelixConfiguration objects with their C(apiVersion).
    """
    by_name = {name_of(item): item for item in objects if item.get("kind") == "FelixConfiguration"}
    if setting.source == ENVIRONMENT:
        then = _set_in_object(by_name, "default", setting.name, value)
        return f"{install.lever(setting.name)}; then {then}"
    name = setting.origin.rpartition(" ")[2] if setting.source in {NODE, SELECTOR} else "default"
    return _set_in_object(by_name, name, setting.name, value)


def _set_in_object(by_name: dict[str, dict], name: str, field: str, value: Value) -> str:
    words = spellings(field, value)
    spec = {"spec": {words["object_field"]: words["object"]}}
    if name not in by_name:
        version = next((item["apiVersion"] for item in by_name.values()), "crd.projectcalico.org/v1")
        made = {"apiVersion": version, "kind": "FelixConfiguration", "metadata": {"name": name}, **spec}
        return f"echo '{json.dumps(made)}' | kubectl apply -f -"
    item = by_name[name]
    resource = f"felixconfigurations.{item['apiVersion'].partition('/')[0]} {name}"
    wanted = (ANNOTATION + str(words["file_key"])).lower()
    notes = [key for key in metadata(item).get("annotations") or {} if key.lower() == wanted]
    unset = f"kubectl annotate {resource} {notes[0]}-; then " if notes else ""
    return f"{unset}kubectl patch {resource} --type merge -p '{json.dumps(spec)}'"


def felix_findings(
    install: CalicoInstall, objects: Iterable[dict], config: Effective, *, engine: str, proxy_mode: str
) -> list[dict]:
    """What is wrong with Felix's configuration, the settings of Secure Workload only for its engine.

    :param objects: FelixConfiguration objects with their C(apiVersion).
    :param proxy_mode: of kube-proxy; Felix 3.32 follows it.
    """
    objects = list(objects)
    plane = dataplane(config, nftables=proxy_mode == "nftables" if proxy_mode else None)
    found = [*_fatal(install, config), *_without_effect(config, plane), *_overridden(install, config)]
    if engine == "secure_workload":
        found += _demanded(install, objects, plane)
        found += _not_default(install, objects, config, plane)
    return found


def _demanded(install: CalicoInstall, objects: list[dict], plane: Dataplane) -> Iterator[dict]:
    mode, actions = plane.chain_insert_mode, (plane.filter_allow_action, plane.mangle_allow_action)
    # An accept of a native nftables chain is not final for the chains of others.
    is_wrong = mode.value != "Append" and any(item.value != "Return" for item in actions)
    if plane.kind != "nftables" and is_wrong and _is_known(install, mode, *actions):
        yield finding(
            "felix.chain_insert_mode",
            severity=BLOCKER,
            requirement=ENFORCEMENT,
            observed="; ".join(map(described, (mode, *actions))),
            expected="chainInsertMode Append, or Insert with filter and mangle allow action Return",
            remedy=f"{change_setting(install, objects, mode, 'Append')} ({_RESTARTS})",
        )
    if plane.refresh_interval.value != 0 and _is_known(install, plane.refresh_interval):
        yield finding(
            "felix.refresh_interval",
            severity=BLOCKER,
            requirement=ENFORCEMENT,
            observed=described(plane.refresh_interval),
            expected=f"{plane.refresh_interval.name} 0, so that Felix leaves the rules of others where they are",
            remedy=f"{change_setting(install, objects, plane.refresh_interval, 0)} ({_RESTARTS})",
        )


def _is_known(install: CalicoInstall, *settings: Setting) -> bool:
    """Whether these values are the effective ones; objects in etcd are not seen, so that no default is sure."""
    return not install.etcd_endpoints or all(item.source == ENVIRONMENT for item in settings)


def _not_default(install: CalicoInstall, objects: list[dict], config: Effective, plane: Dataplane) -> Iterator[dict]:
    for name in RULE_SETTINGS:
        setting = config.settings.get(name)
        if setting is None or setting.source == BUILT_IN or setting.value is None or setting in plane.idle:
            continue
        default, known = PARAMETERS[name].default(install.version)
        if not known or default is None or setting.value == default:
            continue
        is_mask = name.endswith("MarkMask")
        keep = (
            "waive it: a mask of its own is needed where the default one takes bits 20 and 21 (Calico 3.30 and later)"
        )
        yield finding(
            "felix.not_default",
            severity=WARNING,
            requirement=ENFORCEMENT,
            observed=described(setting),
            expected="default values of all options but the insert mode, the allow actions and the refresh interval",
            remedy=keep if is_mask else change_setting(install, objects, setting, default),
        )


def _fatal(install: CalicoInstall, config: Effective) -> Iterator[dict]:
    for text in config.fatal:
        place = "take the value out of the place that is named, or give one that Felix reads"
        for setting in config.settings.values():
            for item in (setting, *setting.shadowed):
                if item.source == ENVIRONMENT and text.startswith(f"{setting.name} from {item.origin}"):
                    place = install.lever(setting.name)
        yield finding(
            "felix.fatal",
            severity=BLOCKER,
            requirement=CALICO,
            observed=text,
            expected="a configuration with which Felix starts",
            remedy=place,
        )


def _without_effect(config: Effective, plane: Dataplane) -> Iterator[dict]:
    """Values that nobody reads. That a selector leaves out a node, and an empty variable, are meant so."""
    texts = [
        f"{item.origin}: {item.name}{f'={item.raw}' if item.raw is not None else ''}: {item.why}"
        for item in config.without_effect
        if not (item.source == ENVIRONMENT and item.raw == "") and not item.why.startswith("its nodeSelector ")
    ]
    texts += [
        f"{item.origin}: {item.name}={item.raw}: the dataplane is {plane.kind}"
        for item in plane.idle
        if item.source in {NODE, SELECTOR, DEFAULT}
    ]
    for text in texts:
        yield finding(
            "felix.without_effect",
            severity=WARNING,
            requirement=CALICO,
            observed=text,
            expected="settings that Felix reads",
            remedy="correct it as it says, or take it out: Felix runs as if it were not there",
        )


def _overridden(install: CalicoInstall, config: Effective) -> Iterator[dict]:
    """Values of objects that a variable of calico-node beats; an edit of the object would change nothing."""
    for setting in config.overrides():
        beaten = [item for item in setting.shadowed if item.source != ENVIRONMENT]
        if setting.source == ENVIRONMENT and any(_differs(setting, item, install.version) for item in beaten):
            yield finding(
                "felix.overridden",
                severity=WARNING,
                requirement=CALICO,
                observed=described(setting),
                expected="one place for each setting: the environment beats every FelixConfiguration",
                remedy=install.lever(setting.name),
            )


def _differs(setting: Setting, item: Occurrence, version: Version | None) -> bool:
    parameter = PARAMETERS.get(setting.name)
    try:
        return (parameter.parse(item.raw, version) if parameter else item.raw) != setting.value
    except (BadValueError, AttributeError):
        return item.raw is not None
