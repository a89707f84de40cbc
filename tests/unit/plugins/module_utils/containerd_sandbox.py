# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real containerd in namespaces of its own, with a stand-in for systemctl that starts and stops it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_node import ask_cri

BINARY = shutil.which("containerd")
AVAILABLE = BINARY is not None and os.geteuid() == 0
DEADLINE_S = 15


class Sandbox:
    """One daemon below a directory. C(run_command) takes the place of the node library's."""

    def __init__(self, directory: Path, config: bytes | None):
        self.directory = directory
        self.config = directory / "config.toml"
        self.socket = str(directory / "containerd.sock")
        self.commands: list[list[str]] = []
        self.process: subprocess.Popen | None = None
        if config is not None:
            self.config.write_bytes(config)

    def __enter__(self):
        self.start()
        deadline = time.monotonic() + DEADLINE_S
        while ask_cri(self.socket)["code"] == "UNAVAILABLE" and time.monotonic() < deadline:
            time.sleep(0.05)
        return self

    def __exit__(self, *_exception):
        self.stop()

    def start(self) -> None:
        argv = ["unshare", "-m", "-n", "-p", "--fork", "--kill-child", "--mount-proc", BINARY]
        argv += ["--config", str(self.config), "--address", self.socket]
        argv += ["--root", str(self.directory / "root"), "--state", str(self.directory / "state")]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(DEADLINE_S)

    def run_command(self, argv):
        """Answer as systemctl and journalctl do, of the unit containerd.service."""
        self.commands.append(argv)
        if argv[:2] == ["systemctl", "restart"]:
            self.stop()
            self.start()
        if argv[:2] == ["systemctl", "show"]:
            return 0, f"Id=containerd.service\nActiveState={self._state()}\nMainPID={self.process.pid}\n", ""
        if argv[0] == "journalctl":
            return 0, (self.directory / "log").read_text(), ""
        return 0, "", ""

    def _state(self) -> str:
        return "active" if self.process.poll() is None else "failed"
