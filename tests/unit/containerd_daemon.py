# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real containerd with namespaces, state and root of its own, for the time of a test."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.portcullis.fleet.plugins.module_utils.cri import CriClient, CriError

# Root and state are on the tmpfs of the daemon's mount namespace: they vanish with it.
_SCRIPT = """
mount -t tmpfs tmpfs /run
exec containerd --config "$1" --root /run/root --state /run/state --address "$2"
"""
_START_TIMEOUT_S = 30
_STOP_TIMEOUT_S = 10
_CTR_TIMEOUT_S = 120


@dataclass(frozen=True)
class Daemon:
    address: Path
    pid: int
    """Of containerd itself, as this process sees it."""

    def ctr(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run ctr in the namespace of CRI and return its output."""
        command = ["ctr", "--address", str(self.address), "--namespace", "k8s.io", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, timeout=_CTR_TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()


def missing_for_containerd() -> str:
    """Return why no containerd can run here, or ""."""
    absent = [name for name in ("containerd", "ctr", "runc", "unshare", "setpriv") if not shutil.which(name)]
    if absent:
        return "not installed: " + ", ".join(absent)
    return "" if os.geteuid() == 0 else "needs root for namespaces of its own"


@contextlib.contextmanager
def running_containerd(directory: Path, config: str) -> Iterator[Daemon]:
    """Start containerd with a config.toml in an empty directory, wait until it answers; end it with all it started.

    The end of the parent, however it ends, is the end of the daemon: of unshare by its parent-death signal, of the
    PID namespace by --kill-child.
    """
    (directory / "config.toml").write_text(config)
    address = directory / "containerd.sock"
    unshare = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc"]
    command = [*unshare, "--kill-child", "sh", "-ec", _SCRIPT, "sh", str(directory / "config.toml"), str(address)]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_until_it_answers(process, address, directory / "log")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        yield Daemon(address, int(children))
    finally:
        process.kill()
        process.wait(_STOP_TIMEOUT_S)


def _wait_until_it_answers(process: subprocess.Popen, address: Path, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with CriClient(address, timeout_s=1) as client:
                client.version()
                return
        except CriError as error:
            if error.code_name not in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                return
        time.sleep(0.1)
    raise AssertionError("containerd does not answer:\n" + "\n".join(log.read_text().splitlines()[-20:]))
