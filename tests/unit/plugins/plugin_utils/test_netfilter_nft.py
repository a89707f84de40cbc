# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_marks_nft import (
    changed_mark_bits,
    compared_mark_bits,
    mark_space,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_nft import parse_nft_json, priority_text
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_rules import (
    ALL_BITS,
    CONNECTION,
    MATCH,
    PACKET,
    SET,
    MarkUse,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.plugins.plugin_utils.netfilter_samples import base_chain, rule, ruleset

MARK = {"meta": {"key": "mark"}}
CT_MARK = {"ct": {"key": "mark"}}


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        pytest.param({"|": [MARK, 0x4000]}, 0x4000, id="kube-proxy sets"),
        pytest.param({"^": [MARK, 0x4000]}, 0x4000, id="kube-proxy flips"),
        pytest.param({"&": [MARK, 0xFFE4FFFF]}, 0x1B0000, id="Felix clears"),
        pytest.param({"|": [{"&": [MARK, 0xFF00FFFF]}, 0x40000]}, 0xFF0000, id="Tailscale replaces a byte"),
        pytest.param({"|": [{"&": [MARK, 0xFFFFFF7F]}, {"&": [CT_MARK, 0x80]}]}, 0x80, id="restores one bit"),
        pytest.param({"&": [CT_MARK, 0x80]}, ALL_BITS, id="aws-cni 1.23 replaces all (aws-vpc-cni#3872)"),
        pytest.param(7, ALL_BITS, id="a constant replaces all"),
        pytest.param({"|": [MARK, 1, 2]}, 3, id="three operands"),
        pytest.param({"map": "x"}, ALL_BITS, id="unknown expression"),
    ],
)
def test_changed_bits(value, bits):
    """Bits that an assignment to the packet mark may change."""
    assert changed_mark_bits(value, PACKET) == bits


def evaluate(value, mark):
    """The number that an expression of constants and the mark gives."""
    if isinstance(value, int):
        return value
    if value == MARK:
        return mark
    ((operator, (left, right)),) = value.items()
    a, b = evaluate(left, mark), evaluate(right, mark)
    return {"&": a & b, "|": a | b, "^": a ^ b}[operator]


U32 = st.integers(0, ALL_BITS)
EXPRESSIONS = st.recursive(
    U32 | st.just(MARK),
    lambda inner: st.tuples(st.sampled_from("&|^"), inner, inner).map(lambda parts: {parts[0]: list(parts[1:])}),
    max_leaves=6,
)


@given(EXPRESSIONS, U32)
def test_no_change_is_missed(value, mark):
    """A bit that comes out differently is always among the changed bits."""
    assert not (evaluate(value, mark) ^ mark) & ~changed_mark_bits(value, PACKET)


@pytest.mark.parametrize(
    ("value", "space", "bits"),
    [
        pytest.param({"&": [MARK, 0x10000]}, PACKET, 0x10000, id="masked"),
        pytest.param(MARK, PACKET, ALL_BITS, id="whole"),
        pytest.param({"&": [CT_MARK, 0x80]}, CONNECTION, 0x80, id="connection"),
        pytest.param({"payload": {"protocol": "ip", "field": "saddr"}}, "", ALL_BITS, id="no mark"),
    ],
)
def test_compared_bits(value, space, bits):
    """The mark and the bits that a comparison looks at."""
    assert (mark_space(value), compared_mark_bits(value)) == (space, bits)


