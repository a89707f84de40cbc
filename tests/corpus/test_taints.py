# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every taint of the corpus: read, understood, and tolerated by what the plan asks for."""

from __future__ import annotations

import csv
import re

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.taints import (
    PASSING,
    PREFER_NO_SCHEDULE,
    VIRTUAL,
    Taint,
    first_match,
    kind_of,
    parse_taint,
    plan_tolerations,
)

from tests.corpus.files import CORPUS

with (CORPUS / "taints.tsv").open(encoding="utf-8", newline="") as _rows:
    ROWS = list(csv.DictReader(_rows, delimiter="\t"))
TAINTS = [Taint(row["key"], re.sub("<unix time>", "1790000000", row["value"]), row["effect"]) for row in ROWS]
# Who sets a taint, in the column's words, and what it then stands for.
KINDS = (
    ("condition", "node lifecycle controller|node controller"),
    ("startup", "start-up|removed by the cloud|Cluster API kubeadm|taint controller|Nidhogg|ovn-kubernetes"),
    ("leaving", r"cluster-autoscaler|termination|Karpenter v1(?:beta1)?(?: \(old|$)|Self Node Remediation"),
    ("leaving", r"cloud controller manager \(node|machine (?:config daemon|deployment)|a person, or cloud"),
    ("virtual", "Fargate|virtual-kubelet|virtual nodes"),
)


def expected_kind(row):
    if row["key"].startswith("node-role.kubernetes.io/") or row["key"] == "CriticalAddonsOnly":
        return "role"
    if row["key"] == "karpenter.sh/unregistered" or row["key"].endswith("agent-not-ready"):
        return "startup"
    return next((kind for kind, who in KINDS if re.search(who, row["who"])), "dedicated")


@pytest.mark.parametrize(
    ("row", "taint"), [pytest.param(*pair, id=str(pair[1])) for pair in zip(ROWS, TAINTS, strict=True)]
)
def test_taint(row, taint):
    """The text form is read back, its kind follows from who sets it, and the plan tolerates it or need not."""
    plan = plan_tolerations({"n": [taint]}, [])

    assert parse_taint(str(taint)) == taint
    assert kind_of(taint) == expected_kind(row)
    assert plan.virtual == (("n",) if kind_of(taint) == VIRTUAL else ())
    if taint.effect == PREFER_NO_SCHEDULE or kind_of(taint) in {*PASSING, VIRTUAL}:
        assert plan.add == ()
    else:
        assert first_match(plan.add, taint)


def test_one_daemonset_for_all():
    """All nodes at once: only virtual nodes and taints that pass are left."""
    nodes = {str(at): [taint] for at, taint in enumerate(TAINTS)}
    plan = plan_tolerations(nodes, [])
    again = plan_tolerations(nodes, plan.add)

    assert again.missing == {}
    assert again.passing == plan.passing
