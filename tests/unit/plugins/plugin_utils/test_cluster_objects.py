# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of Calico and kube-proxy, from a server of ours that answers as an API server does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_install import read_objects
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy import read_objects as read_kube_proxy

from .answering_cluster import FORBIDDEN, answering_cluster, groups

HIDDEN = "hush"
APPS = "/apis/apps/v1/daemonsets"
CRDS = "/apis/crd.projectcalico.org/v1/"
SYSTEM = "/api/v1/namespaces/kube-system/"
PROXY_CONFIG = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ipvs\n"


def daemon_set(name: str, container: dict, **spec: object) -> dict:
    """A DaemonSet as a list has it, without a kind, with what must not leave the cluster."""
    applied = {"kubectl.kubernetes.io/last-applied-configuration": HIDDEN}
    pods = {"containers": [{"image": f"registry.example/{name}:v3.27.1", **container}], **spec}
    named = {"name": name, "namespace": "kube-system", "annotations": applied}
    return {"metadata": named, "spec": {"template": {"spec": pods}}, "status": {}}


def config_map(name: str, **data: str) -> dict:
    """A ConfigMap."""
    named = {"name": name, "namespace": "kube-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": data}


def custom(kind: str, name: str, **spec: object) -> dict:
    """An object of Calico."""
    notes = {"config.projectcalico.org/LogPrefix": "ours", "other": HIDDEN}
    named = {"name": name, "annotations": notes, "managedFields": [HIDDEN]}
    return {"apiVersion": "crd.projectcalico.org/v1", "kind": kind, "metadata": named, "spec": spec}


CALICO = daemon_set(
    "calico-node",
    {
        "name": "calico-node",
        "args": [HIDDEN],
        "envFrom": [{"configMapRef": {"name": "endpoint", "optional": True}}],
        "env": [
            {"name": "FELIX_CHAININSERTMODE", "value": "Append"},
            {
                "name": "FELIX_IPTABLESREFRESHINTERVAL",
                "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "every"}},
            },
            {"name": "FELIX_ETCDPASSWORD", "valueFrom": {"secretKeyRef": {"name": HIDDEN, "key": HIDDEN}}},
            {"name": "CALICO_ETCD_PASSWORD", "value": HIDDEN},
            {"name": "CALICO_ETCD_KEY", "value": HIDDEN},
            {"name": "CALICO_K8S_API_TOKEN", "value": HIDDEN},
            {"name": "CNI_NETWORK_CONFIG", "value": f'{{"policy": {{"k8s_auth_token": "{HIDDEN}"}}}}'},
            {"name": "CALICO_IPV4POOL_CIDR", "value": "10.1.0.0/16"},
            {"name": "IP", "value": "autodetect"},
            {"name": "PASSWORD", "value": HIDDEN},
        ],
    },
    initContainers=[
        {
            "name": "install-cni",
            "env": [
                {
                    "name": "CNI_NETWORK_CONFIG",
                    "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "cni_network_config"}},
                }
            ],
        }
    ],
    volumes=[{"name": "t", "secret": {"secretName": HIDDEN}}, {"name": "e", "hostPath": {"path": "/etc/calico"}}],
)
PROXY = daemon_set(
    "kube-proxy",
    {
        "name": "kube-proxy",
        "command": ["kube-proxy", "--config=/var/lib/kube-proxy/config.conf", f"--master=https://me:{HIDDEN}@10.0.0.1"],
    },
    volumes=[{"name": "kube-proxy", "configMap": {"name": "kube-proxy"}}],
)
WINDOWS = daemon_set(
    "kube-proxy-windows", {"name": "kube-proxy", "args": [HIDDEN]}, nodeSelector={"kubernetes.io/os": "windows"}
)
OTHER = daemon_set("logs", {"name": "logs", "env": [{"name": "PASSWORD", "value": HIDDEN}]})
ANSWERS = {
    "/apis": groups("apps", "crd.projectcalico.org", "networking.k8s.io"),
    APPS: {"items": [CALICO, PROXY, WINDOWS, OTHER], "metadata": {}},
    SYSTEM + "configmaps/kube-proxy": config_map(
        "kube-proxy", **{"config.conf": PROXY_CONFIG, "kubeconfig.conf": HIDDEN}
    ),
    SYSTEM + "configmaps/conf": config_map(
        "conf", every="0", other=HIDDEN, cni_network_config='{"ipam": {"type": "host-local"}, "token": "hush"}'
    ),
    CRDS + "felixconfigurations": {"items": [custom("FelixConfiguration", "default", chainInsertMode="Insert")]},
    CRDS + "ippools": {"items": [custom("IPPool", "p", cidr="10.1.0.0/16", more=HIDDEN)]},
    CRDS + "clusterinformations": {"items": [custom("ClusterInformation", "default", calicoVersion="v3.27.1")]},
    "/apis/networking.k8s.io/v1/servicecidrs": {"items": [{"metadata": {}, "spec": {"cidrs": ["10.96.0.0/16"]}}]},
}


@pytest.fixture
def network_of(tmp_path: Path) -> Iterator[Callable[[dict], tuple[dict, list[str]]]]:
    """Read the network of a cluster with these answers by path: what was read, and what was asked."""
    with answering_cluster(tmp_path) as (cluster, answers, asked):

        def read(given: dict) -> tuple[dict, list[str]]:
            answers.update(given)
            return cluster.network(cluster.reader()), asked

        yield read


