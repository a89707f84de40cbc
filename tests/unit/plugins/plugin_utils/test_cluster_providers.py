# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network plugins of a cluster: one, several, and those that are chained or enforce policy only."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_providers import (
    provider_findings,
    provider_of,
    read_providers,
    readiness_findings,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import Reader

NODES = {"w1": {"kubernetes.io/os": "linux", "pool": "a"}, "w2": {"kubernetes.io/os": "linux", "pool": "b"}}


def daemon_set(*containers: str, name: str = "", desired: int = 2, ready: int = 2, **spec: object) -> dict:
    """A DaemonSet with containers of these names."""
    pods = {"containers": [{"name": each, "image": "registry.example/x"} for each in containers], **spec}
    return {
        "metadata": {"name": name or containers[0], "namespace": "kube-system"},
        "spec": {"template": {"spec": pods}},
        "status": {"desiredNumberScheduled": desired, "numberReady": ready},
    }


def read(*daemon_sets: dict, **config_maps: dict) -> list[dict]:
    """What is read of a cluster with these DaemonSets and the data of these ConfigMaps, their dashes underscores."""

    def get(_resource, name, _namespace):
        data = config_maps.get(name.replace("-", "_"))
        return (404, {}) if data is None else (200, {"data": data})

    return read_providers(Reader(get, lambda _resource, **_options: (200, list(daemon_sets))))


def ids(found: list[dict], *, policy_only: bool = False, engine: str = "native") -> list[tuple[str, str]]:
    """Id and severity of what is found."""
    wanted = engine == "secure_workload"
    findings = provider_findings(found, NODES, calico_policy_only=policy_only, wants_tested=wanted)
    return [(item["id"], item["severity"]) for item in findings]


CALICO, FLANNEL, AWS = (
    daemon_set("calico-node"),
    daemon_set("kube-flannel"),
    daemon_set("aws-node", "aws-eks-nodeagent"),
)
CILIUM, ANTREA = daemon_set("cilium-agent", name="cilium"), daemon_set("antrea-agent", "antrea-ovs")
CANAL = daemon_set("calico-node", "kube-flannel", name="canal")


@pytest.mark.parametrize(
    ("item", "provider"),
    [
        (CALICO, "calico"),
        (CANAL, "canal"),
        (FLANNEL, "flannel"),
        (daemon_set("weave", "weave-npc", name="weave-net"), "weave"),
        (CILIUM, "cilium"),
        (ANTREA, "antrea"),
        (daemon_set("kube-router"), "kube-router"),
        (daemon_set("ovn-controller", "ovnkube-controller", name="ovnkube-node"), "ovn-kubernetes"),
        (daemon_set("cni-server", name="kube-ovn-cni"), "kube-ovn"),
        (AWS, "aws-vpc-cni"),
        (daemon_set("cns-container", name="azure-cns"), "azure-cni"),
        (daemon_set("kindnet-cni", name="kindnet"), "kindnet"),
        (daemon_set("terway", "policy", name="terway-eniip"), "terway"),
        (daemon_set("kube-flannel", nodeSelector={"kubernetes.io/os": "windows"}), ""),
        (daemon_set("kube-multus", name="kube-multus-ds"), ""),
        (daemon_set("kube-proxy"), ""),
        (daemon_set("sdn", name="sdn"), ""),
        ({"metadata": {"name": "odd"}, "spec": {"template": None}}, ""),
    ],
)
def test_a_plugin_is_known_by_its_containers(item, provider):
    assert provider_of(item) == provider


SEVERAL = [("network.several_providers", "blocker")]


@pytest.mark.parametrize(
    ("daemon_sets", "expected"),
    [
        ([CALICO, FLANNEL], SEVERAL),
        ([CALICO, CILIUM], SEVERAL),
        ([CANAL, daemon_set("weave")], SEVERAL),
        ([CILIUM, FLANNEL], [("network.several_providers", "warning")]),
        ([], []),
        ([CALICO], []),
        ([CANAL], []),
        ([daemon_set("kube-flannel", name="amd64"), daemon_set("kube-flannel", name="arm64")], []),
        ([CALICO, daemon_set("kube-flannel", desired=0)], []),
        ([CALICO, daemon_set("kube-flannel", nodeSelector={"kubernetes.io/os": "windows"})], []),
    ],
)
def test_one_plugin_only_on_the_same_nodes(daemon_sets, expected):
    assert ids(read(*daemon_sets)) == expected


def test_plugins_of_different_nodes_do_not_meet():
    here = daemon_set("calico-node", nodeSelector={"pool": "a"})
    there = daemon_set("kube-flannel", nodeSelector={"pool": "b"})

    assert ids(read(here, there)) == []
    assert ids(read(here, daemon_set("kube-flannel", nodeSelector={"pool": "a"}))) == SEVERAL


@pytest.mark.parametrize("other", [AWS, FLANNEL, daemon_set("cns-container")])
def test_calico_for_policy_alone_is_no_second_plugin(other):
    assert ids(read(CALICO, other), policy_only=True) == []


@pytest.mark.parametrize(
    ("daemon_sets", "config_maps", "expected"),
    [
        ([CILIUM, AWS], {"cilium_config": {"cni-chaining-mode": "aws-cni"}}, []),
        ([CILIUM, daemon_set("cns-container")], {"cilium_config": {"ipam": "delegated-plugin"}}, []),
        ([CILIUM, AWS], {"cilium_config": {"cni-chaining-mode": "none", "ipam": "cluster-pool"}}, ["warning"]),
        ([CILIUM, AWS], {}, ["warning"]),
        ([ANTREA, AWS], {"antrea_config": {"antrea-agent.conf": "trafficEncapMode: networkPolicyOnly\n"}}, []),
        (
            [ANTREA, AWS],
            {"antrea_config": {"antrea-agent.conf": "#trafficEncapMode: networkPolicyOnly\n"}},
            ["warning"],
        ),
    ],
)
def test_a_plugin_behind_another_is_known_by_its_settings(daemon_sets, config_maps, expected):
    assert [severity for _id, severity in ids(read(*daemon_sets, **config_maps))] == expected


def test_kube_router_as_a_firewall_is_no_second_plugin():
    router = daemon_set("kube-router")
    router["spec"]["template"]["spec"]["containers"][0]["args"] = ["--run-router=false", "--run-firewall=true"]

    assert ids(read(router, FLANNEL)) == []


@pytest.mark.parametrize(
    ("daemon_sets", "policy_only", "expected"),
    [
        ([CALICO], False, []),
        ([], False, []),
        ([CILIUM], False, ["network.plugin_untested"]),
        ([CALICO, AWS], True, ["network.plugin_untested"]),
        ([CANAL], False, ["network.plugin_untested"]),
    ],
)
def test_a_plugin_that_secure_workload_does_not_name_is_said(daemon_sets, policy_only, expected):
    found = ids(read(*daemon_sets), policy_only=policy_only, engine="secure_workload")

    assert [name for name, _severity in found] == expected


def test_a_calico_that_is_not_ready_everywhere_is_said():
    (found,) = readiness_findings(read(daemon_set("calico-node", ready=1)))

    assert (found["id"], found["severity"]) == ("calico.not_ready", "warning")
    assert found["observed"] == "DaemonSet kube-system/calico-node is ready on 1 of 2 nodes"
    assert not list(readiness_findings(read(CALICO, daemon_set("kube-flannel", ready=0))))
