#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The work is done by plugins/action/node_requirements.py on the controller; this file is the documentation.

from __future__ import annotations

DOCUMENTATION = r"""
module: node_requirements
short_description: Judge what was read of nodes and of their cluster
version_added: 0.1.0
description:
  - Evaluates the requirements of an engine against the results of M(portcullis.fleet.node_probe) and
    M(portcullis.fleet.cluster_probe), prints a table of what is not as it should be, and returns the findings.
  - With a cluster, Felix's effective settings are judged as well, which of variable and object decides each, and
    whether they go with kube-proxy's mode and keep clear of the packet marks of others on each node.
  - Runs on the controller and needs no node, so a probe that was saved elsewhere is judged the same.
  - Never fails because of a finding. The playbooks stop at RV(blockers).
author:
  - The Portcullis developers (@portcullis)
options:
  probes:
    description:
      - By node, what M(portcullis.fleet.node_probe) registered, also when it failed or the node was unreachable.
      - A saved C(probe) alone will do.
    type: dict
    required: true
  cluster:
    description: The C(cluster) that M(portcullis.fleet.cluster_probe) returned. Without it only nodes are judged.
    type: dict
  engine:
    description: The engine whose requirements are checked.
    type: str
    choices: [native, runtime_enforcer, secure_workload]
    default: native
  calico_matrix:
    description:
      - Path on the controller of a file that says which versions of Calico, Istio and Kubernetes go together.
      - By default the collection's own, C(plugins/plugin_utils/calico_matrix.yml).
    type: path
  os_matrix:
    description:
      - Path on the machine that runs Ansible of a YAML file of operating systems that the engine's agent runs on,
        C(secure_workload) with lists of versions by C(ID) of os-release. Without it the collection's own is used.
    type: path
  registry_config_path:
    description: What containerd's registry C(config_path) shall be. If it is not set, any directory will do.
    type: path
  images:
    description: Images that must be on every node. The probe must have been asked for them.
    type: list
    elements: str
    default: [docker.io/library/busybox:1.33]
  containerd_restart:
    description: Whether containerd is restarted where its configuration is changed, as the option C(restart) of
      M(portcullis.fleet.containerd_config).
    type: str
    choices: [auto, never]
    default: auto
  accept_restart_of:
    description: What such a restart may take with it, as the option of M(portcullis.fleet.containerd_config).
    type: list
    elements: str
    default: []
  accept:
    description: Findings to waive, by C(id) or C(id@node).
    type: list
    elements: str
    default: []
  sets:
    description: By role, the fields of kube-proxy and Felix that the run is about to set, as
      M(portcullis.fleet.fleet_inputs) returns them. What they mend is a warning then, no blocker.
    type: dict
    default: {}
  refused:
    description: Why a change of kube-proxy or Felix was refused, by C(kube_proxy) and C(felix), empty where it was not.
    type: dict
    default: {}
  proxy_mode:
    description: The mode of kube-proxy that the run is about to set, for which the kernels are judged.
    type: str
    default: ""
  proven:
    description: Whether the run is over, so that what it should have mended must be mended.
    type: bool
    default: false
  reachability:
    description: C(plan), what M(portcullis.fleet.reachability_plan) returned, and C(watch), C(try) and C(collect), by
      node what each step of M(portcullis.fleet.node_reachability) registered. Without it ports are not judged.
    type: dict
  flat_network:
    description: The C(flat_network) that M(portcullis.fleet.flat_network) returned. Without it it is not judged.
    type: dict
extends_documentation_fragment:
  - portcullis.fleet.attributes
  - portcullis.fleet.attributes.read_only
"""

EXAMPLES = r"""
- name: Judge a probe that was saved on another machine
  portcullis.fleet.node_requirements:
    probes:
      node7: "{{ lookup('ansible.builtin.file', 'probes/node7.json') | from_json }}"
    engine: secure_workload
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
findings:
  description: Everything that is not as it should be.
  returned: success
  type: list
  elements: dict
  contains:
    id:
      description: What it is. Waivers name it.
      type: str
      sample: containerd.cri_not_serving
    severity:
      description: V(blocker) or V(warning).
      type: str
      sample: blocker
    requirement:
      description: The document and the clause that asks for it.
      type: str
      sample: secure-workload/Requirements and Prerequisites
    node:
      description: The node, empty for the fleet or the cluster as a whole.
      type: str
      sample: w2
    observed:
      description: What was found.
      type: str
      sample: "containerd.service is inactive; CRI at /run/containerd/containerd.sock: connection refused"
    expected:
      description: What should be.
      type: str
      sample: CRI answers and RuntimeReady is true
    remedy:
      description: What to do.
      type: str
      sample: "on w2: journalctl -u containerd, mend what it says, systemctl restart containerd"
    waived:
      description: Whether O(accept) names it.
      type: bool
      sample: false
blockers:
  description: The findings that stop a run, a subset of RV(findings).
  returned: success
  type: list
  elements: dict
  sample: []
tried:
  description: What was tried between nodes, a line for O(reachability) and one for O(flat_network) where given.
  returned: success
  type: list
  elements: str
  sample: ["ports tried between 3 nodes: UDP 4789 (VXLAN) 6 pairs"]
changeable:
  description: The nodes that a run can change. What is left out has no containerd, or a waived blocker that makes a
    change impossible to prove.
  returned: success
  type: list
  elements: str
  sample: [cp1, w1]
node_names:
  description: The names in the cluster of the nodes whose part of it a run can change, by their inventory names.
  returned: success
  type: dict
  sample: {cp1: cp1, w1: w1}
fixable:
  description: The nodes that were read as root, so that M(portcullis.fleet.node_fix) can mend what is wrong with them.
  returned: success
  type: list
  elements: str
  sample: [cp1, w1]
"""
