# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the cluster from the controller. Nothing runs on a node and nothing is changed."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster import Cluster, ClusterError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_observations import ENGINES

ARGUMENT_SPEC = {
    "kubeconfig": {"type": "path", "required": True},
    "namespace": {"type": "str", "required": True},
    "engine": {"type": "str", "choices": list(ENGINES), "default": "native"},
}


class ActionModule(ActionBase):
    """All on the controller; modules/cluster_probe.py is the documentation."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = self.validate_argument_spec(ARGUMENT_SPEC)[1]
        try:
            cluster = Cluster(arguments["kubeconfig"])
            result.update(changed=False, cluster=cluster.probe(arguments["namespace"], arguments["engine"]))
        except ClusterError as error:
            result.update(failed=True, msg=str(error))
        return result
