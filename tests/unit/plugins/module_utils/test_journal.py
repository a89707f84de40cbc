# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import _journal_entry, journal
from ansible_collections.portcullis.fleet.plugins.module_utils._journal_entry import (
    EntryName,
    decode,
    encode,
    new_entry,
)
from ansible_collections.portcullis.fleet.plugins.module_utils.files import (
    Snapshot,
    read_snapshot,
    sha256,
    write_atomic,
)
from ansible_collections.portcullis.fleet.plugins.module_utils.journal import (
    Journal,
    JournalBusy,
    JournalCorrupt,
    JournalError,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.killing import killed_at_each_step
from tests.unit.mounting import needs_root, tmpfs

OLD, NEW, THEIRS = b"old = 1\n", b"new = 1\r\n", b"theirs = 1"


class Node:
    """A configuration file and a journal beside it."""

    def __init__(self, directory):
        self.config = directory / "config.toml"
        self.hosts = directory / "hosts.toml"
        self.journal = Journal(directory / "lib" / "journal")

    def begin(self, kind="containerd_config"):
        """Begin the change that apply() makes: config.toml is replaced, hosts.toml is created."""
        snapshots = [read_snapshot(self.config), read_snapshot(self.hosts)]
        planned = {str(self.config): sha256(NEW), str(self.hosts): sha256(NEW)}
        return self.journal.begin(kind, snapshots, planned, {"unit": "containerd.service"})

    def apply(self):
        write_atomic(self.config, NEW)
        write_atomic(self.hosts, NEW)

    def is_as_before(self):
        return self.config.read_bytes() == OLD and not self.hosts.exists()


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    made.config.write_bytes(OLD)
    made.config.chmod(0o640)
    return made


def test_reading_creates_nothing(node):
    """In check mode the node stays as it is: no journal is no entries."""
    assert node.journal.unfinished() == []
    assert node.journal.history() == []
    assert not node.journal.directory.exists()


def test_what_is_no_directory_is_an_error(tmp_path):
    """An unreadable journal is not an empty one."""
    (tmp_path / "file").touch()

    with pytest.raises(JournalError, match="cannot read the journal"):
        Journal(tmp_path / "file").unfinished()


def test_whole_life_of_a_change(node):
    """begun -> applied -> committed, each visible to the next run, then reversed byte for byte."""
    with node.journal.lock(0):
        entry = node.begin()
        assert [item.state for item in node.journal.unfinished()] == ["begun"]
        node.apply()
        node.journal.applied(entry)
        assert [item.state for item in node.journal.unfinished("containerd_config")] == ["applied"]
        node.journal.commit(entry)
    assert node.journal.unfinished() == []

    (found,) = Journal(node.journal.directory).history("containerd_config", node.config)

    assert (found.sequence, found.state, found.note) == (1, "committed", {"unit": "containerd.service"})
    assert found.files == entry.files
    with node.journal.lock(0):
        assert node.journal.roll_back(found).left == []
    assert node.is_as_before()
    assert stat.S_IMODE(node.config.stat().st_mode) == 0o640
    assert [item.state for item in node.journal.history()] == ["rolled_back"]


def test_only_root_reads_it(node):
    """Entries hold whole configurations, credentials included; a looser mode is put right."""
    with node.journal.lock(0):
        node.begin()
    node.journal.directory.chmod(0o755)
    with node.journal.lock(0):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in node.journal.directory.iterdir()}

    assert stat.S_IMODE(node.journal.directory.stat().st_mode) == 0o700
    assert modes == {"lock": 0o600, "0000000001-containerd_config-begun.json": 0o600}


@needs_root
def test_refuses_a_directory_of_another_user(node):
    """Whoever owns the directory could change what is restored."""
    node.journal.directory.mkdir(parents=True)
    os.chown(node.journal.directory, 1, 1)

    words = r"must be a directory of user 0, found drwx.* of user 1"
    with pytest.raises(JournalError, match=words), node.journal.lock(0):
        pytest.fail("locked")


