# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refusals as each engine words them: who, rule and fields; any other text is unknown, never an error."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.admission import Refusal, parse_refusal
from hypothesis import given
from hypothesis import strategies as st

PSA = 'pods "agent-x2" is forbidden: violates PodSecurity '
KYVERNO = (
    'admission webhook "validate.kyverno.svc-fail" denied the request: \n\nresource Pod/a/b was blocked due to the '
)
GATEKEEPER = 'admission webhook "validation.gatekeeper.sh" denied the request: '
SCC = 'pods "agent-" is forbidden: unable to validate against any security context constraint: '
HOST_PORT, HOST_PATH = "ports[].hostPort", "volumes[].hostPath"

MESSAGES = [
    pytest.param(
        PSA + '"restricted:v1.31": host namespaces (hostIPC=true, hostPID=true), unrestricted capabilities (container '
        '"a" must set securityContext.capabilities.drop=["ALL"]; container "a" must not include "BPF" in '
        'securityContext.capabilities.add), restricted volume types (volumes "s", "n" use restricted volume types '
        '"hostPath", "nfs"), runAsUser=0 (container "a" must not set runAsUser=0)',
        (
            "psa",
            "restricted:v1.31",
            ("hostIPC", "hostPID", "capabilities.drop", "capabilities.add", HOST_PATH, "runAsUser"),
        ),
        id="psa-restricted",
    ),
    pytest.param(
        PSA + '"restricted:latest": restricted volume types (volume "n" uses restricted volume type "nfs")',
        ("psa", "restricted:latest", ("volumes[].nfs",)),
        id="psa-volume-type",
    ),
    pytest.param(
        'Warning: would violate PodSecurity "restricted:latest": hostPort (container "a" uses hostPort 80)\nError from '
        "server: " + PSA + '"baseline:latest": privileged (container "a" must not set securityContext.privileged=true)',
        ("psa", "baseline:latest", ("privileged",)),
        id="psa-warning-and-refusal",
    ),
    pytest.param(
        KYVERNO
        + "following policies \n\ndisallow-privileged-containers:\n  autogen-privileged-containers: 'validation "
        "error: Privileged mode is disallowed. The fields spec.containers[*].securityContext.privileged must "
        "be unset. rule autogen-privileged-containers failed at path /spec/template/spec/containers/0/securityContext/"
        "privileged/'\nrequire-labels:\n  check: 'validation error: label team is required. rule check failed at path "
        "/metadata/labels/team/'\n",
        (
            "kyverno",
            "disallow-privileged-containers/autogen-privileged-containers; require-labels/check",
            ("privileged", "metadata.labels"),
        ),
        id="kyverno-two-policies",
    ),
    pytest.param(
        KYVERNO
        + "following policies\n\npodsecurity:\n  baseline: |\n    Validation rule 'baseline' failed. It violates "
        'PodSecurity "baseline:latest": (Forbidden reason: hostPorts, field error list: '
        "[spec.containers[0].ports[0].hostPort is forbidden, forbidden values found: 9100])",
        ("kyverno", "podsecurity/baseline", (HOST_PORT,)),
        id="kyverno-psa-subrule",
    ),
    pytest.param(
        'admission webhook "vpol.validate.kyverno.svc-fail" denied the request: Policy no-host-pid failed: hostPID is '
        "not allowed",
        ("kyverno", "no-host-pid", ("hostPID",)),
        id="kyverno-cel",
    ),
    pytest.param(
        GATEKEEPER + '[psp-privileged] Privileged container is not allowed: agent, securityContext: {"capabilities": '
        '{"add": ["BPF"]}, "privileged": true}\n[psp-host-filesystem] HostPath volume {"hostPath": {"path": "/proc"}, '
        '"name": "proc"} is not allowed, pod: agent. Allowed path: []',
        ("gatekeeper", "psp-privileged; psp-host-filesystem", ("privileged", HOST_PATH)),
        id="gatekeeper-two-constraints",
    ),
    pytest.param(
        "Error from server ([denied by no-ns] DaemonSet cannot use hostIPC: a/b [denied by no-caps] x): error when "
        'creating "STDIN": ' + GATEKEEPER + "[denied by no-ns] DaemonSet cannot use hostIPC: a/b [denied by no-ns] "
        "DaemonSet cannot use hostPID: a/b [denied by no-caps] DaemonSet cannot add capabilities: a/b - b",
        ("gatekeeper", "no-ns; no-caps", ("hostIPC", "hostPID", "capabilities.add")),
        id="gatekeeper-on-one-line",
    ),
    pytest.param(
        GATEKEEPER + "[escalation] Privilege\nescalation container is not allowed: agent",
        ("gatekeeper", "escalation", ("allowPrivilegeEscalation",)),
        id="gatekeeper-folded",
    ),
    pytest.param(
        KYVERNO
        + "following policies\n\nhost-namespaces:\n  autogen-ns: 'validation error: Sharing the host namespaces "
        "is disallowed.\n    The fields spec.hostNetwork, spec.hostIPC, and spec.hostPID must not be set to\n    true. "
        "Rule autogen-ns failed at path /spec/template/spec/hostNetwork/'\nimages:\n  repos: images from one place",
        ("kyverno", "host-namespaces/autogen-ns; images/repos", ("hostNetwork", "containers[].image")),
        id="kyverno-path-and-prose",
    ),
    pytest.param(
        'failed to apply rule on resource {"policy.name": "no-host-path", "new.kind": "DaemonSet", "rule.name": '
        '"autogen-host-path", "msg": "negation anchor matched in resource: /spec/template/spec/volumes/0/hostPath/"}',
        ("kyverno", "no-host-path/autogen-host-path", (HOST_PATH,)),
        id="kyverno-log",
    ),
    pytest.param(
        GATEKEEPER + "[denied by psp-caps] container <agent> is not dropping all required capabilities. Container must "
        'drop all of ["ALL"]',
        ("gatekeeper", "psp-caps", ("capabilities.drop",)),
        id="gatekeeper-drop",
    ),
    pytest.param(
        GATEKEEPER
        + "[repos] container <agent> has an invalid image repo <registry.example/agent>, allowed repos are []",
        ("gatekeeper", "repos", ("containers[].image",)),
        id="gatekeeper-image",
    ),
    pytest.param(
        'admission webhook "validating-webhook.openpolicyagent.org" denied the request: hostNetwork is not allowed',
        ("opa", "validating-webhook.openpolicyagent.org", ("hostNetwork",)),
        id="opa",
    ),
    pytest.param(
        'admission webhook "namespaced-team-no-host-paths.kubewarden.admission" denied the request: Host path /proc is '
        "not allowed",
        ("kubewarden", "namespaced-team-no-host-paths", (HOST_PATH,)),
        id="kubewarden",
    ),
    pytest.param(
        SCC + '[provider "anyuid": Forbidden: not usable by user or serviceaccount, provider restricted-v2: '
        ".spec.securityContext.hostPID: Invalid value: true: Host PID is not allowed to be used, provider "
        "restricted-v2: .containers[0].securityContext.containers[0].hostPort: Invalid value: 9100: Host ports are not "
        'allowed to be used, provider "privileged": Forbidden: not usable by user or serviceaccount]',
        ("scc", "restricted-v2", ("hostPID", HOST_PORT)),
        id="scc-v2",
    ),
    pytest.param(
        "pods is forbidden: unable to validate against any pod security policy: [spec.containers[0].securityContext."
        'capabilities.add: Invalid value: "BPF": capability may not be added spec.containers[0].securityContext.'
        "allowPrivilegeEscalation: Invalid value: true: Allowing privilege escalation for containers is not allowed]",
        ("psp", "", ("capabilities.add", "allowPrivilegeEscalation")),
        id="psp",
    ),
    pytest.param(
        "The Deployment \"a\" is invalid: : ValidatingAdmissionPolicy 'no-host' with binding 'all' denied request: "
        "failed expression: !has(object.spec.template.spec.hostNetwork)",
        ("validatingadmissionpolicy", "no-host / all", ("hostNetwork",)),
        id="vap-is-invalid",
    ),
    pytest.param(
        'pods "a" is forbidden: exceeded quota: small, requested: limits.cpu=2,pods=1, used: pods=9, limited: pods=9',
        ("quota", "small", ("resources.limits",)),
        id="quota",
    ),
    pytest.param(
        'pods "a" is forbidden: [maximum cpu usage per Container is 1, but limit is 2, memory max limit to request '
        "ratio per Container is 2, but provided ratio is 4.000000]",
        ("limitrange", "", ("resources.limits.cpu", "resources.limits.memory")),
        id="limitrange-two",
    ),
    pytest.param(
        "minimum memory usage per Container is 90Mi.  No request is specified",
        ("limitrange", "", ("resources.requests.memory",)),
        id="limitrange-missing",
    ),
    pytest.param(
        'Internal error occurred: failed calling webhook "validate.kyverno.svc-fail": no endpoints available',
        ("webhook:unreachable", "validate.kyverno.svc-fail", ()),
        id="unreachable",
    ),
    pytest.param(
        'admission webhook "gate.example.com" denied the request: not today',
        ("webhook:other", "gate.example.com", ()),
        id="another-webhook",
    ),
    pytest.param(
        'pods "a" is forbidden: no PriorityClass with name agent-high was found',
        ("priority", "Priority", ("priorityClassName",)),
        id="priority-class-gone",
    ),
]


