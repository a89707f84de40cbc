# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube-proxy's virtual servers, sets and link are told from those of others, and go.

Sets and links are real, in a network namespace of their own; IPVS is in tests/integration, on a machine that has it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import ansible_collections
import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.kube_proxy_ipvs import (
    SET_NAMES,
    member_ports,
    named,
    split_servers,
    virtual_servers,
)

# As /proc/net/ip_vs has it.
TABLE = """\
IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A600001:01BB rr
  -> 0A4D000B:192B      Masq    1      0          0
UDP  0A60000A:0035 rr
TCP  C0A80105:7530 rr
TCP  C0A80105:0050 wlc persistent 300
TCP  [fd00:0000:0000:0000:0000:0000:0000:0001]:01BB rr
FWM  00000001 rr
"""


def test_the_kernels_table():
    assert [
        (item["protocol"], item["address"], item["port"], item["scheduler"]) for item in virtual_servers(TABLE)
    ] == [
        ("TCP", "10.96.0.1", 443, "rr"),
        ("UDP", "10.96.0.10", 53, "rr"),
        ("TCP", "192.168.1.5", 30000, "rr"),
        ("TCP", "192.168.1.5", 80, "wlc"),
        ("TCP", "fd00::1", 443, "rr"),
    ]
    assert virtual_servers("") == []


@pytest.mark.parametrize(
    ("node_ports", "others"),
    [
        ({("TCP", 30000)}, ["TCP 192.168.1.5:80"]),
        ({("UDP", 30000)}, ["TCP 192.168.1.5:30000", "TCP 192.168.1.5:80"]),
        (set(), ["TCP 192.168.1.5:30000", "TCP 192.168.1.5:80"]),
    ],
)
def test_a_load_balancer_of_somebody_else_stays(node_ports: set, others: list[str]):
    """Also on a port of the range of NodePorts, unless kube-proxy's own sets name it."""
    servers = virtual_servers(TABLE)
    own, foreign = split_servers(servers, {"10.96.0.1", "10.96.0.10", "fd00::1"}, node_ports)
    assert [named(item) for item in foreign] == others
    assert len(own) == len(servers) - len(others)


def test_a_server_in_words():
    assert named(virtual_servers(TABLE)[-1]) == "TCP [fd00::1]:443"


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("KUBE-CLUSTER-IP", True),
        ("KUBE-6-LOOP-BACK", True),
        ("KUBE-NODE-PORT-LOCAL-TCP", True),
        ("KUBE-NODE-PORT-SCTP-HASH", True),
        ("KUBE-6-LOAD-BALANCER-SOURCE-CID", True),
        ("KUBE-6-NODE-PORT-LOCAL-SCTP-HAS", True),
        ("KUBE-SRC-ABC", False),
        ("cali40all-ipam-pools", False),
        ("kube-router-pod-subnets", False),
    ],
)
def test_sets(name: str, own: bool):
    assert (name in SET_NAMES) is own


@pytest.mark.parametrize(
    "body", [b"", bytes(4), bytes(4) + b"\x05\x00\x08\x80\xff", bytes(4) + b"\x08\0\x08\x80\0\0\0\0"]
)
def test_a_set_without_members_has_no_ports(body: bytes):
    assert list(member_ports(body)) == []


PREPARE = """\
ip link set lo up
ip link add kube-ipvs0 type bridge && ip link add mine0 type bridge
ip addr add 10.96.0.1/32 dev kube-ipvs0 && ip addr add 192.0.2.1/32 dev mine0
ip -6 addr add fd00::1/128 dev kube-ipvs0 nodad 2>/dev/null
ipset create KUBE-CLUSTER-IP hash:ip,port && ipset create KUBE-6-CLUSTER-IP hash:ip,port family inet6
ipset create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
ipset add KUBE-NODE-PORT-TCP 30080 && ipset add KUBE-NODE-PORT-TCP 31999
ipset create KUBE-NODE-PORT-SCTP-HASH hash:ip,port && ipset add KUBE-NODE-PORT-SCTP-HASH 192.0.2.1,sctp:30090
ipset create mine hash:ip && ipset create KUBE-LOOP-BACK hash:ip,port,ip
iptables-nft -A INPUT -m set --match-set KUBE-LOOP-BACK dst,dst,src -j ACCEPT
"""
ASK = """\
import json, sys
sys.path[:0] = sys.argv[1:]
from ansible_collections.portcullis.fleet.plugins.module_utils import kube_proxy_ipvs as ipvs
seen = {"ports": sorted(ipvs.node_ports(ipvs.set_names())), "addresses": sorted(ipvs.link_addresses())}
print(json.dumps({**seen, "would": ipvs.clean(True), "did": ipvs.clean(False), "again": ipvs.clean(False)}))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")
def test_sets_and_the_link_go_and_those_of_others_stay():
    folder = str(Path(next(iter(ansible_collections.__path__))).parent)
    paths = [folder, *(item for item in sys.path if item)]
    script = PREPARE + '"$@" && ipset list -n && ip -br link'
    argv = ["unshare", "-n", "sh", "-c", script, "sh", sys.executable, "-c", ASK, *paths]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    first, _newline, rest = done.stdout.partition("\n")
    found = json.loads(first)
    assert found["ports"] == [["SCTP", 30090], ["TCP", 30080], ["TCP", 31999]]
    assert "10.96.0.1" in found["addresses"]
    assert "192.0.2.1" not in found["addresses"]
    sets = ["KUBE-6-CLUSTER-IP", "KUBE-CLUSTER-IP", "KUBE-LOOP-BACK", "KUBE-NODE-PORT-SCTP-HASH", "KUBE-NODE-PORT-TCP"]
    assert found["would"] == [[*(f"set {name}" for name in sets), "link kube-ipvs0"], []]
    used = "set KUBE-LOOP-BACK: somebody else's rule uses it"
    gone = [f"set {name}" for name in sets if name != "KUBE-LOOP-BACK"]
    assert found["did"] == [[*gone, "link kube-ipvs0"], [used]]
    assert found["again"] == [[], [used]]
    assert {"mine", "KUBE-LOOP-BACK"} == {line for line in rest.split() if line in {"mine", *sets}}
    assert "mine0" in rest
    assert "kube-ipvs0" not in rest
