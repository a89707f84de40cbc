# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""containerd_config on a node of the lab: real unit, real daemon, real pods, real faults."""

from __future__ import annotations

import base64
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.integration.target import ANSIBLE, BUSYBOX, CONFIG, DIRECTORY, NODE, UNIT_DROP_IN


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
    assert unproven["changed"] and unproven["validated"] == "none"


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


@pytest.mark.once("debian")
def test_two_runs_at_once(target):
    """Both succeed, the daemon restarts once."""
    starts = "journalctl -u containerd -o cat | grep -c 'starting containerd'"
    before = int(target.sh(starts))
    runs = [target.start("containerd_config") for _ in range(2)]

    results = [target.result(run) for run in runs]

    assert not any(result.get("failed") for result in results), results
    assert sorted(result["changed"] for result in results) == [False, True]
    assert int(target.sh(starts)) == before + 1


@pytest.mark.once("debian")
def test_read_only_etc(target):
    """Nothing is changed, and the failure says why."""
    pid = target.daemon_pid()
    target.sh("mount --bind /etc/containerd /etc/containerd; mount -o remount,bind,ro /etc/containerd")
    try:
        result = target.configure()
    finally:
        target.sh("umount /etc/containerd")

    assert result["failed"] and not result["changed"] and not result["restarted"]
    assert "mounted read-only at /etc/containerd" in result["msg"] and "nothing was changed" in result["msg"]
    assert target.daemon_pid() == pid


@pytest.mark.once("debian")
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


@pytest.mark.once("debian")
def test_pods_may_end_where_the_user_says_so(target):
    """On a unit that kills pods the restart is made when it was accepted; this one spares them, so none is lost."""
    target.unit("KillMode=control-group")
    shims = target.sh("pgrep -c containerd-shim || true")

    predicted = target.configure("accept_restart_of=pods", check_mode=True)

    assert predicted["changed"] and predicted["restarted"] and predicted["findings"] == []
    assert target.sh("pgrep -c containerd-shim || true") == shims


@pytest.mark.once("debian")
def test_units_that_restart_too_are_named_and_come_back(target):
    """A unit that requires containerd is refused by name, and restarted with it when it was accepted."""
    unit = "[Unit]\nRequires=containerd.service\nAfter=containerd.service\n[Service]\nExecStart=/bin/sleep 86399\n"
    install = "[Install]\nRequiredBy=containerd.service\n"
    target.lab.ssh(NODE, ["tee", "/etc/systemd/system/needs.service"], stdin=unit + install)
    target.sh("systemctl daemon-reload; systemctl start needs.service")
    pid = target.sh("systemctl show -p MainPID --value needs.service")
    try:
        refused = target.configure()
        assert target.sh("systemctl show -p MainPID --value needs.service") == pid
        accepted = target.configure("accept_restart_of=needs.service")
        after = target.sh("systemctl is-active needs.service; systemctl show -p MainPID --value needs.service")
    finally:
        target.sh("systemctl stop needs.service; rm /etc/systemd/system/needs.service; systemctl daemon-reload")

    assert [item["id"] for item in refused["findings"]] == ["containerd.restarts_others"]
    assert "needs.service" in refused["msg"]
    assert accepted["changed"] and accepted["cri_ready"], accepted
    assert after.startswith("active") and pid not in after


@pytest.mark.once("debian")
def test_a_restart_that_is_due(target):
    """What was written without a restart is proven by the next run that may restart."""
    pid = target.daemon_pid()
    written = target.configure("restart=never")
    again = target.configure("restart=never")
    assert target.daemon_pid() == pid
    predicted = target.configure(check_mode=True)
    due = target.configure()

    assert written["changed"] and not written["restarted"] and not again["changed"]
    assert predicted["changed"] and predicted["restarted"]
    assert due["changed"] and due["restarted"] and due["cri_ready"], due
    assert target.daemon_pid() != pid
    assert not target.configure()["changed"]


def test_a_dead_cri_is_repaired(target):
    """#5306, #7844, #12612: the daemon is up and CRI dead because of mirrors beside config_path."""
    plugin = target.registry_plugin()
    dead = f'\n[plugins."{plugin}".registry]\nconfig_path = "{DIRECTORY}"\n'
    dead += f'[plugins."{plugin}".registry.mirrors."docker.io"]\nendpoint = ["https://m.example"]\n'
    target.lab.ssh(NODE, ["tee", "-a", CONFIG], stdin=dead)
    target.sh("systemctl restart containerd")
    pid = target.daemon_pid()

    guessed = target.configure("validate=none")
    assert target.daemon_pid() == pid
    predicted = target.configure(check_mode=True)
    repaired = target.configure()

    assert [item["id"] for item in guessed["findings"]] == ["containerd.cri_not_serving"]
    assert predicted["changed"] and predicted["validated"] == "daemon"
    assert repaired["changed"] and repaired["cri_ready"] and not repaired["rolled_back"], repaired
    target.sh(f"rm -r {DIRECTORY}/docker.io")


