# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the report of a run on the controller; modules/fleet_report.py is the documentation."""

from __future__ import annotations

from pathlib import Path

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.portcullis.fleet.plugins.module_utils.files import write_atomic
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report import ReportInputError, build, to_json
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_html import render_html

ARGUMENT_SPEC = {
    "path": {"type": "path", "default": "./reports"},
    "run": {"type": "dict", "required": True},
}
NAME = "portcullis-report"


def write_report(directory: Path, report: dict) -> dict:
    """Write both files, readable by their owner only; return their paths by kind.

    :raises OSError: the directory or a file in it cannot be written; C(filename) is set.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = {}
    for kind, text in (("json", to_json(report)), ("html", render_html(report))):
        path = directory / f"{NAME}.{kind}"
        write_atomic(path, text.encode(), mode=0o600)
        paths[f"{kind}_path"] = str(path)
    return paths


class ActionModule(ActionBase):
    """All on the controller, in check mode too: a check without its report would be of no use."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = self.validate_argument_spec(ARGUMENT_SPEC)[1]
        directory = Path(arguments["path"]).absolute()
        try:
            report = build(arguments["run"])
            paths = write_report(directory, report)
        except ReportInputError as error:
            raise AnsibleActionFail(f"No report was written: {error}") from error
        except OSError as error:
            raise AnsibleActionFail(
                f"The report cannot be written to {error.filename or directory}: {error.strerror}; "
                "give a path to a directory that you may write to"
            ) from error
        outcome = report["outcome"]
        result.update(
            changed=False,
            summary=f"{outcome['sentence']} {outcome['detail']}".rstrip(),
            **paths,
        )
        return result
