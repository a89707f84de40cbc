# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube-proxy's rules as texts: those of a mode, and what is left over of the others, with what removes it.

Sources: pkg/proxy/iptables, ipvs and nftables of Kubernetes 1.19 to 1.34 (chains, cleanup), and of kubelet
(pkg/kubelet/kubelet_network_linux.go).
"""

from __future__ import annotations

import json
import re

# Of others: kubelet (KUBE-MARK-DROP up to 1.27), kube-router, and the hostPorts of dockershim and CRI-O.
FOREIGN = re.compile(
    r"KUBE-(?:FIREWALL|KUBELET-CANARY|IPTABLES-HINT|MARK-DROP|ROUTER-.+|POD-FW-.+|NWPLCY-.+|SRC-.+|DST-.+|HOSTPORTS|HP-.+)"
)
OWN = re.compile(r"KUBE-.+")
# Chains by the mode that alone makes them.
IPTABLES_ONLY = re.compile(r"KUBE-(?:SVC|SEP|SVL|EXT|XLB|FW)-.+|KUBE-(?:EXTERNAL-SERVICES|NODEPORTS|PROXY-FIREWALL)")
IPVS_ONLY = re.compile(r"KUBE-(?:NODE-PORT|LOAD-BALANCER(?:-FW)?|SOURCE-RANGES-FIREWALL|IPVS-(?:OUT-)?FILTER)")
OTHER_MODE = {"iptables": IPVS_ONLY, "ipvs": IPTABLES_ONLY}
CHAIN = re.compile(r":(\S+) ")
RULE = re.compile(r"-A (\S+) ")
TARGET = re.compile(r"\s(?:-j|-g|--jump|--goto) (\S+)")
NFT_TABLE = "kube-proxy"


def is_own(name):
    """Whether a chain of iptables is kube-proxy's."""
    return OWN.fullmatch(name) is not None and FOREIGN.fullmatch(name) is None


def is_left_over(mode):
    """Return the test for chains that the other of the two modes of iptables has left beside a live mode."""
    return lambda name: OTHER_MODE[mode].fullmatch(name) is not None


def tables_of(save):
    """Return C([(table, [chains that can be removed], [rules])]) of a text of iptables-save."""
    found = []
    for line in save.splitlines():
        if line.startswith("*"):
            found.append((line[1:].strip(), [], []))
        elif line.startswith(":") and found:
            match = CHAIN.match(line)
            if match and line.split()[1] == "-":  # a built-in chain has a policy there
                found[-1][1].append(match.group(1))
        elif line.startswith("-A ") and found:
            found[-1][2].append(line)
    return found


def removal(save, is_wanted):
    """Return C((input of iptables-restore --noflush, [what it removes], [why a chain stays])).

    One transaction for each table: rules of other chains that lead into the chains, then the chains with their rules.
    A chain that somebody else's chain leads into stays, since it could not be removed. The first text is empty when
    there is nothing to do.

    :param save: a text of iptables-save. :param is_wanted: whether a chain of this name goes.
    """
    lines, removed, left = [], [], []
    for table, chains, rules in tables_of(save):
        gone = {name for name in chains if is_wanted(name)}
        kept, foreign = set(), {}
        for rule in rules:
            chain, target = RULE.match(rule).group(1), TARGET.search(rule)
            if target and target.group(1) in gone and chain not in gone and chain in chains and not is_own(chain):
                foreign[target.group(1)] = chain
        kept = _reached(set(foreign), gone, rules)
        gone -= kept
        left += [f"{table} {name}: chain {chain} of somebody else leads into it" for name, chain in foreign.items()]
        own = [f"-D{rule[2:]}" for rule in rules if _leads_into(rule, gone) and RULE.match(rule).group(1) not in gone]
        if gone:
            lines += [f"*{table}", *(f":{name} - [0:0]" for name in sorted(gone)), *own]
            lines += [*(f"-X {name}" for name in sorted(gone)), "COMMIT"]
            removed += [f"{table} {name}" for name in sorted(gone)]
    return "\n".join([*lines, ""]) if lines else "", removed, left


def _leads_into(rule, chains):
    target = TARGET.search(rule)
    return bool(target) and target.group(1) in chains


def _reached(start, within, rules):
    """The chains that can be reached from some of them, so that none that is kept leads into one that goes."""
    reached, before = set(start), None
    while before != reached:
        before = set(reached)
        for rule in rules:
            target = TARGET.search(rule)
            if target and RULE.match(rule).group(1) in reached and target.group(1) in within:
                reached.add(target.group(1))
    return reached


def serves(mode, address, saves, nft_json, servers):
    """Return whether the rules of a mode are there for the address of a Service.

    :param saves: texts of iptables-save. :param nft_json: texts of C(nft -j list ruleset). :param servers: text of
        /proc/net/ip_vs.
    """
    if mode == "nftables":
        return any(f'"{address}"' in text and f'"{NFT_TABLE}"' in text for text in nft_json)
    if mode == "ipvs":
        return any(item["address"] == address for item in servers)
    return any(f"-d {address}/" in line and "-j KUBE-SVC-" in line for text in saves for line in text.splitlines())


def nft_tables(nft_json):
    """Return C([(family, name)]) of kube-proxy's own tables in texts of C(nft -j list ruleset)."""
    found = []
    for text in nft_json:
        for item in json.loads(text).get("nftables", []):
            table = item.get("table", {})
            if table.get("name") == NFT_TABLE:
                found.append((table["family"], table["name"]))
    return found
