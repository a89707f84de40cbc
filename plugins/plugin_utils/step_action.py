# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of action plugins that take a change from node to node, step by step."""

from __future__ import annotations

import json
from typing import ClassVar

from ansible.plugins.action import ActionBase
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster import ClusterError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import ClusterApi
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_nodes import NotANodeError, node_names
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import NODES
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_call import NodeError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.rollout import RolloutError, WorseError

STEPS = ("start", "node", "finish")


class StepAction(ActionBase):
    """A subclass has the steps C(_start), C(_node) and C(_finish), which return parts of the result, and C(_refuse).

    C(_refuse(arguments)) says why they cannot be followed, empty when they can.
    """

    TRANSFERS_FILES = False
    # Options beside those of every such module.
    OPTIONS: ClassVar[dict[str, dict]] = {}

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        common = {
            "kubeconfig": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "step": {"type": "str", "choices": ["all", *STEPS], "default": "all"},
            "node": {"type": "str"},
            "timeout": {"type": "int", "default": 60},
        }
        arguments = self.validate_argument_spec({**common, **self.OPTIONS})[1]
        if reason := self._refuse(arguments):
            return {**result, "failed": True, "msg": reason}
        # Ansible's strings carry tags, and are no plain strings to a YAML parser.
        self._arguments, self._vars = json.loads(json.dumps(arguments)), task_vars
        result["changed"] = False
        try:
            self._api = ClusterApi(arguments["kubeconfig"])
            for step in STEPS if arguments["step"] == "all" else (arguments["step"],):
                found = getattr(self, f"_{step}")()
                result.update(found, changed=result["changed"] or found["changed"])
            result["api_calls"] = self._api.calls
        except NodeError as error:
            result.update(error.result, failed=True)
        except (ClusterError, RolloutError, WorseError, NotANodeError) as error:
            result.update(failed=True, msg=str(error))
        return result

    def _names_of(self, hosts: list[str]) -> dict[str, str]:
        """The names in the cluster of hosts."""
        return node_names(hosts, self._vars["hostvars"], self._api.list(NODES))


def with_diff(found: dict, header: str) -> dict:
    """A result whose C(before) and C(after) have become a diff, where they differ."""
    before, after = found.pop("before"), found.pop("after")
    if before == after:
        return found
    return {**found, "diff": {"before": before, "after": after, "before_header": header, "after_header": header}}
