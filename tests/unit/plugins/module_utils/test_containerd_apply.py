# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writing, restarting, proving and putting back, with a real daemon and a real journal."""

from __future__ import annotations

import base64
import errno
import os
import signal

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import containerd_apply, containerd_node, files
from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_apply import (
    ApplyError,
    apply,
    complain_forgotten,
    read_log,
)
from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_changes import (
    KIND,
    undo_records,
    unproven_entries,
)
from ansible_collections.portcullis.fleet.plugins.module_utils.files import sha256
from ansible_collections.portcullis.fleet.plugins.module_utils.journal import Journal

from tests.unit.plugins.module_utils.containerd_sandbox import AVAILABLE, Sandbox

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="needs containerd and root")

REGISTRY = '[plugins."io.containerd.grpc.v1.cri".registry]\n'
GOOD = b"version = 2\n"
BETTER = f'version = 2\n{REGISTRY}config_path = "/c"\n'.encode()
# The daemon stays up, its CRI plugin does not load.
BROKEN = BETTER + b'[plugins."io.containerd.grpc.v1.cri".registry.mirrors.a]\nendpoint = ["https://m"]\n'
# The daemon does not start.
REFUSED = b"version = \n"
NOTHING = {"writes": [], "note": {"restart": False}}


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "journal")


@pytest.fixture
def daemon(tmp_path, monkeypatch):
    with Sandbox(tmp_path, GOOD) as sandbox:
        for module in (containerd_apply, containerd_node):
            monkeypatch.setattr(module, "run_command", sandbox.run_command)
        yield sandbox


def plan_of(daemon, content, before=GOOD, **note):
    return {
        "writes": [
            {
                "path": str(daemon.config),
                "expected_sha256": "" if before is None else sha256(before),
                "content": None if content is None else base64.b64encode(content).decode(),
            }
        ],
        "note": {
            "unit": "containerd.service",
            "socket": daemon.socket,
            "restart": True,
            "health_timeout": 10,
            "config_path": "/c",
            "conditions": ["RuntimeReady"],
            "undo": False,
            "config_file": str(daemon.config),
            "remove_directories": [],
            "restart_needed": True,
            "dependents": [],
            "pods_may_end": False,
            "repairs": "",
            **note,
        },
    }


def restarts(daemon):
    return [argv for argv in daemon.commands if argv[:2] == ["systemctl", "restart"]]


def states(journal):
    return [entry.state for entry in journal.history(KIND)]


def test_a_good_change_is_committed(daemon, journal):
    """Written, restarted once, proven by what the daemon has loaded, committed."""
    result = apply(plan_of(daemon, BETTER), journal)

    assert result["changed"] and result["restarted"] and result["cri_ready"]
    assert daemon.config.read_bytes() == BETTER
    assert len(restarts(daemon)) == 1
    assert states(journal) == ["committed"]
    assert result["backup"].endswith("-containerd_config-committed.json")


@pytest.mark.parametrize(
    ("content", "message", "logged"),
    [
        pytest.param(
            BROKEN,
            "its CRI plugin did not load",
            "`mirrors` cannot be set when `config_path` is provided",
            id="cri-dead",
        ),
        pytest.param(REFUSED, "containerd.service failed to start", "failed to load TOML", id="daemon-dead"),
    ],
)
def test_a_bad_change_is_put_back(daemon, journal, content, message, logged):
    """The previous bytes come back, CRI serves again, and the failure says all of it with the daemon's own words."""
    with pytest.raises(ApplyError) as caught:
        apply(plan_of(daemon, content), journal)

    assert message in str(caught.value)
    assert "the previous configuration was put back" in str(caught.value)
    assert "CRI serves again" in str(caught.value)
    assert any(logged in line for line in caught.value.result["log"])
    assert caught.value.result["rolled_back"] and caught.value.result["cri_ready"]
    assert not caught.value.result["changed"]
    assert daemon.config.read_bytes() == GOOD
    assert states(journal) == ["rolled_back"]
    assert ["systemctl", "reset-failed", "--", "containerd.service"] in daemon.commands


