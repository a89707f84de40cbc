# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_effective import effective
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_known import Felix, felix_of


@pytest.mark.parametrize(
    ("version", "spec", "nftables", "expected"),
    [
        pytest.param((3, 13), {}, None, Felix((3, 13), 0xFFFF0000, "legacy", "Insert"), id="3.13"),
        pytest.param((3, 25), {}, None, Felix((3, 25), 0xFFFF0000, "", "Insert"), id="3.25: Auto is seen in the rules"),
        pytest.param(
            (3, 25),
            {"iptablesBackend": "NFT", "chainInsertMode": "append", "wireguardEnabled": True},
            None,
            Felix((3, 25), 0xFFFF0000, "nft", "Append", wireguard=True),
            id="3.25-nft",
        ),
        pytest.param(
            (3, 31),
            {"nftablesMode": "Enabled", "nftablesMarkMask": 0x7FCF0000, "iptablesMarkMask": 1},
            None,
            Felix((3, 31), 0x7FCF0000, "native", "Insert"),
            id="3.31-nftables",
        ),
        pytest.param((3, 32), {}, True, Felix((3, 32), 0xFFFF0000, "native", "Insert"), id="3.32 as seen"),
        pytest.param(
            (3, 31), {"bpfEnabled": True}, None, Felix((3, 31), 0xFFFF0000, "", "Insert", bpf=True), id="ebpf"
        ),
    ],
)
def test_felix_from_its_effective_configuration(version, spec, nftables, expected):
    """What a FelixConfiguration comes to, in the terms of the rules."""
    item = {"kind": "FelixConfiguration", "metadata": {"name": "default"}, "spec": spec}
    config = effective(version, objects=[item])

    assert felix_of(version, config, nftables=nftables) == expected
