# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What came of the ports: a fault is found at its end, and what is well or not known is no fault."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.port_needs import BIRD, KERNEL, WIREGUARD, Need, Target
from ansible_collections.portcullis.fleet.plugins.plugin_utils.port_plan import make_plan
from ansible_collections.portcullis.fleet.plugins.plugin_utils.port_requirements import (
    reachability_findings,
    tried_words,
)

NAMES = ("cp1", "w1", "w2")
TARGETS = tuple(Target(name, f"10.0.0.{number}") for number, name in enumerate(NAMES, start=11))
VXLAN = Need("VXLAN", "udp", 4789, "a pool has vxlanMode Always", NAMES, TARGETS, owners=KERNEL)
IPIP = Need("IP-in-IP", "ipip", 0, "a pool has ipipMode Always", NAMES, TARGETS)
BGP = Need("BGP", "tcp", 179, "Calico routes by BGP, each node with each", NAMES, TARGETS, owners=BIRD)
TUNNEL = Need("WireGuard", "udp", 51820, "wireguardEnabled is true", NAMES, TARGETS, owners=WIREGUARD)
OUTSIDE = (Target("", "10.9.9.9"),)
API = Need("API server", "tcp", 6443, "the endpoints", NAMES, OUTSIDE, serves=True, is_mesh=False)


class Exchange:
    """An exchange in which everything gets through, to be broken by a test."""

    def __init__(self, need: Need) -> None:
        self.need = need
        self.plan = make_plan([need], {name: name for name in NAMES}, "00112233445566ff")
        numbers = {name: part["number"] for name, part in self.plan["hosts"].items()}
        said = "connected" if need.protocol == "tcp" else "sent"
        self.watch = {name: {"listeners": [], "tunnels": {"vxlan": [], "wireguard": []}} for name in NAMES}
        self.tried = {
            name: {"outcomes": [{"outcome": said, "source_port": 40000 + numbers[name]} for _try in part["tries"]]}
            for name, part in self.plan["hosts"].items()
        }
        self.collect = {name: {"seen": []} for name in NAMES}
        for name, part in self.plan["hosts"].items():
            for item in part["tries"]:
                if item["target"]:
                    seen = {"protocol": need.protocol, "port": need.port, "address": "10.0.0.1"}
                    by = {"source_port": 40000 + numbers[name]}
                    if need.protocol != "tcp":
                        by = {"source": numbers[name], "target": numbers[item["target"]]}
                    self.collect[item["target"]]["seen"].append({**seen, **by})

    def say(self, outcome: str, source: str, target: str = "") -> None:
        """Change what a source's attempts came to, all or the one at a target."""
        for item, result in zip(self.plan["hosts"][source]["tries"], self.tried[source]["outcomes"], strict=True):
            if not target or item["target"] == target:
                result["outcome"] = outcome

    @property
    def result(self) -> dict:
        """What node_requirements is given."""
        return {"plan": self.plan, "watch": self.watch, "try": self.tried, "collect": self.collect}

    def found(self) -> list[tuple[str, str, str]]:
        """(id, node, observed) of the findings."""
        return [(item["id"], item["node"], item["observed"]) for item in reachability_findings(self.result)]


@pytest.mark.parametrize("need", [VXLAN, IPIP, BGP, TUNNEL, API], ids=lambda need: need.name)
def test_what_gets_through_is_no_finding(need: Need):
    assert Exchange(need).found() == []


def test_a_node_that_hears_nothing_is_the_one_at_fault():
    exchange = Exchange(VXLAN)
    exchange.collect["w2"]["seen"] = []
    (found,) = reachability_findings(exchange.result)

    assert (found["id"], found["node"], found["severity"]) == ("network.port_unreachable", "w2", "blocker")
    assert found["observed"] == "UDP 4789 (VXLAN) from cp1, w1: sent, and did not arrive"
    assert "iptables -I INPUT -p udp --dport 4789 -j ACCEPT" in found["remedy"]


def test_the_remedy_is_of_the_ip_version_that_was_tried():
    targets = tuple(Target(name, f"fd00::{number}") for number, name in enumerate(NAMES, start=11))
    exchange = Exchange(dataclasses.replace(VXLAN, targets=targets))
    exchange.collect["w2"]["seen"] = []
    (found,) = reachability_findings(exchange.result)

    assert "(ip6tables-save, nft" in found["remedy"]
    assert "ip6tables -I INPUT -p udp --dport 4789 -j ACCEPT" in found["remedy"]


def test_a_node_from_which_nothing_gets_out_is_the_one_at_fault():
    exchange = Exchange(IPIP)
    number = exchange.plan["hosts"]["w1"]["number"]
    for name in NAMES:
        exchange.collect[name]["seen"] = [item for item in exchange.collect[name]["seen"] if item["source"] != number]
    (found,) = reachability_findings(exchange.result)

    assert (found["node"], found["observed"]) == ("w1", "protocol 4 (IP-in-IP) to w2, cp1: sent, and did not arrive")
    assert "iptables -I OUTPUT -p 4 -j ACCEPT" in found["remedy"]


def test_what_the_node_itself_does_not_send_is_said_in_the_kernels_words():
    exchange = Exchange(VXLAN)
    exchange.say("Operation not permitted", "w1")

    assert exchange.found() == [
        ("network.port_unreachable", "w1", "UDP 4789 (VXLAN) to w2, cp1: Operation not permitted")
    ]


