# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of a whole fleet: which are waived, which are the same, and a table for the terminal."""

from __future__ import annotations

import textwrap

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, SEVERITIES

TABLE_WIDTH = 110
NODES_SHOWN = 6
SAME = ("id", "severity", "requirement", "observed", "expected", "remedy", "waived")


def parse_accept(words: list[str]) -> list[str]:
    """The ids to waive. C(-e portcullis_accept=[a,b]) reaches Ansible as one string: its brackets and quotes go."""
    return [name for name in (word.strip("[]'\" ") for word in words) if name]


def is_waived(finding: dict, accept: list[str]) -> bool:
    """Whether C(portcullis_accept) names this finding, everywhere (C(id)) or on its node (C(id@node))."""
    return finding["id"] in accept or f"{finding['id']}@{finding['node']}" in accept


def waive(findings: list[dict], accept: list[str]) -> list[dict]:
    """The findings with C(waived) added to each."""
    return [{**item, "waived": is_waived(item, accept)} for item in findings]


def unused_waivers(findings: list[dict], accept: list[str]) -> list[str]:
    """The waivers that no finding met: a misspelt one would otherwise be found out only by a run that stops."""
    return [name for name in accept if not any(is_waived(item, [name]) for item in findings)]


def blockers(findings: list[dict]) -> list[dict]:
    """The findings that stop a run: blockers that are not waived."""
    return [item for item in findings if item["severity"] == BLOCKER and not item["waived"]]


def group_findings(findings: list[dict]) -> list[dict]:
    """One entry for all findings that are the same but for the node, blockers first: C(node) becomes C(nodes)."""
    groups: dict[tuple, dict] = {}
    for item in findings:
        key = tuple(item[name] for name in SAME)
        group = groups.setdefault(key, {**{name: item[name] for name in SAME}, "nodes": []})
        group["nodes"].append(item["node"])
    return sorted(
        groups.values(), key=lambda group: (group["waived"], SEVERITIES.index(group["severity"]), group["id"])
    )


def name_nodes(nodes: list[str]) -> str:
    """The nodes of a group in a few words."""
    if nodes == [""]:
        return "the fleet"
    shown = ", ".join(nodes[:NODES_SHOWN])
    more = len(nodes) - NODES_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def _wrapped(label: str, text: str) -> list[str]:
    """A labelled text, wrapped below its label."""
    head = f"    {label:<9}"
    wrapper = textwrap.TextWrapper(
        TABLE_WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
    )
    return wrapper.wrap(" ".join(text.split()))


def render_table(findings: list[dict]) -> str:
    """The findings as a person at a terminal reads them: what, where, what was found, and what to do."""
    lines = []
    for group in group_findings(findings):
        word = "waived" if group["waived"] else group["severity"]
        lines.append(f"{word.upper():<9}{group['id']:<34}{name_nodes(group['nodes'])}")
        lines += _wrapped("found", group["observed"])
        lines += _wrapped("expected", group["expected"])
        lines += _wrapped("do", group["remedy"])
        lines += _wrapped("source", group["requirement"])
    return "\n".join(lines)
