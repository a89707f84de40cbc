# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the corpus of real files is. It is not part of the repository: without it nothing here is collected."""

from __future__ import annotations

import csv
import os
from pathlib import Path

CORPUS = Path(os.environ.get("PORTCULLIS_CORPUS") or Path(__file__).parents[3] / "shared" / "corpus")


def pytest_report_header():
    found = "" if CORPUS.is_dir() else " is not there (PORTCULLIS_CORPUS names it), so its tests are left out"
    return f"corpus: {CORPUS}{found}"


def pytest_ignore_collect(collection_path):
    return True if not CORPUS.is_dir() and collection_path.name.startswith("test_") else None


def index(name: str) -> list[dict[str, str]]:
    """Return the rows of one part's INDEX.tsv."""
    with (CORPUS / name / "INDEX.tsv").open(encoding="utf-8", newline="") as rows:
        return list(csv.DictReader(rows, delimiter="\t"))
