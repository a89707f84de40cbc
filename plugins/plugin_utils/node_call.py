# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module that an action plugin runs on its node."""

from __future__ import annotations

from ansible.plugins.action import ActionBase


class NodeError(Exception):
    """The module failed, or the node could not be reached; C(result) is what it returned."""

    def __init__(self, result: dict) -> None:
        """Take the module's result."""
        super().__init__(result.get("msg", ""))
        self.result = result


def call_node(action: ActionBase, name: str, options: dict, variables: dict) -> dict:
    """Run a module on the node; its answer, which can hold whole files with credentials, ssh would print at -vvv."""
    # ssh asks its own copy of the play's context, as ansible-core 2.19 has it.
    context = action._connection._play_context
    shown, context.no_log = context.no_log, True
    try:
        return action._execute_module(module_name=name, module_args=options, task_vars=variables)
    finally:
        context.no_log = shown


def ask_node(action: ActionBase, name: str, options: dict, variables: dict) -> dict:
    """As call_node().

    :raises NodeError: the module failed.
    """
    found = call_node(action, name, options, variables)
    if found.get("failed") or found.get("unreachable"):
        raise NodeError(found)
    return found
