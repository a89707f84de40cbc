# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""containerd_config and containerd_image on a node of the lab: real unit, real daemon, real pods, real faults."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lab.containerd import LINES
from tests.lab.topology import Node

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


# The oldest line and one that reads version 3 files run with every change, the others with `make test-full`.
EVERY_TIME = ("2.2",)
LINES_UNDER_TEST = [
    "debian",
    *EVERY_TIME,
    *(pytest.param(line, marks=pytest.mark.full) for line in LINES if line not in EVERY_TIME),
]


@pytest.fixture(scope="module", params=LINES_UNDER_TEST)
def node(lab, request):
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
def target(node):
    """The node as it was before: original configuration, original unit, the pod untouched."""
    original, pids = node.config(), node.pod_pids()
    assert pids
    yield node
    node.sh(f"rm -f {UNIT_DROP_IN}; systemctl daemon-reload")
    if node.config() != original:
        node.lab.ssh(NODE, ["tee", CONFIG], stdin=original)
        node.sh("systemctl restart containerd")
    assert node.pod_pids() == pids, "the pod's process did not survive the test"


def test_change_repeat_and_undo(target):
    """Check mode predicts, the change restarts and keeps pods, the second run and the undo are exact."""
    original, etc, pid = target.config(), target.etc(), target.daemon_pid()

    predicted = target.configure(check_mode=True)
    assert (target.etc(), target.daemon_pid()) == (etc, pid), "check mode changed something"
    changed = target.configure()
    after, after_pid = target.config(), target.daemon_pid()
    again = target.configure()
    assert (target.config(), target.daemon_pid()) == (after, after_pid)
    undone = target.configure("state=absent")
    nothing = target.configure("state=absent")

    assert predicted["changed"] and changed["changed"] and not again["changed"]
    for key in ("diff", "effective_config_path", "restarted", "config_file", "config_version", "owner", "validated"):
        assert predicted[key] == changed[key], key
    assert changed["validated"] == "daemon" and "warnings" not in changed
    assert changed["effective_config_path"] == DIRECTORY and changed["cri_ready"]
    assert after_pid != pid
    assert f"config_path = {DIRECTORY}" in after.translate(str.maketrans("", "", "\"'"))
    assert undone["changed"] and undone["restarted"] and undone["effective_config_path"] != DIRECTORY
    assert target.config() == original
    assert not nothing["changed"]


@pytest.mark.parametrize(
    ("unit", "reason"),
    [
        pytest.param(
            f"ExecStartPre=/bin/sh -c '! grep -q certs.d {CONFIG}'",
            "containerd.service failed to start",
            id="does-not-start",
        ),
        pytest.param(
            "ExecStart=\nExecStart=/bin/sh -c 'grep -q certs.d /etc/containerd/config.toml && "
            "exec containerd --config /root/broken.toml; exec containerd'",
            "its CRI plugin did not load",
            id="loses-cri",
        ),
    ],
)
def test_a_change_that_breaks_the_daemon_is_put_back(target, unit, reason):
    """The node is as before, CRI serves, and the failure says what happened."""
    mirrors = '[plugins."io.containerd.grpc.v1.cri".registry]\nconfig_path = "/c"\nmirrors = {a = {endpoint = ["b"]}}\n'
    target.lab.ssh(NODE, ["tee", "/root/broken.toml"], stdin="version = 2\n" + mirrors)
    original = target.config()
    target.unit(unit + "\nRestartSec=1\nExecStartPre=-/bin/true")

    result = target.configure("health_timeout=8")

    assert result["failed"] and result["rolled_back"] and result["cri_ready"] and not result["changed"]
    assert reason in result["msg"]
    assert (
        "the previous configuration was put back, containerd.service was restarted: CRI serves again" in result["msg"]
    )
    assert result["log"]
    assert target.config() == original
    assert "-rolled_back.json" in result["backup"]


def test_what_the_daemon_refuses_is_never_live(target):
    """An upgraded binary, not started yet, refuses the candidate: told in check mode too, and nothing is touched."""
    etc, pid = target.etc(), target.daemon_pid()
    binary = target.sh("command -v containerd").strip()
    script = f"""#!/bin/sh
grep -q certs.d {CONFIG} && {{ echo "containerd: this release knows no certs.d" >&2; exit 1; }}
exec {binary}.real "$@"
"""
    target.sh(f"cp -p {binary} {binary}.real; rm {binary}")
    target.lab.ssh(NODE, ["install", "-m", "755", "/dev/stdin", binary], stdin=script)
    try:
        predicted = target.configure(check_mode=True)
        refused = target.configure()
        assert (target.etc(), target.daemon_pid()) == (etc, pid)
        parsed = target.configure("validate=parse", check_mode=True)
        unproven = target.configure("validate=none", check_mode=True)
    finally:
        target.sh(f"mv {binary}.real {binary}")

    for result in (predicted, refused, parsed):
        assert result["failed"] and not result["changed"] and not result["restarted"] and "diff" not in result
        assert "containerd: this release knows no certs.d" in result["msg"]
        assert "nothing was changed" in result["msg"]
    assert unproven["changed"] and "validated" not in unproven


def test_a_killed_run_is_completed_by_the_next(target):
    """kill -9 of the module while the daemon restarts: the next run proves and commits what is there."""
    target.unit("ExecStartPre=/bin/sleep 3")
    process = target.start("containerd_config")
    target.wait_for("ls /var/lib/portcullis/journal | grep -- -applied.json")
    target.sh(
        """kill -9 "$(python3 -c 'import json; print(json.load(open("/var/lib/portcullis/journal/lock"))["pid"])')" """
    )
    process.communicate(timeout=60)

    result = target.configure()

    assert "completed and proven" in result["recovered"]
    assert result["changed"] and result["cri_ready"]
    assert target.sh("ls /var/lib/portcullis/journal | grep -c -- -applied.json || true").strip() == "0"
    assert not target.configure()["changed"]


