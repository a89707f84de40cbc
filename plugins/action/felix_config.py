# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller half of felix_config: objects are written from here, the node is read through its connection."""

from __future__ import annotations

import json

from ansible.plugins.action import ActionBase
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster import ClusterError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import ClusterApi
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_nodes import NotANodeError, node_names
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import NODES
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_rollout import Rollout
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_call import NodeError, ask_node
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError, WorseError

ARGUMENT_SPEC = {
    "kubeconfig": {"type": "path", "required": True},
    "settings": {"type": "dict", "default": {}},
    "profile": {"type": "str", "choices": ["secure_workload"]},
    "variant": {"type": "str", "choices": ["append", "return"], "default": "append"},
    "mark_mask": {"type": "raw"},
    "manage_env": {"type": "bool", "default": False},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "step": {"type": "str", "choices": ["all", "start", "node", "finish"], "default": "all"},
    "node": {"type": "str"},
    "nodes": {"type": "list", "elements": "str"},
    "timeout": {"type": "int", "default": 60},
}
PLAN = "plan"


def refuse(arguments: dict) -> str:
    """Why these arguments cannot be followed, empty when they can."""
    wanted = [name for name in ("settings", "profile", "mark_mask") if arguments[name] not in (None, {}, "")]
    if arguments["state"] == "present" and not wanted:
        return "settings, profile, mark_mask: nothing is to be set; name fields of FelixConfiguration, or a profile"
    if arguments["state"] == "absent" and wanted:
        return f"{wanted[0]}: state absent gives back what was there before, whatever that is: leave it out"
    return ""


def mark_mask_of(value: object) -> object:
    """A mask as a number where it is one: a template makes text of it."""
    if isinstance(value, str) and value != PLAN:
        try:
            return int(value, 0)
        except ValueError:
            return value
    return value if value != "" else None


class ActionModule(ActionBase):
    """modules/felix_config.py is the documentation."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = self.validate_argument_spec(ARGUMENT_SPEC)[1]
        if reason := refuse(arguments):
            return {**result, "failed": True, "msg": reason}
        # Ansible's strings carry tags, and are no plain ones to a serializer.
        plain = json.loads(json.dumps({name: arguments[name] for name in ("settings", "profile", "variant")}))
        asked = {**plain, "profile": plain["profile"] or "", "mark_mask": mark_mask_of(arguments["mark_mask"])}
        self._arguments, self._vars, self._nodes = arguments, task_vars, {}
        result["changed"] = False
        try:
            self._api = ClusterApi(arguments["kubeconfig"])
            how = {"check_mode": self._task.check_mode, "manage_env": arguments["manage_env"]}
            self._rollout = Rollout(self._api, arguments["state"], asked, **how)
            for step in ("start", "node", "finish") if arguments["step"] == "all" else (arguments["step"],):
                found = getattr(self, f"_{step}")()
                result.update(found, changed=result["changed"] or found["changed"])
            result["api_calls"] = self._api.calls
        except NodeError as error:
            result.update(error.result, failed=True)
        except (ClusterError, RolloutError, WorseError, NotANodeError) as error:
            result.update(failed=True, msg=str(error))
        return result

    def _start(self) -> dict:
        names = self._names()
        found = self._rollout.start(self._arguments["nodes"] or names.values())
        before, after = found.pop("before"), found.pop("after")
        headers = dict.fromkeys(("before_header", "after_header"), "FelixConfiguration default")
        diff = {"diff": {"before": before, "after": after, **headers}} if before != after else {}
        return {**found, **diff, "nodes": names}

    def _node(self) -> dict:
        return self._rollout.node(self._name(), self._ask, self._arguments["timeout"])

    def _finish(self) -> dict:
        return self._rollout.finish(self._arguments["timeout"])

    def _names(self) -> dict[str, str]:
        """The names in the cluster of the hosts that this task is for; with the step start those of the wave."""
        if self._arguments["node"]:
            return {self._vars["inventory_hostname"]: self._arguments["node"]}
        if self._arguments["nodes"]:
            return {}
        is_wave = self._arguments["step"] == "start"
        hosts = self._vars["ansible_play_batch"] if is_wave else [self._vars["inventory_hostname"]]
        return node_names(hosts, self._vars["hostvars"], self._api.list(NODES))

    def _name(self) -> str:
        return next(iter(self._names().values()))

    def _ask(self, health: str) -> dict:
        return ask_node(self, "portcullis.fleet.felix_node", {"health": health}, self._vars)
