# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who uses which bits of the packet mark on a node, and who uses another's.

A mask is judged as it is configured, not only as it shows in rules: Felix's endpoint bits, for one, are in no rule
until IPVS is used. A routing rule without a mask compares all 32 bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import combinations, permutations
from typing import NamedTuple

from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_ip_rules import owner_of_route
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_owners import (
    FELIX,
    SECURE_WORKLOAD,
    TAILSCALE,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_rules import ALL_BITS, PACKET, SET
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_state import PacketFilters

# Cisco Secure Workload on Kubernetes with Calico: bits 20 and 21.
SECURE_WORKLOAD_BITS = 0x300000
# What these use where their rules do not show all of it (Cilium and OVN mark in BPF and OVS).
CONFIGURED_BITS = {
    SECURE_WORKLOAD: SECURE_WORKLOAD_BITS,
    TAILSCALE: 0xFF0000,
    "cilium": 0xFFFF1FFF,
    "ovn-kubernetes": 0x1747FC,
    "weave": 0x60000,
    "istio": 0xFFF,
    "aws-vpc-cni": 0x80,
}
_EVIDENCE_KEPT = 3
_ROUTE = "route"


@dataclasses.dataclass
class MarkUser:
    """One owner's bits: set or cleared in rules, looked at in rules or routing rules, and configured (None: unknown).

    C(uses) are the rules' texts with the bits of each, one for each distinct use.
    """

    owner: str
    set_bits: int = 0
    matched_bits: int = 0
    # Looked at by routing rules, which no cooperation explains.
    routed_bits: int = 0
    # All but those of rules that take the whole mark.
    named_bits: int = 0
    configured: int | None = None
    uses: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    # Rules or routes that compare all 32 bits of the mark.
    whole: list[str] = dataclasses.field(default_factory=list)
    _seen: set = dataclasses.field(default_factory=set)

    @property
    def in_rules(self) -> int:
        """Bits that rules show."""
        return self.set_bits | self.matched_bits

    @property
    def bits(self) -> int:
        """Bits that are the owner's."""
        return self.in_rules if self.configured is None else self.configured | self.in_rules

    def add(self, text: str, kind: str, bits: int, value: int | None) -> None:
        """Take a use in, and keep its rule as evidence unless one of the same use is kept."""
        if kind == SET:
            self.set_bits |= bits
        else:
            self.matched_bits |= bits
        if kind == _ROUTE:
            self.routed_bits |= bits
        if bits == ALL_BITS:
            self.whole.append(text)
        else:
            self.named_bits |= bits
        if (kind, bits, value) not in self._seen:
            self._seen.add((kind, bits, value))
            self.uses.append((bits, text))

    def evidence(self, bits: int = ALL_BITS) -> list[str]:
        """Rules that use one of these bits, each once, at most three."""
        return list(dict.fromkeys(text for used, text in self.uses if used & bits))[:_EVIDENCE_KEPT]


class Collision(NamedTuple):
    """Two owners and the bits both claim; C(in_rules) are those that the rules of both show."""

    owners: tuple[str, str]
    overlap: int
    in_rules: int
    evidence: tuple[str, ...]


def mark_users(filters: PacketFilters, *, configured: Mapping[str, int] | None = None) -> list[MarkUser]:
    """Everybody who uses bits of the packet mark here, by name. C(configured) are masks that are known otherwise.

    Somebody who has no rule counts when C(configured) names him; C(CONFIGURED_BITS) only adds to who has rules.
    """
    given = dict(configured or {})
    users: dict[str, MarkUser] = {}

    def user(owner: str) -> MarkUser:
        known = given.get(owner, CONFIGURED_BITS.get(owner))
        return users.setdefault(owner, MarkUser(owner, configured=known))

    for table, chain, rule in filters.rules():
        uses = [use for use in rule.marks if use.space == PACKET]
        if not uses:
            continue
        found = user(filters.owners.of_rule(table, chain, rule).owner)
        text = rule.text if table.backend != "native" else f"{table.place} {chain.name}: {rule.text}"
        for use in uses:
            found.add(text, use.kind, use.bits, use.value)
    for route in filters.routes:
        found = user(owner_of_route(route, filters.owners.running).owner)
        found.add(f"ip rule {route.text}", _ROUTE, route.mask, route.value)
    for owner in given:
        user(owner)
    return [users[owner] for owner in sorted(users)]


def _only_reads(reader: MarkUser, writer: MarkUser) -> bool:
    """Whether C(reader) only looks at what C(writer) sets, in packet-filter rules with a mask: that is meant."""
    changes = reader.set_bits or reader.routed_bits or reader.configured is not None
    return not changes and not reader.in_rules & ~writer.set_bits


def collisions(users: list[MarkUser]) -> list[Collision]:
    """Pairs that claim the same bits. By hand with by hand is one user and never collides."""
    found = []
    for one, other in combinations(users, 2):
        overlap = one.bits & other.bits
        if overlap and not any(_only_reads(reader, writer) for reader, writer in permutations((one, other))):
            evidence = (*one.evidence(overlap), *other.evidence(overlap))
            found.append(Collision((one.owner, other.owner), overlap, one.in_rules & other.in_rules, evidence))
    return found


def bits_to_avoid(users: list[MarkUser]) -> int:
    """Bits that Felix should leave alone.

    A rule that takes the whole mark asks for all of them; no choice of Felix's mends that, the rule needs a mask.
    """
    avoid = 0
    for user in users:
        if user.owner != FELIX:
            avoid |= (user.configured or 0) | user.named_bits
    return avoid
