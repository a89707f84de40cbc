# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an installed Runtime Enforcer must be in production: findings of what runtime_enforcer.py read.

Nothing here talks to a cluster. Where it is not installed, nothing is demanded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_versions import shown
from ansible_collections.portcullis.fleet.plugins.plugin_utils.daemon_coverage import (
    NO_POD,
    NOT_READY,
    NOT_REPLACED,
    NOT_SELECTED,
    NOT_TOLERATED,
    Gap,
    gaps,
    is_virtual,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import parse_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import as_list, as_mapping
from ansible_collections.portcullis.fleet.plugins.plugin_utils.quantity import parse_quantity
from ansible_collections.portcullis.fleet.plugins.plugin_utils.runtime_enforcer import (
    PLUGIN,
    REQUIRED_PLUGINS,
    release_of,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.runtime_enforcer_demands import (
    AGENT_DOWN,
    AGENT_SIZE,
    BUDGET_BLOCKS,
    CAPABILITIES,
    CONTROLLER_DOWN,
    CONTROLLER_SIZE,
    DEBUGGER,
    ELSEWHERE,
    IN_SYS_ADMIN,
    KUBERNETES,
    LEARNING,
    NO_AGENT,
    NO_BUDGET,
    NO_PRIORITY,
    NODE_NOT_SELECTED,
    NODE_NOT_TOLERATED,
    NOT_REQUIRED,
    OLD_LABEL,
    PRIVILEGED,
    REPLICAS,
    RIGHTS,
    SMALLEST,
    SPREAD,
    TELEMETRY,
    UPDATE,
    WEBHOOK,
    Demand,
)

# Runtimes that know required plugins. Source: the requirement text.
REQUIRED_PLUGINS_SINCE = {"containerd": (2, 2), "cri-o": (1, 34)}
EVERY_NAMESPACE = ("kubernetes.io/metadata.name", "Exists")
PODS_SHOWN = 3


class Install(NamedTuple):
    """One installation, the nodes around it, and inventory names by node."""

    section: dict
    nodes: list[dict]
    hosts: Mapping[str, str]

    def found(self, demand: Demand, observed: str, node: str = "", **words: str) -> dict:
        """A finding of this installation. node: as the cluster calls it."""
        agent = self.section["agent"] or {"name": ""}
        names = {"release": self.section["release"], "namespace": self.section["namespace"], "agent": agent["name"]}
        return finding(
            demand.id,
            severity=demand.severity,
            requirement=f"runtime-enforcer/{demand.heading}",
            node=self.hosts.get(node, node),
            observed=observed,
            expected=demand.expected,
            remedy=demand.remedy.format(**names, **words),
        )


def runtime_enforcer_findings(
    sections: list[dict], namespace: str, kubernetes: str, nodes: list[dict], hosts: Mapping[str, str]
) -> Iterator[dict]:
    """All findings of what read_runtime_enforcer returned.

    :param namespace: in which the run works. :param kubernetes: the API server's version.
    :param nodes: as C(cluster_probe) returns them. :param hosts: inventory names by node.
    """
    for section in sections:
        install = Install(section, nodes, hosts)
        if section["namespace"] != namespace:
            yield install.found(ELSEWHERE, f"namespace {section['namespace']}; the run looks at {namespace}")
        yield from _version_findings(install, kubernetes)
        if section["controller"]:
            yield from _controller_findings(install, section["controller"])
        yield from _webhook_findings(install)
        if section["agent"]:
            yield from _agent_findings(install, section["agent"])
        else:
            yield install.found(NO_AGENT, f"no agent in namespace {section['namespace']}, only a controller")
        yield from _common_findings(install)


def _version_findings(install: Install, kubernetes: str) -> Iterator[dict]:
    section = install.section
    release, running = release_of(section["version"]), parse_version(kubernetes)
    if release is None:
        return
    if running and running < release.kubernetes:
        text = f"Kubernetes {shown(running)} with Runtime Enforcer {section['version']}, which needs "
        yield install.found(KUBERNETES, text + f"{shown(release.kubernetes)} or newer")
    unread = [item for item in section["governed"] if item["group"] != release.group]
    if unread:
        text = f"{_some(unread)} name a policy by {unread[0]['group']}/policy, which Runtime Enforcer "
        yield install.found(OLD_LABEL, text + f"{section['version']} does not read", label=f"{release.group}/policy")


def _some(pods: list[dict]) -> str:
    names = sorted(item["pod"] for item in pods)
    more = f" and {len(names) - PODS_SHOWN} more" if len(names) > PODS_SHOWN else ""
    return f"pods {', '.join(names[:PODS_SHOWN])}{more}"


def _controller_findings(install: Install, controller: dict) -> Iterator[dict]:
    replicas, pods = controller["replicas"], controller["pods"]
    if replicas < 2:
        yield install.found(REPLICAS, f"Deployment {controller['name']} has {replicas} replica{'s' * (replicas != 1)}")
    if pods is not None and (ready := sum(pod["ready"] for pod in pods)) < replicas:
        yield install.found(CONTROLLER_DOWN, f"{ready} of {replicas} replicas of {controller['name']} are ready")
    yield from _budget_findings(install, controller)
    pods = pods or []
    places = {pod["node"] for pod in pods}
    hosts = [node for node in install.nodes if not is_virtual(node)]
    if replicas > 1 and len(hosts) > 1:
        if len(pods) > 1 and len(places) == 1:
            yield install.found(SPREAD, f"all {len(pods)} pods of {controller['name']} run on node {places.pop()}")
        elif not controller["spreads"]:
            text = f"{controller['name']} has neither podAntiAffinity nor topologySpreadConstraints over its own pods"
            yield install.found(SPREAD, text)
    yield from _size_findings(install, CONTROLLER_SIZE, controller)


def _budget_findings(install: Install, controller: dict) -> Iterator[dict]:
    budgets = install.section["budgets"]
    if budgets is None:
        return
    if not budgets:
        yield install.found(NO_BUDGET, f"no PodDisruptionBudget counts the pods of {controller['name']}")
    elif len(budgets) > 1:
        names = ", ".join(sorted(item["name"] for item in budgets))
        yield install.found(
            BUDGET_BLOCKS, f"{names} all count the pods of {controller['name']}: no eviction is allowed"
        )
    elif controller["replicas"] and _spare(budgets[0], controller["replicas"]) < 1:
        text = ", ".join(
            f"{words} {value}"
            for words, value in (
                ("minAvailable", budgets[0]["min_available"]),
                ("maxUnavailable", budgets[0]["max_unavailable"]),
            )
            if value is not None
        )
        count = controller["replicas"]
        yield install.found(
            BUDGET_BLOCKS, f"{budgets[0]['name']} with {text} lets none of {count} controller pod{'s' * (count > 1)} go"
        )


def _spare(budget: dict, replicas: int) -> int:
    """How many of the pods a budget lets go when all are healthy. Percentages are rounded up, as its controller does.

    Source: kubernetes/kubernetes, pkg/controller/disruption/disruption.go.
    """
    if budget["max_unavailable"] is not None:
        return _share(budget["max_unavailable"], replicas)
    return replicas - _share(budget["min_available"] or 0, replicas)


def _share(value: object, replicas: int) -> int:
    text = str(value)
    if text.endswith("%") and text[:-1].isdigit():
        return ceil(Fraction(int(text[:-1]), 100) * replicas)
    return int(text) if text.isdigit() else 0


def _size_findings(install: Install, demand: Demand, workload: dict) -> Iterator[dict]:
    wrong = [text for container in workload["containers"] for text in _wrong_sizes(container)]
    # The API server tells of a pod what a LimitRange has made of it.
    burstable = {pod["qos"] for pod in workload["pods"] or ()} - {"Guaranteed", ""}
    if not wrong and burstable:
        wrong = [f"its pods are {' and '.join(sorted(burstable))}, not Guaranteed"]
    if wrong:
        sizes = '{"requests":{"cpu":"250m","memory":"256Mi"},"limits":{"cpu":"250m","memory":"256Mi"}}'
        yield install.found(demand, f"{workload['name']}: {'; '.join(wrong)}", sizes=sizes)


def _wrong_sizes(container: dict) -> Iterator[str]:
    limits, requests = (as_mapping(container["resources"].get(key)) for key in ("limits", "requests"))
    for name, least in SMALLEST.items():
        limit = parse_quantity(limits.get(name))
        # Without a request the limit is taken for one.
        request = parse_quantity(requests.get(name, limits.get(name)))
        if limit is None:
            yield f"container {container['name']} has no limit of {name}"
        elif request != limit:
            yield f"container {container['name']} requests {requests[name]} {name} and is limited to {limits[name]}"
        elif limit < parse_quantity(least):
            yield f"container {container['name']} has {limits[name]} {name}, less than {least}"


def _webhook_findings(install: Install) -> Iterator[dict]:
    for item in install.section["webhooks"]:
        states = {"missing": "does not exist", "no_endpoints": "has no ready endpoint"}
        what = f"{item['kind']} {item['configuration']}, webhook {item['name']}"
        refused = "a promotion, a deletion of a policy or a change of a proposal is refused"
        if item["state"] in states:
            text = f"{what}: its Service {item['service']} {states[item['state']]}: {refused}"
            yield install.found(WEBHOOK, text)
        elif not item["trusted"]:
            text = f"{what}: no caBundle, so the API server does not trust it: {refused}"
            yield install.found(WEBHOOK, text)


def _agent_findings(install: Install, agent: dict) -> Iterator[dict]:
    yield from _gap_findings(install, agent)
    lacks = [] if agent["host_pid"] else ["hostPID is not true"]
    has = {*agent["capabilities"], *(IN_SYS_ADMIN if "SYS_ADMIN" in agent["capabilities"] else ())}
    missing = [name for name in CAPABILITIES if not {name, "ALL"} & has]
    if missing and not agent["privileged"]:
        lacks.append(f"capabilities {', '.join(missing)} are missing")
    if not agent["nri_path"]:
        lacks.append("no hostPath volume with NRI's socket")
    if lacks:
        yield install.found(RIGHTS, f"DaemonSet {agent['name']}: {'; '.join(lacks)}")
    if agent["privileged"]:
        yield install.found(PRIVILEGED, f"DaemonSet {agent['name']} runs privileged")
    update = agent["update"]
    if update["type"] != "RollingUpdate" or update["max_unavailable"] not in {"0", "0%"}:
        text = f"DaemonSet {agent['name']}: {update['type'] or 'no strategy'}"
        if update["max_unavailable"]:
            text += f", maxUnavailable {update['max_unavailable']}"
        yield install.found(UPDATE, text + ": protection lapses on a node while its agent is replaced")
    yield from _size_findings(install, AGENT_SIZE, agent)
    if agent["learning"] and _is_everywhere(agent["learning"]):
        yield install.found(LEARNING, "it learns in every namespace, and proposes a policy for every workload")


def _gap_findings(install: Install, agent: dict) -> Iterator[dict]:
    linux = [node for node in install.nodes if node["labels"].get("kubernetes.io/os", "linux") == "linux"]
    if agent["pods"] is not None:
        for node, gap in gaps(agent, linux, agent["pods"]).items():
            yield _gap_finding(install, node, gap)


def _gap_finding(install: Install, node: str, gap: Gap) -> dict:
    """A node without a ready agent, and who runs there although they name a policy."""
    if gap.kind == NOT_REPLACED:
        text = f"the agent here does not tolerate {', '.join(map(str, gap.taints))}: once it stops, none follows it"
        return install.found(NODE_NOT_TOLERATED, text, node)
    here = [item for item in install.section["governed"] if item["node"] == node]
    harm = (
        f"; {_some(here)} name a policy and run there without it" if here else ": pods that start there have no policy"
    )
    words = {
        NOT_TOLERATED: f"the agent does not tolerate {', '.join(map(str, gap.taints))}",
        NOT_SELECTED: "agent.nodeSelector or agent.affinity leaves the node out",
        NO_POD: "the DaemonSet has no pod here",
        NOT_READY: "the agent's pod here is not ready",
    }
    demands = {NOT_TOLERATED: NODE_NOT_TOLERATED, NOT_SELECTED: NODE_NOT_SELECTED}
    return install.found(demands.get(gap.kind, AGENT_DOWN), words[gap.kind] + harm, node)


def _is_everywhere(selector: dict) -> bool:
    """Whether a selector of namespaces leaves none out: it only asks for the label that every namespace has."""
    expressions = as_list(selector.get("matchExpressions"))
    return not selector.get("matchLabels") and all(
        (item.get("key"), item.get("operator")) == EVERY_NAMESPACE for item in map(as_mapping, expressions)
    )


def _common_findings(install: Install) -> Iterator[dict]:
    section = install.section
    unranked = [
        item["name"] for item in (section["agent"], section["controller"]) if item and not item["priority_class"]
    ]
    if unranked:
        yield install.found(NO_PRIORITY, f"{' and '.join(unranked)} name no PriorityClass")
    agent = section["agent"]
    if section["collectors"]:
        yield install.found(TELEMETRY, f"the chart's own collector, {section['collectors'][0]}, is a single pod")
    elif agent and not agent["exports"]:
        yield install.found(TELEMETRY, "no collector: violations are counted nowhere")
    if section["debuggers"]:
        yield install.found(DEBUGGER, f"Deployment {', '.join(section['debuggers'])} is running")
    yield from _required_plugin_findings(install)


def _required_plugin_findings(install: Install) -> Iterator[dict]:
    """Pods that shall not start without the agent, on nodes whose container runtime does not know that."""
    for node in install.nodes:
        pods = [item for item in install.section["governed"] if item["requires"] and item["node"] == node["name"]]
        name, _sign, version = str(node.get("runtime") or "").partition("://")
        running, since = parse_version(version), REQUIRED_PLUGINS_SINCE.get(name)
        if pods and running and since and running < since:
            yield install.found(
                NOT_REQUIRED,
                f"{name} {version} does not know {REQUIRED_PLUGINS}, by which {_some(pods)} require {PLUGIN}",
                node["name"],
            )
