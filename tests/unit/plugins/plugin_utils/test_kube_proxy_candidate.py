"""The cluster's kube-proxy loads a candidate in a pod that may do nothing; what it says is told from what stops it."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_candidate import candidate_pod, verdict_of

DAEMON_SET = {
    "metadata": {"name": "kube-proxy", "namespace": "kube-system"},
    "spec": {
        "template": {
            "spec": {
                "hostNetwork": True,
                "imagePullSecrets": [{"name": "pull"}],
                "containers": [
                    {"name": "sidecar", "image": "s", "command": ["/s"]},
                    {
                        "name": "kube-proxy",
                        "image": "registry/kube-proxy:v1.34.4",
                        "command": ["/usr/local/bin/kube-proxy", "--config=/var/lib/kube-proxy/config.conf", "--v=4"],
                        "securityContext": {"privileged": True},
                    },
                ],
            }
        }
    },
}


def test_the_pod_has_the_program_and_no_right():
    pod = candidate_pod(DAEMON_SET, "copy", "config.conf", "w1")
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert container["command"] == [
        "/usr/local/bin/kube-proxy",
        "--config=/config/config.conf",
        "--write-config-to=/dev/null",
    ]
    assert (container["image"], spec["imagePullSecrets"]) == ("registry/kube-proxy:v1.34.4", [{"name": "pull"}])
    assert "hostNetwork" not in spec
    assert spec["automountServiceAccountToken"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["nodeName"] == "w1"


def ended(code: int, message: str) -> dict:
    return {"status": {"containerStatuses": [{"state": {"terminated": {"exitCode": code, "message": message}}}]}}


@pytest.mark.parametrize(
    ("pod", "verdict"),
    [
        ({}, None),
        ({"status": {"phase": "Pending"}}, None),
        (ended(0, ""), ("", "")),
        (ended(1, "mode: Invalid value\n"), ("mode: Invalid value", "")),
        (ended(1, ""), ("it said nothing", "")),
        ({"status": {"phase": "Failed", "reason": "NodeAffinity"}}, ("", "NodeAffinity")),
    ],
)
def test_verdict(pod: dict, verdict: tuple | None):
    assert verdict_of(pod) == verdict
