# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports about a cluster's network, each answered by all the checks of a node or of a cluster at once.

Of rules alone: test_netfilter_reports.py (calico 2672, 8243, 13263, kubernetes 109286, gardener 4599,
amazon-vpc-cni-k8s 340, tailscale 591, microk8s 2345); of what configuration means: test_calico_reports.py.
"""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.packet_filters import packed
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_requirements import evaluate_cluster
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_fixes import wishes_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_observations import Node, Wanted
from ansible_collections.portcullis.fleet.plugins.plugin_utils.requirements import evaluate_node

from .kernel_problems import calico
from .netfilter_samples import KUBE_PROXY_FILTER, KUBE_PROXY_NAT, felix_filter, save
from .network_samples import calico_node, felix, network, openshift, pool, proxy
from .probes import BUSYBOX, probe_with
from .settings_problems import manager

LABEL_SYNC = "security.openshift.io/scc.podSecurityLabelSync"
RUNNING = ["kubelet", "kube-proxy", "calico-felix"]


def on_node(*, engine: str = "native", felix_here=None, **changes: object) -> dict[str, dict]:
    """Findings by id of a node that is clean but for these changes of its probe."""
    wanted = Wanted(engine=engine, registry_config_path="/etc/containerd/certs.d", images=(BUSYBOX,))
    found = evaluate_node(
        Node(name="w1", in_cluster=True, probe=probe_with(**changes), wanted=wanted, calico=felix_here)
    )
    return {item["id"]: item for item in found}


def in_cluster(
    *calico_objects: dict,
    engine: str = "native",
    kube_proxy: list[dict] | None = None,
    live: str = "iptables",
    **labels,
) -> dict[str, dict]:
    """Findings by id of a cluster of one node with these objects, and with these labels of the agent's namespace."""
    labels = {key.replace("__", "/"): value for key, value in labels.items()}
    read = {
        "access": [{"verb": "list", "group": "", "resource": "nodes", "allowed": True}],
        "admission": {"admitted": True, "message": ""},
        "nodes": [{"name": "w1", "labels": {"kubernetes.io/os": "linux"}, "addresses": [], "machine_id": ""}],
        "namespace": {"name": "agent", "exists": True, "terminating": False, "labels": labels},
        "kubernetes": "v1.34.4",
        "network": network(*calico_objects, kube_proxy=kube_proxy),
    }
    record = {"node_name": "", "address": "", "hostname": "", "machine_id": "", "read": True, "proxy_mode": live}
    return {item["id"]: item for item in evaluate_cluster(read, {"w1": record}, engine)}


def rules(*saves: str, routes: str = "", also: str = "") -> dict:
    """The probe's packet filters, with routing rules and a program that runs beside Kubernetes'."""
    programs = [*RUNNING, also] if also else RUNNING
    texts = {"saves": list(map(packed, saves)), "nft_json": [], "ip_rules": [packed(routes)]}
    return {**texts, "programs": programs, "units": [], "unseen": ""}


def test_calico_2672_the_object_says_append_and_the_environment_wins():
    """Secure Workload's demand is judged on what is in effect, and the remedy begins where that is set."""
    objects = (calico_node("v3.31.0", FELIX_CHAININSERTMODE="insert"), felix(chainInsertMode="Append"))
    found = in_cluster(*objects, engine="secure_workload")
    mended = in_cluster(calico_node("v3.31.0"), felix(chainInsertMode="Append"), engine="secure_workload")

    assert "FELIX_CHAININSERTMODE" in found["felix.overridden"]["remedy"]
    assert "over Append" in found["felix.chain_insert_mode"]["observed"]
    assert "felix.chain_insert_mode" not in mended
    assert "felix.overridden" not in mended


@pytest.mark.parametrize(
    ("version", "spec", "value"),
    [
        pytest.param("v3.13.0", {}, "NFT", id="2322: Legacy is the default and Auto no option yet"),
        pytest.param("v3.25.0", {"iptablesBackend": "Legacy"}, "Auto", id="2322: Legacy was set"),
        pytest.param("v3.27.0", {}, "NFT", id="8243: Auto came to the wrong one"),
    ],
)
def test_calico_2322_and_8243_two_backends_on_one_node(version, spec, value):
    """kube-proxy writes by iptables-nft, Felix by iptables-legacy: neither sees the other's marks."""
    apart = (save(filter=KUBE_PROXY_FILTER, nat=KUBE_PROXY_NAT), save("legacy", filter=felix_filter()))
    together = save(filter=KUBE_PROXY_FILTER + felix_filter(), nat=KUBE_PROXY_NAT)
    found = on_node(felix_here=calico(version, **spec), packet_filter_rules=rules(*apart))
    mended = on_node(felix_here=calico(version, iptablesBackend=value), packet_filter_rules=rules(together))

    assert f"iptablesBackend: {value} in" in found["packet_filter.backends_differ"]["remedy"]
    assert mended == {}