def test_what_decides_calico_and_kube_proxy_is_read(network_of):
    found, asked = network_of(ANSWERS)
    install, proxy = read_objects(found["calico"]), read_kube_proxy(found["kube_proxy"])

    assert (install.method, install.version, install.host_file) == ("manifest", (3, 27), False)
    config = install.effective()
    assert config.settings["chainInsertMode"].origin == "DaemonSet calico-node"
    assert (config.value("chainInsertMode"), config.value("iptablesRefreshInterval")) == ("Append", 0)
    assert (config.value("logPrefix"), config.settings["etcdpassword"].source) == ("ours", "environment")
    assert [(pool.cidr, pool.source) for pool in install.pools] == [
        ("10.1.0.0/16", "object"),
        ("10.1.0.0/16", "environment"),
    ]
    assert "calico.host_local" in install.notes
    assert install.unread == ()
    assert (proxy.mode, proxy.owner, proxy.place) == (
        "ipvs",
        "kubeadm",
        "ConfigMap kube-system/kube-proxy key config.conf",
    )
    assert found["service_ranges"] == ["10.96.0.0/16"]
    assert found["unseen"] == {}
    assert len(asked) <= 10


def test_nothing_secret_and_no_secret_leaves_the_cluster(network_of):
    found, asked = network_of(ANSWERS)

    assert HIDDEN not in json.dumps(found)
    assert not [path for path in asked if "secrets" in path]
    assert not [item for item in found["calico"] if item["metadata"]["name"] == "logs"]


def test_a_cluster_without_calico_is_asked_little_and_has_none(network_of):
    answers = {**ANSWERS, "/apis": groups("apps", "networking.k8s.io"), APPS: {"items": [PROXY, OTHER]}}
    found, asked = network_of(answers)

    assert (found["calico"], found["service_ranges"], found["unseen"]) == ([], [], {})
    assert len(asked) == 3


def test_long_lists_are_read_page_by_page(network_of):
    pages = [{"items": [OTHER], "metadata": {"continue": "more"}}, {"items": [CALICO], "metadata": {"continue": ""}}]
    found, asked = network_of({**ANSWERS, APPS: pages})

    assert read_objects(found["calico"]).method == "manifest"
    assert [path for path in asked if path.startswith(APPS)] == [f"{APPS}?limit=500", f"{APPS}?continue=more&limit=500"]


def test_static_pods_are_looked_for_where_no_daemon_set_runs_kube_proxy(network_of):
    """Each way of starting it once, however many nodes there are."""
    spec = {"containers": [{"name": "kube-proxy", "command": ["kube-proxy", "--proxy-mode=ipvs"]}]}
    pods = [{"metadata": {"name": f"kube-proxy-{at}", "namespace": "kube-system"}, "spec": spec} for at in range(3)]
    found, asked = network_of({**ANSWERS, APPS: {"items": [CALICO]}, SYSTEM + "pods": {"items": pods}})

    assert [item["metadata"]["name"] for item in found["kube_proxy"]] == ["kube-proxy-0"]
    assert read_kube_proxy(found["kube_proxy"]).mode == "ipvs"
    assert any("labelSelector=component%3Dkube-proxy" in path and "limit=50" in path for path in asked)


def test_what_is_refused_is_named_and_no_error(network_of):
    refused = {APPS: FORBIDDEN, CRDS + "ippools": FORBIDDEN, "/apis/networking.k8s.io/v1/servicecidrs": FORBIDDEN}
    service = {"metadata": {"name": "kubernetes"}, "spec": {"clusterIPs": ["10.96.0.1"]}}
    found, _asked = network_of({**ANSWERS, **refused, "/api/v1/namespaces/default/services/kubernetes": service})

    assert set(found["unseen"]) == {"daemonsets", "ippools", "servicecidrs"}
    assert found["unseen"]["daemonsets"] == FORBIDDEN[1]["message"]
    assert [item["kind"] for item in found["calico"]] == ["FelixConfiguration", "ClusterInformation"]
    assert found["service_ranges"] == ["10.96.0.1"]


@pytest.mark.parametrize("answer", [FORBIDDEN, (503, "no JSON")], ids=["forbidden", "no answer of an API server"])
def test_a_cluster_that_tells_nothing_is_no_error_either(network_of, answer):
    found, asked = network_of({"/apis": answer})

    assert (found["calico"], found["kube_proxy"], len(found["unseen"]), len(asked)) == ([], [], 1, 1)


def test_openshift_and_the_operator_are_read(network_of):
    network = {
        "metadata": {"name": "cluster"},
        "spec": {"defaultNetwork": {"type": "Calico"}, "serviceNetwork": ["172.30.0.0/16"]},
    }
    installation = {
        "metadata": {"name": "default"},
        "spec": {"calicoNetwork": {"linuxDataplane": "BPF"}, "registry": HIDDEN},
    }
    found, _asked = network_of(
        {
            **ANSWERS,
            "/apis": groups("apps", "operator.openshift.io", "operator.tigera.io"),
            "/apis/operator.openshift.io/v1/networks": {"items": [network]},
            "/apis/operator.tigera.io/v1/installations": {"items": [installation]},
        }
    )

    assert found["service_ranges"] == ["172.30.0.0/16"]
    assert found["kube_proxy"][-1]["kind"] == "Network"
    assert read_objects(found["calico"]).effective().value("bpfEnabled") is True
    assert HIDDEN not in json.dumps(found)