@pytest.mark.once("debian")
@pytest.mark.parametrize("full", ["/etc/containerd", "/var/lib/portcullis"])
def test_a_full_disk(target, full):
    """Nothing is lost, nothing restarts, and the failure says why."""
    etc, pid = target.etc(), target.daemon_pid()
    target.sh(f"mkdir -p {full}; cp -a {full} /run/full; mount -t tmpfs -o size=256k,mode=700 none {full}")
    target.sh(f"cp -a /run/full/. {full}; dd if=/dev/zero of={full}/filler bs=4k 2>/dev/null || true")
    listed = f"find {full} -type f ! -name lock"
    try:
        before = target.sh(listed)
        result = target.configure()
        left = target.sh(listed)
    finally:
        target.sh(f"umount {full}; rm -r /run/full")

    assert result["failed"] and not result["changed"] and not result["restarted"]
    assert "No space left on device" in result["msg"]
    assert left == before
    assert (target.etc(), target.daemon_pid()) == (etc, pid)


# From the lock on, in seconds: before the journal, the write, the restart, the proof, the commit.
KILLS = [0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6]


@pytest.mark.full
@pytest.mark.parametrize("delay", KILLS)
def test_a_run_that_is_killed_at_any_step(target, delay):
    """Whatever was done by then, the next run ends with the wanted configuration, proven, or with the original one."""
    original = target.config()
    holder = 'python3 -c \'import json; print(json.load(open("/var/lib/portcullis/journal/lock"))["pid"])\''
    waiting = (
        f"until p=$({holder} 2>/dev/null) && [ -d /proc/$p ]; do sleep 0.002; done; sleep {delay}; kill -9 $p || true"
    )
    killer = target.lab.ssh_command(NODE)
    process = target.start("containerd_config")
    subprocess.run([*killer, f"timeout 60 sh -c {shlex.quote(waiting)}"], check=True, timeout=90)
    process.communicate(timeout=60)
    left = target.config()
    unfinished = target.sh("ls /var/lib/portcullis/journal | grep -E -- '-(begun|applied).json' || true").split()

    result = target.configure()

    assert left in (original, target.config()), "a file is as before or as wanted, never in between"
    assert not result.get("failed") and result["cri_ready"], result
    assert bool(result.get("recovered")) == bool(unfinished)
    assert not target.sh("ls /var/lib/portcullis/journal | grep -E -- '-(begun|applied).json' || true").strip()
    assert not target.configure()["changed"]
    assert target.configure("state=absent")["changed"]
    assert target.config() == original


@pytest.mark.once("debian")
def test_no_credential_is_shown_at_the_highest_verbosity(target):
    """Neither in the clear nor in base64, as which the files come from the node; the journal is root's alone."""
    plugin = target.registry_plugin()
    auth = f'\n[plugins."{plugin}".registry.configs."r.example".auth]\npassword = "hunter22hunter22"\n'
    target.lab.ssh(NODE, ["tee", "-a", CONFIG], stdin=auth)
    argv = [str(ANSIBLE), NODE, "-i", str(target.lab.inventory_path), "-vvvv", "--diff", "-m"]
    done = subprocess.run(
        [*argv, "portcullis.fleet.containerd_config"], capture_output=True, text=True, timeout=180, check=True
    )
    shown = done.stdout + done.stderr
    content = target.config().encode()

    assert '"changed": true' in shown and "password" in shown
    assert "hunter22" not in shown
    pieces = [base64.b64encode(content[start:])[8:40].decode() for start in range(3)]
    assert not [piece for piece in pieces if piece in shown]
    assert target.sh("journalctl -o cat --since -5min | grep -c hunter22 || true").strip() == "0"
    assert target.sh("find /var/lib/portcullis/journal -type f -perm /077").strip() == ""


def test_mirrors_are_converted_and_given_back(target):
    """The tables become hosts.toml files, CRI serves with them, and the undo leaves nothing behind."""
    plugin = target.registry_plugin()
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
