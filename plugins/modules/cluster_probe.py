#!/usr/bin/python
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The work is done by plugins/action/cluster_probe.py on the controller; this file is the documentation.

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_probe
short_description: Read a cluster through its API server, without changing it
version_added: 0.1.0
description:
  - Reads the nodes and the version of a cluster, asks by SelfSubjectAccessReview for exactly the rights that a run
    uses, and by a server-side dry run whether the engine's agent would be admitted in a namespace.
  - Reads what decides Calico and kube-proxy too, the DaemonSets that run them, the ConfigMaps that these read, Calico's
    settings and pools, the ranges of services, and the C(Network) of OpenShift.
  - Reads where the API servers really listen, network plugins, webhooks and PriorityClasses that could keep the agent
    from starting, and Istio where Calico's application layer policy is used. What may not be read is named in the
    result and is no error.
  - Reads no Secret. Of a container's variables only those of Felix, Calico and its datastore are kept, and neither
    annotations nor a kubeconfig.
  - Runs on the controller. Needs the Python library C(kubernetes) there.
author:
  - The Portcullis developers (@portcullis)
options:
  kubeconfig:
    description: Path of the kubeconfig on the controller. Its current context is used.
    type: path
    required: true
  namespace:
    description: The namespace whose admission is asked. It need not exist; then nothing is asked.
    type: str
    required: true
  engine:
    description: The engine whose agent is tried, privileged or, with V(runtime_enforcer), with the capabilities that it
      adds.
    type: str
    choices: [native, runtime_enforcer, secure_workload]
    default: native
extends_documentation_fragment:
  - portcullis.fleet.attributes
  - portcullis.fleet.attributes.read_only
"""

EXAMPLES = r"""
- name: Would the agent be admitted?
  portcullis.fleet.cluster_probe:
    kubeconfig: ~/.kube/config
    namespace: portcullis-system
  run_once: true
  register: result

- name: Show the answer
  ansible.builtin.debug:
    msg: "{{ result.cluster.admission }}"
  run_once: true
"""

RETURN = r"""
cluster:
  description: What was read.
  returned: success
  type: dict
  contains:
    kubernetes:
      description: The API server's version.
      type: str
      sample: v1.34.4
    nodes:
      description: The nodes, with name, addresses, machine id, whether they are ready, kubelet and runtime version,
        taints and labels. Empty when these credentials may not list nodes.
      type: list
      elements: dict
      sample: [{"name": "w1", "addresses": ["10.0.0.11", "w1"], "ready": true, "taints": [], "labels": {}}]
    access:
      description: Each right that a run uses, and whether these credentials have it.
      type: list
      elements: dict
      sample: [{"verb": "list", "group": "", "resource": "nodes", "allowed": true}]
    namespace:
      description: Whether the namespace exists, whether it is being deleted, and its labels.
      type: dict
      sample: {"name": "portcullis-system", "exists": false, "terminating": false, "labels": {}}
    admission:
      description: Whether such a pod would be admitted, with the API server's words if not, and whether it was
        tried, which a webhook that takes no dry run prevents. Null when that was not asked, since the namespace does
        not exist or the right is missing.
      type: dict
      sample: {"admitted": true, "tried": true, "message": ""}
    api_server:
      description: Where the API servers listen, from Service C(kubernetes) and its endpoints. Ports are null and the
        list is empty where they may not be read.
      type: dict
      sample: {"service_port": 443, "target_port": 6443, "endpoints": [{"address": "10.0.0.10", "port": 6443}]}
    providers:
      description: The DaemonSets of network plugins that have Linux nodes to run on. C(chained) says why one is no
        provider of addresses and routes of its own, as far as its own settings tell.
      type: list
      elements: dict
      sample: [{"provider": "calico", "namespace": "kube-system", "name": "calico-node", "desired": 3, "ready": 3}]
    webhooks:
      description: The webhooks with failurePolicy C(Fail) that are asked about the namespace, its DaemonSets or its
        pods, and whether their service has anybody who answers.
      type: list
      elements: dict
      sample: [{"configuration": "guard", "name": "pods.guard.example", "service": "guard/guard", "state": "ready"}]
    agents:
      description: The namespace's DaemonSets with tolerations and node selector, and who names a PriorityClass that is
        not there.
      type: dict
      sample: {"daemon_sets": [], "missing_classes": {}}
    policies:
      description: Of a namespace that does not exist yet, Kubewarden's policies that are asked about its pods.
      type: list
      elements: dict
      sample: [{"name": "drop-capabilities", "module": "capabilities-psp", "settings": {}, "conditions": false}]
    mesh:
      description: Istio's version, and API servers whose MutatingAdmissionWebhook is switched off. Null where Calico's
        application layer policy is not used.
      type: dict
      sample: {"istio": "1.10.2", "disabled_on": []}
    runtime_enforcer:
      description: Each installation of Runtime Enforcer, with agent, controller, disruption budgets, webhooks, and the
        pods that name a policy. Empty where there is none.
      type: list
      elements: dict
      sample: [{"namespace": "runtime-enforcer", "release": "runtime-enforcer", "version": "0.10.1", "debuggers": []}]
    unseen:
      description: What could not be read beside the network, with the API server's words.
      type: dict
      sample: {"endpointslices": "endpointslices.discovery.k8s.io is forbidden"}
    network:
      description: What decides Calico and kube-proxy. Empty lists are what the cluster does not have.
      type: dict
      contains:
        calico:
          description: The DaemonSets that run Felix, the ConfigMaps of their variables, FelixConfiguration, IPPool,
            ClusterInformation, and the operator's Installation, each with what the checks use of it.
          type: list
          elements: dict
          sample: [{"kind": "FelixConfiguration", "metadata": {"name": "default"}, "spec": {"logPrefix": "x"}}]
        kube_proxy:
          description: The DaemonSets or static pods that run kube-proxy, their ConfigMaps, and OpenShift's Network.
          type: list
          elements: dict
          sample: [{"kind": "DaemonSet", "metadata": {"name": "kube-proxy", "namespace": "kube-system"}}]
        service_ranges:
          description: The ranges of services, or an address in them where the API server does not tell. Only read where
            there is Calico.
          type: list
          elements: str
          sample: [10.96.0.0/16]
        unseen:
          description: What could not be read, with the API server's words.
          type: dict
          sample: {"daemonsets": "daemonsets.apps is forbidden"}
"""
