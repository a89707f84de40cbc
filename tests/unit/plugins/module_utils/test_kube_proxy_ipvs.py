# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube-proxy's virtual servers and sets are told from those of others."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.kube_proxy_ipvs import (
    SET_NAME,
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


def test_a_load_balancer_of_somebody_else_stays():
    own, others = split_servers(virtual_servers(TABLE), {"10.96.0.1", "10.96.0.10", "fd00::1"})
    assert [(item["address"], item["port"]) for item in others] == [("192.168.1.5", 80)]
    assert len(own) == 4


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("KUBE-CLUSTER-IP", True),
        ("KUBE-6-LOOP-BACK", True),
        ("KUBE-NODE-PORT-LOCAL-TCP", True),
        ("KUBE-NODE-PORT-SCTP-HASH", True),
        ("KUBE-SRC-ABC", False),
        ("cali40all-ipam-pools", False),
        ("kube-router-pod-subnets", False),
    ],
)
def test_sets(name: str, own: bool):
    assert bool(SET_NAME.fullmatch(name)) is own
