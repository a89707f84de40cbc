# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes a DaemonSet leaves out, and which have no pod of it that is ready."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.daemon_coverage import (
    NO_POD,
    NOT_READY,
    NOT_REPLACED,
    NOT_SELECTED,
    NOT_TOLERATED,
    gaps,
    left_out,
    placement,
)

SPARE = {"key": "spare", "effect": "NoSchedule"}
NODE = {"name": "w1", "labels": {"kubernetes.io/os": "linux", "cores": "8"}, "taints": [], "ready": True}


def required(*terms: dict) -> dict:
    """A pod's spec with required node affinity."""
    return {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
        }
    }


def term(key: str, operator: str, *values: str, kind: str = "matchExpressions") -> dict:
    """A term with one expression."""
    return {kind: [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "selected"),
    [
        ({}, True),
        ({"nodeSelector": {"kubernetes.io/os": "linux"}}, True),
        ({"nodeSelector": {"kubernetes.io/os": "windows"}}, False),
        (required(term("cores", "In", "4", "8")), True),
        (required(term("cores", "In", "4"), term("cores", "Exists")), True),
        (required(term("cores", "NotIn", "8")), False),
        (required(term("gone", "NotIn", "8")), True),
        (required(term("gone", "DoesNotExist")), True),
        (required(term("gone", "Exists")), False),
        (required(term("cores", "Gt", "7")), True),
        (required(term("cores", "Gt", "8")), False),
        (required(term("cores", "Lt", "9")), True),
        (required(term("gone", "Lt", "9")), False),
        (required(term("kubernetes.io/os", "Gt", "9")), False),
        (required(term("cores", "Gt")), False),
        (required(term("metadata.name", "In", "w1", kind="matchFields")), True),
        (required(term("metadata.name", "In", "w2", kind="matchFields")), False),
        (required({**term("cores", "Exists"), **term("metadata.name", "In", "w2", kind="matchFields")}), False),
        (required({}), False),
        (required(), False),
        ({**required(term("cores", "Exists")), "nodeSelector": {"x": "y"}}, False),
        ({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}, True),
        ({"affinity": None, "nodeSelector": None, "tolerations": None}, True),
    ],
)
def test_selector_and_affinity(spec: dict, selected: bool):
    gap = left_out(placement(spec), NODE)

    assert (gap is None) is selected
    assert selected or gap.kind == NOT_SELECTED


def test_gaps_of_a_daemon_set():
    nodes = [
        NODE,
        {**NODE, "name": "updating"},
        {**NODE, "name": "starting"},
        {**NODE, "name": "without"},
        {**NODE, "name": "tainted", "taints": [SPARE]},
        {**NODE, "name": "cordoned", "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]},
        {**NODE, "name": "down", "ready": False},
        {**NODE, "name": "none", "taints": [{"key": "virtual-kubelet.io/provider", "effect": "NoSchedule"}]},
        {**NODE, "name": "windows", "labels": {"kubernetes.io/os": "windows"}},
        {**NODE, "name": "tolerated once", "taints": [SPARE]},
    ]
    pods = [
        {"node": "w1", "ready": True},
        {"node": "updating", "ready": True},
        {"node": "updating", "ready": False},
        {"node": "starting", "ready": False},
        {"node": "cordoned", "ready": True},
        {"node": "tolerated once", "ready": True},
    ]
    found = gaps(placement({"nodeSelector": {"kubernetes.io/os": "linux"}}), nodes, pods)

    assert {name: gap.kind for name, gap in found.items()} == {
        "starting": NOT_READY,
        "without": NO_POD,
        "tainted": NOT_TOLERATED,
        "windows": NOT_SELECTED,
        "tolerated once": NOT_REPLACED,
    }
    for name in ("tainted", "tolerated once"):
        assert [str(taint) for taint in found[name].taints] == ["spare:NoSchedule"]
