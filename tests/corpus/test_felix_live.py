# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recorded rules of real Felix tell the settings with which it ran."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_live import mismatches, read_live

from tests.corpus.test_netfilter import STATES, filters, known, meta

WITH_FELIX = [state for state in STATES if meta(state)["felix"]]
OTHER = {"Insert": "Append", "Append": "Insert", "Accept": "Return", "Return": "Accept"}


def wanted(state):
    """The settings that rules show, as the recorder had them in effect."""
    found, used = (
        meta(state)["felix"]["effective"],
        "nftables" if known(state).felix.backend == "native" else "iptables",
    )
    return {
        "chainInsertMode": found["chainInsertMode"],
        f"{used}FilterAllowAction": found["iptablesFilterAllowAction"],
        f"{used}MangleAllowAction": found["iptablesMangleAllowAction"],
        f"{used}MarkMask": int(found["iptablesMarkMask"], 16),
        "nftablesMode": "Enabled" if used == "nftables" else "Disabled",
    }


@pytest.mark.parametrize("with_saves", [True, False], ids=["saves and JSON", "JSON alone"])
@pytest.mark.parametrize("state", WITH_FELIX)
def test_settings_are_read_from_the_rules(state, with_saves):
    """Each setting that ran is seen, and any other value of it is not."""
    felix = known(state).felix
    live = read_live(filters(state, with_saves))[felix.backend]

    assert mismatches(live, wanted(state), felix) == []
    for name, value in wanted(state).items():
        if value in OTHER and not (name == "chainInsertMode" and not live.chain_insert_mode):
            assert mismatches(live, {name: OTHER[value]}, felix), name
    mask = next(name for name in wanted(state) if name.endswith("MarkMask"))
    if with_saves:
        assert mismatches(live, {mask: 0x7FC70000}, felix)


@pytest.mark.parametrize("state", WITH_FELIX)
def test_the_insert_mode_is_always_told(state):
    """Where kube-proxy or kubelet has a jump the mode is known; a legacy table of Felix's own alone tells none."""
    for backend, live in read_live(filters(state)).items():
        is_alone = backend == "native" or (backend == "legacy" and "kp-iptables-nft" in state)
        assert live.chain_insert_mode == ("" if is_alone else meta(state)["felix"]["effective"]["chainInsertMode"])


@pytest.mark.parametrize("state", [state for state in STATES if state not in WITH_FELIX])
def test_no_felix_is_seen_without_it(state):
    """Rules of others are not taken for Felix's."""
    assert read_live(filters(state)) == {}
