# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report as one HTML page that needs no network and no script.

Everything that comes from a node is escaped by the template engine, and the page forbids itself to load or run
anything (Content-Security-Policy).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_outcome import STATES
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import (
    NODE_NAME,
    duration_words,
    natural_key,
    numbered,
)
from jinja2 import Environment, FileSystemLoader, StrictUndefined

# What a page shows before it points to the JSON file instead: it must stay usable for the largest fleets.
DISTINCT_CHANGES = 100
DIFF_LINES = 400
OBSERVED_VALUES = 50
NAMES_IN_LINE = 6

_LINE_KINDS = {"+": "add", "-": "del", "@": "hunk", "\\": "hunk"}


def render_html(report: Mapping) -> str:
    """Return the page for a report made by ``report.build``."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(numbered=numbered, duration=duration_words, moment=_moment, fact=_fact)
    return environment.get_template("report.html.j2").render(
        report=report,
        blockers=[problem for problem in report["findings"] if problem["severity"] == BLOCKER],
        warnings=[problem for problem in report["findings"] if problem["severity"] != BLOCKER],
        changes=[{**change, "lines": _lines(change["diff"])} for change in report["changes"][:DISTINCT_CHANGES]],
        columns=list(dict.fromkeys(fact for node in report["nodes"].values() for fact in node["facts"])),
        rows=sorted(report["nodes"].items(), key=_row_order),
        states=STATES,
        node_name=NODE_NAME,
        names_replaced=any(NODE_NAME in str(report[key]) for key in ("findings", "waived", "unfinished", "changes")),
        diff_lines=DIFF_LINES,
        observed_values=OBSERVED_VALUES,
        names_in_line=NAMES_IN_LINE,
    )


def _moment(iso_time):
    return f"{datetime.fromisoformat(iso_time):%Y-%m-%d %H:%M:%S} UTC"


def _fact(value):
    """Return a fact as people write it."""
    if value is None or value in ("", [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_fact(item) for item in value)
    return json.dumps(value, sort_keys=True, ensure_ascii=False) if isinstance(value, dict) else str(value)


def _row_order(item):
    name, node = item
    return list(STATES).index(node["state"]), natural_key(name)


def _lines(diff):
    return [(_LINE_KINDS.get(line[:1], "same"), line) for line in diff.split("\n")] if diff else []