def test_a_path_that_the_daemon_does_not_load_is_put_back(daemon, journal):
    """CRI serves, but not with the planned directory: the plan missed something, so the change goes."""
    with pytest.raises(ApplyError, match="serves with config_path '/c', not '/other'"):
        apply(plan_of(daemon, BETTER, config_path="/other"), journal)

    assert daemon.config.read_bytes() == GOOD


def test_without_restart_the_change_is_only_written(daemon, journal):
    """restart=never writes and commits."""
    result = apply(plan_of(daemon, BROKEN, restart=False), journal)

    assert (result["changed"], result["restarted"], result["cri_ready"]) == (True, False, None)
    assert restarts(daemon) == []
    assert states(journal) == ["committed"]


def due(daemon, **note):
    """Return a plan that only makes up for a restart."""
    return {"writes": [], "note": plan_of(daemon, None, **note)["note"]}


def test_a_restart_that_is_due_is_made_up_for(daemon, journal):
    """What was written without a restart is proven by the next run that may restart, and is due no more."""
    path = str(daemon.config)
    apply(plan_of(daemon, BETTER, restart=False), journal)
    assert unproven_entries(journal, path)
    assert unproven_entries(journal, "/another.toml") == []

    result = apply(due(daemon), journal)

    assert result["changed"] and result["restarted"] and result["cri_ready"]
    assert states(journal) == ["committed", "committed"]
    assert unproven_entries(journal, path) == []
    (record,) = undo_records(path, journal)["files"]
    assert base64.b64decode(record["content"]) == GOOD


def test_a_restart_that_is_due_and_fails_is_put_back(daemon, journal):
    """The bytes of before the first change that was never proven come back."""
    middle = GOOD + b"# first\n"
    apply(plan_of(daemon, middle, restart=False), journal)
    apply(plan_of(daemon, BROKEN, before=middle, restart=False), journal)

    with pytest.raises(ApplyError, match="the previous configuration was put back") as caught:
        apply(due(daemon), journal)

    assert daemon.config.read_bytes() == GOOD
    assert (caught.value.result["rolled_back"], caught.value.result["cri_ready"]) == (True, True)


def test_nobody_elses_change_is_put_back(daemon, journal):
    """Where somebody else left a file that the daemon does not serve with, it stays, and the failure says so."""
    daemon.config.write_bytes(BROKEN)

    with pytest.raises(
        ApplyError, match=r"like this before the run, so nothing could be put back.*still does not serve"
    ):
        apply(due(daemon), journal)

    assert daemon.config.read_bytes() == BROKEN


def test_a_change_that_needs_no_restart_does_not_hide_one_that_is_due(daemon, journal, tmp_path):
    """A hosts.toml that is written meanwhile proves nothing about the configuration."""
    apply(plan_of(daemon, BETTER, restart=False), journal)
    plan = with_hosts(daemon, plan_of(daemon, None, restart=False, restart_needed=False), tmp_path / "c" / "hosts.toml")
    apply({**plan, "writes": plan["writes"][:1]}, journal)

    assert len(unproven_entries(journal, str(daemon.config))) == 1
    assert apply(due(daemon), journal)["restarted"]
    assert unproven_entries(journal, str(daemon.config)) == []


def test_a_new_file_gets_the_mode_that_it_is_given(daemon, journal, tmp_path):
    """A hosts.toml with headers is for root only."""
    path = tmp_path / "c" / "hosts.toml"
    plan = with_hosts(daemon, plan_of(daemon, None, restart=False), path)
    apply({**plan, "writes": [{**plan["writes"][0], "mode": 0o600}]}, journal)

    assert path.stat().st_mode & 0o777 == 0o600


