"""The one way the lab starts a command and waits for it."""

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.lab.errors import LabError

LOG_TAIL_LINES = 25
_LOG_LINE_LENGTH = 400
_KEPT = ("PATH", "HOME", "XDG_CACHE_HOME", "TMPDIR", "http_proxy", "https_proxy", "no_proxy")
# Dies with this program, whatever it started included: `unshare --kill-child` ends the PID namespace.
_DIE_WITH_US = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"),
)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """A fixed environment: few inherited variables (a Go toolchain's settings among them) and the C locale."""
    kept = {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("GO")}
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **kept, "LC_ALL": "C.UTF-8", **(extra or {})}


def run(
    argv: Sequence[str | Path],
    *,
    timeout_s: float,
    stdin: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    accept: Sequence[int] = (0,),
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its output.

    Raises LabError when it cannot start, does not end in `timeout_s` seconds, or its exit code is not in `accept`.
    """
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            check=False,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=cwd,
            env=environment(env),
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"`{shlex.join(words)}` did not end in {timeout_s:.0f} s") from error
    except OSError as error:
        raise LabError(f"cannot start `{words[0]}`: {error.strerror}") from error
    if done.returncode not in accept:
        raise LabError(
            f"`{shlex.join(words)}` ended with {done.returncode}:\n" + tail(done.stdout + "\n" + done.stderr)
        )
    return done


def build(
    argv: Sequence[str | Path], *, timeout_s: float, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> None:
    """Run a long command in namespaces of its own, so that it and its children end when this program is killed."""
    run([*_DIE_WITH_US, *argv], timeout_s=timeout_s, cwd=cwd, env=env)


def tail(text: str) -> str:
    """The last lines of a log, indented; what follows the start of a very long line is left out."""
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join("    " + line[:_LOG_LINE_LENGTH] for line in lines[-LOG_TAIL_LINES:])


@contextmanager
def usual_umask() -> Iterator[None]:
    """Make files that all may read, whatever the user's umask: programs on a node do not all run as root."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def wait(what: str, ready: Callable[[], bool], *, timeout_s: float, interval_s: float = 0.1) -> None:
    """Ask `ready` until it says yes; LabError names `what` when `timeout_s` seconds have passed."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            raise LabError(f"{what}: not so after {timeout_s:.0f} s")
        time.sleep(interval_s)
