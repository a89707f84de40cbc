# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of a cluster beside its network, from a server of ours that answers as an API server does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_requirements import evaluate_cluster
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_survey import EMPTY_SURVEY

from tests import enforcer_manifests as enforcer

from .answering_cluster import FORBIDDEN, answering_cluster, groups
from .network_samples import calico_node, felix, network, pool, proxy

NAMESPACE = {"name": "agents", "exists": True, "labels": {}}
DEFAULT = "/api/v1/namespaces/default/"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
SERVICE = {"spec": {"ports": [{"name": "https", "port": 443, "targetPort": 6443}]}}
SLICE = {
    "ports": [{"name": "https", "port": 6443}],
    "endpoints": [{"addresses": ["192.0.2.2"]}, {"addresses": ["192.0.2.1"], "conditions": {"ready": True}}],
}


@pytest.fixture
def survey_of(tmp_path: Path) -> Iterator[Callable[[dict], tuple[dict, list[str]]]]:
    """Read the survey of a cluster with these answers by path: what was read, and what was asked."""
    with answering_cluster(tmp_path) as (cluster, answers, asked):

        def read(given: dict) -> tuple[dict, list[str]]:
            answers.update(given)
            return cluster.survey(cluster.reader(), NAMESPACE, []), asked

        yield read


def test_the_real_port_of_the_api_servers_is_that_of_their_endpoints(survey_of):
    slices = {"items": [SLICE, {**SLICE, "endpoints": [{"addresses": ["2001:db8::1"]}]}], "metadata": {}}
    found, _asked = survey_of({"/apis": groups("apps"), DEFAULT + "services/kubernetes": SERVICE, SLICES: slices})

    assert found["api_server"] == {
        "service_port": 443,
        "target_port": 6443,
        "endpoints": [{"address": name, "port": 6443} for name in ("192.0.2.1", "192.0.2.2", "2001:db8::1")],
    }
    assert found["unseen"] == {}


def test_endpoints_count_where_there_are_no_slices(survey_of):
    subsets = [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 8443}]}]
    answers = {"/apis": groups("apps"), DEFAULT + "endpoints/kubernetes": {"subsets": subsets}}
    found, _asked = survey_of(answers)

    assert found["api_server"] == {
        "service_port": None,
        "target_port": None,
        "endpoints": [{"address": "192.0.2.1", "port": 8443}],
    }


WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
GUARD = {
    "metadata": {"name": "guard"},
    "webhooks": [
        {
            "name": "guard.example",
            "failurePolicy": "Fail",
            "clientConfig": {"service": {"namespace": "guard", "name": "guard"}},
            "rules": [{"apiGroups": ["*"], "operations": ["*"], "resources": ["*"]}],
        }
    ],
}
AGENT = {
    "metadata": {"name": "agent", "namespace": "agents"},
    "spec": {"template": {"spec": {"containers": [{"name": "agent"}], "priorityClassName": "gone"}}},
}


def test_all_of_it_is_read_in_few_requests(survey_of):
    """Two of the API server, one list of each kind, two for the one webhook that is asked about the agent."""
    answers = {
        "/apis": groups("apps"),
        WEBHOOKS: {"items": [GUARD, GUARD], "metadata": {}},
        "/apis/apps/v1/daemonsets": {"items": [AGENT], "metadata": {}},
        DEFAULT + "services/kubernetes": SERVICE,
        SLICES: {"items": [SLICE], "metadata": {}},
    }
    found, asked = survey_of(answers)

    assert [item["state"] for item in found["webhooks"]] == ["missing", "missing"]
    assert found["agents"]["missing_classes"] == {"gone": ["DaemonSet agent"]}
    assert [item["name"] for item in found["agents"]["daemon_sets"]] == ["agent"]
    assert found["unseen"] == {}
    assert len(asked) <= 13


