# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Taints against tolerations, and what a DaemonSet lacks."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.taints import (
    EFFECTS,
    PASSING,
    PREFER_NO_SCHEDULE,
    VIRTUAL,
    Taint,
    Toleration,
    evicted_after,
    kind_of,
    parse_taint,
    plan_tolerations,
    read_taints,
    read_tolerations,
)
from hypothesis import given
from hypothesis import strategies as st

INFRA = Taint("node-role.kubernetes.io/infra", "reserved", "NoExecute")


@pytest.mark.parametrize(
    ("toleration", "taint", "tolerated"),
    [
        pytest.param({"operator": "Exists"}, "a=b:NoExecute", True, id="everything"),
        pytest.param({"key": "a", "operator": "Exists"}, "a=b:NoSchedule", True, id="any-value-and-effect"),
        pytest.param({"key": "a", "operator": "Exists", "effect": "NoSchedule"}, "a:NoExecute", False, id="effect"),
        pytest.param({"key": "a", "value": "b"}, "a=b:NoSchedule", True, id="equal-is-the-default"),
        pytest.param({"key": "a", "value": "c"}, "a=b:NoSchedule", False, id="other-value"),
        pytest.param({"key": "a"}, "a:NoSchedule", True, id="empty-value-equals-empty"),
        pytest.param({"key": "os", "value": "windows"}, "os=Windows:NoSchedule", False, id="case-counts"),
        pytest.param({"operator": "Equal"}, "a:NoSchedule", False, id="no-key-needs-exists"),
        pytest.param({"key": "sla", "operator": "Gt", "value": "750"}, "sla=950:NoSchedule", True, id="gt"),
        pytest.param({"key": "sla", "operator": "Gt", "value": "950"}, "sla=950:NoSchedule", False, id="gt-is-strict"),
        pytest.param({"key": "sla", "operator": "Lt", "value": "-3"}, "sla=-5:NoSchedule", True, id="lt"),
        pytest.param({"key": "sla", "operator": "Lt", "value": "10"}, "sla=09:NoSchedule", False, id="no-leading-zero"),
        pytest.param({"key": "sla", "operator": "Lt", "value": "10"}, "sla=low:NoSchedule", False, id="no-number"),
    ],
)
def test_match(toleration, taint, tolerated):
    """As the scheduler matches, with Lt and Gt where the cluster knows them."""
    found = read_tolerations([toleration])[0]

    assert found.tolerates(parse_taint(taint), comparisons=True) is tolerated
    assert found.tolerates(parse_taint(taint)) is (tolerated and found.operator not in {"Lt", "Gt"})


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        pytest.param([], 0, id="at-once"),
        pytest.param([Toleration(operator="Exists")], None, id="never"),
        pytest.param([Toleration(INFRA.key, "Exists", seconds=300)], 300, id="later"),
        pytest.param([Toleration(INFRA.key, "Exists", seconds=-1)], 0, id="negative-is-at-once"),
        pytest.param(
            [Toleration(INFRA.key, "Exists", seconds=300), Toleration(operator="Exists")], 300, id="the-first-counts"
        ),
    ],
)
def test_eviction(tolerations, seconds):
    """Only NoExecute evicts, after the seconds of the first toleration that matches."""
    assert evicted_after(tolerations, [INFRA, Taint("a")]) == seconds


@pytest.mark.parametrize("text", ["", "a", "a=b", "a=b:Never", "a b:NoSchedule", "=b:NoSchedule"])
def test_no_taint(text):
    """The form that is expected is named."""
    with pytest.raises(ValueError, match="dedicated=agents:NoSchedule"):
        parse_taint(text)


def test_the_plan_of_a_mixed_cluster():
    """Roles and a site's own taints need tolerations, one key may need two; conditions, start-up and virtual do not."""
    nodes = {
        "cp": [parse_taint("node-role.kubernetes.io/control-plane:NoSchedule")],
        "infra": [INFRA, Taint(INFRA.key, "reserved", "NoSchedule")],
        "new": [parse_taint("node.cilium.io/agent-not-ready=true:NoExecute")],
        "down": [parse_taint("node.kubernetes.io/unreachable:NoExecute"), parse_taint("soft:PreferNoSchedule")],
        "net": [parse_taint("node.kubernetes.io/network-unavailable:NoSchedule")],
        "fargate": [parse_taint("eks.amazonaws.com/compute-type=fargate:NoSchedule")],
    }
    plan = plan_tolerations(nodes, [Toleration(INFRA.key, "Exists", seconds=60)])

    assert [item.manifest() for item in plan.add] == [
        {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "node-role.kubernetes.io/infra", "operator": "Exists", "effect": "NoExecute"},
    ]
    assert list(plan.missing) == ["cp", "infra"]
    assert list(plan.passing) == ["new", "net"]
    assert plan.virtual == ("fargate",)
    assert list(plan_tolerations(nodes, [], host_network=True).passing) == ["new"]


def test_taints_of_a_node():
    """From a Node object and from what the cluster's probe returns."""
    taint = {"key": "a", "effect": "NoSchedule", "timeAdded": None}

    assert read_taints({"spec": {"taints": [taint]}}) == read_taints({"taints": [taint]}) == [Taint("a")]
    assert read_taints({"spec": {}}) == []


TAINTS = st.builds(
    Taint,
    st.sampled_from(["a", "b", INFRA.key, "node.kubernetes.io/not-ready", "karpenter.sh/disrupted", "azure.com/aci"]),
    st.sampled_from(["", "1", "true"]),
    st.sampled_from(EFFECTS),
)
TOLERATIONS = st.builds(
    Toleration,
    st.sampled_from(["", "a", "b", INFRA.key]),
    st.sampled_from(["Exists", "Equal"]),
    st.sampled_from(["", "1"]),
    st.sampled_from(["", *EFFECTS]),
    st.none() | st.integers(0, 9),
)


@given(st.dictionaries(st.sampled_from("nmo"), st.lists(TAINTS, max_size=4)), st.lists(TOLERATIONS, max_size=4))
def test_the_plan_is_enough_and_its_own_end(nodes, tolerations):
    """With what it adds in front, every hard lasting taint is tolerated for ever, and a second plan adds nothing."""
    plan = plan_tolerations(nodes, tolerations)
    after = [*plan.add, *tolerations]

    assert plan_tolerations(nodes, after).add == ()
    for node, taints in nodes.items():
        lasting = [item for item in taints if item.effect != PREFER_NO_SCHEDULE and kind_of(item) not in PASSING]
        if node not in plan.virtual and not any(kind_of(item) == VIRTUAL for item in taints):
            assert all(any(each.tolerates(item) for each in after) for item in lasting)
            assert evicted_after(after, lasting) is None
