# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of calico-node on their way out of its DaemonSet and back: what of it is written, and pods that follow."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import ClusterApi, wait_until
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import DAEMON_SETS, PODS, Resource
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_cluster import FelixCluster
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_environment import (
    ON_DELETE,
    default_given_back,
    default_with_values,
    held_variables,
    make_note,
    note_of,
    variables_in,
    with_note,
    with_strategy,
    with_variables,
    without_variables,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_plan import environment_overrides
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_stage import DEFAULT
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_mapping, metadata, name_of


def noted(cluster: FelixCluster, asked: Mapping[str, object]) -> str:
    """The note about the variables that stand in the way, with those of an earlier change; "" where none does.

    :raises RolloutError: one of them cannot be taken out.
    """
    old, settings = note_of(cluster.daemon_set), environment_overrides(cluster, asked)
    if not settings:
        return ""
    new = json.loads(make_note(cluster.daemon_set, cluster.install, settings, cluster.default))
    if old:
        names = {entry["name"] for entry in old["entries"]}
        entries = [*old["entries"], *(entry for entry in new["entries"] if entry["name"] not in names)]
        merged = {key: {**new[key], **old[key]} for key in ("values", "before")}
        new = {**old, "entries": entries, **merged, "values": {**old["values"], **new["values"]}}
    return json.dumps(new, sort_keys=True)


def freed(cluster: FelixCluster, note: str) -> FelixCluster:
    """The cluster as it will be without these variables."""
    daemon_set = without_variables(with_note(cluster.daemon_set, note))
    names = set(held_variables(daemon_set))
    environment = {name: value for name, value in cluster.install.environment.items() if name not in names}
    default = default_with_values(cluster.default, cluster.resource.api_version, json.loads(note))
    return dataclasses.replace(
        cluster,
        install=dataclasses.replace(cluster.install, environment=environment),
        daemon_set=daemon_set,
        objects=[*(item for item in cluster.objects if name_of(item) != DEFAULT), default],
    )


def free(api: ClusterApi, cluster: FelixCluster, note: str) -> FelixCluster:
    """Write what C(freed) tells, in an order in which nothing takes effect early; the cluster as it is then."""
    found = freed(cluster, note)
    daemon_set = cluster.daemon_set
    if metadata(daemon_set).get("annotations") != metadata(found.daemon_set)["annotations"]:
        daemon_set = api.replace(DAEMON_SETS, with_note(daemon_set, note))
    default = found.default
    if cluster.default is None:
        default = api.create(cluster.resource, default)
    elif default["spec"] != cluster.default.get("spec"):
        default = api.replace(cluster.resource, default)
    daemon_set = api.replace(DAEMON_SETS, without_variables(daemon_set))
    others = [item for item in found.objects if name_of(item) != DEFAULT]
    return dataclasses.replace(found, daemon_set=daemon_set, objects=[*others, default])


def renew_pod(api: ClusterApi, node: str, proof: dict, timeout_s: float) -> str:
    """Have a node's calico-node start without the variables; what is wrong, "" when it has none and is ready."""
    where = {**proof["pods_of"], "field_selector": f"spec.nodeName={node}"}
    for pod in api.list(PODS, **where):
        if variables_in(pod["spec"], proof["variables"]) and not metadata(pod).get("deletionTimestamp"):
            api.delete(PODS, name_of(pod), proof["pods_of"]["namespace"])

    def is_renewed() -> bool:
        pods = api.list(PODS, **where)
        return any(_is_ready(pod) and not variables_in(pod["spec"], proof["variables"]) for pod in pods)

    return "" if wait_until(is_renewed, timeout_s) else "its calico-node was deleted and is not ready again"


def _is_ready(pod: dict) -> bool:
    conditions = as_mapping(pod.get("status")).get("conditions") or []
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def restore_strategy(api: ClusterApi, cluster: FelixCluster) -> bool:
    """Give the DaemonSet its strategy back once no pod has the variables; whether something was written."""
    note, names = note_of(cluster.daemon_set), held_variables(cluster.daemon_set)
    is_held = note and cluster.daemon_set["spec"].get("updateStrategy") == ON_DELETE != note["strategy"]
    if not is_held or any(variables_in(pod["spec"], names) for pod in api.list(PODS, **cluster.pods_of)):
        return False
    api.replace(DAEMON_SETS, with_strategy(cluster.daemon_set))
    return True


def give_back(api: ClusterApi, cluster: FelixCluster, timeout_s: float) -> list[str]:
    """Put the variables back; pods follow one by one, with the values they have already. The nodes that did not yet."""
    daemon_set, names = cluster.daemon_set, held_variables(cluster.daemon_set)
    wanted = with_variables(daemon_set)
    if wanted["spec"] != daemon_set["spec"]:
        daemon_set = api.replace(DAEMON_SETS, wanted)

    def behind() -> list[str]:
        pods = api.list(PODS, **cluster.pods_of)
        done = {
            pod["spec"].get("nodeName")
            for pod in pods
            if _is_ready(pod) and set(names) <= set(variables_in(pod["spec"], names))
        }
        return sorted({pod["spec"].get("nodeName") or "" for pod in pods} - done)

    wait_until(lambda: not behind(), timeout_s)
    if waiting := behind():
        return waiting
    _give_default_back(api, cluster.resource, note_of(daemon_set))
    fresh = api.get(DAEMON_SETS, name_of(daemon_set), metadata(daemon_set)["namespace"])
    api.replace(DAEMON_SETS, with_note(fresh, None))
    return []


def _give_default_back(api: ClusterApi, resource: Resource, note: dict) -> None:
    default = api.get(resource, DEFAULT)
    back = default_given_back(default, note)
    if back is None and default is not None:
        api.delete(resource, DEFAULT)
    elif back != default:
        api.replace(resource, back)
