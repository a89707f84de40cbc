# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taints against tolerations as the scheduler and the eviction controller judge them, and what a DaemonSet lacks.

Source: kubernetes/kubernetes, staging/src/k8s.io/api/core/v1/toleration.go and
pkg/controller/daemon/util/daemonset_util.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "PreferNoSchedule", "NoExecute"
EFFECTS = (NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE)
CONDITION, STARTUP, LEAVING, VIRTUAL, ROLE, DEDICATED = (
    "condition",
    "startup",
    "leaving",
    "virtual",
    "role",
    "dedicated",
)
# Taints that go away without anybody, or with the node.
PASSING = {CONDITION, STARTUP, LEAVING}
_INTEGER = re.compile(r"0|-?[1-9]\d*")


@dataclass(frozen=True)
class Taint:
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = NO_SCHEDULE

    def __str__(self) -> str:
        return f"{self.key}{'=' if self.value else ''}{self.value}:{self.effect}"


@dataclass(frozen=True)
class Toleration:
    """A toleration of a pod. key "" with Exists is every key, effect "" every effect, seconds None is for ever."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: int | None = None

    def tolerates(self, taint: Taint, *, comparisons: bool = False) -> bool:
        """Whether it matches a taint.

        :param comparisons: whether the cluster knows Lt and Gt (from 1.35, with the feature gate
            TaintTolerationComparisonOperators); without, a pod with them is not admitted.
        """
        if (self.effect and self.effect != taint.effect) or (self.key and self.key != taint.key):
            return False
        if self.operator == "Exists":
            return True
        if not self.key:
            return False
        if self.operator in {"Lt", "Gt"}:
            if not comparisons or not all(map(_INTEGER.fullmatch, (self.value, taint.value))):
                return False
            mine, theirs = int(self.value), int(taint.value)
            return theirs < mine if self.operator == "Lt" else theirs > mine
        return self.operator == "Equal" and self.value == taint.value

    def manifest(self) -> dict:
        """The toleration as a pod's spec has it."""
        fields = {"key": self.key, "operator": self.operator, "value": self.value, "effect": self.effect}
        found = {name: value for name, value in fields.items() if value}
        return found if self.seconds is None else {**found, "tolerationSeconds": self.seconds}


def parse_taint(text: str) -> Taint:
    """Read key=value:Effect or key:Effect, as kubectl taint and kubelet write them.

    :raises ValueError: it is neither.
    """
    match = re.fullmatch(r"([^=:\s]+)(?:=([^:\s]*))?:(\w+)", text.strip())
    if not match or match[3] not in EFFECTS:
        raise ValueError(f"{text!r} is no taint, such as dedicated=agents:NoSchedule (effects: {', '.join(EFFECTS)})")
    return Taint(match[1], match[2] or "", match[3])


def read_taints(node: Mapping) -> list[Taint]:
    """The taints of a Node object, or of a list as C(cluster_probe) returns it under C(taints)."""
    found = node.get("taints") or (node.get("spec") or {}).get("taints") or []
    return [Taint(item.get("key") or "", item.get("value") or "", item.get("effect") or "") for item in found]


def read_tolerations(items: Iterable[Mapping]) -> list[Toleration]:
    """The tolerations of a pod's spec."""
    return [
        Toleration(
            item.get("key") or "",
            item.get("operator") or "Equal",
            str(item.get("value") or ""),
            item.get("effect") or "",
            item.get("tolerationSeconds"),
        )
        for item in items
    ]


def first_match(tolerations: Iterable[Toleration], taint: Taint, *, comparisons: bool = False) -> Toleration | None:
    """The toleration that counts for a taint: the first that matches."""
    return next((item for item in tolerations if item.tolerates(taint, comparisons=comparisons)), None)


def evicted_after(tolerations: list[Toleration], taints: Iterable[Taint], *, comparisons: bool = False) -> int | None:
    """After how many seconds a running pod is evicted: 0 at once, None never."""
    shortest = None
    for taint in taints:
        if taint.effect != NO_EXECUTE:
            continue
        match = first_match(tolerations, taint, comparisons=comparisons)
        seconds = 0 if match is None else match.seconds
        if seconds is not None:
            shortest = max(0, seconds) if shortest is None else min(shortest, max(0, seconds))
    return shortest


