# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clauses of Runtime Enforcer's production page. All are asked only where it is installed and is the engine."""

from __future__ import annotations

from tools.clause import NO_DEMAND, RUNTIME_ENFORCER, Clause


def _ids(*facts: str) -> tuple[str, ...]:
    return tuple(f"runtime_enforcer.{fact}" for fact in facts)


_REPLICAS = "Run more than one controller replica"
_BUDGET = "Add a PodDisruptionBudget for the controller"
_SCHEDULE = "Schedule the controller"
_TAINTS = "Tolerate tainted nodes"
_SELECTION = "Restrict node selection"
_UPDATES = "Agent rolling updates"
_RIGHTS = "Agent security context"
_LEARNING = "Restrict the learning scope"
_DEBUGGER = "Keep the debugger off"
_REQUIRE = "Require the agent before a workload starts"
_SIZES = "below the smallest recommendation only; whether a size fits the number of policies is not judged"
_CHOICE = NO_DEMAND + "a choice, and the default is the safe one"

# heading, quote, checks, reason
RUNTIME_ENFORCER_CLAUSES = tuple(
    Clause(RUNTIME_ENFORCER, *row)
    for row in (
        (
            "Configuring Kubewarden Runtime Enforcer for production",
            "For the kernel and container runtime requirements, see Compatibility",
            (
                "node.architecture",
                "node.kernel",
                "kernel.bpf",
                "kernel.btf",
                *_ids("kubernetes_version", "label_not_read"),
            ),
        ),
        (
            "Configuring Kubewarden Runtime Enforcer for production",
            "--namespace runtime-enforcer",
            _ids("other_namespace"),
        ),
        (
            "Controller",
            "Every controller replica serves three admission webhooks",
            _ids("webhook_not_answering"),
            "by endpoints and caBundle, no webhook is called; how many webhooks there are differs by version",
        ),
        ("Controller", "waits until a controller pod answers", _ids("webhook_not_answering", "controller_not_ready")),
        (_REPLICAS, "Set controller.replicas to 2 or more", _ids("controller_replicas")),
        (
            _REPLICAS,
            "Every replica serves the admission webhooks, so more replicas keep the webhooks available",
            _ids("controller_replicas", "controller_not_ready"),
        ),
        (_BUDGET, "Set controller.pdb.enabled to true", _ids("no_disruption_budget")),
        (_BUDGET, "limits how many pods a voluntary disruption can remove", _ids("no_disruption_budget")),
        (_BUDGET, "Set minAvailable or maxUnavailable under controller.pdb", _ids("budget_blocks_drain")),
        (_BUDGET, "the PodDisruptionBudget blocks every voluntary disruption", _ids("budget_blocks_drain")),
        (
            _BUDGET,
            "Before you turn on the PodDisruptionBudget, set controller.replicas to 2 or more",
            _ids("budget_blocks_drain", "controller_replicas"),
        ),
        (_SCHEDULE, "control where the controller pods run", _ids("controller_not_spread", "controller_not_ready")),
        (_SCHEDULE, "spread controller replicas across different nodes", _ids("controller_not_spread")),
        (
            "Set controller resources",
            "controller.resources defaults to a Guaranteed 250m CPU and 256Mi memory",
            _ids("controller_resources"),
            _SIZES,
        ),
        (
            "Set controller resources",
            "See Sizing recommendation",
            _ids("agent_resources", "controller_resources"),
            _SIZES,
        ),
        ("Agent", "A node without an agent pod gives no protection", _ids("agent_not_ready", "no_agent")),
        (
            "Agent",
            "The container runtime does not call an agent that is not connected",
            ("nri.not_listening", *_ids("agent_not_ready")),
        ),
        ("Agent", "agent.nriFailopen controls that second case only", (), _CHOICE),
        (
            "Agent",
            "Plan the agent scheduling before you taint nodes",
            _ids("taint_not_tolerated", "node_not_selected", "agent_not_ready"),
            "taints that a node does not have yet",
        ),
        (_TAINTS, "The chart sets no default tolerations for the agent", _ids("taint_not_tolerated")),
        (_TAINTS, "If a node carries a taint", _ids("taint_not_tolerated")),
        (_TAINTS, "Add a toleration so that the agent runs on tainted nodes too", _ids("taint_not_tolerated")),
        (_SELECTION, "keep the agent off nodes whose kernel does not meet", ("node.kernel", *_ids("agent_not_ready"))),
        (_SELECTION, "keep the agent off an arm64 node with a kernel older than 6.4", ("node.kernel",)),
        (_SELECTION, "The agent does not run on a node that the selector excludes", _ids("node_not_selected")),
        (
            _SELECTION,
            "Make sure that the selector still matches every node that runs workloads",
            _ids("node_not_selected"),
            "each Linux node counts as one that runs workloads",
        ),
        (_UPDATES, "sets a fixed update strategy: maxUnavailable: 0 and maxSurge: 100%", _ids("update_strategy")),
        (_UPDATES, "You cannot change this value", _ids("update_strategy")),
        (_UPDATES, "Only then does its startup probe pass", _ids("update_strategy")),
        (_UPDATES, "Protection does not lapse during the upgrade", _ids("update_strategy")),
        (
            "Set agent resources",
            "agent.resources defaults to a Guaranteed 250m CPU and 256Mi memory",
            _ids("agent_resources"),
            _SIZES,
        ),
        (_RIGHTS, "The agent needs hostPID: true and four Linux capabilities", _ids("agent_rights")),
        (_RIGHTS, "It also mounts a hostPath volume for the NRI socket", _ids("agent_rights")),
        (_RIGHTS, "The chart sets privileged: false", _ids("agent_privileged")),
        (
            _RIGHTS,
            "An admission policy that forbids one of these fields rejects the agent pod",
            ("cluster.admission_refused", *_ids("agent_not_ready")),
        ),
        (
            _RIGHTS,
            "Exclude the Runtime Enforcer namespace from these policies",
            ("cluster.admission_refused", "cluster.policy_refuses"),
            "asked by a dry run in portcullis_namespace; before it is there only Kubewarden's policies are judged",
        ),
        (_RIGHTS, "add your own namespace", ("cluster.admission_refused", *_ids("other_namespace"))),
        (
            _RIGHTS,
            "Keep the Runtime Enforcer namespace at the privileged level",
            ("cluster.admission_refused",),
            "the level is set by the run itself, role cluster",
        ),
        ("PriorityClass", "applies it to the controller and the agent pods", _ids("no_priority_class")),
        (
            "PriorityClass",
            "turn off the chart-managed one and point priorityClass.name at the existing class",
            ("cluster.priority_class_missing",),
        ),
        ("PriorityClass", "running pods that use it keep running", ("cluster.priority_class_missing",)),
        (
            "PriorityClass",
            "New pods that name the deleted class do not start",
            ("cluster.priority_class_missing",),
        ),
        ("Telemetry", "it is a single point of failure for the violation metrics", _ids("telemetry")),
        (
            "Telemetry",
            "point Runtime Enforcer at an OpenTelemetry collector",
            _ids("telemetry"),
            "whether the other collector answers and is highly available is not asked",
        ),
        ("Telemetry", "See Use an external collector for the full set of values", (), NO_DEMAND + "a reference"),
        (_LEARNING, "By default, learning.namespaceSelector matches every namespace", _ids("learns_everywhere")),
        (_LEARNING, "restrict the selector to the namespaces that you onboard", _ids("learns_everywhere")),
        (
            _LEARNING,
            "Once every workload has a WorkloadPolicy, set the selector to {}",
            _ids("learns_everywhere"),
            "whether every workload has a policy is not counted",
        ),
        (
            _LEARNING,
            "If every production workload already carries",
            _ids("learns_everywhere"),
            "whether every workload has a policy is not counted",
        ),
        (_DEBUGGER, "debugger.enabled defaults to false", _ids("debugger_on")),
        (_DEBUGGER, "Keep it off in production", _ids("debugger_on")),
        (_DEBUGGER, "turn it on", (), NO_DEMAND + "what it is for; while it is on, it is found"),
        (_DEBUGGER, "Use --reuse-values, so that the change does not restart the agent", _ids("debugger_on")),
        (_DEBUGGER, "--set debugger.enabled=true", _ids("debugger_on")),
        (
            _REQUIRE,
            "Add required-plugins.noderesource.dev to a workload that must never run without the agent",
            (),
            NO_DEMAND + "which workloads that are is the user's choice",
        ),
        (
            _REQUIRE,
            "needs containerd 2.2 or later, or CRI-O 1.34 or later",
            _ids("required_plugins_ignored"),
            "asked of nodes where pods with a policy carry the annotation",
        ),
        (
            _REQUIRE,
            "The container runtime refuses to start the pod when the agent is not present",
            _ids("required_plugins_ignored", "agent_not_ready"),
        ),
        (_REQUIRE, "See Required plugins for the prerequisites", (), NO_DEMAND + "a reference"),
        (
            "Example production configuration",
            "This example combines the configuration from this page",
            (),
            NO_DEMAND + "an example of the clauses above",
        ),
    )
)
