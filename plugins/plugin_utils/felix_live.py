# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the live rules of a node say of the settings with which Felix runs.

Recorded from Felix 3.31 (corpus of packet filters): Insert puts the jump at the top, Append behind everything. Others
put theirs at the top afterwards, so that kube-proxy's and kubelet's, which were there before, tell one from the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_marks import allocate
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import Value
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_known import Felix
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_order import (
    HookOrder,
    felix_allow_actions,
    hook_orders,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_owners import FELIX, KUBE_PROXY, KUBELET
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_rules import NATIVE, PACKET, SET
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_state import PacketFilters

INSERT, APPEND = "Insert", "Append"
# Every rule set clears these; the others show only where a policy or a feature needs them.
_ALWAYS_SHOWN = ("accept", "pass", "scratch0", "scratch1")


@dataclasses.dataclass(frozen=True)
class LiveFelix:
    """Felix's rules in one backend: C(legacy), C(nft), or C(native) for its own nftables tables.

    chains: by base chain of the filter table Insert, Append, or "" where its place tells neither. Actions are Accept,
    Return or "". mark_bits: that its rules set, clear or look at. sets_marks: whether setting them is seen, which nft
    does not show of iptables' rules.
    """

    backend: str
    chains: dict[str, str]
    filter_allow_action: str
    mangle_allow_action: str
    mark_bits: int
    sets_marks: bool

    @property
    def chain_insert_mode(self) -> str:
        """Insert or Append where every chain that tells says so, else ""."""
        modes = {mode for mode in self.chains.values() if mode}
        return modes.pop() if len(modes) == 1 else ""

    @property
    def dataplane(self) -> str:
        """C(nftables) or C(iptables)."""
        return "nftables" if self.backend == NATIVE else "iptables"


def read_live(filters: PacketFilters) -> dict[str, LiveFelix]:
    """What is there of Felix in each backend; leftovers of a former backend look alive too."""
    found = {}
    actions = felix_allow_actions(filters)
    for backend in filters.backends(FELIX):
        chains = {
            f"{order.table.family} {order.chain.name}": _mode(order)
            for order in hook_orders(filters, tables=["filter"])
            if order.table.backend == backend and order.felix != "absent"
        }
        allowed = {place: action.capitalize() for place, action in actions.items() if _backend(place) == backend}
        found[backend] = LiveFelix(
            backend,
            chains,
            filter_allow_action=next((action for place, action in allowed.items() if place.endswith("/filter")), ""),
            mangle_allow_action=next((action for place, action in allowed.items() if place.endswith("/mangle")), ""),
            **_marks(filters, backend),
        )
    return found


def _backend(place: str) -> str:
    return NATIVE if place.startswith("nft table") else place.partition("/")[0]


def _mode(order: HookOrder) -> str:
    if order.felix in ("first", "only"):
        return INSERT if order.felix == "first" else ""
    if order.felix == "last":
        return APPEND
    kubernetes = {KUBE_PROXY, KUBELET}
    before = any(entry.owner in kubernetes for entry in order.before)
    after = any(entry.owner in kubernetes for entry in order.after)
    return {(True, False): APPEND, (False, True): INSERT}.get((before, after), "")


def _marks(filters: PacketFilters, backend: str) -> dict:
    bits, is_set = 0, False
    for table, chain, rule in filters.rules():
        uses = [use for use in rule.marks if use.space == PACKET]
        if uses and table.backend == backend and filters.owners.of_rule(table, chain, rule).owner == FELIX:
            for use in uses:
                bits |= use.bits
                is_set = is_set or (use.kind == SET and use.bits != 0)
    return {"mark_bits": bits, "sets_marks": is_set}


def shows_mask(live: LiveFelix, mask: int, felix: Felix) -> bool:
    """Whether Felix's rules use the bits that it takes of this mask, and no others.

    :param felix: its version and features, which decide what it takes.
    """
    taken = allocate(mask, felix)
    shown = sum(taken.get(name, 0) for name in _ALWAYS_SHOWN)
    possible = sum(taken.values())
    bits = live.mark_bits
    return bool(bits) and not bits & ~possible and not (live.sets_marks and shown & ~bits)


def mismatches(live: LiveFelix, wanted: dict[str, Value], felix: Felix) -> list[str]:
    """What the rules show that is not what was asked for; settings that no rule shows are left out.

    :param wanted: by the name in a FelixConfiguration, values as Felix has them.
    """
    return [
        f"{name} is {observed} in the live rules ({live.backend}), not {value}"
        for name, value in wanted.items()
        for observed in _observed(live, name, value, felix)
    ]


def _observed(live: LiveFelix, name: str, value: Value, felix: Felix) -> Iterator[str]:
    """What the rules show of a setting where it is not the wanted value."""
    is_native = live.backend == NATIVE
    if name == "nftablesMode":
        if value in ("Enabled", "Disabled") and (value == "Enabled") != is_native:
            yield f"such that the dataplane is {live.dataplane}"
    elif name == "chainInsertMode":
        if not is_native and live.chain_insert_mode not in ("", value):
            yield live.chain_insert_mode
        elif not is_native and len({mode for mode in live.chains.values() if mode}) > 1:
            yield ", ".join(f"{mode or 'unclear'} in {chain}" for chain, mode in live.chains.items())
    elif name.startswith("nftables" if is_native else "iptables"):
        kind = name.removeprefix("nftables").removeprefix("iptables")
        actions = {"FilterAllowAction": live.filter_allow_action, "MangleAllowAction": live.mangle_allow_action}
        if kind in actions and actions[kind] != value:
            yield actions[kind] or "not to be seen"
        if kind == "MarkMask" and not shows_mask(live, int(value or 0), felix):
            yield f"such that bits {live.mark_bits:#x} are in use"
