# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run node_probe on the node and note the controller's clock around it, so that a clock that is off can be seen."""

from __future__ import annotations

import re
import time

from ansible.plugins.action import ActionBase

# What a shell answers for an interpreter that is not there. Source: POSIX sh, exit status of a command not found.
RC_NOT_FOUND = 127


# How sh, bash and zsh say that a program of a become plugin is not there, by name or path.
BECOME_PROGRAMS = "sudo|su|doas|dzdo|pbrun|pfexec|pmrun|ksu|sesu|machinectl"
NO_BECOME = re.compile(
    rf"\b({BECOME_PROGRAMS}): (?:(?:command )?not found|No such file or directory)"
    rf"|command not found: (?:\S*/)?({BECOME_PROGRAMS})\b"
)


def explain_failure(host: str, result: dict) -> dict:
    """Turn the failure of a node without Python, or without sudo, into one line that names the node and the remedy."""
    output = " ".join(str(result.get(key, "")) for key in ("module_stdout", "module_stderr", "msg"))
    if missing := NO_BECOME.search(output):
        program = next(filter(None, missing.groups()))
        message = (
            f"no {program} on {host}: ansible_become needs it. Install {program} there, set ansible_become_method for "
            f"{host} to what it has, or connect as root"
        )
        return {"failed": True, "changed": False, "msg": message, "no_become": True}
    if result.get("rc") != RC_NOT_FOUND and "interpreter" not in output:
        return result
    message = (
        f"no Python on {host}: the module's interpreter was not found. Install python3 (3.8 or newer) there, or set "
        f"ansible_python_interpreter for {host} to where it is"
    )
    return {"failed": True, "changed": False, "msg": message, "no_python": True}


class ActionModule(ActionBase):
    """The controller half: adds the clock readings, explains a missing Python or sudo."""

    TRANSFERS_FILES = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        before = time.time()
        result.update(self._execute_module(task_vars=task_vars))
        if result.get("failed"):
            return explain_failure(task_vars["inventory_hostname"], result)
        if "probe" in result:
            result["controller_epoch_s"] = {"before": before, "after": time.time()}
        return result
