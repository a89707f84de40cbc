# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's rules of both backends and families, in a network namespace of its own, are cleaned up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import ansible_collections
import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace needs root")

SVC = "KUBE-SVC-NPX46M4PTMTKRN6Y"
RULES = f"""\
*nat
:KUBE-SERVICES - [0:0]
:{SVC} - [0:0]
:MINE - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A PREROUTING -j MINE
-A KUBE-SERVICES -p tcp -m comment --comment "default/kubernetes:https cluster IP" -j {SVC}
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-IPVS-FILTER - [0:0]
-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT
-A INPUT -j KUBE-FIREWALL
-A INPUT -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
COMMIT
"""
NFT = "nft 'add table ip kube-proxy; add table ip6 kube-proxy; add table ip mine; add chain ip kube-proxy services'\n"
ASK = """\
import json, sys
sys.path[:0] = sys.argv[2:]
from ansible_collections.portcullis.fleet.plugins.module_utils import kube_proxy_leftovers, kube_proxy_live
kube_proxy_live.backend_of_command = lambda: ""  # another kube-proxy may run on the machine of the test
clean, mode = kube_proxy_leftovers.clean, sys.argv[1]
print(json.dumps([clean(mode, True), clean(mode, False), clean(mode, False)]))
"""
SEEN = "for p in iptables ip6tables; do for b in nft legacy; do echo $p $b; $p-$b-save; done; done; nft list tables"


def prepare(backend: str) -> str:
    """The script that puts RULES of both families into a backend."""
    return "".join(f"{family}tables-{backend}-restore <<'A' || exit 77\n{RULES}A\n" for family in ("ip", "ip6"))


def cleaned(script: str, mode: str) -> tuple[list, str]:
    """What clean returns in check mode, for real and once more, and what the kernel has then."""
    folder = str(Path(next(iter(ansible_collections.__path__))).parent)
    paths = [folder, *(item for item in sys.path if item)]
    argv = ["unshare", "-n", "sh", "-c", f'{script}\n"$@" && {SEEN}', "sh", sys.executable, "-c", ASK, mode, *paths]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 77:
        pytest.skip(f"the kernel has no such tables: {done.stderr}")
    assert done.returncode == 0, done.stderr
    first, _newline, rest = done.stdout.partition("\n")
    return json.loads(first), rest


def all_of(*backends: str) -> list[str]:
    """What goes of RULES where no mode of iptables is live."""
    chains = ("nat KUBE-SERVICES", "nat KUBE-SVC-* (1)", "filter KUBE-FORWARD", "filter KUBE-IPVS-FILTER")
    return [
        f"iptables-{backend} {family} {chain}" for family in ("ip", "ip6") for backend in backends for chain in chains
    ]


def test_nothing_of_iptables_stays_beside_nftables():
    (would, did, again), now = cleaned(prepare("nft") + prepare("legacy") + NFT, "nftables")
    assert (sorted(did[0]), did[1]) == (sorted(all_of("legacy", "nft")), [])
    assert would == did
    assert again == [[], []]
    assert now.count("-A PREROUTING -j MINE") == now.count("--dport 22") == now.count("-A INPUT -j KUBE-FIREWALL") == 4
    assert {line.split()[0] for line in now.splitlines() if line.startswith(":KUBE")} == {":KUBE-FIREWALL"}
    assert "table ip kube-proxy" in now


@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_beside_iptables_the_other_modes_go(backend: str):
    (would, did, again), now = cleaned(prepare(backend) + NFT, "iptables")
    chains = [f"iptables-{backend} {family} filter KUBE-IPVS-FILTER" for family in ("ip", "ip6")]
    assert did == [[*chains, "nft table ip kube-proxy", "nft table ip6 kube-proxy"], []]
    assert would == did
    assert again == [[], []]
    assert now.count(f"-j {SVC}") == 2
    assert "kube-proxy" not in now
    assert "table ip mine" in now


def test_of_two_backends_neither_goes_where_nothing_tells_which_is_live():
    (_would, did, _again), now = cleaned(prepare("nft") + prepare("legacy"), "iptables")
    assert did[0] == []
    places = [f"iptables-{backend} {family}" for family in ("ip", "ip6") for backend in ("legacy", "nft")]
    assert [item.partition(":")[0] for item in did[1]] == places
    assert now.count("-A FORWARD") == 4


def test_a_rule_of_somebody_else_stays_with_its_chain_and_is_named():
    rule = f"iptables-nft -t nat -A OUTPUT -d 192.0.2.1 -j {SVC}\n"
    (_would, did, again), now = cleaned(prepare("nft") + rule, "nftables")
    assert did[1] == again[1]
    assert did[1][0].startswith(
        f"iptables-nft ip nat {SVC}: somebody else's rule leads into it: -A OUTPUT -d 192.0.2.1"
    )
    assert f"-A OUTPUT -d 192.0.2.1/32 -j {SVC}" in now
    assert again[0] == []
