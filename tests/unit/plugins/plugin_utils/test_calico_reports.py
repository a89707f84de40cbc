# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public bug reports about Calico and kube-proxy that configuration alone answers, one test each."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_install import read_install
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_kube_proxy import proxy_conflicts
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_pools import overlaps
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_effective import EnvValue, effective
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy import read_kube_proxy


def felix(**spec):
    return [{"metadata": {"name": "default"}, "spec": spec}]


def test_calico_2672_chains_are_pushed_below_calicos():
    """Insert is in effect though the object says Append: the environment is named as what overrides it."""
    environment = {"FELIX_CHAININSERTMODE": EnvValue("insert", "DaemonSet calico-node")}
    found = effective((3, 31), environment=environment, objects=felix(chainInsertMode="Append"))

    assert found.value("chainInsertMode") == "Insert"
    assert [item.name for item in found.overrides()] == ["chainInsertMode"]
    assert effective((3, 31), objects=felix(chainInsertMode="Append")).value("chainInsertMode") == "Append"


@pytest.mark.parametrize(("version", "backend"), [((3, 13), "Legacy"), ((3, 16), "Legacy"), ((3, 17), "Auto")])
def test_calico_2322_legacy_is_the_default_of_old_versions(version, backend):
    """Where iptables is 1.8 or newer, Legacy needs to be changed; Auto came with 3.17."""
    assert effective(version).value("iptablesBackend") == backend


@pytest.mark.parametrize(
    ("version", "spec", "conflict"),
    [
        ((3, 28), {}, "calico.nftables_version"),
        ((3, 29), {}, "calico.nftables_mode"),
        ((3, 29), {"nftablesMode": "Enabled"}, None),
        ((3, 32), {}, None),
    ],
)
def test_calico_8025_kube_proxy_nftables_needs_felix_nftables(version, spec, conflict):
    """kube-proxy in nftables mode needs 3.29 and Felix in that mode."""
    found = proxy_conflicts(version, effective(version, objects=felix(**spec)), "nftables")

    assert list(found) == ([conflict] if conflict else [])


@pytest.mark.parametrize(("runs", "conflicts"), [(True, ["calico.bpf_kube_proxy"]), (False, [])])
def test_ebpf_and_kube_proxy(runs, conflicts):
    """eBPF removes the rules of a kube-proxy that still runs."""
    assert (
        list(proxy_conflicts((3, 31), effective((3, 31), objects=felix(bpfEnabled=True)), "iptables", runs=runs))
        == conflicts
    )


@pytest.mark.parametrize(("version", "fatal"), [((3, 24), True), ((3, 25), False)])
def test_calico_6772_auto_in_the_object_crashes(version, fatal):
    """iptablesBackend auto in the object, up to 3.24; in the environment it is harmless."""
    environment = {"FELIX_IPTABLESBACKEND": EnvValue("auto", "")}

    assert bool(effective(version, objects=felix(iptablesBackend="auto")).fatal) is fatal
    assert effective(version, environment=environment).fatal == ()


def test_calico_1401_pool_overlaps_the_service_range():
    """Calico never compares them."""
    pool = "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: p}\nspec: {cidr: 10.96.0.0/16}\n"

    assert overlaps(read_install(pool).pools, {"service range": ["10.96.0.0/12"]})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("kube-proxy-arg:\n- masquerade-all=true\n", id="k3s"),
        pytest.param(
            "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ipvs\n"
            "iptables: {masqueradeAll: true}\n",
            id="document",
        ),
        pytest.param(
            "kind: Pod\nspec: {containers: [{command: [/hyperkube, proxy, --masquerade-all]}]}\n", id="static-pod"
        ),
    ],
)
def test_kubespray_1012_masquerade_all_hides_pod_addresses(text):
    """The option is reported wherever it is kept."""
    assert "kube_proxy.masquerade_all" in read_kube_proxy(text).notes


def test_tailscale_591_a_mask_for_felix_keeps_off_its_bits():
    """0xff00ff00 leaves 0xff0000 free; a mask in the environment counts though the object says otherwise."""
    environment = {"FELIX_IPTABLESMARKMASK": EnvValue("0xff00ff00", "")}
    found = effective((3, 29), environment=environment, objects=felix(iptablesMarkMask=0x7FFF0000))

    assert found.value("iptablesMarkMask") & 0xFF0000 == 0


def test_openshift_ipvs_is_refused():
    """IPVS is not supported on OpenShift."""
    text = (
        "apiVersion: operator.openshift.io/v1\nkind: Network\nmetadata: {name: cluster}\nspec:\n"
        "  defaultNetwork: {type: OpenShiftSDN}\n  kubeProxyConfig: {proxyArguments: {proxy-mode: [ipvs]}}\n"
    )
    found = read_kube_proxy(text)

    assert (found.mode, found.owner) == ("ipvs", "openshift")
    assert "kube_proxy.openshift_ipvs" in found.notes
