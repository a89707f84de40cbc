"""Probes of a fleet are judged together, with the whole inventory against the cluster."""

from __future__ import annotations

import json

from ansible_collections.portcullis.fleet.plugins.action.node_requirements import judge
from ansible_collections.portcullis.fleet.plugins.module_utils.packet_filters import packed
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_survey import EMPTY_SURVEY
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_versions import read_matrix
from ansible_collections.portcullis.fleet.plugins.plugin_utils.network_requirements import network_of

from tests.unit.plugins.plugin_utils.network_samples import calico_node, felix, network, proxy
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
        "sets": {},
        "refused": {},
        "proxy_mode": "",
        "proven": False,
        "reachability": None,
        "flat_network": None,
    }
    return {**base, **changes}


def clean(*names: str) -> dict:
    """What node_probe registered for clean nodes."""
    return {name: {"probe": CLEAN_PROBE} for name in names}


def test_a_clean_fleet_has_no_finding_and_all_of_it_can_change():
    in_cluster = {name: name for name in NAMES[:3]}

    assert judge(arguments(clean(*NAMES)), GROUPS, {}) == ([], list(NAMES), in_cluster)


def test_a_limited_run_still_compares_the_whole_inventory():
    assert judge(arguments(clean("w1")), GROUPS, {}) == ([], ["w1"], {"w1": "w1"})


def test_an_unreachable_node_is_one_finding_and_cannot_change():
    probes = {**clean("cp1", "w1", "h1"), "w2": {"unreachable": True, "msg": "no route"}}
    found, changeable, names = judge(arguments(probes, accept=["node.unreachable"]), GROUPS, {})

    assert [(item["id"], item["node"], item["waived"]) for item in found] == [("node.unreachable", "w2", True)]
    assert changeable == ["cp1", "w1", "h1"]
    assert names == {"cp1": "cp1", "w1": "w1"}


def test_a_host_without_containerd_has_nothing_to_change():
    probes = {**clean("cp1", "w1", "w2"), "h1": {"probe": probe_with(containerd={"present": False})}}

    assert judge(arguments(probes), GROUPS, {}).changeable == ["cp1", "w1", "w2"]


def test_a_host_with_another_name_in_the_cluster_is_changed_under_that_name():
    nodes = [{**item, "addresses": [f"{item['name']}.example.org"]} for item in CLUSTER["nodes"]]
    groups = {"workers": ["cp1", "w1", "worker-two"]}
    variables = {"worker-two": {"ansible_host": "w2.example.org"}}
    found = judge(arguments(clean("cp1", "w1", "worker-two"), cluster={**CLUSTER, "nodes": nodes}), groups, variables)

    assert found.node_names == {"cp1": "cp1", "w1": "w1", "worker-two": "w2"}


def test_saved_probes_are_judged_without_an_inventory_or_a_cluster():
    found, changeable, _names = judge(arguments({"node7": probe_with(kubelet__healthy=False)}, cluster=None), {}, {})

    assert [(item["id"], item["node"]) for item in found] == [("kubelet.not_healthy", "node7")]
    assert changeable == ["node7"]


def test_what_the_cluster_says_of_felix_counts_on_the_nodes_that_run_it():
    """Calico 3.31 takes bit 20 of its default mask; without the cluster nobody knows before its first rule."""
    nodes = [{**item, "labels": {"os": item["name"]}} for item in CLUSTER["nodes"]]
    calico = calico_node(
        "v3.31.0", selector={"os": "w2"}, FELIX_CHAININSERTMODE="Append", FELIX_IPTABLESREFRESHINTERVAL="0"
    )
    cluster = {**CLUSTER, "nodes": nodes, "kubernetes": "v1.34.0", "network": network(calico)}
    found, *_rest = judge(arguments(clean(*NAMES), cluster=cluster, engine="secure_workload"), GROUPS, {})

    assert [(item["id"], item["node"]) for item in found] == [("packet_filter.marks_collide", "w2")]
    assert "4291756032 (0xffcf0000)" in found[0]["remedy"]

    about_to = {"sets": {"calico": ["chainInsertMode", "iptablesMarkMask"]}}
    found, *_rest = judge(arguments(clean(*NAMES), cluster=cluster, engine="secure_workload", **about_to), GROUPS, {})
    (item,) = found
    assert (item["severity"], item["remedy"]) == ("warning", "nothing: site.yml sets it (role calico)")


