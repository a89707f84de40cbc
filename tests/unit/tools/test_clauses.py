"""The clauses of the requirement texts, the checks that they name, and the page made of both."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils import runtime_enforcer_demands as demands
from ansible_collections.portcullis.fleet.plugins.plugin_utils.requirements import CHECKS

from tools.check_groups import GROUPS
from tools.clause_table import CLAUSES, Clause
from tools.clauses import PAGE, render

from .check_ids import check_ids

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


def test_demands_name_headings_of_the_text() -> None:
    """What is asked of an installed Runtime Enforcer has a clause under the heading that it gives."""
    found = [item for item in vars(demands).values() if isinstance(item, demands.Demand)]

    assert found
    assert [item.id for item in found if f"runtime-enforcer/{item.heading}" not in HEADINGS] == []


def test_each_check_is_in_the_table_or_in_a_group() -> None:
    """Whatever the code can find is asked for by a clause, or a group says by what else."""
    named = {name for clause in CLAUSES for name in clause.checks}
    grouped = [name for names in GROUPS.values() for name in names]
    areas = {name.partition(".")[0] for name in (*named, *grouped)}
    found = {**check_ids(ROOT / "plugins", areas), **{check.id: "CHECKS" for check in CHECKS}}

    assert {name: path for name, path in found.items() if name not in named and name not in grouped} == {}
    assert [name for name in grouped if name in named or name not in found] == []


def test_ids_are_found_however_they_are_written(tmp_path: Path) -> None:
    """First arguments, rows of tables and choices; not keys of notes, file names, or names of other areas."""
    (tmp_path / "some.py").write_text(
        'finding("new.area", severity="x")\n'
        'ROWS = (("kernel.row", 1), ["kernel.list"])\n'
        'NAME = "kernel.assigned"\n'
        'made = Demand("kernel.a" if x else "kernel.b", path="kernel.keyword")\n'
        'notes["kernel.note"] = {"kernel.key": 1}\n'
        'x = ("kernel.conf", "other.row", "kernel.compared" in notes)\n',
        encoding="utf-8",
    )

    assert set(check_ids(tmp_path, {"kernel"})) == {
        "new.area",
        "kernel.row",
        "kernel.list",
        "kernel.assigned",
        "kernel.a",
        "kernel.b",
        "kernel.keyword",
    }
