# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first step of a change of kube-proxy: everything is checked, then the twin is made. No pod restarts by it."""

from __future__ import annotations

import datetime
import json
import time

from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_install import read_objects
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_kube_proxy import proxy_conflicts
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import (
    ATTEMPTS,
    PAUSE_S,
    ClusterApi,
    ConflictError,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import CONFIG_MAPS, DAEMON_SETS, Reader
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_edit import EditError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import parse_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_candidate import candidate_pod, check
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_cluster import (
    Twin,
    find_place,
    find_twin,
    pods_by_node,
    twin_of,
    with_note,
    with_twin,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_edit import (
    configuration_of,
    edit_configuration,
    put_back,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_files import flags_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_finish import Finish
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_owners import LEVERS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_place import Place, shadowed
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_schema import deprecations, refusals
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_twin import (
    HISTORY,
    is_parked,
    is_ready,
    note_of,
    parked,
    reparked_note,
    restored_template,
    revision_of,
    twin_config_map,
    twin_daemon_set,
    twin_name,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_list, as_mapping, metadata, name_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError

# kube-proxy's own on Linux where the configuration names none. Source: cmd/kube-proxy/app/server_linux.go
DEFAULT_MODE = "iptables"


class Start:
    """One start. place: where the configuration is kept, known after run()."""

    def __init__(self, api: ClusterApi, *, check_mode: bool, timeout_s: float) -> None:
        """Work on this cluster; with check_mode nothing is written."""
        self._api, self._check_mode, self._timeout_s = api, check_mode, timeout_s
        self._warnings: dict[str, str] = {}

    def run(self, state: str, config: dict) -> dict:
        """As _run(); anew where another run writes the same objects at the same moment."""
        for _attempt in range(ATTEMPTS):
            try:
                return self._run(state, config)
            except ConflictError as error:
                conflict = error
                time.sleep(PAUSE_S)
        raise conflict

    def _run(self, state: str, config: dict) -> dict:
        """Make the twin, or find the one of a run that was stopped.

        :returns: C({changed, kind, revision, mode, before, after, warnings}); without a revision nothing is to be done.
        :raises RolloutError: it may not be done. Nothing was written then.
        :raises ClusterError: the API server refuses something.
        """
        reader = self._api.reader()
        place = find_place(self._api, reader)
        self._warnings.update(place.warnings)
        _refuse_place(place)
        if state == "present":
            self._refuse_config(config, place)
        if place.kind == "file":
            if state == "present":
                _refuse_flags(config)
            return self._answer(place, changed=False)
        twin = find_twin(self._api)
        daemon_set, config_map = self._read(place)
        ended = False
        if twin:
            twin = directed(twin, state, config)
            finish = Finish(self._api, twin)
            ended = finish.is_over()
            if not ended or self._check_mode:
                return self._resumed(twin, place, daemon_set, config_map["data"][place.key])
            finish.restore()
            daemon_set, config_map = self._read(place)
        before = config_map["data"][place.key]
        after = _target(state, config, config_map, place.key)
        if after == before and (state == "absent" or not self._outdated(daemon_set, config_map)):
            return self._answer(place, changed=ended, mode=mode_of(after), before=before, after=after)
        if state == "present":
            self._refuse_calico(mode_of(after), reader)
        note = note_of(
            daemon_set, config_map, place.key, after,
            state=state, wanted=config, going_back=False, mode_before=mode_of(before), mode_after=mode_of(after),
        )  # fmt: skip
        twin = self._stage(daemon_set, config_map, note)
        return self._answer(place, changed=True, twin=twin, before=before, after=after)

    def _answer(self, place: Place, *, changed: bool, twin: Twin | None = None, mode: str = "", **texts: str) -> dict:
        return {
            "changed": changed,
            "kind": place.kind,
            "revision": twin.revision if twin else "",
            "mode": twin.mode if twin else mode,
            "before": texts.get("before", ""),
            "after": texts.get("after", ""),
            "warnings": [f"{name}: {text}" for name, text in self._warnings.items()],
        }

    def _read(self, place: Place) -> tuple[dict, dict]:
        """kube-proxy's DaemonSet and ConfigMap."""
        if not place.daemon_set:
            raise RolloutError(
                f"no DaemonSet mounts ConfigMap {place.namespace}/{place.name}: nothing would read a change; "
                "is this the kubeconfig of an administrator, who can list DaemonSets?"
            )
        daemon_set = self._api.get(DAEMON_SETS, place.daemon_set, place.namespace)
        config_map = self._api.get(CONFIG_MAPS, place.name, place.namespace)
        if daemon_set is None or config_map is None:
            raise RolloutError(f"kube-proxy in {place.namespace} was deleted meanwhile: run again")
        return daemon_set, config_map

    def _refuse_config(self, config: dict, place: Place) -> None:
        version = parse_version(self._api.version())
        found = {**refusals(config, version), **shadowed(config, place.flags)}
        if found:
            raise RolloutError("config: " + "; ".join(f"{field}: {reason}" for field, reason in found.items()))
        self._warnings.update({f"config.{field}": text for field, text in deprecations(config, version).items()})

    def _refuse_calico(self, mode: str, reader: Reader) -> None:
        """Calico that does not go along with the mode."""
        objects = self._api.network(reader)["calico"]
        if not objects:
            return
        install = read_objects(objects)
        conflicts = proxy_conflicts(install.version, install.effective(), mode)
        refused = conflicts.pop("calico.nftables_version", "")
        if refused:
            raise RolloutError(f"{refused}: upgrade Calico first, or keep mode iptables")
        self._warnings.update(conflicts)

    def _resumed(self, twin: Twin, place: Place, daemon_set: dict, text: str) -> dict:
        """Go on with the change of a run that was stopped: the original is parked once more where somebody wrote it."""
        if twin.going_back and text == twin.note["after"] != twin.note["before"]:
            raise RolloutError(
                f"ConfigMap {place.namespace}/{place.name} has the new configuration already, and nodes are on their "
                "way to it: run with that config until nothing is left to do, then with state: absent"
            )
        if text not in (twin.note["before"], twin.note["after"]) and not twin.going_back:
            raise RolloutError(
                f"key {place.key} of ConfigMap {place.namespace}/{place.name} was changed by somebody else while a "
                "change is under way: run with state: absent to take the change back, then again"
            )
        changed = not is_parked(daemon_set)
        if changed:
            note = reparked_note(twin.note, daemon_set)
            daemon_set = restored_template(daemon_set, note)
            twin = with_note(twin, note, daemon_set)
        if not self._check_mode:
            self._api.update(DAEMON_SETS, twin.name, twin.namespace, lambda found: with_twin(found, twin))
            if changed:
                self._api.replace(DAEMON_SETS, parked(daemon_set))
        goal = twin.note["before" if twin.going_back else "after"]
        return self._answer(place, changed=changed, twin=twin, before=text, after=goal)

    def _outdated(self, daemon_set: dict, config_map: dict) -> list[str]:
        """The nodes whose kube-proxy was started before the configuration was last written."""
        written = written_at(config_map)
        pods = pods_by_node(self._api, daemon_set)
        return sorted(node for node, pod in pods.items() if written and 0 < started_at(pod) < written)

    def _stage(self, daemon_set: dict, config_map: dict, note: dict) -> Twin:
        """Make the copy of the ConfigMap and the twin, and park the original."""
        api, namespace = self._api, metadata(daemon_set)["namespace"]
        revision = revision_of(note["after"])
        name = twin_name(name_of(daemon_set), revision)
        copied = twin_config_map(config_map, note["key"], note["after"], name)
        made = twin_daemon_set(daemon_set, name_of(config_map), name, revision, note)
        self._copy(copied)
        if not self._check_mode:
            self._refuse_candidate(daemon_set, name, note["key"])
        created = api.create(DAEMON_SETS, made, namespace, dry_run=self._check_mode)
        if not self._check_mode:
            self._refuse_second(created)
        api.replace(DAEMON_SETS, parked(daemon_set), dry_run=self._check_mode)
        return twin_of(created)

    def _copy(self, copied: dict) -> None:
        """Have the copy of the ConfigMap; one that is there is of a run that was killed, or of one that begins now."""
        found = self._api.get(CONFIG_MAPS, name_of(copied), metadata(copied)["namespace"])
        if found is None:
            self._api.create(CONFIG_MAPS, copied, metadata(copied)["namespace"], dry_run=self._check_mode)
        elif found.get("data") != copied["data"]:
            self._api.replace(CONFIG_MAPS, {**found, "data": copied["data"]}, dry_run=self._check_mode)

    def _refuse_candidate(self, daemon_set: dict, config_map: str, key: str) -> None:
        """Have the cluster's own kube-proxy load the new configuration."""
        ready = sorted(node for node, pod in pods_by_node(self._api, daemon_set).items() if is_ready(pod))
        if not ready:
            return
        refusal, untried = check(
            self._api,
            candidate_pod(daemon_set, config_map, key, ready[0]),
            metadata(daemon_set)["namespace"],
            self._timeout_s,
        )
        if refusal:
            self._api.delete(CONFIG_MAPS, config_map, metadata(daemon_set)["namespace"])
            raise RolloutError(f"the cluster's kube-proxy does not load the new configuration: {refusal}")
        if untried:
            self._warnings["kube_proxy.candidate"] = f"no kube-proxy could be asked to load it first: {untried}"

    def _refuse_second(self, created: dict) -> None:
        """Another run may have begun another change between the look and the twin."""
        try:
            find_twin(self._api)
        except RolloutError:
            for resource in (DAEMON_SETS, CONFIG_MAPS):
                self._api.delete(resource, name_of(created), metadata(created)["namespace"])
            raise


def directed(twin: Twin, state: str, config: dict) -> Twin:
    """The change that is under way, led on or back as the user now asks.

    :raises RolloutError: it is another change.
    """
    note = twin.note
    if state == "present":
        target = _edited(note["before"], config)
    else:
        target = note["before"] if note["state"] == "present" else note["after"]
    if target not in (note["before"], note["after"]):
        raise RolloutError(
            f"another change is under way, of {', '.join(note['wanted']) or 'nothing'} to mode {note['mode_after']} "
            f"(DaemonSet {twin.namespace}/{twin.name}): finish it with its own config, or take it back with state: "
            "absent"
        )
    return with_note(twin, {**note, "going_back": target != note["after"]})


def mode_of(text: str) -> str:
    """The mode that a configuration makes kube-proxy run in on Linux."""
    return configuration_of(text).get("mode") or DEFAULT_MODE


def _edited(text: str, config: dict) -> str:
    try:
        return edit_configuration(text, config)
    except EditError as error:
        raise RolloutError(f"kube-proxy's configuration cannot be edited: {error}") from error


def _target(state: str, config: dict, config_map: dict, key: str) -> str:
    """The text that the ConfigMap shall have."""
    text = config_map["data"][key]
    if state == "present":
        return _edited(text, config)
    history = json.loads(as_mapping(metadata(config_map).get("annotations")).get(HISTORY, "null"))
    if history is None:
        return text
    try:
        return put_back(text, history["before"], history["wanted"])
    except EditError as error:
        raise RolloutError(f"ConfigMap {name_of(config_map)} cannot be put back: {error}") from error


def _refuse_flags(config: dict) -> None:
    """Refuse fields that have no flag, where a file of each node holds flags."""
    try:
        flags_of(config)
    except EditError as error:
        raise RolloutError(f"config: {error}") from error


def _refuse_place(place: Place) -> None:
    if place.kind != "configmap" and not (place.kind == "file" and place.name):
        reason = place.reason or "it is kept in a file of each node, and nothing tells which"
        lever = place.lever or LEVERS.get(place.owner, "")
        raise RolloutError("; ".join(filter(None, (f"kube-proxy's configuration is not edited here: {reason}", lever))))


def seconds_of(text: str) -> float:
    """A time of the API server as seconds since 1970, 0 for none."""
    return datetime.datetime.fromisoformat(text).timestamp() if text else 0.0


def written_at(config_map: dict) -> float:
    """When the data of a ConfigMap was last written, as far as the API server tells; 0 when it does not."""
    entries = map(as_mapping, as_list(metadata(config_map).get("managedFields")))
    return max(
        (seconds_of(entry.get("time")) for entry in entries if "f:data" in as_mapping(entry.get("fieldsV1"))),
        default=0.0,
    )


def started_at(pod: dict) -> float:
    """When the newest container of a pod was started, 0 when none runs."""
    states = (
        as_mapping(as_mapping(item).get("state"))
        for item in as_list(as_mapping(pod.get("status")).get("containerStatuses"))
    )
    return max((seconds_of(as_mapping(state.get("running")).get("startedAt")) for state in states), default=0.0)
