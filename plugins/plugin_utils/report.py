# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of one run: what was found, what was changed and what was not, grouped by what is the same.

``build`` takes what a run collected and returns the report as plain data; ``report_html`` renders that for people.
The report's own layout is documented in ``plugins/modules/fleet_report.py``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import PurePath

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import SEVERITIES
from ansible_collections.portcullis.fleet.plugins.plugin_utils.findings import KEYS, group_findings
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_diff import group_changes
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_outcome import (
    PHASES,
    STATES,
    STOPPING_PHASES,
    UNFINISHED,
    count_states,
    outcome_of,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import (
    clean,
    natural_key,
    replace_names,
    shown,
    visible,
)

REPORT_VERSION = 1

_RUN_TYPES = {
    "started": (str, datetime),
    "ended": (str, datetime),
    "check_mode": bool,
    "engine": str,
    "playbook": str,
    "phase": str,
    "versions": Mapping,
    "nodes": Mapping,
    "findings": list,
    "changes": list,
    "stopped": (Mapping, type(None)),
}
_NODE_TYPES = {
    "groups": list,
    "wave": (int, type(None)),
    "facts": Mapping,
    "reason": (str, type(None)),
}


class ReportInputError(ValueError):
    """What was collected about the run is not complete or not understood; the message names the key."""


def build(run: Mapping) -> dict:
    """Return the report of a run as data that ``json.dumps`` takes.

    :raises ReportInputError: a key is missing, or holds what no report can be made of.
    """
    _check_run(run)
    names = _names_of_nodes(run["nodes"])
    problems = group_findings(run["findings"], names)
    findings = [problem for problem in problems if not problem["waived"]]
    nodes = _nodes(run["nodes"], run["findings"])
    return {
        "report_version": REPORT_VERSION,
        "outcome": outcome_of(run, problems),
        "run": _run_facts(run),
        "counts": count_states(run["nodes"]),
        "findings": findings,
        "waived": [problem for problem in problems if problem["waived"]],
        "unfinished": _group_unfinished(nodes, names),
        "changes": group_changes(run["changes"], names),
        "nodes": nodes,
    }


def to_json(report: Mapping) -> str:
    """Return the report file's text: sorted keys, so that two reports can be compared line by line."""
    return json.dumps(report, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _check_run(run):
    _check_types("run", run, _RUN_TYPES)
    for key in ("started", "ended"):
        _parse_time(key, run[key])
    for name, node in run["nodes"].items():
        where = f"run.nodes[{name!r}]"
        if not isinstance(node, Mapping) or node.get("state") not in STATES:
            found = node.get("state") if isinstance(node, Mapping) else node
            raise ReportInputError(f"{where}.state is {found!r}: give one of {', '.join(STATES)}")
        _check_types(where, node, {key: kinds for key, kinds in _NODE_TYPES.items() if key in node})
    for index, item in enumerate(run["findings"]):
        _check_finding(f"run.findings[{index}]", item)
    for index, change in enumerate(run["changes"]):
        where = f"run.changes[{index}]"
        _check_types(where, change, {"node": str, "what": str, "diff": (Mapping, list, str)})
    _check_phase("run.phase", run["phase"], PHASES)
    if run["stopped"] is not None:
        _check_phase("run.stopped.phase", run["stopped"].get("phase"), STOPPING_PHASES)


def _check_phase(where, phase, phases):
    if phase not in phases:
        raise ReportInputError(f"{where} is {phase!r}: give one of {', '.join(phases)}")


def _check_types(where, value, types):
    if not isinstance(value, Mapping):
        raise ReportInputError(f"{where} is {value!r}: give a dictionary with the keys {', '.join(types)}")
    for key, kinds in types.items():
        if key not in value:
            raise ReportInputError(f"{where}.{key} is missing: give {_kind_words(kinds)}")
        if not isinstance(value[key], kinds):
            raise ReportInputError(f"{where}.{key} is {value[key]!r}: give {_kind_words(kinds)}")


def _kind_words(kinds):
    words = {
        str: "text",
        datetime: "a time",
        bool: "true or false",
        int: "a whole number",
        list: "a list",
        Mapping: "a dictionary",
        type(None): "null",
    }
    return " or ".join(words[kind] for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))


def _check_finding(where, item):
    if not isinstance(item, Mapping):
        raise ReportInputError(f"{where} is {item!r}: give a finding")
    missing = [key for key in KEYS if key not in item]
    if missing:
        raise ReportInputError(f"{where} lacks {', '.join(missing)}: a finding has {', '.join(KEYS)}")
    if item["severity"] not in SEVERITIES:
        raise ReportInputError(f"{where}.severity is {item['severity']!r}: give one of {', '.join(SEVERITIES)}")


def _parse_time(key, value):
    """Return the time in UTC; a time that names no zone is taken to be UTC."""
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise ReportInputError(f"run.{key} is {value!r}: give an ISO 8601 time, 2026-11-30T20:17:00Z") from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _run_facts(run):
    started, ended = _parse_time("started", run["started"]), _parse_time("ended", run["ended"])
    return {
        "started": started.isoformat(timespec="seconds"),
        "ended": ended.isoformat(timespec="seconds"),
        # A clock that was set back during the run must not cost the report.
        "duration_s": max(0, round((ended - started).total_seconds())),
        "check_mode": run["check_mode"],
        "engine": visible(run["engine"]),
        # The folder would tell where on the controller, and in whose home, the playbook lies.
        "playbook": visible(PurePath(run["playbook"]).name),
        "versions": clean(run["versions"]),
    }


def _names_of_nodes(nodes):
    """Return for each node the names that may stand for it in texts, longest first."""
    return {
        name: sorted({name, str(node.get("facts", {}).get("hostname") or name)}, key=len, reverse=True)
        for name, node in nodes.items()
    }


def _nodes(nodes, findings):
    weights = Counter((item["node"], "waived" if item.get("waived") else item["severity"]) for item in findings)
    return {
        visible(name): {
            "state": str(node["state"]),
            "wave": node.get("wave"),
            "groups": clean(node.get("groups", [])),
            "facts": clean(node.get("facts", {})),
            "reason": visible(node.get("reason") or ""),
            "findings": {kind: weights[name, kind] for kind in (*SEVERITIES, "waived")},
        }
        for name, node in nodes.items()
    }


def _group_unfinished(nodes, names):
    """Group the nodes that the run did not bring to an end by state and reason."""
    groups = {}
    for name, node in nodes.items():
        if node["state"] in UNFINISHED:
            same = replace_names(node["reason"], names.get(name, ()))
            group = groups.setdefault((node["state"], same), {"raw": set(), "nodes": []})
            group["raw"].add(node["reason"])
            group["nodes"].append(name)
    rows = [
        {
            "state": state,
            "reason": shown(group["raw"], same),
            "nodes": sorted(group["nodes"], key=natural_key),
        }
        for (state, same), group in groups.items()
    ]
    return sorted(rows, key=lambda row: (UNFINISHED.index(row["state"]), -len(row["nodes"]), row["reason"]))