def test_a_kube_proxy_that_the_network_plugin_replaces_is_not_missed():
    probes = {name: {"probe": probe_with(kube_proxy__mode="", kube_proxy__error="refused")} for name in NAMES[:3]}
    nodes = [{**item, "labels": {}, "addresses": []} for item in CLUSTER["nodes"]]
    base = {**CLUSTER, "nodes": nodes, "kubernetes": "v1.34.0"}
    own = {"provider": "cilium", "namespace": "kube-system", "name": "cilium", "node_selector": {}, "chained": ""}
    own |= {"desired": 3, "ready": 3}

    def missed(providers: list[dict], *calico: dict, **changes: object) -> bool:
        section = network(*calico, **{"kube_proxy": [], **changes})
        cluster = {**base, "network": section, **EMPTY_SURVEY, "providers": providers}
        found, *_rest = judge(arguments(probes, cluster=cluster), GROUPS, {})
        return "kube_proxy.mode_unknown" in {item["id"] for item in found}

    assert not missed([own])
    assert not missed([], calico_node("v3.31.0"), felix(bpfEnabled=True))
    assert missed([])
    assert missed([own], kube_proxy=proxy())
    assert missed([own], unseen={"daemonsets": "forbidden"})
    assert missed([], calico_node("v3.31.0"), felix())


def test_an_image_of_calico_may_be_tagged_by_a_sites_own_count():
    nodes = [{**item, "labels": {"kubernetes.io/os": "linux"}, "addresses": []} for item in CLUSTER["nodes"]]
    noted = {"apiVersion": "crd.projectcalico.org/v1", "kind": "ClusterInformation", "metadata": {"name": "default"}}

    def version_of(tag: str, **spec: str) -> tuple | None:
        cluster = {**CLUSTER, "nodes": nodes, "kubernetes": "v1.34.0"}
        cluster["network"] = network(calico_node(tag), felix(), {**noted, "spec": spec})
        judge(arguments(clean(*NAMES), cluster=cluster, engine="secure_workload"), GROUPS, {})
        return network_of(cluster).install.version

    assert version_of("1.4.2", calicoVersion="v3.27.1") == (3, 27)
    assert version_of("1.4.2") is None
    assert version_of("v3.28.0", calicoVersion="v3.27.1") == (3, 28)


def test_two_backends_because_of_the_settings_are_one_finding():
    """The cluster's finding names the setting; the rules on the node only show the same."""
    save = "*filter\n:INPUT ACCEPT [0:0]\n:cali-INPUT - [0:0]\n-A INPUT -j cali-INPUT\nCOMMIT\n"
    table = {"family": "ip", "name": "kube-proxy"}
    nft = {"nftables": [{"table": table}, {"chain": {**table, "table": "kube-proxy", "name": "services"}}]}
    rules = {**CLEAN_PROBE["packet_filter_rules"], "saves": [packed(save)], "nft_json": [packed(json.dumps(nft))]}
    probes = {"w1": {"probe": probe_with(kube_proxy__mode="nftables", packet_filter_rules=rules)}}
    linux = {"kubernetes.io/os": "linux"}
    nodes = [{**item, "labels": linux, "addresses": []} for item in CLUSTER["nodes"]]
    section = network(calico_node("v3.28.0"), felix(), kube_proxy=proxy("nftables"))
    cluster = {**CLUSTER, "nodes": nodes, "kubernetes": "v1.34.0", "network": section}
    groups = {"workers": ["w1", "w2", "cp1"]}

    def ids(cluster: dict | None) -> set[str]:
        return {item["id"] for item in judge(arguments(probes, cluster=cluster), groups, {})[0]}

    assert "packet_filter.backends_differ" in ids(None)
    assert "packet_filter.backends_differ" not in ids(cluster)
    assert "calico.nftables_version" in ids(cluster)


def test_the_api_server_decides_whether_a_mask_may_have_bit_31():
    nodes = [{**item, "labels": {}} for item in CLUSTER["nodes"]]
    calico = network(calico_node("v3.31.0", selector={"os": "linux"}), felix())
    base = {**CLUSTER, "nodes": nodes, "network": calico}
    assert network_of({**base, "kubernetes": "v1.35.2"}).fits_int32 is False
    assert network_of({**base, "kubernetes": "v1.36.0"}).fits_int32 is True
    assert network_of({**base, "kubernetes": ""}).fits_int32 is True
    assert network_of({**base, "kubernetes": "v1.36.0"}).calico_on("w1") is None
