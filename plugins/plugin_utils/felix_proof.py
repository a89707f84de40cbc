# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a node has a change of Felix in force: by felix.cfg, Felix's readiness and restart, and the live rules."""

from __future__ import annotations

from ansible_collections.portcullis.fleet.plugins.module_utils.packet_filters import unpacked
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_file import FelixFileError, parse_felix_file
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_live import LiveFelix, mismatches, read_live
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import BY_CONFIG, BadValueError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_known import Felix
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_owners import running_software
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_state import PacketFilters, read_packet_filters


def filters_of(texts: dict) -> PacketFilters:
    """The packet filters that a node's reading tells."""
    return read_packet_filters(
        saves=map(unpacked, texts["saves"]),
        nft_json="".join(map(unpacked, texts["nft_json"])),
        ip_rules=map(unpacked, texts["ip_rules"]),
        running=running_software(texts["programs"], texts["units"]),
    )


def in_the_way(proof: dict, reading: dict) -> list[str]:
    """Settings of felix.cfg that outrank the change; nothing but an edit of that file helps."""
    if not proof["host_file"] or not reading["file"]:
        return []
    version = tuple(proof["felix"]["version"]) if proof["felix"]["version"] else None
    try:
        entries = parse_felix_file(reading["file"])
    except FelixFileError as error:
        return [f"{reading['file_path']}: {error}"]
    found = []
    for key, raw in entries.items():
        parameter = BY_CONFIG.get(key.lower())
        if parameter and parameter.name in proof["values"] and raw:
            try:
                value = parameter.parse(raw, version)
            except BadValueError:
                value = raw
            if value != proof["values"][parameter.name]:
                found.append(f"{key} = {raw} in {reading['file_path']} outranks every object: take it out there")
    return found


def missing(proof: dict, reading: dict, since_s: float | None) -> list[str]:
    """What does not show the change yet.

    :param since_s: seconds since the node's object was written, None where no restart is to be seen.
    """
    found = []
    ready = reading["readiness"]
    if proof["health"] and ready["status"] != 200:
        found.append(f"Felix is not ready: {proof['health']} says {ready['status'] or ready['error']}")
    ages = reading["ages_s"]
    if since_s is not None and ages and min(ages) > since_s:
        found.append(f"Felix has run for {min(ages):.0f} s and has not restarted since its object was written")
    if proof["has_rules"]:
        found += _missing_rules(proof, reading)
    return found


def _missing_rules(proof: dict, reading: dict) -> list[str]:
    live = read_live(filters_of(reading["packet_filters"]))
    if not live:
        unseen = reading["packet_filters"]["unseen"]
        return [f"no rules of Felix's are there{f' ({unseen})' if unseen else ''}"]
    version = proof["felix"]["version"]
    felix = Felix(
        version=tuple(version) if version else None, wireguard=proof["felix"]["wireguard"], ipvs=proof["felix"]["ipvs"]
    )
    candidates = [live[proof["backend"]]] if proof["backend"] in live else list(live.values())
    # Rules of a former backend stay when Felix goes to another one.
    return min((mismatches(item, proof["values"], felix) for item in candidates), key=len)


def shown(reading: dict) -> dict[str, dict]:
    """The live rules in short, by backend."""
    return {name: _short(item) for name, item in read_live(filters_of(reading["packet_filters"])).items()}


def _short(live: LiveFelix) -> dict:
    return {
        "chain_insert_mode": live.chain_insert_mode,
        "filter_allow_action": live.filter_allow_action,
        "mangle_allow_action": live.mangle_allow_action,
        "mark_bits": f"{live.mark_bits:#x}",
    }
