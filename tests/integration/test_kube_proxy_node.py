# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real kube-proxy changes its mode on a machine with IPVS: what the former mode made goes, what others made stays.

kube-proxy is restarted by hand here; how kube_proxy_config does it is in test_kube_proxy.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.fleet import run_ansible
from tests.lab import Lab, Node
from tests.lab.run import wait

pytestmark = pytest.mark.full

NODE = "v3"
SERVICE = {"address": "10.96.0.1", "port": 443}
NODE_PORT = 30123
OBJECTS = [
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "node-port", "namespace": "default"},
        "spec": {"type": "NodePort", "ports": [{"port": 443, "targetPort": 6443, "nodePort": NODE_PORT}]},
    },
    {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": "node-port", "namespace": "default"},
        "subsets": [{"addresses": [{"ip": "10.77.0.1"}], "ports": [{"port": 6443}]}],
    },
]
# What somebody else has on the machine: rules, a set, a table of nftables, and virtual servers.
OTHERS = """\
ipset create mine hash:ip
iptables-nft -I INPUT -m set --match-set mine src -m comment --comment mine -j DROP
iptables-nft -t nat -N MINE && iptables-nft -t nat -A PREROUTING -j MINE
nft add table ip mine
"""
NETLINK = (Path(__file__).parents[2] / "plugins/module_utils/kernel_netlink.py").read_text(encoding="utf-8")
OTHER_PORTS = (81, 30999)
IPTABLES_ONLY = (
    "KUBE-SVC-",
    "KUBE-SEP-",
    "KUBE-NODEPORTS",
    "KUBE-EXTERNAL-SERVICES",
    "PROXY-CANARY",
    "load balancer firewall",
)
SEEN = """\
cat /proc/net/ip_vs | grep -E '^(TCP|UDP)' ; ip -br link | cut -d' ' -f1; ipset list -n; nft list tables
for p in iptables ip6tables; do $p-nft-save | grep -v '^[#:]'; $p-nft-save | grep -o '^:[^ ]*'; done
"""


def ask(lab: Lab, step: str, *, check: bool = False, **options: object) -> dict:
    """What the module returns for a step on the machine."""
    words = " ".join(f"{key}={value}" for key, value in {"step": step, **SERVICE, **options}.items())
    argv = ["ansible", NODE, "-i", str(lab.inventory_path), "-m", "portcullis.fleet.kube_proxy_node", "-a", words]
    code, output = run_ansible([*argv, *(["--check"] if check else [])])
    assert code == 0, output
    return json.loads(output.partition("=>")[2])


def seen(lab: Lab) -> list[str]:
    """Virtual servers, links, sets, tables, rules and chains of the machine."""
    return [line.rstrip() for line in lab.ssh(NODE, ["sh", "-c", SEEN]).stdout.splitlines()]


def change_mode(lab: Lab, old: str, new: str) -> None:
    """kube-proxy of the machine in another mode, those of the other nodes as before."""
    config_map = lab.kubectl("-n", "kube-system", "get", "configmap", "kube-proxy", "-o", "json").stdout
    lab.kubectl("replace", "-f", "-", stdin=config_map.replace(f"mode: {old}", f"mode: {new}"))
    where = f"--field-selector=spec.nodeName={NODE}"
    lab.kubectl("-n", "kube-system", "delete", "pod", "-l", "k8s-app=kube-proxy", where)


def balance(lab: Lab) -> None:
    """Somebody else's virtual servers, on loopback. In mode ipvs kube-proxy would delete them."""
    for port in OTHER_PORTS:
        made = NETLINK.replace(r'b"\0\1"', repr(port.to_bytes(2, "big")))
        lab.ssh(NODE, ["python3", "-"], stdin=f"{made}\ntry_ipvs()\n")


