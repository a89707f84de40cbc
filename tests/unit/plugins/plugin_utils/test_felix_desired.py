# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked of Felix becomes a spec, or is refused with the right value."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_desired import Ground, desired_spec
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_object import known_schema
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_known import Felix

PROXY = {"kube-proxy": 0x4000}


def ground(version=(3, 31), *, mask=0xFFFF0000, kubernetes=(1, 34), plane="iptables", bpf=False, ipvs=False):
    felix = Felix(version=version, mark_mask=mask, bpf=bpf, ipvs=ipvs)
    return Ground(version, kubernetes, known_schema(version), felix, plane=plane, others=PROXY)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        pytest.param("chaininsertmode", "Append", "chainInsertMode", id="case of a name"),
        pytest.param("ChainInsertMode", "Append", "chainInsertMode", id="name as the text writes it"),
        pytest.param("FELIX_CHAININSERTMODE", "Append", "chainInsertMode", id="variable"),
        pytest.param("chain_insert_mode", "Append", "chainInsertMode", id="with underscores"),
        pytest.param("iptableRefreshInterval", "90s", "iptablesRefreshInterval", id="typo"),
        pytest.param("nodeSelector", "all()", "which nodes", id="selector"),
        pytest.param("chainInsertMode", "append", "write Append", id="case of a word"),
        pytest.param("chainInsertMode", "Apend", "write Append", id="typo in a word"),
        pytest.param("chainInsertMode", "Bogus", "Insert, Append", id="no such word"),
        pytest.param("chainInsertMode", "", "ignores an empty", id="empty"),
        pytest.param("chainInsertMode", True, "none of Insert", id="boolean for a word"),
        pytest.param("iptablesFilterAllowAction", "REJECT", "Accept, Return", id="action that is none"),
        pytest.param("iptablesRefreshInterval", 0, '"0s"', id="number 0"),
        pytest.param("iptablesRefreshInterval", "0", '"0s"', id="text 0"),
        pytest.param("iptablesRefreshInterval", 90, '"90s"', id="number"),
        pytest.param("iptablesRefreshInterval", "90", '"90s"', id="text without a unit"),
        pytest.param("iptablesRefreshInterval", "1.5s", '"1500ms"', id="fraction"),
        pytest.param("iptablesRefreshInterval", 1.5, '"1500ms"', id="fraction as a number"),
        pytest.param("iptablesRefreshInterval", "100us", "such as 90s", id="microseconds"),
        pytest.param("iptablesRefreshInterval", "-1s", "such as 90s", id="negative"),
        pytest.param("iptablesRefreshInterval", "soon", "such as 90s", id="words"),
        pytest.param("iptablesMarkMask", "0x7fcf0000", "write 2144272384", id="mask as text"),
        pytest.param("iptablesMarkMask", 0, "5 bits", id="mask 0"),
        pytest.param("iptablesMarkMask", 0x30000, "0x7fff0000", id="two bits"),
        pytest.param("iptablesMarkMask", -3211264, "write 4291756032", id="negative mask"),
        pytest.param("iptablesMarkMask", 0xFFFF, "0x4000 of kube-proxy", id="kube-proxy's bit"),
        pytest.param("iptablesMarkMask", 1 << 32, "more than 32 bits", id="33 bits"),
        pytest.param("iptablesMarkMask", True, "whole number", id="boolean mask"),
        pytest.param("bpfEnabled", "true", "type boolean", id="boolean as text"),
        pytest.param("healthPort", 70000, "0 to 65535", id="port"),
        pytest.param("typhaAddr", "x", "environment", id="local parameter"),
        pytest.param("failsafeInboundHostPorts", None, "built-in value is not known", id="takes away the unknown"),
    ],
)
def test_refused(field, value, told):
    """What has no effect or harms is refused, and the message has what is right."""
    found = desired_spec(ground(), settings={field: value})

    assert told in found.refused[field]


