# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the pods of the flat network proof saw of each other: findings, and a line on what was tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING, finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.pair_faults import FROM, blamed

REQUIREMENT = "secure-workload/Requirements for Policy Enforcement"
AGAIN = "then try again: preflight.yml --tags flat_network"


def flat_findings(proof: Mapping, engine: str = "native") -> list[dict]:
    """All findings. Only Secure Workload depends on a flat network; for the other engines they are warnings.

    :param proof: what flat_network returned.
    """
    severity = BLOCKER if engine == "secure_workload" else WARNING
    return [*_unreachable(proof, severity), *_masqueraded(proof, severity), *_unproven(proof)]


def _host(proof: Mapping, node: str) -> str:
    return proof["hosts"].get(node, node)


def _unreachable(proof: Mapping, severity: str) -> Iterator[dict]:
    tries = [(item["source"], item["target"], not item["seen"]) for item in proof["pairs"]]
    for (direction, node), pairs in blamed(tries).items():
        words = "do not reach pods on" if direction == FROM else "are not reached by pods on"
        names = sorted({_host(proof, target if direction == FROM else source) for source, target in pairs})
        yield finding(
            "network.pods_unreachable",
            severity=severity,
            requirement=REQUIREMENT,
            node=_host(proof, node),
            observed=f"pods on this node {words} {', '.join(names)} (TCP, tried twice)",
            expected="pods on each pair of nodes reach each other's pod address",
            remedy="look at the routes and tunnels of the network plugin on the node, at rules that drop forwarded "
            f"traffic, and at network policies that deny new namespaces, {AGAIN}",
        )


def _masqueraded(proof: Mapping, severity: str) -> Iterator[dict]:
    """Pods that were seen from an address that is not theirs."""
    found: dict[tuple[str, str], dict[str, set[str]]] = {}
    for item in proof["pairs"]:
        if item["seen"] and item["seen"] not in item["own"]:
            owner = proof["addresses"].get(item["seen"], "")
            # Who rewrote it: the node whose address it is, else the one that it left.
            at = owner or item["source"]
            entry = found.setdefault((at, item["seen"]), {"sources": set(), "targets": set()})
            entry["sources"].add(item["source"])
            entry["targets"].add(item["target"])
    for (node, seen), entry in found.items():
        sources, targets = ({_host(proof, name) for name in entry[key]} for key in ("sources", "targets"))
        whose = "this node's own address" if proof["addresses"].get(seen) == node else "not theirs"
        where, who = ", ".join(sorted(targets)), ", ".join(sorted(sources))
        yield finding(
            "network.source_masqueraded",
            severity=severity,
            requirement=REQUIREMENT,
            node=_host(proof, node),
            observed=f"pods on {where} see pods on {who} as {seen}, {whose}",
            expected="pods see each other's own addresses: no masquerading within the cluster",
            remedy="find the rule on the node (iptables-save -t nat, nft list ruleset: MASQUERADE, SNAT) and take pod "
            "addresses out of it: natOutgoing and the pools of Calico, --ip-masq of flannel, masqueradeAll and "
            f"clusterCIDR of kube-proxy, ip-masq-agent, {AGAIN}",
        )


def _unproven(proof: Mapping) -> Iterator[dict]:
    """Nodes on which no pod could be tried."""
    reasons: dict[str, list[str]] = {}
    for node, reason in proof["unstarted"].items():
        reasons.setdefault(reason, []).append(_host(proof, node))
    for reason, hosts in reasons.items():
        for host in hosts:
            yield finding(
                "network.flat_unproven",
                severity=WARNING,
                requirement=REQUIREMENT,
                node=host,
                observed=f"no pod could be tried on this node: {reason}",
                expected="a pod of the proof runs on each sampled node",
                remedy="mend what is named; the image is the busybox of portcullis_images, "
                f"which site.yml puts on every node, {AGAIN}",
            )


def tried_words(proof: Mapping) -> str:
    """What was tried, in a line: pairs of nodes, of how many, and what hostPort and NodePort do with an address."""
    nodes = sorted({item[key] for item in proof["pairs"] for key in ("source", "target")})
    pairs = {(item["source"], item["target"]) for item in proof["pairs"]}
    words = [f"flat network: {len(pairs)} pairs of pods on {len(nodes)} of {proof['of']} nodes"]
    words.append(f"({', '.join(_host(proof, node) for node in nodes)})" if nodes else "")
    words.append(_kept("hostPort", proof["host_ports"]))
    words += [
        _kept(f"NodePort {policy}", [item for item in proof["node_ports"] if item["policy"] == policy])
        for policy in sorted({item["policy"] for item in proof["node_ports"]})
    ]
    words += [f"; {what} not tried: {why}" for what, why in proof["notes"].items()]
    words.append(f"; {proof['left']}" if proof["left"] else "")
    return " ".join(word for word in words if word).replace(" ;", ";")


def _kept(what: str, items: Sequence[Mapping]) -> str:
    """How often a pod's address was kept."""
    seen = [item for item in items if item["seen"]]
    total = len(items)
    kept = sum(item["seen"] in item["own"] for item in seen)
    return f"; {what}: {len(seen)} of {total} answered, {kept} with the pod's own address" if total else ""
