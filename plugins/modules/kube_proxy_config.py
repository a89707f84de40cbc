#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The work is done by plugins/action/kube_proxy_config.py on the controller; this file is the documentation.

from __future__ import annotations

DOCUMENTATION = r"""
module: kube_proxy_config
short_description: Change kube-proxy's mode and other settings node by node, proven in force
version_added: 0.1.0
description:
  - Sets fields of the KubeProxyConfiguration where the cluster keeps it, byte-preserving, in a key of a ConfigMap
    (kubeadm and what is built on it, EKS), or in files of each node (C(kube-proxy-arg) in C(config.yaml) of k3s and
    RKE2 with its drop-ins, MicroK8s' argument file). Where it is managed elsewhere (OpenShift, GKE, AKS, Talos, kOps,
    static pods), or where something takes kube-proxy's place, it is refused with what to change instead.
  - Refused as well, before anything is written, are fields that this version does not have, values that it does not
    take, fields that a flag of the DaemonSet outranks, mode nftables with Calico before 3.29, and what the cluster's
    own
    kube-proxy does not load. It is asked in a pod without rights, with C(--write-config-to), which makes no rule.
  - A DaemonSet gives each new pod its present template, so an edit of the ConfigMap would switch each node whose pod
    restarts, and each new node. Therefore a second DaemonSet, the twin, carries the new configuration to the nodes that
    have been changed, by the node label C(portcullis.io/kube-proxy), and the original keeps to the others. Each node
    has one configuration at any time, whoever deletes a pod, adds a node or kills the run.
  - When all nodes have it, the ConfigMap is written, the nodes go back to the original DaemonSet one after the other,
    and its template and strategy are restored. Nothing of ours is left but an annotation of the ConfigMap,
    C(portcullis.io/kube-proxy-before), which O(state=absent) reads.
  - On each node the mode is read from kube-proxy and its rules from the kernel, a Service is connected to twenty
    times a
    second, what the former mode has left is removed, and calico-node is restarted after a change of mode. A node that
    is
    worse off gets its former configuration back, and the task fails.
  - Files of a node are written with the node's journal, the service (k3s, RKE2, kubelite) is restarted, and they are
    put back when the new mode does not come. There is no twin then, and O(state=absent) gives back their bytes.
  - Of the DaemonSet and the ConfigMap nothing else is changed. A run that was killed is resumed by the next one.
author:
  - The Portcullis developers (@portcullis)
options:
  config:
    description: >-
      Fields of the KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1), such as C({"mode": "nftables"}) or
      C({"ipvs": {"strictARP": true}}). Mappings are merged, lists replaced, and null takes a field away.
    type: dict
    default: {}
  state:
    description:
      - V(present) sets O(config).
      - V(absent) takes a change back that is under way, or gives back the text of before the first change by this
        module. What others have changed since stays.
    type: str
    choices: [present, absent]
    default: present
  step:
    description:
      - V(all) does what is to be done with this host's node. It has to be run on every node, and once more on every
        node
        when the last one has it, as long as RV(waits_for) names any.
      - The role P(portcullis.fleet.kube_proxy#role) takes the steps apart. V(start) checks and makes the twin, and
        V(node)
        and V(finish) move the node to the twin and, when the ConfigMap is written, back.
    type: str
    choices: [all, start, node, finish]
    default: all
  timeout:
    description: Seconds for each of the waits on one node.
    type: int
    default: 60
extends_documentation_fragment:
  - portcullis.fleet.attributes
  - portcullis.fleet.rollout
attributes:
  check_mode:
    support: full
    details: The API server checks the objects in a dry run. Without the twin no candidate is loaded.
  diff_mode:
    support: full
  idempotent:
    support: full
notes:
  - Needs the rights to read and write DaemonSets, ConfigMaps and Pods of kube-proxy's namespace, and Nodes.
  - kube-proxy itself removes the rules of a former mode when it starts (Kubernetes 1.29 and later), so no Service is
    reached from the node until it has made the new ones. RV(service) tells how long that was.
"""

EXAMPLES = r"""
- name: Which mode would change, and where
  portcullis.fleet.kube_proxy_config:
    kubeconfig: ~/.kube/config
    config:
      mode: nftables
  check_mode: true
  diff: true

- name: Take the change back
  portcullis.fleet.kube_proxy_config:
    kubeconfig: ~/.kube/config
    state: absent
"""

RETURN = r"""
kind:
  description: Where the configuration is kept, V(configmap) or V(file).
  returned: O(step=all), O(step=start)
  type: str
revision:
  description: The value of the node label, empty when no node has to be changed.
  returned: O(step=all), O(step=start)
  type: str
  sample: f07181995c
warnings:
  description: What does not stop the change, such as an add-on that may write the ConfigMap back.
  returned: O(step=all), O(step=start)
  type: list
  elements: str
node:
  description: The host's name in the cluster.
  returned: O(step=all), O(step=node)
  type: str
mode_before:
  description: The live mode before, empty where kube-proxy did not answer.
  returned: when a change is under way
  type: str
  sample: iptables
mode:
  description: The live mode after, as kube-proxy says it.
  returned: success
  type: str
  sample: nftables
service:
  description:
    - What connections to the Service kubernetes came to while the node was changed, C(attempts), C(failures),
      C(longest_gap_s), C(first_failure_s) and C(last_failure_s), in seconds.
  returned: when the node was changed
  type: dict
removed:
  description: What the former mode had left, and is gone.
  returned: when a change is under way
  type: list
  elements: str
left:
  description: What the former mode has left and stays, each with the reason.
  returned: when a change is under way
  type: list
  elements: str
restarted:
  description: The pod of calico-node that was restarted, empty when none was.
  returned: when a change is under way
  type: str
returned:
  description: The same of the node's way back to the original DaemonSet.
  returned: when it went back
  type: dict
waits_for:
  description: The nodes on which the task has to be run before the change is whole.
  returned: O(step=all), O(step=finish)
  type: list
  elements: str
  sample: [w2, w3]
api_calls:
  description: How many requests were made.
  returned: always
  type: int
"""
