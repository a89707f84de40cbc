# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of the collection: every role's argument_specs together, and what a user's variables miss of them.

Ansible ignores a variable that nothing reads, so a misspelt C(portcullis_*) name would silently mean the default.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import yaml

PREFIX = "portcullis_"
# What an argument_specs option and a module's argument have in common; the rest is documentation.
SPEC_KEYS = ("type", "elements", "choices", "options", "required")


def load_argument_specs(roles: Path) -> dict[str, dict]:
    """Every C(portcullis_*) option of every role: C({name: specification}).

    :param roles: the collection's roles directory.
    """
    options: dict[str, dict] = {}
    for path in sorted(roles.glob("*/meta/argument_specs.yml")):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            options.update(entry.get("options") or {})
    return {name: spec for name, spec in options.items() if name.startswith(PREFIX)}


def unknown_variables(names: set[str], known: set[str]) -> dict[str, str]:
    """The C(portcullis_*) names that no role knows, each with the nearest known name (empty when none is near)."""
    unknown = sorted(name for name in names if name.startswith(PREFIX) and name not in known)
    return {name: next(iter(difflib.get_close_matches(name, sorted(known), n=1)), "") for name in unknown}


def explain_unknown(unknown: dict[str, str], host: str) -> str:
    """One line that names each unknown variable, where it is set, and what was probably meant."""
    words = [f"{name} (did you mean {near}?)" if near else name for name, near in unknown.items()]
    return f"unknown variable for {host}: {', '.join(words)}; the role READMEs list every variable"
