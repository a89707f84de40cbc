# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Without the corpus nothing here is collected; tests/conftest.py says so."""

from __future__ import annotations

from pathlib import Path

from tests.corpus.files import CORPUS


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out the tests that read the corpus where it is not there."""
    return True if not CORPUS.is_dir() and collection_path.name.startswith("test_") else None
