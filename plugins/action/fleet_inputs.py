# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuse what the user got wrong before anything connects to anything."""

from __future__ import annotations

import datetime
from pathlib import Path

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase
from ansible_collections.portcullis.fleet.plugins.plugin_utils import variables
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import numbered

CLUSTER_GROUPS = ("control_plane", "workers")
FLEET_GROUPS = (*CLUSTER_GROUPS, "plain_hosts")
ROLES = Path(__file__).parent.parent.parent / "roles"


def complain_about_groups(groups: dict) -> str | None:
    """A fleet without hosts, which a run would pass over in silence."""
    if any(groups.get(name) for name in FLEET_GROUPS):
        return None
    found = ", ".join(sorted(set(groups) - {"all", "ungrouped"})) or "none"
    return (
        f"no host in {', '.join(FLEET_GROUPS)} (groups of this inventory: {found}): put the nodes of the cluster into "
        "control_plane and workers, other hosts into plain_hosts; a group may have yours as its children"
    )


def complain_about_cluster(groups: dict, kubeconfigs: set[str]) -> str | None:
    """Nodes of a cluster without the one way to ask it."""
    count = sum(len(groups.get(name, [])) for name in CLUSTER_GROUPS)
    if not count:
        return None
    if kubeconfigs == {""}:
        return (
            f"control_plane and workers have {numbered(count, 'host')} but portcullis_kubeconfig is not set: give the "
            "path of an administrator's kubeconfig on this machine; fleets of plain hosts need none"
        )
    if len(kubeconfigs) > 1:
        return (
            f"portcullis_kubeconfig differs between hosts ({', '.join(sorted(kubeconfigs))}): a run is for one "
            "cluster, use one inventory for each"
        )
    return None


def complain_about_host(name: str, settings: dict, options: dict) -> str | None:
    """A misspelt variable or a value that its role does not take, for one host."""
    unknown = variables.unknown_variables(set(settings), set(options))
    if unknown:
        return variables.explain_unknown(unknown, name)
    for key, value in settings.items():
        specification = {word: part for word, part in options[key].items() if word in variables.SPEC_KEYS}
        errors = ArgumentSpecValidator({key: specification}).validate({key: value}).error_messages
        if errors:
            return f"{key} of {name}: {errors[0]}"
    return None


class ActionModule(ActionBase):
    """All on the controller; modules/fleet_inputs.py is the documentation."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        self.validate_argument_spec({})
        groups, hostvars = task_vars["groups"], task_vars["hostvars"]
        options = variables.load_argument_specs(ROLES)
        hosts = list(dict.fromkeys(name for group in FLEET_GROUPS for name in groups.get(group, [])))
        complaint = complain_about_groups(groups)
        kubeconfigs = set()
        for name in hosts if complaint is None else ():
            settings = {key: hostvars[name][key] for key in hostvars[name] if key.startswith(variables.PREFIX)}
            complaint = complain_about_host(name, settings, options)
            if complaint:
                break
            if not set(CLUSTER_GROUPS).isdisjoint(hostvars[name]["group_names"]):
                kubeconfigs.add(str(settings.get("portcullis_kubeconfig", "")))
        complaint = complaint or complain_about_cluster(groups, kubeconfigs)
        if complaint:
            result.update(failed=True, msg=complaint)
            return result
        started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        result.update(changed=False, hosts=hosts, started=started)
        return result
