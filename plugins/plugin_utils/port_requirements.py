# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What came of the ports that were tried between nodes: findings, and a line on what was tried."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING, finding
from ansible_collections.portcullis.fleet.plugins.module_utils.port_send import CONNECTED, NO_ANSWER, REFUSED, SENT
from ansible_collections.portcullis.fleet.plugins.plugin_utils.pair_faults import FROM, TO, blamed
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import one_line

REQUIREMENT = "calico/Network requirements"
# The steps of node_reachability, under the names of what they registered.
WATCH, TRY, COLLECT = "watch", "try", "collect"
REASONS_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One attempt. fault: what is wrong, empty when it arrived. unknown: why nobody can tell."""

    need: int
    source: str
    target: str
    address: str
    fault: str = ""
    unknown: str = ""

    @property
    def goal(self) -> str:
        """Who was tried, by inventory name where it is in the run."""
        return self.target or self.address


def reachability_findings(reachability: Mapping) -> list[dict]:
    """All findings.

    :param reachability: C({plan, watch, try, collect}): what reachability_plan returned, and by inventory name what
        each step of node_reachability registered.
    """
    plan = reachability["plan"]
    attempts = list(attempts_of(reachability))
    found = list(_taken(plan, reachability[WATCH]))
    for index, need in enumerate(plan["needs"]):
        found += _unreachable(need, [item for item in attempts if item.need == index])
    return found + list(_unseen(plan, attempts))


def attempts_of(reachability: Mapping) -> Iterator[Attempt]:
    """Every attempt of the plan with what came of it."""
    plan = reachability["plan"]
    for host, part in plan["hosts"].items():
        tried = reachability[TRY].get(host) or {}
        outcomes = tried.get("outcomes")
        for at, item in enumerate(part["tries"]):
            attempt = Attempt(item["need"], host, item["target"], item["address"])
            if outcomes is None or at >= len(outcomes):
                yield dataclasses.replace(attempt, unknown=f"{host} sent nothing: {_why(tried)}")
                continue
            yield _judged(attempt, plan, outcomes[at], reachability[COLLECT].get(item["target"]) or {})


def _judged(attempt: Attempt, plan: Mapping, outcome: Mapping, collected: Mapping) -> Attempt:
    """An attempt with what its outcome and the target's watcher say."""
    need, said = plan["needs"][attempt.need], outcome["outcome"]
    seen = collected.get("seen")
    if said == CONNECTED:
        return attempt
    if said == SENT:
        if seen is None:
            return dataclasses.replace(attempt, unknown=f"{attempt.goal} did not watch: {_why(collected)}")
        expected = (
            need["protocol"],
            need["port"],
            plan["hosts"][attempt.source]["number"],
            plan["hosts"][attempt.target]["number"],
        )
        arrived = any(
            (item["protocol"], item["port"], item.get("source"), item.get("target")) == expected for item in seen
        )
        return attempt if arrived else dataclasses.replace(attempt, fault="sent, and did not arrive")
    if said in (REFUSED, NO_ANSWER) and not need["serves"]:
        if seen is None:
            return dataclasses.replace(attempt, unknown=f"{attempt.goal} did not watch: {_why(collected)}")
        asked = {key: need[key] for key in ("protocol", "port")} | {"source_port": outcome["source_port"]}
        arrived = any(asked.items() <= item.items() for item in seen)
        # It came through. That nobody listens, or BIRD answers to signed packets alone, is not the network's fault.
        words = {NO_ANSWER: "no answer within 3 s", REFUSED: "rejected on the way"}[said]
        return attempt if arrived else dataclasses.replace(attempt, fault=words)
    words = {NO_ANSWER: "no answer within 3 s", REFUSED: "connection refused"}.get(said, said)
    return dataclasses.replace(attempt, fault=words)


def _why(result: Mapping) -> str:
    """Why a step gave no result."""
    if result.get("msg"):
        return one_line(result["msg"])
    return "its watching process was gone" if "seen" in result else "the step did not run there"


def _unreachable(need: Mapping, attempts: list[Attempt]) -> Iterator[dict]:
    """Findings of one need, at the end where the fault is."""
    tried = [item for item in attempts if not item.unknown]
    faults = {(item.source, item.goal): item.fault for item in tried if item.fault}
    outside = {item.goal for item in tried if not item.target}
    tries = [(item.source, item.goal, bool(item.fault)) for item in tried]
    for (direction, node), pairs in blamed(tries, outside).items():
        others = list(dict.fromkeys(target if direction == FROM else source for source, target in pairs))
        causes = list(dict.fromkeys(faults[pair] for pair in pairs))
        is_ipv6 = any(":" in item.address for item in tried if (item.source, item.goal) in pairs)
        program = "ip6tables" if is_ipv6 else "iptables"
        is_host = direction == FROM or node not in outside
        yield _finding(need, direction, node, is_host=is_host, others=others, causes=causes, program=program)