def test_a_runtime_enforcer_is_read_wherever_it_is(survey_of):
    """Its own namespace is another than the one that the run works in; pods that name a policy are in all."""
    place = f"/namespaces/{enforcer.NAMESPACE}/"
    spec = {"nodeName": "w1", "containers": [{"name": "a"}]}
    shop = {"metadata": {"name": "a", "namespace": "shop"}, "spec": spec, "status": {"phase": "Running"}}
    answers = {
        "/apis": groups("apps", enforcer.GROUP),
        "/apis/apps/v1/daemonsets": {"items": [enforcer.agent()], "metadata": {}},
        f"/apis/apps/v1{place}deployments": {"items": [enforcer.controller()], "metadata": {}},
        f"/apis/policy/v1{place}poddisruptionbudgets": {"items": [enforcer.budget()], "metadata": {}},
        "/api/v1/pods": {"items": [shop], "metadata": {}},
        f"/api/v1{place}pods": {"items": [], "metadata": {}},
    }
    found, _asked = survey_of(answers)
    (section,) = found["runtime_enforcer"]

    assert (section["namespace"], section["version"], section["release"]) == (enforcer.NAMESPACE, "0.10.1", "guard")
    assert section["controller"]["replicas"] == 2
    assert [item["name"] for item in section["budgets"]] == ["guard-runtime-enforcer-controller-manager"]
    assert [(item["pod"], item["node"]) for item in section["governed"]] == [("shop/a", "w1")] * 2
    assert found["unseen"] == {}


def test_what_is_refused_is_named_and_no_error(survey_of):
    kinds = ("deployments", "pods")
    refused = {f"/apis/apps/v1/namespaces/agents/{kinds[0]}": FORBIDDEN, "/api/v1/namespaces/agents/pods": FORBIDDEN}
    found, _asked = survey_of(
        {"/apis": groups("apps"), SLICES: FORBIDDEN, DEFAULT + "services/kubernetes": FORBIDDEN, **refused}
    )

    assert found["api_server"] == {"service_port": None, "target_port": None, "endpoints": []}
    assert set(found["unseen"]) == {"endpointslices", "services default/kubernetes", *kinds}


@pytest.mark.parametrize("answer", [FORBIDDEN, (503, "no JSON")], ids=["forbidden", "no answer of an API server"])
def test_a_cluster_that_tells_nothing_is_no_error_either(survey_of, answer):
    assert survey_of({"/apis": answer})[0] == EMPTY_SURVEY


LABELS = {"kubernetes.io/os": "linux"}
NODE = {"name": "w1", "labels": LABELS, "addresses": ["192.0.2.7"], "machine_id": "", "taints": []}
HOST = {"node_name": "", "address": "", "hostname": "", "machine_id": "", "read": True, "proxy_mode": ""}
WANTED = felix(chainInsertMode="Append", iptablesRefreshInterval="0s")
CLEAN = {
    **EMPTY_SURVEY,
    "access": [{"verb": "list", "group": "", "resource": "nodes", "allowed": True}],
    "admission": {"admitted": True, "tried": True, "message": ""},
    "nodes": [NODE],
    "namespace": {"name": "tetration", "exists": True, "terminating": False, "labels": {}},
    "kubernetes": "v1.34.4",
    "network": network(calico_node("v3.31.0"), WANTED, pool("p", "10.244.0.0/16")),
}
CALICO = {
    "provider": "calico",
    "namespace": "kube-system",
    "name": "calico-node",
    "desired": 1,
    "ready": 1,
    "node_selector": {},
    "chained": "",
}
WEBHOOK = {
    "kind": "MutatingWebhookConfiguration",
    "configuration": "guard",
    "name": "guard.example",
    "resources": ["daemonsets"],
    "conditions": False,
    "service": "guard/guard",
    "state": "no_endpoints",
}
DAEMON_SET = {"name": "agent", "node_selector": {}, "tolerations": [], "host_network": False}
ROUTE = {"destination": "10.244.7.0/24", "interface": "docker0", "gateway": "", "protocol": 2}
ETCD = calico_node("v3.31.0", ETCD_ENDPOINTS="https://192.0.2.9:2379")
# What is there, and what alone is found of it.
FOUND = {
    "a Calico of another time": ({"kubernetes": "v1.30.1"}, "calico.kubernetes_untested"),
    "a Calico that does not work": ({"kubernetes": "v1.19.1"}, "calico.kubernetes_fails"),
    "a Calico that nobody knows": (
        {"network": network(calico_node("v3.99.0"), WANTED)},
        "calico.version_unknown",
    ),
    "an IPVS before its time": (
        {"kubernetes": "v1.9.1", "network": network(kube_proxy=proxy("ipvs"))},
        "kube_proxy.ipvs_version",
    ),
    "two plugins": (
        {"providers": [CALICO, {**CALICO, "provider": "flannel", "name": "kube-flannel-ds"}]},
        "network.several_providers",
    ),
    "another plugin": ({"providers": [{**CALICO, "provider": "cilium", "name": "cilium"}]}, "network.plugin_untested"),
    "a Calico that is not ready": ({"providers": [{**CALICO, "ready": 0}]}, "calico.not_ready"),
    "a webhook that nobody answers": ({"webhooks": [WEBHOOK]}, "webhook.could_block"),
    "a webhook that takes no dry run": (
        {"admission": {"admitted": False, "tried": False, "message": 'webhook "x" does not support dry run'}},
        "cluster.admission_unknown",
    ),
    "a class that is gone": (
        {"agents": {"daemon_sets": [], "missing_classes": {"gone": ["Pod agent"]}}},
        "cluster.priority_class_missing",
    ),
    "a taint that the agent does not tolerate": (
        {
            "agents": {"daemon_sets": [DAEMON_SET], "missing_classes": {}},
            "nodes": [{**NODE, "taints": [{"key": "infra", "effect": "NoSchedule"}]}],
        },
        "coverage.node_not_reached",
    ),
    "an Istio of another time": ({"mesh": {"istio": "1.9.1", "disabled_on": []}}, "istio.version"),
    "no mutating webhooks": (
        {"mesh": {"istio": "", "disabled_on": ["kube-apiserver-cp1"]}},
        "cluster.mutating_webhooks_off",
    ),
    "objects in etcd": ({"network": network(ETCD)}, "calico.datastore_etcd"),
    "what may not be read": ({"unseen": {"pods": "forbidden"}}, "cluster.unseen"),
}


