"""What a test run says of itself before the first test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.corpus.files import CORPUS

# How long an example takes is the machine's affair: a busy one must not fail a run.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_report_header() -> str:
    """Whether the corpus of real files takes part."""
    found = "" if CORPUS.is_dir() else " is not there (PORTCULLIS_CORPUS names it), so its tests are left out"
    return f"corpus: {CORPUS}{found}"