@pytest.mark.parametrize(
    ("version", "field", "value"),
    [
        pytest.param((3, 25), "nftablesMarkMask", 0x7FCF0000, id="3.25 has no nftables"),
        pytest.param((3, 25), "chainInsertMode", "apend", id="3.25's CRD takes any text"),
        pytest.param((3, 13), "chainInsertmode", "Append", id="3.13 has no schema"),
        pytest.param((3, 13), "iptablesRefreshInterval", 0, id="3.13, number"),
        pytest.param((3, 24), "iptablesBackend", "Auto", id="3.24 crashes"),
        pytest.param((3, 32), "iptablesLockTimeout", "1s", id="gone"),
    ],
)
def test_refused_by_version(version, field, value):
    """What a version's CRD would let through is refused all the same."""
    assert field in desired_spec(ground(version), settings={field: value}).refused


def test_int32_is_enforced_from_1_36():
    """A mask with bit 31 can be written until 1.35."""
    assert not desired_spec(ground(), mark_mask=0xFFCF0000).refused
    refused = desired_spec(ground(kubernetes=(1, 36)), mark_mask=0xFFCF0000).refused
    assert "1.36" in refused["iptablesMarkMask"]


@pytest.mark.parametrize(
    ("variant", "plane", "spec"),
    [
        pytest.param("append", "iptables", {"chainInsertMode": "Append", "iptablesRefreshInterval": "0s"}, id="append"),
        pytest.param(
            "return",
            "iptables",
            {
                "chainInsertMode": "Insert",
                "iptablesFilterAllowAction": "Return",
                "iptablesMangleAllowAction": "Return",
                "iptablesRefreshInterval": "0s",
            },
            id="return",
        ),
        pytest.param(
            "append", "nftables", {"chainInsertMode": "Append", "nftablesRefreshInterval": "0s"}, id="nftables"
        ),
    ],
)
def test_profile(variant, plane, spec):
    """The two combinations of the text, by the names of the dataplane that runs, and a mask for it."""
    found = desired_spec(ground(plane=plane), profile="secure_workload", variant=variant)

    assert found.refused == {}
    assert found.spec == {**spec, f"{plane}MarkMask": 0x7FCF0000}


def test_profile_leaves_a_mask_that_is_clear():
    """3.25 takes bits 16 to 19 of its default; the text wants defaults where they do no harm."""
    found = desired_spec(ground((3, 25)), profile="secure_workload")

    assert found.spec == {"chainInsertMode": "Append", "iptablesRefreshInterval": "0s"}


@pytest.mark.parametrize(
    ("settings", "mask", "field", "told"),
    [
        pytest.param({"chainInsertMode": "Insert"}, None, "chainInsertMode", "'Append'", id="other variant"),
        pytest.param({"iptablesFilterAllowAction": "Return"}, None, "iptablesFilterAllowAction", "'Accept'", id="both"),
        pytest.param({"iptablesRefreshInterval": "90s"}, None, "iptablesRefreshInterval", "'0s'", id="refresh"),
        pytest.param({"bpfEnabled": True}, None, "bpfEnabled", "default, False", id="eBPF"),
        pytest.param({}, 0xFFFF0000, "iptablesMarkMask", "0x100000 of Secure Workload's", id="bit 20"),
        pytest.param({"iptablesMarkMask": 0x7FCF0000}, 0x7FC70000, "iptablesMarkMask", "twice", id="two masks"),
    ],
)
def test_profile_allows_nothing_that_contradicts_it(settings, mask, field, told):
    """All other options have their defaults, and the agent its two bits."""
    found = desired_spec(ground(), settings=settings, profile="secure_workload", mark_mask=mask)

    assert told in found.refused[field]


def test_plan_without_a_way_out_is_refused():
    """eBPF's bits are fixed."""
    found = desired_spec(ground(bpf=True, plane="bpf"), profile="secure_workload")

    assert "fixed" in found.refused["iptablesMarkMask"]
    assert "bpfEnabled" in found.refused


def test_what_is_right_passes():
    """Right values come through as they are."""
    settings = {"chainInsertMode": "Append", "iptablesRefreshInterval": "1m30s", "iptablesMarkMask": 0x7FCF0000}
    settings |= {"failsafeInboundHostPorts": [{"protocol": "tcp", "port": 22}], "chainInsertMode": None}

    assert desired_spec(ground(), settings=settings) == desired_spec(ground(), settings=dict(settings))
    assert desired_spec(ground(), settings=settings).refused == {}
    assert desired_spec(ground(), settings=settings).spec == settings
