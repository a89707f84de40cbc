# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who writes kube-proxy's configuration, by marks that only that installer leaves, and what to edit with each."""

from __future__ import annotations

import re

# The surest first: a path of a node, then a text that an installer leaves in what it writes.
_BY_PATH = (
    ("microk8s", re.compile(r"^/var/snap/microk8s/")),
    ("rke2", re.compile(r"^/(etc|var/lib)/rancher/rke2/")),
    ("k3s", re.compile(r"^/(etc|var/lib)/rancher/k3s/")),
    ("k0s", re.compile(r"^/etc/k0s/|/k0s\.yaml$")),
    ("static-pod", re.compile(r"/manifests/")),
)
_BY_TEXT = (
    ("openshift", re.compile(r"operator\.openshift\.io|openshift-kube-proxy|openshift-sdn")),
    ("kops", re.compile(r"managed-by\W+nodeup|kops\.k8s\.io|\bkubeProxy:\s*\n\s+(?:enabled|proxyMode)")),
    ("gardener", re.compile(r"gardener\.cloud/")),
    (
        "talos",
        re.compile(
            r"kubeconfig-in-cluster|name: kube-proxy-config-\w+|path: /cluster/proxy|kind: KubeProxyConfig\b"
            r"|^cluster:\s*\n(?:.*\n)*?\s+proxy:",
            re.MULTILINE,
        ),
    ),
    ("kind", re.compile(r"kind\.x-k8s\.io")),
    ("minikube", re.compile(r"/var/lib/minikube|minikube\.internal")),
    ("gke", re.compile(r"gke\.gcr\.io|cloud\.google\.com/gke")),
    ("addon-manager", re.compile(r"addonmanager\.kubernetes\.io/mode")),
    ("aks", re.compile(r"kubernetes\.azure\.com|mcr\.microsoft\.com/oss/kubernetes/kube-proxy")),
    ("eks", re.compile(r"eks\.amazonaws\.com|\.dkr\.ecr\.|kube-proxy-config\b(?![-.])")),
    ("k0s", re.compile(r"k0sproject\.io|k0s\.k0sproject")),
    ("kubespray", re.compile(r"kubespray|10\.233\.64\.0/18|\bkube_proxy_(?:mode|strict_arp)\b")),
    ("rke1", re.compile(r"^services:\s*\n(?:.*\n)*?\s+kubeproxy:", re.MULTILINE)),
    ("rke2", re.compile(r"/rancher/rke2|\brke2-|^cni:", re.MULTILINE)),
    ("k3s", re.compile(r"/rancher/k3s|\b(?:traefik|servicelb|flannel-(?:iface|backend))\b")),
    ("rancher", re.compile(r"^kube-proxy-arg\+?:|^disable-kube-proxy:", re.MULTILINE)),
    ("openyurt", re.compile(r"openyurt|yurthub")),
    ("kubeadm", re.compile(r"kubeadm\.k(?:ubernete|8)s\.io|config\.conf\W")),
)
_RANCHER = "set kube-proxy-arg in /etc/rancher/{0}/config.yaml on each node and restart {1}"
LEVERS = {
    "kubeadm": "edit key config.conf of ConfigMap kube-system/kube-proxy, then kubectl -n kube-system rollout restart "
    "daemonset/kube-proxy",
    "kubespray": "set kube_proxy_mode and kube_proxy_strict_arp in the inventory: kubespray writes the rest back",
    "eks": "set mode in the configuration values of the kube-proxy add-on, or edit key config of ConfigMap "
    "kube-system/kube-proxy-config (not kube-proxy), which the add-on may write back; restart daemonset/kube-proxy",
    "gke": "GKE manages kube-proxy and writes its manifest back: no edit lasts",
    "gardener": "set spec.kubernetes.kubeProxy.mode in the Shoot: Gardener writes the rest back",
    "addon-manager": "change the manifest in /etc/kubernetes/addons: the add-on manager writes the rest back",
    "aks": "set kubeProxyConfig with az aks update --kube-proxy-config: AKS writes the DaemonSet back",
    "openshift": 'set spec.kubeProxyConfig.proxyArguments {"proxy-mode": ["iptables"]} in the object cluster of '
    "Network.operator.openshift.io: the network operator writes the rest back",
    "talos": "set cluster.proxy.mode and cluster.proxy.extraArgs in the machine configuration (talosctl patch)",
    "kops": "set spec.kubeProxy.proxyMode with kops edit cluster, then kops update cluster and kops rolling-update",
    "kind": "set networking.kubeProxyMode and make the cluster anew",
    "minikube": "pass --extra-config=kube-proxy.mode=... to minikube start",
    "microk8s": "edit /var/snap/microk8s/current/args/kube-proxy on each node, restart snap.microk8s.daemon-kubelite",
    "k3s": _RANCHER.format("k3s", "k3s or k3s-agent"),
    "rke2": _RANCHER.format("rke2", "rke2-server or rke2-agent"),
    "rancher": _RANCHER.format("(k3s or rke2)", "its service"),
    "rke1": "set services.kubeproxy.extra_args in cluster.yml and run rke up",
    "k0s": "set spec.network.kubeProxy.mode in k0s.yaml and restart the k0s controllers",
    "static-pod": "edit the manifest in /etc/kubernetes/manifests on each node; kubelet restarts it",
}


def owner_of(text: str, path: str = "", *, is_argument_file: bool = False) -> str:
    """Return the installer's name; "" when nothing names one.

    :param is_argument_file: one flag on each line, as snaps keep them.
    """
    for name, mark in _BY_PATH:
        if path and mark.search(path):
            return name
    if is_argument_file:
        return "microk8s" if "${SNAP" in text or "/var/snap/" in text else ""
    for name, mark in _BY_TEXT:
        if mark.search(text):
            return name
    return "static-pod" if re.search(r"^kind: Pod\b", text, re.MULTILINE) else ""
