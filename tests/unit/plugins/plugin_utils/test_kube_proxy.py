# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube-proxy's configuration in each place that installers keep it."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy import read_kube_proxy, read_objects
from hypothesis import given
from hypothesis import strategies as st

HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
DAEMONSET = {
    "kind": "DaemonSet",
    "metadata": {"name": "kube-proxy", "namespace": "kube-system"},
    "spec": {
        "template": {
            "spec": {"containers": [{"command": ["/usr/local/bin/kube-proxy", "--config=/var/c/config.conf"]}]}
        }
    },
}
WINDOWS = {
    "kind": "DaemonSet",
    "metadata": {"name": "kube-proxy-windows"},
    "spec": {
        "template": {
            "spec": {
                "nodeSelector": {"kubernetes.io/os": "windows"},
                "containers": [{"command": ["kube-proxy.exe", "--proxy-mode=kernelspace"]}],
            }
        }
    },
}


def config_map(text, key="config.conf", name="kube-proxy", namespace="kube-system"):
    return {"kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": {key: text}}


def dump(*documents):
    return yaml.safe_dump_all(documents)


@pytest.mark.parametrize(
    ("text", "mode", "strict"),
    [
        pytest.param(dump(config_map(HEAD + "mode: \n")), "iptables", None, id="mode-empty"),
        pytest.param(dump(config_map(HEAD + "mode: ipvs\t# fast\nipvs:\n  strictARP: on\n")), "ipvs", True, id="tabs"),
        pytest.param(dump(config_map(HEAD + "mode: ipvs\nipvs: {strictARP: y}\n")), "ipvs", True, id="y-is-true"),
        pytest.param(dump(config_map(HEAD + "mode: ipvs\nmode: iptables\n")), "iptables", None, id="last-of-two"),
        pytest.param(
            dump(config_map(HEAD + "nftables: {syncPeriod: 30s}\n")), "iptables", None, id="a-block-is-no-mode"
        ),
        pytest.param(
            dump(DAEMONSET, WINDOWS, config_map(HEAD + "mode: nftables\n")),
            "nftables",
            None,
            id="windows-does-not-count",
        ),
        pytest.param(json.dumps(config_map(HEAD + "mode: ipvs\n")), "ipvs", None, id="json"),
        pytest.param(
            dump(config_map(HEAD + "mode: ipvs\n", "kube-proxy-config.yaml", "proxy-config", "openshift-kube-proxy")),
            "ipvs",
            None,
            id="openshift-sdn",
        ),
        pytest.param("--proxy-mode=ipvs\n# why\n--ipvs-strict-arp\n", "ipvs", True, id="argument-file"),
        pytest.param("--proxy-mode ipvs\n", "ipvs", None, id="value-after-a-blank"),
        pytest.param("kube-proxy-arg: proxy-mode=ipvs\n", "ipvs", None, id="k3s-text"),
        pytest.param("kube-proxy-arg: [--proxy-mode=ipvs, ipvs-strict-arp=false]\n", "ipvs", False, id="k3s-dashes"),
        pytest.param(
            'kind: Pod\nspec: {containers: [{command: [sh, -c, "exec kube-proxy --proxy-mode=ipvs 1>>/log 2>&1"]}]}\n',
            "ipvs",
            None,
            id="shell",
        ),
        pytest.param("cluster: {proxy: {mode: nftables}}\n", "nftables", None, id="talos"),
        pytest.param(
            "cluster: {proxy: {extraArgs: {proxy-mode: ipvs, ipvs-strict-arp: true}}}\n",
            "ipvs",
            True,
            id="talos-arguments",
        ),
        pytest.param("kind: Cluster\nspec: {kubeProxy: {proxyMode: ipvs}}\n", "ipvs", None, id="kops"),
        pytest.param(
            "kind: KubeProxyConfig\nmode: ipvs\nconfig: {ipvs: {strictARP: true}}\nextraArgs: {proxy-mode: nftables}\n",
            "ipvs",
            True,
            id="talos-document",
        ),
        pytest.param("kube_proxy_mode: iptables\nkube_proxy_strict_arp: true\n", "iptables", True, id="kubespray"),
        pytest.param("spec: {network: {kubeProxy: {mode: ipvs, ipvs: {strictARP: true}}}}\n", "ipvs", True, id="k0s"),
        pytest.param("services: {kubeproxy: {extra_args: {proxy-mode: ipvs}}}\n", "ipvs", None, id="rke1"),
        pytest.param(
            dump(
                {
                    "apiVersion": "kind.x-k8s.io/v1alpha4",
                    "networking": {"kubeProxyMode": "ipvs"},
                    "kubeadmConfigPatches": [HEAD + "ipvs: {strictARP: true}\n"],
                }
            ),
            "ipvs",
            True,
            id="kind-patch-without-mode",
        ),
    ],
)
def test_mode(text, mode, strict):
    """Mode and strictARP, None when the option is not there."""
    found = read_kube_proxy(text)

    assert (found.found, found.runs, found.mode) == (True, True, mode)
    assert (found.strict_arp if found.strict_arp_is_set else None) is strict


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("disable-kube-proxy: true\n", id="k3s"),
        pytest.param("cluster: {proxy: {disabled: true}}\n", id="talos"),
        pytest.param("apiVersion: v1alpha1\nkind: KubeProxyConfig\nenabled: false\n", id="talos-document"),
        pytest.param("kind: Cluster\nspec: {kubeProxy: {enabled: false}}\n", id="kops"),
        pytest.param(
            "apiVersion: kind.x-k8s.io/v1alpha4\nkind: Cluster\nnetworking: {kubeProxyMode: none}\n", id="kind"
        ),
        pytest.param("spec: {network: {kubeProxy: {disabled: true}}}\n", id="k0s"),
        pytest.param(
            "kind: Installation\nspec: {calicoNetwork: {linuxDataplane: BPF, kubeProxyManagement: Enabled}}\n",
            id="tigera",
        ),
        pytest.param("kubeProxyReplacement: true\n", id="cilium"),
        pytest.param("kind: InitConfiguration\nskipPhases: [addon/kube-proxy]\n", id="kubeadm"),
    ],
)
def test_no_kube_proxy_on_purpose(text):
    """It is left out, and no mode is claimed."""
    found = read_kube_proxy(text)

    assert (found.found, found.runs, found.mode) == (True, False, "")


