# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller half of node_fix: choose the fixes of this node's findings, and have the node carry them out."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_fixes import wishes_of

ARGUMENT_SPEC = {
    "findings": {"type": "list", "elements": "dict"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
}
REQUIRED_IF = [("state", "present", ["findings"])]


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _requires_connection = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = self.validate_argument_spec(ARGUMENT_SPEC, required_if=REQUIRED_IF)[1]
        host = task_vars["inventory_hostname"]
        try:
            wishes = wishes_of(arguments["findings"] or [], host)
        except (AttributeError, KeyError, TypeError) as error:
            return {
                **result,
                "failed": True,
                "msg": f"findings: not what node_requirements returns ({error!r}): pass its RV(findings)",
            }
        given = {"findings": [], "state": arguments["state"], "_wishes": wishes}
        result.update(self._execute_module(module_args=given, task_vars=task_vars))
        for item in result.get("refused", []):
            Display().warning(f"{host}: {item['finding']} cannot be mended: {item['reason']}")
        for item in result.get("left", []):
            Display().warning(f"{host}: {item['what']} was left as it is: {item['reason']}")
        return result
