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


# Tests that share something run in one process, in their order: the lab, and this machine's mounts and processes.
SHARED = ("tests/integration/", "tests/unit/lab/", "tests/unit/plugins/module_utils/")


class ByWhatIsShared(LoadScopeScheduling):
    """Each of SHARED is run by one process; any other file goes where there is room."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((place for place in SHARED if file.startswith(place)), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log) -> ByWhatIsShared:
    """How C(pytest -n 2) spreads the tests."""
    return ByWhatIsShared(config, log)
