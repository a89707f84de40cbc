# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""FelixConfiguration objects: what Felix receives, what the API server refuses, how a setting is spelt where."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_effective import effective
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_object import (
    known_schema,
    object_values,
    refusals,
    spellings,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import (
    MILLISECONDS,
    PARAMETERS,
    SECONDS,
)
from hypothesis import given
from hypothesis import strategies as st


def test_values_in_felix_own_spelling():
    """Durations become numbers, lists texts, an empty list the word none; nulls and empty texts are not sent."""
    spec = {
        "iptablesRefreshInterval": "1m30s",
        "iptablesPostWriteCheckInterval": "500ms",
        "iptablesLockProbeInterval": "50ms",
        "bpfEnabled": True,
        "failsafeInboundHostPorts": [
            {"protocol": "TCP", "port": 22},
            {"protocol": "udp", "port": 53, "net": "fd00::/8"},
        ],
        "failsafeOutboundHostPorts": [],
        "logPrefix": "",
        "logFilePath": None,
    }

    assert object_values({"spec": spec}) == (
        {
            "IptablesRefreshInterval": "90",
            "IptablesPostWriteCheckIntervalSecs": "0.5",
            "IptablesLockProbeIntervalMillis": "50",
            "BpfEnabled": "true",
            "FailsafeInboundHostPorts": "tcp:22,udp:[fd00::/8]:53",
            "FailsafeOutboundHostPorts": "none",
        },
        {},
    )


def test_an_annotation_replaces_the_field():
    """Also with an empty value, and whatever the case of its name."""
    item = {
        "metadata": {"annotations": {"config.projectcalico.org/ChainInsertMode": "Append", "other": "x"}},
        "spec": {"chainInsertMode": "Insert"},
    }

    assert object_values(item)[0] == {"ChainInsertMode": "Append"}


@pytest.mark.parametrize(
    ("spec", "version", "refused"),
    [
        pytest.param({"iptablesRefreshInterval": 0}, (3, 25), True, id="number-for-duration"),
        pytest.param({"iptablesRefreshInterval": "90"}, (3, 25), False, id="plain-before-patterns"),
        pytest.param({"iptablesRefreshInterval": "90"}, (3, 27), True, id="plain"),
        pytest.param({"iptablesRefreshInterval": "100us"}, (3, 27), True, id="microseconds"),
        pytest.param({"iptablesRefreshInterval": "1.5s"}, (3, 31), True, id="fraction"),
        pytest.param({"iptablesRefreshInterval": "0s"}, (3, 31), False, id="zero-seconds"),
        pytest.param({"chainInsertMode": "append"}, (3, 31), False, id="lower-case"),
        pytest.param({"chainInsertMode": "Bogus"}, (3, 25), False, id="typo-before-patterns"),
        pytest.param({"chainInsertMode": "Bogus"}, (3, 27), True, id="typo"),
        pytest.param({"iptablesMarkMask": "0x7fcf0000"}, (3, 25), True, id="mask-as-text"),
        pytest.param({"IptablesMarkMask": 1}, (3, 31), True, id="wrong-case-of-name"),
        pytest.param({"nftablesMode": "Enabled"}, (3, 28), True, id="field-of-later-version"),
        pytest.param({"nftablesMode": "enabled"}, (3, 31), True, id="enum-with-case"),
        pytest.param({"etcdAddr": "a:1"}, (3, 31), True, id="local-only"),
        pytest.param({"somethingNew": 1}, (3, 31), False, id="not-known-here"),
        pytest.param({"chainInsertMode": 1}, (3, 14), False, id="no-schema-yet"),
    ],
)
def test_what_the_api_server_refuses(spec, version, refused):
    """By the rules of the version, where the cluster's CRD was not read."""
    assert bool(refusals(spec, known_schema(version))) is refused


@pytest.mark.parametrize(("kubernetes", "refused"), [((1, 35), False), ((1, 36), True), (None, True)])
def test_masks_with_bit_31(kubernetes, refused):
    """int32 is enforced from Kubernetes 1.36; the safe masks fit."""
    schema = known_schema((3, 31))

    assert bool(refusals({"iptablesMarkMask": 0xFFCF0000}, schema, kubernetes=kubernetes)) is refused
    assert (
        refusals({"iptablesMarkMask": 0x7FCF0000, "nftablesMarkMask": 0x7FC70000}, schema, kubernetes=kubernetes) == {}
    )


def test_go_patterns():
    """Flags in the middle, and an end that is the end of the text."""
    schema = {"properties": {"mode": {"type": "string", "pattern": "^(?i)(Insert|Append)?$"}}}

    assert refusals({"mode": "INSERT"}, schema) == {}
    assert set(refusals({"mode": "Insert\n", "other": 1}, schema)) == {"mode", "other"}


DURATIONS = sorted(name for name, item in PARAMETERS.items() if item.kind in {SECONDS, MILLISECONDS})


@given(st.sampled_from(DURATIONS), st.integers(0, 10**7))
def test_each_spelling_means_the_same(name, milliseconds):
    """Object, environment and file, once written, have the value that was asked for."""
    places = spellings(name, milliseconds / 1000)
    objects = [{"metadata": {"name": "default"}, "spec": {name: places["object"]}}]
    found = [
        effective(None, objects=objects),
        effective(None, file_text=f"{places['file_key']} = {places['plain']}"),
    ]

    assert [config.settings[name].value for config in found] == [pytest.approx(milliseconds / 1000)] * 2
