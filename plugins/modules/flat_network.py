#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The work is done by plugins/action/flat_network.py on the controller; this file is the documentation.

from __future__ import annotations

DOCUMENTATION = r"""
module: flat_network
short_description: Prove that pods see each other's own addresses
version_added: 0.1.0
description:
  - Starts two pods on each sampled node, has each pair call each other, and returns from which address each call was
    seen. Up to 8 nodes are all tried. Of more, a number that grows with the logarithm of theirs, from all zones.
  - On three of the nodes it records as well from which address a caller is seen behind a hostPort and a NodePort.
  - The pods are in a namespace of their own, which is deleted at the end, also when something fails. If Ansible is
    killed, kubelet ends the pods after five minutes, and the next run deletes the namespace.
  - The pods satisfy the Pod Security level C(restricted), but for those with the hostPort. They tolerate every taint.
  - Needs the rights to create and delete namespaces, pods and services. Takes about ten seconds, and at most five
    minutes where pods do not start.
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
    description: By node, what M(portcullis.fleet.node_probe) registered. Only these nodes are sampled.
    type: dict
    required: true
  image:
    description: An image with the C(sh), C(httpd) and C(wget) of busybox.
    type: str
    default: docker.io/library/busybox:1.33
extends_documentation_fragment:
  - portcullis.fleet.attributes
  - portcullis.fleet.attributes.read_only
"""

EXAMPLES = r"""
- name: Is the network of pods flat?
  portcullis.fleet.flat_network:
    kubeconfig: ~/.kube/config
    cluster: "{{ cluster_probe.cluster }}"
    probes: "{{ dict(ansible_play_hosts_all | zip(ansible_play_hosts_all | map('extract', hostvars, 'probe'))) }}"
  run_once: true
  register: result
"""

RETURN = r"""
flat_network:
  description: What the pods saw of each other.
  returned: success
  type: dict
  contains:
    pairs:
      description: Each pair that was tried, by node, with the address that was called, the one that the caller was seen
        from, empty where nothing answered, and the caller's own.
      type: list
      elements: dict
      sample: [{"source": "w1", "target": "w2", "address": "10.0.2.3", "seen": "10.0.1.7", "own": ["10.0.1.7"]}]
    host_ports:
      description: The same for a hostPort of C(target).
      type: list
      elements: dict
      sample: [{"source": "w1", "target": "w2", "port": 28741, "seen": "10.0.1.7", "own": ["10.0.1.7"]}]
    node_ports:
      description: The same for a NodePort of C(target), by C(externalTrafficPolicy).
      type: list
      elements: dict
      sample: [{"source": "w1", "target": "w2", "port": 31234, "policy": "Local", "seen": "", "own": ["10.0.1.7"]}]
    unstarted:
      description: By node, why its pods did not run.
      type: dict
      sample: {"w3": "ImagePullBackOff: Back-off pulling image"}
    notes:
      description: What of hostPort and NodePort could not be tried, and why.
      type: dict
      sample: {}
    left:
      description: What stays behind, empty where it is nothing.
      type: str
      sample: ""
    of:
      description: How many nodes the cluster has.
      type: int
      sample: 3
    hosts:
      description: The inventory name of each node.
      type: dict
      sample: {"w1": "w1.example"}
    addresses:
      description: The node of each address.
      type: dict
      sample: {"10.0.0.11": "w1"}
"""