def test_refuses_a_link_in_the_place_of_the_directory(node, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    node.journal.directory.parent.mkdir()
    node.journal.directory.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(JournalError, match="must be a directory"), node.journal.lock(0):
        pytest.fail("locked")


def test_newest_first_whatever_the_clock_says(node, monkeypatch):
    """The clock jumps back between two changes: order is the sequence."""
    clock = iter(["2026-11-30T12:00:00Z", "2026-11-30T12:00:00Z", "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z"])
    monkeypatch.setattr(journal, "_now", lambda: next(clock))
    for _ in range(2):
        with node.journal.lock(0):
            node.journal.commit(node.begin())

    history = node.journal.history()

    assert [entry.sequence for entry in history] == [2, 1]
    assert [entry.begun_at[:4] for entry in history] == ["1970", "2026"]


def test_history_of_a_kind_and_a_path(node, tmp_path):
    """Filters apply together; a path that no entry holds gives none."""
    with node.journal.lock(0):
        node.journal.commit(node.begin("containerd_config"))
        node.journal.commit(node.begin("felix_config"))

    assert [entry.kind for entry in node.journal.history()] == ["felix_config", "containerd_config"]
    assert [entry.sequence for entry in node.journal.history("felix_config", str(node.hosts))] == [2]
    assert node.journal.history(path=tmp_path / "other") == []
    assert node.journal.history("kube_proxy_config") == []


@pytest.mark.parametrize("step", ["begun", "first file", "all files", "applied"])
def test_roll_back_of_a_run_that_stopped(node, step):
    """Whatever was done of the change is undone; what was not done does not matter."""
    with node.journal.lock(0):
        entry = node.begin()
        if step == "first file":
            write_atomic(node.config, NEW)
        elif step != "begun":
            node.apply()
        if step == "applied":
            node.journal.applied(entry)

    with node.journal.lock(0):
        (found,) = node.journal.unfinished()
        node.journal.roll_back(found)

    assert node.is_as_before()
    assert node.journal.unfinished() == []


def test_roll_back_brings_a_removed_file_back(node):
    """planned "" is a removal."""
    with node.journal.lock(0):
        entry = node.journal.begin("felix_config", [read_snapshot(node.config)], {str(node.config): ""}, {})
        node.config.unlink()
        node.journal.commit(entry)
        node.journal.roll_back(entry)

    assert node.config.read_bytes() == OLD


def test_roll_back_leaves_what_somebody_changed_since(node):
    """Another's edit is not overwritten: it is left and named; the other file is restored."""
    with node.journal.lock(0):
        entry = node.begin()
        node.apply()
        node.journal.commit(entry)
        node.config.write_bytes(THEIRS)

        left = node.journal.roll_back(entry).left

    assert [item["path"] for item in left] == [str(node.config)]
    assert left[0]["reason"].endswith(f"found {sha256(THEIRS)}: somebody else changed it since")
    assert node.config.read_bytes() == THEIRS
    assert not node.hosts.exists()
    assert entry.state == "rolled_back"


def test_roll_back_leaves_what_somebody_removed(node):
    with node.journal.lock(0):
        entry = node.begin()
        node.apply()
        node.config.unlink()

        left = node.journal.roll_back(entry).left

    assert left[0]["reason"].endswith("found no file: somebody else changed it since")
    assert not node.config.exists()


@needs_root
def test_roll_back_goes_on_after_a_file_that_it_cannot_restore(node, tmp_path):
    """One file is on a file system that became read-only: the other is restored, the entry stays unfinished."""
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    with tmpfs(mounted) as remount_read_only:
        stuck = mounted / "a.toml"
        stuck.write_bytes(OLD)
        paths = [node.config, stuck]
        with node.journal.lock(0):
            snapshots = [read_snapshot(path) for path in paths]
            entry = node.journal.begin("containerd_config", snapshots, {str(path): sha256(NEW) for path in paths}, {})
            for path in paths:
                write_atomic(path, NEW)
            remount_read_only()

            with pytest.raises(JournalError, match=r"a\.toml.*remove the cause and roll back again"):
                node.journal.roll_back(entry)

    assert node.config.read_bytes() == OLD
    assert [item.state for item in node.journal.unfinished()] == ["begun"]


def fill(directory, name="filler"):
    """Take all the space that is left."""
    with pytest.raises(OSError, match="No space left"):
        (directory / name).write_bytes(b"x" * 1_000_000)


@pytest.fixture
def small_disk(tmp_path):
    with tmpfs(tmp_path, "size=64k"):
        node = Node(tmp_path)
        node.config.write_bytes(OLD)
        with node.journal.lock(0):
            yield node


@needs_root
def test_full_disk_at_the_begin(small_disk):
    """The change is refused before it starts, and no part of an entry is left."""
    fill(small_disk.config.parent)

    with pytest.raises(JournalError, match=r"No space left on device.*free space"):
        small_disk.begin()

    assert os.listdir(small_disk.journal.directory) == ["lock"]


@needs_root
def test_full_disk_at_the_end(small_disk):
    """A change of state takes no space."""
    entry = small_disk.begin()
    small_disk.apply()
    fill(small_disk.config.parent)

    small_disk.journal.applied(entry)
    small_disk.journal.commit(entry)

    assert [item.state for item in small_disk.journal.history()] == ["committed"]


@needs_root
def test_full_disk_at_a_roll_back(small_disk):
    """The entry stays unfinished until there is space, then the same call succeeds."""
    entry = small_disk.begin()
    write_atomic(small_disk.config, NEW)
    fill(small_disk.config.parent)
    with pytest.raises(JournalError, match=r"No space left on device.*roll back again"):
        small_disk.journal.roll_back(entry)
    assert [item.state for item in small_disk.journal.unfinished()] == ["begun"]

    (small_disk.config.parent / "filler").unlink()
    small_disk.journal.roll_back(entry)

    assert small_disk.is_as_before()


@needs_root
def test_disk_that_a_killed_writer_filled(small_disk):
    """Its temporary file goes first, and gives the space to restore."""
    entry = small_disk.begin()
    small_disk.apply()
    fill(small_disk.config.parent, ".config.toml.portcullis-killed")

    small_disk.journal.roll_back(entry)

    assert small_disk.is_as_before()


@needs_root
def test_read_only_directory(tmp_path):
    """A journal that cannot be written is said before anything is changed; it can still be read."""
    with tmpfs(tmp_path) as remount_read_only:
        node = Node(tmp_path)
        node.config.write_bytes(OLD)
        with node.journal.lock(0):
            node.journal.commit(node.begin())
        remount_read_only()

        assert len(node.journal.history()) == 1
        with pytest.raises(JournalError, match=r"Read-only file system.*must be writable"), node.journal.lock(0):
            pytest.fail("locked")


def test_changes_need_the_lock(node):
    """Without it two runs could take the same sequence."""
    with pytest.raises(JournalError, match="only under its lock"):
        node.begin()
    with node.journal.lock(0):
        entry = node.begin()
    for change in (node.journal.applied, node.journal.commit, node.journal.roll_back):
        with pytest.raises(JournalError, match="only under its lock"):
            change(entry)


def test_states_go_one_way(node):
    with node.journal.lock(0):
        entry = node.begin()
        node.journal.commit(entry)
        with pytest.raises(JournalError, match="cannot become applied: expected state begun"):
            node.journal.applied(entry)
        node.journal.roll_back(entry)
        with pytest.raises(JournalError, match="cannot become committed: expected state begun or applied"):
            node.journal.commit(entry)


def test_entry_that_vanished(node):
    """Somebody removed the entry's file: the state does not change silently."""
    with node.journal.lock(0):
        entry = node.begin()
        (node.journal.directory / entry.name).unlink()

        with pytest.raises(JournalError, match="No such file"):
            node.journal.applied(entry)
        assert entry.state == "begun"


def test_unfinished_entry_holds_its_files(node):
    """A second change of a file on top of an unproven one would make the first irreversible."""
    with node.journal.lock(0):
        node.begin()

        with pytest.raises(JournalError, match=r"unfinished journal entry .*-begun\.json; commit or roll back"):
            node.begin("felix_config")


@pytest.mark.parametrize(
    ("kind", "paths", "planned", "words"),
    [
        pytest.param("Bad-Kind", ["/a"], {"/a": ""}, "kind: expected lower case", id="kind"),
        pytest.param("k", ["/a", "/a"], {"/a": ""}, "each path once", id="path-twice"),
        pytest.param("k", ["/a"], {"/b": ""}, "expected the real paths of the snapshots", id="other-path"),
        pytest.param("k", ["/a"], {"/a": "abc"}, "expected a SHA-256", id="not-a-hash"),
    ],
)
def test_begin_refuses_what_does_not_belong_together(node, kind, paths, planned, words):
    snapshots = [Snapshot(path, b"", sha256(b""), 0o644, 0, 0) for path in paths]

    with node.journal.lock(0), pytest.raises(ValueError, match=words):
        node.journal.begin(kind, snapshots, planned, {})
    assert node.journal.history() == []


def test_a_change_without_files_is_remembered_by_its_note(node):
    """What only the running system knows, such as a unit's state, is in the note."""
    with node.journal.lock(0):
        entry = node.journal.begin("k", [], {}, {"unit": "a.service"})
        node.journal.commit(node.journal.applied(entry))
        (found,) = node.journal.history("k")

        assert (found.files, found.planned, found.note) == ([], {}, {"unit": "a.service"})
        assert node.journal.roll_back(found).state == "rolled_back"


HOLDER = """
import sys, time
from pathlib import Path
from ansible_collections.portcullis.fleet.plugins.module_utils.journal import Journal
with Journal(sys.argv[1]).lock(0):
    print("locked", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def hold_lock(node, seconds):
    """Start a process that holds the lock, and return it once it does."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(node.journal.directory), str(seconds)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"locked\n"
    return process


def test_second_process_is_told_who_holds_the_lock(node):
    """The message names the process and since when."""
    with hold_lock(node, 60) as process:
        try:
            started = time.monotonic()
            with pytest.raises(JournalBusy) as caught, node.journal.lock(0.3):
                pytest.fail("locked")
            assert 0.3 <= time.monotonic() - started < 5
        finally:
            process.kill()

    assert caught.value.pid == process.pid
    assert f"locked by process {process.pid} since {caught.value.since}" in str(caught.value)


def test_waiting_for_the_holder_writes_nothing(node):
    """A reader waits while another run holds the lock, also without a journal on the node."""
    node.journal.wait(0)
    assert not node.journal.directory.exists()

    with hold_lock(node, 60) as process:
        note = (node.journal.directory / "lock").read_bytes()
        try:
            with pytest.raises(JournalBusy):
                node.journal.wait(0.2)
        finally:
            process.kill()
        process.wait()

    assert (node.journal.directory / "lock").read_bytes() == note
    node.journal.wait(0)


def test_lock_dies_with_its_holder(node):
    """After kill -9 of the holder the lock is free, and the note of who held it is the new holder's."""
    with hold_lock(node, 60) as process:
        process.kill()

    with node.journal.lock(0):
        assert json.loads((node.journal.directory / "lock").read_text())["pid"] == os.getpid()
    assert (node.journal.directory / "lock").read_text() == ""


def test_lock_waits_for_a_holder_that_ends(node):
    with hold_lock(node, 0.5), node.journal.lock(20):
        node.begin()


def test_lock_is_not_passed_to_programs(node):
    """A daemon that a run starts must not hold the lock after the run."""
    with node.journal.lock(0):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], close_fds=False)
    try:
        with node.journal.lock(0):
            assert child.poll() is None
    finally:
        child.kill()
        child.wait(10)


