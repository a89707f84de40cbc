# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube-proxy's rules as texts: those of a mode, and what is left over of the others, with what removes it.

A chain is kube-proxy's by its table and name, a rule of a built-in chain by its whole text. Sources: pkg/proxy of
Kubernetes 1.14 to 1.34 (iptables, ipvs, nftables: chains, jumps, cleanup), pkg/kubelet/kubelet_network_linux.go.
"""

from __future__ import annotations

import re
from typing import NamedTuple

IPTABLES, IPVS = frozenset({"iptables"}), frozenset({"ipvs"})
BOTH = IPTABLES | IPVS
# Which modes make a chain. The suffix is of a digest in base32. KUBE-FIREWALL of the table filter is kubelet's.
CHAINS = {
    "nat": (
        (BOTH, re.compile("KUBE-(?:SERVICES|POSTROUTING|MARK-MASQ)")),
        (IPTABLES, re.compile("KUBE-(?:NODEPORTS|PROXY-CANARY|(?:SVC|SVL|SEP|FW|EXT|XLB)-[A-Z2-7]{16})")),
        (IPVS, re.compile("KUBE-(?:NODE-PORT|LOAD-BALANCER|FIREWALL)")),
    ),
    "filter": (
        (BOTH, re.compile("KUBE-(?:FORWARD|PROXY-FIREWALL)")),
        (IPTABLES, re.compile("KUBE-(?:SERVICES|EXTERNAL-SERVICES|NODEPORTS|PROXY-CANARY)")),
        (IPVS, re.compile("KUBE-(?:NODE-PORT|SOURCE-RANGES-FIREWALL|IPVS-FILTER|IPVS-OUT-FILTER)")),
    ),
    "mangle": ((IPTABLES, re.compile("KUBE-PROXY-CANARY")),),
}
# The comments of the jumps from built-in chains, by where they lead, and which modes make them.
JUMPS = {
    "KUBE-SERVICES": {"kubernetes service portals": BOTH},
    "KUBE-POSTROUTING": {"kubernetes postrouting rules": BOTH},
    "KUBE-FORWARD": {"kubernetes forwarding rules": BOTH},
    "KUBE-EXTERNAL-SERVICES": {"kubernetes externally-visible service portals": IPTABLES},
    "KUBE-NODEPORTS": {"kubernetes health check service ports": IPTABLES},
    "KUBE-PROXY-FIREWALL": {"kubernetes load balancer firewall": IPTABLES, "kube-proxy firewall rules": IPVS},
    "KUBE-NODE-PORT": {"kubernetes health check rules": IPVS},
    "KUBE-IPVS-FILTER": {"kubernetes ipvs access filter": IPVS},
    "KUBE-IPVS-OUT-FILTER": {"kubernetes ipvs access filter": IPVS},
}
# Up to 1.27 kubelet makes KUBE-MARK-DROP and these, beside kube-proxy.
OLD_KUBELET, OF_OLD_KUBELET = "KUBE-MARK-DROP", frozenset({"KUBE-MARK-MASQ", "KUBE-POSTROUTING"})
CHAIN = re.compile(r":(\S+) -")  # a built-in one has a policy there
RULE = re.compile(r"-A (\S+)")
TARGET = re.compile(r" (?:-j|-g) (\S+)")
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
NEW = r"(?: -m conntrack --ctstate NEW)?"
JUMP = re.compile(rf'-A \S+{NEW} -m comment --comment "([^"]*)"{NEW} -j (\S+)')
HASHED = re.compile("(KUBE-(?:SVC|SVL|SEP|FW|EXT|XLB)-)[A-Z2-7]{16}")
INCOMPATIBLE = re.compile(r"^#? ?Table [`'](\w+)' is incompatible", re.MULTILINE)
NFT_TABLE = re.compile("table (?:ip|ip6) kube-proxy")


def makers(table, chain):
    """The modes in which kube-proxy makes a chain; empty for one that is not kube-proxy's."""
    return next((modes for modes, names in CHAINS.get(table, ()) if names.fullmatch(chain)), frozenset())


def jump_makers(rule):
    """The modes in which kube-proxy makes a rule of a built-in chain; empty for one that is not kube-proxy's."""
    match = JUMP.fullmatch(rule)
    return JUMPS.get(match.group(2), {}).get(match.group(1), frozenset()) if match else frozenset()


class Rule(NamedTuple):
    """A rule: its chain, where it leads (a chain, a target or empty), and its text."""

    chain: str
    target: str
    text: str


def rule_of(line):
    """The rule of a line C(-A ...); a comment may look like a target."""
    target = TARGET.search(QUOTED.sub('""', line))
    return Rule(RULE.match(line).group(1), target.group(1) if target else "", line)


