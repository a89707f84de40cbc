# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the corpus of real files is. It is not part of the repository."""

from __future__ import annotations

import csv
import os
from pathlib import Path

CORPUS = Path(os.environ.get("PORTCULLIS_CORPUS") or Path(__file__).parents[3] / "shared" / "corpus")


def index(name: str) -> list[dict[str, str]]:
    """Return the rows of one part's INDEX.tsv."""
    with (CORPUS / name / "INDEX.tsv").open(encoding="utf-8", newline="") as rows:
        return list(csv.DictReader(rows, delimiter="\t"))