def test_a_native_rule_is_read_like_one_of_iptables():
    """Conditions have iptables' names, marks their bits, and the text reads like nft's."""
    text = ruleset(
        base_chain("mine", "in", "input", policy="drop", prio=10),
        rule(
            "mine",
            "in",
            {"match": {"op": "!=", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "10.0.0.1"}},
            {"match": {"op": "==", "left": {"&": [MARK, 0x80000]}, "right": 0}},
            {"mangle": {"key": MARK, "value": {"|": [MARK, 0x80000]}}},
            {"counter": {"packets": 3, "bytes": 180}},
            {"reject": {"type": "icmpx", "expr": "admin-prohibited"}},
        ),
    )
    (table,) = parse_nft_json(text)
    chain = table.chains["in"]
    (found,) = chain.rules

    assert (table.place, chain.hook, chain.policy, chain.priority) == ("nft table inet mine", "input", "DROP", 10)
    assert found.conditions == (("-s", "!10.0.0.1"), ("meta mark & 0x80000", "0"))
    assert found.marks == (MarkUse(MATCH, 0x80000, 0), MarkUse(SET, 0x80000, None))
    assert (found.target, found.packets) == ("REJECT", 3)
    assert found.text == (
        "ip saddr != 10.0.0.1 meta mark & 0x80000 == 0x0 meta mark set meta mark | 0x80000 "
        "reject with icmpx admin-prohibited"
    )


def test_verdict_maps_lead_to_chains():
    """A map's targets are told, named or inline."""
    table = {"family": "ip", "table": "t"}
    goto = {"goto": {"target": "svc"}}
    text = ruleset(
        {"map": {**table, "name": "m", "map": "verdict", "elem": [[{"concat": ["10.0.0.1", 80]}, goto]]}},
        rule("t", "c", {"vmap": {"key": {"meta": {"key": "mark"}}, "data": "@m"}}, family="ip"),
        rule("t", "c", {"vmap": {"key": 1, "data": {"set": [[1, {"drop": None}]]}}}, family="ip"),
    )
    (found,) = parse_nft_json(text)

    assert [item.branches for item in found.chains["c"].rules] == [("svc",), ("DROP",)]


@pytest.mark.parametrize(
    ("family", "name", "chain", "hook", "place"),
    [
        pytest.param("ip", "filter", "INPUT", "input", "nft/filter", id="iptables-nft"),
        pytest.param("ip", "filter", "input", "input", "nft table ip filter", id="a native table of the same name"),
        pytest.param("inet", "filter", "INPUT", "input", "nft table inet filter", id="another family"),
    ],
)
def test_whose_table_it_is(family, name, chain, hook, place):
    """iptables' tables are told by family, name and base chains."""
    (table,) = parse_nft_json(ruleset(base_chain(name, chain, hook, family=family)))

    assert table.place == place


@pytest.mark.parametrize(
    ("priority", "hook", "text"),
    [
        (0, "input", "filter"),
        (10, "forward", "filter + 10"),
        (-100, "prerouting", "dstnat"),
        (-110, "prerouting", "dstnat - 10"),
        (-100, "output", "-100"),
        (110, "postrouting", "srcnat + 10"),
        (110, "output", "110"),
        (-150, "output", "mangle"),
    ],
)
def test_priority_as_nft_prints_it(priority, hook, text):
    """A name only where nft uses it."""
    assert priority_text(priority, hook) == text


@pytest.mark.parametrize("text", ["{", "[]", '{"nftables": 1}', '{"other": []}', "null", "[" * 100000])
def test_other_json_is_kept_or_empty(text):
    """A broken dump raises nothing."""
    for table in parse_nft_json(text):
        assert table.unparsed == [text[:200]]


KEYS = [
    "table",
    "chain",
    "rule",
    "map",
    "family",
    "name",
    "expr",
    "match",
    "left",
    "right",
    "op",
    "meta",
    "key",
    "vmap",
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["mark", "ip", "@m", "filter", "accept"])
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*KEYS, "mangle", "value", "&", "|", "jump", "xt", "set", "ct", "elem"]), inner, max_size=4
        )
    ),
    max_leaves=25,
)


@given(st.lists(JSON, max_size=5))
def test_no_json_raises(objects):
    """Whatever stands in the dump, it is read."""
    parse_nft_json(json.dumps({"nftables": objects}))


@given(st.lists(JSON, max_size=4))
def test_no_statement_raises(statements):
    """Whatever a rule consists of, it has a text."""
    (table,) = parse_nft_json(ruleset(rule("t", "c", *statements)))

    assert isinstance(table.chains["c"].rules[0].text, str)
