# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Node of the cluster each host of the inventory is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster import node_summary
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_requirements import host_record, match_nodes


class NotANodeError(ValueError):
    """A host is no node of the cluster; the message says what to set."""


def node_names(hosts: Iterable[str], hostvars: Mapping[str, dict], nodes: list[dict]) -> dict[str, str]:
    """The name in the cluster of each host.

    It is C(portcullis_node_name), or the Node of the inventory's name, or the one that has the address
    C(ansible_host).

    :param nodes: Node objects.
    :raises NotANodeError: a host is none of them.
    """
    records = {host: host_record(host, hostvars.get(host, {}), {}) for host in hosts}
    found = match_nodes(records, [node_summary(node) for node in nodes])
    missing = [host for host in records if host not in found]
    if missing:
        known = ", ".join(sorted(node["metadata"]["name"] for node in nodes)[:10]) or "none"
        raise NotANodeError(
            f"{', '.join(missing)}: no node of the cluster, which has {known}: set the option node, or "
            "portcullis_node_name of the host"
        )
    return found
