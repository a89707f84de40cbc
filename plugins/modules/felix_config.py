#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The work is done by plugins/action/felix_config.py on the controller; this file is the documentation.

from __future__ import annotations

DOCUMENTATION = r"""
module: felix_config
short_description: Change settings of Calico's Felix node by node, proven in force
version_added: 0.1.0
description:
  - Sets fields of the FelixConfiguration C(default), of C(crd.projectcalico.org/v1) or C(projectcalico.org/v3),
    whichever the cluster serves, in installations by manifest and by the Tigera operator.
  - An edit of C(default) restarts Felix on every node at once. Therefore each node gets the change first by an object
    C(node.NAME), from Calico 3.32 on by a label that one object with a C(nodeSelector) asks for. When all nodes that
    run calico-node have it in force, C(default) is written and what carried the change is deleted, which restarts
    nothing.
  - On each node it is proven by the live rules (place of Felix's chains, allow actions, mark bits in use), by Felix's
    readiness and by its restart. A node where it is not is put back, and the task fails.
  - Refused before anything is written are fields and words that this version does not have, with the one that was
    meant; durations without a unit or with a fraction; mark masks with too few bits, with kube-proxy's bit, or that the
    API server does not take; and what Secure Workload's requirement does not allow. A CRD of before Calico 3.27 would
    take all of them, and Felix would ignore them or start again for ever.
  - Refused is also what would have no effect, because a variable of calico-node, C(node.NAME) of somebody else's or the
    operator has more weight. The message says where that is changed.
  - The state of a change is kept in labels and annotations C(portcullis.io/...) of the objects. A run that was killed
    is resumed by the next one, another change is refused until then.
author:
  - The Portcullis developers (@portcullis)
options:
  settings:
    description:
      - Fields of a FelixConfiguration by their own names, such as C({"chainInsertMode":"Append"}). Null takes a field
        away.
      - Durations have a unit, C("0s"). Masks are whole numbers.
    type: dict
    default: {}
  profile:
    description:
      - V(secure_workload) sets one of the two combinations of Secure Workload's requirement for policy enforcement, and
        a mark mask without its bits 20 and 21 where Felix would use one of them.
    type: str
    choices: [secure_workload]
  variant:
    description:
      - V(append) sets C(chainInsertMode) to Append. Only this one keeps another agent's chains in front of Felix's.
      - V(return) leaves Felix's chains in front, and has them return what they allow.
      - With both the refresh interval is 0.
    type: str
    choices: [append, return]
    default: append
  mark_mask:
    description:
      - The mask of the mark bits that Felix may use, for the dataplane that runs, as a number. V(plan) has one planned
        that keeps clear of kube-proxy's and kubelet's bits, with O(profile) also of Secure Workload's.
      - If it is not set, O(profile) plans one where it has to.
    type: raw
  manage_env:
    description:
      - Whether variables of calico-node that outrank O(settings) are taken out of its DaemonSet. Otherwise they are
        refused, with where they are changed.
      - C(default) gets their values first, which has no effect yet. Each node's pod is deleted when it is the node's
        turn, the update strategy is C(OnDelete) until the end.
      - Variables that an installer writes back by itself (kOps, RKE2, k0s, Gardener, GKE, the add-on manager, the
        Tigera operator) stay refused. Kubespray writes them at its next run.
    type: bool
    default: false
  state:
    description:
      - V(present) sets what is asked for.
      - V(absent) takes a change back that is under way. Without one it gives back, through the nodes in the same way,
        what C(default) had before the first change. A field that somebody else has changed since stays.
      - Variables that were taken out come back at the end. Kubernetes then renews the pods of calico-node by its own
        strategy, with the values that they have already.
    type: str
    choices: [present, absent]
    default: present
  step:
    description:
      - V(all) does what is to be done for this host's node, and the end when it was the last one.
      - The role P(portcullis.fleet.calico#role) takes the steps apart. V(start) checks, and gives the change to the
        nodes of a wave. V(node) proves it there. V(finish) writes C(default) once all nodes have it.
    type: str
    choices: [all, start, node, finish]
    default: all
  nodes:
    description: The names in the cluster of the nodes of a wave, for O(step=start). By default they are those of the
      hosts of this batch of the play.
    type: list
    elements: str
  timeout:
    description: Seconds within which the change must be in force on a node.
    type: int
    default: 60
extends_documentation_fragment:
  - portcullis.fleet.attributes
  - portcullis.fleet.rollout
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
notes:
  - Needs the rights to read DaemonSets, Pods, Nodes, ConfigMaps and CustomResourceDefinitions, and to write
    FelixConfigurations, from Calico 3.32 on also Nodes, with O(manage_env) also DaemonSets and Pods.
  - Where calico-node keeps its objects in etcd nothing is changed.
  - Whether a variable or C(felix.cfg) of one node has more weight than an object is seen on the node only, so that node
    is put back then.
"""

EXAMPLES = r"""
- name: Which nodes have other settings, and what default would get
  portcullis.fleet.felix_config:
    kubeconfig: ~/.kube/config
    profile: secure_workload
  check_mode: true
  diff: true

- name: Repair Felix's rules every minute, on this host's node first
  portcullis.fleet.felix_config:
    kubeconfig: ~/.kube/config
    settings:
      iptablesRefreshInterval: 60s

- name: Take the change back
  portcullis.fleet.felix_config:
    kubeconfig: ~/.kube/config
    state: absent
"""

RETURN = r"""
revision:
  description: Names the change, empty where nothing is to be changed.
  returned: O(step=all), O(step=start)
  type: str
  sample: 71c0a7d2fe
nodes:
  description: The name in the cluster of each host.
  returned: O(step=all), O(step=start)
  type: dict
  sample:
    node7.example: node7
staged:
  description: The nodes that were given the change now, or from which it was taken.
  returned: O(step=all), O(step=start)
  type: list
  elements: str
environment:
  description: The variables of calico-node that were taken out of its DaemonSet, now or before.
  returned: O(step=all), O(step=start)
  type: list
  elements: str
in_force:
  description: By node what is in force there and is to be changed, with the place that it comes from.
  returned: O(step=all), O(step=start)
  type: dict
  sample:
    node7: ["chainInsertMode Insert (built-in)"]
warnings:
  description: What does not stop the change, such as somebody else who writes the same fields.
  returned: O(step=all), O(step=start)
  type: list
  elements: str
node:
  description: The host's name in the cluster.
  returned: O(step=all), O(step=node)
  type: str
live:
  description:
    - What the live rules show, by backend (C(nft) or C(legacy) of iptables, C(native) for nftables).
  returned: when a change concerns the node
  type: dict
  sample:
    nft:
      chain_insert_mode: Append
      filter_allow_action: Accept
      mangle_allow_action: Accept
      mark_bits: "0x4b0000"
waits_for:
  description: The nodes that do not have it in force yet, or from which it was not taken yet.
  returned: O(step=all), O(step=start), O(step=finish)
  type: list
  elements: str
restarted:
  description: Pods of calico-node that restarted at the end, where none has to.
  returned: when the change came to its end
  type: list
  elements: str
api_calls:
  description: How many requests were made.
  returned: success
  type: int
"""