def test_a_daemon_that_was_restarted_by_hand_owes_nothing(daemon, journal):
    """Its next start has read the files."""
    apply(plan_of(daemon, BETTER, restart=False), journal)
    daemon.run_command(["systemctl", "restart"])

    assert unproven_entries(journal, str(daemon.config)) == []


def test_a_change_brings_a_dead_cri_back(daemon, journal):
    """There is no CRI that could list containers before; afterwards it serves."""
    daemon.config.write_bytes(BROKEN)
    daemon.run_command(["systemctl", "restart"])

    result = apply(plan_of(daemon, BETTER, before=BROKEN, repairs="no CRI", conditions=[]), journal)

    assert result["changed"] and result["cri_ready"]


def test_a_unit_that_restarts_too_must_be_back(daemon, journal):
    """The change goes when a unit that the restart took along stays away."""
    with pytest.raises(ApplyError, match=r"docker.service did not come back with containerd.service"):
        apply(plan_of(daemon, BETTER, dependents=["docker.service"], health_timeout=2), journal)

    assert daemon.config.read_bytes() == GOOD


def test_a_file_changed_meanwhile_is_left(daemon, journal):
    """What was read is no more what is there: nothing is touched."""
    daemon.config.write_bytes(GOOD + b"# by hand\n")

    with pytest.raises(ApplyError, match="changed by somebody else since it was read; run again"):
        apply(plan_of(daemon, BETTER), journal)

    assert daemon.config.read_bytes() == GOOD + b"# by hand\n"
    assert (states(journal), restarts(daemon)) == ([], [])


def test_a_change_that_another_run_made_is_no_change(daemon, journal):
    """Of two runs at once the second finds the work done."""
    apply(plan_of(daemon, BETTER), journal)

    result = apply(plan_of(daemon, BETTER), journal)

    assert (result["changed"], result["restarted"]) == (False, False)
    assert len(restarts(daemon)) == 1


def test_containers_that_cri_forgets_are_a_fault(daemon, journal, monkeypatch):
    """A daemon with another root serves and knows none of the containers that run on: the change is put back."""
    mine = {"c1": {"name": "web", "pid": os.getpid(), "started": containerd_node.start_ticks(os.getpid())}}
    gone = {"c2": {"name": "job", "pid": os.getpid(), "started": 0}}
    monkeypatch.setattr(containerd_apply, "running_containers", lambda _socket: {**mine, **gone})

    with pytest.raises(ApplyError, match="does not know containers any more whose processes run on: web; the prev"):
        apply(plan_of(daemon, BETTER), journal)

    assert daemon.config.read_bytes() == GOOD
    assert states(journal) == ["rolled_back"]
    assert complain_forgotten(gone, daemon.socket) == ""


def test_a_disk_that_refuses_the_write_leaves_everything(daemon, journal, monkeypatch):
    """Disk full or read-only: the message says so, the daemon is not restarted."""

    def refuse(path, *_args, **_kwargs):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    monkeypatch.setattr(files, "write_atomic", refuse)

    with pytest.raises(ApplyError, match=r"Read-only file system.*nothing was changed"):
        apply(plan_of(daemon, BETTER), journal)

    assert (states(journal), restarts(daemon)) == (["rolled_back"], [])


def killed_after(daemon, journal, content, step):
    """Run apply in a child that is killed right after a step."""
    child = os.fork()
    if child == 0:
        original = getattr(journal, step)

        def kill(*args):
            original(*args)
            os.kill(os.getpid(), signal.SIGKILL)

        setattr(journal, step, kill)
        apply(plan_of(daemon, content), journal)
        os._exit(1)
    _pid, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


def test_killed_before_the_write_nothing_is_left(daemon, journal):
    """The next run closes the entry and goes on with its own plan."""
    killed_after(daemon, journal, BETTER, "begin")

    result = apply(plan_of(daemon, BETTER), journal)

    assert "had changed nothing" in result["recovered"]
    assert daemon.config.read_bytes() == BETTER
    assert states(journal) == ["committed", "rolled_back"]


