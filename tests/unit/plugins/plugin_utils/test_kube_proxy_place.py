"""Where the configuration is kept is followed from the DaemonSet's command line to a key of a ConfigMap."""

from __future__ import annotations

import copy
import re

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_place import place_of, shadowed

CONFIGURATION = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\n"
CONFIG_MAP = {
    "kind": "ConfigMap",
    "metadata": {"name": "kube-proxy", "namespace": "kube-system"},
    "data": {"config.conf": CONFIGURATION, "kubeconfig.conf": "apiVersion: v1\n"},
}


def daemon_set(*flags: str, source: dict | None = None, **pod: object) -> dict:
    container = {
        "name": "kube-proxy",
        "command": ["/usr/local/bin/kube-proxy", *(flags or ("--config=/var/lib/kube-proxy/config.conf",))],
        "volumeMounts": [{"name": "kube-proxy", "mountPath": "/var/lib/kube-proxy"}],
    }
    volume = {"name": "kube-proxy", **(source or {"configMap": {"name": "kube-proxy"}})}
    return {
        "kind": "DaemonSet",
        "metadata": {"name": "kube-proxy", "namespace": "kube-system"},
        "spec": {"template": {"spec": {"containers": [container], "volumes": [volume], **pod}}},
    }


def node(version: str, **labels: str) -> dict:
    return {
        "kind": "Node",
        "metadata": {"name": "n", "labels": labels},
        "status": {"nodeInfo": {"kubeletVersion": version}},
    }


def config_map(**changes: object) -> dict:
    return {**copy.deepcopy(CONFIG_MAP), **changes}


def test_the_configmap_behind_the_flag_config():
    place = place_of([daemon_set(), CONFIG_MAP, node("v1.34.4")])
    assert (place.kind, place.namespace, place.name, place.key) == (
        "configmap",
        "kube-system",
        "kube-proxy",
        "config.conf",
    )
    assert (place.daemon_set, place.owner, place.warnings) == ("kube-proxy", "kubeadm", {})


def test_a_volume_that_renames_a_key_and_one_of_several_sources():
    items = [{"key": "config", "path": "config.conf"}]
    for source in (
        {"configMap": {"name": "kube-proxy", "items": items}},
        {"projected": {"sources": [{"secret": {"name": "s"}}, {"configMap": {"name": "kube-proxy", "items": items}}]}},
    ):
        place = place_of([daemon_set(source=source), config_map(data={"config": CONFIGURATION})])
        assert (place.kind, place.key) == ("configmap", "config")


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([daemon_set(), config_map(immutable=True)], "is immutable"),
        (
            [daemon_set()],
            "ConfigMap kube-system/kube-proxy, which DaemonSet kube-system/kube-proxy reads, was not found",
        ),
        (
            [daemon_set(), config_map(data={"other": ""})],
            "key config.conf of ConfigMap .* is not there; it holds other",
        ),
        ([daemon_set(), config_map(data={"config.conf": "a: [\n"})], "key config.conf of ConfigMap"),
        ([daemon_set("--proxy-mode=ipvs"), CONFIG_MAP], "starts kube-proxy with flags, without --config"),
        ([daemon_set(source={"hostPath": {"path": "/etc/kp"}}), CONFIG_MAP], "comes from no ConfigMap"),
        ([], "no kube-proxy was found"),
    ],
)
def test_what_may_not_be_edited_says_why(items: list, reason: str):
    place = place_of(items)
    assert place.kind == "elsewhere"
    assert re.search(reason, place.reason)


@pytest.mark.parametrize(
    ("item", "path"),
    [
        (node("v1.31.2+k3s1"), "/etc/rancher/k3s/config.yaml"),
        (node("v1.31.2+rke2r1"), "/etc/rancher/rke2/config.yaml"),
        (node("v1.31.2", **{"microk8s.io/cluster": "true"}), "/var/snap/microk8s/current/args/kube-proxy"),
    ],
)
def test_distributions_that_keep_it_in_a_file_of_each_node(item: dict, path: str):
    place = place_of([item])
    assert (place.kind, place.name) == ("file", path)


def test_who_may_write_it_back_is_a_warning():
    managed = config_map(metadata={**CONFIG_MAP["metadata"], "labels": {"app.kubernetes.io/managed-by": "Helm"}})
    assert "managed-by Helm" in place_of([daemon_set(), managed]).warnings["kube_proxy.managed"]


def test_objects_of_a_change_of_ours_are_no_place():
    ours = copy.deepcopy(daemon_set())
    ours["metadata"] = {**ours["metadata"], "name": "twin", "labels": {"app.kubernetes.io/managed-by": "portcullis"}}
    assert place_of([ours, daemon_set(), CONFIG_MAP]).daemon_set == "kube-proxy"


def test_flags_that_outrank_the_file():
    assert shadowed({"hostnameOverride": "a", "mode": "ipvs"}, {"hostname-override": "$(NODE)"}) == {
        "hostnameOverride": "--hostname-override of the DaemonSet outranks it"
    }
    assert shadowed({"logging": {"verbosity": 4}}, {"v": "2"}).keys() == {"logging.verbosity"}
