# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A throwaway copy of this very machine: nothing gets out of it, nothing of it stays."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import random
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import sandbox
from ansible_collections.portcullis.fleet.plugins.module_utils.sandbox import (
    SandboxError,
    cover,
    disk_mounts,
    mount,
    run_in_copies,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes namespaces and mounts")
TIMEOUT_S = 20
KILLS, BATCH = 100, 20

MOUNTINFO = """\
28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
29 28 0:5 / /proc rw - proc proc rw
30 28 0:25 / /run rw shared:5 - tmpfs tmpfs rw
31 28 8:2 / /var rw shared:6 - xfs /dev/sda2 rw
32 31 8:3 / /var/lib/containerd rw - ext4 /dev/sda3 rw
33 31 0:99 / /var/lib/kubelet/pods/1/volumes/kubernetes.io~projected/t rw - tmpfs tmpfs rw
34 28 0:40 / /mnt/share rw - nfs4 server:/ rw
35 28 7:1 / /opt/with\\040space rw - squashfs /dev/loop1 ro
36 28 7:2 / /opt/with,comma rw - squashfs /dev/loop2 ro
37 31 8:4 / /runner rw - ext4 /dev/sda4 rw
"""


def answer(function, timeout_s=TIMEOUT_S):
    return run_in_copies([function], timeout_s)[0]


def test_mounts_that_a_copy_shows():
    """Disks, parents first: no network file system, no pod's volume, nothing that an overlay cannot name."""
    assert disk_mounts(MOUNTINFO) == ["/", "/runner", "/var", "/opt/with space", "/var/lib/containerd"]


@needs_root
def test_answers_come_from_separate_copies_in_order(tmp_path):
    path = tmp_path / "file"
    path.write_text("outside")

    def write(text):
        before = path.read_text()
        path.write_text(text)
        return [before, path.read_text(), os.getpid()]

    assert run_in_copies([lambda: write("a"), lambda: write("b")], TIMEOUT_S) == [
        ["outside", "a", 1],
        ["outside", "b", 1],
    ]
    assert path.read_text() == "outside"


@needs_root
def test_what_is_made_and_removed_stays_inside(tmp_path):
    (tmp_path / "keep").mkdir()
    (tmp_path / "keep/file").write_text("x")

    def change():
        (tmp_path / "keep/file").unlink()
        (tmp_path / "keep").rmdir()
        (tmp_path / "new/deep").mkdir(parents=True)
        return sorted(os.listdir(tmp_path))

    assert answer(change) == ["new"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "keep"]


@needs_root
def test_sockets_of_the_machine_are_out_of_reach(tmp_path):
    """Neither a path nor an abstract name leads to a server outside; otherwise a proxied snapshotter could be told to
    remove what it has."""
    path = str(tmp_path / "socket")
    name = f"\0portcullis-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as by_path, socket.socket(socket.AF_UNIX) as by_name:
        by_path.bind(path)
        by_path.listen()
        by_name.bind(name)
        by_name.listen()

        def connect():
            codes = []
            for address in (path, name):
                with socket.socket(socket.AF_UNIX) as client:
                    codes.append(client.connect_ex(address))
            return codes

        assert answer(connect) == [errno.ECONNREFUSED, errno.ECONNREFUSED]


@needs_root
def test_any_address_can_be_listened_on_and_is_not_seen_outside():
    """A daemon that is configured with the node's address listens, in a network of its own."""

    def listen():
        with socket.create_server(("203.0.113.7", 1338)), socket.create_server(("127.0.0.1", 0)):
            return [name for _index, name in socket.if_nameindex()]

    assert "lo" in answer(listen)


@needs_root
def test_cgroups_devices_and_run_are_protected():
    def attempt():
        found = {"dev": sorted(os.listdir("/dev")), "run": os.listdir("/run"), "cgroups": os.listdir("/sys/fs/cgroup")}
        try:
            os.mkdir("/sys/fs/cgroup/portcullis-test")
        except OSError as error:
            found["errno"] = error.errno
        return found

    found = answer(attempt)
    assert found["dev"] == ["full", "null", "random", "urandom", "zero"]
    assert found["run"] == []
    assert found["cgroups"]
    assert found["errno"] == errno.EROFS


@needs_root
def test_kernel_settings_are_read_only():
    def attempt():
        try:
            Path("/proc/sys/vm/overcommit_memory").write_text("0")
        except OSError as error:
            return error.errno

    assert answer(attempt) == errno.EROFS


@needs_root
def test_a_directory_with_a_file_system_of_its_own():
    """/var and the like; a copy of a copy, where one can be mounted. A third overlay is more than the kernel stacks."""
    point = Path("/var/tmp")  # noqa: S108 - of a copy

    def change_and_look():
        names = sorted(os.listdir(point))
        (point / "new").write_text("x")
        return names, str(answer(lambda: 1))

    def outer():
        mount("tmpfs", str(point), "tmpfs")
        (point / "there").write_text("x")
        return answer(change_and_look), sorted(os.listdir(point))

    (names, too_deep), after = answer(outer)

    assert (names, after) == (["there"], ["there"])
    assert "mount overlay" in too_deep


@needs_root
def test_cover_hides_a_directory_and_makes_a_missing_one(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").write_text("x")

    def look():
        for name in ("full", "missing"):
            cover(str(tmp_path / name))
        return [os.listdir(tmp_path / name) for name in ("full", "missing")]

    assert answer(look) == [[], []]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full"]


@needs_root
def test_children_of_the_caller_stay_in_its_namespace():
    """Only the copy is born into the new PID namespace."""
    before = os.readlink("/proc/self/ns/pid_for_children")

    assert answer(os.getpid) == 1
    assert os.readlink("/proc/self/ns/pid_for_children") == before
    assert subprocess.run(["true"], check=False).returncode == 0


@needs_root
def test_failures_are_told_each_for_its_copy():
    def fail():
        raise ValueError("the words")

    failed, killed, late, good = run_in_copies(
        [fail, lambda: os._exit(3), lambda: time.sleep(60), lambda: "good"], timeout_s=1
    )

    assert [str(failed), str(killed)] == ["the words", "the process in the sandbox was killed"]
    assert str(late) == "no answer within 1 s"
    assert good == "good"


@needs_root
def test_long_answers_arrive_whole():
    assert answer(lambda: "x" * 1_000_000) == "x" * 1_000_000


@needs_root
def test_no_descriptor_is_left_open_and_none_is_handed_down():
    before = sorted(os.listdir("/proc/self/fd"))
    with socket.socket() as inherited:
        inherited.set_inheritable(True)
        number = inherited.fileno()
        handed_down = answer(lambda: os.path.exists(f"/proc/self/fd/{number}"))
    run_in_copies([lambda: 1 / 0], TIMEOUT_S)

    assert sorted(os.listdir("/proc/self/fd")) == before
    assert handed_down is False


@needs_root
@pytest.mark.parametrize("call", ["unshare", "setns", "mount"])
def test_a_machine_that_forbids_it_is_an_answer(call, monkeypatch):
    """Where namespaces or mounts are not permitted there is a reason instead of an exception, and nothing is left."""

    class Forbidding:
        def __getattr__(self, name):
            return self.refuse if name == call else getattr(real, name)

        @staticmethod
        def refuse(*_arguments):
            ctypes.set_errno(errno.EPERM)
            return -1

    real = sandbox._libc
    before = children()
    monkeypatch.setattr(sandbox, "_libc", Forbidding())

    refused = answer(lambda: 1)

    assert isinstance(refused, SandboxError)
    assert call in str(refused)
    assert "Operation not permitted" in str(refused)
    assert children() == before


def children():
    """Return the children of this process; zombies count."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def marked(mark):
    """Return the processes with a mark in their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


@contextlib.contextmanager
def adopting():
    """Make orphans of children this process's own, so that survivors are found (PR_SET_CHILD_SUBREAPER)."""
    libc = ctypes.CDLL(None)
    libc.prctl(36, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(36, 0, 0, 0, 0)


def reap_all():
    """Wait until the last child of this process is gone; fails when one lives on."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.01)
        except ChildProcessError:
            return
    raise AssertionError(f"children still alive: {children()}")


@needs_root
def test_nothing_survives_a_killed_parent(tmp_path):
    """kill -9 at any moment: every process of every copy goes, and with the last one its mounts; no file was made."""
    mark = f"portcullis-mark-{os.getpid()}"
    moments = random.Random(7)  # noqa: S311 - moments, not secrets
    mounts = Path("/proc/self/mountinfo").read_text()

    def work():
        (tmp_path / "inside").write_text("x")
        subprocess.Popen(["sh", "-c", "sleep 600; true", mark])
        subprocess.run(["sh", "-c", "sleep 600; true", mark], check=False)

    with adopting():
        for _batch in range(KILLS // BATCH):
            parents = []
            for _number in range(BATCH):
                pid = os.fork()
                if pid == 0:
                    run_in_copies([work, work], 60)
                    os._exit(0)
                parents.append((time.monotonic() + moments.uniform(0, 0.4), pid))
            for moment, pid in sorted(parents):
                time.sleep(max(0, moment - time.monotonic()))
                os.kill(pid, signal.SIGKILL)
        reap_all()

    assert marked(mark) == []
    assert Path("/proc/self/mountinfo").read_text() == mounts
    assert list(tmp_path.iterdir()) == []
