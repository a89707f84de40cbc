# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which devices NetworkManager leaves alone by its configuration.

Source: NetworkManager.conf(5), "Device List Format", "Sections" of C(connection) and C(device); what a list of mere
exceptions means: _match_result in NetworkManager's nm-core-utils.c. Measured with NetworkManager 1.42.
"""

from __future__ import annotations

import fnmatch
import re

# One that stands for those of all pods.
PODS_DEVICE = "cali0123456789a"
# What types of device Calico's interfaces are, as C(nmcli -f GENERAL.TYPE device show) of 1.42 says.
DEVICES = {
    PODS_DEVICE: "ethernet",
    "tunl0": "iptunnel",
    "vxlan.calico": "vxlan",
    "vxlan-v6.calico": "vxlan",
    "wireguard.cali": "wireguard",
    "wg-v6.cali": "wireguard",
}
EXCEPT = "except:"
_NO = ("0", "no", "false", "off")


def specs_of(text: str) -> list[str]:
    """The device specifications of a value. Spaces separate none, but are no part of one either."""
    return [item.strip() for item in re.split(r"[,;]", text) if item.strip()]


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
    if how.lower() == "interface-name":
        if value.startswith("="):
            return value[1:] == device
        # Only * and ? are special.
        pattern = value.removeprefix("~").replace("[", "[[]")
        return fnmatch.fnmatchcase(device, pattern)
    return how.lower() == "type" and value == kind


def means(specs: list[str], device: str, kind: str) -> bool:
    """Whether a list of specifications means a device.

    An exception that matches outweighs the others; a list of nothing but exceptions means all other devices.
    """
    exceptions = [spec[len(EXCEPT) :] for spec in specs if spec.lower().startswith(EXCEPT)]
    others = [spec for spec in specs if not spec.lower().startswith(EXCEPT)]
    if any(matches(spec, device, kind) for spec in exceptions):
        return False
    return any(matches(spec, device, kind) for spec in others) or bool(exceptions and not others)


def device_sections(settings: list[dict]) -> list[dict]:
    """The sections that begin with C(device), the first to be asked first.

    Those of later files come first; within a file they stand in order, but C([device]) itself is the last.
    """
    files = list(dict.fromkeys(item["file"] for item in settings))
    found = [item for item in settings if item["section"].startswith("device")]
    return sorted(found, key=lambda item: (-files.index(item["file"]), item["section"] == "device"))


def is_left_alone(settings: list[dict], device: str, kind: str) -> bool:
    """Whether the configuration makes a device unmanaged, by C([keyfile]) or by a C([device]) section."""
    if means(merged_unmanaged(settings), device, kind):
        return True
    for item in device_sections(settings):
        values = item["values"]
        if not means(specs_of(values.get("match-device", "*")), device, kind):
            continue
        if "managed" in values:
            return values["managed"].lower() in _NO
        if values.get("stop-match", "no").lower() not in _NO:
            return False
    return False


def of_kinds(names: list[str], devices: list[str]) -> list[str]:
    """Those of the names that are devices of Calico of the kinds that DEVICES' names stand for."""
    kinds = {name: PODS_DEVICE if re.fullmatch("cali[0-9a-f]+", name) else name for name in names}
    return [name for name, kind in kinds.items() if kind in devices]


def claimed(settings: list[dict], devices: list[str]) -> list[str]:
    """Those of Calico's DEVICES that the configuration does not keep from NetworkManager."""
    return [name for name in devices if not is_left_alone(settings, name, DEVICES[name])]