@pytest.fixture(scope="module")
def machine(lab: Lab) -> Iterator[Lab]:
    """The lab with a machine in its cluster, a NodePort, and somebody else's work on it; kube-proxy in mode ipvs."""
    config_map = json.loads(lab.kubectl("-n", "kube-system", "get", "configmap", "kube-proxy", "-o", "json").stdout)
    try:
        lab.node_add(Node(name=NODE, kind="vm"))
        for item in OBJECTS:
            lab.kubectl("apply", "-f", "-", stdin=json.dumps(item))
        change_mode(lab, "iptables", "ipvs")
        lab.ssh(NODE, ["sh", "-c", OTHERS])
        wait("ipvs is live", lambda: ask(lab, "read")["proxy_mode"] == "ipvs", timeout_s=60, interval_s=1)
        last = [*(f":{port:04X} rr" for port in (443, NODE_PORT)), "KUBE-IPVS-OUT-FILTER", "KUBE-6-NODE-PORT-UDP"]
        wait("it serves", lambda: all(word in "\n".join(seen(lab)) for word in last), timeout_s=60, interval_s=1)
        yield lab
    finally:
        lab.node_remove(NODE)
        original = json.dumps({"data": config_map["data"]})
        lab.kubectl("-n", "kube-system", "patch", "configmap", "kube-proxy", "--type=merge", "-p", original)
        for kind in ("service", "endpoints"):
            lab.kubectl("delete", kind, "node-port", "--ignore-not-found")


def test_from_ipvs_to_iptables_and_back(machine: Lab):
    before = seen(machine)
    ask(machine, "watch", duration_s=120)
    change_mode(machine, "ipvs", "iptables")
    wait("iptables is live", lambda: ask(machine, "read")["proxy_mode"] == "iptables", timeout_s=60, interval_s=1)
    balance(machine)
    would = ask(machine, "settle", check=True, mode="iptables")
    done = ask(machine, "settle", mode="iptables")
    shown("ipvs to iptables", ask(machine, "collect")["service"])

    assert (done["in_kernel"], done["answers"], done["changed"]) == (True, True, True)
    assert (would["removed"], would["left"]) == (done["removed"], done["left"])
    assert done["left"] == ["virtual server TCP 127.0.0.1:30999: neither kube-ipvs0 nor a set of kube-proxy names it"]
    assert f"virtual server TCP 10.77.0.1{machine_number(machine)}:{NODE_PORT}" in done["removed"]
    after = seen(machine)
    assert {line for line in before if is_of_others(line)} <= set(after)
    servers = sorted(line for line in after if line.startswith("TCP"))
    assert servers == [f"TCP  7F000001:{port:04X} rr" for port in OTHER_PORTS]
    assert [line for line in after if line.startswith("KUBE-") or "ipvs" in line.lower()] == []
    assert any("-j KUBE-SVC-" in line for line in after)
    again = ask(machine, "settle", mode="iptables")
    assert (again["removed"], again["changed"]) == ([], False)

    ask(machine, "watch", duration_s=120)
    change_mode(machine, "iptables", "ipvs")
    done = ask(machine, "settle", mode="ipvs", timeout_s=60)
    shown("iptables to ipvs", ask(machine, "collect")["service"])

    assert (done["in_kernel"], done["answers"], done["left"]) == (True, True, [])
    back = seen(machine)
    assert {line for line in before if is_of_others(line)} <= set(back)
    assert [line for line in back if any(word in line for word in IPTABLES_ONLY)] == []
    assert '-A INPUT -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL' in back
    assert ask(machine, "settle", mode="ipvs")["removed"] == []


def shown(what: str, service: dict) -> None:
    """Print the figures, and hold them to what a restart by hand may cost."""
    print(f"{what}: longest gap {service['longest_gap_s']} s, {service['failures']} of {service['attempts']} failed")
    assert service["longest_gap_s"] < 5


def machine_number(lab: Lab) -> int:
    """The last digit of the machine's address."""
    return int(lab.ssh(NODE, ["hostname", "-I"]).stdout.split()[0][-1])


def is_of_others(line: str) -> bool:
    """Whether a line of C(seen) is none of kube-proxy's and kubelet's."""
    if line.startswith(("TCP", "UDP")):
        return line.startswith("TCP  7F000001:")
    return "KUBE" not in line and "kube" not in line and not line.startswith((":", "cali", "veth"))
