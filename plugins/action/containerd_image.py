# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller half of containerd_image: copies the archive only to nodes that lack the image."""

from __future__ import annotations

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    TRANSFERS_FILES = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        archive = arguments.get("archive")
        if not archive:
            return {**result, **self._execute_module(module_args=arguments, task_vars=task_vars)}
        try:
            local = self._find_needle("files", archive)
        except AnsibleError:
            return {**result, "failed": True, "msg": f"archive {archive!r} is not on the machine that runs Ansible"}
        found = self._execute_module(module_args={**arguments, "_only_look": True}, task_vars=task_vars)
        if found.get("failed") or not found.get("changed") or self._task.check_mode:
            return {**result, **found}
        remote = self._connection._shell.join_path(self._connection._shell.tmpdir or self._make_tmp_path(), "archive")
        self._transfer_file(local, remote)
        done = self._execute_module(module_args={**arguments, "_copied_archive": remote}, task_vars=task_vars)
        self._remove_tmp_path(self._connection._shell.tmpdir)
        return {**result, **done}
