# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices NetworkManager's files keep from it: NetworkManager.conf(5)."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.network_manager import (
    claimed,
    is_left_alone,
    matches,
    merged_unmanaged,
)


def section(name: str, **values: str) -> dict:
    named = {key.replace("_plus", "+").replace("_minus", "-").replace("_", "-"): text for key, text in values.items()}
    return {"file": "f", "section": name, "values": named}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([section("keyfile", unmanaged_devices="a;b")], ["a", "b"]),
        ([section("keyfile", unmanaged_devices="a"), section("keyfile", unmanaged_devices="b")], ["b"]),
        (
            [section("keyfile", unmanaged_devices="a"), section("keyfile", unmanaged_devices_plus="b,c")],
            ["a", "b", "c"],
        ),
        ([section("keyfile", unmanaged_devices="a;b"), section("keyfile", unmanaged_devices_minus="a")], ["b"]),
        ([section("main", unmanaged_devices="a")], []),
        ([], []),
    ],
    ids=["one file", "a later file replaces", "adds", "takes away", "another section", "none"],
)
def test_later_files_replace_add_and_take_away(settings, expected):
    assert merged_unmanaged(settings) == expected


@pytest.mark.parametrize(
    ("spec", "device", "kind", "expected"),
    [
        ("*", "cali1", "veth", True),
        ("cali1", "cali1", "veth", True),
        ("cali*", "cali1", "veth", False),
        ("interface-name:cali*", "cali1", "veth", True),
        ("interface-name:~cali?", "cali1", "veth", True),
        ("interface-name:=cali*", "cali1", "veth", False),
        ("interface-name:cali[1]", "cali1", "veth", False),
        ("type:vxlan", "vxlan.calico", "vxlan", True),
        ("type:vxlan", "tunl0", "ip-tunnel", False),
        ("mac:ee:ee:ee:ee:ee:ee", "cali1", "veth", False),
        ("driver:veth", "cali1", "veth", False),
    ],
)
def test_device_specifications(spec, device, kind, expected):
    assert matches(spec, device, kind) is expected


def test_an_exception_outweighs_the_rest():
    settings = [section("keyfile", unmanaged_devices="*,except:interface-name:tunl0")]

    assert claimed(settings, ["cali0123456789a", "tunl0"]) == ["tunl0"]


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("except:interface-name:eth0", []),
        ("except:interface-name:cali*", ["cali0123456789a"]),
        ("Except:Interface-Name:cali*;interface-name:tunl*", ["cali0123456789a"]),
        (" interface-name:cali* ; interface-name:tunl0 ", []),
        ("type:iptunnel;type:ethernet", []),
        ("type:veth,type:ip-tunnel", ["cali0123456789a", "tunl0"]),
        ("interface-name:a b", ["cali0123456789a", "tunl0"]),
        ("", ["cali0123456789a", "tunl0"]),
    ],
    ids=["all but one", "all but cali", "case", "spaces", "types", "no types", "no separator", "empty"],
)
def test_lists_of_devices(value, left):
    """A list of nothing but exceptions means everything else."""
    assert claimed([section("keyfile", unmanaged_devices=value)], ["cali0123456789a", "tunl0"]) == left


OFF, ON = {"managed": "0"}, {"managed": "1"}
VETH = {"match_device": "type:veth"}


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ([section("device", **OFF)], True),
        ([section("device-cali", match_device="interface-name:cali*", managed="no")], True),
        ([section("device-eth", match_device="interface-name:eth*", **OFF)], False),
        ([section("device", **OFF), section("device-x", **VETH, **ON)], False),
        ([section("device-a", **VETH, **OFF), section("device-b", **VETH, **ON)], True),
        ([section("device-a", **OFF), {**section("device", **ON), "file": "g"}], False),
        ([section("device", **VETH)], False),
        ([section("device-a", **VETH), section("device-b", **OFF)], True),
        ([section("device-a", stop_match="yes", **VETH), section("device-b", **OFF)], False),
        ([section("devices", **OFF)], True),
        ([section("connection-device", **OFF)], False),
    ],
    ids=[
        "every device",
        "by name",
        "another name",
        "the plain section is asked last",
        "the first of a file",
        "a later file",
        "says nothing",
        "says nothing, so the next is asked",
        "stops",
        "any name that begins so",
        "another section",
    ],
)
def test_sections_of_devices(sections, expected):
    assert is_left_alone(sections, "cali0123456789a", "veth") is expected
