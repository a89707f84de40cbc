# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have pods on sampled nodes call each other. Works on the cluster from the controller; no node is connected to."""

from __future__ import annotations

import ipaddress

from ansible.plugins.action import ActionBase
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster import ClusterError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_requirements import hosts_by_node
from ansible_collections.portcullis.fleet.plugins.plugin_utils.flat_network import can_take_part, sample_nodes
from ansible_collections.portcullis.fleet.plugins.plugin_utils.flat_network_run import FlatNetwork

ARGUMENT_SPEC = {
    "kubeconfig": {"type": "path", "required": True},
    "cluster": {"type": "dict", "required": True},
    "probes": {"type": "dict", "required": True},
    "image": {"type": "str", "default": "docker.io/library/busybox:1.33"},
}


NOTHING = {"pairs": [], "host_ports": [], "node_ports": [], "notes": {}, "left": ""}


def ip_addresses(node: dict) -> list[str]:
    """The addresses of a node that are numbers, IPv4 first; the others are names."""
    found = []
    for text in node["addresses"]:
        try:
            found.append(ipaddress.ip_address(text))
        except ValueError:
            continue
    return [str(address) for address in sorted(found, key=lambda address: address.version)]


class ActionModule(ActionBase):
    """All on the controller; modules/flat_network.py is the documentation."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = self.validate_argument_spec(ARGUMENT_SPEC)[1]
        nodes = arguments["cluster"]["nodes"]
        hosts = hosts_by_node(arguments["probes"], task_vars.get("hostvars", {}), nodes)
        addresses = {node["name"]: ip_addresses(node) for node in nodes}
        wanted = [node for node in nodes if node["name"] in hosts]
        able = [node for node in wanted if can_take_part(node) and addresses[node["name"]]]
        sampled = {name: addresses[name][0] for name in sample_nodes(able)}
        proof = {**NOTHING, "unstarted": {}}
        if sampled:
            try:
                proof = FlatNetwork(arguments["kubeconfig"]).prove(sampled, arguments["image"])
            except ClusterError as error:
                proof["unstarted"] = dict.fromkeys(sampled, str(error))
        proof["unstarted"].update({node["name"]: "it is not ready" for node in wanted if not node["ready"]})
        by_address = {address: name for name, found in addresses.items() for address in found}
        result.update(changed=False, flat_network={**proof, "of": len(nodes), "hosts": hosts, "addresses": by_address})
        return result
