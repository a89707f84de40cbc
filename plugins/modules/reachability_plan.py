#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The work is done by plugins/action/reachability_plan.py on the controller; this file is the documentation.

from __future__ import annotations

DOCUMENTATION = r"""
module: reachability_plan
short_description: Decide which ports have to be tried between which nodes
version_added: 0.1.0
description:
  - Computes from the mode of the cluster's network which rows of Calico's table of ports it needs. These are BGP,
    IP-in-IP, VXLAN, WireGuard and flannel's VXLAN among the nodes, and the API server, Typha and etcd from each node,
    with the addresses and ports that the cluster itself names.
  - Up to 8 nodes try all pairs. Of more, each node tries those 1, 2, 4, 8 and so on places further in a ring, so that
    the number of pairs grows with n log n. Of a service each node tries three endpoints.
  - Reads the cluster and sends nothing. M(portcullis.fleet.node_reachability) carries the plan out.
  - Runs on the controller. Needs the Python library C(kubernetes) there.
author:
  - The Portcullis developers (@portcullis)
options:
  kubeconfig:
    description: Path of the kubeconfig on the controller. Its current context is used.
    type: path
    required: true
  cluster:
    description: The C(cluster) that M(portcullis.fleet.cluster_probe) returned.
    type: dict
    required: true
  probes:
    description: By node, what M(portcullis.fleet.node_probe) registered. Nodes that were not read take no part.
    type: dict
    required: true
extends_documentation_fragment:
  - portcullis.fleet.attributes
  - portcullis.fleet.attributes.read_only
"""

EXAMPLES = r"""
- name: Which ports have to be tried?
  portcullis.fleet.reachability_plan:
    kubeconfig: ~/.kube/config
    cluster: "{{ cluster_probe.cluster }}"
    probes: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'probe'))) }}"
  run_once: true
  register: result
"""

RETURN = r"""
plan:
  description: Who watches and tries what.
  returned: success
  type: dict
  contains:
    nonce:
      description: What marks this run's probes.
      type: str
      sample: 00112233445566ff
    deadline_s:
      description: Seconds after which what watches on a node ends by itself.
      type: int
      sample: 126
    needs:
      description: The rows that this cluster needs, with why, and how many pairs are tried.
      type: list
      elements: dict
      sample: [{"words": "UDP 4789 (VXLAN)", "why": "a pool has vxlanMode Always", "pairs": 6}]
    hosts:
      description: By inventory name the arguments of M(portcullis.fleet.node_reachability), and in C(tries) which need
        each attempt is of and whom it is meant for.
      type: dict
      sample: {"w1": {"number": 1, "ports": [{"protocol": "udp", "port": 4789}], "attempts": [], "tries": []}}
    unseen:
      description: What of the cluster could not be read.
      type: dict
      sample: {}
"""
