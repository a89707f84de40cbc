"""Probes of a fleet are judged together, with the whole inventory against the cluster."""

from __future__ import annotations

from ansible_collections.portcullis.fleet.plugins.action.node_requirements import judge
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_versions import read_matrix
from ansible_collections.portcullis.fleet.plugins.plugin_utils.network_requirements import network_of

from tests.unit.plugins.plugin_utils.network_samples import calico_node, felix, network
from tests.unit.plugins.plugin_utils.probes import CLEAN_PROBE, probe_with

GROUPS = {"control_plane": ["cp1"], "workers": ["w1", "w2"], "plain_hosts": ["h1"]}
NAMES = ("cp1", "w1", "w2", "h1")
CLUSTER = {
    "access": [{"verb": "list", "group": "", "resource": "nodes", "allowed": True}],
    "admission": None,
    "namespace": {"name": "portcullis-system", "terminating": False},
    "nodes": [{"name": name, "addresses": [], "machine_id": ""} for name in ("cp1", "w1", "w2")],
}


def arguments(probes: dict, **changes: object) -> dict:
    """The action's arguments as its specification fills them."""
    base = {
        "probes": probes,
        "cluster": CLUSTER,
        "engine": "native",
        "matrix": read_matrix(),
        "registry_config_path": None,
        "images": ["docker.io/library/busybox:1.33"],
        "containerd_restart": "auto",
        "systems": None,
        "accept_restart_of": [],
        "accept": [],
        "proven": False,
        "reachability": None,
        "flat_network": None,
    }
    return {**base, **changes}


def clean(*names: str) -> dict:
    """What node_probe registered for clean nodes."""
    return {name: {"probe": CLEAN_PROBE} for name in names}


def test_a_clean_fleet_has_no_finding_and_all_of_it_can_change():
    assert judge(arguments(clean(*NAMES)), GROUPS, {}) == ([], list(NAMES))


def test_a_limited_run_still_compares_the_whole_inventory():
    assert judge(arguments(clean("w1")), GROUPS, {}) == ([], ["w1"])


def test_an_unreachable_node_is_one_finding_and_cannot_change():
    probes = {**clean("cp1", "w1", "h1"), "w2": {"unreachable": True, "msg": "no route"}}
    found, changeable = judge(arguments(probes, accept=["node.unreachable"]), GROUPS, {})

    assert [(item["id"], item["node"], item["waived"]) for item in found] == [("node.unreachable", "w2", True)]
    assert changeable == ["cp1", "w1", "h1"]


def test_a_host_without_containerd_has_nothing_to_change():
    probes = {**clean("cp1", "w1", "w2"), "h1": {"probe": probe_with(containerd={"present": False})}}

    assert judge(arguments(probes), GROUPS, {}) == ([], ["cp1", "w1", "w2"])


def test_saved_probes_are_judged_without_an_inventory_or_a_cluster():
    found, changeable = judge(arguments({"node7": probe_with(kubelet__healthy=False)}, cluster=None), {}, {})

    assert [(item["id"], item["node"]) for item in found] == [("kubelet.not_healthy", "node7")]
    assert changeable == ["node7"]


def test_what_the_cluster_says_of_felix_counts_on_the_nodes_that_run_it():
    """Calico 3.31 takes bit 20 of its default mask; without the cluster nobody knows before its first rule."""
    nodes = [{**item, "labels": {"os": item["name"]}} for item in CLUSTER["nodes"]]
    calico = calico_node(
        "v3.31.0", selector={"os": "w2"}, FELIX_CHAININSERTMODE="Append", FELIX_IPTABLESREFRESHINTERVAL="0"
    )
    cluster = {**CLUSTER, "nodes": nodes, "kubernetes": "v1.34.0", "network": network(calico)}
    found, _changeable = judge(arguments(clean(*NAMES), cluster=cluster, engine="secure_workload"), GROUPS, {})

    assert [(item["id"], item["node"]) for item in found] == [("packet_filter.marks_collide", "w2")]
    assert "4291756032 (0xffcf0000)" in found[0]["remedy"]


def test_the_api_server_decides_whether_a_mask_may_have_bit_31():
    nodes = [{**item, "labels": {}} for item in CLUSTER["nodes"]]
    calico = network(calico_node("v3.31.0", selector={"os": "linux"}), felix())
    base = {**CLUSTER, "nodes": nodes, "network": calico}
    assert network_of({**base, "kubernetes": "v1.35.2"}).fits_int32 is False
    assert network_of({**base, "kubernetes": "v1.36.0"}).fits_int32 is True
    assert network_of({**base, "kubernetes": ""}).fits_int32 is True
    assert network_of({**base, "kubernetes": "v1.36.0"}).calico_on("w1") is None
