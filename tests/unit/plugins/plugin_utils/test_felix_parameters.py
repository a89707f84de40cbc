# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Felix's parameters: what each version takes, and what a raw text means."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import (
    PARAMETERS,
    BadValueError,
    parse_duration,
    parse_version,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("name", "version", "default"),
    [
        pytest.param("iptablesRefreshInterval", (3, 13), 90, id="refresh-3.13"),
        pytest.param("iptablesRefreshInterval", (3, 26), 90, id="refresh-3.26"),
        pytest.param("iptablesRefreshInterval", (3, 27), 180, id="refresh-3.27"),
        pytest.param("iptablesPostWriteCheckInterval", (3, 25), 1, id="post-write-3.25"),
        pytest.param("iptablesPostWriteCheckInterval", (3, 32), 5, id="post-write-3.32"),
        pytest.param("chainInsertMode", (3, 32), "Insert", id="chain-mode"),
        pytest.param("iptablesMarkMask", (3, 13), 0xFFFF0000, id="mask"),
        pytest.param("nftablesMode", (3, 29), "Disabled", id="nftables-3.29"),
        pytest.param("nftablesMode", (3, 32), "Auto", id="nftables-3.32"),
        pytest.param("vxlanEnabled", (3, 27), None, id="decided-by-pools"),
    ],
)
def test_default(name, version, default):
    """The built-in value of a version."""
    assert PARAMETERS[name].default(version) == (default, True)


def test_default_of_an_unknown_version():
    """It is known where all versions agree, and only there."""
    assert PARAMETERS["chainInsertMode"].default(None) == ("Insert", True)
    assert PARAMETERS["iptablesRefreshInterval"].default(None) == (None, False)


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        ("wireguardEnabled", ((3, 13), (3, 14))),
        ("nftablesMode", ((3, 28), (3, 29))),
        ("iptablesFilterDenyAction", ((3, 25), (3, 26))),
    ],
)
def test_first_version(name, versions):
    """A parameter exists from a version on."""
    assert [PARAMETERS[name].exists(version) for version in versions] == [False, True]


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("iptablesRefreshInterval", "60", 60),
        ("iptablesRefreshInterval", "0.5", 0.5),
        ("iptablesRefreshInterval", "none", 0),
        ("iptablesLockProbeInterval", "50", 0.05),
        ("iptablesMarkMask", "0xff00ff00", 0xFF00FF00),
        ("iptablesMarkMask", "4278255360", 0xFF00FF00),
        ("chainInsertMode", "APPEND", "Append"),
        ("bpfEnabled", "Y", True),
        ("healthPort", "0x10", 16),
        ("logFilePath", "None", ""),
    ],
)
def test_value(name, raw, value):
    """What Felix makes of a text; durations come back in seconds."""
    assert PARAMETERS[name].parse(raw, (3, 27)) == value


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("iptablesRefreshInterval", "90s"),
        ("iptablesRefreshInterval", " 90"),
        ("iptablesMarkMask", "0x1"),
        ("iptablesMarkMask", "-1"),
        ("iptablesMarkMask", "none"),
        ("chainInsertMode", "Bogus"),
        ("chainInsertMode", "none"),
        ("bpfEnabled", "on"),
        ("healthPort", "70000"),
        ("failsafeInboundHostPorts", "ssh"),
    ],
)
def test_bad_value(name, raw):
    """What Felix does not parse is refused with a reason."""
    with pytest.raises(BadValueError, match=r"\w+"):
        PARAMETERS[name].parse(raw, (3, 27))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v3.27.0", (3, 27)),
        ("docker.io/calico/node:v3.29.3", (3, 29)),
        ("v3.27.2-build2024030801", (3, 27)),
        ("release-v3.13", (3, 13)),
        ("latest", None),
    ],
)
def test_version(text, version):
    """Major and minor of whatever names a version."""
    assert parse_version(text) == version


@given(st.integers(0, 10**6), st.sampled_from([("ms", 0.001), ("s", 1), ("m", 60), ("h", 3600)]))
def test_a_duration_is_its_seconds(count, unit):
    """Number and unit, as Go reads them."""
    assert parse_duration(f"{count}{unit[0]}") == pytest.approx(count * unit[1])


@given(st.text(max_size=8), st.sampled_from(sorted(PARAMETERS)))
def test_a_text_is_a_value_or_refused(text, name):
    """No other error leaves the parser."""
    try:
        PARAMETERS[name].parse(text, None)
    except BadValueError as error:
        assert str(error)
