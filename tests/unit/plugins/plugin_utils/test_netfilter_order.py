# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_order import (
    EVERYTHING,
    NETWORK,
    base_chains,
    early_accepts,
    felix_allow_actions,
    hook_orders,
    reachable_verdicts,
    second_filters,
)

from tests.unit.plugins.plugin_utils.netfilter_samples import base_chain, felix_filter, rule, ruleset, save, state

CALI = '-A FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD'
TAIL = '-A FORWARD -m comment --comment "cali:mp77cMpurHhyjLrM" -j MARK --set-xmark 0x10000/0x10000'
OWN = "-A cali-FORWARD -j RETURN"
MINE = "-A FORWARD -j MINE"
MINE_DROPS = "-A MINE -s 192.0.2.1/32 -j DROP"


def order_of(*rows: str):
    """The FORWARD chain of these rules."""
    orders = hook_orders(state(save(filter="\n".join(rows))), tables=["filter"])
    return next(order for order in orders if order.chain.name == "FORWARD")


@pytest.mark.parametrize(
    ("rows", "felix"),
    [
        pytest.param([CALI, TAIL, OWN], "only", id="its own tail is no other"),
        pytest.param([CALI, MINE, TAIL, OWN, MINE_DROPS], "first", id="first"),
        pytest.param([MINE, CALI, TAIL, OWN, MINE_DROPS], "last", id="last"),
        pytest.param([MINE, CALI, MINE, OWN, MINE_DROPS], "between", id="between"),
        pytest.param([MINE, MINE_DROPS], "absent", id="absent"),
    ],
)
def test_where_felix_stands(rows, felix):
    """The position of its first jump among the rules of others."""
    assert order_of(*rows).felix == felix


def test_what_can_decide_before_felix():
    """Verdicts are found through jumps, verdict maps and loops; a RETURN decides nothing."""
    order = order_of(
        MINE,
        "-A FORWARD -j LOOP",
        "-A FORWARD -j NOTHING",
        CALI,
        OWN,
        MINE_DROPS,
        "-A LOOP -j DEEPER",
        "-A DEEPER -j LOOP",
        "-A DEEPER -p tcp -j ACCEPT",
        "-A NOTHING -j RETURN",
    )

    assert [str(entry) for entry in order.entries][:2] == ["1 by-hand: MINE", "2 by-hand: LOOP"]
    assert order.before_that_can_accept() == ["LOOP"]
    assert order.before_that_can_refuse() == ["MINE"]
    assert order.place == "nft/filter/FORWARD"


def test_verdict_maps_are_followed():
    """A map's branches count."""
    text = ruleset(
        rule("t", "c", {"vmap": {"key": 1, "data": {"set": [[1, {"goto": {"target": "d"}}]]}}}),
        rule("t", "d", {"drop": None}),
    )
    (table,) = state(nft=text).tables

    assert reachable_verdicts(table, table.chains["c"].rules[0]) == {"DROP"}


@pytest.mark.parametrize("action", ["ACCEPT", "RETURN"])
def test_allow_action(action):
    """Read from filter's end rule and mangle's cali-PREROUTING; raw's accept tells nothing."""
    mangle = f'-A cali-PREROUTING -m comment --comment "cali:KX7" -m mark --mark 0x10000/0x10000 -j {action}'
    raw = '-A cali-PREROUTING -m comment --comment "cali:8A0" -m mark --mark 0x10000/0x10000 -j ACCEPT'
    filters = state(save(filter=felix_filter(action), mangle=mangle, raw=raw))

    assert felix_allow_actions(filters) == {"nft/filter": action, "nft/mangle": action}


