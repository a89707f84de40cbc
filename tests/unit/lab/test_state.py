"""What a lab remembers."""

from pathlib import Path

import pytest

from tests.lab.errors import LabError
from tests.lab.state import NodeState, Process, Store


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_change_is_read_back():
    """Another program sees what was recorded."""
    store = Store("a")
    with store.locked(create=True), store.change() as state:
        state.init = Process(1, 2)
        state.processes["etcd"] = Process(3, 4)
        state.nodes["w1"] = NodeState(1, {"name": "w1"}, 5)

    assert Store("a").state == store.state


def test_directory_is_private():
    """It holds keys."""
    store = Store("a")
    with store.locked(create=True):
        assert store.directory.stat().st_mode & 0o777 == 0o700


def test_reading_makes_nothing(home: Path):
    """A lab that was only looked at does not exist."""
    assert not Store("a").exists()
    assert list(home.iterdir()) == []


def test_second_holder_is_refused(monkeypatch: pytest.MonkeyPatch):
    """Two programs do not change one lab at the same time."""
    monkeypatch.setattr("tests.lab.state.LOCK_TIMEOUT_S", 0)
    store = Store("a")

    with store.locked(create=True), pytest.raises(LabError, match="not in use by another program"), Store("a").locked():
        raise AssertionError("locked twice")


def test_other_version_is_refused():
    """A state that this program does not understand is not guessed at."""
    store = Store("a")
    with store.locked(create=True):
        store.file.write_text('{"version": 99}')

    with pytest.raises(LabError, match="version 99, expected 1"):
        Store("a")