@pytest.mark.parametrize(("message", "columns"), MESSAGES)
def test_refusal(message, columns):
    """Who, rule and fields, whether line breaks come as such or escaped."""
    assert parse_refusal(message) == Refusal(*columns, kind="refusal")
    assert parse_refusal(message.replace("\n", "\\n")) == Refusal(*columns, kind="refusal")


@pytest.mark.parametrize(
    ("message", "who", "kind"),
    [
        pytest.param('Warning: would violate PodSecurity "restricted:latest": privileged', "psa", "warning", id="psa"),
        pytest.param(
            'failing open a.example: failed calling webhook \\"a.example\\": EOF',
            "webhook:unreachable",
            "warning",
            id="failing-open",
        ),
        pytest.param('User "x" cannot create resource "pods" in API group ""', "rbac", "not_admission", id="rbac"),
        pytest.param(
            "spec.containers[0].securityContext.privileged: Forbidden: disallowed by cluster policy",
            "apiserver",
            "not_admission",
            id="allow-privileged-off",
        ),
        pytest.param("pod/agent created", "unknown", "unknown", id="no-refusal"),
        pytest.param("", "unknown", "unknown", id="empty"),
    ],
)
def test_what_is_no_refusal(message, who, kind):
    """Warnings, refusals outside admission, and texts that say nothing."""
    found = parse_refusal(message)

    assert (found.who, found.kind) == (who, kind)


WORDS = st.sampled_from(
    [
        "admission webhook ",
        '"a.kyverno.svc" denied the request: ',
        "violates PodSecurity ",
        '"x',
        "[denied by ",
        "\\n",
        '"',
    ]
)


@given(st.lists(WORDS | st.text(max_size=12), max_size=12).map("".join))
def test_any_text_is_answered(text):
    """No text is an error, and only an unknown one has no engine."""
    found = parse_refusal(text)

    assert (found.who == "unknown") == (found.kind == "unknown")
