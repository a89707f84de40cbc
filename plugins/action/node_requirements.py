# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge probes. Everything happens on the controller, so probes that were saved elsewhere are judged the same."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.portcullis.fleet.plugins.plugin_utils import (
    cluster_requirements,
    cluster_versions,
    findings,
    flat_requirements,
    network_requirements,
    node_observations,
    os_matrix,
    port_requirements,
    requirements,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.fleet_groups import CLUSTER_GROUPS, PLAIN_GROUP, hosts_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.in_hand import mended_by_the_run, refused_changes
from ansible_collections.portcullis.fleet.plugins.plugin_utils.matrix_file import MatrixError

ARGUMENT_SPEC = {
    "probes": {"type": "dict", "required": True},
    "cluster": {"type": "dict"},
    "engine": {"type": "str", "choices": list(node_observations.ENGINES), "default": "native"},
    "calico_matrix": {"type": "path"},
    "os_matrix": {"type": "path"},
    "registry_config_path": {"type": "path"},
    "images": {"type": "list", "elements": "str", "default": ["docker.io/library/busybox:1.33"]},
    "containerd_restart": {"type": "str", "choices": ["auto", "never"], "default": "auto"},
    "accept_restart_of": {"type": "list", "elements": "str", "default": []},
    "accept": {"type": "list", "elements": "str", "default": []},
    "sets": {"type": "dict", "default": {}},
    "refused": {"type": "dict", "default": {}},
    "proxy_mode": {"type": "str", "default": ""},
    "proven": {"type": "bool", "default": False},
    "reachability": {"type": "dict"},
    "flat_network": {"type": "dict"},
}


def nodes_of(arguments: dict, groups: dict) -> list[node_observations.Node]:
    """The nodes whose probe came back."""
    wanted = node_observations.Wanted(
        engine=arguments["engine"],
        registry_config_path=arguments["registry_config_path"] or "",
        images=tuple(arguments["images"]),
        restarts_containerd=arguments["containerd_restart"] == "auto",
        accept_restart_of=tuple(arguments["accept_restart_of"]),
        proven=arguments["proven"],
        os_matrix=arguments["systems"],
        proxy_mode=arguments["proxy_mode"],
    )
    plain = set(groups.get(PLAIN_GROUP, []))
    return [
        node_observations.Node(
            name=name,
            in_cluster=name not in plain,
            probe=requirements.probe_of(result),
            wanted=wanted,
            controller_epoch_s=result.get("controller_epoch_s"),
        )
        for name, result in arguments["probes"].items()
        if requirements.probe_fault(name, result) is None
    ]


def with_cluster(
    nodes: list[node_observations.Node], cluster: dict | None, records: dict
) -> list[node_observations.Node]:
    """The nodes with what the cluster says of kubelet, Felix and kube-proxy on each."""
    if not cluster:
        return nodes
    matched = cluster_requirements.match_nodes(records, cluster["nodes"])
    objects = {item["name"]: item for item in cluster["nodes"]}
    network = network_requirements.network_of(cluster)
    proxy = {"proxy_mode": network.proxy.mode, "proxy_replaced": network.replaces_proxy} if network else {}
    known = []
    for node in nodes:
        name = matched.get(node.name, "")
        told = objects.get(name, {})
        kubelet = {"kubelet_version": told.get("kubelet", ""), "is_ready": told.get("ready", False)}
        calico = {"calico": network.calico_on(name)} if network else {}
        known.append(dataclasses.replace(node, **kubelet, **proxy, **calico))
    return known


class Judgement(NamedTuple):
    """findings: of the fleet, waivers applied. changeable: where containerd can be changed. node_names: by inventory
    name, the nodes of the cluster that a run can change.
    """

    findings: list[dict]
    changeable: list[str]
    node_names: dict[str, str]


def judge(arguments: dict, groups: dict, hostvars: dict) -> Judgement:
    """Judge the fleet.

    :param groups: the inventory's groups. All of it is compared with the cluster, also what a limit left out.
    :param hostvars: variables by host, for C(portcullis_node_name) and C(ansible_host).
    :raises ValueError: for a probe that this collection cannot read.
    """
    probes, nodes = arguments["probes"], nodes_of(arguments, groups)
    faults = [requirements.probe_fault(name, result) for name, result in probes.items()]
    found = [fault for fault in faults if fault]
    cluster = arguments["cluster"]
    records = {
        name: cluster_requirements.host_record(name, hostvars.get(name, {}), probes.get(name, {}))
        for name in hosts_of(groups, CLUSTER_GROUPS) or [node.name for node in nodes if node.in_cluster]
    }
    for node in with_cluster(nodes, cluster, records):
        found += requirements.evaluate_node(node)
    if cluster:
        found += cluster_requirements.evaluate_cluster(cluster, records, arguments["engine"], arguments["matrix"])
    if arguments["reachability"]:
        found += port_requirements.reachability_findings(arguments["reachability"])
    if arguments["flat_network"]:
        found += flat_requirements.flat_findings(arguments["flat_network"], arguments["engine"])
    found += refused_changes(arguments["refused"])
    excluded = requirements.left_out(found)
    changeable = [node.name for node in nodes if node.uses_containerd and node.name not in excluded]
    names = cluster_requirements.match_nodes(records, cluster["nodes"]) if cluster else {}
    reached = {node.name for node in nodes} - excluded
    return Judgement(
        findings.waive(mended_by_the_run(found, arguments["sets"]), arguments["accept"]),
        changeable,
        {host: node for host, node in names.items() if host in reached},
    )


def tried_words(arguments: dict) -> list[str]:
    """What was tried between nodes, a line for each step that ran."""
    steps = ((port_requirements, "reachability"), (flat_requirements, "flat_network"))
    return [part.tried_words(arguments[name]) for part, name in steps if arguments[name]]


class ActionModule(ActionBase):
    """All on the controller; modules/node_requirements.py is the documentation."""

    TRANSFERS_FILES = False
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = self.validate_argument_spec(ARGUMENT_SPEC)[1]
        arguments["accept"] = findings.parse_accept(arguments["accept"])
        try:
            arguments["matrix"] = cluster_versions.read_matrix(arguments["calico_matrix"] or "")
            arguments["systems"] = os_matrix.read_os_matrix(arguments["os_matrix"] or "")
        except MatrixError as error:
            result.update(failed=True, msg=str(error))
            return result
        try:
            judgement = judge(arguments, task_vars.get("groups", {}), task_vars.get("hostvars", {}))
        except (ValueError, KeyError, TypeError) as error:
            result.update(
                failed=True,
                msg=f"probes: not what node_probe returns ({error!r}): pass its result, or its probe, by node name",
            )
            return result
        found = judgement.findings
        if found:
            Display().display("\n" + findings.render_table(found) + "\n")
        tried = tried_words(arguments)
        for words in tried:
            Display().display(words)
        for name in findings.unused_waivers(found, arguments["accept"]):
            Display().warning(f"portcullis_accept: no finding is called {name!r} in this run, so it waives nothing")
        result.update(
            changed=False,
            findings=found,
            blockers=findings.blockers(found),
            changeable=judgement.changeable,
            node_names=judgement.node_names,
            tried=tried,
            fixable=[node.name for node in nodes_of(arguments, task_vars.get("groups", {})) if node.is_root],
        )
        return result