@pytest.mark.parametrize(
    ("text", "note"),
    [
        pytest.param(dump(config_map("mode: ipvs\n")), "kube_proxy.incomplete", id="no-kind"),
        pytest.param(dump(config_map(HEAD + "mode: IPVS\n")), "kube_proxy.bad_mode", id="case-of-the-mode"),
        pytest.param(dump(config_map(HEAD + "mode: userspace\n")), "kube_proxy.bad_mode", id="gone-mode"),
        pytest.param(dump(config_map(HEAD + "ipvs: {strictARP: 'true'}\n")), "kube_proxy.bad_strict_arp", id="text"),
        pytest.param(dump(config_map(HEAD + "proxyMode: ipvs\n")), "kube_proxy.unknown_keys", id="unknown-key"),
        pytest.param(dump(config_map(HEAD + "\tmode: ipvs\n")), "kube_proxy.unreadable", id="tab-at-the-beginning"),
        pytest.param(
            dump(config_map("apiVersion: v1\nkind: Config\n", "kubeconfig")), "kube_proxy.no_configuration", id="eks"
        ),
        pytest.param(dump({"data": {"config.conf": "mode: ipvs\n"}}), "kube_proxy.patch", id="merge-patch"),
        pytest.param(dump(DAEMONSET, config_map(HEAD, "other.conf")), "kube_proxy.wrong_key", id="another-key"),
        pytest.param("kind: [\n", "kube_proxy.unreadable", id="broken"),
        pytest.param("kind: Pod\n{{- if .x }}\nspec: {}\n", "kube_proxy.template", id="template"),
    ],
)
def test_note(text, note):
    """Why an edit would not count, or kube-proxy would not start."""
    assert note in read_kube_proxy(text).notes


def test_the_file_decides_beside_a_flag():
    """--proxy-mode has no effect with --config; the ConfigMap that it names decides."""
    daemon = yaml.safe_load(yaml.safe_dump(DAEMONSET))
    daemon["spec"]["template"]["spec"]["containers"][0]["command"].append("--proxy-mode=ipvs")
    found = read_objects([daemon, config_map(HEAD + "mode: nftables\nnftables: {masqueradeBit: 12}\n")])

    assert (found.mode, found.masquerade_bit, list(found.notes)) == ("nftables", 12, ["kube_proxy.flag_ignored"])
    assert found.place == "ConfigMap kube-system/kube-proxy key config.conf"


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("/etc/rancher/rke2/config.yaml", "rke2"),
        ("/etc/rancher/k3s/config.yaml", "k3s"),
    ],
)
def test_a_path_names_the_owner(path, owner):
    """The same text belongs to whoever keeps it there; RKE2 needs the modules mounted for IPVS."""
    found = read_kube_proxy("kube-proxy-arg: [proxy-mode=ipvs]\n", path)

    assert found.owner == owner
    assert path in f"{found.place} {found.lever}"
    assert ("kube_proxy.modules_mount" in found.notes) is (owner == "rke2")


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(0, 9)
    | st.sampled_from(["kube-proxy", "--proxy-mode=ipvs", "ConfigMap", ""])
)
KEYS = st.sampled_from(
    "kind apiVersion metadata name namespace spec template containers command args data config.conf kube-proxy-arg "
    "cluster proxy extraArgs kubeProxy networking kubeadmConfigPatches services kubeproxy mode ipvs network "
    "iptables masqueradeBit masqueradeAll strictARP enabled proxyMode skipPhases defaultNetwork type".split()
)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)


@given(
    TREES,
    st.sampled_from(["Network", "Cluster", "DaemonSet", "ConfigMap", "KubeProxyConfig", "KubeProxyConfiguration"]),
)
def test_any_document_is_read(tree, kind):
    """Whatever stands where, nothing is an error."""
    document = {
        "kind": kind,
        "apiVersion": "operator.openshift.io/v1",
        "metadata": tree,
        "spec": tree,
        "data": tree,
        "cluster": tree,
        **(tree if isinstance(tree, dict) else {}),
    }

    assert isinstance(read_objects([tree, document]).mode, str)
