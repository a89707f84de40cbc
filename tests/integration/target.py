# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of the lab as the target of ad hoc modules: what is run on it, and what it is like before and after."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

NODE = "ctrd"
CONFIG = "/etc/containerd/config.toml"
DIRECTORY = "/etc/containerd/certs.d"
UNIT_DROP_IN = "/etc/systemd/system/containerd.service.d/test.conf"
BUSYBOX = "docker.io/library/busybox:1.33"
ANSIBLE = Path(sys.executable).with_name("ansible")
DEADLINE_S = 60

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "keeps-running"},
    "spec": {
        "nodeName": NODE,
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {"name": "c", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sleep", "86400"]},
        ],
    },
}


class Target:
    """The node under test."""

    def __init__(self, lab):
        self.lab = lab

    def sh(self, script: str, check: bool = True) -> str:
        return self.lab.ssh(NODE, ["sh", "-ec", script], check=check).stdout

    def start(self, module: str, *arguments: str, check_mode: bool = False) -> subprocess.Popen:
        argv = [str(ANSIBLE), NODE, "-i", str(self.lab.inventory_path), "-m", f"portcullis.fleet.{module}"]
        argv += ["-a", " ".join(arguments), "--diff", *(["--check"] if check_mode else [])]
        environment = {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.json", "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1"}
        environment |= {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "LC_ALL": "C.UTF-8"}
        return subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, module: str, *arguments: str, check_mode: bool = False) -> dict:
        return self.result(self.start(module, *arguments, check_mode=check_mode))

    @staticmethod
    def result(process: subprocess.Popen) -> dict:
        out, err = process.communicate(timeout=180)
        hosts = json.loads(out[out.index("{") :])["plays"][0]["tasks"][0]["hosts"]
        assert NODE in hosts, err
        return hosts[NODE]

    def configure(self, *arguments: str, check_mode: bool = False) -> dict:
        return self.run("containerd_config", *arguments, check_mode=check_mode)

    def etc(self) -> str:
        return self.sh("cd /etc && find . -type f | sort | xargs -d '\\n' sha256sum")

    def config(self) -> str:
        return self.sh(f"cat {CONFIG}")

    def registry_plugin(self) -> str:
        """The plugin whose table holds the registry settings in the node's file."""
        return "io.containerd." + ("cri.v1.images" if "cri.v1.images" in self.config() else "grpc.v1.cri")

    def daemon_pid(self) -> str:
        return self.sh("systemctl show -p MainPID --value containerd").strip()

    def pod_pids(self) -> str:
        return self.sh("pidof sleep || true").strip()

    def unit(self, text: str) -> None:
        self.lab.ssh(NODE, ["mkdir", "-p", str(Path(UNIT_DROP_IN).parent)])
        self.lab.ssh(NODE, ["tee", UNIT_DROP_IN], stdin=f"[Service]\n{text}\n")
        self.sh("systemctl daemon-reload")

    def wait_for(self, script: str) -> str:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            if found := self.sh(script + " || true").strip():
                return found
            time.sleep(0.1)
        raise AssertionError(f"within {DEADLINE_S} s nothing came of: {script}")
