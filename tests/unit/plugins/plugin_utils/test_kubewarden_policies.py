# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubewarden's policies against the agent's namespace while that is not there yet."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import Reader
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kubewarden_policies import policy_findings, read_policies

ABSENT = {"name": "runtime-enforcer", "exists": False, "labels": {}}
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
MODULE = "registry://ghcr.io/kubewarden/policies/"


def policy(module: str, settings: dict | None = None, **changes: object) -> dict:
    """A ClusterAdmissionPolicy in protect mode for pods."""
    spec = {"module": f"{MODULE}{module}:v1.0.3", "mode": "protect", "rules": [RULE], "settings": settings, **changes}
    return {"metadata": {"name": "p"}, "spec": spec}


def found(item: dict, *, engine: str = "runtime_enforcer", namespace: dict = ABSENT) -> list[str]:
    """What is refused by a cluster with this policy."""
    reader = Reader(lambda *_where: (404, {}), lambda _resource, **_options: (200, [item]))
    reader.groups.add("policies.kubewarden.io")
    policies = read_policies(reader, namespace)
    texts = [each["observed"] for each in policy_findings(policies, namespace["name"], engine)]
    return [text.partition("because of ")[2].partition(":")[0] for text in texts]


# The four of the recommended policies that the text says reject the agent, as the chart sets them.
@pytest.mark.parametrize(
    ("item", "field"),
    [
        (policy("host-namespaces-psp", {"allow_host_pid": False}), "hostPID"),
        (
            policy("capabilities-psp", {"allowed_capabilities": [], "required_drop_capabilities": ["ALL"]}),
            "capabilities.add",
        ),
        (policy("hostpaths-psp", {"allowedHostPaths": [{"pathPrefix": "/srv", "readOnly": True}]}), "hostPath"),
        (policy("user-group-psp", {"run_as_user": {"rule": "MustRunAsNonRoot"}}), "runAsNonRoot"),
    ],
)
def test_the_policies_that_the_text_names_are_found(item, field):
    assert found(item) == [field]


@pytest.mark.parametrize(
    "item",
    [
        policy("host-namespaces-psp", {"allow_host_pid": True}),
        policy("capabilities-psp", {"allowed_capabilities": ["*"]}),
        policy("capabilities-psp", {"allowed_capabilities": ["BPF", "PERFMON", "SYS_RESOURCE", "SYS_PTRACE", "KILL"]}),
        policy("hostpaths-psp", {"allowedHostPaths": [{"pathPrefix": "/var/run"}]}),
        policy("user-group-psp", {"run_as_user": {"rule": "RunAsAny"}}),
        policy("user-group-psp"),
        policy("pod-privileged"),
        policy("trusted-repos"),
        policy("host-namespaces-psp", mode="monitor"),
        policy("host-namespaces-psp", rules=[{**RULE, "resources": ["services"]}]),
        policy("host-namespaces-psp", matchConditions=[{"name": "x", "expression": "false"}]),
        policy(
            "host-namespaces-psp",
            namespaceSelector={
                "matchExpressions": [
                    {
                        "key": "kubernetes.io/metadata.name",
                        "operator": "NotIn",
                        "values": ["kube-system", ABSENT["name"]],
                    }
                ]
            },
        ),
        {"metadata": {"name": "p"}, "spec": {"module": None}},
        {"metadata": {"name": "p"}},
    ],
)
def test_policies_that_let_the_agent_pass_are_no_finding(item):
    assert found(item) == []


def test_a_privileged_agent_is_refused_as_that():
    assert found(policy("pod-privileged"), engine="native") == ["privileged"]
    assert found(policy("capabilities-psp", {"allowed_capabilities": []}), engine="native") == []


def test_a_namespace_that_is_there_is_judged_by_a_dry_run():
    assert found(policy("host-namespaces-psp"), namespace={**ABSENT, "exists": True}) == []
