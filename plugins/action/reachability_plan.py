# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which node tries which port of which other, from what the cluster says of its network."""

from __future__ import annotations

import secrets

from ansible.plugins.action import ActionBase
from ansible_collections.portcullis.fleet.plugins.module_utils.port_packets import NONCE_OCTETS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster import ClusterError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_ports import PortsCluster
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_requirements import hosts_by_node
from ansible_collections.portcullis.fleet.plugins.plugin_utils.network_requirements import Network
from ansible_collections.portcullis.fleet.plugins.plugin_utils.port_needs import needs_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.port_plan import make_plan

ARGUMENT_SPEC = {
    "kubeconfig": {"type": "path", "required": True},
    "cluster": {"type": "dict", "required": True},
    "probes": {"type": "dict", "required": True},
}


class ActionModule(ActionBase):
    """All on the controller; modules/reachability_plan.py is the documentation."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = self.validate_argument_spec(ARGUMENT_SPEC)[1]
        hosts = hosts_by_node(arguments["probes"], task_vars.get("hostvars", {}), arguments["cluster"]["nodes"])
        network = Network(arguments["cluster"])
        try:
            read = PortsCluster(arguments["kubeconfig"]).read(network)
        except ClusterError as error:
            result.update(failed=True, msg=str(error))
            return result
        plan = make_plan(needs_of(network, read), hosts, secrets.token_hex(NONCE_OCTETS))
        result.update(changed=False, plan={**plan, "unseen": {**network.unseen, **read["unseen"]}})
        return result
