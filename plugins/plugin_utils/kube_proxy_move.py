# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One node goes from one kube-proxy configuration to another, proves it, and goes back when it is worse off.

The former mode's rules serve until kube-proxy has made the new ones; what is left of them then is removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster import ClusterError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import ClusterApi, wait_until
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_objects import runs_calico
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import DAEMON_SETS, NODES, PODS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.flat_network import pod_fault
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_cluster import Twin, pods_on, ready_on
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_twin import LABEL, MOVING, is_parked, is_ready
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_mapping, metadata, name_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_call import NodeError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError, WorseError

# Two moves, forth and back, each with its waits.
WATCH_FACTOR = 8


class Move:
    """The move of one node."""

    def __init__(self, api: ClusterApi, twin: Twin, node: str, on_node: Callable[..., dict], timeout_s: float) -> None:
        """Move this node.

        :param on_node: C((step, **options)), runs a step of kube_proxy_node on the node and returns its result.
        :param timeout_s: for each of its waits.
        """
        self._api, self._twin, self._node, self._on_node, self._timeout_s = api, twin, node, on_node, timeout_s
        self._calico: dict | None = None
        self._must_answer = False

    def run(self, *, to_original: bool, check_mode: bool) -> dict:
        """Move the node to the twin, or to the original DaemonSet.

        :returns: C({changed, mode_before, mode, service, removed, left, restarted}).
        :raises WorseError: it is worse off. :raises RolloutError: somebody else interferes; nothing was changed.
        """
        original = self._original()
        value, goal = self._label(), None if to_original else self._twin.revision
        before = self._on_node("read")
        mode = before["proxy_mode"]
        result = {"mode_before": mode, "mode": mode, "service": {}, "removed": [], "left": [], "restarted": ""}
        if value == goal and mode == self._twin.mode and ready_on(self._api, self._owner(original, goal), self._node):
            settled = self._settled(mode)
            result.update(removed=settled["removed"], left=settled["left"])
            return {**result, "changed": bool(settled["removed"])}
        if check_mode:
            return {**result, "changed": True, "mode": self._twin.mode}
        return {**result, **self._moved(original, goal, before), "changed": True}

    def _moved(self, original: dict, goal: str | None, before: dict) -> dict:
        self._on_node("watch", duration_s=int(self._timeout_s * WATCH_FACTOR))
        self._must_answer = before["answers"]
        self._calico = self._calico_if_ready()
        try:
            done = self._to(original, goal, self._twin.mode, before["proxy_mode"])
        except WorseError as error:
            worse = f"{error}; {self._put_back(original, goal)}"
            self._collected()
            raise WorseError(worse) from error
        except (NodeError, ClusterError):
            # Nobody can be asked any more: kube-proxy shall run there with what it had, and the next run goes on.
            with contextlib.suppress(ClusterError):
                self._label_node(self._former(goal)[0])
            raise
        return {**done, "service": self._collected()}

    def _collected(self) -> dict:
        """What the connections to the Service came to, empty where that cannot be had."""
        with contextlib.suppress(NodeError):
            return self._on_node("collect")["service"] or {}
        return {}

    def _former(self, goal: str | None) -> tuple[str | None, str]:
        """Label and mode that a node has on the other side."""
        note = self._twin.note
        return (None, note["mode_before"]) if goal else (self._twin.revision, note["mode_after"])

    def _to(self, original: dict, goal: str | None, mode: str, former: str) -> dict:
        """Have the DaemonSet of a label's value run kube-proxy here, and what belongs to it."""
        self._label_node(MOVING)
        owners = (original, self._twin.object)
        if not wait_until(lambda: not any(pods_on(self._api, each, self._node) for each in owners), self._timeout_s):
            raise WorseError(f"the pod of kube-proxy did not end within {self._timeout_s:.0f} s")
        # Not known is the former mode where a run was killed here.
        if mode == "nftables" and former in ("nftables", ""):
            self._on_node("clear")
        self._label_node(goal)
        owner = self._owner(original, goal)
        if not wait_until(lambda: ready_on(self._api, owner, self._node), self._timeout_s):
            raise WorseError(f"kube-proxy was not ready within {self._timeout_s:.0f} s: {self._fault(owner)}")
        settled = self._settled(mode)
        restarted = self._restart_calico() if mode != former else ""
        return {"mode": mode, "removed": settled["removed"], "left": settled["left"], "restarted": restarted}

    def _settled(self, mode: str) -> dict:
        """Wait until the mode is in force on the node, and leftovers are gone."""
        found = self._on_node("settle", mode=mode, timeout_s=int(self._timeout_s))
        within = f"within {self._timeout_s:.0f} s"
        if found["proxy_mode"] != mode:
            said = found["proxy_mode"] or "nothing answers at its metrics address"
            raise WorseError(f"kube-proxy's live mode is not {mode} {within}: {said}")
        if not found["in_kernel"]:
            raise WorseError(f"kube-proxy says that its mode is {mode}, and the kernel has no such rules {within}")
        if self._must_answer and not found["answers"]:
            raise WorseError(
                f"the Service kubernetes, which answered before, does not answer any more from this node {within}"
            )
        return found

    def _put_back(self, original: dict, goal: str | None) -> str:
        """Give the node what it had; what is to be said of it."""
        value, mode = self._former(goal)
        try:
            self._to(original, value, mode, self._twin.mode)
        except WorseError as error:
            return f"and it could not be put back: {error}"
        return f"the node was put back to mode {mode}"

    def _original(self) -> dict:
        name = f"{self._twin.namespace}/{self._twin.note['daemon_set']}"
        found = self._api.get(DAEMON_SETS, self._twin.note["daemon_set"], self._twin.namespace)
        if found is None or not is_parked(found):
            raise RolloutError(f"DaemonSet {name} was written by somebody else since: run again from the step start")
        return found

    def _owner(self, original: dict, value: str | None) -> dict:
        return self._twin.object if value else original

    def _label(self) -> str | None:
        found = self._api.get(NODES, self._node)
        if found is None:
            raise RolloutError(f"node {self._node} is not in the cluster any more: take it out of the inventory")
        return as_mapping(metadata(found).get("labels")).get(LABEL)

    def _label_node(self, value: str | None) -> None:
        self._api.patch(NODES, self._node, {"metadata": {"labels": {LABEL: value}}})

    def _fault(self, owner: dict) -> str:
        """Why the pod is not ready, in the words of its state."""
        found = pods_on(self._api, owner, self._node)
        return (pod_fault(found[0]) or "it says nothing of why") if found else "no pod was made for this node"

    def _calico_if_ready(self) -> dict | None:
        """The DaemonSet of calico-node, when its pod here is ready now, so that it has to be again."""
        found = [item for item in self._api.list(DAEMON_SETS) if runs_calico(item)]
        return next((item for item in found if ready_on(self._api, item, self._node)), None)

    def _restart_calico(self) -> str:
        """Restart calico-node here, since Felix looks at kube-proxy's mode when it starts; which pod it was."""
        if self._calico is None:
            return ""
        namespace = metadata(self._calico)["namespace"]
        old = pods_on(self._api, self._calico, self._node)
        for pod in old:
            self._api.delete(PODS, name_of(pod), namespace)
        uids = {metadata(pod)["uid"] for pod in old}

        def is_new() -> bool:
            found = pods_on(self._api, self._calico, self._node)
            return len(found) == 1 and is_ready(found[0]) and metadata(found[0])["uid"] not in uids

        if not wait_until(is_new, self._timeout_s):
            raise WorseError(
                f"calico-node was not ready again within {self._timeout_s:.0f} s: {self._fault(self._calico)}"
            )
        return ", ".join(map(name_of, old))
