"""A twin carries the new configuration; the original comes back exactly as it was."""

from __future__ import annotations

import copy
import json

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_twin import (
    LABEL,
    current_revision,
    history_of,
    is_parked,
    is_ready,
    node_of_pod,
    note_of,
    parked,
    read_note,
    reparked_note,
    restored_strategy,
    restored_template,
    revision_of,
    twin_config_map,
    twin_daemon_set,
    twin_name,
)

CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "kube-proxy", "namespace": "kube-system", "resourceVersion": "5"},
    "data": {"config.conf": "mode: iptables\n", "kubeconfig.conf": "kubeconfig"},
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ABSENT = {"key": LABEL, "operator": "DoesNotExist"}


def daemon_set(affinity: dict | None = None) -> dict:
    pods = {
        "containers": [],
        "volumes": [{"name": "c", "configMap": {"name": "kube-proxy"}}, {"name": "x", "emptyDir": {}}],
    }
    if affinity is not None:
        pods["affinity"] = affinity
    return {
        "metadata": {"name": "kube-proxy", "namespace": "kube-system", "uid": "u1"},
        "spec": {
            "selector": {"matchLabels": {"k8s-app": "kube-proxy"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {"metadata": {"labels": {"k8s-app": "kube-proxy"}}, "spec": pods},
        },
    }


def note(original: dict, **known: object) -> dict:
    return note_of(
        original, CONFIG_MAP, "config.conf", "mode: nftables\n", **{"state": "present", "wanted": {}, **known}
    )


TWO_TERMS = {
    "nodeAffinity": {
        REQUIRED: {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
            ]
        }
    },
    "podAffinity": {},
}


def terms(workload: dict) -> list:
    return workload["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


@pytest.mark.parametrize("affinity", [None, {}, TWO_TERMS])
def test_the_original_keeps_to_nodes_without_the_label_and_comes_back_as_it_was(affinity: dict | None):
    original = daemon_set(affinity)
    kept = note(original)
    waiting = parked(original)

    assert is_parked(waiting)
    assert not is_parked(original)
    assert all(ABSENT in term["matchExpressions"] for term in terms(waiting))
    assert restored_strategy(restored_template(waiting, kept), kept) == original


def test_the_twin_has_the_other_configmap_its_own_selector_and_only_nodes_with_the_label():
    original = daemon_set(TWO_TERMS)
    twin = twin_daemon_set(original, "kube-proxy", "copy", "abc", note(original))
    pods = twin["spec"]["template"]

    assert pods["spec"]["volumes"][0] == {"name": "c", "configMap": {"name": "copy"}}
    assert (
        twin["spec"]["selector"]["matchLabels"] == pods["metadata"]["labels"] == {"k8s-app": "kube-proxy", LABEL: "abc"}
    )
    assert all({"key": LABEL, "operator": "In", "values": ["abc"]} in term["matchExpressions"] for term in terms(twin))
    assert read_note(twin)["after"] == "mode: nftables\n"
    assert original == daemon_set(TWO_TERMS)


def test_the_configmap_is_copied_with_all_its_keys():
    found = twin_config_map(CONFIG_MAP, "config.conf", "mode: ipvs\n", "copy")
    assert found["data"] == {"config.conf": "mode: ipvs\n", "kubeconfig.conf": "kubeconfig"}
    assert "resourceVersion" not in found["metadata"]


def test_names_fit_a_label():
    name = twin_name("a-very-long-name-of-a-daemonset-that-somebody-has-thought-of", revision_of("text"))
    assert len(name) <= 57
    assert name.endswith(f"-portcullis-{revision_of('text')}")


def test_what_somebody_else_wrote_meanwhile_is_what_comes_back():
    original = daemon_set()
    kept = note(original)
    theirs = daemon_set(TWO_TERMS)
    theirs["spec"]["updateStrategy"] = {"type": "RollingUpdate"}

    assert reparked_note(kept, parked(original)) == kept
    assert reparked_note(kept, theirs) == {**kept, "affinity": TWO_TERMS, "update_strategy": {"type": "RollingUpdate"}}


def test_the_oldest_text_is_kept_with_all_that_was_asked_since():
    first = history_of(None, note(daemon_set(), wanted={"mode": "nftables", "ipvs": {"strictARP": True}}))
    later = {**note(daemon_set(), wanted={"ipvs": {"scheduler": "rr"}}), "before": "mode: nftables\n"}

    second = history_of(json.dumps(first), later)
    assert second["before"] == "mode: iptables\n"
    assert second["wanted"] == {"mode": "nftables", "ipvs": {"strictARP": True, "scheduler": "rr"}}
    assert history_of(json.dumps(second), {**later, "state": "absent"}) is None


def revision(number: int, hash_: str, affinity: dict | None, uid: str = "u1") -> dict:
    pods = {} if affinity is None else {"affinity": affinity}
    return {
        "metadata": {"ownerReferences": [{"uid": uid}], "labels": {"controller-revision-hash": hash_}},
        "revision": number,
        "data": {"spec": {"template": {"spec": pods}}},
    }


def test_the_revision_of_the_present_template_is_the_newest_that_has_its_affinity():
    original = daemon_set()
    waiting = parked(original)["spec"]["template"]["spec"]["affinity"]
    others = [revision(9, "other", None, uid="u2")]

    assert current_revision([revision(3, "old", None), revision(2, "parked", waiting), *others], original) == "old"
    assert current_revision([revision(1, "old", None), revision(2, "parked", waiting), *others], original) == ""
    assert current_revision([], original) == ""


def test_the_node_of_a_pod_that_is_not_bound_yet():
    fields = [{"key": "metadata.name", "operator": "In", "values": ["w1"]}]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": fields}]}}}
    assert node_of_pod({"spec": {"affinity": affinity}}) == "w1"
    assert node_of_pod({"spec": {"nodeName": "w2", "affinity": affinity}}) == "w2"
    assert node_of_pod({"spec": {}}) == ""


def test_a_pod_on_its_way_out_is_not_ready():
    pod = {"metadata": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    leaving = copy.deepcopy(pod)
    leaving["metadata"]["deletionTimestamp"] = "now"
    assert (is_ready(pod), is_ready(leaving), is_ready({})) == (True, False, False)
