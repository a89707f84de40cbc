"""What a test run says of itself before the first test."""

from __future__ import annotations

from tests.corpus.files import CORPUS


def pytest_report_header() -> str:
    """Whether the corpus of real files takes part."""
    found = "" if CORPUS.is_dir() else " is not there (PORTCULLIS_CORPUS names it), so its tests are left out"
    return f"corpus: {CORPUS}{found}"
