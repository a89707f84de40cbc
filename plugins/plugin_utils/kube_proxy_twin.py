# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A twin of kube-proxy's DaemonSet that carries a new configuration from node to node.

A DaemonSet gives every pod that it makes its present template. So a template that is changed switches each node whose
pod is deleted, and each new node, before its turn. With a twin a label of the node says which of the two DaemonSets
makes the pod: none of ours, the original's; C(moving), none; the revision, the twin's. Each node has one configuration
at any moment, whoever deletes a pod, adds a node or kills the run. Source of what a DaemonSet does:
pkg/controller/daemon of Kubernetes 1.34 (manage, updateDaemonSet, ControllerRevision).
"""

from __future__ import annotations

import copy
import hashlib
import json

from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_list, as_mapping, metadata, name_of

# Of nodes, and of the twin's pods, which its selector has to tell from the original's.
LABEL = "portcullis.io/kube-proxy"
# The value on a node that is between the two: no kube-proxy runs there.
MOVING = "moving"
# On the twin: what finish needs to put the original back as it was, and to see that nobody else has changed it.
NOTE = "portcullis.io/kube-proxy-rollout"
# On kube-proxy's ConfigMap, once a change is whole: what was there before, so that it can be taken back.
HISTORY = "portcullis.io/kube-proxy-before"
MANAGED_BY = {"app.kubernetes.io/managed-by": "portcullis"}
MANAGED_LABEL = "app.kubernetes.io/managed-by=portcullis"
REVISION_LABEL = "controller-revision-hash"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
# A DaemonSet's name is a label's value on its pods, with a suffix of six: 63 characters in all.
_NAME_LIMIT = 57


def revision_of(text: str) -> str:
    """The name of a configuration: a short digest of it."""
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def twin_name(original: str, revision: str) -> str:
    """The name of the twin and of its ConfigMap."""
    tail = f"-portcullis-{revision}"
    return f"{original[: _NAME_LIMIT - len(tail)]}{tail}"


def twin_config_map(config_map: dict, key: str, text: str, name: str) -> dict:
    """A copy of kube-proxy's ConfigMap with another configuration in its key."""
    kept = {part: config_map[part] for part in ("apiVersion", "kind", "binaryData") if part in config_map}
    return {
        **kept,
        "metadata": {"name": name, "namespace": metadata(config_map)["namespace"], "labels": dict(MANAGED_BY)},
        "data": {**config_map["data"], key: text},
    }


def twin_daemon_set(daemon_set: dict, config_map: str, name: str, revision: str, note: dict) -> dict:
    """The twin: the original's pods with the other ConfigMap, on the nodes that carry the revision.

    :param config_map: the name of the ConfigMap that the original mounts.
    :param note: what is kept for finish; see C(note_of).
    """
    template = copy.deepcopy(daemon_set["spec"]["template"])
    template.setdefault("metadata", {}).setdefault("labels", {})[LABEL] = revision
    pods = template["spec"]
    for source in _config_map_sources(pods):
        if source.get("name") == config_map:
            source["name"] = name
    pods["affinity"] = _with_term(pods.get("affinity"), {"key": LABEL, "operator": "In", "values": [revision]})
    selector = as_mapping(daemon_set["spec"]["selector"])
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": name,
            "namespace": metadata(daemon_set)["namespace"],
            "labels": dict(MANAGED_BY),
            "annotations": {NOTE: json.dumps(note, sort_keys=True)},
        },
        "spec": {
            "selector": {
                **selector,
                "matchLabels": {**as_mapping(selector.get("matchLabels")), LABEL: revision},
            },
            "updateStrategy": {"type": "OnDelete"},
            "template": template,
        },
    }


def _config_map_sources(pods: dict) -> list[dict]:
    """Where a pod names a ConfigMap for a volume, also among the sources of a projected one."""
    found = []
    for volume in map(as_mapping, as_list(pods.get("volumes"))):
        parts = [volume, *map(as_mapping, as_list(as_mapping(volume.get("projected")).get("sources")))]
        found += [part["configMap"] for part in parts if as_mapping(part.get("configMap"))]
    return found


def _with_term(affinity: dict | None, expression: dict) -> dict:
    """An affinity whose every node selector term demands the expression, too: terms are joined by or."""
    merged = copy.deepcopy(as_mapping(affinity))
    node = merged["nodeAffinity"] = as_mapping(merged.get("nodeAffinity"))
    required = node[_REQUIRED] = as_mapping(node.get(_REQUIRED))
    terms = as_list(required.get("nodeSelectorTerms")) or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchExpressions": [*as_list(term.get("matchExpressions")), expression]} for term in terms
    ]
    return merged


def parked(daemon_set: dict) -> dict:
    """The original while a twin is there: it keeps to nodes without the label, and restarts nothing by itself."""
    found = copy.deepcopy(daemon_set)
    found["spec"]["updateStrategy"] = {"type": "OnDelete"}
    pods = found["spec"]["template"]["spec"]
    pods["affinity"] = parked_affinity(pods.get("affinity"))
    return found


def parked_affinity(affinity: dict | None) -> dict:
    """The affinity with which the original keeps to nodes without the label."""
    return _with_term(affinity, {"key": LABEL, "operator": "DoesNotExist"})


