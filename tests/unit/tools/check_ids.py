"""The ids of findings in the code: constants such as C("kernel.bpf") that are handed to something."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_ID = re.compile(r"([a-z][a-z0-9_]*)\.[a-z][a-z0-9_]*")
_NO_FACTS = (".conf", ".json", ".service", ".toml", ".yml")
# A constant in one of these is passed on; as a key or in a comparison it is a note or a name.
_PASSING = (ast.Assign, ast.Call, ast.IfExp, ast.keyword, ast.List, ast.Return, ast.Tuple)
# Functions and classes whose first argument is an id whatever its area.
_MAKERS = {"Check", "Demand", "Verdict", "finding"}


def check_ids(folder: Path, areas: set[str]) -> dict[str, str]:
    """Which file has each id.

    :param areas: what ids begin with; one that a maker is given counts whatever its area.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name, is_made in _constants(tree):
            match = _ID.fullmatch(name)
            if match and not name.endswith(_NO_FACTS) and (is_made or match[1] in areas):
                found.setdefault(name, path.name)
    return found


def _constants(tree: ast.Module) -> Iterator[tuple[str, bool]]:
    """Strings that are passed on, and whether as the id of a finding."""
    for parent in ast.walk(tree):
        if not isinstance(parent, _PASSING):
            continue
        first = parent.args[0] if isinstance(parent, ast.Call) and parent.args else None
        is_maker = isinstance(parent, ast.Call) and getattr(parent.func, "id", "") in _MAKERS
        for child in ast.iter_child_nodes(parent):
            if isinstance(child, ast.Constant) and isinstance(child.value, str):
                yield child.value, is_maker and child is first