def test_lock_is_taken_once(node):
    with node.journal.lock(0):
        with pytest.raises(JournalError, match="already holds"), node.journal.lock(0):
            pytest.fail("locked twice")
        node.begin()


def test_lock_names_an_unknown_holder(node):
    """The holder has not written its note yet, or the disk was full."""
    with node.journal.lock(0):
        for note in ("", "[1]", "\ufffd"):
            (node.journal.directory / "lock").write_text(note)

            with (
                pytest.raises(JournalBusy, match="a process that just started"),
                Journal(node.journal.directory).lock(0),
            ):
                pytest.fail("locked")


def damage_content(data):
    data["files"][0]["content_base64"] = "AAAA"


def damage_mode(data):
    data["files"][0]["mode"] = 0o777


def make_newer(data):
    data["version"] = 2


def drop_files(data):
    del data["files"]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        pytest.param(damage_content, "the checksum differs", id="content"),
        pytest.param(damage_mode, "the checksum differs", id="mode"),
        pytest.param(drop_files, "the checksum differs", id="key"),
        pytest.param(make_newer, "expected version 1, found 2: written by a newer collection", id="newer"),
    ],
)
def test_damaged_entry_is_named(node, damage, words):
    """Nothing is restored from an entry that is not as it was written; other entries are not affected."""
    with node.journal.lock(0):
        node.journal.commit(node.begin())
        entry = node.begin()
    path = node.journal.directory / entry.name
    data = json.loads(path.read_text())
    damage(data)
    path.write_text(json.dumps(data))

    for read in (node.journal.unfinished, node.journal.history):
        with pytest.raises(JournalCorrupt, match=words) as caught:
            read()
        assert caught.value.path == str(path)
        assert str(path) in str(caught.value)
        assert "move the entry out of the directory" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"version": 1}', b"\xff\xfe", b"[" * 100000])