def is_parked(daemon_set: dict) -> bool:
    """Whether the original keeps to nodes without the label; false when somebody else has written it since."""
    pods = daemon_set["spec"]["template"]["spec"]
    required = as_mapping(as_mapping(as_mapping(pods.get("affinity")).get("nodeAffinity")).get(_REQUIRED))
    terms = as_list(required.get("nodeSelectorTerms"))
    wanted = {"key": LABEL, "operator": "DoesNotExist"}
    return (
        bool(terms)
        and all(wanted in as_list(term.get("matchExpressions")) for term in terms)
        and daemon_set["spec"].get("updateStrategy", {}).get("type") == "OnDelete"
    )


def note_of(daemon_set: dict, config_map: dict, key: str, text: str, **known) -> dict:
    """What the twin keeps: the original's affinity and strategy, and the ConfigMap's text before and after.

    :param known: what else the steps need: C(state), C(wanted), C(mode_before) and C(mode_after).
    """
    return {
        "affinity": daemon_set["spec"]["template"]["spec"].get("affinity"),
        "update_strategy": daemon_set["spec"].get("updateStrategy"),
        "daemon_set": name_of(daemon_set),
        "config_map": name_of(config_map),
        "key": key,
        "before": config_map["data"][key],
        "after": text,
        **known,
    }


def history_of(previous: str | None, note: dict) -> dict | None:
    """What the ConfigMap keeps of the time before: the oldest text, and all fields that were asked for since.

    :param previous: the annotation as it is there.
    :returns: None once a change leads back to that time.
    """
    if note["state"] == "absent":
        return None
    first = {"key": note["key"], "before": note["before"], "wanted": note["wanted"]}
    if not previous:
        return first
    kept = json.loads(previous)
    return {**kept, "wanted": _merged(kept["wanted"], note["wanted"])}


def _merged(first: dict, second: dict) -> dict:
    both = {**first, **second}
    for name in first.keys() & second.keys():
        if isinstance(first[name], dict) and isinstance(second[name], dict):
            both[name] = _merged(first[name], second[name])
    return both


def reparked_note(note: dict, daemon_set: dict) -> dict:
    """The note once somebody else has written the original meanwhile: what is theirs is what will be restored."""
    strategy = daemon_set["spec"].get("updateStrategy")
    affinity = daemon_set["spec"]["template"]["spec"].get("affinity")
    return {
        **note,
        "affinity": note["affinity"] if affinity == parked_affinity(note["affinity"]) else affinity,
        "update_strategy": note["update_strategy"] if as_mapping(strategy).get("type") == "OnDelete" else strategy,
    }


def read_note(twin: dict) -> dict:
    """What C(note_of) kept."""
    return json.loads(metadata(twin)["annotations"][NOTE])


def restored_template(daemon_set: dict, note: dict) -> dict:
    """The original with its own affinity, still under OnDelete, so that its revision is the old one again."""
    found = copy.deepcopy(daemon_set)
    pods = found["spec"]["template"]["spec"]
    pods.pop("affinity", None)
    if note["affinity"] is not None:
        pods["affinity"] = note["affinity"]
    return found


def restored_strategy(daemon_set: dict, note: dict) -> dict:
    """The original with its own strategy: the last step, since pods of another revision are restarted from then on."""
    found = copy.deepcopy(daemon_set)
    found["spec"]["updateStrategy"] = note["update_strategy"]
    return found


def current_revision(revisions: list[dict], daemon_set: dict) -> str:
    """The hash of a DaemonSet's present template, as its controller has recorded it; empty when it has not yet.

    :param revisions: ControllerRevision objects.
    """
    uid = metadata(daemon_set)["uid"]
    own = [
        item
        for item in revisions
        if any(as_mapping(owner).get("uid") == uid for owner in as_list(metadata(item).get("ownerReferences")))
    ]
    newest = max(own, key=lambda item: item["revision"], default=None)
    if newest is None:
        return ""
    # Its data is a patch; what differs here is the affinity alone.
    pods = as_mapping(as_mapping(as_mapping(as_mapping(newest.get("data")).get("spec")).get("template")).get("spec"))
    if pods.get("affinity") != daemon_set["spec"]["template"]["spec"].get("affinity"):
        return ""
    return str(as_mapping(metadata(newest).get("labels")).get(REVISION_LABEL, ""))


def node_of_pod(pod: dict) -> str:
    """The node that a DaemonSet's pod is for: one that is not bound yet names it in its affinity alone."""
    spec = as_mapping(pod.get("spec"))
    if spec.get("nodeName"):
        return spec["nodeName"]
    required = as_mapping(as_mapping(as_mapping(spec.get("affinity")).get("nodeAffinity")).get(_REQUIRED))
    for term in map(as_mapping, as_list(required.get("nodeSelectorTerms"))):
        for field in map(as_mapping, as_list(term.get("matchFields"))):
            if field.get("key") == "metadata.name" and field.get("values"):
                return field["values"][0]
    return ""


def owner_uid(pod: dict) -> str:
    """The uid of the controller that made a pod."""
    owners = map(as_mapping, as_list(metadata(pod).get("ownerReferences")))
    return next((owner["uid"] for owner in owners if owner.get("controller")), "")


def is_ready(pod: dict) -> bool:
    """Whether a pod is Ready and is not on its way out."""
    conditions = map(as_mapping, as_list(as_mapping(pod.get("status")).get("conditions")))
    leaving = "deletionTimestamp" in metadata(pod)
    return not leaving and any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)