def test_two_runs_at_once(target):
    """Both succeed, the daemon restarts once."""
    starts = "journalctl -u containerd -o cat | grep -c 'starting containerd'"
    before = int(target.sh(starts))
    runs = [target.start("containerd_config") for _ in range(2)]

    results = [target.result(run) for run in runs]

    assert not any(result.get("failed") for result in results), results
    assert sorted(result["changed"] for result in results) == [False, True]
    assert int(target.sh(starts)) == before + 1


def test_read_only_etc(target):
    """Nothing is changed, and the failure says why."""
    pid = target.daemon_pid()
    target.sh("mount --bind /etc/containerd /etc/containerd; mount -o remount,bind,ro /etc/containerd")
    try:
        result = target.configure()
    finally:
        target.sh("umount /etc/containerd")

    assert result["failed"] and not result["changed"] and not result["restarted"]
    assert "Read-only file system" in result["msg"] and "nothing was changed" in result["msg"]
    assert target.daemon_pid() == pid


@pytest.mark.parametrize(
    ("unit", "finding"),
    [
        pytest.param("KillMode=mixed", "containerd.kill_mode", id="kill-mode"),
    ],
)
def test_units_that_may_not_be_restarted(target, unit, finding):
    """A unit whose restart kills pods is refused before anything is touched."""
    etc, pid = target.etc(), target.daemon_pid()
    target.unit(unit)

    result = target.configure()

    assert result["failed"]
    assert [item["id"] for item in result["findings"]] == [finding]
    target.sh(f"rm {UNIT_DROP_IN}; rmdir {Path(UNIT_DROP_IN).parent}")
    assert (target.etc(), target.daemon_pid()) == (etc, pid)


def test_mirrors_are_converted_and_given_back(target):
    """The tables become hosts.toml files, CRI serves with them, and the undo leaves nothing behind."""
    plugin = "io.containerd." + ("cri.v1.images" if "cri.v1.images" in target.config() else "grpc.v1.cri")
    mirrors = f'\n[plugins."{plugin}".registry.mirrors."docker.io"]\nendpoint = ["https://m.example"]\n'
    target.lab.ssh(NODE, ["tee", "-a", CONFIG], stdin=mirrors)
    target.sh("systemctl restart containerd")
    target.wait_for(f"ctr -n k8s.io images check -q name=={BUSYBOX}")
    before, etc = target.config(), target.etc()

    predicted = target.configure(check_mode=True)
    assert target.etc() == etc
    changed = target.configure()
    hosts = target.sh(f"cat {DIRECTORY}/docker.io/hosts.toml")
    again = target.configure()
    undone = target.configure("state=absent")

    assert changed["changed"] and changed["cri_ready"] and not again["changed"]
    assert predicted["diff"] == changed["diff"] and predicted["converted"] == changed["converted"]
    assert '[host."https://m.example"]' in hosts
    assert undone["changed"] and undone["cri_ready"]
    assert (target.config(), target.etc()) == (before, etc)
    assert target.sh(f"ls -d {DIRECTORY} || true") == ""


def test_nri_is_switched_off_and_on_and_its_socket_follows(target):
    """Who listens decides: the plugin list says ok for a disabled NRI too. containerd 1.6 has none and says so."""
    listening = "grep -c /run/nri/nri.sock /proc/net/unix || true"
    if not target.sh("ctr plugins ls 2>/dev/null | grep -w nri || true"):
        assert "containerd.nri_unsupported" in {item["id"] for item in target.configure("nri=enabled")["findings"]}
        return
    original = target.config()

    off = target.configure("nri=disabled")

    assert off["nri"]["state"] == "disabled", off
    assert target.sh(listening).strip() == "0"

    on = target.configure("nri=enabled")

    assert (on["changed"], on["cri_ready"], on["nri"]["state"]) == (True, True, "enabled"), on
    assert target.sh(listening).strip() == "1"
    assert target.configure("state=absent")["changed"]
    assert target.config() == original


def test_image_from_an_archive(target, tmp_path):
    """A missing image is imported from an archive of the controller; one that is there is left."""
    archive = tmp_path / "busybox.tar"
    export = "ctr -n k8s.io images export /root/busybox.tar " + BUSYBOX
    target.sh(export)
    archive.write_bytes(
        subprocess.run([*target.lab.ssh_command(NODE), "cat /root/busybox.tar"], capture_output=True, check=True).stdout
    )
    target.sh(f"rm /root/busybox.tar; ctr -n k8s.io images rm --sync {BUSYBOX}")

    present = f"name=busybox:1.33 archive={archive}"
    predicted = target.run("containerd_image", present, check_mode=True)
    changed = target.run("containerd_image", present)
    again = target.run("containerd_image", present)
    wrong = target.run("containerd_image", f"name=docker.io/library/other:1 archive={archive}")
    pulled = target.run("containerd_image", "name=registry.invalid/a:1 timeout=20")

    assert predicted["changed"] and changed["changed"] and not again["changed"]
    assert (changed["name"], changed["source"], again["source"]) == (BUSYBOX, "archive", "node")
    assert changed["image_id"] == again["image_id"] != ""
    assert wrong["failed"] and "holds no docker.io/library/other:1" in wrong["msg"]
    assert pulled["failed"] and "cannot be pulled" in pulled["msg"] and "give an archive" in pulled["msg"]
