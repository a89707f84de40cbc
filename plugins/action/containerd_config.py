# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller half of containerd_config: read the node, plan, and only if something changes write it."""

from __future__ import annotations

import json

from ansible.plugins.action import ActionBase

from ..plugin_utils.containerd_task import ConfigTask, check_arguments, node_arguments
from ..plugin_utils.node_call import call_node


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        if reason := check_arguments(arguments):
            return {**result, "failed": True, "msg": reason}
        given = node_arguments(arguments)
        read = call_node(self, "portcullis.fleet.containerd_config", given, task_vars)
        if read.get("failed") or "facts" not in read:
            return {**result, **read}
        facts = read["facts"]
        if not facts["binary"] and not facts["files"][0]["sha256"]:
            return {
                **result,
                "failed": True,
                "msg": f"no containerd on this node: there is neither a containerd binary nor {facts['config_file']}; "
                "install containerd, or leave this host out of the play",
            }
        task = ConfigTask(arguments, facts, task_vars["inventory_hostname"])
        result.update(task.prediction())
        if result.get("failed") or not task.needs_second_trip:
            return result
        plan = {"validate": task.validation, "plan": json.dumps(task.node_plan())}
        written = call_node(self, "portcullis.fleet.containerd_write", plan, task_vars)
        written.pop("invocation", None)
        return task.outcome(result, written)
