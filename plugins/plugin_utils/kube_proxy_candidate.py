# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Have the cluster's own kube-proxy load a configuration, in a pod that may do nothing else.

With C(--write-config-to) kube-proxy loads and validates its configuration, writes it, and ends; it makes no rule and
asks no API server. Source: Run of cmd/kube-proxy/app/options.go, Kubernetes 1.19 to 1.34.
"""

from __future__ import annotations

from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import ClusterApi, RefusedError, wait_until
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import PODS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.flat_network import pod_fault
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_options import command_flags, program_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_twin import MANAGED_BY, MANAGED_LABEL
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_list, as_mapping, metadata, pod_spec
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import one_line

DEADLINE_S = 60
FOLDER = "/config"
# Exit codes from here on are signals, or the runtime's own.
SIGNALLED = 126


def candidate_pod(daemon_set: dict, config_map: str, key: str, node: str) -> dict:
    """The pod: the image of kube-proxy's container on a node that has it, and the ConfigMap.

    :param daemon_set: kube-proxy's.
    """
    spec = pod_spec(daemon_set)
    container = proxy_container(daemon_set)
    # A wrapper and all its flags go: a shell would take these two for its own, and end well.
    program = program_of([*as_list(container.get("command")), *as_list(container.get("args"))])
    return {
        # Two runs may ask at the same time.
        "metadata": {"generateName": f"{config_map}-", "labels": dict(MANAGED_BY)},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": DEADLINE_S,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists"}],
            "imagePullSecrets": as_list(spec.get("imagePullSecrets")),
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 65534,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "kube-proxy",
                    "image": container["image"],
                    "imagePullPolicy": "IfNotPresent",
                    "command": [*program, f"--config={FOLDER}/{key}", "--write-config-to=/dev/null"],
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                        "readOnlyRootFilesystem": True,
                    },
                    "volumeMounts": [{"name": "config", "mountPath": FOLDER, "readOnly": True}],
                }
            ],
            "volumes": [{"name": "config", "configMap": {"name": config_map}}],
        },
    }


def proxy_container(daemon_set: dict) -> dict:
    """The container that starts kube-proxy."""
    return next(
        item
        for item in map(as_mapping, as_list(pod_spec(daemon_set).get("containers")))
        if command_flags([*as_list(item.get("command")), *as_list(item.get("args"))]) is not None
    )


def verdict_of(pod: dict | None) -> tuple[str, str] | None:
    """C((why kube-proxy refuses the configuration, why it could not be tried)) of the pod, None while it runs.

    :param pod: None when it is gone.
    """
    if pod is None:
        return "", "its pod was deleted by somebody else"
    status = as_mapping(pod.get("status"))
    for item in as_list(status.get("containerStatuses")):
        ended = as_mapping(as_mapping(item.get("state")).get("terminated"))
        code = ended.get("exitCode")
        if code == 0:
            return "", ""
        # It was kube-proxy that ended, not kubelet, the kernel or a runtime that could not start it (128).
        if ended.get("reason") == "Error" and code < SIGNALLED and not status.get("reason"):
            return one_line(ended.get("message") or f"it said nothing, and ended with {code}"), ""
    fault = pod_fault(pod)
    return ("", one_line(fault)) if fault else None


def check(api: ClusterApi, pod: dict, namespace: str, timeout_s: float) -> tuple[str, str]:
    """Run a pod of candidate_pod() and delete it.

    :returns: C((why kube-proxy refuses the configuration, why it could not be tried)), both empty when it loads.
    """
    name, found = "", None

    def has_ended() -> bool:
        nonlocal found
        found = verdict_of(api.get(PODS, name, namespace))
        return found is not None

    _remove_ended(api, namespace)
    try:
        name = api.create(PODS, pod, namespace)["metadata"]["name"]
        wait_until(has_ended, timeout_s)
    except RefusedError as error:
        return "", str(error)
    finally:
        if name:
            api.delete(PODS, name, namespace, gracePeriodSeconds=0)
    return found or ("", f"its pod did not end within {timeout_s:.0f} s")


def _remove_ended(api: ClusterApi, namespace: str) -> None:
    """Delete such pods of runs that were killed: kubelet has ended them at their deadline."""
    for pod in api.list(PODS, namespace=namespace, label_selector=MANAGED_LABEL):
        if as_mapping(pod.get("status")).get("phase") in ("Succeeded", "Failed"):
            api.delete(PODS, metadata(pod)["name"], namespace)
