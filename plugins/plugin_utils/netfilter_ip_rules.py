# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routing rules that look at packet marks, from what C(ip rule) and C(ip -6 rule) print.

Format: ip-rule(8). A rule without a mask compares the whole mark, so any other user's bit makes it miss.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_owners import BY_HAND, FELIX, TAILSCALE, Claim
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_rules import value_and_mask

_LINE = re.compile(r"(\d+):\s+(.*)")
_FWMARK = re.compile(r"\bfwmark (\S+)")
_LOOKUP = re.compile(r"\blookup (\S+)")
# Sources: tailscale util/linuxfw (5210-5270), Felix's wireguardRoutingRulePriority (99), Cilium's proxy rules
# (mask 0xf00), Istio's inbound TPROXY rule (0x111 or 0x539 of 0xfff), wg-quick(8).
_TAILSCALE_PRIORITIES = range(5200, 5300)
_WIREGUARD_PRIORITY = 99


class MarkedRoute(NamedTuple):
    """A routing rule with C(fwmark). C(has_mask) is whether a mask is written; without one all 32 bits count."""

    priority: int
    value: int | None
    mask: int
    has_mask: bool
    table: str
    text: str


def parse_ip_rules(text: str) -> list[MarkedRoute]:
    """The rules with a mark, in their order; lines of another form and rules without a mark are left out."""
    found = []
    for line in text.splitlines():
        parts = _LINE.match(line.strip())
        mark = _FWMARK.search(parts[2]) if parts else None
        if not mark:
            continue
        value, mask = value_and_mask(mark[1])
        lookup = _LOOKUP.search(parts[2])
        body = " ".join(parts[2].split())
        found.append(
            MarkedRoute(int(parts[1]), value, mask, "/" in mark[1], lookup[1] if lookup else "", f"{parts[1]}: {body}")
        )
    return found


def _is_wireguard(route: MarkedRoute) -> bool:
    return route.priority == _WIREGUARD_PRIORITY and route.text.startswith(f"{_WIREGUARD_PRIORITY}: not from ")


def _is_tailscale(route: MarkedRoute) -> bool:
    return route.priority in _TAILSCALE_PRIORITIES and (route.value, route.mask) == (0x80000, 0xFF0000)


# What is known of each maker's rules, most particular first.
_MAKERS = (
    (FELIX, "priority 99, as Felix's rule for WireGuard", _is_wireguard),
    (TAILSCALE, "priority and mark of Tailscale's rules", _is_tailscale),
    ("aws-vpc-cni", "mark 0x80 to table main", lambda route: (route.value, route.table) == (0x80, "main")),
    ("cilium", "mask 0xf00 to table 2004 or 2005", lambda route: (route.mask, route.table[:3]) == (0xF00, "200")),
    ("istio", "mark 0x111 or 0x539 of 0xfff", lambda route: route.mask == 0xFFF and route.value in (0x111, 0x539)),
    ("wg-quick", "table 51820", lambda route: route.table == "51820"),
)


def owner_of_route(route: MarkedRoute, running: frozenset[str] | None) -> Claim:
    """Who made the rule, from its priority, mark and table. Tailscale's count only where it runs."""
    for owner, evidence, fits in _MAKERS:
        if fits(route):
            if owner == TAILSCALE and running is not None and TAILSCALE not in running:
                return Claim(BY_HAND, f"{evidence}, but Tailscale does not run")
            return Claim(owner, evidence)
    return Claim(BY_HAND, "no software is known to make such a routing rule")