def test_allow_action_of_older_versions():
    """Without a rule at FORWARD's end, cali-INPUT's first tells it."""
    rows = felix_filter("RETURN").splitlines()
    filters = state(save("legacy", filter="\n".join(row for row in rows if "explicitly accepted" not in row)))

    assert felix_allow_actions(filters) == {"legacy/filter": "RETURN"}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(["-A FORWARD -j ACCEPT", CALI, OWN], [(EVERYTHING, 1, True)], id="everything"),
        pytest.param([CALI, "-A FORWARD -j ACCEPT", OWN], [], id="last of all"),
        pytest.param([CALI, "-A FORWARD -j ACCEPT", TAIL, OWN], [(EVERYTHING, 2, False)], id="hides Felix's end rule"),
        pytest.param(["-A FORWARD -j MINE", CALI, OWN, "-A MINE -j ACCEPT"], [(EVERYTHING, 1, True)], id="in a chain"),
        pytest.param(
            ["-A FORWARD -j MINE", CALI, OWN, "-A MINE -j RETURN", "-A MINE -j ACCEPT"], [], id="behind a return"
        ),
        pytest.param(["-A FORWARD -p tcp -j ACCEPT", CALI, OWN], [], id="one protocol"),
        pytest.param(["-A FORWARD -s 10.1.0.0/16 -j ACCEPT", CALI, OWN], [(NETWORK, 1, True)], id="a network"),
        pytest.param([CALI, "-A FORWARD -s 10.1.0.0/16 -j ACCEPT", OWN], [], id="a network behind Felix"),
        pytest.param(["-A FORWARD ! -s 10.1.0.0/16 -j ACCEPT", CALI, OWN], [], id="all but a network"),
        pytest.param(["-A FORWARD -s 192.0.2.7/32 -j ACCEPT", CALI, OWN], [], id="a host"),
        pytest.param(["-A FORWARD -s 10.1.0.0/16 -i eth1 -j ACCEPT", CALI, OWN], [], id="through one interface"),
        pytest.param(["-A FORWARD -i cali+ -j ACCEPT", CALI, OWN], [(NETWORK, 1, True)], id="from every pod"),
        pytest.param(["-A FORWARD -i docker0 -j ACCEPT", CALI, OWN], [], id="docker's bridge"),
        pytest.param(
            ["-A FORWARD -j FLANNEL-FWD", CALI, OWN, "-A FLANNEL-FWD -s 10.244.0.0/16 -j ACCEPT"],
            [(NETWORK, 1, True)],
            id="flannel's chain before Felix's",
        ),
    ],
)
def test_early_accepts(rows, expected):
    """What lets packets through ahead of policy, and what only looks like it."""
    found = early_accepts(state(save(filter="\n".join(rows))))

    assert [(item.kind, item.position, item.hides_felix) for item in found] == expected


@pytest.mark.parametrize(("pods", "count"), [("10.1.0.0/16", 1), ("10.1.128.0/17", 1), ("10.2.0.0/16", 0)])
def test_networks_of_pods_are_known(pods, count):
    """With the pods' networks known, only those count."""
    filters = state(save(filter=f"-A FORWARD -d 10.1.0.0/16 -j ACCEPT\n{CALI}\n{OWN}"))

    assert len(early_accepts(filters, pod_networks=[pods])) == count


def test_order_of_base_chains():
    """By priority; of equal ones the later table first; nat chains all at one priority."""

    def table(name, handle, *chains):
        head = {"table": {"family": "ip", "name": name, "handle": handle}}
        return [head, *(base_chain(name, *chain, family="ip", prio=prio) for chain, prio in chains)]

    first = table("one", 1, (("a", "input"), 0), (("early", "input"), -150))
    second = table("two", 2, (("b", "input"), 0))
    nat = base_chain("two", "n", "input", family="ip", prio=-100)
    nat["chain"]["type"] = "nat"
    found = base_chains(state(nft=ruleset(*first, *second, nat)), "input")

    assert [item.chain.name for item in found] == ["early", "b", "a", "n"]


@pytest.mark.parametrize(
    ("policy", "statements", "refusal"),
    [
        pytest.param("drop", [], "policy drop", id="policy"),
        pytest.param("accept", [{"reject": None}], "reject", id="last rule"),
        pytest.param("accept", [{"jump": {"target": "more"}}], "drop", id="in a chain"),
        pytest.param("accept", [{"accept": None}], "", id="accepts the rest"),
        pytest.param("accept", [], "", id="empty"),
    ],
)
def test_second_filters(policy, statements, refusal):
    """A native base chain that refuses the rest, whatever Felix accepted."""
    rows = [rule("mine", "fwd", statement) for statement in statements]
    text = ruleset(base_chain("mine", "fwd", "forward", policy=policy), *rows, rule("mine", "more", {"drop": None}))

    assert [found for _base, found in second_filters(state(nft=text))] == ([refusal] if refusal else [])


def test_other_backend_is_a_second_filter():
    """A dropping policy in the backend where Felix is not; in Felix's own it is part of one chain."""
    policies = {"filter/FORWARD": "DROP"}
    live = save(filter=felix_filter(), policies=policies)
    other = save("legacy", filter="-A FORWARD -j DOCKER\n-A DOCKER -j RETURN", policies=policies)

    assert [base.table.place for base, _refusal in second_filters(state(live, other))] == ["legacy/filter"]
