# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube-proxy as the API server shows it: where its configuration is kept, and the change of ours that is under way."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, replace

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import ClusterApi
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_objects import runs_kube_proxy
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import (
    CONFIG_MAPS,
    DAEMON_SETS,
    NODES,
    PODS,
    Reader,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_place import Place, place_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_twin import (
    LABEL,
    MANAGED_LABEL,
    NOTE,
    is_parked,
    is_ready,
    node_of_pod,
    owner_uid,
    read_note,
    twin_daemon_set,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_mapping, metadata, name_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError


@dataclass(frozen=True)
class Twin:
    """A change that is under way. revision: the label's value on nodes. note: as C(kube_proxy_twin.note_of) kept it."""

    name: str
    namespace: str
    uid: str
    revision: str
    note: dict
    object: dict

    @property
    def going_back(self) -> bool:
        """Whether the nodes are given back, since the user has thought better of it."""
        return self.note["going_back"]

    @property
    def mode(self) -> str:
        """The mode that kube-proxy shall run in on each node."""
        return self.note["mode_before" if self.going_back else "mode_after"]


def twin_of(daemon_set: dict) -> Twin | None:
    """The change that a DaemonSet stands for, None when it is not ours."""
    if NOTE not in as_mapping(metadata(daemon_set).get("annotations")):
        return None
    return Twin(
        name_of(daemon_set),
        metadata(daemon_set)["namespace"],
        metadata(daemon_set)["uid"],
        daemon_set["spec"]["selector"]["matchLabels"][LABEL],
        read_note(daemon_set),
        daemon_set,
    )


def with_note(twin: Twin, note: dict, original: dict | None = None) -> Twin:
    """The change with another note, and with the original's present pods where it was written meanwhile."""
    if original is None:
        made = copy.deepcopy(twin.object)
    else:
        made = twin_daemon_set(original, note["config_map"], twin.name, twin.revision, note)
    made["metadata"]["annotations"] = {**made["metadata"]["annotations"], NOTE: json.dumps(note, sort_keys=True)}
    return replace(twin, note=note, object=made)


def with_twin(found: dict, twin: Twin) -> dict | None:
    """What is to be written for a twin as it shall be, None when that is there."""
    wanted = copy.deepcopy(found)
    wanted["metadata"]["annotations"][NOTE] = metadata(twin.object)["annotations"][NOTE]
    wanted["spec"]["template"] = twin.object["spec"]["template"]
    return None if wanted == found else wanted


def find_twin(api: ClusterApi) -> Twin | None:
    """The change that is under way in this cluster.

    :raises RolloutError: there are two.
    """
    found = [twin for item in api.list(DAEMON_SETS, label_selector=MANAGED_LABEL) if (twin := twin_of(item))]
    if len(found) > 1:
        names = ", ".join(f"{twin.namespace}/{twin.name}" for twin in found)
        raise RolloutError(f"two changes are under way, DaemonSets {names}: delete the one that no node has yet")
    return found[0] if found else None


def find_place(api: ClusterApi, reader: Reader) -> Place:
    """Where the configuration is kept."""
    workloads = [item for item in reader.list(DAEMON_SETS) if runs_kube_proxy(item)]
    namespaces = dict.fromkeys(metadata(item)["namespace"] for item in workloads)
    maps = [item for namespace in namespaces for item in reader.list(CONFIG_MAPS, namespace=namespace)]
    # What is not a DaemonSet tells who keeps it elsewhere: static pods, OpenShift's network operator, the nodes.
    rest = [item for item in api.network(reader)["kube_proxy"] if item["kind"] in {"Pod", "Network"}]
    # While a twin runs kube-proxy on every node, the original is wanted on none, which says nothing of it.
    workloads = [{**item, "status": {}} if is_parked(item) else item for item in workloads]
    typed = [
        {**item, "kind": kind} for kind, items in (("DaemonSet", workloads), ("ConfigMap", maps)) for item in items
    ]
    nodes = [{**item, "kind": "Node"} for item in reader.list(NODES, limit=1)]
    return place_of([*typed, *rest, *nodes])


def pods_on(api: ClusterApi, daemon_set: dict, node: str) -> list[dict]:
    """The pods of a DaemonSet on a node, the ones on their way out among them."""
    labels = as_mapping(daemon_set["spec"]["selector"].get("matchLabels"))
    found = api.list(
        PODS,
        namespace=metadata(daemon_set)["namespace"],
        label_selector=",".join(f"{key}={value}" for key, value in labels.items()),
        field_selector=f"spec.nodeName={node}",
    )
    return [item for item in found if owner_uid(item) == metadata(daemon_set)["uid"]]


def pods_by_node(api: ClusterApi, daemon_set: dict) -> dict[str, dict]:
    """The pods of a DaemonSet that are not on their way out, by node."""
    labels = as_mapping(daemon_set["spec"]["selector"].get("matchLabels"))
    found = api.list(
        PODS,
        namespace=metadata(daemon_set)["namespace"],
        label_selector=",".join(f"{key}={value}" for key, value in labels.items()),
    )
    uid = metadata(daemon_set)["uid"]
    return {
        node_of_pod(item): item
        for item in found
        if owner_uid(item) == uid and "deletionTimestamp" not in metadata(item)
    }


def ready_on(api: ClusterApi, daemon_set: dict, node: str) -> bool:
    """Whether a pod of a DaemonSet is ready on a node, and no other of its pods is on its way out."""
    found = pods_on(api, daemon_set, node)
    return len(found) == 1 and is_ready(found[0])
