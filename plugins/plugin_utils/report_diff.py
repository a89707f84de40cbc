# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes of a fleet as distinct diffs with the nodes that each went to.

Input is the ``diff`` of an Ansible task result (lib/ansible/plugins/callback/__init__.py, ``_get_diff``): a dict
with ``before`` and ``after`` (text or data) or with ``prepared`` (text), or a list of such dicts.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping

from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import (
    clean,
    natural_key,
    numbered,
    replace_names,
    shown,
    visible,
)

# difflib takes quadratic time at worst: a firewall dump of megabytes must not hold up the report.
_LONGEST_TEXT = 300_000


def group_changes(changes: Iterable[Mapping], names: Mapping[str, Iterable[str]]) -> list[dict]:
    """Return each distinct change as ``{what, diff, added, removed, nodes}``, the widest first.

    Headers are left out of the comparison: they hold temporary paths that differ from node to node.

    :param names: for each node, the names that may stand for it in texts.
    """
    groups = {}
    for change in changes:
        own = names.get(change["node"], ())
        raw = (visible(change["what"]), *_pairs(change["diff"]))
        same = (
            replace_names(raw[0], own),
            *((before and replace_names(before, own), replace_names(after, own)) for before, after in raw[1:]),
        )
        group = groups.setdefault(same, {"raw": set(), "nodes": set()})
        group["raw"].add(raw)
        group["nodes"].add(visible(change["node"]))
    found = [_distinct(shown(group["raw"], same), group["nodes"]) for same, group in groups.items()]
    return sorted(found, key=lambda change: (-len(change["nodes"]), change["what"], change["diff"]))


def _distinct(texts, nodes):
    what, *pairs = texts
    lines = []
    for before, after in pairs:
        lines += after.rstrip("\n").split("\n") if before is None else _compare(before, after)
    return {
        "what": what,
        "diff": "\n".join(lines),
        "added": sum(1 for line in lines if line.startswith("+") and not line.startswith("+++ ")),
        "removed": sum(1 for line in lines if line.startswith("-") and not line.startswith("--- ")),
        "nodes": sorted((node for node in nodes if node), key=natural_key),
    }


def _pairs(diff):
    """Return the diff as pairs of before and after; before is None where after is a diff rendered by the task."""
    pairs = []
    for part in diff if isinstance(diff, list) else [diff]:
        if isinstance(part, str):
            pairs.append((None, visible(part)))
        elif "prepared" in part:
            pairs.append((None, visible(part["prepared"])))
        else:
            pairs.append((_as_text(part.get("before")), _as_text(part.get("after"))))
    return pairs


def _as_text(value):
    if value is None or isinstance(value, str):
        return visible(value)
    return json.dumps(clean(value), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _compare(before, after):
    if max(len(before), len(after)) > _LONGEST_TEXT:
        was, now = (numbered(text.count("\n"), "line") for text in (before, after))
        return [f"(too long to compare here: {was} before, {now} after)"]
    return list(difflib.unified_diff(_lines(before), _lines(after), lineterm=""))[2:]


def _lines(text):
    """Split at newlines only; a last line without its newline is marked, as diff(1) does."""
    *lines, last = text.split("\n")
    return [*lines, f"{last}\n\\ No newline at end of file"] if last else lines