def _finding(
    need: Mapping, direction: str, node: str, *, is_host: bool, others: list[str], causes: list[str], program: str
) -> dict:
    end = "to" if direction == FROM else "from"
    where = f" at {node}" if not is_host else ""
    return finding(
        "network.port_unreachable",
        severity=WARNING if need["bypasses_sockets"] else BLOCKER,
        requirement=REQUIREMENT,
        node=node if is_host else "",
        observed=f"{need['words']}{where} {end} {', '.join(others)}: {'; '.join(causes)}",
        expected=f"{need['words']} gets through, since {need['why']}"
        if need["is_mesh"]
        else f"{need['words']} answers every node, since it is one of {need['why']}",
        remedy=_remedy(need, direction, program),
    )


def _remedy(need: Mapping, direction: str, program: str) -> str:
    match = "-p 4" if need["protocol"] == "ipip" else f"-p {need['protocol']} --dport {need['port']}"
    chain = "OUTPUT" if direction == FROM else "INPUT"
    service = f"; look whether {need['name']} runs there" if need["serves"] and direction == TO else ""
    return (
        f"find the rule that drops it ({program}-save, nft list ruleset, security groups between the nodes), or on the "
        f"node: {program} -I {chain} {match} -j ACCEPT{service}; then try again: preflight.yml --tags ports"
    )


def _taken(plan: Mapping, watched: Mapping[str, Mapping]) -> Iterator[dict]:
    """Ports that another program holds, or another WireGuard interface."""
    for host in plan["hosts"]:
        result = watched.get(host) or {}
        holders: dict[tuple, set[str]] = {}
        for index, need in enumerate(plan["needs"]):
            if need["owners"] is None:
                continue
            for item in result.get("listeners", []):
                if (item["protocol"], item["port"]) != (need["protocol"], need["port"]):
                    continue
                holder = _foreign(need, item, result.get("tunnels", {}))
                if holder:
                    holders.setdefault((index, holder), set()).add(item["address"])
        for (index, holder), addresses in holders.items():
            need = plan["needs"][index]
            yield finding(
                "network.port_taken",
                severity=BLOCKER,
                requirement=REQUIREMENT,
                node=host,
                observed=f"{need['words']} is held by {holder} on {', '.join(sorted(addresses))}",
                expected=f"{need['words']} is free for {_expected(need)}, since {need['why']}",
                remedy=f"stop {holder} on the node or give it another port, then restart calico-node there",
            )


def _foreign(need: Mapping, listener: Mapping, tunnels: Mapping) -> str:
    """Who holds a port that is not the one who shall, empty when it is."""
    name = listener["name"]
    if name:
        return "" if name in need["owners"] else name
    interfaces = tunnels.get("wireguard") or []
    if need["name"] != "WireGuard" or not interfaces or any("cali" in item for item in interfaces):
        return ""
    return f"the WireGuard interface {', '.join(interfaces)}"


def _expected(need: Mapping) -> str:
    return "the kernel" if not need["owners"] else "Calico" if need["name"] != "Typha" else "Typha"


def _unseen(plan: Mapping, attempts: list[Attempt]) -> Iterator[dict]:
    """One finding of what could not be tried at all."""
    reasons = list(dict.fromkeys(item.unknown for item in attempts if item.unknown))
    reasons += [f"{what}: {why}" for what, why in plan.get("unseen", {}).items()]
    if not reasons:
        return
    more = f"; and {len(reasons) - REASONS_SHOWN} more" if len(reasons) > REASONS_SHOWN else ""
    count = sum(bool(item.unknown) for item in attempts)
    yield finding(
        "network.ports_unseen",
        severity=WARNING,
        requirement=REQUIREMENT,
        observed=f"{count} of {len(attempts)} attempts say nothing: {'; '.join(reasons[:REASONS_SHOWN])}{more}",
        expected="every port that is needed is tried from the nodes that need it",
        remedy="mend what is named, then try again: preflight.yml --tags ports",
    )


def tried_words(reachability: Mapping) -> str:
    """What was tried, in a line: which needs, between how many pairs, how many nodes there are."""
    plan = reachability["plan"]
    count = len(plan["hosts"])
    rows = [f"{need['words']} {need['pairs']} pairs" for need in plan["needs"] if need["pairs"]]
    return f"ports tried between {count} nodes: {', '.join(rows) or 'none is needed'}"
