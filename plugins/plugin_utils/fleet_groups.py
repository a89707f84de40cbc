# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The groups of an inventory that make a fleet. The playbooks name the same ones in their C(hosts)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

CLUSTER_GROUPS = ("control_plane", "workers")
PLAIN_GROUP = "plain_hosts"
FLEET_GROUPS = (*CLUSTER_GROUPS, PLAIN_GROUP)


def hosts_of(groups: Mapping[str, list[str]], names: Iterable[str] = FLEET_GROUPS) -> list[str]:
    """The hosts of these groups, each once, in inventory order; a group that is not there has none."""
    return list(dict.fromkeys(host for name in names for host in groups.get(name, [])))
