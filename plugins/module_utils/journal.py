# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's journal: what each change replaced, so that a killed run is undone and any change can be reversed.

One file per entry, C(SEQUENCE-KIND-STATE.json) in a directory that only root reads. The body is written once, synced
before anything is changed, and never rewritten; a change of state is a rename, which is atomic and needs no space on
a full disk. Entries are ordered by sequence, not by time: clocks jump.

States: begun -> applied -> committed, and from each of them -> rolled_back.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import time
from pathlib import Path

from ._journal_entry import APPLIED, BEGUN, COMMITTED, ROLLED_BACK, UNFINISHED, decode, encode, new_entry, parse_name
from .files import ContentChanged, fsync_directory, read_snapshot, remove_leftovers, restore, write_atomic
from .places import complain_directory

DIRECTORY = "/var/lib/portcullis/journal"
_POLL_S = 0.1


# JournalError
#   JournalBusy     another process holds the lock
#   JournalCorrupt  an entry cannot be read
class JournalError(Exception):
    """The journal cannot be used; the text says what was found and what to do."""


class JournalBusy(JournalError):  # noqa: N818 - the base has the suffix
    """Another process holds the lock. C(pid) and C(since) (UTC text) are None when it has not written them yet."""

    def __init__(self, directory, pid, since):
        super().__init__(
            "another run is changing this node: the journal {} is locked by {}; wait for it to end".format(
                directory, f"process {pid} since {since}" if pid else "a process that just started"
            )
        )
        self.pid = pid
        self.since = since


class JournalCorrupt(JournalError):  # noqa: N818 - the base has the suffix
    """An entry is damaged or from a newer version. C(path) is the entry's file."""

    def __init__(self, path, found):
        super().__init__(
            f"journal entry {path} cannot be used: {found}; compare the files it names with what they should be, "
            "then move the entry out of the directory"
        )
        self.path = str(path)


