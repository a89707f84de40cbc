"""Pods of the lab's own image."""

import json

from tests.lab import Lab


def busybox(name: str, node: str, *command: str, **spec: object) -> str:
    """A pod as JSON."""
    container = {"name": "main", "image": "busybox:1.33", "command": list(command), **spec}
    pod = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
    return json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": pod}
    )


def pod_ip(lab: Lab, name: str) -> str:
    """Wait until a pod is ready; its address."""
    lab.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s", timeout_s=70)
    return lab.kubectl("get", "pod", name, "-o", "jsonpath={.status.podIP}").stdout
