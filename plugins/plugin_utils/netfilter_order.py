# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""In which order the owners' chains see a packet, and where one of them never does.

Inside one base chain the first rule that decides wins. Between base chains at one hook every one is asked: an accept
ends only its own chain, a drop is final (nft(8), VERDICT STATEMENT).
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_nft import priority_text
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_owners import FELIX, KUBE_PROXY
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_rules import (
    MATCH,
    NATIVE,
    VERDICTS,
    Chain,
    Rule,
    Table,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_state import PacketFilters

ORDERED_TABLES = ("filter", "mangle")
ORDERED_HOOKS = ("INPUT", "FORWARD", "OUTPUT")
EVERYTHING = "everything"
NETWORK = "network"
_REFUSALS = frozenset(("DROP", "REJECT"))
# A shorter prefix can be a pod network; a longer one is a few hosts that somebody lets through on purpose.
_LONGEST_NETWORK = {4: 26, 6: 122}
_TELLING_CHAINS = {"filter": ("FORWARD", "cali-INPUT"), "mangle": ("cali-PREROUTING",)}
_NAT_PRIORITY = {"prerouting": -100, "output": -100, "input": 100, "postrouting": 100}


class Entry(NamedTuple):
    """One rule of a base chain: C(name) is its target; the position counts from 1."""

    position: int
    owner: str
    name: str
    rule: Rule

    def __str__(self) -> str:
        return f"{self.position} {self.owner}: {self.name}"


@dataclasses.dataclass(frozen=True)
class HookOrder:
    """A base chain of iptables, rule by rule. C(felix) is where its jump stands: first, last, between, only, absent."""

    table: Table
    chain: Chain
    entries: tuple[Entry, ...]
    felix: str
    before: tuple[Entry, ...]
    after: tuple[Entry, ...]

    @property
    def place(self) -> str:
        """C(nft/filter/INPUT)."""
        return f"{self.table.place}/{self.chain.name}"

    def before_that_can(self, verdicts: Iterable[str]) -> list[str]:
        """Names of rules before Felix's jump that can lead to one of these verdicts."""
        wanted = frozenset(verdicts)
        names = [entry.name for entry in self.before if reachable_verdicts(self.table, entry.rule) & wanted]
        return list(dict.fromkeys(names))

    def before_that_can_accept(self) -> list[str]:
        """Names of rules that can let a packet through before Felix sees it."""
        return self.before_that_can(("ACCEPT",))

    def before_that_can_refuse(self) -> list[str]:
        """Names of rules that can drop or reject a packet before Felix sees it."""
        return self.before_that_can(_REFUSALS)


class EarlyAccept(NamedTuple):
    """A rule that lets through all packets, or all of a network, with rules behind it that never see them.

    C(chain) is the base chain and C(position) the rule there; C(rule) may stand in a chain that is jumped to.
    """

    table: Table
    chain: str
    position: int
    owner: str
    kind: str
    rule: Rule
    never_reached: tuple[str, ...]
    hides_felix: bool


class BaseChain(NamedTuple):
    """A base chain at a hook, with its owner."""

    table: Table
    chain: Chain
    owner: str

    def __str__(self) -> str:
        chain = self.chain
        priority = priority_text(chain.priority or 0, chain.hook)
        return (
            f"{self.table.family} {self.table.name} {chain.name}: {chain.type} hook {chain.hook} priority {priority} "
            f"policy {chain.policy.lower()} ({self.owner})"
        )


def reachable_verdicts(table: Table, rule: Rule) -> frozenset[str]:
    """Verdicts that a rule can lead to, through every chain it jumps to. RETURN only when the rule itself says it."""
    found, seen = set(), set()
    waiting = [rule]
    while waiting:
        current = waiting.pop()
        for target in (current.target, *current.branches):
            if target in VERDICTS:
                if target != "RETURN" or current is rule:
                    found.add(target)
            elif target in table.chains and target not in seen:
                seen.add(target)
                waiting.extend(table.chains[target].rules)
    return frozenset(found)


def hook_orders(filters: PacketFilters, *, tables: Iterable[str] = ORDERED_TABLES) -> list[HookOrder]:
    """The order in each base chain for INPUT, FORWARD and OUTPUT of these tables of iptables, both backends."""
    wanted = frozenset(tables)
    return [
        _order(filters, table, table.chains[name])
        for table in filters.active()
        if table.backend != NATIVE and table.name in wanted
        for name in ORDERED_HOOKS
        if name in table.chains
    ]


def _order(filters: PacketFilters, table: Table, chain: Chain) -> HookOrder:
    entries = tuple(
        Entry(position, filters.owners.of_rule(table, chain, rule).owner, rule.target, rule)
        for position, rule in enumerate(chain.rules, 1)
    )
    jumps = [entry for entry in entries if entry.owner == FELIX and entry.name in table.chains]
    if not jumps:
        return HookOrder(table, chain, entries, "absent", (), ())
    at = jumps[0].position
    foreign = [entry for entry in entries if entry.owner != FELIX]
    before = tuple(entry for entry in foreign if entry.position < at)
    after = tuple(entry for entry in foreign if entry.position > at)
    felix = {(False, False): "only", (False, True): "first", (True, False): "last", (True, True): "between"}
    return HookOrder(table, chain, entries, felix[bool(before), bool(after)], before, after)


def felix_allow_actions(filters: PacketFilters) -> dict[str, str]:
    """What Felix's rules do with a packet that policy allowed, by table: C(ACCEPT) or C(RETURN).

    In filter the rule at the end of FORWARD tells it, where there is none the first of cali-INPUT; in mangle that of
    cali-PREROUTING. The raw table accepts whatever is configured and tells nothing.
    """
    found = {}
    for table in filters.active():
        for name, chains in _TELLING_CHAINS.items():
            if table.backend == NATIVE:
                action = _allow_action(filters, table, tuple(f"{name}-{chain}" for chain in chains))
                place = f"{table.place}/{name}"
            elif table.name == name:
                action, place = _allow_action(filters, table, chains), table.place
            else:
                continue
            if action:
                found.setdefault(place, action)
    return found


def _allow_action(filters: PacketFilters, table: Table, chains: tuple[str, ...]) -> str:
    for chain in (table.chains[name] for name in chains if name in table.chains):
        for rule in chain.rules:
            tells = rule.target in ("ACCEPT", "RETURN") and _only_looks_at_marks(rule)
            if tells and filters.owners.of_rule(table, chain, rule).owner == FELIX:
                return rule.target
    return ""


def _only_looks_at_marks(rule: Rule) -> bool:
    return any(use.kind == MATCH for use in rule.marks) and all(
        option == "--mark" or (option, value) == ("-m", "mark") or option.startswith("meta mark")
        for option, value in rule.conditions
    )


def early_accepts(filters: PacketFilters, *, pod_networks: Iterable[str] = ()) -> list[EarlyAccept]:
    """Rules that let through everything, or the pods' networks ahead of Felix, so that what follows is void."""
    networks = [ipaddress.ip_network(text, strict=False) for text in pod_networks]
    found = []
    for order in hook_orders(filters):
        jumps = [entry.position for entry in order.entries if entry.owner == FELIX and entry.name in order.table.chains]
        last_jump = jumps[-1] if jumps else 0
        for entry in order.entries[:-1]:
            hides_felix = entry.position < last_jump
            kind, rule = _accepted_by(order.table, entry.rule, networks if hides_felix else None, set())
            if kind and entry.owner != FELIX:
                names = tuple(other.name for other in order.entries[entry.position :])
                place = (order.table, order.chain.name, entry.position, entry.owner)
                found.append(EarlyAccept(*place, kind, rule, names, hides_felix))
                if kind == EVERYTHING:
                    break
    return found


def _accepted_by(table: Table, rule: Rule, networks: list | None, seen: set[str]) -> tuple[str, Rule]:
    """Whether a rule lets everything through, or (unless C(networks) is None) all of a network, and by which rule."""
    is_open = not rule.conditions
    if rule.target == "ACCEPT":
        if is_open:
            return EVERYTHING, rule
        if networks is not None and _is_network_wide(rule, networks):
            return NETWORK, rule
        return "", rule
    if not is_open or rule.target not in table.chains or rule.target in seen:
        return "", rule
    seen.add(rule.target)
    widest = ("", rule)
    for inner in table.chains[rule.target].rules:
        kind, by = _accepted_by(table, inner, networks, seen)
        if kind == EVERYTHING:
            return kind, by
        if kind and not widest[0]:
            widest = (kind, by)
        if inner.target == "RETURN" or inner.is_goto or (not inner.conditions and inner.target in VERDICTS):
            break
    return widest


def _is_network_wide(rule: Rule, networks: list) -> bool:
    """Whether nothing but networks of pods, or the interfaces of all pods, is asked for."""
    for option, value in rule.conditions:
        if option in ("-i", "-o"):
            if value not in ("cali+", "cali*"):
                return False
        elif option in ("-s", "-d"):
            if not _is_pod_network(value, networks):
                return False
        else:
            return False
    return True


def _is_pod_network(text: str, networks: list) -> bool:
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    if networks:
        return any(
            network.version == pods.version and network.overlaps(pods) and network.prefixlen <= pods.prefixlen
            for pods in networks
        )
    return network.prefixlen <= _LONGEST_NETWORK[network.version]


def base_chains(filters: PacketFilters, hook: str, family: str = "ip") -> list[BaseChain]:
    """Base chains of a family at a hook, in the order in which the kernel runs them.

    By priority; of equal ones the last registered runs first (measured on 6.18), which handles tell as long as no
    chain was added to an old table later; legacy tables have none and come last. All nat chains run at one priority.
    """
    families = (family, "inet")
    found = []
    for table in filters.active():
        for chain in table.chains.values():
            if table.family in families and chain.hook == hook:
                owner = "" if table.backend != NATIVE else filters.owners.of_table(table).owner
                found.append(BaseChain(table, chain, owner))
    return sorted(found, key=lambda item: _kernel_order(item, hook))


def _kernel_order(item: BaseChain, hook: str) -> tuple[int, int, int, int]:
    priority = item.chain.priority or 0
    outer = _NAT_PRIORITY.get(hook, priority) if item.chain.type == "nat" else priority
    return outer, priority, -item.table.handle, -item.chain.handle


def refuses_the_rest(table: Table, chain: Chain) -> str:
    """The policy or the rule by which a chain refuses whatever it does not let through; empty when it refuses none."""
    for rule in chain.rules:
        if not rule.conditions:
            found = _unconditional_refusal(table, rule, set())
            if found:
                return found
            if rule.target in VERDICTS:
                return ""
    return "policy drop" if chain.policy == "DROP" else ""


def _unconditional_refusal(table: Table, rule: Rule, seen: set[str]) -> str:
    if rule.target in _REFUSALS:
        return rule.text
    if rule.target not in table.chains or rule.target in seen:
        return ""
    seen.add(rule.target)
    for inner in table.chains[rule.target].rules:
        if inner.target == "RETURN" and inner.conditions:
            return ""
        if not inner.conditions:
            found = _unconditional_refusal(table, inner, seen)
            if found or inner.target in VERDICTS:
                return found
    return ""


def second_filters(filters: PacketFilters) -> list[tuple[BaseChain, str]]:
    """Base chains beside Felix's that refuse what they do not let through, whatever Felix or kube-proxy accepted.

    They are in native tables, or in the backend of iptables where Felix is not. Felix's and kube-proxy's own native
    tables do not count.
    """
    backends = filters.backends(FELIX)
    found = []
    for table in filters.active():
        is_native = table.backend == NATIVE
        owner = filters.owners.of_table(table).owner if is_native else ""
        if owner in (FELIX, KUBE_PROXY) or (not is_native and (table.backend in backends or table.name != "filter")):
            continue
        for chain in table.chains.values():
            refusal = refuses_the_rest(table, chain) if chain.hook in ("input", "forward", "output") else ""
            if refusal:
                found.append((BaseChain(table, chain, owner), refusal))
    return found
