# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports about packet filters, each answered from a small state like the reporter's.

C = projectcalico/calico, K = kubernetes/kubernetes, KS = kubernetes-sigs/kubespray.
"""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_judge import Judged, judge_packet_filters
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_known import Felix, Known
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_marks import SECURE_WORKLOAD_BITS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_rules import NATIVE

from tests.unit.plugins.plugin_utils.netfilter_samples import (
    KUBE_PROXY_FILTER,
    KUBE_PROXY_NAT,
    base_chain,
    felix_filter,
    rule,
    ruleset,
    save,
    state,
)

MASK = 0xFFFF0000
RUNNING = ("kubelet", "kube-proxy", "calico-felix")
NEW = Felix((3, 31), MASK, "nft", "Insert")
KUBE_PROXY = save(filter=KUBE_PROXY_FILTER, nat=KUBE_PROXY_NAT)
PROXY_TABLE = ruleset(base_chain("kube-proxy", "filter-input", "input", family="ip"))


def known(felix: Felix = NEW, mode: str = "iptables", backend: str = "nft", pods: tuple[str, ...] = ()) -> Known:
    """What is known of a node on which all of Kubernetes runs."""
    return Known(frozenset(RUNNING), mode, backend, felix, pods)


def judge(filters, about: Known, **reserved: int) -> dict[str, dict]:
    """Findings by id."""
    given = {name.replace("_", "-"): bits for name, bits in reserved.items()}
    return {item["id"]: item for item in judge_packet_filters(Judged(filters, about, given))}


def node(*saves: str, nft: str = "", routes: str = ""):
    """A node with these packet filters."""
    return state(*saves, nft=nft, routes=routes, running=RUNNING)


@pytest.mark.parametrize("about", [known(), known(Felix()), known(Felix((3, 25), MASK, "nft", "Append"))])
def test_a_clean_node_has_no_finding(about):
    """Felix and kube-proxy as they come."""
    filters = node(save(filter=KUBE_PROXY_FILTER + felix_filter(), nat=KUBE_PROXY_NAT))

    assert judge(filters, about) == {}


def test_a_plain_host_may_have_its_firewall():
    """Without Kubernetes a dropping policy is its owner's business."""
    filters = state(save(filter="", policies={"filter/INPUT": "DROP"}), running=())

    assert judge(filters, Known(frozenset())) == {}


def test_calico_2672_chains_are_pushed_below_felix():
    """Somebody's chain at position 1 is moved behind Felix's, which accepts for good: chainInsertMode."""
    rows = felix_filter().splitlines()
    mine = ["-A FORWARD -j MYFIREWALL", "-A MYFIREWALL -s 192.0.2.0/24 -j DROP"]
    pushed = judge(node(KUBE_PROXY, save(filter="\n".join(rows + mine))), known())
    before = judge(node(KUBE_PROXY, save(filter="\n".join(mine + rows))), known())
    appended = judge(
        node(KUBE_PROXY, save(filter="\n".join(mine + rows))), known(Felix((3, 31), MASK, "nft", "Append"))
    )

    assert pushed["packet_filter.displaced"]["severity"] == "warning"
    assert "MYFIREWALL (rule 3)" in pushed["packet_filter.displaced"]["observed"]
    assert "chainInsertMode: Append" in pushed["packet_filter.displaced"]["remedy"]
    assert "will move it ahead of MYFIREWALL" in before["packet_filter.displaced"]["observed"]
    assert appended == {}


@pytest.mark.parametrize(("action", "found"), [("ACCEPT", {"packet_filter.displaced"}), ("RETURN", set())])
def test_secure_workloads_chains_behind_felix(action, found):
    """With Return they are still asked, as the vendor's text wants it."""
    agent = "-A FORWARD -j TA_FORWARD\n-A TA_FORWARD -m set --match-set ta_x src -j DROP"
    felix = Felix((3, 31), 0x7FCF0000, "nft", "Insert")
    findings = judge(node(save(filter=felix_filter(action) + agent)), known(felix))

    assert findings.keys() == found
    assert all(item["severity"] == "blocker" for item in findings.values())


@pytest.mark.parametrize(
    ("felix", "value"),
    [
        pytest.param(Felix((3, 13), MASK, "legacy"), "NFT", id="C2322: Legacy by default beside iptables 1.8"),
        pytest.param(Felix((3, 17), MASK, "legacy"), "Auto", id="C2322: Legacy was kept where Auto is known"),
        pytest.param(Felix((3, 27), MASK), "NFT", id="C8243: what Auto came to is seen in the rules"),
    ],
)
def test_calico_2322_and_8243_felix_writes_to_the_other_backend(felix, value):
    """kube-proxy is in nft, Felix in legacy: iptablesBackend."""
    found = judge(node(KUBE_PROXY, save("legacy", filter=felix_filter())), known(felix))

    assert found.keys() == {"packet_filter.backends_differ"}
    assert "iptables-legacy, kube-proxy to iptables-nft" in found["packet_filter.backends_differ"]["observed"]
    assert f"iptablesBackend: {value} in" in found["packet_filter.backends_differ"]["remedy"]


