"""What all integration tests share: one lab for the whole run, and its nodes as a fleet."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.fleet import Fleet
from tests.integration.target import CONFIG, NODE, POD, UNIT_DROP_IN, Target
from tests.lab import Lab
from tests.lab.containerd import LINES
from tests.lab.topology import Node


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


# The oldest line and one that reads version 3 files run with every change, the others with `make test-full`.
EVERY_TIME = ("2.2",)
LINES_UNDER_TEST = [
    "debian",
    *EVERY_TIME,
    *(pytest.param(line, marks=pytest.mark.full) for line in LINES if line not in EVERY_TIME),
]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What no line of containerd does in its own way is tested on one of them every time: C(once(line)) names it."""
    for item in items:
        mark = item.get_closest_marker("once")
        if mark and item.callspec.params.get("node") not in mark.args:
            item.add_marker(pytest.mark.full)


@pytest.fixture(scope="module", params=LINES_UNDER_TEST)
def node(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Target]:
    """A node of its own for each line of containerd, with a pod that must outlive everything."""
    lab.node_add(Node(name=NODE, containerd=request.param))
    try:
        lab.kubectl("apply", "-f", "-", stdin=json.dumps(POD))
        lab.kubectl("wait", "--for=condition=Ready", "pod/keeps-running", "--timeout=60s", timeout_s=70)
        yield Target(lab)
    finally:
        lab.kubectl("delete", "pod", "keeps-running", "--ignore-not-found", "--wait=false")
        lab.node_remove(NODE)


@pytest.fixture
def target(node: Target) -> Iterator[Target]:
    """The node as it was before: original configuration, original unit, the pod untouched."""
    original, pids = node.config(), node.pod_pids()
    assert pids
    yield node
    node.sh(f"rm -f {UNIT_DROP_IN}; systemctl daemon-reload")
    if node.config() != original:
        node.lab.ssh(NODE, ["tee", CONFIG], stdin=original)
        node.sh("systemctl restart containerd")
    assert node.pod_pids() == pids, "the pod's process did not survive the test"
