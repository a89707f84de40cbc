# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a node's packet filters, as findings with the rules that show it.

A node where each owner keeps to its own bits, chains and backend has none. The findings carry no node name: who asks
for them sets it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING, finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_kube_proxy import NFTABLES_SINCE
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_marks import MaskPlan, bits_in_use, plan_mask
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_known import Felix, Known
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_marks import (
    Collision,
    MarkUser,
    bits_to_avoid,
    collisions,
    mark_users,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_order import (
    EVERYTHING,
    Entry,
    HookOrder,
    early_accepts,
    felix_allow_actions,
    hook_orders,
    second_filters,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_owners import (
    BY_HAND,
    FELIX,
    KUBE_PROXY,
    KUBELET,
    SECURE_WORKLOAD,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_rules import LEGACY, NATIVE, NFT, Rule, Table
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_stale import find_stale
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_state import PacketFilters

MARKS_CLAUSE = "secure-workload/Requirements for Policy Enforcement"
RULES_CLAUSE = "calico/Node Requirements"
PROXY_CLAUSE = "calico/Supported kube-proxy modes"
# Felix reads tables that iptables cannot show since then. Source: projectcalico/calico#13328.
_READS_INCOMPATIBLE = (3, 33)
# Value Auto of iptablesBackend. Source: projectcalico/calico#2322 and the CRDs.
_AUTO_BACKEND_SINCE = (3, 17)


@dataclasses.dataclass(frozen=True)
class Judged:
    """A node's filters with what is known beside them, and what is asked of them."""

    filters: PacketFilters
    known: Known
    # Bits that must stay free for somebody who need not be there yet, by owner.
    reserved: Mapping[str, int]
    # Whether a mask with bit 31 cannot be written (Kubernetes 1.36 and newer).
    fits_int32: bool = True

    @functools.cached_property
    def users(self) -> list[MarkUser]:
        """Who uses which bits; Felix by the bits that its version takes of its mask."""
        felix = self.known.felix
        configured = dict(self.reserved)
        if felix.mark_mask is not None:
            configured[FELIX] = felix.mark_mask if felix.version is None else bits_in_use(felix.mark_mask, felix)
        return mark_users(self.filters, configured=configured)

    @functools.cached_property
    def mask_plan(self) -> MaskPlan:
        """A mask for Felix that keeps clear of everybody seen here and of what is reserved."""
        return plan_mask(self.known.felix, bits_to_avoid(self.users), fits_int32=self.fits_int32)


def judge_packet_filters(judged: Judged) -> list[dict]:
    """All findings of one node, gravest kind first."""
    parts = (
        _bypassed,
        _collisions,
        _order,
        _second_filters,
        _backends,
        _incompatible,
        _stale,
        _masquerade_all,
    )
    return [found for part in parts for found in part(judged)]


def _collisions(judged: Judged) -> Iterator[dict]:
    whole = {user.owner: user.whole for user in judged.users if user.whole}
    for item in collisions(judged.users):
        unmasked = [text for owner in item.owners for text in whole.get(owner, ())]
        yield finding(
            "packet_filter.marks_collide",
            severity=BLOCKER if SECURE_WORKLOAD in item.owners else WARNING,
            requirement=MARKS_CLAUSE,
            observed=f"{' and '.join(item.owners)} both use mark bits {item.overlap:#x}: {'; '.join(item.evidence)}",
            expected="no mark bit has two users",
            remedy=_remedy_for_collision(judged, item, unmasked),
        )


def _remedy_for_collision(judged: Judged, item: Collision, unmasked: list[str]) -> str:
    if unmasked:
        return f"give the rule a mask, such as fwmark 0x80/0x80, since it takes all 32 bits: {unmasked[0]}"
    if FELIX not in item.owners:
        return "give one of the two other bits, or take it off the node"
    plan = judged.mask_plan
    if plan.mask is None:
        return f"no mask of Felix's can mend it: {plan.obstacle}"
    field = "nftablesMarkMask" if judged.known.felix.backend == NATIVE else "iptablesMarkMask"
    return f"set {field}: {plan.decimal} ({plan.mask:#x}) in the FelixConfiguration"


def _bypassed(judged: Judged) -> Iterator[dict]:
    for item in early_accepts(judged.filters, pod_networks=judged.known.pod_networks):
        what = "every packet" if item.kind == EVERYTHING else "every packet of a network"
        hidden = [name for name in item.never_reached if name]
        is_grave = item.hides_felix or any(name.startswith("TA_") for name in hidden)
        yield finding(
            "packet_filter.policy_bypassed",
            severity=BLOCKER if is_grave else WARNING,
            requirement=RULES_CLAUSE,
            observed=f"rule {item.position} of {item.table.place}/{item.chain} ({item.table.family}, {item.owner}) "
            f"accepts {what}: {item.rule.text}; behind it: {', '.join(hidden)}",
            expected="nothing accepts packets ahead of policy",
            remedy="remove the rule, or set chainInsertMode: Insert in the FelixConfiguration",
        )


def _order(judged: Judged) -> Iterator[dict]:
    """Secure Workload's chains, or a person's, behind Felix's that accepts for good, or about to be put there."""
    actions = felix_allow_actions(judged.filters)
    inserts = judged.known.felix.chain_insert_mode == "Insert"
    for order in hook_orders(judged.filters):
        if actions.get(order.table.place) != "ACCEPT":
            continue
        behind, ahead = _chains_of_others(order, order.after), _chains_of_others(order, order.before)
        if behind:
            what = f"accepts before {_names(behind)} is asked"
        elif ahead and inserts:
            what = f"inserts its jump and will move it ahead of {_names(ahead)}"
        else:
            continue
        is_grave = any(entry.owner == SECURE_WORKLOAD for entry in (*behind, *ahead))
        yield finding(
            "packet_filter.displaced",
            severity=BLOCKER if is_grave else WARNING,
            requirement=MARKS_CLAUSE,
            observed=f"{order.place} ({order.table.family}): Felix {what}",
            expected="Felix appends its chains, or returns from them what it allows",
            remedy="set chainInsertMode: Append in the FelixConfiguration, or iptablesFilterAllowAction and "
            "iptablesMangleAllowAction: Return",
        )


def _chains_of_others(order: HookOrder, entries: tuple[Entry, ...]) -> list[Entry]:
    owners = (SECURE_WORKLOAD, BY_HAND)
    return [entry for entry in entries if entry.owner in owners and entry.name in order.table.chains]


def _names(entries: list[Entry]) -> str:
    return ", ".join(f"{entry.name} (rule {entry.position})" for entry in entries)


def _second_filters(judged: Judged) -> Iterator[dict]:
    told = set()
    if not _serves_kubernetes(judged):
        return
    for base, refusal in second_filters(judged.filters):
        key = (base.table.place, refusal)
        if key in told:
            continue
        told.add(key)
        where = str(base) if base.table.backend == NATIVE else f"{base.table.place}/{base.chain.name}"
        yield finding(
            "packet_filter.second_filter",
            severity=WARNING,
            requirement=RULES_CLAUSE,
            observed=f"{where} refuses what it does not let through: {refusal}",
            expected="no packet filter beside those of Kubernetes, since each one's drop is final",
            remedy="on the node: switch the software off that loads it, or let it pass pod and service traffic",
        )


def _serves_kubernetes(judged: Judged) -> bool:
    """A host of its own may have a firewall; on a node it would drop what Kubernetes lets through."""
    owners = {KUBELET, KUBE_PROXY, FELIX}
    return bool(owners & (judged.known.running or frozenset()) or owners & judged.filters.chains_by_owner.keys())


def _backends(judged: Judged) -> Iterator[dict]:
    """Felix and kube-proxy in two places, where each misses what the other marks and decides."""
    felix, known = judged.known.felix, judged.known
    here = felix.backend or _only(judged.filters.backends(FELIX))
    if known.proxy_mode == "nftables":
        there = NATIVE
    else:
        there = _only(judged.filters.backends(KUBE_PROXY)) or known.proxy_backend
    if not here or not there or here == there or not judged.filters.places(KUBE_PROXY):
        return
    is_old = there == NATIVE and felix.version is not None and felix.version < NFTABLES_SINCE
    remedy = _remedy_for_backend(felix, there)
    if NATIVE in (here, there):
        remedy = "set nftablesMode in the FelixConfiguration to what kube-proxy's mode is, or change kube-proxy's mode"
    yield finding(
        "packet_filter.backends_differ",
        severity=BLOCKER if is_old else WARNING,
        requirement=PROXY_CLAUSE,
        observed=f"Felix writes to {_backend_name(here)}, kube-proxy to {_backend_name(there)}",
        expected="Calico 3.29 or newer for kube-proxy's nftables mode" if is_old else "one backend for both",
        remedy="upgrade Calico, or set kube-proxy's mode to iptables" if is_old else remedy,
    )


def _remedy_for_backend(felix: Felix, wanted: str) -> str:
    """Auto where the version has it and another was set; where Auto itself came to the wrong one, the right one."""
    has_auto = felix.version is None or felix.version >= _AUTO_BACKEND_SINCE
    if felix.backend and has_auto:
        return "set iptablesBackend: Auto in the FelixConfiguration, or point both to one backend"
    value = {LEGACY: "Legacy", NFT: "NFT"}.get(wanted, wanted)
    return f"set iptablesBackend: {value} in the FelixConfiguration, where kube-proxy writes, then reboot the node"


def _only(backends: list[str]) -> str:
    return backends[0] if len(backends) == 1 else ""


def _backend_name(backend: str) -> str:
    return "nftables" if backend == NATIVE else f"iptables-{backend}"


def _incompatible(judged: Judged) -> Iterator[dict]:
    felix = judged.known.felix
    if felix.version is not None and felix.version >= _READS_INCOMPATIBLE:
        return
    if not judged.filters.places(FELIX) and felix == type(felix)():
        return
    tables = sorted({f"{table.family} {table.name}" for table in judged.filters.tables if table.incompatible})
    if tables:
        yield finding(
            "packet_filter.incompatible_table",
            severity=BLOCKER,
            requirement=RULES_CLAUSE,
            observed=f"nft rules that iptables-nft-save cannot show are in {', '.join(tables)}",
            expected="only iptables' own rules in its tables, or Calico 3.33 or newer: Felix restarts in a loop",
            remedy="let the software that wrote them use iptables or a table of its own (nft list table shows them)",
        )


def _stale(judged: Judged) -> Iterator[dict]:
    for item in find_stale(judged.filters, judged.known):
        is_proxy = item.owner == KUBE_PROXY
        by_proxy = " or run kube-proxy --cleanup with the iptables command of that backend"
        yield finding(
            "packet_filter.stale",
            severity=WARNING,
            requirement=PROXY_CLAUSE if is_proxy else RULES_CLAUSE,
            observed=str(item),
            expected="rules only of what runs, in the backend it writes to",
            remedy=f"drain the node, reboot it{by_proxy if is_proxy else ''}; restart calico-node after",
        )


def _masquerade_all(judged: Judged) -> Iterator[dict]:
    for table, chain, rule in judged.filters.rules():
        if _hides_pods(table, chain.name, rule):
            yield finding(
                "packet_filter.masquerade_all",
                severity=BLOCKER,
                requirement=MARKS_CLAUSE,
                observed=f"kube-proxy masquerades pods' traffic to services: {rule.text}",
                expected="a flat network: policy sees the pod's own address",
                remedy="set iptables.masqueradeAll (and ipvs', nftables') to false in kube-proxy's configuration",
            )
            return


def _hides_pods(table: Table, chain: str, rule: Rule) -> bool:
    """Whether it marks traffic to a cluster address for masquerade whatever its source is."""
    options = dict(rule.conditions)
    if "-s" in options:
        return False
    if table.backend == NATIVE:
        return table.name == "kube-proxy" and chain.startswith("service-") and rule.target == "mark-for-masquerade"
    if rule.target != "KUBE-MARK-MASQ":
        return False
    is_ipvs = options.get("--match-set") == "KUBE-CLUSTER-IP dst,dst"
    return is_ipvs or ("-d" in options and rule.comment.endswith("cluster IP"))