@pytest.mark.parametrize(("version", "severity"), [((3, 26), "blocker"), ((3, 31), "warning")])
def test_calico_8025_kube_proxy_nftables_needs_calico_329(version, severity):
    """An older Felix cannot live beside it; a newer one has a mode for it."""
    filters = node(save(filter=felix_filter()), nft=PROXY_TABLE)
    found = judge(filters, known(Felix(version, MASK, "nft"), mode="nftables"))["packet_filter.backends_differ"]

    assert found["severity"] == severity
    assert ("3.29" in found["expected"]) == (severity == "blocker")


def test_calico_8025_both_in_nftables_mode():
    """The supported pair has no finding."""
    calico = base_chain("calico", "filter-INPUT", "input", family="ip")
    filters = node(nft=ruleset(base_chain("kube-proxy", "in", "input", family="ip"), calico))

    assert judge(filters, known(Felix((3, 31), MASK, NATIVE), mode="nftables")) == {}


@pytest.mark.parametrize(("version", "found"), [((3, 32), True), ((3, 33), False)])
def test_calico_13263_foreign_nft_rules_in_iptables_tables(version, found):
    """Tailscale's own nft rules in ip filter make iptables-nft-save refuse the table, and Felix restart in a loop."""
    text = "# Table `filter' is incompatible, use 'nft' tool.\n"
    header = "# Generated by iptables-nft-save v1.8.9 (nf_tables) on Mon\n"
    filters = node(header + text, nft=ruleset(base_chain("filter", "INPUT", "input", family="ip")))
    findings = judge(filters, known(Felix(version, MASK, NATIVE), mode=""))

    assert ("packet_filter.incompatible_table" in findings) == found
    assert not found or "ip filter" in findings["packet_filter.incompatible_table"]["observed"]


def test_kubernetes_109286_and_gardener_4599_ipvs_leftovers():
    """kube-proxy answers iptables, IPVS' chains are still in the filter table."""
    left = "-A KUBE-NODE-PORT -m set --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j ACCEPT"
    found = judge(node(save(filter=KUBE_PROXY_FILTER + left, nat=KUBE_PROXY_NAT)), known(Felix()))

    assert found.keys() == {"packet_filter.stale"}
    assert "KUBE-NODE-PORT" in found["packet_filter.stale"]["observed"]
    assert "kube-proxy --cleanup" in found["packet_filter.stale"]["remedy"]


@pytest.mark.parametrize(
    ("row", "is_found"),
    [
        pytest.param("-A KUBE-SVC-AAAA -d 10.96.0.1/32 -p tcp {} -j KUBE-MARK-MASQ", True, id="masqueradeAll"),
        pytest.param("-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp {} -j KUBE-MARK-MASQ", True, id="before 1.22"),
        pytest.param(
            "-A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-MARK-MASQ",
            True,
            id="ipvs masqueradeAll",
        ),
        pytest.param(
            "-A KUBE-SVC-AAAA ! -s 10.244.0.0/16 -d 10.96.0.1/32 -p tcp {} -j KUBE-MARK-MASQ", False, id="from outside"
        ),
        pytest.param("-A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP src,dst -j KUBE-MARK-MASQ", False, id="ipvs"),
        pytest.param("-A KUBE-SEP-AAAA -s 10.244.0.7/32 -j KUBE-MARK-MASQ", False, id="to itself"),
    ],
)
def test_kubespray_1012_masquerade_all_hides_pods(row, is_found):
    """Policy sees the node's address instead of the pod's."""
    comment = '-m comment --comment "default/kubernetes:https cluster IP"'
    found = judge(node(save(nat=row.format(comment))), Known())

    assert ("packet_filter.masquerade_all" in found) == is_found
    assert not is_found or "masqueradeAll" in found["packet_filter.masquerade_all"]["remedy"]


@pytest.mark.parametrize("is_found", [True, False])
def test_kubespray_1012_in_nftables_mode(is_found):
    """The same in kube-proxy's own table."""
    to = {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}}, "right": "10.96.0.1"}}
    outside = {
        "match": {"op": "!=", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "10.244.0.0/16"}
    }
    jump = {"jump": {"target": "mark-for-masquerade"}}
    expr = [to, jump] if is_found else [to, outside, jump]
    text = ruleset(rule("kube-proxy", "service-2QRHZV4L-default/kubernetes", *expr, family="ip"))

    assert ("packet_filter.masquerade_all" in judge(node(nft=text), Known())) == is_found