@pytest.mark.parametrize(("changes", "expected"), FOUND.values(), ids=FOUND)
def test_each_fault_is_found_and_nothing_else(changes, expected):
    found = evaluate_cluster({**CLEAN, **changes}, {"w1": HOST}, "secure_workload")

    assert [item["id"] for item in found] == [expected]


def test_a_route_of_another_network_into_a_pool_is_found_on_its_node():
    host = {**HOST, "routes": {"routes": [ROUTE], "error": ""}}
    found = evaluate_cluster(CLEAN, {"w1": host}, "secure_workload")

    assert [(item["id"], item["node"]) for item in found] == [("calico.pool_routes", "w1")]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"providers": [CALICO]},
        {"webhooks": [{**WEBHOOK, "state": "ready"}]},
        {"mesh": {"istio": "", "disabled_on": []}},
        {"network": network(), "nodes": [{**NODE, "taints": [{"key": "infra", "effect": "NoSchedule"}]}]},
        {"admission": None},
    ],
    ids=["Calico", "its DaemonSet", "webhook", "mesh", "taint without an agent", "no namespace yet"],
)
def test_a_cluster_as_it_should_be_has_no_finding(changes):
    assert evaluate_cluster({**CLEAN, **changes}, {"w1": HOST}, "secure_workload") == []


def test_a_probe_that_was_saved_before_is_judged_without_what_it_lacks():
    saved = {key: value for key, value in CLEAN.items() if key not in EMPTY_SURVEY}

    assert evaluate_cluster({**saved, "kubernetes": "v1.30.1"}, {"w1": HOST}, "secure_workload") == []


@pytest.mark.parametrize(
    ("variables", "ids"),
    [
        ({"DATASTORE_TYPE": "kubernetes", "ETCD_ENDPOINTS": ""}, ["felix.chain_insert_mode", "felix.refresh_interval"]),
        ({"DATASTORE_TYPE": "etcdv3"}, ["calico.datastore_etcd"]),
        (
            {
                "ETCD_ENDPOINTS": "https://192.0.2.9:2379",
                "FELIX_CHAININSERTMODE": "Insert",
                "FELIX_IPTABLESMANGLEALLOWACTION": "Accept",
                "FELIX_IPTABLESFILTERALLOWACTION": "Accept",
            },
            ["felix.chain_insert_mode", "calico.datastore_etcd"],
        ),
    ],
    ids=["Kubernetes", "etcd", "etcd, set by variables"],
)
def test_what_lies_in_etcd_is_not_taken_for_a_default(variables, ids):
    section = network(calico_node("v3.31.0", **variables))
    found = evaluate_cluster({**CLEAN, "network": section}, {"w1": HOST}, "secure_workload")

    assert sorted(item["id"] for item in found) == sorted(ids)