def test_what_is_no_entry_is_named(node, content):
    with node.journal.lock(0):
        entry = node.begin()
    (node.journal.directory / entry.name).write_bytes(content)

    with pytest.raises(JournalCorrupt, match="it is damaged"):
        node.journal.unfinished()


def test_damage_of_a_finished_entry_does_not_stop_the_next_change(node):
    """The name says that it is finished: its body is not read for a change."""
    with node.journal.lock(0):
        entry = node.begin()
        node.journal.commit(entry)
        (node.journal.directory / entry.name).write_bytes(b"damaged")

        assert node.journal.unfinished() == []
        assert node.begin().sequence == 2


@pytest.mark.parametrize("name", ["12.json", "0000000001-kind-proven.json", "0000000001-kind-begun.json"])
def test_foreign_names_are_refused(node, name):
    """A state of a newer version, a stray file, a copy: none of it is skipped silently."""
    with node.journal.lock(0):
        node.begin()
        (node.journal.directory / name).write_text("{}")

        with pytest.raises(JournalCorrupt, match=name):
            node.begin()


def kill_and_recover(root, end):
    """Yield, for each step, how many entries the next run found unfinished and committed; it put the node back."""

    def prepare(directory):
        (directory / "config.toml").write_bytes(OLD)

    def change(directory):
        node = Node(directory)
        with node.journal.lock(0):
            entry = node.begin()
            node.apply()
            node.journal.applied(entry)
            getattr(node.journal, end)(entry)

    for directory in killed_at_each_step(root, prepare, change):
        node = Node(directory)
        with node.journal.lock(0):
            unfinished = node.journal.unfinished()
            for entry in unfinished:
                assert node.journal.roll_back(entry).left == []
            committed = [entry for entry in node.journal.history() if entry.state == "committed"]
            if committed:
                assert (node.config.read_bytes(), node.hosts.read_bytes()) == (NEW, NEW)
                node.journal.roll_back(committed[0])
            assert node.is_as_before()
            node.journal.commit(node.begin())
        assert {path.name for path in directory.iterdir()} == {"config.toml", "lib"}
        assert not [path for path in node.journal.directory.iterdir() if path.name.startswith(".")]
        yield len(unfinished), len(committed)