def test_amazon_vpc_cni_340_routing_rule_without_a_mask():
    """fwmark 0x80 compares all 32 bits: Felix's make it miss. The mask mends it, no mask of Felix's can."""
    filters = node(save(filter=KUBE_PROXY_FILTER + felix_filter()), routes="1024:\tfrom all fwmark 0x80 lookup main")
    found = judge(filters, known())["packet_filter.marks_collide"]
    masked = node(
        save(filter=KUBE_PROXY_FILTER + felix_filter()), routes="1024:\tfrom all fwmark 0x80/0x80 lookup main"
    )

    assert "ip rule 1024: from all fwmark 0x80 lookup main" in found["observed"]
    assert "fwmark 0x80/0x80" in found["remedy"]
    assert judge(masked, known()) == {}


def test_tailscale_591_overlaps_bits_18_and_19():
    """Its byte lies in Felix's mask: the mask moves out of it."""
    ts = "-A INPUT -j ts-input\n-A ts-input -i tailscale0 -j MARK --set-xmark 0x40000/0xff0000"
    filters = state(
        save(filter=felix_filter(more=0x1A0000) + ts),
        routes="5210:\tfrom all fwmark 0x80000/0xff0000 lookup main",
        running=(*RUNNING, "tailscale"),
    )
    found = judge(filters, known())["packet_filter.marks_collide"]

    assert "calico-felix and tailscale both use mark bits 0x1f0000" in found["observed"]
    assert "0x40000/0xff0000" in found["observed"]
    assert found["remedy"] == "set iptablesMarkMask: 2130706432 (0x7f000000) in the FelixConfiguration"


@pytest.mark.parametrize("pods", [(), ("10.1.0.0/16",)])
def test_microk8s_2345_append_behind_a_blanket_accept(pods):
    """With Append the distribution's accept for all pods stands ahead of policy; with Insert it stands behind."""
    blanket = '-A FORWARD -s 10.1.0.0/16 -m comment --comment "generated for MicroK8s pods" -j ACCEPT\n'
    append = judge(node(save(filter=blanket + felix_filter())), known(Felix((3, 25), MASK, "nft", "Append"), pods=pods))
    insert = judge(node(save(filter=felix_filter() + blanket)), known(pods=pods))

    assert append["packet_filter.policy_bypassed"]["severity"] == "blocker"
    assert "10.1.0.0/16" in append["packet_filter.policy_bypassed"]["observed"]
    assert insert == {}


@pytest.mark.parametrize(
    ("felix", "expected"),
    [
        pytest.param(Felix((3, 31), MASK, "nft"), ["0x100000"], id="3.31"),
        pytest.param(Felix((3, 25), MASK, "nft"), [], id="3.25 does not use them"),
        pytest.param(Felix(None, MASK, "nft"), ["0x300000"], id="unknown version: the whole mask"),
        pytest.param(Felix((3, 31), 0x7FCF0000, "nft"), [], id="a mask that keeps clear"),
    ],
)
def test_bits_20_and_21_before_the_agent_is_there(felix, expected):
    """What Secure Workload will use is judged before its first rule."""
    filters = node(save(filter=felix_filter()))
    found = judge(filters, known(felix), secure_workload=SECURE_WORKLOAD_BITS)

    assert [item["observed"].split(":")[0].split()[-1] for item in found.values()] == expected
    for item in found.values():
        assert item["severity"] == "blocker"
        assert "2144272384 (0x7fcf0000)" in item["remedy"]


def test_ebpf_has_no_mask_that_mends_it():
    """The bits of the eBPF dataplane are fixed."""
    filters = node(save(filter=felix_filter()))
    about = known(Felix((3, 31), MASK, "nft", bpf=True))
    found = judge(filters, about, secure_workload=SECURE_WORKLOAD_BITS)["packet_filter.marks_collide"]

    assert "0x300000" in found["observed"]
    assert "no mask of Felix's can mend it" in found["remedy"]


def test_a_second_filter_on_a_node():
    """nftables.service with policy drop drops what Felix accepted; each reason is told once."""
    chains = [base_chain("filter", name, name, policy="drop") for name in ("input", "forward")]
    filters = state(save(filter=felix_filter()), nft=ruleset(*chains), running=(*RUNNING, "nftables.service"))
    found = judge(filters, known())["packet_filter.second_filter"]

    assert "inet filter input: filter hook input priority filter policy drop (nftables.service)" in found["observed"]
    assert found["severity"] == "warning"
