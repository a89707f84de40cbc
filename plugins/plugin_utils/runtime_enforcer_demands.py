# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Runtime Enforcer's production page demands of an installation, and what to do where it is not so."""

from __future__ import annotations

from typing import NamedTuple

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING

# What the smallest clusters need, by the sizing recommendation (2026-08-04).
SMALLEST = {"cpu": "250m", "memory": "256Mi"}
CAPABILITIES = ("BPF", "PERFMON", "SYS_PTRACE", "SYS_RESOURCE")
# SYS_ADMIN includes what was taken out of it in 5.8. Source: capabilities(7).
IN_SYS_ADMIN = ("BPF", "PERFMON")


class Demand(NamedTuple):
    """One demand. C(heading) is its place in the text; C(remedy) may name what Install has: C({release}) and so on."""

    id: str
    severity: str
    heading: str
    expected: str
    remedy: str


UPGRADE = "helm upgrade {release} kubewarden/runtime-enforcer -n {namespace} --reuse-values "
REPLICAS = Demand(
    "runtime_enforcer.controller_replicas",
    WARNING,
    "Run more than one controller replica",
    "two controller replicas or more, so that webhooks answer while one restarts",
    UPGRADE + "--set controller.replicas=2",
)
CONTROLLER_DOWN = Demand(
    "runtime_enforcer.controller_not_ready",
    WARNING,
    "Controller",
    "every controller replica runs and is ready",
    "kubectl -n {namespace} describe pods -l app.kubernetes.io/component=controller says what keeps it",
)
NO_BUDGET = Demand(
    "runtime_enforcer.no_disruption_budget",
    WARNING,
    "Add a PodDisruptionBudget for the controller",
    "a PodDisruptionBudget for the controller",
    UPGRADE + "--set controller.replicas=2,controller.pdb.enabled=true,controller.pdb.minAvailable=1",
)
BUDGET_BLOCKS = Demand(
    "runtime_enforcer.budget_blocks_drain",
    WARNING,
    "Add a PodDisruptionBudget for the controller",
    "one budget that lets a drain take one controller pod",
    UPGRADE + "--set controller.replicas=2,controller.pdb.minAvailable=1, and one budget only",
)
SPREAD = Demand(
    "runtime_enforcer.controller_not_spread",
    WARNING,
    "Schedule the controller",
    "controller replicas on different nodes",
    "give controller.affinity a podAntiAffinity over kubernetes.io/hostname whose labelSelector matches the "
    "controller's pods (helm upgrade {release} kubewarden/runtime-enforcer -n {namespace} --reuse-values -f "
    "values.yaml)",
)
CONTROLLER_SIZE = Demand(
    "runtime_enforcer.controller_resources",
    WARNING,
    "Set controller resources",
    f"requests equal to limits, at least {SMALLEST['cpu']} CPU and {SMALLEST['memory']} memory",
    UPGRADE + "--set-json 'controller.resources={sizes}'",
)
AGENT_SIZE = Demand(
    "runtime_enforcer.agent_resources",
    WARNING,
    "Set agent resources",
    f"requests equal to limits, at least {SMALLEST['cpu']} CPU and {SMALLEST['memory']} memory",
    UPGRADE + "--set-json 'agent.resources={sizes}'",
)
NO_AGENT = Demand(
    "runtime_enforcer.no_agent",
    BLOCKER,
    "Agent",
    "a DaemonSet of the agent beside the controller",
    UPGRADE + "puts it back; without it no policy is enforced, whatever its status says",
)
NODE_NOT_TOLERATED = Demand(
    "runtime_enforcer.taint_not_tolerated",
    WARNING,
    "Tolerate tainted nodes",
    "an agent on every node",
    "add the toleration to agent.tolerations (helm upgrade {release} kubewarden/runtime-enforcer -n {namespace} "
    "--reuse-values -f values.yaml), or accept that pods there are not protected and waive it: "
    "runtime_enforcer.taint_not_tolerated",
)
NODE_NOT_SELECTED = Demand(
    "runtime_enforcer.node_not_selected",
    WARNING,
    "Restrict node selection",
    "agent.nodeSelector and agent.affinity match every node that runs workloads",
    "change agent.nodeSelector or agent.affinity, or label the node; where its kernel is too old, keep workloads off "
    "it (kubectl cordon) and waive it: runtime_enforcer.node_not_selected",
)
AGENT_DOWN = Demand(
    "runtime_enforcer.agent_not_ready",
    WARNING,
    "Agent",
    "an agent that is ready on every node",
    "kubectl -n {namespace} get pods -o wide -l app.kubernetes.io/component=agent; kubectl -n {namespace} describe "
    "daemonset {agent}; NRI must be on in the node's container runtime",
)
UPDATE = Demand(
    "runtime_enforcer.update_strategy",
    WARNING,
    "Agent rolling updates",
    "RollingUpdate with maxUnavailable 0: the old agent stops when the new one enforces",
    UPGRADE + "puts the chart's own strategy back",
)
RIGHTS = Demand(
    "runtime_enforcer.agent_rights",
    BLOCKER,
    "Agent security context",
    f"hostPID, the capabilities {', '.join(CAPABILITIES)}, and the directory of NRI's socket from the node",
    "leave agent.hostPID, agent.containerSecurityContext and agent.nriSocketPath as the chart has them: helm get "
    "values {release} -n {namespace}",
)
PRIVILEGED = Demand(
    "runtime_enforcer.agent_privileged",
    WARNING,
    "Agent security context",
    "privileged: false with the four capabilities",
    UPGRADE + "--set agent.containerSecurityContext.privileged=false",
)
NO_PRIORITY = Demand(
    "runtime_enforcer.no_priority_class",
    WARNING,
    "PriorityClass",
    "the agent and the controller have a PriorityClass, so that application pods are evicted before them",
    UPGRADE + "--set priorityClass.enabled=true,priorityClass.name=runtime-enforcer-priorityclass",
)
TELEMETRY = Demand(
    "runtime_enforcer.telemetry",
    WARNING,
    "Telemetry",
    "violations go to a collector that the platform operates",
    UPGRADE + "--set telemetry.collectorStrategy=external,telemetry.externalCollector.endpoint=ADDRESS",
)
LEARNING = Demand(
    "runtime_enforcer.learns_everywhere",
    WARNING,
    "Restrict the learning scope",
    "learning only in the namespaces that are onboarded",
    UPGRADE
    + '--set-json \'learning.namespaceSelector={{"matchLabels":{{"env":"prod"}}}}\' (an empty one turns it off)',
)
DEBUGGER = Demand(
    "runtime_enforcer.debugger_on",
    WARNING,
    "Keep the debugger off",
    "no debugger in production",
    UPGRADE + "--set debugger.enabled=false (--reuse-values alone keeps it on)",
)
WEBHOOK = Demand(
    "runtime_enforcer.webhook_not_answering",
    BLOCKER,
    "Controller",
    "the admission webhooks answer before a promotion or a deletion",
    "kubectl -n {namespace} get pods,endpointslices, and certificates of cert-manager; the controller serves them",
)
NOT_REQUIRED = Demand(
    "runtime_enforcer.required_plugins_ignored",
    WARNING,
    "Require the agent before a workload starts",
    "containerd 2.2 or later, or CRI-O 1.34 or later, where pods require the agent",
    "upgrade the node's container runtime (containerd also needs portcullis_containerd_nri_required_plugins), or keep "
    "these pods off the node",
)
OLD_LABEL = Demand(
    "runtime_enforcer.label_not_read",
    WARNING,
    "Agent",
    "policies are named by the label that this version reads",
    "put the label {label} into the workloads' pod templates; the other one is no longer read",
)
KUBERNETES = Demand(
    "runtime_enforcer.kubernetes_version",
    WARNING,
    "Configuring Kubewarden Runtime Enforcer for production",
    "a Kubernetes that this version supports",
    "upgrade Kubernetes",
)
ELSEWHERE = Demand(
    "runtime_enforcer.other_namespace",
    WARNING,
    "Configuring Kubewarden Runtime Enforcer for production",
    "portcullis_namespace is where Runtime Enforcer is installed",
    "set portcullis_namespace: {namespace}",
)
