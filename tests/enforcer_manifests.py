# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Runtime Enforcer as its production page has it: objects of our own with the labels that its chart gives them."""

from __future__ import annotations

NAMESPACE = "runtime-enforcer"
IMAGE = "ghcr.io/kubewarden/runtime-enforcer/agent:v0.10.1"
GROUP = "runtimeenforcer.kubewarden.io"
SIZES = {"cpu": "250m", "memory": "256Mi"}
CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"}
ONBOARDED = '{"matchLabels":{"env":"prod"}}'


def labels(component: str) -> dict[str, str]:
    """The labels by which a part selects its pods."""
    return {
        "app.kubernetes.io/name": "runtime-enforcer",
        "app.kubernetes.io/instance": "guard",
        "app.kubernetes.io/component": component,
    }


def workload(kind: str, name: str, component: str, spec: dict, **more: object) -> dict:
    """A DaemonSet or a Deployment with these pods."""
    chart = {"helm.sh/chart": "runtime-enforcer-0.10.1", "app.kubernetes.io/version": "v0.10.1"}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {**labels(component), **chart}},
        "spec": {
            "selector": {"matchLabels": labels(component)},
            "template": {"metadata": {"labels": labels(component)}, "spec": spec},
            **more,
        },
    }


def container(name: str, image: str, **more: object) -> dict:
    """A container with the sizes of the smallest cluster; it sleeps where the image is busybox."""
    sizes = {"requests": dict(SIZES), "limits": dict(SIZES)}
    return {"name": name, "image": image, "resources": sizes, "command": ["sh", "-c", "exec sleep 1000"], **more}


def agent(image: str = IMAGE) -> dict:
    """The agent's DaemonSet."""
    rights = {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "capabilities": {"add": ["BPF", "PERFMON", "SYS_RESOURCE", "SYS_PTRACE"], "drop": ["ALL"]},
    }
    runs = container(
        "agent",
        image,
        args=[f"--learning-namespace-selector={ONBOARDED}"],
        env=[{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "https://collector.observability.svc:4317"}],
        securityContext=rights,
        volumeMounts=[{"name": "nri-socket", "mountPath": "/var/run/nri/", "readOnly": True}],
    )
    spec = {
        "hostPID": True,
        "priorityClassName": "runtime-enforcer-priorityclass",
        "tolerations": [CONTROL_PLANE],
        "terminationGracePeriodSeconds": 0,
        "containers": [runs],
        "volumes": [{"name": "nri-socket", "hostPath": {"path": "/var/run/nri/", "type": "DirectoryOrCreate"}}],
    }
    update = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "100%"}}
    return workload("DaemonSet", "guard-runtime-enforcer-agent", "agent", spec, updateStrategy=update)


def controller(image: str = IMAGE) -> dict:
    """The controller's Deployment."""
    term = {
        "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "controller"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    apart = [{"weight": 100, "podAffinityTerm": term}]
    spec = {
        "priorityClassName": "runtime-enforcer-priorityclass",
        "terminationGracePeriodSeconds": 0,
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": apart}},
        "containers": [container("manager", image)],
    }
    return workload("Deployment", "guard-runtime-enforcer-controller-manager", "controller", spec, replicas=2)


def other(component: str, image: str = IMAGE) -> dict:
    """A further Deployment of the chart: the debugger or its own collector."""
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container(component, image)]}
    return workload("Deployment", f"guard-runtime-enforcer-{component}", component, spec, replicas=1)


def budget(name: str = "guard-runtime-enforcer-controller-manager", **limit: object) -> dict:
    """A PodDisruptionBudget for the controller."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {**(limit or {"minAvailable": 1}), "selector": {"matchLabels": labels("controller")}},
    }


def service() -> dict:
    """The Service of the webhooks."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "guard-runtime-enforcer-controller-webhook", "namespace": NAMESPACE},
        "spec": {"selector": labels("controller"), "ports": [{"port": 443, "targetPort": 9443}]},
    }


def webhooks(ca_bundle: str) -> dict:
    """The webhook that is asked before a policy is deleted."""
    client = {"service": {"name": service()["metadata"]["name"], "namespace": NAMESPACE, "path": "/validate"}}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "guard-runtime-enforcer-validating-webhook-configuration"},
        "webhooks": [
            {
                "name": "validate-workloadpolicies.kubewarden.io",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "clientConfig": {**client, **({"caBundle": ca_bundle} if ca_bundle else {})},
                "rules": [
                    {
                        "apiGroups": [GROUP],
                        "apiVersions": ["v1alpha1"],
                        "operations": ["DELETE"],
                        "resources": ["workloadpolicies"],
                    }
                ],
            }
        ],
    }