@needs_root
@pytest.mark.parametrize(("end", "outcomes"), [("commit", {(0, 0), (1, 0), (0, 1)}), ("roll_back", {(0, 0), (1, 0)})])
def test_killed_at_each_step(tmp_path, end, outcomes):
    """After kill -9 at any system call of a change, the next run finds it and puts the node back, or it was proven."""
    with tmpfs(tmp_path):  # hundreds of steps with many fsyncs each
        assert set(kill_and_recover(tmp_path, end)) == outcomes


PATHS = st.text(st.characters(exclude_characters="\0"), min_size=1).map("/".__add__) | st.just("/bad\udcff")
DIGESTS = st.just("") | st.binary().map(sha256)
NUMBERS = st.integers(0, 2**32 - 1)


def snapshot_of(path, content, mode, uid, gid):
    if content is None:
        return Snapshot(path, None, "", None, None, None)
    return Snapshot(path, content, sha256(content), mode, uid, gid)


SNAPSHOTS = st.builds(snapshot_of, PATHS, st.none() | st.binary(), st.integers(0, 0o7777), NUMBERS, NUMBERS)
NOTES = st.dictionaries(
    st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5)
)


@given(st.lists(SNAPSHOTS, min_size=1, max_size=4, unique_by=lambda item: item.path), NOTES, st.data())
def test_entry_decodes_to_itself(snapshots, note, data):
    """Encoding then decoding is the identity for any paths, bytes and notes."""
    planned = {snapshot.path: data.draw(DIGESTS) for snapshot in snapshots}
    entry = new_entry("kind", snapshots, planned, note, sequence=7, begun_at="2026-11-30T12:00:00Z")

    assert decode(encode(entry), EntryName(7, "kind", "begun")) == entry


@given(st.binary(max_size=100), st.integers(0, 700))
def test_any_damage_is_noticed(insertion, position):
    """An entry that is not byte for byte as written is the same entry or is refused with a ValueError."""
    snapshot = Snapshot("/etc/containerd/config.toml", OLD, sha256(OLD), 0o644, 0, 0)
    entry = new_entry("kind", [snapshot], {snapshot.path: sha256(NEW)}, {}, sequence=1, begun_at="now")
    body = encode(entry)
    damaged = body[:position] + insertion + body[position + len(insertion) :]
    try:
        assert decode(damaged, EntryName(1, "kind", "begun")) == entry
    except ValueError as error:
        assert str(error)


def test_version_is_one():
    """A change of the format is a new version: entries live longer than the collection that wrote them."""
    assert _journal_entry.VERSION == 1