@pytest.mark.parametrize(
    ("version", "spec", "mode", "finding_id"),
    [
        pytest.param("v3.28.0", {}, "nftables", "calico.nftables_version", id="too old"),
        pytest.param("v3.31.0", {}, "nftables", "calico.nftables_mode", id="not told"),
        pytest.param("v3.31.0", {"nftablesMode": "Enabled"}, "nftables", None, id="mended"),
        pytest.param("v3.28.0", {}, "iptables", None, id="mended by kube-proxy"),
    ],
)
def test_calico_8025_kube_proxy_in_nftables_mode(version, spec, mode, finding_id):
    """Calico can do it from 3.29 on, where it is told so."""
    found = in_cluster(calico_node(version), felix(**spec), kube_proxy=proxy(mode), live=mode)
    conflicts = {name for name in found if name.startswith("calico.nftables")}

    assert conflicts == ({finding_id} if finding_id else set())


@pytest.mark.parametrize(
    ("cidr", "is_found"), [("10.96.0.0/12", True), ("10.96.128.0/17", True), ("10.244.0.0/16", False)]
)
def test_calico_1401_pool_and_services_share_addresses(cidr, is_found):
    """The services of the sample are 10.96.0.0/16."""
    found = in_cluster(calico_node(), pool("default", cidr))

    assert ("calico.pool_overlaps" in found) == is_found
    assert not is_found or "has addresses of services: 10.96.0.0/16" in found["calico.pool_overlaps"]["observed"]
    assert not is_found or "make a pool elsewhere" in found["calico.pool_overlaps"]["remedy"]


def test_kubernetes_102314_the_new_mode_is_written_but_not_taken():
    """The mode was changed without a restart: rules of the old one stay until the node is drained and rebooted."""
    found = in_cluster(calico_node(), kube_proxy=proxy("iptables"), live="ipvs")["kube_proxy.mode_differs"]

    assert "live mode is ipvs" in found["observed"]
    assert "drain the node" in found["remedy"]
    assert "reboot it, since rules of the old mode stay" in found["remedy"]
    assert "kube_proxy.mode_differs" not in in_cluster(calico_node(), kube_proxy=proxy("iptables"))


def test_rke2_786_network_manager_takes_the_devices_of_canal():
    """A drop-in that names cali* keeps NetworkManager off; without one the finding is mended by --tags fix."""
    found = on_node(felix_here=calico(), settings__network_manager=manager())
    mended = on_node(
        felix_here=calico(), settings__network_manager=manager("interface-name:cali*;interface-name:tunl*")
    )

    assert found.keys() == {"node.network_manager"}
    assert "cali*" in found["node.network_manager"]["observed"]
    assert wishes_of(list(found.values()), "w1") == [{"finding": "node.network_manager", "fix": "unmanaged"}]
    assert mended == {}


def test_sealos_559_loose_reverse_path_filtering_stops_felix():
    """all.rp_filter 2 ends a Felix of 3.11 and before; 1, as --tags fix sets it, does not."""
    found = on_node(felix_here=calico("v3.8.2"), kernel_features__rp_filter=2)

    assert "rp_filter is 2" in found["kernel.rp_filter"]["observed"]
    assert wishes_of(list(found.values()), "w1")[0]["sysctls"] == {"net.ipv4.conf.all.rp_filter": "1"}
    assert "kernel.rp_filter" not in on_node(felix_here=calico("v3.8.2"), kernel_features__rp_filter=1)


def test_rke2_10469_and_k3s_7542_firewalld_beside_the_cluster():
    """Its reload wipes the rules of kube-proxy and Felix: it is off on a node, as --tags fix makes it."""
    evidence = "firewalld.service is active"
    found = on_node(packet_filters=[{"manager": "firewalld", "evidence": evidence}])

    assert found.keys() == {"packet_filter.other_manager"}
    assert found["packet_filter.other_manager"]["observed"] == evidence
    assert found["packet_filter.other_manager"]["severity"] == "blocker"
    assert wishes_of(list(found.values()), "w1") == [{"finding": "packet_filter.other_manager", "fix": "managers"}]


