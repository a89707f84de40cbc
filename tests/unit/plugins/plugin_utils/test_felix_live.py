# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Felix's settings are read from the rules that are there."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_live import (
    LiveFelix,
    mismatches,
    read_live,
    shows_mask,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_known import Felix

from tests.unit.plugins.plugin_utils.netfilter_samples import KUBE_PROXY_FILTER, felix_filter, save, state

FELIX = Felix(version=(3, 31))
# What 3.31 takes of the default mask and shows: accept, pass and both scratch bits; drop shows in no rule here.
DEFAULT_BITS = 0x1B0000
KUBE_FORWARD = KUBE_PROXY_FILTER.strip().splitlines()[0]
ACCEPTED = felix_filter().strip().splitlines()[2]
JUMP = '-A FORWARD -m comment --comment "cali:wUHhoiAYhphO9Mso" -j cali-FORWARD'
HOLD = '-A cali-FORWARD -m comment --comment "cali:W_vvds1Nw3n9QE2f" -j MARK --set-xmark 0x0/0x1b0000'
FOREIGN = "-A FORWARD -j TA_INPUT\n-A TA_INPUT -s 10.0.0.1/32 -j DROP"
KUBE_HOLD = "-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT"


def live(*rules: str, backend: str = "nft", mangle: str = ""):
    """The one backend of Felix's that these rules of the filter table show."""
    tables = {"filter": "\n".join([*rules, HOLD, KUBE_HOLD])} | ({"mangle": mangle} if mangle else {})
    (found,) = read_live(state(save(backend, **tables))).values()
    return found


@pytest.mark.parametrize(
    ("rules", "mode"),
    [
        pytest.param([JUMP, KUBE_FORWARD], "Insert", id="first"),
        pytest.param([KUBE_FORWARD, JUMP, ACCEPTED], "Append", id="last, its own rule behind it"),
        pytest.param([FOREIGN, JUMP, KUBE_FORWARD], "Insert", id="somebody came in front of it"),
        pytest.param([KUBE_FORWARD, JUMP, FOREIGN], "Append", id="somebody came behind it"),
        pytest.param([JUMP], "", id="alone"),
        pytest.param([FOREIGN, JUMP, "-A FORWARD -j LOG"], "", id="between strangers"),
    ],
)
def test_chain_insert_mode(rules, mode):
    """The place among kube-proxy's and kubelet's jumps tells; where there is none of them, nothing does."""
    assert live(*rules).chain_insert_mode == mode


@pytest.mark.parametrize("backend", ["nft", "legacy"])
def test_both_backends_are_read(backend):
    """Each backend has an answer of its own."""
    found = live(JUMP, KUBE_FORWARD, ACCEPTED, backend=backend)

    assert (found.backend, found.dataplane, found.filter_allow_action) == (backend, "iptables", "Accept")
    assert found.mark_bits == DEFAULT_BITS


@pytest.mark.parametrize(
    ("bits", "mask", "felix", "shown"),
    [
        pytest.param(DEFAULT_BITS, 0xFFFF0000, FELIX, True, id="default"),
        pytest.param(DEFAULT_BITS, 0x7FCF0000, FELIX, False, id="still the former mask"),
        pytest.param(0x4B0000, 0x7FCF0000, FELIX, True, id="mask without bits 20 and 21"),
        pytest.param(DEFAULT_BITS, 0xFFFB0000, FELIX, False, id="the former bits are a part of the new ones"),
        pytest.param(0, 0xFFFF0000, FELIX, False, id="no rules"),
        pytest.param(0xF0000, 0xFFFF0000, Felix(version=(3, 25)), True, id="3.25 takes four bits"),
    ],
)
def test_mask(bits, mask, felix, shown):
    """The bits in use are exactly those that this version takes of the mask."""
    assert shows_mask(LiveFelix("nft", {}, "", "", bits, sets_marks=True), mask, felix) is shown


def test_mismatches_are_told_with_what_is_seen():
    """What no rule shows is left out; what differs is told with both values."""
    wanted = {"chainInsertMode": "Append", "iptablesRefreshInterval": 0, "nftablesFilterAllowAction": "Return"}

    assert mismatches(live(KUBE_FORWARD, JUMP), wanted, FELIX) == []
    assert mismatches(live(JUMP, KUBE_FORWARD), wanted, FELIX) == [
        "chainInsertMode is Insert in the live rules (nft), not Append"
    ]
    missing = mismatches(live(JUMP), {"iptablesMangleAllowAction": "Return", "iptablesMarkMask": 0x7FCF0000}, FELIX)
    assert "not to be seen" in missing[0]
    assert "bits 0x1b0000 are in use" in missing[1]
    assert mismatches(live(JUMP), {"nftablesMode": "Enabled"}, FELIX)
