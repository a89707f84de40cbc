# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Calico was installed, from manifests of each kind."""

from __future__ import annotations

import pytest
import yaml
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_install import read_install
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_pools import overlaps
from hypothesis import given
from hypothesis import strategies as st

DAEMONSET = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: calico-node, namespace: kube-system}
spec:
  template:
    spec:
      containers:
      - name: other
        env: [{name: FELIX_CHAININSERTMODE, value: Bogus}]
      - name: calico-node
        image: registry.example:5000/calico/node:v3.25.1
        envFrom:
        - configMapRef: {name: felix-settings}
        - secretRef: {name: felix-secrets, optional: true}
        env:
        - {name: BASE, value: "6"}
        # - {name: FELIX_IPTABLESMARKMASK, value: "0xff000000"}
        - {name: FELIX_IPTABLESREFRESHINTERVAL, value: "$(BASE)0"}
        - {name: FELIX_LOGPREFIX, valueFrom: {configMapKeyRef: {name: felix-settings, key: prefix}}}
        - {name: FELIX_HEALTHHOST, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
        - {name: FELIX_IPV6SUPPORT, value: false}
        volumeMounts: [{name: etc, mountPath: /etc/calico}]
      volumes: [{name: etc, hostPath: {path: /etc/calico}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: felix-settings}
data: {FELIX_CHAININSERTMODE: Append, FELIX_IPTABLESREFRESHINTERVAL: "7", prefix: ours}
"""


def test_the_environment_of_calico_node():
    """envFrom, then env, which wins; references followed; comments and other containers do not count."""
    install = read_install(DAEMONSET)
    config = install.effective()

    assert (install.method, install.version, install.namespace) == ("manifest", (3, 25), "kube-system")
    assert install.unread == ("Secret felix-secrets",)
    assert install.host_file
    assert config.value("chainInsertMode") == "Append"
    assert config.settings["chainInsertMode"].origin == "DaemonSet calico-node, envFrom ConfigMap felix-settings"
    assert config.value("iptablesRefreshInterval") == 60
    assert config.value("logPrefix") == "ours"
    assert config.value("ipv6Support") is False
    assert (config.value("healthHost"), config.settings["healthHost"].source) == (None, "environment")
    assert config.settings["iptablesMarkMask"].source == "built-in"
    assert config.fatal == ()


@pytest.mark.parametrize(
    ("text", "method", "distribution", "settings"),
    [
        pytest.param(
            "apiVersion: operator.tigera.io/v1\nkind: Installation\nmetadata: {name: default}\n"
            "spec: {calicoNetwork: {linuxDataplane: BPF}}\n",
            "operator",
            "",
            {"bpfEnabled": True},
            id="operator-bpf",
        ),
        pytest.param(
            "apiVersion: operator.tigera.io/v1\nkind: Installation\nmetadata: {name: default}\n"
            "spec: {calicoNetwork: {linuxDataplane: Nftables}}\n---\napiVersion: projectcalico.org/v3\n"
            "kind: FelixConfiguration\nmetadata: {name: default}\nspec: {nftablesMode: Disabled, logPrefix: x}\n",
            "operator",
            "",
            {"nftablesMode": "Enabled", "logPrefix": "x"},
            id="operator-writes-its-field-back",
        ),
        pytest.param(
            "apiVersion: helm.cattle.io/v1\nkind: HelmChartConfig\nmetadata: {name: rke2-canal}\n"
            "spec:\n  valuesContent: |-\n    calico:\n      felixIptablesRefreshInterval: 0\n"
            '      felixIptablesMarkMask: "0x7fcf0000"\n',
            "values",
            "rke2",
            {"iptablesRefreshInterval": 0, "iptablesMarkMask": 0x7FCF0000},
            id="rke2-canal-values",
        ),
        pytest.param(
            "calico_node_extra_envs:\n  FELIX_CHAININSERTMODE: append\n# kubespray\n",
            "values",
            "kubespray",
            {"chainInsertMode": "Append"},
            id="kubespray-inventory",
        ),
        pytest.param(
            "      - name: calico-node\n        image: calico/node:{{ .Values.tag }}\n        env:\n"
            "        - name: FELIX_CHAININSERTMODE\n          value: Append\n{{- if .Values.x }}\n"
            '        - name: FELIX_LOGPREFIX\n          value: "{{ .Values.x }}"\n{{- end }}\n',
            "manifest",
            "",
            {"chainInsertMode": "Append", "logPrefix": None},
            id="helm-template",
        ),
        pytest.param(
            "calico_felix_chaininsertmode: Append\ncalico_iptables_backend: NFT\nkubespray_version: 2\n",
            "values",
            "kubespray",
            {"chainInsertMode": "Append", "iptablesBackend": "NFT"},
            id="kubespray-variables",
        ),
        pytest.param(
            "- name: FELIX_CHAININSERTMODE\n  value: Append\n{% if x %}\n"
            "- name: FELIX_LOGPREFIX\n  value: ours\n{% endif %}\n",
            "manifest",
            "",
            {"chainInsertMode": "Append", "logPrefix": None},
            id="jinja-condition",
        ),
        pytest.param("a: {{ b }}\n{% if c %}\n", "", "", {}, id="template-of-something-else"),
        pytest.param("just: text\n", "", "", {}, id="nothing-of-calico"),
        pytest.param("a: [1\n", "", "", {}, id="broken"),
    ],
)
def test_kinds_of_installation(text, method, distribution, settings):
    """Operator, chart values, an inventory, a template, and texts that say nothing."""
    install = read_install(text)
    config = install.effective(version=(3, 31))

    assert (install.method, install.distribution) == (method, distribution)
    assert {name: config.value(name) for name in settings} == settings
    assert install.lever("chainInsertMode")


def test_pools():
    """From objects, the Installation and the environment; overlaps with other ranges, and what cannot be read."""
    text = (
        "apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata: {name: p}\nspec: {cidr: 10.96.4.0/24}\n---\n"
        "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: six}\n"
        "spec: {cidr: 'fd00::/120', blockSize: 122}\n---\napiVersion: projectcalico.org/v3\nkind: IPPool\n"
        "metadata: {name: bad}\nspec: {cidr: 10.0.0/8}\n"
    )
    install = read_install(text)
    found = overlaps(install.pools, {"service range": ["10.96.0.0/12", "fd01::/112"], "nodes": ["10.0.0.0/16"]})

    assert [(pool.name, pool.blocks) for pool in install.pools] == [("p", 4), ("six", 4)]
    assert [(pool.name, what) for pool, what, _ in found] == [("p", "service range")]
    assert "calico.pool_unreadable" in install.notes


LEAVES = st.none() | st.booleans() | st.integers(0, 9) | st.sampled_from(["FELIX_X", "calico-node", "DaemonSet", "1"])
KEYS = st.sampled_from(
    "kind apiVersion metadata name spec template containers env envFrom configMapRef valueFrom data installation "
    "annotations volumes hostPath volumeMounts mountPath calicoNetwork ipPools cidr items image cni type "
    "linuxDataplane iptablesRefreshInterval iptablesMarkMask failsafeInboundHostPorts min max net port nodeSelector "
    "valuesContent defaultFelixConfiguration configMapKeyRef key prefix ownerReferences".split()
)
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)


@given(TREES)
def test_any_document_is_read(tree):
    """Whatever stands where, nothing is an error."""
    kinds = ("FelixConfiguration", "IPPool", "Installation", "ConfigMap", "DaemonSet")
    documents = [tree] + [
        {"kind": kind, "apiVersion": "projectcalico.org/v3", "spec": tree, "metadata": tree} for kind in kinds
    ]

    assert read_install(yaml.safe_dump_all(documents)).effective().settings
