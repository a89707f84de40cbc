# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who tries what: all pairs of few nodes, n log n of many, nothing that is not needed."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.port_needs import KERNEL, Need, Target
from ansible_collections.portcullis.fleet.plugins.plugin_utils.port_plan import make_plan, pairs_of

NONCE = "00112233445566ff"


def mesh(count: int, **changes: object) -> Need:
    """VXLAN among so many nodes."""
    names = tuple(f"n{number}" for number in range(count))
    targets = tuple(Target(name, f"10.0.{number // 250}.{number % 250}") for number, name in enumerate(names))
    need = Need("VXLAN", "udp", 4789, "a pool has vxlanMode Always", names, targets, owners=KERNEL)
    return dataclasses.replace(need, **changes)


def pairs(need: Need, present: set[str] | None = None) -> list[tuple[str, str]]:
    """The pairs that are tried, by name."""
    return [(source, target.node) for source, target in pairs_of(need, present or set(need.sources))]


@pytest.mark.parametrize(("count", "expected"), [(2, 2), (3, 6), (8, 56), (9, 36), (100, 700), (1000, 10_000)])
def test_pairs_stay_few(count: int, expected: int):
    found = pairs(mesh(count))

    assert len(found) == len(set(found)) == expected
    assert all(source != target for source, target in found)


@pytest.mark.parametrize("count", [9, 100, 1000])
def test_every_node_sends_and_is_sent_to_equally_often(count: int):
    found = pairs(mesh(count))
    each = len(found) // count

    assert {[source for source, _target in found].count(name) for name in ("n0", f"n{count - 1}")} == {each}
    assert {[target for _source, target in found].count(name) for name in ("n0", f"n{count - 1}")} == {each}


def test_a_node_that_was_not_read_takes_no_part():
    assert pairs(mesh(3), {"n0", "n2"}) == [("n0", "n2"), ("n2", "n0")]


def test_nodes_of_one_network_need_no_tunnel_between_them():
    networks = (("n0", "10.0.0.0/24"), ("n1", "10.0.0.0/24"), ("n2", "10.0.1.0/24"))
    found = pairs(mesh(3, other_subnet=True, networks=networks))

    assert ("n0", "n1") not in found and ("n1", "n0") not in found
    assert len(found) == 4


def test_each_node_tries_some_endpoints_and_together_they_try_all():
    targets = tuple(Target("", f"10.9.9.{number}") for number in range(7))
    api = Need("API server", "tcp", 6443, "", mesh(10).sources, targets, serves=True, is_mesh=False)
    found = list(pairs_of(api, set(api.sources)))

    assert len(found) == 30
    assert {target for _source, target in found} == set(targets)


def test_a_node_does_not_try_itself():
    need = Need("API server", "tcp", 6443, "", ("n0", "n1"), (Target("n0", "10.0.0.1"),), is_mesh=False)

    assert pairs(need) == [("n1", "n0")]


def test_the_plan_has_each_nodes_part_under_its_inventory_name():
    plan = make_plan([mesh(2)], {"n0": "first", "n1": "second"}, NONCE)

    assert plan["nonce"] == NONCE
    assert plan["needs"][0]["pairs"] == 2
    assert plan["hosts"]["first"] == {
        "number": 1,
        "ports": [{"protocol": "udp", "port": 4789}],
        "attempts": [{"protocol": "udp", "port": 4789, "address": "10.0.0.1", "target": 2}],
        "tries": [{"need": 0, "target": "second", "address": "10.0.0.1"}],
    }


def test_a_target_that_is_no_node_is_tried_and_not_watched():
    api = Need("API server", "tcp", 6443, "", ("n0",), (Target("", "10.9.9.9"),), serves=True, is_mesh=False)
    plan = make_plan([api], {"n0": "first"}, NONCE)

    assert plan["hosts"]["first"]["ports"] == []
    assert plan["hosts"]["first"]["attempts"] == [{"protocol": "tcp", "port": 6443, "address": "10.9.9.9", "target": 0}]


def test_a_fleet_without_a_cluster_has_nothing_to_try():
    assert make_plan([mesh(3)], {}, NONCE)["hosts"] == {}
