# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which node tries which port of which other, so that traffic stays bounded in a large cluster.

Among few nodes all pairs are tried. Among many, each node tries those 1, 2, 4, 8... places further in a ring, n log n
pairs in all: each node sends and is sent to, and one that hears nothing is told from one that is not heard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ansible_collections.portcullis.fleet.plugins.plugin_utils.port_needs import Need, Target

ALL_PAIRS_UP_TO = 8
# Of a service with many endpoints each node tries so many; together they try all.
ENDPOINTS_EACH = 3


def distances(count: int) -> list[int]:
    """How far in the ring the nodes are that each of C(count) nodes tries."""
    if count <= ALL_PAIRS_UP_TO:
        return list(range(1, count))
    return [1 << power for power in range(count.bit_length()) if 1 << power < count]


def pairs_of(need: Need, present: set[str]) -> Iterator[tuple[str, Target]]:
    """The pairs of a need that are tried: source and target.

    :param present: the nodes that take part. A target that is none of the cluster's nodes always does.
    """
    sources = [name for name in need.sources if name in present]
    if not need.is_mesh:
        targets = list(need.targets)
        for at, source in enumerate(sources):
            for step in range(min(ENDPOINTS_EACH, len(targets))):
                target = targets[(at + step) % len(targets)]
                if target.node != source:
                    yield source, target
        return
    by_node = {item.node: item for item in need.targets}
    networks = dict(need.networks)
    for at, source in enumerate(sources):
        for distance in distances(len(sources)):
            target = by_node[sources[(at + distance) % len(sources)]]
            if not (need.other_subnet and networks.get(source) and networks.get(source) == networks.get(target.node)):
                yield source, target


def make_plan(needs: list[Need], hosts: Mapping[str, str], nonce: str) -> dict:
    """Who watches what and tries what.

    :param hosts: inventory names by node, of the nodes that take part. :param nonce: 16 hexadecimal digits.
    :returns: C({nonce, deadline_s, needs, hosts, notes}). C(hosts) has by inventory name C(number), and what
        node_reachability takes, C(ports) and C(attempts), with C(tries) that says of each attempt which need it is and
        who is meant.
    """
    numbers = {host: number for number, host in enumerate(hosts.values(), start=1)}
    parts = {host: {"number": number, "ports": [], "attempts": [], "tries": []} for host, number in numbers.items()}
    described = []
    for index, need in enumerate(needs):
        count = 0
        for source, target in pairs_of(need, set(hosts)):
            host = hosts.get(target.node, "")
            attempt = {"protocol": need.protocol, "port": need.port, "address": target.address}
            parts[hosts[source]]["attempts"].append({**attempt, "target": numbers.get(host, 0)})
            parts[hosts[source]]["tries"].append({"need": index, "target": host, "address": target.address})
            count += 1
        for target in need.targets:
            port = {"protocol": need.protocol, "port": need.port}
            if target.node in hosts and port not in parts[hosts[target.node]]["ports"]:
                parts[hosts[target.node]]["ports"].append(port)
        described.append(
            {
                "name": need.name,
                "words": need.words,
                "why": need.why,
                "pairs": count,
                "protocol": need.protocol,
                "port": need.port,
                "owners": None if need.owners is None else list(need.owners),
                "serves": need.serves,
                "is_mesh": need.is_mesh,
                "bypasses_sockets": need.bypasses_sockets,
            }
        )
    # Steps run on all nodes one after another, a few at a time; a watcher has to outlive them all.
    deadline_s = min(3600, 120 + 2 * len(numbers))
    return {"nonce": nonce, "deadline_s": deadline_s, "needs": described, "hosts": parts}
