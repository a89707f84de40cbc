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


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (["kube-proxy", "--v=2", "--config=/c"], ["kube-proxy"]),
        (["/bin/sh", "-c", "exec /usr/local/bin/kube-proxy --config=/c 2>>/log"], ["/usr/local/bin/kube-proxy"]),
        (["/go-runner", "--log-file=/l", "/usr/local/bin/kube-proxy", "--config=/c"], ["/usr/local/bin/kube-proxy"]),
        (["/hyperkube", "proxy", "--config=/c"], ["/hyperkube", "proxy"]),
    ],
)
def test_a_wrapper_is_left_out(command: list[str], program: list[str]):
    """A shell given these flags ends well, and no kube-proxy has looked at anything."""
    daemon_set = {"spec": {"template": {"spec": {"containers": [{"image": "i", "command": command}]}}}}
    (container,) = candidate_pod(daemon_set, "copy", "k", "w1")["spec"]["containers"]
    assert container["command"] == [*program, "--config=/config/k", "--write-config-to=/dev/null"]


def ended(code: int, message: str, why: str = "Error", **status: str) -> dict:
    """As containerd 1.6 and kubelet 1.34 report it."""
    terminated = {"exitCode": code, "message": message, "reason": why}
    return {"status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": terminated}}], **status}}


@pytest.mark.parametrize(
    ("pod", "verdict"),
    [
        ({}, None),
        (None, ("", "its pod was deleted by somebody else")),
        ({"status": {"phase": "Pending"}}, None),
        (ended(0, "", "Completed"), ("", "")),
        (ended(1, "mode: Invalid value\n"), ("mode: Invalid value", "")),
        (ended(1, ""), ("it said nothing, and ended with 1", "")),
        (ended(128, 'exec: "/x": no such file', "StartError"), ("", 'StartError: exec: "/x": no such file')),
        (ended(137, "", "OOMKilled"), ("", "OOMKilled")),
        (ended(137, "last words", "Error", reason="DeadlineExceeded"), ("", "DeadlineExceeded: Error: last words")),
        ({"status": {"phase": "Failed", "reason": "NodeAffinity"}}, ("", "NodeAffinity")),
    ],
)
def test_verdict(pod: dict | None, verdict: tuple | None):
    assert verdict_of(pod) == verdict
