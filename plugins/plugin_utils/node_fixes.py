# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which findings of a node the collection can mend, and by what (module_utils/node_fix_plan.py): a table.

The module looks at the node itself, so that a wish names no more than it must.
"""

from __future__ import annotations

from ansible_collections.portcullis.fleet.plugins.module_utils.kernel_table import FEATURES

FIXES = {
    "node.network_manager": {"fix": "unmanaged"},
    "packet_filter.other_manager": {"fix": "managers"},
    "kernel.rp_filter": {"fix": "sysctls", "sysctls": {"net.ipv4.conf.all.rp_filter": "1"}},
}
# Their words name the features that are missing, and a feature the modules of which any one provides it.
MODULE_FINDINGS = frozenset(
    {
        "kernel.conntrack",
        "kernel.ip6tables",
        "kernel.ipip",
        "kernel.ipset",
        "kernel.iptables_backend",
        "kernel.iptables_match",
        "kernel.iptables_rare",
        "kernel.iptables_target",
        "kernel.ipvs",
        "kernel.nftables",
        "kernel.tc",
        "kernel.vxlan",
        "kernel.wireguard",
    }
)


def wishes_of(findings: list[dict], node: str) -> list[dict]:
    """What to ask of a node for its findings. What is waived is left alone: somebody wants it so."""
    own = [item for item in findings if item["node"] == node and not item.get("waived")]
    return [wish for item in own for wish in _wishes_for(item)]


def _wishes_for(finding: dict) -> list[dict]:
    finding_id = finding["id"]
    if finding_id in FIXES:
        return [{"finding": finding_id, **FIXES[finding_id]}]
    if finding_id not in MODULE_FINDINGS:
        return []
    names = [part.partition(":")[0] for part in finding["observed"].split("; ")]
    missing = [name for name in dict.fromkeys(names) if name in FEATURES]
    groups: dict[str, list] = {}
    for name in missing:
        # Of the two backends of iptables one is enough, so that each is a wish of its own.
        group = name.partition(".")[0] if finding_id == "kernel.iptables_backend" else ""
        groups.setdefault(group, []).append(list(FEATURES[name]))
    return [{"finding": finding_id, "fix": "modules", "modules": modules} for modules in groups.values()]


def mended_in_vain(result: dict, findings: list[dict], node: str) -> list[str]:
    """The findings that were mended on a node, by the result of node_fix, and that are there all the same."""
    found = {item["id"] for item in findings if item["node"] == node}
    return [item["finding"] for item in result.get("fixes", []) if item["finding"] in found]
