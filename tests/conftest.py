"""What a test run says of itself before the first test."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.corpus.files import CORPUS

# How long an example takes is the machine's affair: a busy one must not fail a run.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_report_header() -> str:
    """Whether the corpus of real files takes part."""
    found = "" if CORPUS.is_dir() else " is not there (PORTCULLIS_CORPUS names it), so its tests are left out"
    return f"corpus: {CORPUS}{found}"


class OneProcessForTheLab(LoadScopeScheduling):
    """One process runs all tests of the lab, which they share; each other file goes where there is room."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "lab" if file.startswith("tests/integration/") else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log) -> OneProcessForTheLab:
    """How C(pytest -n 2) spreads the tests."""
    return OneProcessForTheLab(config, log)
