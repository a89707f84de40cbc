"""The lab's commands, as far as they need no lab."""

from pathlib import Path

import pytest

from tests.lab.cli import main


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No labs exist."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        pytest.param(["ssh", "w1"], "has no node 'w1'; it has: none", id="ssh"),
        pytest.param(["kubectl", "get", "nodes"], "does not exist: run `up`", id="kubectl"),
        pytest.param(["run", "--", "true"], "does not run", id="run"),
        pytest.param(["run", "--"], "expected a command after --", id="run nothing"),
        pytest.param(["inventory"], "does not exist: run `up`", id="inventory"),
        pytest.param(["node", "remove", "w1"], "does not exist", id="node remove"),
        pytest.param(["node", "add", "w1"], "does not exist", id="node add"),
        pytest.param(["node", "add", "w1", "--taint", "x"], "taint 'x': expected", id="bad taint"),
        pytest.param(
            ["node", "add", "w1", "--config-toml", "/nonexistent"], "/nonexistent: No such file", id="no toml"
        ),
        pytest.param(["up", "--topology", "/nonexistent"], "topology /nonexistent: No such file", id="no topology"),
        pytest.param(["status", "--name", "A"], "lab 'A': expected 1 to 32", id="bad name"),
    ],
)
def test_errors(argv: list[str], expected: str, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """One line that says what to do, and nothing is left behind."""
    assert main(argv) == 1

    assert expected in capsys.readouterr().err
    assert list(tmp_path.rglob("*")) == []


def test_status_of_no_lab(capsys: pytest.CaptureFixture[str]):
    """Scripts tell by the exit code."""
    assert main(["status"]) == 3
    assert "does not exist" in capsys.readouterr().out


def test_down_of_no_lab(capsys: pytest.CaptureFixture[str]):
    """Taking down what is not there is no error."""
    assert main(["down"]) == 0
    assert "did not exist" in capsys.readouterr().out
