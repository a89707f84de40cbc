# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packet-filter tables that C(nft -j list ruleset) tells.

Format: libnftables-json(5). A table that iptables-nft made is told from a native one by its base chains. What is not
understood is kept as text; nothing here raises on any text.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_marks_nft import (
    changed_mark_bits,
    compared_mark_bits,
    mark_space,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_nft_text import text_of, text_of_statement
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_rules import (
    BUILT_IN_HOOKS,
    IPTABLES_PRIORITY,
    MATCH,
    NATIVE,
    NFT,
    SET,
    Chain,
    MarkUse,
    Rule,
    Table,
)

_VERDICTS = ("accept", "drop", "return", "reject", "queue")
_NAT = ("masquerade", "dnat", "snat", "redirect", "tproxy")
_SILENT = ("counter", "log", "notrack")
# Only iptables-nft-save tells which bits such a target changes.
HIDDEN_MARK = MarkUse(SET, 0, None)
# nft's words as the options that mean the same to iptables, so that a rule is judged alike from either tool.
_OPTION_OF_META = {"iifname": "-i", "oifname": "-o", "iif": "-i", "oif": "-o", "l4proto": "-p", "nfproto": "nfproto"}
_OPTION_OF_FIELD = {"saddr": "-s", "daddr": "-d", "protocol": "-p", "nexthdr": "-p"}
# linux/netfilter_ipv4.h; nft names a priority only at the hooks where the name has its meaning (nft(8), PRIORITY).
_PRIORITY_NAMES = {-300: "raw", -150: "mangle", 0: "filter", 50: "security"}
_NEAR_A_NAME = 10


def _condition(match: dict) -> tuple[str, str]:
    """A match as a pair of option and value."""
    left, right = match.get("left"), match.get("right")
    negated = "!" if match.get("op") == "!=" else ""
    option = ""
    if isinstance(left, dict):
        meta, payload, ct = left.get("meta"), left.get("payload"), left.get("ct")
        if isinstance(meta, dict):
            option = _OPTION_OF_META.get(str(meta.get("key")), "")
        elif isinstance(payload, dict):
            option = _OPTION_OF_FIELD.get(str(payload.get("field")), "")
        elif isinstance(ct, dict) and ct.get("key") == "state":
            option = "--ctstate"
    return (option, negated + text_of(right)) if option else (text_of(left), negated + text_of(right))


def _targets_in(value: object, maps: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Chains and verdicts that a verdict map leads to; C(@name) is looked up among the table's maps."""
    if isinstance(value, str):
        return maps.get(value.removeprefix("@"), ()) if value.startswith("@") else ()
    if isinstance(value, list):
        return tuple(dict.fromkeys(name for item in value for name in _targets_in(item, maps)))
    if not isinstance(value, dict):
        return ()
    found = []
    for key, inner in value.items():
        if key in ("jump", "goto") and isinstance(inner, dict):
            found.append(str(inner.get("target", "")))
        elif key in _VERDICTS:
            found.append(key.upper())
        else:
            found.extend(_targets_in(inner, maps))
    return tuple(dict.fromkeys(found))


def _mark_uses(key: str, inner: dict) -> list[MarkUse]:
    """What a match or a mangle statement does with marks."""
    uses = []
    if key == "match":
        space = mark_space(inner.get("left"))
        if space:
            right = inner.get("right")
            is_constant = isinstance(right, int) and not isinstance(right, bool)
            uses.append(MarkUse(MATCH, compared_mark_bits(inner["left"]), right if is_constant else None, space))
        return uses
    written = mark_space(inner.get("key"))
    if written:
        value = inner.get("value")
        is_constant = isinstance(value, int) and not isinstance(value, bool)
        uses.append(MarkUse(SET, changed_mark_bits(value, written), value if is_constant else None, written))
        read = mark_space(value)
        if read and read != written:
            uses.append(MarkUse(MATCH, compared_mark_bits(value), None, read))
    return uses


class _RuleParts:
    """What the statements of one rule add up to."""

    def __init__(self, maps: dict[str, tuple[str, ...]]) -> None:
        self.maps = maps
        self.target, self.is_goto, self.packets = "", False, None
        self.conditions, self.marks, self.branches = [], [], []

    def add(self, key: str, inner: object) -> None:
        """Take one statement in; one that is not known is a condition."""
        if key in _VERDICTS or key in _NAT:
            self.target = key.upper()
        elif key in _SILENT or not isinstance(inner, dict):
            self._add_silent(key, inner)
        elif key == "match":
            self.marks.extend(_mark_uses(key, inner))
            self.conditions.append(_condition(inner))
        elif key == "mangle":
            self.marks.extend(_mark_uses(key, inner))
        elif key in ("jump", "goto"):
            self.target, self.is_goto = str(inner.get("target", "")), key == "goto"
        elif key == "vmap":
            self.conditions.append(("vmap", text_of(inner.get("key"))))
            self.branches.extend(_targets_in(inner.get("data"), self.maps))
        elif key == "xt":
            self._add_extension(inner)
        else:
            self.conditions.append((key, text_of(inner)))

    def _add_silent(self, key: str, inner: object) -> None:
        if key == "counter" and isinstance(inner, dict) and isinstance(inner.get("packets"), int):
            self.packets = inner["packets"]
        elif key not in _SILENT:
            self.conditions.append((key, text_of(inner)))

    def _add_extension(self, inner: dict) -> None:
        """A match or target of iptables: the JSON tells its name and nothing else."""
        name = str(inner.get("name", ""))
        if inner.get("type") == "target":
            self.target = name
            if name in ("MARK", "CONNMARK"):
                self.marks.append(HIDDEN_MARK)
        elif name != "comment":
            self.conditions.append(("-m", name))


def _parse_rule(rule: dict, maps: dict[str, tuple[str, ...]]) -> Rule:
    parts = _RuleParts(maps)
    texts = []
    statements = rule.get("expr")
    for statement in statements if isinstance(statements, list) else []:
        if isinstance(statement, dict) and len(statement) == 1:
            ((key, inner),) = statement.items()
            texts.append(text_of_statement(key, inner))
            parts.add(key, inner)
        else:
            texts.append(text_of(statement))
    comment = str(rule.get("comment", ""))
    if comment:
        texts.append(f'comment "{comment}"')
    return Rule(
        str(rule.get("chain", "")),
        parts.target,
        parts.is_goto,
        tuple(parts.conditions),
        tuple(parts.marks),
        comment,
        " ".join(part for part in texts if part),
        parts.packets,
        tuple(parts.branches),
    )


def _is_iptables_table(table: Table) -> bool:
    """Whether iptables-nft made it: its standard name, and only base chains that iptables makes."""
    if table.family not in ("ip", "ip6") or table.name not in IPTABLES_PRIORITY:
        return False
    return all(
        chain.name in BUILT_IN_HOOKS and chain.name.lower() == chain.hook
        for chain in table.chains.values()
        if chain.hook
    )


def priority_text(priority: int, hook: str) -> str:
    """A priority as nft prints it: C(filter), C(mangle + 10), C(-110)."""
    names = dict(_PRIORITY_NAMES)
    if hook == "prerouting":
        names[-100] = "dstnat"
    if hook == "postrouting":
        names[100] = "srcnat"
    for base, name in names.items():
        offset = priority - base
        if not offset:
            return name
        if abs(offset) <= _NEAR_A_NAME:
            return f"{name} {'+' if offset > 0 else '-'} {abs(offset)}"
    return str(priority)


def _chain(entry: dict) -> Chain:
    hook = str(entry.get("hook", ""))
    priority = entry.get("prio")
    handle = entry.get("handle")
    return Chain(
        str(entry.get("name", "")),
        hook=hook,
        policy=str(entry.get("policy", "accept")).upper() if hook else "",
        priority=priority if isinstance(priority, int) else None,
        type=str(entry.get("type", "")),
        handle=handle if isinstance(handle, int) else 0,
    )


def parse_nft_json(text: str, *, known: Collection[tuple[str, str]] = ()) -> list[Table]:
    """The tables of C(nft -j list ruleset), of every family.

    Of iptables' tables in C(known) (pairs of family and name) only the chains are read: their save tells more.
    """
    try:
        entries = json.loads(text)["nftables"] if text.strip() else []
    except (ValueError, TypeError, KeyError, RecursionError):
        return [Table(NATIVE, "", "", unparsed=[text[:200]])]
    objects = [
        (kind, inner)
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict)
        for kind, inner in entry.items()
        if isinstance(inner, dict)
    ]
    tables: dict[tuple[str, str], Table] = {}

    def table_of(inner: dict) -> Table:
        key = (str(inner.get("family", "")), str(inner.get("table", "")))
        if key not in tables:
            tables[key] = Table(NATIVE, *key)
        return tables[key]

    maps: dict[int, dict[str, tuple[str, ...]]] = {}
    for kind, inner in objects:
        if kind == "table":
            table = table_of({"family": inner.get("family", ""), "table": inner.get("name", "")})
            table.handle = inner["handle"] if isinstance(inner.get("handle"), int) else 0
        elif kind == "chain":
            chain = _chain(inner)
            table_of(inner).chains[chain.name] = chain
        elif kind == "map":
            targets = _targets_in(inner.get("elem"), {})
            maps.setdefault(id(table_of(inner)), {})[str(inner.get("name", ""))] = targets
    for table in tables.values():
        table.backend = NFT if _is_iptables_table(table) else NATIVE
    for kind, inner in objects:
        if kind == "rule":
            table = table_of(inner)
            if table.backend == NFT and (table.family, table.name) in known:
                continue
            rule = _parse_rule(inner, maps.get(id(table), {}))
            table.chains.setdefault(rule.chain, Chain(rule.chain)).rules.append(rule)
    return list(tables.values())
