# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change of Felix on its way through a cluster: begun for a wave, proven or put back on each node, and ended."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterable, Mapping

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import ClusterApi, ConflictError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_objects import CALICO_GROUPS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import NODES, PODS, Resource
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_cluster import FelixCluster, read_felix_cluster
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_environment import held_variables
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_plan import Plan, is_at_its_end, make_plan
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_pods import (
    free,
    freed,
    give_back,
    noted,
    renew_pod,
    restore_strategy,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_proof import in_the_way, missing, shown
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_stage import (
    ABSENT,
    DEFAULT,
    NODE_LABEL,
    PROVEN,
    SCOPED,
    Change,
    final_default,
    record_of,
    restored,
    scoped_object,
    staged_object,
    under_way,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_mapping, metadata, name_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError, WorseError

POLL_S = 2
# When the Node was given its label, by the clock of who gave it.
BEGAN = "portcullis.io/felix-began"
_OFF = {"metadata": {"labels": {NODE_LABEL: None}, "annotations": {PROVEN: None, BEGAN: None}}}
# What reads a node: felix_node, with where Felix answers health checks.
Ask = Callable[[str], dict]


class Rollout:
    """One run's view of a change. asked: settings, profile, variant and mark_mask as desired_spec() takes them."""

    def __init__(
        self,
        api: ClusterApi,
        state: str,
        asked: Mapping[str, object],
        *,
        check_mode: bool = False,
        manage_env: bool = False,
    ) -> None:
        """Take the connection and what is asked for. manage_env: variables of calico-node may be taken out."""
        self._api, self._state, self._asked, self._check_mode = api, state, asked, check_mode
        self._manage_env = manage_env and state != ABSENT

    def _read(self) -> tuple[FelixCluster, Plan, bool]:
        """The cluster, what it lacks, and whether the end of an earlier run was caught up with."""
        cluster = read_felix_cluster(self._api)
        found = under_way(cluster.objects, cluster.nodes.values())
        caught_up = is_at_its_end(cluster, found)
        if caught_up and not self._check_mode:
            self._clean(cluster)
            cluster = dataclasses.replace(cluster, objects=cluster.others)
        if note := noted(cluster, self._asked) if self._manage_env else "":
            plan = make_plan(freed(cluster, note), self._state, self._asked)
            if self._check_mode:
                return freed(cluster, note), plan, caught_up
            cluster, caught_up = free(self._api, cluster, note), True
        return cluster, make_plan(cluster, self._state, self._asked), caught_up

    def start(self, wave: Iterable[str]) -> dict:
        """Give the nodes of a wave the change, or take it from them.

        :raises RolloutError: it cannot be had; nothing was written. :raises ClusterError: the API server's words.
        """
        cluster, plan, caught_up = self._read()
        wave, carried = set(wave), plan.found.nodes if plan.found else {}
        concerned = set(carried) if plan.takes_back else set(plan.nodes) - set(carried)
        # A node that is gone has no turn.
        gone = set(carried) - set(cluster.nodes) if plan.takes_back else set()
        staged = sorted(wave & concerned | gone)
        if not self._check_mode:
            if plan.takes_back:
                for node in staged:
                    self._put_back(cluster.resource, node, is_scoped=plan.found.is_scoped)
            elif staged:
                self._stage(cluster, plan, staged)
        before, after = _shown_change(cluster, plan)
        return {
            "changed": bool(staged or caught_up),
            "revision": plan.change.revision if plan.change else "",
            "staged": staged,
            "environment": held_variables(cluster.daemon_set),
            "in_force": {node: plan.nodes.get(node, []) for node in sorted(wave & set(cluster.felix_nodes))},
            "waits_for": plan.waits_for,
            "warnings": plan.warnings,
            "before": before,
            "after": after,
        }

    def _stage(self, cluster: FelixCluster, plan: Plan, nodes: list[str]) -> None:
        began = round(time.time(), 1)
        change = dataclasses.replace(plan.change, proof={**plan.change.proof, "began": began})
        is_scoped = plan.found.is_scoped if plan.found else cluster.can_scope()
        if not is_scoped:
            for node in nodes:
                self._stage_object(cluster, change, f"node.{node}")
            return
        if cluster.named(SCOPED) is None:
            self._api.create(cluster.resource, scoped_object(change, cluster.resource.api_version))
        labels = {"labels": {NODE_LABEL: change.revision}, "annotations": {PROVEN: None, BEGAN: str(began)}}
        for node in nodes:
            self._api.patch(NODES, node, {"metadata": labels})

    def _stage_object(self, cluster: FelixCluster, change: Change, name: str) -> None:
        item = staged_object(change, name, cluster.resource.api_version, cluster.named(name))
        try:
            if cluster.named(name):
                self._api.replace(cluster.resource, item)
            else:
                self._api.create(cluster.resource, item)
        except ConflictError as error:
            raise RolloutError(f"FelixConfiguration {name} was changed by somebody else just now: run again") from error

    def node(self, node: str, ask: Ask, timeout_s: int) -> dict:
        """Prove that a node has the change in force, or put it back.

        :raises WorseError: it has not within the time; what was there before is there again.
        """
        resource, record, is_scoped, is_proven = self._carried(node)
        if not record:
            return self._settled(node, ask)
        if self._check_mode:
            return {"node": node, "changed": not is_proven}
        if record["proof"]["variables"] and (why := renew_pod(self._api, node, record["proof"], timeout_s)):
            self._put_back(resource, node, is_scoped=is_scoped)
            raise WorseError(f"Felix on {node} does not have the change in force: {why}. The node was put back")
        began = record["proof"].get("began")
        deadline = time.monotonic() + timeout_s
        while True:
            since_s = max(time.time() - began, 0) + 1 if began and not is_proven else None
            reading = ask(record["proof"]["health"])
            lacks = in_the_way(record["proof"], reading) or missing(record["proof"], reading, since_s)
            if not lacks:
                break
            if in_the_way(record["proof"], reading) or time.monotonic() > deadline:
                self._put_back(resource, node, is_scoped=is_scoped)
                raise WorseError(
                    f"Felix on {node} does not have the change in force: {'; '.join(lacks)}. The node was put back: "
                    "mend this, then run again"
                )
            time.sleep(POLL_S)
        if not is_proven:
            self._mark(resource, node, record["revision"], is_scoped=is_scoped)
        return {"node": node, "changed": not is_proven, "live": shown(reading)}

    @functools.cached_property
    def _resources(self) -> list[Resource]:
        """FelixConfigurations of each group that the cluster serves."""
        groups = self._api.reader().groups
        served = [item for item in CALICO_GROUPS if item[0] in groups]
        return [Resource(group, version, "felixconfigurations", "FelixConfiguration") for group, version in served]

    def _carried(self, node: str) -> tuple[Resource | None, dict, bool, bool]:
        """The record that concerns a node, whether it hangs on the node's label, and whether it was proven."""
        for resource in self._resources:
            item = self._api.get(resource, f"node.{node}")
            if record := record_of(item):
                notes = as_mapping(metadata(item or {}).get("annotations"))
                return resource, record, False, notes.get(PROVEN) == record["revision"]
            if record := record_of(self._api.get(resource, SCOPED)):
                data = metadata(self._api.get(NODES, node) or {})
                notes = as_mapping(data.get("annotations"))
                if as_mapping(data.get("labels")).get(NODE_LABEL) == record["revision"]:
                    record["proof"]["began"] = float(notes.get(BEGAN) or 0) or None
                    return resource, record, True, notes.get(PROVEN) == record["revision"]
        return None, {}, False, False

    def _settled(self, node: str, ask: Ask) -> dict:
        """No change concerns the node: what was set before is in force there, where that was noted."""
        records = (record_of(self._api.get(resource, DEFAULT)) for resource in self._resources)
        record = next(filter(None, records), {}) if self._state != ABSENT else {}
        if not record:
            return {"node": node, "changed": False}
        reading = ask(record["proof"]["health"])
        live = shown(reading)
        if not live and not reading["ages_s"]:
            return {"node": node, "changed": False, "live": live}  # no calico-node runs here
        if lacks := missing(record["proof"], reading, None):
            raise WorseError(
                f"Felix on {node} does not have in force what FelixConfiguration default says: {'; '.join(lacks)}: "
                "look at the log of its calico-node"
            )
        return {"node": node, "changed": False, "live": live}

    def _mark(self, resource: Resource, node: str, revision: str, *, is_scoped: bool) -> None:
        kind, name = (NODES, node) if is_scoped else (resource, f"node.{node}")
        self._api.patch(kind, name, {"metadata": {"annotations": {PROVEN: revision}}})

    def _put_back(self, resource: Resource, node: str, *, is_scoped: bool) -> None:
        if is_scoped:
            self._api.patch(NODES, node, _OFF)
            return
        item = self._api.get(resource, f"node.{node}")
        if item is not None and record_of(item):
            self._restore(resource, item)

    def _restore(self, resource: Resource, item: dict) -> None:
        back = restored(item)
        if back is None:
            self._api.delete(resource, name_of(item))
        else:
            self._api.replace(resource, back)

    def finish(self, timeout_s: float = 60) -> dict:
        """Write C(default) and delete what carried the change, once all nodes have it.

        :param timeout_s: to wait for pods that get variables back.
        :raises RolloutError: somebody else has changed C(default) since the change began.
        """
        cluster, plan, caught_up = self._read()
        waits_for = plan.waits_for
        if waits_for or self._check_mode:
            is_due = not waits_for and (plan.change is not None or self._is_held(cluster))
            return {"changed": caught_up or is_due, "waits_for": waits_for}
        if plan.change is None:
            return self._settle_environment(cluster, timeout_s, {"changed": caught_up, "waits_for": []})
        if not plan.takes_back:
            _check_unchanged(cluster, plan)
            self._write_default(cluster, plan.change)
        self._clean(cluster)
        found = {"changed": True, "waits_for": [], "restarted": self._restarted(cluster)}
        return self._settle_environment(cluster, timeout_s, found)

    def _is_held(self, cluster: FelixCluster) -> bool:
        """Whether variables that were taken out are to be put back."""
        return self._state == ABSENT and bool(held_variables(cluster.daemon_set))

    def _settle_environment(self, cluster: FelixCluster, timeout_s: float, found: dict) -> dict:
        if self._is_held(cluster):
            return {**found, "changed": True, "waits_for": give_back(self._api, cluster, timeout_s)}
        if self._state != ABSENT and restore_strategy(self._api, cluster):
            return {**found, "changed": True}
        return found

    def _write_default(self, cluster: FelixCluster, change: Change) -> None:
        item = final_default(change, cluster.resource.api_version, cluster.default)
        try:
            if item is None:
                self._api.delete(cluster.resource, DEFAULT)
            elif cluster.default is None:
                self._api.create(cluster.resource, item)
            else:
                self._api.replace(cluster.resource, item)
        except ConflictError as error:
            raise RolloutError(
                "FelixConfiguration default was changed by somebody else just now: run again, every node keeps what it "
                "has until then"
            ) from error

    def _clean(self, cluster: FelixCluster) -> None:
        """Delete what carried a change, or give it back; the object last, which shows that there is more to do."""
        for name, node in cluster.nodes.items():
            if NODE_LABEL in as_mapping(metadata(node).get("labels")):
                self._api.patch(NODES, name, _OFF)
        for item in cluster.objects:
            if name_of(item) != DEFAULT and record_of(item):
                self._restore(cluster.resource, item)

    def _restarted(self, cluster: FelixCluster) -> list[str]:
        """The pods of calico-node that have restarted since the cluster was read, which none has to."""
        before = {name_of(pod): _count(pod) for pod in cluster.pods}
        now = self._api.list(PODS, **cluster.pods_of)
        return sorted(name_of(pod) for pod in now if _count(pod) > before.get(name_of(pod), _count(pod)))


def _count(pod: dict) -> int:
    return sum(item.get("restartCount", 0) for item in as_mapping(pod.get("status")).get("containerStatuses") or [])


def _check_unchanged(cluster: FelixCluster, plan: Plan) -> None:
    began = plan.found.change.proof.get("default", {}) if plan.found else {}
    spec = as_mapping((cluster.default or {}).get("spec"))
    for name, value in began.items():
        if spec.get(name) not in (value, plan.change.spec.get(name)):
            raise RolloutError(
                f"FelixConfiguration default has {name} {spec.get(name)!r}, which was {value!r} when the change began: "
                "somebody else writes it; agree on one place, and take the change back with state absent or set the "
                "former value"
            )


def _shown_change(cluster: FelixCluster, plan: Plan) -> tuple[str, str]:
    """C(default) before and after, as text for a diff."""
    fields = plan.change.spec if plan.change and not plan.takes_back else {}
    spec = as_mapping((cluster.default or {}).get("spec"))
    before = {name: spec[name] for name in fields if name in spec}
    after = {name: value for name, value in fields.items() if value is not None}
    return tuple(json.dumps(item, indent=1, sort_keys=True) + "\n" for item in (before, after))
