# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which findings of a node the collection can mend, and by what (module_utils/node_fix_plan.py): a table.

The module looks at the node itself, so that a wish names no more than it must.
"""

from __future__ import annotations

FIXES = {
    "packet_filter.other_manager": {"fix": "managers"},
    "kernel.rp_filter": {"fix": "sysctls", "sysctls": {"net.ipv4.conf.all.rp_filter": "1"}},
}


def wishes_of(findings: list[dict], node: str) -> list[dict]:
    """What to ask of a node for its findings. What is waived is left alone: somebody wants it so."""
    own = [item for item in findings if item["node"] == node and not item.get("waived")]
    return [{"finding": item["id"], **FIXES[item["id"]]} for item in own if item["id"] in FIXES]


def mended_in_vain(result: dict, findings: list[dict], node: str) -> list[str]:
    """The findings that were mended on a node, by the result of node_fix, and that are there all the same."""
    found = {item["id"] for item in findings if item["node"] == node}
    return [item["finding"] for item in result.get("fixes", []) if item["finding"] in found]
