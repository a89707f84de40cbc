# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller half of kube_proxy_config: the cluster is changed from here, the node through its connection."""

from __future__ import annotations

from typing import ClassVar

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import NODES, SERVICES
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_cluster import Twin, find_place, find_twin
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_edit import configuration_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_finish import Finish
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_move import Move
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_node_files import TIMEOUT_FACTOR, change_files
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_place import place_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_start import Start, directed
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_call import ask_node
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.step_action import StepAction, with_diff

# What is connected to on the node all the time: the Service that every cluster has.
PROBED = ("kubernetes", "default")
# Where kube-proxy tells its mode unless its configuration says otherwise, the second where it binds to IPv6.
METRICS_ADDRESS = ("127.0.0.1:10249", "[::1]:10249")


def refuse(arguments: dict) -> str:
    """Why these arguments cannot be followed, empty when they can."""
    config, state = arguments["config"], arguments["state"]
    if state == "present" and not config:
        return 'config: nothing is to be set; name fields of KubeProxyConfiguration, such as {"mode": "nftables"}'
    if state == "absent" and config:
        return "config: state absent gives back what was there before, whatever that is: leave config out"
    return ""


class ActionModule(StepAction):
    """modules/kube_proxy_config.py is the documentation."""

    OPTIONS: ClassVar = {"config": {"type": "dict", "default": {}}}

    _refuse = staticmethod(refuse)

    def _start(self) -> dict:
        arguments = self._arguments
        start = Start(self._api, check_mode=self._task.check_mode, timeout_s=arguments["timeout"])
        return with_diff(start.run(arguments["state"], arguments["config"]), "kube-proxy")

    def _node(self) -> dict:
        node = self._node_name()
        twin = self._twin()
        if twin is None:
            path = self._file_of(node)
            return {"node": node, **(self._change_files(path) if path else self._proven())}
        if Finish(self._api, twin).is_written():
            return {"node": node, "changed": False}  # nodes are on their way back to the original
        return {"node": node, **self._move(twin, node, to_original=twin.going_back)}

    def _file_of(self, node: str) -> str:
        """The file in which this node keeps kube-proxy's flags, empty where a ConfigMap has its configuration."""
        found = self._api.get(NODES, node) or {}
        if place_of([{**found, "kind": "Node"}]).kind != "file":
            return ""
        place = find_place(self._api, self._api.reader())
        return place.name if place.kind == "file" else ""

    def _change_files(self, path: str) -> dict:
        arguments = self._arguments
        if arguments["state"] == "absent":
            return self._ask_files({"step": "undo", "path": path, "timeout_s": arguments["timeout"] * TIMEOUT_FACTOR})
        ask = self._asker(arguments["config"])
        proof = {**self._service(arguments["config"]), "timeout_s": arguments["timeout"]}
        config, check_mode = arguments["config"], self._task.check_mode
        return change_files(self._ask_files, path, config, ask("read"), proof, check_mode=check_mode)

    def _ask_files(self, options: dict) -> dict:
        return ask_node(self, "portcullis.fleet.kube_proxy_file", options, self._vars)

    def _twin(self) -> Twin | None:
        """The change that is under way, if this run leads it the same way."""
        twin = find_twin(self._api)
        if twin is None:
            return None
        asked = directed(twin, self._arguments["state"], self._arguments["config"])
        if asked.going_back != twin.going_back:
            raise RolloutError("another run leads this change the other way: run again from the step start")
        return twin

    def _move(self, twin: Twin, node: str, *, to_original: bool) -> dict:
        ask = self._asker(configuration_of(twin.note["after"]))
        move = Move(self._api, twin, node, ask, self._arguments["timeout"])
        return move.run(to_original=to_original, check_mode=self._task.check_mode)

    def _proven(self) -> dict:
        """No change is under way: what runs here is what was asked for."""
        wanted = self._arguments["config"].get("mode", "")
        mode = self._asker(self._arguments["config"])("read")["proxy_mode"]
        if wanted and mode and mode != wanted:
            if self._task.check_mode:
                return {"changed": True, "mode_before": mode, "mode": wanted}
            raise RolloutError(
                f"kube-proxy's live mode is {mode}, not {wanted}: its pod on this node runs another configuration than "
                "the ConfigMap has; delete the pod"
            )
        return {"changed": False, "mode": mode}

    def _finish(self) -> dict:
        twin = self._twin()
        if twin is None:
            return {"changed": False, "waits_for": []}
        finish = Finish(self._api, twin)
        waiting = finish.waits_for()
        if waiting or self._task.check_mode:
            return {"changed": not waiting, "waits_for": waiting}
        if not twin.going_back:
            finish.write()
        found, node = {}, self._node_name()
        if node in finish.labels() and not twin.going_back:
            found = {"returned": self._move(twin, node, to_original=True)}
        waiting = sorted(finish.labels())
        if not waiting:
            finish.restore()
        return {**found, "changed": True, "waits_for": waiting}

    def _node_name(self) -> str:
        host = self._vars["inventory_hostname"]
        return self._arguments["node"] or self._names_of([host])[host]

    def _asker(self, configuration: dict):
        """What runs a step of kube_proxy_node here."""
        name, common = "portcullis.fleet.kube_proxy_node", self._service(configuration)
        return lambda step, **options: ask_node(self, name, {"step": step, **common, **options}, self._vars)

    def _service(self, configuration: dict) -> dict:
        """The Service to watch, and where kube-proxy tells its mode."""
        service = self._api.get(SERVICES, *PROBED)["spec"]
        is_ipv6 = ":" in str(configuration.get("bindAddress") or "")
        return {
            "address": service["clusterIP"],
            "port": service["ports"][0]["port"],
            "metrics_address": configuration.get("metricsBindAddress") or METRICS_ADDRESS[is_ipv6],
        }
