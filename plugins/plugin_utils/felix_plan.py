# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of Felix against what each node has: the change, whom it concerns, and why it would have no effect."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_cluster import FelixCluster
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_desired import desired_spec
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_effective import (
    ENVIRONMENT,
    Effective,
    Setting,
    dataplane,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_environment import held_variables
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_object import object_values
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import BY_CONFIG, BadValueError, Value
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_requirements import described, felix_findings
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_stage import (
    ABSENT,
    DEFAULT,
    PRESENT,
    Change,
    UnderWay,
    check_same,
    final_default,
    other_managers,
    record_of,
    staged_values,
    under_way,
    way_back,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_mapping, name_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError

# How the API server calls the client library that writes here.
OUR_MANAGER = "OpenAPI-Generator"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be done. change: None where there is nothing. found: what is under way. takes_back: it shall end.

    nodes: those whose configuration in force is another one, with what each setting is there now.
    """

    change: Change | None
    found: UnderWay | None
    takes_back: bool
    nodes: dict[str, list[str]]
    warnings: list[str]

    @property
    def waits_for(self) -> list[str]:
        """The nodes without which the end has to wait."""
        carried = self.found.nodes if self.found else {}
        if self.takes_back:
            return sorted(carried)
        return sorted(node for node in self.nodes if not carried.get(node))


def is_at_its_end(cluster: FelixCluster, found: UnderWay | None) -> bool:
    """Whether C(default) was written already, so that only the objects for nodes are left to be deleted."""
    if found is None:
        return False
    spec = as_mapping((cluster.default or {}).get("spec"))
    if found.change.state == ABSENT:
        return not record_of(cluster.default)
    same = record_of(cluster.default).get("revision") == found.change.revision
    return same and all(spec.get(name) == value for name, value in found.change.spec.items())


def make_plan(cluster: FelixCluster, state: str, asked: Mapping[str, object]) -> Plan:
    """What the cluster lacks.

    :param asked: settings, profile, variant and mark_mask, as desired_spec() takes them.
    :raises RolloutError: it cannot be had, another change is under way, or something else has the last word.
    """
    found = under_way(cluster.objects, cluster.nodes.values())
    if is_at_its_end(cluster, found):
        found = None
    if state == ABSENT and found and found.change.state == PRESENT:
        return Plan(found.change, found, True, {}, [])
    change, warnings = _change(cluster, state, asked)
    check_same(found, change)
    if not change.spec:
        return Plan(None, found, False, {}, warnings)
    if state == PRESENT:
        _check_in_force(cluster, change, profile=str(asked.get("profile") or ""))
    nodes = _nodes_that_differ(cluster, change)
    writers = other_managers(cluster.default, change.spec, OUR_MANAGER)
    warnings += [
        f"{field} of FelixConfiguration default is written by {manager} too, which may write it back"
        for field, manager in writers.items()
    ]
    spec = as_mapping((cluster.default or {}).get("spec"))
    is_there = all(spec.get(name) == value for name, value in change.spec.items())
    if not nodes and is_there and not found and (state == PRESENT or not record_of(cluster.default)):
        change = None
    return Plan(change, found, False, nodes, warnings)


def _change(cluster: FelixCluster, state: str, asked: Mapping[str, object]) -> tuple[Change, list[str]]:
    version, warnings = cluster.install.version, []
    if state == ABSENT:
        spec, warnings = way_back(cluster.default)
    else:
        desired = desired_spec(cluster.ground(), **asked)
        if desired.refused:
            texts = [f"{field}: {why}" for field, why in sorted(desired.refused.items())]
            raise RolloutError("nothing was written. " + "; ".join(texts))
        spec = desired.spec
    staged, notes = staged_values(spec, version, fits_int32=cluster.ground().fits_int32)
    carrier = {"metadata": {"name": "node.x", "annotations": notes}, "spec": staged}
    return Change(state, spec, staged, notes, proof_of(cluster, spec, carrier)), warnings


def felix_values(cluster: FelixCluster, item: dict) -> dict[str, Value]:
    """The values that Felix makes of an object, by field; of one that is not known its text."""
    found = {}
    for config, raw in object_values(item)[0].items():
        parameter = BY_CONFIG.get(config.lower())
        try:
            found[parameter.name if parameter else config] = (
                parameter.parse(raw, cluster.install.version) if parameter else raw
            )
        except BadValueError:
            found[parameter.name] = raw
    return found


def proof_of(cluster: FelixCluster, spec: Mapping[str, object], carrier: dict) -> dict:
    """What a node is asked for when it is proven that it has the change; goes into the record.

    :param carrier: an object C(node.x) as nodes get it.
    """
    config = cluster.effective([*cluster.others, carrier], "x")
    felix = cluster.felix(config)
    health = {name: config.value(name) for name in ("healthEnabled", "healthHost", "healthPort")}
    return {
        "values": felix_values(cluster, carrier),
        "felix": {
            "version": list(felix.version) if felix.version else None,
            "wireguard": felix.wireguard,
            "ipvs": felix.ipvs,
        },
        "backend": felix.backend,
        "has_rules": dataplane(config, nftables=cluster.nftables).kind != "bpf",
        "health": f"{health['healthHost']}:{health['healthPort']}" if health["healthEnabled"] is True else "",
        "host_file": cluster.install.host_file,
        "variables": held_variables(cluster.daemon_set),
        "pods_of": cluster.pods_of,
        "default": {name: as_mapping((cluster.default or {}).get("spec")).get(name) for name in spec},
    }


def _final_objects(cluster: FelixCluster, change: Change) -> list[dict]:
    final = final_default(change, cluster.resource.api_version, cluster.default)
    return [item for item in cluster.others if name_of(item) != DEFAULT] + ([final] if final else [])


def _groups(cluster: FelixCluster, objects: Iterable[dict]) -> dict[str, list[str]]:
    """Nodes by one of them, those together that the same objects concern."""
    objects = list(objects)
    own = {name_of(item).removeprefix("node.") for item in objects if name_of(item).startswith("node.")}
    by_selector = any(as_mapping(item.get("spec")).get("nodeSelector") for item in objects)
    if by_selector:
        return {node: [node] for node in cluster.felix_nodes}
    alike = [node for node in cluster.felix_nodes if node not in own]
    return {node: [node] for node in cluster.felix_nodes if node in own} | ({alike[0]: alike} if alike else {})


def environment_overrides(cluster: FelixCluster, asked: Mapping[str, object]) -> list[Setting]:
    """The settings that a variable of calico-node would keep from what is asked for."""
    change, _warnings = _change(cluster, PRESENT, asked)
    config = cluster.effective(_final_objects(cluster, change))
    found = (_differs(config, name, value) for name, value in change.proof["values"].items())
    return [setting for setting in found if setting and setting.source == ENVIRONMENT]


def _nodes_that_differ(cluster: FelixCluster, change: Change) -> dict[str, list[str]]:
    """The nodes where a setting is in force with another value, each with these settings in words."""
    values, found = change.proof["values"], {}
    for node, alike in _groups(cluster, cluster.others).items():
        config = cluster.effective(cluster.others, node)
        texts = [described(setting) for name, value in values.items() if (setting := _differs(config, name, value))]
        found |= dict.fromkeys(alike, texts) if texts else {}
    return dict(sorted(found.items()))


def _differs(config: Effective, name: str, value: Value) -> Setting | None:
    """The setting that is in force where it has another value."""
    setting = config.settings.get(name) or config.settings.get(name.lower())
    return setting if setting is not None and setting.value != value else None


def _check_in_force(cluster: FelixCluster, change: Change, *, profile: str) -> None:
    """Refuse a change that something with more weight would keep from its effect, or that Felix would not start with.

    :raises RolloutError: what has more weight, and where it is changed.
    """
    implied = cluster.install.implied
    told = {
        f"{name}: the operator keeps it at {implied[name]!r}: set spec.calicoNetwork.linuxDataplane of the Installation"
        for name, value in change.spec.items()
        if name in implied and value != implied[name]
    }
    objects = _final_objects(cluster, change)
    values = change.proof["values"]
    for node in _groups(cluster, objects):
        overridden = set()
        config = cluster.effective(objects, node)
        for name, value in values.items():
            setting = _differs(config, name, value)
            if setting and name not in implied:
                overridden.add(name)
                told.add(_overridden(cluster, setting))
        engine = "secure_workload" if profile else ""
        findings = felix_findings(cluster.install, objects, config, engine=engine, proxy_mode=cluster.proxy.mode)
        told |= {
            f"{item['observed']}, expected {item['expected']}: {item['remedy']}"
            for item in findings
            if item["severity"] == BLOCKER and not item["observed"].startswith(tuple(overridden))
        }
    if told:
        raise RolloutError("nothing was written. " + "; ".join(sorted(told)))


def _overridden(cluster: FelixCluster, setting: Setting) -> str:
    where = cluster.install.lever(setting.name) if setting.source == ENVIRONMENT else f"take it out of {setting.origin}"
    return f"{described(setting)} would stay in force: {where}"
