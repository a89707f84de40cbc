# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_known import Felix, Known
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_stale import find_stale

from tests.unit.plugins.plugin_utils.netfilter_samples import (
    KUBE_PROXY_FILTER,
    KUBE_PROXY_NAT,
    base_chain,
    felix_filter,
    ruleset,
    save,
    state,
)

SERVICE = (
    "\n-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-AAAA\n-A KUBE-SVC-AAAA -j KUBE-SEP-BBBB\n-A KUBE-SEP-BBBB -j DNAT"
)
NFT = save(filter=KUBE_PROXY_FILTER, nat=KUBE_PROXY_NAT + SERVICE)
LEGACY = save("legacy", filter=KUBE_PROXY_FILTER, nat=KUBE_PROXY_NAT + SERVICE)
NATIVE = ruleset(base_chain("kube-proxy", "filter-input", "input", family="ip"))
IPVS = save(nat="-A KUBE-SERVICES -j KUBE-LOAD-BALANCER\n-A KUBE-LOAD-BALANCER -j RETURN")
WEAVE = save(filter="-A FORWARD -o weave -j WEAVE-NPC\n-A WEAVE-NPC -j RETURN")
FELIX = save(filter=felix_filter())
FELIX_LEGACY = save("legacy", filter=felix_filter())
FELIX_NATIVE = ruleset(base_chain("calico", "filter-INPUT", "input", family="ip"))
RUNNING = frozenset({"kubelet", "kube-proxy", "calico-felix"})


@pytest.mark.parametrize(
    ("saves", "nft", "known", "expected"),
    [
        pytest.param([NFT], "", Known(RUNNING, "iptables", "nft"), [], id="one copy"),
        pytest.param([LEGACY], "", Known(RUNNING, "iptables", "nft"), [], id="one copy, the command was changed since"),
        pytest.param(
            [NFT, LEGACY],
            "",
            Known(RUNNING, "iptables", "legacy"),
            [("kube-proxy", "nft", True)],
            id="two, legacy live",
        ),
        pytest.param(
            [NFT, LEGACY],
            "",
            Known(RUNNING, "iptables"),
            [("kube-proxy", "legacy", False), ("kube-proxy", "nft", False)],
            id="two, nothing tells",
        ),
        pytest.param([NFT], NATIVE, Known(RUNNING, "nftables"), [("kube-proxy", "nft", True)], id="iptables left over"),
        pytest.param(
            [NFT], NATIVE, Known(RUNNING, "iptables"), [("kube-proxy", "native", True)], id="nftables left over"
        ),
        pytest.param([], NATIVE, Known(RUNNING, "nftables"), [], id="nftables"),
        pytest.param([IPVS], "", Known(RUNNING, "iptables"), [("kube-proxy", "nft", True)], id="ipvs left over"),
        pytest.param([IPVS], "", Known(RUNNING, "ipvs"), [], id="ipvs"),
        pytest.param([NFT], "", Known(RUNNING, "ipvs"), [("kube-proxy", "nft", True)], id="iptables before ipvs"),
        pytest.param([NFT], "", Known(frozenset()), [("kube-proxy", "nft", True)], id="kube-proxy is gone"),
        pytest.param([NFT], "", Known(), [], id="not known whether it runs"),
        pytest.param([NFT], "", Known(frozenset(), "iptables"), [], id="k3s: inside another process, and it answers"),
        pytest.param([FELIX], "", Known(RUNNING), [], id="felix"),
        pytest.param([WEAVE], "", Known(RUNNING), [("weave", "nft", True)], id="a network plugin of before"),
        pytest.param([WEAVE], "", Known(RUNNING | {"weave"}), [], id="a network plugin at work"),
        pytest.param([FELIX], "", Known(frozenset()), [("calico-felix", "nft", True)], id="felix is gone"),
        pytest.param(
            [FELIX, FELIX_LEGACY],
            "",
            Known(RUNNING, felix=Felix(backend="legacy")),
            [("calico-felix", "nft", True)],
            id="felix changed its backend",
        ),
        pytest.param(
            [FELIX, FELIX_LEGACY],
            "",
            Known(RUNNING),
            [("calico-felix", "legacy", False), ("calico-felix", "nft", False)],
            id="felix, nothing tells",
        ),
        pytest.param(
            [FELIX],
            FELIX_NATIVE,
            Known(RUNNING, felix=Felix(backend="nft")),
            [("calico-felix", "native", True)],
            id="felix went back to iptables",
        ),
        pytest.param(
            [save("nft", "ip6", filter="-A INPUT -j KUBE-FIREWALL\n-A KUBE-FIREWALL -j RETURN")],
            NATIVE,
            Known(RUNNING, "nftables"),
            [],
            id="KUBE-FIREWALL is kubelet's too",
        ),
    ],
)
def test_what_is_left_over(saves, nft, known, expected):
    """Whose rules nobody keeps, and whether that is certain."""
    found = find_stale(state(*saves, nft=nft), known)

    assert [(item.owner, item.backend, item.is_certain) for item in found] == expected
    assert all(item.chains and item.evidence for item in found)


def test_only_the_other_modes_chains_are_named():
    """kube-proxy's live chains are not among what IPVS left."""
    (item,) = find_stale(state(NFT, IPVS.replace("*nat", "*mangle")), Known(RUNNING, "iptables", "nft"))

    assert item.chains == ("KUBE-LOAD-BALANCER",)
    assert str(item) == (
        "kube-proxy in iptables-nft: KUBE-LOAD-BALANCER (kube-proxy answers that its mode is iptables)"
    )
