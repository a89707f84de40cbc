# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller half of felix_config: objects are written from here, the node is read through its connection."""

from __future__ import annotations

import functools
from typing import ClassVar

from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_rollout import Rollout
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_call import ask_node
from ansible_collections.portcullis.fleet.plugins.plugin_utils.step_action import StepAction, with_diff

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


class ActionModule(StepAction):
    """modules/felix_config.py is the documentation."""

    OPTIONS: ClassVar = {
        "settings": {"type": "dict", "default": {}},
        "profile": {"type": "str", "choices": ["secure_workload"]},
        "variant": {"type": "str", "choices": ["append", "return"], "default": "append"},
        "mark_mask": {"type": "raw"},
        "manage_env": {"type": "bool", "default": False},
        "nodes": {"type": "list", "elements": "str"},
    }

    _refuse = staticmethod(refuse)

    @functools.cached_property
    def _rollout(self) -> Rollout:
        given = self._arguments
        asked = {
            "settings": given["settings"],
            "profile": given["profile"] or "",
            "variant": given["variant"],
            "mark_mask": mark_mask_of(given["mark_mask"]),
        }
        how = {"check_mode": self._task.check_mode, "manage_env": given["manage_env"]}
        return Rollout(self._api, given["state"], asked, **how)

    def _start(self) -> dict:
        names = self._names()
        found = self._rollout.start(self._arguments["nodes"] or names.values())
        return {**with_diff(found, "FelixConfiguration default"), "nodes": names}

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
        return self._names_of(hosts)

    def _name(self) -> str:
        return next(iter(self._names().values()))

    def _ask(self, health: str) -> dict:
        return ask_node(self, "portcullis.fleet.felix_node", {"health": health}, self._vars)
