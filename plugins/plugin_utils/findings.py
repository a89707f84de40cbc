# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings of a whole fleet: which are waived, which are the same, and a table for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import (
    natural_key,
    one_line,
    replace_names,
    shown,
    visible,
)

TABLE_WIDTH = 110
NODES_SHOWN = 6
KEYS = ("id", "severity", "requirement", "node", "observed", "expected", "remedy")


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


def group_findings(findings: Iterable[Mapping], names: Mapping[str, Iterable[str]]) -> list[dict]:
    """Group findings into problems (one remedy) and, in each, by what was observed. Worst and widest first.

    Texts that differ only in what their own node is called are the same.

    :param names: for each node, the names that may stand for it in texts; a node that is not in it has its own.
    """
    problems = {}
    for item in findings:
        own = names.get(item["node"], (item["node"],))
        raw = {key: visible(item[key]) for key in KEYS}
        same = {key: replace_names(raw[key], own) for key in ("observed", "expected", "remedy")}
        waived, everywhere = bool(item.get("waived")), not item["node"]
        key = (waived, raw["severity"], raw["id"], raw["requirement"], same["expected"], same["remedy"], everywhere)
        problem = problems.setdefault(key, {"expected": set(), "remedy": set(), "observed": {}})
        problem["expected"].add(raw["expected"])
        problem["remedy"].add(raw["remedy"])
        variant = problem["observed"].setdefault(same["observed"], {"raw": set(), "nodes": set()})
        variant["raw"].add(raw["observed"])
        variant["nodes"].add(raw["node"])
    return sorted((_problem(key, problem) for key, problem in problems.items()), key=_urgency)


def _problem(key, problem):
    waived, severity, finding_id, requirement, expected, remedy, everywhere = key
    observed = [
        {
            "observed": shown(variant["raw"], same),
            "nodes": [] if everywhere else sorted(variant["nodes"], key=natural_key),
        }
        for same, variant in problem["observed"].items()
    ]
    affected = {node for variant in observed for node in variant["nodes"]}
    return {
        "id": finding_id,
        "severity": severity,
        "requirement": requirement,
        "expected": shown(problem["expected"], expected),
        "remedy": shown(problem["remedy"], remedy),
        "observed": sorted(observed, key=lambda variant: (-len(variant["nodes"]), variant["observed"])),
        "node_count": len(affected),
        "waived": waived,
        "waived_by": "portcullis_accept" if waived else "",
    }


def _urgency(problem):
    """Sort key: blockers, then what concerns the whole fleet, then the most nodes."""
    everywhere = problem["node_count"] == 0
    return (problem["severity"] != BLOCKER, not everywhere, -problem["node_count"], problem["id"], problem["remedy"])


def name_nodes(nodes: list[str]) -> str:
    """Nodes in a few words; none is the fleet as a whole."""
    if not nodes:
        return "the fleet"
    more = len(nodes) - NODES_SHOWN
    return ", ".join(nodes[:NODES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _wrapped(label: str, text: str) -> list[str]:
    """A labelled text, wrapped below its label."""
    head = f"    {label:<9}"
    wrapper = textwrap.TextWrapper(
        TABLE_WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
    )
    return wrapper.wrap(one_line(text))


def render_table(findings: list[dict]) -> str:
    """The findings as a person at a terminal reads them: what, where, what was found, and what to do."""
    lines = []
    for problem in group_findings(findings, {}):
        first, *others = problem["observed"]
        word = "waived" if problem["waived"] else problem["severity"]
        lines.append(f"{word.upper():<9}{problem['id']:<34}{name_nodes(first['nodes'])}")
        lines += _wrapped("found", first["observed"])
        for variant in others:
            lines += _wrapped("", f"{name_nodes(variant['nodes'])}: {variant['observed']}")
        lines += _wrapped("expected", problem["expected"])
        lines += _wrapped("do", problem["remedy"])
        lines += _wrapped("source", problem["requirement"])
    return "\n".join(lines)
