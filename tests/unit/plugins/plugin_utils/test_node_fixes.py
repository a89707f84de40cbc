# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of a node for its findings."""

from __future__ import annotations

import re

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.kernel_table import FEATURES
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_fixes import (
    FIXES,
    MODULE_FINDINGS,
    mended_in_vain,
    wishes_of,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.requirements import CHECKS

MANAGER = {"id": "packet_filter.other_manager", "node": "w1", "observed": "firewalld.service is active"}


def finding(finding_id: str, observed: str) -> dict:
    return {"id": finding_id, "node": "w1", "observed": observed}


def test_a_node_is_asked_for_its_own_findings_that_can_be_mended_and_are_not_waived():
    others = [{**MANAGER, "node": "w2"}, {**MANAGER, "waived": True}, finding("node.kernel", "kernel 3.2")]

    assert wishes_of([*others, MANAGER], "w1") == [{"finding": MANAGER["id"], "fix": "managers"}]
    assert wishes_of(others, "w1") == []


def test_the_features_that_a_finding_names_become_modules():
    observed = (
        "iptables_match.set: CONFIG_NETFILTER_XT_SET=m, not loaded; tried: Extension set is not supported; "
        "iptables_target.MASQUERADE: not in modules.dep; bpf: bpf(2) is not there"
    )

    assert wishes_of([finding("kernel.iptables_match", observed)], "w1") == [
        {
            "finding": "kernel.iptables_match",
            "fix": "modules",
            "modules": [["xt_set"], ["xt_MASQUERADE", "ipt_MASQUERADE"]],
        }
    ]
    assert wishes_of([finding("kernel.ipip", "words without a feature")], "w1") == []


def test_of_two_backends_one_that_cannot_be_loaded_does_not_keep_the_other_from_it():
    observed = "iptables_legacy.raw: absent; nft.compat: absent; nft.nat_chain: absent"

    groups = [wish["modules"] for wish in wishes_of([finding("kernel.iptables_backend", observed)], "w1")]

    assert groups == [[["iptable_raw"]], [["nft_compat"], ["nft_chain_nat", "nft_chain_nat_ipv4"]]]


def test_every_finding_that_can_be_mended_exists_and_its_remedy_names_the_tag():
    """And no other remedy does."""
    remedies = {check.id: check.remedy for check in CHECKS}

    assert {name for name, remedy in remedies.items() if re.search(r"--tags fix\b", remedy)} == (
        MODULE_FINDINGS | set(FIXES)
    ) & set(remedies)


def test_what_was_mended_and_is_found_again_was_mended_in_vain():
    result = {"fixes": [{"finding": MANAGER["id"], "changes": []}, {"finding": "kernel.ipip", "changes": []}]}

    assert mended_in_vain(result, [MANAGER], "w1") == [MANAGER["id"]]
    assert mended_in_vain(result, [MANAGER], "w2") == []
    assert mended_in_vain({}, [MANAGER], "w1") == []


@pytest.mark.parametrize("name", FEATURES)
def test_each_feature_that_a_module_provides_can_be_asked_for(name):
    (wish,) = wishes_of([finding("kernel.nftables", f"{name}: absent")], "w1")

    assert wish["modules"] == [list(FEATURES[name])]
