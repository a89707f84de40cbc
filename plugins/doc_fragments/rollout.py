# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """The options of modules that take a change from node to node through the API server."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description: Path of the kubeconfig on the controller. Its current context is used.
    type: path
    required: true
  node:
    description: The host's name in the cluster. By default it is looked for by C(portcullis_node_name), by the
      inventory name, and by the address C(ansible_host).
    type: str
"""
