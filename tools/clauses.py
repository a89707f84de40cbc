"""Render docs/requirements.md: each clause of the requirement texts, what checks it, and what is done about it."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / ".collections"))

from ansible_collections.portcullis.fleet.plugins.plugin_utils import runtime_enforcer_demands  # noqa: E402
from ansible_collections.portcullis.fleet.plugins.plugin_utils.requirements import CHECKS, Check  # noqa: E402

from tools.check_groups import GROUPS  # noqa: E402
from tools.clause_table import CLAUSES, CORRECTIONS, Clause  # noqa: E402

PAGE = ROOT / "docs" / "requirements.md"
INTRODUCTION = """\
# What the requirement texts ask for, and what checks it
Written by `python -m tools.clauses` from `tools/clause_table.py` and the table of checks; edit those, not this page.
"""


def _cell(text: str) -> str:
    """Text that neither ends a cell of a table nor is taken for a tag or emphasis."""
    for sign in "|<*_":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def _row(*cells: str) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _clause(clause: Clause) -> str:
    return _row(clause.heading, clause.quote, ", ".join(clause.checks) or "none", clause.reason)


def _check(check: Check) -> str:
    observed = (check.observe.__doc__ or "").split("\n", 1)[0]
    return _row(check.id, observed, check.severity, check.requirement, check.remedy)


def _demands() -> list[str]:
    values = vars(runtime_enforcer_demands).values()
    found = [item for item in values if isinstance(item, runtime_enforcer_demands.Demand)]
    return [_row(item.id, item.expected, item.severity, item.heading, item.remedy) for item in found]


def render() -> str:
    """The page."""
    lines = [INTRODUCTION]
    for document in dict.fromkeys(clause.document for clause in CLAUSES):
        lines += [f"## {document}", "| heading | clause | checks | what no check sees |", "|---|---|---|---|"]
        lines += [_clause(clause) for clause in CLAUSES if clause.document == document] + [""]
    lines += ["## Checks of a node", "| check | observed | severity | source | remedy |", "|---|---|---|---|---|"]
    lines += [_check(check) for check in CHECKS] + [""]
    lines += ["## Checks of an installed Runtime Enforcer"]
    lines += ["| check | expected | severity | source | remedy |", "|---|---|---|---|---|", *_demands(), ""]
    lines += ["## Checks that no clause asks for", "| asked for by | checks |", "|---|---|"]
    lines += [_row(why, ", ".join(names)) for why, names in GROUPS.items()] + [""]
    lines += ["## Corrections of the texts", "| text | it says | it is |", "|---|---|---|"]
    lines += [_row(*correction) for correction in CORRECTIONS]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
