# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller half of containerd_image: refuses bad names, copies the archive only to nodes that lack the image."""

from __future__ import annotations

from pathlib import Path

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ..module_utils.image_archive import ArchiveError, read_archive, select_entry
from ..module_utils.image_platform import Platform
from ..module_utils.image_reference import parse_reference

# Told apart from other files in the node's temporary directories: runs whose connection was lost leave it there.
FILE_NAME = "portcullis-image-archive"


def complain_archive(path: str, name: str, node: str) -> str:
    """Say why an archive cannot provide an image to a node (C(linux/arm/v7)); empty when it can."""
    system, architecture, variant = f"{node}//".split("/")[:3]
    try:
        select_entry(read_archive(path), parse_reference(name), Platform(system, architecture, variant))
    except ArchiveError as error:
        return f"archive {path} cannot provide {name}: {error}"
    return ""


class ActionModule(ActionBase):
    TRANSFERS_FILES = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        archive = arguments.get("archive")
        try:
            parse_reference(str(arguments.get("name") or ""))
            if archive and not isinstance(archive, str):
                raise ValueError(
                    f"archive must be the path of a file on the machine that runs Ansible, got {archive!r}"
                )
            local = self._find_needle("files", archive) if archive else ""
            if local and not Path(local).is_file():
                raise ValueError(f"archive {local} is no regular file: give the path of an archive with the image")
        except ValueError as error:
            return {**result, "failed": True, "msg": str(error)}
        except AnsibleError:
            return {**result, "failed": True, "msg": f"archive {archive!r} is not on the machine that runs Ansible"}
        if not archive:
            return {**result, **self._execute_module(module_args=arguments, task_vars=task_vars)}
        found = self._execute_module(module_args={**arguments, "_only_look": True}, task_vars=task_vars)
        if found.get("failed") or found.get("source") != "archive":
            return {**result, **found}
        remote = ""
        problem = complain_archive(local, found["name"], found["node_architecture"])
        if not problem and not self._task.check_mode:
            remote, problem = self._copy(local)
        if problem:
            return {**result, "failed": True, "msg": problem, "name": found["name"]}
        if remote:
            arguments["_copied_archive"] = remote
            found = self._execute_module(module_args=arguments, task_vars=task_vars)
        return {**result, **found}

    def _copy(self, local: str) -> tuple[str, str]:
        """Copy an archive to the node; return where it is, or what went wrong.

        Ansible removes the directory after the task, whatever becomes of it.
        """
        directory = self._connection._shell.tmpdir or self._make_tmp_path()
        remote = self._connection._shell.join_path(directory, FILE_NAME)
        try:
            self._transfer_file(local, remote)
        except AnsibleConnectionFailure:
            raise
        except AnsibleError as error:
            size_mib = Path(local).stat().st_size / 2**20
            return "", (
                f"the archive ({size_mib:.0f} MiB) could not be copied to {directory} on the node: {error}; make room "
                "there, or set ansible_remote_tmp to a directory with room"
            )
        return remote, ""
