"""What all integration tests share: one lab for the whole run, and its nodes as a fleet."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.fleet import Fleet
from tests.lab import Lab


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """The lab named by $PORTCULLIS_LAB (default: test), brought up if it is not, and down again in that case only."""
    chosen = os.environ.get("PORTCULLIS_LAB")
    shared = Lab.open(chosen or "test")
    ours = False
    try:
        if not chosen:
            shared.down(unless_whole=True)  # what a killed run has left; a lab of the user's choice is the user's
        ours = shared.up()
        yield shared
    finally:
        if ours:
            shared.down()


@pytest.fixture
def fleet(lab: Lab, tmp_path: Path) -> Iterator[Fleet]:
    """The lab's nodes as a fleet that playbooks run on; afterwards they are as they were."""
    nodes = Fleet(lab, tmp_path)
    nodes.remember()
    yield nodes
    nodes.restore()