def test_killed_between_write_and_restart_is_completed(daemon, journal):
    """The bytes are there and good: the next run restarts, proves and commits them."""
    killed_after(daemon, journal, BETTER, "applied")

    result = apply(NOTHING, journal)

    assert "completed and proven" in result["recovered"]
    assert result["changed"] and result["restarted"] and result["cri_ready"]
    assert states(journal) == ["committed"]


def test_killed_between_write_and_restart_is_undone_when_bad(daemon, journal):
    """The bytes are there and break CRI: the next run puts the previous ones back and fails."""
    killed_after(daemon, journal, BROKEN, "applied")

    with pytest.raises(ApplyError, match="the previous configuration was put back"):
        apply(NOTHING, journal)

    assert daemon.config.read_bytes() == GOOD
    assert states(journal) == ["rolled_back"]


def test_undo_leads_back_to_the_original(daemon, journal):
    """Two changes are followed back to the first bytes; a change by hand breaks the chain."""
    path = str(daemon.config)
    assert undo_records(path, journal) is None
    apply(plan_of(daemon, BETTER), journal)
    second = BETTER.replace(b"/c", b"/d")
    apply(plan_of(daemon, second, before=BETTER, config_path="/d"), journal)

    (record,) = undo_records(path, journal)["files"]
    daemon.config.write_bytes(second + b"# by hand\n")
    (changed,) = undo_records(path, journal)["files"]
    daemon.config.write_bytes(GOOD)
    (done,) = undo_records(path, journal)["files"]

    assert (base64.b64decode(record["content"]), record["matches"]) == (GOOD, True)
    assert changed["matches"] is False
    assert done["content"] == done["current"] and done["matches"]
    assert undo_records("/another.toml", journal) is None


def with_hosts(daemon, plan, path):
    """Add a hosts.toml to a plan."""
    plan["writes"].insert(0, {"path": str(path), "expected_sha256": "", "content": base64.b64encode(b"# h\n").decode()})
    return plan


def test_new_files_and_directories_go_with_the_undo(daemon, journal, tmp_path):
    """What the change made is gone afterwards; a directory that holds something else stays."""
    hosts = tmp_path / "certs.d" / "docker.io" / "hosts.toml"
    apply(with_hosts(daemon, plan_of(daemon, BETTER), hosts), journal)
    undo = undo_records(str(daemon.config), journal)
    assert undo["directories"] == [str(hosts.parent.parent), str(hosts.parent)]
    (tmp_path / "certs.d" / "other").mkdir()
    plan = plan_of(daemon, GOOD, before=BETTER, undo=True, config_path=None, remove_directories=undo["directories"])
    plan["writes"].append({"path": str(hosts), "expected_sha256": sha256(b"# h\n"), "content": None})

    apply(plan, journal)

    assert daemon.config.read_bytes() == GOOD
    assert not hosts.parent.exists()
    assert (tmp_path / "certs.d" / "other").exists()


def test_new_directories_go_with_the_roll_back(daemon, journal, tmp_path):
    """A change that is put back leaves no directory."""
    hosts = tmp_path / "certs.d" / "docker.io" / "hosts.toml"

    with pytest.raises(ApplyError):
        apply(with_hosts(daemon, plan_of(daemon, BROKEN), hosts), journal)

    assert not (tmp_path / "certs.d").exists()


def test_log_is_bounded_and_telling(monkeypatch):
    """Of a long log the failures are kept, at most twelve lines of at most 500 characters."""
    text = "\n".join(["level=info msg=x"] * 50 + [f"level=error msg={number}" + "x" * 600 for number in range(20)])
    monkeypatch.setattr(containerd_apply, "run_command", lambda argv: (0, text, ""))

    lines = read_log("containerd.service", 0)

    assert len(lines) == 12
    assert all(line.startswith("level=error") and len(line) == 500 for line in lines)