def tables_of(save):
    """Return C([(table, {chains that can be removed}, [rules])]) of a text of iptables-save."""
    found = []
    for line in save.splitlines():
        if line.startswith("*"):
            found.append((line[1:].strip(), set(), []))
        elif line.startswith(":") and found:
            match = CHAIN.match(line)
            if match:
                found[-1][1].add(match.group(1))
        elif RULE.match(line) and found:
            found[-1][2].append(rule_of(line.rstrip()))
    return found


def own_chains(save):
    """kube-proxy's chains in a text of iptables-save."""
    return [name for table, chains, _rules in tables_of(save) for name in chains if makers(table, name)]


def removal(save, live):
    """Return C((input of iptables-restore --noflush, [what it removes], [what stays, and why])).

    Everything of kube-proxy goes that it does not make in the mode C(live), in one transaction for each table: jumps,
    then chains with their rules. The first text is empty when there is nothing to do.

    :param save: a text of iptables-save. :param live: the mode that runs with this backend; empty when none does.
    """
    lines, removed, left = [], [], []
    for table, chains, rules in tables_of(save):
        gone, unlinked, reasons = _leftovers(table, chains, rules, live)
        left += reasons
        if gone or unlinked:
            lines += [f"*{table}", *(f":{name} - [0:0]" for name in sorted(gone))]
            lines += [f"-D{rule.text[2:]}" for rule in unlinked]
            lines += [*(f"-X {name}" for name in sorted(gone)), "COMMIT"]
            removed += [f"{table} {name}" for name in summary(gone)]
            removed += [f"{table} {rule.text[3:]}" for rule in unlinked if rule.target not in gone]
    left += [f"{table}: it has rules that iptables does not show" for table in INCOMPATIBLE.findall(save)]
    return "\n".join([*lines, ""]) if lines else "", removed, left


def _leftovers(table, chains, rules, live):
    """Return C(({chains that go}, [rules of other chains that go], [why chains stay]))."""
    made = {name: modes for name, modes in ((name, makers(table, name)) for name in chains) if modes}
    gone = {name for name, modes in made.items() if live not in modes}
    shared = gone & OF_OLD_KUBELET if OLD_KUBELET in chains else set()
    gone -= shared
    reasons = [f"{table} {name}: kubelet, which made {OLD_KUBELET}, makes it too" for name in sorted(shared)]
    foreign, unlinked = {}, []
    for rule in rules:
        if rule.chain in made or rule.target not in made or rule.target in shared:
            continue
        modes = jump_makers(rule.text) if rule.chain not in chains else frozenset()
        # Where a jump leads may be another mode's chain in this table.
        if modes and live not in modes & made[rule.target]:
            unlinked.append(rule)
        elif rule.target in gone:
            foreign.setdefault(rule.target, rule)
    kept = _reached(foreign, gone, rules)
    gone -= kept
    # A live chain that has not been written anew yet.
    staying = made.keys() - gone - kept
    unlinked += [rule for rule in rules if rule.target in gone and rule.chain in staying]
    reasons += [f"{table} {name}: somebody else's rule leads into it: {foreign[name].text}" for name in sorted(foreign)]
    return gone, unlinked, reasons


def _reached(start, within, rules):
    """The chains that can be reached from some of them, so that none that stays leads into one that goes."""
    leads = {}
    for rule in rules if start else ():
        if rule.target in within:
            leads.setdefault(rule.chain, set()).add(rule.target)
    reached, waiting = set(), list(start)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting.extend(leads.get(name, ()))
    return reached


def summary(chains):
    """Chains by name; those of Services, which can be ten thousands, by kind with their number."""
    counts, named = {}, []
    for name in sorted(chains):
        match = HASHED.fullmatch(name)
        if match:
            counts[match.group(1)] = counts.get(match.group(1), 0) + 1
        else:
            named.append(name)
    return named + [f"{kind}* ({count})" for kind, count in counts.items()]


def serves(mode, address, saves, nft_map, servers):
    """Return whether the rules of a mode are there for the address of a Service.

    :param saves: texts of iptables-save. :param nft_map: text of the map C(service-ips). :param servers: as
        C(kube_proxy_ipvs.read_virtual_servers) returns them. kube-proxy makes them before the rules that masquerade.
    """
    if mode == "nftables":
        return re.search(rf"(?<![\w.:]){re.escape(address)} \. ", nft_map) is not None
    lines = [line for text in saves for line in text.splitlines()]
    if mode == "ipvs":
        name = "KUBE-6-CLUSTER-IP" if ":" in address else "KUBE-CLUSTER-IP"
        has_rules = any(line.startswith("-A KUBE-SERVICES ") and f"--match-set {name} " in line for line in lines)
        return has_rules and any(item["address"] == address for item in servers)
    return any(f"-d {address}/" in line and "-j KUBE-SVC-" in line for line in lines)


def nft_tables(text):
    """Return the lines of kube-proxy's own tables, such as C(table ip kube-proxy), in a text of C(nft list tables)."""
    return [line for line in text.splitlines() if NFT_TABLE.fullmatch(line)]
