# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices NetworkManager leaves alone, by its configuration: NetworkManager.conf(5), "Device List Format"."""

from __future__ import annotations

import fnmatch
import re

# What device types Calico's interfaces are, as NetworkManager calls them.
DEVICES = {
    "cali0123456789a": "veth",
    "tunl0": "ip-tunnel",
    "vxlan.calico": "vxlan",
    "vxlan-v6.calico": "vxlan",
    "wireguard.cali": "wireguard",
    "wg-v6.cali": "wireguard",
}
CALICO_DEVICE = re.compile(r"cali[0-9a-f]+|tunl\d+|vxlan(?:-v6)?\.calico|wireguard\.cali|wg-v6\.cali")
_NO = ("0", "no", "false", "off")


def specs_of(text: str) -> list[str]:
    """The device specifications of a value."""
    return [item for item in re.split(r"[,;\s]+", text) if item]


def merged_unmanaged(settings: list[dict]) -> list[str]:
    """The effective C(unmanaged-devices) of C([keyfile]): later files replace it, C(+=) adds and C(-=) takes away."""
    found: list[str] = []
    for item in settings:
        if item["section"] != "keyfile":
            continue
        for key, text in item["values"].items():
            name, sign = (key[:-1], key[-1]) if key[-1] in "+-" else (key, "")
            if name != "unmanaged-devices":
                continue
            specs = specs_of(text)
            kept = {"+": found, "-": [spec for spec in found if spec not in specs], "": []}[sign]
            found = [*kept, *(specs if sign != "-" else [])]
    return found


def matches(spec: str, device: str, kind: str) -> bool:
    """Whether one specification, without C(except:), means a device. By MAC or driver none does."""
    if spec == "*":
        return True
    how, colon, value = spec.partition(":")
    if not colon:
        return spec == device
    if how == "interface-name":
        if value.startswith("="):
            return value[1:] == device
        # Only * and ? are special.
        pattern = value.removeprefix("~").replace("[", "[[]")
        return fnmatch.fnmatchcase(device, pattern)
    return how == "type" and value == kind


def means(specs: list[str], device: str, kind: str) -> bool:
    """Whether a list of specifications means a device: an exception that matches outweighs the others."""
    if any(matches(spec.removeprefix("except:"), device, kind) for spec in specs if spec.startswith("except:")):
        return False
    return any(matches(spec, device, kind) for spec in specs if not spec.startswith("except:"))


def is_left_alone(settings: list[dict], device: str, kind: str) -> bool:
    """Whether the configuration makes a device unmanaged, by C([keyfile]) or by a C([device]) section."""
    if means(merged_unmanaged(settings), device, kind):
        return True
    for item in reversed(settings):
        values = item["values"]
        if not re.match(r"device(?:-|$)", item["section"]) or "managed" not in values:
            continue
        if means(specs_of(values.get("match-device", "*")), device, kind):
            return values["managed"].lower() in _NO
    return False


def claimed(settings: list[dict], devices: list[str]) -> list[str]:
    """Those of Calico's DEVICES that the configuration does not keep from NetworkManager."""
    return [name for name in devices if not is_left_alone(settings, name, DEVICES[name])]
