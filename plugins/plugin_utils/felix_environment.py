# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables of calico-node that outrank every FelixConfiguration: taken out of its DaemonSet, and given back.

Before they go, C(default) gets their values, which have no effect yet. So a pod that is restarted early, by whomever,
runs with what it had. The update strategy is OnDelete meanwhile: each node's pod is deleted when it is the node's turn.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping

from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_install import MANIFEST, CalicoInstall
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_effective import Setting
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_object import spellings
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import PARAMETERS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_list, as_mapping, metadata, name_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError

# Of the DaemonSet: what was taken out of it, and what C(default) had for these fields.
NOTE = "portcullis.io/felix-environment"
ON_DELETE = {"type": "OnDelete"}
# Who writes the DaemonSet back by itself.
_KEEPERS = {"kops", "rke2", "k0s", "gardener", "addon-manager", "gke"}


def note_of(daemon_set: dict) -> dict:
    """What was taken out, empty where nothing was."""
    text = as_mapping(metadata(daemon_set).get("annotations")).get(NOTE)
    return json.loads(text) if text else {}


def held_variables(daemon_set: dict) -> list[str]:
    """The names of the variables that were taken out."""
    return [entry["name"] for entry in note_of(daemon_set).get("entries", [])]


def variables_in(pod_spec: Mapping[str, object], names: Iterable[str]) -> list[str]:
    """Which of these variables a pod's calico-node has."""
    wanted = set(names)
    return sorted(
        name_of(entry)
        for container in map(as_mapping, as_list(pod_spec.get("containers")))
        for entry in map(as_mapping, as_list(container.get("env")))
        if name_of(entry) in wanted
    )


def make_note(daemon_set: dict, install: CalicoInstall, settings: list[Setting], default: dict | None) -> str:
    """The note about variables that are to be taken out.

    :param settings: those that they set. :param default: FelixConfiguration default, None where there is none.
    :raises RolloutError: somebody writes them back, or they are not in the DaemonSet itself.
    """
    entries, values = [], {}
    for setting in settings:
        found = _entries(daemon_set, setting.name)
        if install.method != MANIFEST or install.distribution in _KEEPERS or not found or setting.value is None:
            raise RolloutError(
                f"{setting.name} is set by {setting.origin} and would stay so or be written back: "
                f"{install.lever(setting.name)}"
            )
        entries += found
        values[setting.name] = spellings(setting.name, setting.value)["object"]
    spec = as_mapping((default or {}).get("spec"))
    note = {
        "entries": entries,
        "strategy": daemon_set["spec"].get("updateStrategy"),
        "values": values,
        "before": {name: spec.get(name) for name in values},
        "created": default is None,
    }
    return json.dumps(note, sort_keys=True)


def _entries(daemon_set: dict, setting: str) -> list[dict]:
    """Where a setting's variable stands: C(container), C(index) and the entry, with plain values only."""
    wanted = PARAMETERS[setting].environment.lower() if setting in PARAMETERS else ""
    return [
        {"container": container["name"], "index": index, **entry}
        for container in daemon_set["spec"]["template"]["spec"]["containers"]
        for index, entry in enumerate(container.get("env") or [])
        if entry["name"].lower() == wanted and "valueFrom" not in entry
    ]


def with_note(daemon_set: dict, note: str | None) -> dict:
    """The DaemonSet with the note, or without one."""
    item = copy.deepcopy(daemon_set)
    notes = item["metadata"].setdefault("annotations", {})
    if note is None:
        notes.pop(NOTE, None)
    else:
        notes[NOTE] = note
    return item


def without_variables(daemon_set: dict) -> dict:
    """The DaemonSet without the variables of its note; no pod is restarted by this."""
    item, names = copy.deepcopy(daemon_set), set(held_variables(daemon_set))
    for container in item["spec"]["template"]["spec"]["containers"]:
        if "env" in container:
            container["env"] = [entry for entry in container["env"] if entry["name"] not in names]
    item["spec"]["updateStrategy"] = dict(ON_DELETE)
    return item


def with_variables(daemon_set: dict) -> dict:
    """The DaemonSet with the variables of its note where they were, and its strategy; pods follow one by one."""
    item, note = with_strategy(daemon_set), note_of(daemon_set)
    for container in item["spec"]["template"]["spec"]["containers"]:
        for entry in note["entries"]:
            plain = {key: value for key, value in entry.items() if key not in ("container", "index")}
            if entry["container"] == container["name"] and not variables_in(
                {"containers": [container]}, [entry["name"]]
            ):
                container.setdefault("env", []).insert(entry["index"], plain)
    return item


def with_strategy(daemon_set: dict) -> dict:
    """The DaemonSet with the update strategy that it had."""
    item, strategy = copy.deepcopy(daemon_set), note_of(daemon_set)["strategy"]
    if strategy is None:
        item["spec"].pop("updateStrategy", None)
    else:
        item["spec"]["updateStrategy"] = strategy
    return item


def default_with_values(default: dict | None, api_version: str, note: dict) -> dict:
    """C(default) with the values of the variables."""
    made = {"apiVersion": api_version, "kind": "FelixConfiguration", "metadata": {"name": "default"}}
    item = copy.deepcopy(default) if default else made
    return {**item, "spec": {**as_mapping(item.get("spec")), **note["values"]}}


def default_given_back(default: dict | None, note: dict) -> dict | None:
    """C(default) with what it had before the variables were taken out, None where there was none and it is empty.

    What somebody else has changed since stays.
    """
    if default is None:
        return None
    item, spec = copy.deepcopy(default), dict(as_mapping(default.get("spec")))
    for name, value in note["values"].items():
        if spec.get(name) == value:
            if note["before"][name] is None:
                spec.pop(name)
            else:
                spec[name] = note["before"][name]
    return None if note["created"] and not spec else {**item, "spec": spec}