@pytest.mark.parametrize(
    ("value", "kube_proxy", "is_found"),
    [
        pytest.param("true", [openshift("iptables")], True, id="told to"),
        pytest.param("false", [openshift("iptables")], False, id="mended"),
        pytest.param(None, [openshift("iptables")], False, id="unset keeps its own labels only"),
        pytest.param("true", None, False, id="no OpenShift, nobody reads it"),
    ],
)
def test_shipyard_1024_the_label_syncer_resets_enforce(value, kube_proxy, is_found):
    """The labels that a run sets do not stay where OpenShift is told to keep them."""
    found = in_cluster(kube_proxy=kube_proxy, **({LABEL_SYNC.replace("/", "__"): value} if value else {}))

    assert ("cluster.label_syncer" in found) == is_found
    assert not is_found or f"oc label namespace agent {LABEL_SYNC}=false" in found["cluster.label_syncer"]["remedy"]


TAILSCALE = "-A INPUT -j ts-input\n-A ts-input -i tailscale0 -j MARK --set-xmark 0x40000/0xff0000"
TAILSCALE_ROUTE = "5210:\tfrom all fwmark 0x80000/0xff0000 lookup main"
BLANKET = '-A FORWARD -s 10.1.0.0/16 -m comment --comment "generated for MicroK8s pods" -j ACCEPT\n'
INCOMPATIBLE = (
    "# Generated by iptables-nft-save v1.8.9 (nf_tables) on Mon\n# Table `filter' is incompatible, use 'nft' tool.\n"
)
IPVS_LEFT = "-A KUBE-NODE-PORT -m set --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j ACCEPT"
MASQUERADE = (
    '-A KUBE-SVC-AAAA {}-d 10.96.0.1/32 -m comment --comment "default/kubernetes:https cluster IP" -j KUBE-MARK-MASQ'
)
PROXY_AND_FELIX = KUBE_PROXY_FILTER + felix_filter()


@pytest.mark.parametrize(
    ("finding_id", "remedy", "broken", "mended"),
    [
        pytest.param(
            "packet_filter.incompatible_table",
            "use iptables or a table of its own",
            {"filters": rules(INCOMPATIBLE), "felix": calico("v3.32.1")},
            {"filters": rules(save(filter=PROXY_AND_FELIX)), "felix": calico("v3.32.1")},
            id="calico 13263",
        ),
        pytest.param(
            "packet_filter.stale",
            "kube-proxy --cleanup",
            {"filters": rules(save(filter=PROXY_AND_FELIX + IPVS_LEFT, nat=KUBE_PROXY_NAT))},
            {"filters": rules(save(filter=PROXY_AND_FELIX, nat=KUBE_PROXY_NAT))},
            id="kubernetes 109286, 102314, gardener 4599",
        ),
        pytest.param(
            "packet_filter.masquerade_all",
            "masqueradeAll",
            {"filters": rules(save(filter=PROXY_AND_FELIX, nat=KUBE_PROXY_NAT + MASQUERADE.format("")))},
            {
                "filters": rules(
                    save(filter=PROXY_AND_FELIX, nat=KUBE_PROXY_NAT + MASQUERADE.format("! -s 10.1.0.0/16 "))
                )
            },
            id="kubespray 1012",
        ),
        pytest.param(
            "packet_filter.marks_collide",
            "fwmark 0x80/0x80",
            {"filters": rules(save(filter=PROXY_AND_FELIX), routes="1024:\tfrom all fwmark 0x80 lookup main")},
            {"filters": rules(save(filter=PROXY_AND_FELIX), routes="1024:\tfrom all fwmark 0x80/0x80 lookup main")},
            id="amazon-vpc-cni-k8s 340",
        ),
        pytest.param(
            "packet_filter.marks_collide",
            "iptablesMarkMask: 2130706432 (0x7f000000)",
            {"filters": rules(save(filter=felix_filter() + TAILSCALE), routes=TAILSCALE_ROUTE, also="tailscaled")},
            {
                "filters": rules(
                    save(filter=felix_filter(accept=0x1000000) + TAILSCALE), routes=TAILSCALE_ROUTE, also="tailscaled"
                ),
                "felix": calico("v3.27.0", iptablesMarkMask=0x7F000000),
            },
            id="tailscale 591",
        ),
        pytest.param(
            "packet_filter.policy_bypassed",
            "chainInsertMode: Insert",
            {"filters": rules(save(filter=BLANKET + felix_filter())), "felix": calico(chainInsertMode="Append")},
            {"filters": rules(save(filter=felix_filter() + BLANKET)), "felix": calico(chainInsertMode="Insert")},
            id="microk8s 2345",
        ),
    ],
)
def test_reports_of_rules_on_a_node(finding_id, remedy, broken, mended):
    """What test_netfilter_reports.py looks at closely, told by a whole node, and by none that is mended."""
    found, after = (
        on_node(felix_here=item.get("felix", calico()), packet_filter_rules=item["filters"])
        for item in (broken, mended)
    )

    assert found.keys() == {finding_id}
    assert remedy in found[finding_id]["remedy"]
    assert after == {}
