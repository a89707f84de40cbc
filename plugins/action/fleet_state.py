# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sum up what a run has come to, from the results that its tasks registered."""

from __future__ import annotations

import datetime
from pathlib import PurePath

import yaml
from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.release import __version__ as core_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.fleet_groups import hosts_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_outcome import PHASES
from ansible_collections.portcullis.fleet.plugins.plugin_utils.run_state import RunState, read_results

ARGUMENT_SPEC = {
    "engine": {"type": "str", "default": "native"},
    "phase": {"type": "str", "choices": list(PHASES), "required": True},
    "stopped_reason": {"type": "str", "default": ""},
}
GALAXY = PurePath(__file__).parent.parent.parent / "galaxy.yml"
MANIFEST = PurePath(__file__).parent.parent.parent / "MANIFEST.json"


def collection_version() -> str:
    """This collection's version: of the manifest when it was installed, of galaxy.yml in a checkout."""
    for path, keys in ((MANIFEST, ("collection_info", "version")), (GALAXY, ("version",))):
        try:
            with open(path, encoding="utf-8") as stream:
                value = yaml.safe_load(stream)
        except OSError:
            continue
        for key in keys:
            value = value[key]
        return str(value)
    return "unknown"


class ActionModule(ActionBase):
    """All on the controller; modules/fleet_state.py is the documentation."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = self.validate_argument_spec(ARGUMENT_SPEC)[1]
        phase = arguments["phase"]
        if arguments["stopped_reason"] and phase == "done":
            raise AnsibleActionFail(
                "stopped_reason: a run that is done was not stopped; give the phase that it stopped in"
            )
        state = RunState(
            results=read_results(task_vars["hostvars"].raw_get, hosts_of(task_vars["groups"])),
            phase=phase,
            check_mode=bool(self._task.check_mode),
            batch=tuple(task_vars["ansible_play_batch"]) if phase in ("fix", "change") else (),
            stopped_reason=arguments["stopped_reason"],
        )
        playbooks = context.CLIARGS.get("args") or ("",)
        result.update(
            changed=False,
            run=state.run(
                ended=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                engine=arguments["engine"],
                playbook=PurePath(playbooks[0]).name,
                versions={"portcullis.fleet": collection_version(), "ansible-core": core_version},
            ),
            stopped=state.stopped(),
            waves=state.waves(),
        )
        return result
