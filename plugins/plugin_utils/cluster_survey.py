# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a cluster is read beside its nodes, Calico and kube-proxy, and what is wrong with it.

Each subject is a file of its own: it reads what it needs through one reader, in few requests, and judges what was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import WARNING, finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_routes import route_findings
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_agents import (
    coverage_findings,
    priority_findings,
    read_agents,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api_server import NO_API_SERVER, read_api_server
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_mesh import mesh_findings, read_mesh
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_providers import (
    provider_findings,
    read_providers,
    readiness_findings,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import Reader
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_versions import (
    Matrix,
    calico_findings,
    ipvs_findings,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_webhooks import read_webhooks, webhook_findings
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kubewarden_policies import policy_findings, read_policies
from ansible_collections.portcullis.fleet.plugins.plugin_utils.network_requirements import Network
from ansible_collections.portcullis.fleet.plugins.plugin_utils.runtime_enforcer import read_runtime_enforcer
from ansible_collections.portcullis.fleet.plugins.plugin_utils.runtime_enforcer_requirements import (
    runtime_enforcer_findings,
)

EMPTY_SURVEY = {
    "api_server": NO_API_SERVER,
    "providers": [],
    "webhooks": [],
    "policies": [],
    "agents": {"daemon_sets": [], "missing_classes": {}},
    "mesh": None,
    "runtime_enforcer": [],
    "unseen": {},
}


def read_survey(reader: Reader, namespace: dict, calico: list[dict]) -> dict:
    """The keys of EMPTY_SURVEY; what was refused in C(unseen), by what was asked.

    :param namespace: the agent's, as the probe has it. :param calico: Calico's objects as the probe has them.
    """
    before = set(reader.unseen)
    found = {
        "api_server": read_api_server(reader),
        "providers": read_providers(reader),
        "webhooks": read_webhooks(reader, namespace),
        "policies": read_policies(reader, namespace),
        "agents": read_agents(reader, namespace["name"]) if namespace["exists"] else EMPTY_SURVEY["agents"],
        "mesh": read_mesh(reader, calico),
        "runtime_enforcer": read_runtime_enforcer(reader, namespace["name"]),
    }
    return {**found, "unseen": {what: why for what, why in reader.unseen.items() if what not in before}}


def survey_findings(
    probe: dict, network: Network, matrix: Matrix, *, engine: str, hosts: Mapping[str, str], records: Mapping[str, dict]
) -> Iterator[dict]:
    """All findings of the survey; none of a probe that was saved before there was one.

    :param hosts: inventory names by node. :param records: by node, what evaluate_cluster is told of its host.
    """
    if "providers" not in probe:
        return
    namespace, kubernetes = probe["namespace"]["name"], probe["kubernetes"]
    if network.has_calico:
        yield from calico_findings(network.install.version, kubernetes, matrix)
    yield from ipvs_findings({network.proxy.mode, *(item["proxy_mode"] for item in records.values())}, kubernetes)
    routes = {node: item.get("routes") for node, item in records.items()}
    yield from route_findings(network.pools, routes, network.node_addresses, hosts)
    labels = {node["name"]: node["labels"] for node in probe["nodes"]}
    policy_only = network.install.policy_only
    wants_tested = engine == "secure_workload"
    yield from provider_findings(probe["providers"], labels, calico_policy_only=policy_only, wants_tested=wants_tested)
    yield from readiness_findings(probe["providers"])
    yield from webhook_findings(probe["webhooks"], probe["admission"])
    yield from policy_findings(probe["policies"], namespace, engine)
    yield from priority_findings(probe["agents"], namespace)
    yield from coverage_findings(probe["agents"], namespace, probe["nodes"], hosts, engine)
    if engine == "runtime_enforcer":
        sections = probe.get("runtime_enforcer", [])
        yield from runtime_enforcer_findings(sections, namespace, kubernetes, probe["nodes"], hosts)
    if probe["mesh"]:
        yield from mesh_findings(probe["mesh"], kubernetes, matrix)
    if probe["unseen"]:
        yield finding(
            "cluster.unseen",
            severity=WARNING,
            requirement="secure-workload/Requirements and Prerequisites",
            observed="; ".join(f"{what}: {why}" for what, why in probe["unseen"].items()),
            expected="network plugins, webhooks, PriorityClasses and the API server's endpoints can be read",
            remedy="name a kubeconfig of an administrator in portcullis_kubeconfig",
        )
