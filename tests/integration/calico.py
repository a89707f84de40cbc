"""Objects of Calico in the lab's cluster, where no Calico runs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

from tests.lab import Lab

GROUP = "crd.projectcalico.org"
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(plural: str, kind: str) -> dict:
    """The CustomResourceDefinition of one of Calico's kinds, without its schema."""
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": ANYTHING}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]},
    }


def custom(kind: str, name: str, **spec: object) -> dict:
    """An object of Calico."""
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def calico_node(**pod_spec: object) -> dict:
    """The DaemonSet of calico-node, with the spec of its pods."""
    labels = {"k8s-app": "calico-node"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "calico-node", "namespace": "kube-system"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec},
        },
    }


def listed(*items: dict) -> str:
    """Objects as one text for kubectl."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})


@contextlib.contextmanager
def in_cluster(lab: Lab, definitions: list[dict], objects: list[dict]) -> Iterator[None]:
    """Have custom resources and objects in the cluster; with a definition its objects go, too."""
    own = [item for item in objects if not item["apiVersion"].startswith(GROUP)]
    try:
        lab.kubectl("apply", "-f", "-", stdin=listed(*definitions))
        names = [f"crd/{item['metadata']['name']}" for item in definitions]
        lab.kubectl("wait", "--for=condition=Established", *names, "--timeout=20s")
        lab.kubectl("apply", "-f", "-", stdin=listed(*objects))
        yield
    finally:
        lab.kubectl("delete", "-f", "-", "--ignore-not-found", stdin=listed(*own, *definitions))
