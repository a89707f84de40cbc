"""The host's setting that labs raise: what it was comes back with the last lab, and nobody else's value is lost."""

from pathlib import Path

import pytest

from tests.lab import host


@pytest.fixture
def limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the place of the kernel's, and a state directory of its own with the labs `a` and `b`."""
    file = tmp_path / "max_user_instances"
    file.write_text("128\n")
    monkeypatch.setattr(host, "_LIMIT", file)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("a", "b"):
        host.state_home().joinpath(name).mkdir(parents=True)
    return file


def gone(*names: str) -> None:
    """These labs went down."""
    for name in names:
        host.state_home().joinpath(name).rmdir()
        host.restore_limit()


def left() -> list[str]:
    """What is in the state directory."""
    return sorted(path.name for path in host.state_home().iterdir())


def test_the_last_lab_restores(limit: Path):
    """Two labs raise it once; it stays while one of them is there."""
    host.raise_limit()
    host.raise_limit()
    assert limit.read_text() == "8192"

    gone("a")
    assert limit.read_text() == "8192"

    gone("b")
    assert limit.read_text() == "128\n"
    assert left() == []


def test_a_value_that_is_high_enough_stays(limit: Path):
    """Then there is nothing to restore either."""
    limit.write_text("100000\n")
    host.raise_limit()

    gone("a", "b")
    assert limit.read_text() == "100000\n"
    assert left() == []


def test_a_value_that_someone_set_meanwhile_stays(limit: Path):
    """It is the administrator's now."""
    host.raise_limit()
    limit.write_text("4096\n")

    gone("a", "b")
    assert limit.read_text() == "4096\n"
    assert left() == []


def test_killed_before_it_was_raised(limit: Path):
    """The record is there and the value is still the old one, which is nobody's to change."""
    host.state_home().joinpath(".max_user_instances").write_text("128\n")

    gone("a", "b")
    assert limit.read_text() == "128\n"
    assert left() == []


def test_killed_before_it_was_restored(limit: Path):
    """The labs are gone, the value is still high: the next `down` of anything restores it."""
    host.raise_limit()
    for name in ("a", "b"):
        host.state_home().joinpath(name).rmdir()

    host.restore_limit()
    assert limit.read_text() == "128\n"


def test_without_labs_nothing_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """There is not even a state directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "absent"))

    host.restore_limit()
    assert not (tmp_path / "absent").exists()
