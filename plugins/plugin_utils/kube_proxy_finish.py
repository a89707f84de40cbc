# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last steps of a change of kube-proxy: its ConfigMap is written, and when the last node is back no trace is left.

Each part finds what a run that was killed has done of it already.
"""

from __future__ import annotations

import copy
import json

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import ClusterApi, wait_until
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import (
    CONFIG_MAPS,
    DAEMON_SETS,
    NODES,
    PODS,
    Resource,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_cluster import (
    Twin,
    pods_by_node,
    with_note,
    with_twin,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_twin import (
    HISTORY,
    LABEL,
    MANAGED_LABEL,
    REVISION_LABEL,
    current_revision,
    history_of,
    restored_strategy,
    restored_template,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_mapping, metadata, name_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError

REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
CONTROLLER_TIMEOUT_S = 30


class Finish:
    """The end of one change."""

    def __init__(self, api: ClusterApi, twin: Twin) -> None:
        """Work on this change."""
        self._api, self._twin = api, twin

    def waits_for(self) -> list[str]:
        """The nodes that have to be changed before the ConfigMap can be written, none when it is or need not be."""
        if self._twin.going_back or self.is_written():
            return []
        labels, original = self.labels(), self._original()
        moving = {node for node, value in labels.items() if value != self._twin.revision}
        found = sorted(moving | (set(pods_by_node(self._api, original)) - set(labels)))
        # A node that has just been added has no pod yet.
        wanted = as_mapping(original.get("status")).get("desiredNumberScheduled", 0)
        return found or ([f"{wanted} new nodes"] if wanted else [])

    def is_written(self) -> bool:
        """Whether the ConfigMap has the new configuration, so that nodes go back to the original with it."""
        note = self._twin.note
        if self._twin.going_back:
            return False
        return bool(note.get("written")) or note["before"] != note["after"] == self._text(self._config_map())

    def is_over(self) -> bool:
        """Whether every node is back, so that only restore() is missing."""
        return not self.labels() and (self._twin.going_back or self.is_written())

    def labels(self) -> dict[str, str]:
        """The label's value by node."""
        found = self._api.list(NODES, label_selector=LABEL)
        return {name_of(node): metadata(node)["labels"][LABEL] for node in found}

    def restore(self) -> None:
        """Give the original its template and strategy back, and delete what was made; every node must be back."""
        self._restore()
        # The twin goes last, since it tells the next run what is left to do.
        for copied in self._api.list(CONFIG_MAPS, namespace=self._twin.namespace, label_selector=MANAGED_LABEL):
            self._api.delete(CONFIG_MAPS, name_of(copied), self._twin.namespace)
        self._api.delete(DAEMON_SETS, self._twin.name, self._twin.namespace)

    def _original(self) -> dict:
        found = self._api.get(DAEMON_SETS, self._twin.note["daemon_set"], self._twin.namespace)
        if found is None:
            name = f"{self._twin.namespace}/{self._twin.note['daemon_set']}"
            raise RolloutError(f"DaemonSet {name} is gone: apply it again, then run again")
        return found

    def _config_map(self) -> dict:
        found = self._api.get(CONFIG_MAPS, self._twin.note["config_map"], self._twin.namespace)
        if found is None:
            name = f"{self._twin.namespace}/{self._twin.note['config_map']}"
            raise RolloutError(f"ConfigMap {name} is gone: apply it again, then run again")
        return found

    def _text(self, config_map: dict) -> str:
        return as_mapping(config_map.get("data")).get(self._twin.note["key"], "")

    def write(self) -> None:
        """Write the ConfigMap, which must be as it was when the change began.

        :raises RolloutError: somebody else has changed it.
        """
        note = self._twin.note
        if note["before"] == note["after"]:
            # Its text was there before any kube-proxy had read it; that all of them have is noted on the twin.
            self._twin = with_note(self._twin, {**note, "written": True})
            self._api.update(
                DAEMON_SETS, self._twin.name, self._twin.namespace, lambda found: with_twin(found, self._twin)
            )
            return

        def change(found: dict) -> dict | None:
            text = self._text(found)
            if text == note["after"]:
                return None
            if text != note["before"]:
                raise RolloutError(
                    f"key {note['key']} of ConfigMap {self._twin.namespace}/{note['config_map']} was changed by "
                    "somebody else since the change began: run with state: absent to take the change back, then again"
                )
            return with_text(found, note)

        self._api.update(CONFIG_MAPS, note["config_map"], self._twin.namespace, change)

    def _restore(self) -> None:
        """Give the original its own template and strategy; its pods are of that template, so they are told so."""
        note, name, namespace = self._twin.note, self._twin.note["daemon_set"], self._twin.namespace
        original = self._api.update(
            DAEMON_SETS, name, namespace, lambda found: changed_only(found, restored_template(found, note))
        )
        revision = ""

        def is_recorded() -> bool:
            nonlocal revision
            revision = current_revision(self._api.list(REVISIONS, namespace=namespace), original)
            return bool(revision)

        if not wait_until(is_recorded, CONTROLLER_TIMEOUT_S):
            raise RolloutError(
                f"the controller of DaemonSet {namespace}/{name} has not recorded its template within "
                f"{CONTROLLER_TIMEOUT_S} s: is kube-controller-manager at work? Then run again"
            )
        for pod in pods_by_node(self._api, original).values():
            if metadata(pod)["labels"].get(REVISION_LABEL) != revision:
                self._api.patch(PODS, name_of(pod), {"metadata": {"labels": {REVISION_LABEL: revision}}}, namespace)
        self._api.update(
            DAEMON_SETS, name, namespace, lambda found: changed_only(found, restored_strategy(found, note))
        )


def changed_only(found: dict, wanted: dict) -> dict | None:
    """What is to be written, None when that is there."""
    return None if found == wanted else wanted


def with_text(config_map: dict, note: dict) -> dict:
    """kube-proxy's ConfigMap with the new configuration, and with what was there before in an annotation."""
    found = copy.deepcopy(config_map)
    found["data"][note["key"]] = note["after"]
    notes = {**as_mapping(metadata(found).get("annotations"))}
    history = history_of(notes.get(HISTORY), note)
    notes.pop(HISTORY, None)
    found["metadata"]["annotations"] = {**notes, **({HISTORY: json.dumps(history, sort_keys=True)} if history else {})}
    return found
