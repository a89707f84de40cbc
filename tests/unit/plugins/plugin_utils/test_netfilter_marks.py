# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_marks import (
    bits_to_avoid,
    collisions,
    mark_users,
)

from tests.unit.plugins.plugin_utils.netfilter_samples import (
    KUBE_PROXY_FILTER,
    KUBE_PROXY_NAT,
    felix_filter,
    ruleset,
    save,
    state,
)

MARK = {"meta": {"key": "mark"}}
KUBERNETES = save(filter=KUBE_PROXY_FILTER + felix_filter(), nat=KUBE_PROXY_NAT)


def users(filters, **configured):
    """Mark users by name; a keyword is an owner with underscores."""
    given = {name.replace("_", "-"): mask for name, mask in configured.items()}
    return {user.owner: user for user in mark_users(filters, configured=given)}


def test_bits_in_rules_and_configured():
    """Set, looked at and configured bits are told apart, with a rule for each."""
    found = users(state(KUBERNETES), calico_felix=0xFFFF0000)
    proxy, felix = found["kube-proxy"], found["calico-felix"]

    assert (proxy.set_bits, proxy.matched_bits, proxy.configured, proxy.bits) == (0x4000, 0x4000, None, 0x4000)
    assert (felix.set_bits, felix.in_rules, felix.bits) == (0x10000, 0x10000, 0xFFFF0000)
    assert proxy.evidence(0x4000) == [
        '-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark 0x4000/0x4000 -j ACCEPT',
        "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
    ]
    assert proxy.evidence(0x10000) == []


def test_connection_marks_are_another_mark():
    """A bit of conntrack's mark is no user of the packet's."""
    assert users(state(save(mangle="-A PREROUTING -j CONNMARK --set-xmark 0x1/0x1"))) == {}


def test_a_configured_owner_counts_without_rules():
    """What is to be installed later, and a masquerade bit that was moved."""
    found = users(state(KUBERNETES), secure_workload=0x300000)

    assert found["secure-workload"].bits == 0x300000


@pytest.mark.parametrize(
    ("filters", "configured", "expected"),
    [
        pytest.param(state(KUBERNETES), {"calico_felix": 0xFFFF0000}, [], id="clean"),
        pytest.param(
            state(KUBERNETES),
            {"calico_felix": 0xFFFF0000, "secure_workload": 0x300000},
            [("calico-felix", "secure-workload", 0x300000, 0)],
            id="configured masks collide before any rule does",
        ),
        pytest.param(
            state(KUBERNETES, routes="100:\tfrom all fwmark 0x7 lookup 100"),
            {"calico_felix": 0xFFFF0000},
            [("by-hand", "calico-felix", 0xFFFF0000, 0x10000), ("by-hand", "kube-proxy", 0x4000, 0x4000)],
            id="a routing rule without a mask",
        ),
        pytest.param(
            state(KUBERNETES, save(mangle="-A PREROUTING -m mark --mark 0x4000/0x4000 -j ACCEPT")),
            {},
            [],
            id="a rule that reads kube-proxy's bit is meant",
        ),
        pytest.param(
            state(KUBERNETES, save(mangle="-A PREROUTING -p tcp -j MARK --set-xmark 0x4000/0x4000")),
            {},
            [("by-hand", "kube-proxy", 0x4000, 0x4000)],
            id="a rule that sets it is not",
        ),
        pytest.param(
            state(
                save(filter=felix_filter(), nat=KUBE_PROXY_NAT.replace("0x4000", "0x100000")),
            ),
            {"calico_felix": 0xFFFF0000},
            [("calico-felix", "kube-proxy", 0x100000, 0)],
            id="masqueradeBit 20",
        ),
    ],
)
def test_collisions(filters, configured, expected):
    """Pairs that claim the same bits, each once."""
    found = collisions(list(users(filters, **configured).values()))

    assert [(*item.owners, item.overlap, item.in_rules) for item in found] == expected


def test_native_tables_count():
    """nft's own expressions use bits as iptables' rules do; the evidence names the table."""
    change = {"mangle": {"key": MARK, "value": {"|": [MARK, 0x4000]}}}
    row = {"rule": {"family": "ip", "table": "kube-proxy", "chain": "masq", "expr": [change]}}
    found = users(state(nft=ruleset(row)))

    assert found["kube-proxy"].set_bits == 0x4000
    assert found["kube-proxy"].evidence() == ["nft table ip kube-proxy masq: meta mark set meta mark | 0x4000"]


def test_bits_to_avoid():
    """Everybody's but Felix's; a rule that takes the whole mark asks for what nobody can give."""
    routes = "100:\tfrom all fwmark 0x7 lookup 100\n5210:\tfrom all fwmark 0x80000/0xff0000 lookup main"
    found = users(state(KUBERNETES, routes=routes, running=()), calico_felix=0xFFFF0000, secure_workload=0x300000)

    assert bits_to_avoid(list(found.values())) == 0xFF4000
    assert found["by-hand"].whole == ["ip rule 100: from all fwmark 0x7 lookup 100"]