class Journal:
    """The entries of one directory. Reading needs no lock and creates nothing; every other method needs the lock."""

    def __init__(self, directory=DIRECTORY):
        self.directory = Path(directory)
        self._locked = False

    @contextlib.contextmanager
    def lock(self, timeout_s):
        """Hold the journal alone for the time of the context; the lock ends with the process, however it ends.

        :param timeout_s: seconds to wait for another holder; 0 tries once.
        :raises JournalBusy: another process still holds it.
        :raises JournalError: the directory cannot be made or is not safe.
        """
        if self._locked:
            raise JournalError(f"this process already holds the lock of {self.directory}; take it once")
        with self._explained("open"):
            _prepare_directory(self.directory)
            fd = os.open(str(self.directory / "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            self._acquire(fd, time.monotonic() + timeout_s)
            self._locked = True
            _note_holder(fd, {"pid": os.getpid(), "since": _now()})
            yield self
        finally:
            if self._locked:
                self._locked = False
                _note_holder(fd, None)
                # Not by close alone: a program that is just being started still has the descriptor for a moment.
                fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def check(self):
        """Find out, without writing, what would keep the lock from being taken.

        :raises JournalError: the directory is not safe, or cannot be made.
        """
        if os.path.lexists(self.directory):
            _require_safe(self.directory)
        if reason := complain_directory(str(self.directory), f"the journal {self.directory}"):
            raise JournalError(reason)

    def wait(self, timeout_s):
        """Wait until nobody holds the lock, writing nothing; without a journal there is nobody to wait for.

        :param timeout_s: seconds to wait.
        :raises JournalBusy: another process still holds it.
        """
        try:
            fd = os.open(str(self.directory / "lock"), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return
        try:
            self._acquire(fd, time.monotonic() + timeout_s, fcntl.LOCK_SH)
        finally:
            os.close(fd)

    def begin(self, kind, files, planned, note):
        """Record what is about to be replaced; when this returns, the record is durable and the change may start.

        :param kind: name of the module that changes, lower case letters, digits and underscores.
        :param files: Snapshots of every file that will change, as read by read_snapshot; empty where none does.
        :param planned: SHA-256 after the change by path of those snapshots; "" for a file that will be removed.
        :param note: anything in JSON that the next run needs to finish or explain the change.
        :returns: the Entry, state begun.
        :raises ValueError: arguments that do not belong together.
        :raises JournalError: the record cannot be written, or an unfinished entry holds one of the files.
        """
        self._require_lock()
        sequence = max([name.sequence for name in self._names()], default=0) + 1
        entry = new_entry(kind, files, planned, note, sequence=sequence, begun_at=_now())
        self._require_finished(set(planned))
        with self._explained("write"):
            remove_leftovers(self.directory)
            write_atomic(self.directory / entry.name, encode(entry), mode=0o600, expected_sha256="")
        return entry

    def applied(self, entry):
        """The new content is on disk, not yet proven."""
        return self._move(entry, (BEGUN,), APPLIED)

    def commit(self, entry):
        """The change is proven good; its bytes stay, to reverse it later."""
        with self._explained("write"):
            for snapshot in entry.files:
                _remove_leftovers_of(snapshot)
        return self._move(entry, UNFINISHED, COMMITTED)

    def roll_back(self, entry):
        """Restore every file that still is as planned or as before; leave what somebody else changed since.

        A file that cannot be restored does not keep the others from it; the entry then keeps its state, and rolling
        back again is safe.

        :returns: the entry, state rolled_back, with what was left in C(left).
        :raises JournalError: a file could not be restored, naming each.
        """
        self._require_state(entry, (*UNFINISHED, COMMITTED), ROLLED_BACK)
        left, failed = [], []
        for snapshot in reversed(entry.files):
            try:
                reason = _restore_unless_changed(snapshot, entry.planned[snapshot.path])
            except OSError as error:
                failed.append(str(error))
                continue
            if reason:
                left.append({"path": snapshot.path, "reason": reason})
        if failed:
            raise JournalError(
                "entry {} is not rolled back: {}; remove the cause and roll back again".format(
                    self.directory / entry.name, "; ".join(failed)
                )
            )
        entry.left = left
        return self._move(entry, (*UNFINISHED, COMMITTED), ROLLED_BACK)

    def unfinished(self, kind=None):
        """Return entries that are begun or applied, newest first: a run was killed, or is at work now.

        :raises JournalCorrupt: one of them cannot be read.
        """
        return [self._read(item) for item in self._names(kind) if item.state in UNFINISHED]

    def history(self, kind=None, path=None):
        """Return all entries, newest first, of one kind and for one (real) path when given.

        :raises JournalCorrupt: one of them cannot be read.
        """
        return [entry for entry in self.walk(kind) if path is None or str(path) in entry.planned]

    def walk(self, kind):
        """Yield the entries of one kind (None: all), newest first, each read when it is asked for.

        :raises JournalCorrupt: one that was asked for cannot be read.
        """
        for item in self._names(kind):
            yield self._read(item)

    def _names(self, kind=None):
        """Return the EntryNames of one kind or all, newest first."""
        paths = []
        with self._explained("read"), contextlib.suppress(FileNotFoundError):
            paths = sorted(self.directory.iterdir(), reverse=True)
        names = []
        for path in paths:
            if path.suffix != ".json" or path.name.startswith("."):
                continue  # the lock and temporary files
            try:
                names.append(parse_name(path.name))
            except ValueError as error:
                raise JournalCorrupt(path, error) from error
            if len(names) > 1 and names[-2].sequence == names[-1].sequence:
                raise JournalCorrupt(path, f"entry {names[-2]} has the same sequence")
        return [name for name in names if kind is None or name.kind == kind]

    def _read(self, name):
        path = self.directory / str(name)
        with self._explained("read"):
            snapshot = read_snapshot(path)
        if snapshot.content is None:
            raise JournalError(f"journal entry {path} vanished while it was read; another run is at work")
        try:
            return decode(snapshot.content, name)
        except ValueError as error:
            raise JournalCorrupt(path, error) from error

    def _acquire(self, fd, deadline, kind=fcntl.LOCK_EX):
        while True:
            try:
                fcntl.flock(fd, kind | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    holder = _read_holder(fd)
                    raise JournalBusy(self.directory, holder.get("pid"), holder.get("since")) from None
            time.sleep(_POLL_S)

    def _move(self, entry, expected, state):
        """Give the entry its next state: one rename, durable on return."""
        self._require_state(entry, expected, state)
        source = self.directory / entry.name
        previous, entry.state = entry.state, state
        try:
            with self._explained("write"):
                source.rename(self.directory / entry.name)
                fsync_directory(self.directory)
        except JournalError:
            entry.state = previous
            raise
        return entry

    def _require_state(self, entry, expected, state):
        self._require_lock()
        if entry.state not in expected:
            raise JournalError(
                "entry {} cannot become {}: expected state {}".format(entry.name, state, " or ".join(expected))
            )

    def _require_lock(self):
        if not self._locked:
            raise JournalError(f"the journal {self.directory} is changed only under its lock; use lock()")

    def _require_finished(self, paths):
        for entry in self.unfinished():
            common = paths.intersection(entry.planned)
            if common:
                raise JournalError(
                    "{} belongs to the unfinished journal entry {}; commit or roll back that entry first".format(
                        ", ".join(sorted(common)), self.directory / entry.name
                    )
                )

    @contextlib.contextmanager
    def _explained(self, verb):
        try:
            yield
        except OSError as error:
            raise JournalError(
                f"cannot {verb} the journal in {self.directory}: {error}; "
                "it must be writable for root and have free space"
            ) from error


def _prepare_directory(directory):
    """Make the directory durable, root-only, and refuse one that another user could have prepared."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700 if path == directory else 0o755, exist_ok=True)
        fsync_directory(path.parent)
    _require_safe(directory)
    if stat.S_IMODE(directory.lstat().st_mode) != 0o700:
        directory.chmod(0o700)


def _require_safe(directory):
    status = directory.lstat()
    if status.st_uid == 0 != os.geteuid():
        raise JournalError(f"the journal {directory} is root's, and this is user {os.geteuid()}: set become: true")
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise JournalError(
            f"the journal {directory} must be a directory of user {os.geteuid()}, "
            f"found {stat.filemode(status.st_mode)} of user {status.st_uid}; remove or rename it"
        )


def _note_holder(fd, holder):
    """Write who holds the lock, for the message of whoever waits; None when nobody does.

    A full disk must not keep a run from rolling back, so that the lock is held without the note then.
    """
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        if holder:
            os.pwrite(fd, json.dumps(holder).encode("ascii"), 0)


def _read_holder(fd):
    try:
        holder = json.loads(os.pread(fd, 4096, 0).decode("ascii"))
    except ValueError:
        return {}
    return holder if isinstance(holder, dict) else {}


def _now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _remove_leftovers_of(snapshot):
    path = Path(snapshot.path)
    remove_leftovers(path.parent, path.name)


def _restore_unless_changed(snapshot, planned_sha256):
    """Restore a file that is as planned or as before; return the reason when it is neither, else ""."""
    _remove_leftovers_of(snapshot)  # first: on a full disk they hold the space that restoring needs
    current = read_snapshot(snapshot.path)
    if current.sha256 not in (snapshot.sha256, planned_sha256):
        return "expected SHA-256 {} or {}, found {}: somebody else changed it since".format(
            snapshot.sha256 or "of no file", planned_sha256 or "of no file", current.sha256 or "no file"
        )
    try:
        restore(snapshot)
    except ContentChanged as error:
        return str(error)
    return ""
