# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calico and kube-proxy in a cluster probe, for the tests of what judges them."""

from __future__ import annotations

import json

OBJECTS = "crd.projectcalico.org/v1"


def felix(name: str = "default", *, annotations: dict | None = None, **spec: object) -> dict:
    """A FelixConfiguration."""
    return {
        "apiVersion": OBJECTS,
        "kind": "FelixConfiguration",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": spec,
    }


def pool(name: str, cidr: str, **spec: object) -> dict:
    """An IPPool."""
    return {"apiVersion": OBJECTS, "kind": "IPPool", "metadata": {"name": name}, "spec": {"cidr": cidr, **spec}}


def calico_node(version: str = "v3.27.0", *, selector: dict | None = None, **environment: str) -> dict:
    """The DaemonSet calico-node with these variables."""
    container = {
        "name": "calico-node",
        "image": f"registry.example/calico/node:{version}",
        "env": [{"name": key, "value": value} for key, value in environment.items()],
    }
    spec = {"nodeSelector": selector or {"kubernetes.io/os": "linux"}, "containers": [container]}
    named = {"name": "calico-node", "namespace": "kube-system"}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": named, "spec": {"template": {"spec": spec}}}


def proxy(mode: str = "") -> list[dict]:
    """kube-proxy as kubeadm installs it."""
    config = {"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": mode}
    named = {"name": "kube-proxy", "namespace": "kube-system"}
    container = {"name": "kube-proxy", "command": ["kube-proxy", "--config=/var/lib/kube-proxy/config.conf"]}
    spec = {"containers": [container], "volumes": [{"name": "kube-proxy", "configMap": {"name": "kube-proxy"}}]}
    return [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": named, "spec": {"template": {"spec": spec}}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": {"config.conf": json.dumps(config)}},
    ]


def openshift(mode: str) -> dict:
    """OpenShift's Network with a mode for kube-proxy."""
    arguments = {"proxyArguments": {"proxy-mode": [mode]}}
    return {
        "apiVersion": "operator.openshift.io/v1",
        "kind": "Network",
        "metadata": {"name": "cluster"},
        "spec": {"defaultNetwork": {"type": "Calico"}, "deployKubeProxy": True, "kubeProxyConfig": arguments},
    }


def network(*calico: dict, kube_proxy: list[dict] | None = None, **changes: object) -> dict:
    """The probe's section; Calico and kube-proxy are the given objects."""
    base = {
        "calico": list(calico),
        "kube_proxy": proxy() if kube_proxy is None else kube_proxy,
        "service_ranges": ["10.96.0.0/16"],
        "unseen": {},
    }
    return {**base, **changes}
