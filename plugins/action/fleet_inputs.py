# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuse what the user got wrong before anything connects to anything."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible.plugins.loader import module_loader
from ansible_collections.portcullis.fleet.plugins.plugin_utils import variables
from ansible_collections.portcullis.fleet.plugins.plugin_utils.fleet_groups import (
    CLUSTER_GROUPS,
    FLEET_GROUPS,
    PLAIN_GROUP,
    hosts_of,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.in_hand import sets_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import numbered, one_line

ROLES = Path(__file__).parent.parent.parent / "roles"
# What the role cluster uses; found missing there, it would be after the nodes were changed.
CLUSTER_MODULE = "kubernetes.core.k8s"


def complain_about_groups(groups: Mapping[str, list]) -> str | None:
    """A fleet without hosts, which a run would pass over in silence, or a host that is two things at once."""
    if not hosts_of(groups):
        found = ", ".join(sorted(set(groups) - {"all", "ungrouped"})) or "none"
        return (
            f"no host in {', '.join(FLEET_GROUPS)} (groups of this inventory: {found}): put the nodes of the cluster "
            "into control_plane and workers, other hosts into plain_hosts; a group may have yours as its children"
        )
    plain = groups.get(PLAIN_GROUP, [])
    for group in CLUSTER_GROUPS:
        both = [name for name in groups.get(group, []) if name in plain]
        if both:
            return f"{both[0]} is in {group} and in {PLAIN_GROUP}: a host is a node of the cluster or a plain host"
    return None


def complain_about_cluster(groups: Mapping[str, list], kubeconfig: object) -> str | None:
    """Nodes of a cluster without the one way to ask it."""
    count = len(hosts_of(groups, CLUSTER_GROUPS))
    if count and not kubeconfig:
        return (
            f"control_plane and workers have {numbered(count, 'host')} but portcullis_kubeconfig is not set: give the "
            "path of an administrator's kubeconfig on this machine; fleets of plain hosts need none"
        )
    if count and not module_loader.find_plugin(CLUSTER_MODULE):
        return f"{CLUSTER_MODULE} is not installed: ansible-galaxy collection install kubernetes.core"
    return None


def read_settings(host: str, hostvars: Mapping) -> dict[str, object]:
    """The variables of a host that are meant for this collection.

    :raises ValueError: for one that cannot be rendered (undefined, a failing lookup, a vault that is closed).
    """
    settings = {}
    for name in hostvars:
        if not variables.is_meant_for_us(name):
            continue
        try:
            settings[name] = hostvars[name]
        except Exception as error:  # whatever a template can raise
            raise ValueError(f"{name} of {host} cannot be rendered: {one_line(error)}") from error
    return settings


def complain_about_settings(settings: Mapping[str, Mapping], options: Mapping[str, Mapping]) -> str | None:
    """The first variable of a host that is misspelt, that its role does not take, or that differs from host to host."""
    for host, values in settings.items():
        complaint = variables.complain_unknown(values, options)
        if complaint:
            return f"{host}: {complaint}"
        for name, value in values.items():
            complaint = variables.complain_value(name, value, options[name])
            if complaint:
                return f"{name} of {host}: {complaint}"
    return variables.complain_differences(settings)


def complain(groups: Mapping[str, list], settings: Mapping[str, Mapping]) -> str | None:
    """The first thing that is wrong with a run's inputs."""
    first = next(iter(settings.values()), {})
    return (
        complain_about_groups(groups)
        or complain_about_settings(settings, variables.load_argument_specs(ROLES))
        or complain_about_cluster(groups, first.get("portcullis_kubeconfig"))
    )


class ActionModule(ActionBase):
    """All on the controller; modules/fleet_inputs.py is the documentation."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        self.validate_argument_spec({})
        groups = task_vars["groups"]
        hosts = hosts_of(groups)
        try:
            settings = {name: read_settings(name, task_vars["hostvars"][name]) for name in hosts}
            complaint = complain(groups, settings)
        except ValueError as error:
            complaint = str(error)
        if complaint:
            result.update(failed=True, msg=complaint)
            return result
        waves = settings[hosts[0]].get("portcullis_waves", list(variables.DEFAULT_WAVES))
        started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        sets = sets_of(settings[hosts[0]]) if hosts_of(groups, CLUSTER_GROUPS) else {}
        result.update(changed=False, hosts=hosts, started=started, waves=variables.parse_waves(waves), sets=sets)
        return result
