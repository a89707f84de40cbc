# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every kube-proxy file of the corpus: the answer of its row, as the code gives it."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy import read_kube_proxy

from tests.corpus.files import CORPUS, index

ROWS = index("kube-proxy")
CONFIG_CONF = "ConfigMap kube-system/kube-proxy key config.conf"
EKS_CONFIG = "ConfigMap kube-system/kube-proxy-config key config"

# mode, strictARP (None: absent), place, owner, then notes by id.
EXPECTED = {
    "001.yaml": ("iptables", None, CONFIG_CONF, "kubeadm"),
    "003.yaml": ("iptables", False, CONFIG_CONF, "kubeadm", "kube_proxy.hash"),
    "005.yaml": (
        "",
        None,
        "ConfigMap kube-system/kube-proxy key kube-proxy-config.yaml",
        "kubeadm",
        "kube_proxy.incomplete",
        "kube_proxy.wrong_key",
    ),
    "007.yaml": ("iptables", None, "DaemonSet kube-proxy, flags", "talos"),
    "009.yaml": ("ipvs", True, "document KubeProxyConfiguration", "kubespray"),
    "011.yaml": ("ipvs", None, EKS_CONFIG, "eks"),
    "013.yaml": ("iptables", None, "argument file", "microk8s"),
    "015.yaml": ("ipvs", True, "config.yaml of k3s or RKE2, kube-proxy-arg", "k3s"),
    "017.yaml": ("nftables", None, "config.yaml of k3s or RKE2, kube-proxy-arg", "rancher"),
    "019.yaml": (
        "ipvs",
        True,
        "config.yaml of k3s or RKE2, kube-proxy-arg",
        "rancher",
        "kube_proxy.modules_mount",
    ),
    "021.yaml": (None, None, "Network.operator.openshift.io cluster, OVNKubernetes", "openshift"),
    "023.yaml": ("iptables", None, "Network.operator.openshift.io cluster, OpenShiftSDN", "openshift"),
    "025.yaml": ("iptables", None, "Pod kube-proxy, flags", "kops"),
    "027.yaml": (None, None, "machine configuration, cluster.proxy", "talos"),
    "029.yaml": ("iptables", None, "document KubeProxyConfiguration", "minikube"),
    "031.yaml": ("iptables", None, "document KubeProxyConfiguration", ""),
    "033.yaml": ("ipvs", None, "kind Cluster, kubeadmConfigPatches", "kind"),
    "035.yaml": ("iptables", False, CONFIG_CONF, "kubeadm"),
    "037.yaml": ("ipvs", False, CONFIG_CONF, "kubeadm", "kube_proxy.unknown_keys", "kube_proxy.patch"),
    "039.yaml": ("", None, "container kube-proxy, flags", "eks", "kube_proxy.flag_ignored", "kube_proxy.file_unread"),
    "041.yaml": ("ipvs", None, "Pod kube-proxy, flags", "kubespray", "kube_proxy.masquerade_all"),
    "043.yaml": ("iptables", None, CONFIG_CONF, "rke2"),
    "045.yaml": ("ipvs", True, EKS_CONFIG, "eks"),
}


def read(name):
    return read_kube_proxy((CORPUS / "kube-proxy" / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", [pytest.param(row, id=row["file"]) for row in ROWS])
def test_answer(row):
    """Mode, strictARP, the place where they are kept, its owner, and why an edit there would not count."""
    mode, strict, place, owner, *notes = EXPECTED[row["file"]]
    found = read(row["file"])

    assert found.runs is (mode is not None)
    assert (found.mode, found.place, found.owner) == (mode or "", place, owner)
    assert (found.strict_arp if found.strict_arp_is_set else None) is strict
    assert sorted(found.notes) == sorted(notes)
    assert found.lever or not owner


def test_another_folding_is_the_same_value():
    """045 as JSON and 009 as a bare document hold one configuration, whatever printed them."""
    assert read("045.yaml").document == read("009.yaml").document
    assert read("043.yaml").document["ipvs"]["syncPeriod"] == "30s"