# What taints mean, by the whole key; the first match counts.
_KINDS = (
    (STARTUP, r"node\.cloudprovider\.kubernetes\.io/uninitialized|node\.cluster\.x-k8s\.io/uninitialized"),
    (STARTUP, r".*[./-]agent-not-ready|(?:ignore|startup)-taint\.cluster-autoscaler\.kubernetes\.io/.*"),
    (STARTUP, r"cni\.istio\.io/not-ready|NodeReadiness"),
    (STARTUP, r"nidhogg\.uswitch\.com/.*|karpenter\.sh/unregistered|k8s\.ovn\.org/network-unavailable"),
    (CONDITION, r"node\.kubernetes\.io/(?:not-ready|unreachable|(?:memory|disk|pid)-pressure|network-unavailable)"),
    (CONDITION, r"node\.kubernetes\.io/(?:unschedulable|outOfDisk)|node\.alpha\.kubernetes\.io/.*"),
    (LEAVING, r"node\.kubernetes\.io/out-of-service|node\.cloudprovider\.kubernetes\.io/shutdown"),
    (LEAVING, r"(?:ToBeDeleted|DeletionCandidateOf)(?:By)?ClusterAutoscaler|aws-node-termination-handler/.*"),
    (LEAVING, r"cloud\.google\.com/impending-node-termination|karpenter\.sh/disrupt(?:ed|ion)|UpdateInProgress"),
    (LEAVING, r"medik8s\.io/remediation|node\.cluster\.x-k8s\.io/outdated-revision"),
    (VIRTUAL, r"virtual-kubelet\.io/provider|azure\.com/aci|eks\.amazonaws\.com/compute-type"),
    (ROLE, r"node-role\.kubernetes\.io/.*|CriticalAddonsOnly"),
)


def kind_of(taint: Taint) -> str:
    """What a taint stands for: condition, startup, leaving, virtual, role, or dedicated for a site's own."""
    return next((kind for kind, key in _KINDS if re.fullmatch(key, taint.key)), DEDICATED)


# What the DaemonSet controller adds to every pod of its own.
_DAEMON = (
    *(Toleration(f"node.kubernetes.io/{name}", "Exists", effect=NO_EXECUTE) for name in ("not-ready", "unreachable")),
    *(
        Toleration(f"node.kubernetes.io/{name}", "Exists", effect=NO_SCHEDULE)
        for name in ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
    ),
)
_HOST_NETWORK = Toleration("node.kubernetes.io/network-unavailable", "Exists", effect=NO_SCHEDULE)


def daemon_tolerations(tolerations: Iterable[Toleration], *, host_network: bool) -> list[Toleration]:
    """A DaemonSet's tolerations with those that its controller adds."""
    return [*tolerations, *_DAEMON, *((_HOST_NETWORK,) if host_network else ())]


@dataclass(frozen=True)
class TolerationPlan:
    """What a DaemonSet needs to run on all nodes.

    add: tolerations to put before the present ones. missing: what keeps it from each node, by node.
    passing: taints that leave by themselves or with the node. virtual: nodes that no agent can run on.
    """

    add: tuple[Toleration, ...]
    missing: dict[str, tuple[Taint, ...]]
    passing: dict[str, tuple[Taint, ...]]
    virtual: tuple[str, ...]


def plan_tolerations(
    nodes: Mapping[str, Iterable[Taint]],
    tolerations: Iterable[Toleration],
    *,
    host_network: bool = False,
    comparisons: bool = False,
) -> TolerationPlan:
    """Compute the tolerations that a DaemonSet lacks; taints that only advise against a node need none.

    A NoExecute taint that is tolerated for some seconds only counts as missing: the pod would be evicted.
    """
    present = daemon_tolerations(tolerations, host_network=host_network)
    missing, passing, virtual = {}, {}, []
    for node, taints in nodes.items():
        hard = [taint for taint in taints if taint.effect in {NO_SCHEDULE, NO_EXECUTE}]
        if any(kind_of(taint) == VIRTUAL for taint in hard):
            virtual.append(node)
            continue
        open_ones = [taint for taint in hard if not _stays(present, taint, comparisons)]
        if lasting := tuple(taint for taint in open_ones if kind_of(taint) not in PASSING):
            missing[node] = lasting
        if leaving := tuple(taint for taint in open_ones if kind_of(taint) in PASSING):
            passing[node] = leaving
    wanted = {(taint.key, taint.effect) for taints in missing.values() for taint in taints}
    add = tuple(Toleration(key, "Exists", effect=effect) for key, effect in sorted(wanted))
    return TolerationPlan(add, missing, passing, tuple(virtual))


def _stays(tolerations: list[Toleration], taint: Taint, comparisons: bool) -> bool:
    match = first_match(tolerations, taint, comparisons=comparisons)
    return match is not None and (taint.effect != NO_EXECUTE or match.seconds is None)
