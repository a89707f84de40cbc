"""The inventory against the cluster, rights, and admission."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_requirements import (
    evaluate_cluster,
    match_nodes,
)

ALLOWED = [{"verb": "list", "group": "", "resource": "nodes", "allowed": True}]
NAMESPACE = {"name": "portcullis-system", "terminating": False}
ADMITTED = {"admitted": True, "message": ""}
PSA = 'pods "x" is forbidden: violates PodSecurity "baseline:latest": privileged (container "agent" must not set ...)'
KYVERNO = 'admission webhook "validate.kyverno.svc-fail" denied the request: policy disallow-privileged'


def node(name: str, *, addresses: tuple[str, ...] = (), machine_id: str = "") -> dict:
    """A node of the cluster."""
    return {"name": name, "addresses": list(addresses), "machine_id": machine_id}


def host(**known: object) -> dict:
    """A host of the inventory."""
    return {"node_name": "", "address": "", "hostname": "", "machine_id": "", "read": True, **known}


def probe(**changes: object) -> dict:
    """A cluster with nothing to complain about."""
    base = {"access": ALLOWED, "admission": ADMITTED, "nodes": [node("w1")], "namespace": NAMESPACE}
    return {**base, **changes}


@pytest.mark.parametrize(
    "known",
    [
        host(node_name="ip-10-0-0-7"),
        host(hostname="ip-10-0-0-7"),
        host(address="10.0.0.7"),
        host(machine_id="abc"),
    ],
    ids=["portcullis_node_name", "host name", "address", "machine id"],
)
def test_a_host_is_found_in_the_cluster_by_whatever_names_it(known):
    nodes = [node("other"), node("ip-10-0-0-7", addresses=("10.0.0.7",), machine_id="abc")]

    assert match_nodes({"w1": known}, nodes) == {"w1": "ip-10-0-0-7"}


def test_a_host_is_found_by_its_inventory_name():
    assert match_nodes({"w1": host()}, [node("w1")]) == {"w1": "w1"}


def test_portcullis_node_name_outranks_what_else_matches():
    assert match_nodes({"w1": host(node_name="w9")}, [node("w1")]) == {}


def test_a_machine_id_of_cloned_disks_identifies_nobody():
    hosts = {"a": host(machine_id="same"), "b": host(machine_id="same", hostname="localhost")}

    assert match_nodes(hosts, [node("w1", machine_id="same")]) == {}


def test_empty_names_match_nothing():
    assert match_nodes({"w1": host()}, [node("other")]) == {}


def test_a_fleet_that_is_the_cluster_has_no_finding():
    assert evaluate_cluster(probe(), {"w1": host()}) == []


def test_a_node_without_a_host_and_a_host_without_a_node_are_blockers():
    found = evaluate_cluster(probe(nodes=[node("w1"), node("forgotten")]), {"w1": host(), "gone": host()})

    assert [(item["id"], item["node"], item["severity"]) for item in found] == [
        ("inventory.node_missing", "forgotten", "blocker"),
        ("inventory.not_in_cluster", "gone", "blocker"),
    ]


def test_a_host_that_was_not_read_may_be_the_node_that_is_left():
    hosts = {"w1": host(), "node-b.example.com": host(read=False)}
    found = evaluate_cluster(probe(nodes=[node("w1"), node("w2")]), hosts)

    assert [(item["id"], item["severity"]) for item in found] == [("inventory.not_compared", "warning")]
    assert "node-b.example.com" in found[0]["observed"]
    assert "w2" in found[0]["observed"]


def test_more_nodes_than_unread_hosts_are_missing_all_the_same():
    hosts = {"w1": host(), "node-b.example.com": host(read=False)}
    found = evaluate_cluster(probe(nodes=[node("w1"), node("w2"), node("w3")]), hosts)

    assert [item["id"] for item in found] == ["inventory.node_missing", "inventory.node_missing"]


def test_a_namespace_that_is_being_deleted_is_named_as_that():
    refused = {"admitted": False, "message": "forbidden: unable to create new content in namespace x"}
    found = evaluate_cluster(probe(admission=refused, namespace={**NAMESPACE, "terminating": True}), {"w1": host()})

    assert [item["id"] for item in found] == ["cluster.namespace_terminating"]


def test_missing_rights_are_one_finding_and_no_inventory_is_judged_without_the_list():
    denied = [
        {**ALLOWED[0], "allowed": False},
        {"verb": "patch", "group": "", "resource": "namespaces", "allowed": False},
    ]
    found = evaluate_cluster(probe(access=denied, nodes=[]), {"w1": host()})

    assert [item["id"] for item in found] == ["cluster.access_denied"]
    assert "list nodes, patch namespaces" in found[0]["observed"]


@pytest.mark.parametrize(
    ("message", "severity", "remedy"),
    [(PSA, "warning", "role cluster"), (KYVERNO, "blocker", "exclude the namespace")],
    ids=["Pod Security, which the run mends", "a webhook, which it does not"],
)
def test_a_refused_pod_is_judged_by_who_refused_it(message, severity, remedy):
    found = evaluate_cluster(probe(admission={"admitted": False, "message": message}), {"w1": host()})

    assert [(item["id"], item["severity"]) for item in found] == [("cluster.admission_refused", severity)]
    assert message in found[0]["observed"]
    assert remedy in found[0]["remedy"]


def test_admission_that_was_not_asked_is_no_finding():
    assert evaluate_cluster(probe(admission=None), {"w1": host()}) == []
