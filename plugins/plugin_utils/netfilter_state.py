# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All packet filters of one node, from the texts that a probe collected, and who made what in them.

What to collect without changing the node: C(/proc/net/ip_tables_names) and C(ip6_tables_names) first; the legacy save
commands only for a family whose file names a table, and never with C(-t), which would register that table; the nft
save commands and C(nft -j list ruleset) always, which only read.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator

from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_ip_rules import MarkedRoute, parse_ip_rules
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_nft import parse_nft_json
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_owners import (
    KUBE_PROXY,
    KUBELET,
    Claim,
    Owners,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_rules import (
    LEGACY,
    NATIVE,
    NFT,
    Chain,
    Rule,
    Table,
    parse_iptables_save,
)


@dataclasses.dataclass
class PacketFilters:
    """The tables and marked routing rules of one node, with their owners."""

    tables: list[Table]
    routes: list[MarkedRoute]
    owners: Owners

    def active(self) -> Iterator[Table]:
        """Tables that do something. A legacy table that was only registered, by a read or long ago, is none."""
        for table in self.tables:
            if table.backend != LEGACY or not table.is_idle:
                yield table

    def rules(self) -> Iterator[tuple[Table, Chain, Rule]]:
        """Every rule with where it stands."""
        for table in self.active():
            for chain in table.chains.values():
                for rule in chain.rules:
                    yield table, chain, rule

    def unparsed(self) -> list[str]:
        """Lines that were not understood, each with its table."""
        return [f"{table.place}: {line}" for table in self.tables for line in table.unparsed]

    def places(self, owner: str) -> list[str]:
        """Sorted tables (C(nft/filter), C(nft table ip calico)) where an owner has chains."""
        return self.chains_by_owner.get(owner, [])

    @functools.cached_property
    def chains_by_owner(self) -> dict[str, list[str]]:
        """For each owner the tables where it has a chain of its own, both families together."""
        found: dict[str, set[str]] = {}
        for table in self.active():
            if table.backend == NATIVE:
                if table.chains:
                    found.setdefault(self.owners.of_table(table).owner, set()).add(table.place)
                continue
            for chain in table.chains.values():
                if not chain.hook:
                    found.setdefault(self.owners.of_chain(table, chain.name).owner, set()).add(table.place)
        return {owner: sorted(places) for owner, places in sorted(found.items())}

    def native_tables(self) -> list[tuple[Table, Claim]]:
        """Tables that no iptables command shows, each with its owner."""
        return [(table, self.owners.of_table(table)) for table in self.tables if table.backend == NATIVE and table.name]

    def shared_chains(self) -> dict[str, list[str]]:
        """Chains that two owners keep: KUBE-FIREWALL of kubelet and kube-proxy, where only the latter makes IPv6's."""
        is_shared = any(table.family == "ip6" and "KUBE-FIREWALL" in table.chains for table in self.active())
        return {"KUBE-FIREWALL": [KUBELET, KUBE_PROXY]} if is_shared else {}

    def backends(self, owner: str) -> list[str]:
        """Sorted backends where an owner has chains."""
        return sorted(
            {NATIVE if place.startswith("nft table") else place.split("/")[0] for place in self.places(owner)}
        )


def read_packet_filters(
    *,
    saves: Iterable[str] = (),
    nft_json: str = "",
    ip_rules: Iterable[str] = (),
    running: frozenset[str] | None = None,
) -> PacketFilters:
    """Everything that the texts tell: any number of save outputs (the header tells backend and family), nft's JSON.

    A table that both tools show is taken from the save, which tells marks and comments; one that iptables cannot show
    is taken from the JSON.
    """
    tables: dict[tuple[str, str, str], Table] = {}
    for text in saves:
        for table in parse_iptables_save(text):
            tables[table.backend, table.family, table.name] = table
    saved_well = {key[1:] for key, table in tables.items() if key[0] == NFT and not table.incompatible}
    for table in parse_nft_json(nft_json, known=saved_well):
        key = (table.backend, table.family, table.name)
        saved = tables.get(key) or tables.get((NFT, table.family, table.name))
        if saved and saved.backend == NFT and saved.incompatible:
            table.incompatible = True
            tables.pop((NFT, table.family, table.name))
            saved = None
        if saved is None or table.backend == NATIVE:
            tables[key] = table
        else:
            _add_handles(saved, table)
    routes = [route for text in ip_rules for route in parse_ip_rules(text)]
    return PacketFilters(list(tables.values()), routes, Owners(running))


def _add_handles(saved: Table, table: Table) -> None:
    """Handles are the only trace of the order in which base chains were registered; the save has none."""
    saved.handle = table.handle
    for chain in table.chains.values():
        if chain.name in saved.chains:
            saved.chains[chain.name].handle = chain.handle
