# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that say what goes with what: the collection's own, or a user's in their place."""

from __future__ import annotations

from pathlib import Path

import yaml


class MatrixError(ValueError):
    """The file cannot be used; the message says where and why."""


def read_matrix_file(path: str, built_in: Path, section: str) -> tuple[dict, Path]:
    """The content of a file and where it is; the collection's own without a path.

    :param section: the mapping that it must have.
    :raises MatrixError: it is not there, or not what it has to be.
    """
    where = Path(path).expanduser() if path else built_in
    try:
        content = yaml.safe_load(where.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise MatrixError(f"{where} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or not isinstance(content.get(section), dict):
        raise MatrixError(f"{where} has no mapping {section}: start from a copy of the collection's file")
    return content, where


def date_of(content: dict) -> str:
    """When it was written, in the file's own words."""
    return str(content.get("as_of") or "no date")
