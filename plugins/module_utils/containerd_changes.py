# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the journal tells of the changes that were made to containerd's configuration. Reads only."""

from __future__ import annotations

from .containerd_node import find_daemon, start_ticks
from .files import Snapshot, encoded, read_snapshot
from .journal import COMMITTED, Journal

KIND = "containerd_config"
LOCK_TIMEOUT_S = 30


def running_daemon():
    """Return [pid, start time in ticks] of the running daemon, which tell its next start apart."""
    pid = find_daemon()[2]
    return [pid, start_ticks(pid) if pid else None]


def unproven_entries(journal, config_file):
    """Return the changes, newest first, that were written without the restart that they need and still wait for it."""
    found = []
    for entry in journal.walk(KIND):
        note = entry.note
        if entry.state != COMMITTED or note["config_file"] != config_file:
            continue
        if note["restart"] or note["daemon"] != running_daemon():
            break
        if note["restart_needed"]:
            found.append(entry)
    return found


def undo_changes(config_file, journal=None):
    """Return the changes that hold, newest first, of those that were made for this main file."""
    return [
        entry
        for entry in (journal or Journal()).history(KIND)
        if entry.state == COMMITTED and entry.note["config_file"] == config_file
    ]


def undo_records(config_file, journal=None):
    """Return what gives back the bytes that files had before this module's first change of them.

    :param config_file: only changes that were made for this main file count.
    :returns: C({files: [{path, current, content, matches}], directories}), contents in base64 or None; C(matches) is
        false when somebody changed the file since; directories are those that the changes made. None without a change.
    """
    changes = undo_changes(config_file, journal)
    if not changes:
        return None
    paths = sorted({path for entry in changes for path in entry.planned})
    directories = sorted({path for entry in changes for path in entry.note["directories"]})
    return {"files": [undo_record(path, changes) for path in paths], "directories": directories}


def undo_record(path, changes):
    """Follow one file back through the changes, newest first, as far as each one's result is the next one's start.

    Where the changes taken together left the file as it was, nothing of them is left in what it is now.
    """
    own = [entry for entry in changes if path in entry.planned]
    befores = [next(item for item in entry.files if item.path == path) for entry in own]
    steps = [(entry.planned[path], before) for entry, before in zip(own, befores)]
    current = read_snapshot(path)
    last = Snapshot(path, None, steps[0][0], None, None, None)
    is_given_back = follow(last, steps).sha256 == last.sha256
    start = current if is_given_back else follow(current, steps)
    return {
        "path": path,
        "current": encoded(current.content),
        "content": encoded(start.content),
        "matches": is_given_back or start.sha256 in {before.sha256 for before in befores},
    }


def follow(snapshot, steps):
    """Go back from a snapshot through C([(SHA-256 after, snapshot before)]) as far as they lead."""
    for after, before in steps:
        if after == snapshot.sha256:
            snapshot = before
    return snapshot
