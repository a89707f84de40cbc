"""The objects of the cluster that kubeadm would make: nodes, and kube-proxy as its addon phase lays it out.

Source of kube-proxy's objects: cmd/kubeadm/app/phases/addons/proxy/manifests.go in Kubernetes 1.34.
"""

import json
from typing import Any

import yaml

from tests.lab.api import Api, ApiError
from tests.lab.controlplane import POD_NETWORK, SERVER
from tests.lab.images import kube_proxy_image
from tests.lab.topology import Node, parse_taint

_NAMESPACE = "/api/v1/namespaces/kube-system"
_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
_LABELS = {"k8s-app": "kube-proxy"}
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 (a path)


def apply_node(api: Api, node: Node, pod_network: str) -> None:
    """What is not a kubelet's to say of its Node object (NodeRestriction); it may have made the object already."""
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": dict(node.labels)},
        "spec": {"podCIDR": pod_network, "podCIDRs": [pod_network], "taints": [*map(parse_taint, node.taints)]},
    }
    api.apply(f"/api/v1/nodes/{node.name}", body)


def delete_node(api: Api, name: str) -> None:
    """Remove the Node object, if it is there, and the pods that were bound to it."""
    pods = api.request("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}")["items"]
    paths = [f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}" for pod in pods]
    for path in [f"/api/v1/nodes/{name}", *paths]:
        try:
            api.request("DELETE", path, {"gracePeriodSeconds": 0})
        except ApiError as error:
            if error.status != 404:
                raise


def _proxy_configuration(mode: str) -> str:
    """config.conf. No conntrack limits: these sysctls belong to the host and are read-only on a node."""
    value = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "bindAddress": "0.0.0.0",  # noqa: S104 (kubeadm's default: all of the node's addresses)
        "bindAddressHardFail": False,
        "clientConnection": {"kubeconfig": "/var/lib/kube-proxy/kubeconfig.conf"},
        "clusterCIDR": POD_NETWORK,
        "configSyncPeriod": "0s",
        "conntrack": {"maxPerCore": 0, "min": None, "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s"},
        "healthzBindAddress": "",
        "metricsBindAddress": "",
        "mode": mode,
        "oomScoreAdj": None,
        "portRange": "",
    }
    return yaml.safe_dump(value, sort_keys=True)


def _proxy_kubeconfig() -> str:
    cluster = {"certificate-authority": f"{_TOKEN}/ca.crt", "server": SERVER}
    value = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"cluster": cluster, "name": "default"}],
        "contexts": [{"context": {"cluster": "default", "namespace": "default", "user": "default"}, "name": "default"}],
        "current-context": "default",
        "users": [{"name": "default", "user": {"tokenFile": f"{_TOKEN}/token"}}],
    }
    return yaml.safe_dump(value, sort_keys=True)


def _proxy_pod() -> dict[str, Any]:
    paths = {"kube-proxy": "/var/lib/kube-proxy", "xtables-lock": "/run/xtables.lock", "lib-modules": "/lib/modules"}
    container = {
        "name": "kube-proxy",
        "image": kube_proxy_image(),
        "imagePullPolicy": "IfNotPresent",
        "command": [
            "/usr/local/bin/kube-proxy",
            "--config=/var/lib/kube-proxy/config.conf",
            "--hostname-override=$(NODE_NAME)",
        ],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": name, "mountPath": path, **({"readOnly": True} if name == "lib-modules" else {})}
            for name, path in paths.items()
        ],
    }
    return {
        "priorityClassName": "system-node-critical",
        "serviceAccountName": "kube-proxy",
        "hostNetwork": True,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
        "volumes": [
            {"name": "kube-proxy", "configMap": {"name": "kube-proxy"}},
            {"name": "xtables-lock", "hostPath": {"path": paths["xtables-lock"], "type": "FileOrCreate"}},
            {"name": "lib-modules", "hostPath": {"path": paths["lib-modules"]}},
        ],
    }


def kube_proxy_objects(mode: str) -> dict[str, dict[str, Any]]:
    """kube-proxy's objects by API path, in the order in which they are made."""
    named = {"name": "kube-proxy", "namespace": "kube-system"}
    subject = {"kind": "ServiceAccount", **named}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-proxier"}
    template = {"metadata": {"labels": _LABELS}, "spec": _proxy_pod()}
    files = {"config.conf": _proxy_configuration(mode), "kubeconfig.conf": _proxy_kubeconfig()}
    return {
        f"{_NAMESPACE}/serviceaccounts/kube-proxy": {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": named,
        },
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/kubeadm:node-proxier": {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "kubeadm:node-proxier"},
            "roleRef": role,
            "subjects": [subject],
        },
        f"{_NAMESPACE}/configmaps/kube-proxy": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {**named, "labels": {"app": "kube-proxy"}},
            "data": files,
        },
        "/apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy": {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {**named, "labels": _LABELS},
            "spec": {
                "selector": {"matchLabels": _LABELS},
                "updateStrategy": {"type": "RollingUpdate"},
                "template": template,
            },
        },
    }


def apply_kube_proxy(api: Api, mode: str) -> None:
    """Make or update kube-proxy's objects."""
    for path, value in kube_proxy_objects(mode).items():
        api.apply(path, value)


def not_ready(api: Api, names: list[str]) -> list[str]:
    """What keeps these cluster nodes from being ready, a few words each: kubelets and kube-proxy pods."""
    found = []
    items = {item["metadata"]["name"]: item for item in api.request("GET", "/api/v1/nodes")["items"]}
    for name in names:
        conditions = items.get(name, {}).get("status", {}).get("conditions", [])
        ready = next((entry for entry in conditions if entry["type"] == "Ready"), None)
        if ready is None or ready["status"] != "True":
            found.append(f"{name}: {ready['message'] if ready else 'its kubelet has not reported'}")
    pods = api.request("GET", f"{_NAMESPACE}/pods?labelSelector=k8s-app%3Dkube-proxy")["items"]
    serving = {pod["spec"].get("nodeName") for pod in pods if _is_ready(pod)}
    found += [f"{name}: its kube-proxy pod is not ready" for name in names if name not in serving]
    # Made by the controller manager when it gets to it; without it the first pod of a user is refused.
    if not any(item["metadata"]["name"] == "default" for item in api.request("GET", _ACCOUNTS)["items"]):
        found.append("namespace default has no service account")
    return found


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)


def pod_events(api: Api) -> str:
    """The warnings of kube-system, for an error message."""
    items = api.request("GET", f"{_NAMESPACE}/events?fieldSelector=type%3DWarning")["items"]
    return "\n".join(json.dumps(item["message"]) for item in items[-5:])
