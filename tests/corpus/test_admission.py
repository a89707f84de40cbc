# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every refusal of the corpus: who, rule and fields as its row says."""

from __future__ import annotations

import csv
import re

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.admission import parse_refusal

from tests.corpus.files import CORPUS

with (CORPUS / "admission" / "denials.tsv").open(encoding="utf-8", newline="") as _rows:
    ROWS = list(csv.DictReader(_rows, delimiter="\t", quoting=csv.QUOTE_NONE))
# One name for one field, whoever refused.
SPELLINGS = {
    "hostPort": "ports[].hostPort",
    "annotations seccomp": "annotations.seccomp",
    "initContainers[].securityContext.privileged": "privileged",
}
# The row's author knew more than the message holds, and once wrote less.
NOT_IN_THE_TEXT = {
    "D029": "",
    "D069": "demo-policy.example.com / demo-binding-test.example.com",
    "D057": "PriorityClass In [system-node-critical system-cluster-critical]",
}


def bare(column):
    """A column without its remarks: in brackets, after a dash or a semicolon with words."""
    text = re.sub(r" ?\(.*?\)", "", column)
    return "" if text.startswith("NONE") or text == "-" else text.strip()


def fields(column):
    return tuple(SPELLINGS.get(item, item) for item in bare(column).split(";") if item)


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS])
def test_columns(row):
    """Who refused, by which rule, for which fields."""
    found = parse_refusal(row["message"])
    rule = NOT_IN_THE_TEXT.get(
        row["id"], bare(row["rule_or_policy"]).removesuffix("; anyuid, nonroot not usable by this account")
    )

    assert found.who == bare(row["who"])
    assert found.rule == rule
    assert found.fields == fields(row["pod_field"])
    remark = row["pod_field"] + row["who"]
    expected = (
        "not_admission"
        if "NOT admission" in remark
        else "warning"
        if re.search("warning|failing OPEN", remark)
        else "refusal"
    )
    assert found.kind == expected