def test_a_port_where_nobody_listens_yet_is_not_blocked():
    """The first packet arrived behind the packet filter; that BIRD does not run is another matter."""
    exchange = Exchange(BGP)
    exchange.say("refused", "cp1", "w1")

    assert exchange.found() == []


def test_a_refusal_whose_packet_never_came_is_a_firewalls():
    exchange = Exchange(BGP)
    for source in ("cp1", "w2"):
        exchange.say("refused", source, "w1")
    exchange.collect["w1"]["seen"] = []

    assert exchange.found() == [("network.port_unreachable", "w1", "TCP 179 (BGP) from cp1, w2: rejected on the way")]


def test_a_connection_that_hangs_is_a_fault():
    exchange = Exchange(BGP)
    for source in ("cp1", "w2"):
        exchange.say("no answer", source, "w1")
    exchange.collect["w1"]["seen"] = []

    assert exchange.found() == [("network.port_unreachable", "w1", "TCP 179 (BGP) from cp1, w2: no answer within 3 s")]


def test_a_bird_that_answers_to_signed_packets_alone_is_not_blocked():
    """With a BGP password (RFC 2385) the kernel drops what bears no signature, after the packet filter."""
    exchange = Exchange(BGP)
    exchange.say("no answer", "cp1", "w1")

    assert exchange.found() == []


def test_a_server_that_nobody_reaches_is_the_clusters_matter():
    exchange = Exchange(API)
    for source in NAMES:
        exchange.say("refused", source)

    assert exchange.found() == [
        ("network.port_unreachable", "", "TCP 6443 (API server) at 10.9.9.9 from cp1, w1, w2: connection refused")
    ]


def test_a_server_that_one_node_does_not_reach_is_that_nodes_matter():
    exchange = Exchange(API)
    exchange.say("no answer", "w2")

    assert exchange.found() == [
        ("network.port_unreachable", "w2", "TCP 6443 (API server) to 10.9.9.9: no answer within 3 s")
    ]


@pytest.mark.parametrize(
    ("need", "listener", "tunnels", "holder"),
    [
        (BGP, {"pid": 7, "name": "nginx"}, [], "nginx"),
        (VXLAN, {"pid": 7, "name": "vpn"}, [], "vpn"),
        (TUNNEL, {"pid": 0, "name": ""}, ["wg0"], "the WireGuard interface wg0"),
        (TUNNEL, {"pid": 7, "name": "openvpn"}, [], "openvpn"),
        (BGP, {"pid": 7, "name": "bird"}, [], ""),
        (BGP, {"pid": 0, "name": ""}, [], ""),
        (VXLAN, {"pid": 0, "name": ""}, [], ""),
        (TUNNEL, {"pid": 0, "name": ""}, ["wg0", "wireguard.cali"], ""),
        (TUNNEL, {"pid": 7, "name": "wireguard-go"}, [], ""),
    ],
    ids=[
        "a web server on 179",
        "a program on 4789",
        "another WireGuard",
        "OpenVPN",
        "BIRD",
        "a process that cannot be seen",
        "the kernel's VXLAN",
        "Calico's WireGuard",
        "WireGuard outside of the kernel",
    ],
)
def test_a_port_in_other_hands_is_found(need: Need, listener: dict, tunnels: list[str], holder: str):
    exchange = Exchange(need)
    held = {"protocol": need.protocol, "port": need.port, "address": "10.0.0.12", **listener}
    exchange.watch["w1"] = {"listeners": [held], "tunnels": {"vxlan": [], "wireguard": tunnels}}
    found = exchange.found()

    if not holder:
        assert found == []
    else:
        assert found == [("network.port_taken", "w1", f"{need.words} is held by {holder} on 10.0.0.12")]


@pytest.mark.parametrize(
    ("step", "result", "words"),
    [
        ("tried", {"unreachable": True, "msg": "timed out"}, "w1 sent nothing: timed out"),
        ("tried", {"skipped": True}, "w1 sent nothing: the step did not run there"),
        ("collect", {"seen": None}, "w1 did not watch: its watching process was gone"),
        ("collect", {"failed": True, "msg": "root needed"}, "w1 did not watch: root needed"),
    ],
    ids=["unreachable", "skipped", "watcher gone", "failed"],
)
def test_what_nobody_can_tell_is_said_and_is_no_fault(step: str, result: dict, words: str):
    exchange = Exchange(VXLAN)
    getattr(exchange, step)["w1"] = result
    ((name, node, observed),) = exchange.found()

    assert (name, node) == ("network.ports_unseen", "")
    assert observed == f"2 of 6 attempts say nothing: {words}"


def test_what_of_the_cluster_could_not_be_read_is_said():
    exchange = Exchange(VXLAN)
    exchange.plan["unseen"] = {"ippools": "forbidden"}

    assert exchange.found() == [("network.ports_unseen", "", "0 of 6 attempts say nothing: ippools: forbidden")]


def test_the_line_says_what_was_tried():
    assert tried_words(Exchange(VXLAN).result) == "ports tried between 3 nodes: UDP 4789 (VXLAN) 6 pairs"
    empty = {"plan": make_plan([], {}, "00")}
    assert tried_words(empty) == "ports tried between 0 nodes: none is needed"
