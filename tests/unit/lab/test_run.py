"""Commands that the lab starts and waits for."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab import lab, topology
from tests.lab.errors import LabError
from tests.lab.run import LOG_TAIL_LINES, run, tail, usual_umask, wait

ROOT = Path(__file__).resolve().parents[3]


def test_failure_shows_the_end_of_the_output():
    """What the program said last is what explains it."""
    with pytest.raises(LabError, match=r"`sh -c .*` ended with 7:\n    out\n    err"):
        run(["sh", "-c", "echo out; echo err >&2; exit 7"], timeout_s=10)


def test_accepted_exit_codes():
    """A caller may expect a failure."""
    assert run(["sh", "-c", "exit 7"], timeout_s=10, accept=(7,)).returncode == 7


def test_deadline():
    """No command is waited for without an end."""
    with pytest.raises(LabError, match="did not end in 0 s"):
        run(["sleep", "60"], timeout_s=0.2)


def test_missing_program():
    """The reason is the system's own."""
    with pytest.raises(LabError, match="cannot start `/nonexistent`: No such file"):
        run(["/nonexistent"], timeout_s=1)


def test_wait_names_what_it_waited_for():
    """The message is a sentence about the thing."""
    with pytest.raises(LabError, match="the moon is blue: not so after 0 s"):
        wait("the moon is blue", lambda: False, timeout_s=0)


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_build_ends_with_its_program(tmp_path: Path):
    """kill -9 of the lab while it builds ends the builder and its children, too."""
    file = tmp_path / "beat"
    beat = f"(while :; do date +%s%N >{file}; sleep 0.05; done) & wait"
    code = f"from tests.lab.run import build; build(['sh', '-c', {beat!r}], timeout_s=60)"
    program = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    wait("it builds", file.exists, timeout_s=10)
    os.kill(program.pid, signal.SIGKILL)
    program.wait(timeout=10)
    time.sleep(0.3)

    last = file.read_text()
    time.sleep(0.3)
    assert file.read_text() == last


def test_every_kind_can_be_built():
    """What a topology may ask for is what the lab knows to make."""
    assert set(lab.KINDS) == set(topology.KINDS)


def test_tail_shortens():
    """The last lines, and of a very long one its beginning."""
    text = "first\n\n" + "x" * 1000 + "\n" + "line\n" * (LOG_TAIL_LINES - 1)
    found = tail(text).splitlines()

    assert len(found) == LOG_TAIL_LINES
    assert found[0].strip() == "x" * 400


def test_usual_umask():
    """Inside, files are for all to read; afterwards the user's choice is back."""
    before = os.umask(0o077)
    try:
        with usual_umask():
            assert os.umask(0o022) == 0o022
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
