"""The clauses of the requirement texts, the checks that they name, and the page made of both."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.requirements import CHECKS

from tools.clause_table import CLAUSES, Clause
from tools.clauses import PAGE, render

ROOT = Path(__file__).parents[3]
SOURCES = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "plugins" / "plugin_utils").glob("*.py"))
HEADINGS = {f"{clause.document}/{clause.heading}" for clause in CLAUSES}


def test_page_is_current() -> None:
    """docs/requirements.md is what python -m tools.clauses writes."""
    assert PAGE.read_text(encoding="utf-8") == render()


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.quote)
def test_clause_is_answered(clause: Clause) -> None:
    """A clause names checks that are in the code, or says why it has none."""
    assert clause.checks or clause.reason
    assert [name for name in clause.checks if f'"{name}"' not in SOURCES] == []


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_requirement_is_a_heading(check) -> None:
    """What a check gives as its source is a heading of a text, or the collection's own."""
    assert check.requirement in HEADINGS or check.requirement.startswith("ansible/")
