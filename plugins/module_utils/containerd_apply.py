# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write a planned change of containerd's configuration, restart the daemon, prove CRI, or put everything back.

Each change has a journal entry: begun before the first write, applied when the bytes are on disk, committed when CRI
was proven. A run that was killed leaves it unfinished, and the next run proves or undoes it first.
"""

from __future__ import annotations

import time

from .containerd_changes import KIND, LOCK_TIMEOUT_S, running_daemon, unproven_entries
from .containerd_log import telling_lines
from .containerd_node import active_dependents, ask_cri, read_units, running_containers, start_ticks
from .cri import CriClient, CriError
from .files import (
    ContentChanged,
    decoded,
    missing_directories,
    read_snapshot,
    remove_directories,
    replace,
    sha256,
)
from .host import run_command
from .journal import BEGUN, Journal

POLL_S = 0.2


class ApplyError(Exception):
    """The change was not made, or was put back. C(result) holds what the module returns beside the message."""

    def __init__(self, message, **result):
        super().__init__(message)
        self.result = result


def apply(plan, journal=None):
    """Carry out a plan under the journal's lock.

    :param plan: writes ([{path, expected_sha256, content (base64 or None), mode (or left out)}]), note (what a restart
        needs: unit, socket, restart, health_timeout in seconds, config_path that must be loaded afterwards, conditions
        that CRI reported true before, dependents that must be active afterwards, repairs (why CRI does not serve
        before, empty when it does), pods_may_end). Without writes, note.restart is a restart that is still due.
    :returns: changed, restarted, cri_ready, backup (journal entry), recovered (what was done about a killed run).
    :raises ApplyError: nothing is changed, or the node is back where it was; the message says which.
    """
    journal = journal or Journal()
    result = {"changed": False, "restarted": False, "cri_ready": None, "backup": "", "recovered": ""}
    with journal.lock(LOCK_TIMEOUT_S):
        for entry in journal.unfinished(KIND):
            finish(journal, entry, result)
        if plan["writes"]:
            change(journal, plan["writes"], plan["note"], result)
        elif plan["note"]["restart"] and not result["restarted"]:
            catch_up(journal, plan["note"], result)
    return result


def change(journal, writes, note, result):
    """Write, restart, prove, commit; or put back."""
    snapshots = [read_snapshot(item["path"]) for item in writes]
    contents = [decoded(item["content"]) for item in writes]
    planned = {
        snapshot.path: "" if content is None else sha256(content) for snapshot, content in zip(snapshots, contents)
    }
    if all(snapshot.sha256 == planned[snapshot.path] for snapshot in snapshots):
        return  # another run made and proved the same change while this one waited for the lock
    for item, snapshot in zip(writes, snapshots):
        if snapshot.sha256 != item["expected_sha256"]:
            raise ApplyError(f"{snapshot.path} was changed by somebody else since it was read; run again")
    missing = sorted({path for snapshot in snapshots for path in missing_directories(snapshot.path)})
    entry = journal.begin(KIND, snapshots, planned, {**completed(note), "directories": missing})
    try:
        for item, snapshot, content in zip(writes, snapshots, contents):
            replace(snapshot, content, item.get("mode"))
    except (OSError, ContentChanged) as error:
        put_back(journal, entry)
        raise ApplyError(f"{error}; nothing was changed and containerd was not restarted") from error
    journal.applied(entry)
    prove(journal, entry, result)


def catch_up(journal, note, result):
    """Make up for a restart that an earlier change was written without; it can be put back as that change can."""
    snapshots, planned = unproven_change(journal, note["config_file"])
    entry = journal.begin(KIND, snapshots, planned, {**completed(note), "directories": []})
    journal.applied(entry)
    prove(journal, entry, result)


def completed(note):
    """Return a note with what is true of the node just before the change."""
    can_be_listed = note["restart"] and not note["repairs"]
    containers = running_containers(note["socket"]) if can_be_listed else {}
    return {**note, "containers": containers, "since": int(time.time()), "daemon": running_daemon()}


def unproven_change(journal, config_file):
    """Return (snapshots, planned) of what a restart that is due would prove.

    Without a change of this module it is the main file as it is: somebody else changed it, and nothing can be put back.
    """
    entries = unproven_entries(journal, config_file)
    before = {snapshot.path: snapshot for entry in entries for snapshot in entry.files}
    written = {path: digest for entry in reversed(entries) for path, digest in entry.planned.items()}
    current = [read_snapshot(path) for path in before or [config_file]]
    snapshots = [
        before[snapshot.path] if written.get(snapshot.path) == snapshot.sha256 else snapshot for snapshot in current
    ]
    return snapshots, {snapshot.path: snapshot.sha256 for snapshot in current}


def put_back(journal, entry):
    """Restore the files of an entry, and take away the directories that were made for them."""
    journal.roll_back(entry)
    remove_directories(entry.note["directories"])


def prove(journal, entry, result):
    """Restart the daemon for an applied entry and commit it, or roll it back and fail."""
    note = entry.note
    result["changed"] = True
    result["backup"] = str(journal.directory / entry.name)
    if not note["restart"]:
        commit(journal, entry, result)
        return
    reason = restart(note, note["config_path"]) or complain_forgotten(note["containers"], note["socket"])
    result["restarted"] = True
    if reason:
        roll_back(journal, entry, result, reason)
    commit(journal, entry, result)
    result["cri_ready"] = True
    lost = lost_containers(note["containers"], note["socket"])
    if lost and not note["pods_may_end"]:
        raise ApplyError(
            f"{note['unit']} was restarted and CRI serves the new configuration, but containers that ran before do "
            f"not run any more: {', '.join(lost)}; look at their pods before other nodes follow",
            **result,
        )


def commit(journal, entry, result):
    """Close the entry of a change that holds; directories that an undone change had made go with it."""
    journal.commit(entry)
    remove_directories(entry.note["remove_directories"])
    result["backup"] = str(journal.directory / entry.name)


def roll_back(journal, entry, result, reason):
    """Put the previous bytes back, restart, probe; always raises, saying how the node is now."""
    note = entry.note
    log = read_log(note["unit"], note["since"])
    put_back(journal, entry)
    left = "; ".join(f"{item['path']} was left: {item['reason']}" for item in entry.left)
    if not left and all(snapshot.sha256 == entry.planned[snapshot.path] for snapshot in entry.files):
        left = "the files were like this before the run, so nothing could be put back"
    run_command(["systemctl", "reset-failed", "--", note["unit"]])
    again = restart(note, None)
    result.update(changed=False, rolled_back=True, cri_ready=not again, backup=str(journal.directory / entry.name))
    state = f"CRI still does not serve ({again})" if again else "CRI serves again"
    files = left or "the previous configuration was put back"
    raise ApplyError(f"{reason}; {files}, {note['unit']} was restarted: {state}", log=log, **result)


def finish(journal, entry, result):
    """Prove or undo what a killed run left.

    Nothing written: the entry is closed. Everything written: the restart and the proof are made up for. In between:
    what was written is put back.
    """
    current = {snapshot.path: read_snapshot(snapshot.path).sha256 for snapshot in entry.files}
    before = {snapshot.path: snapshot.sha256 for snapshot in entry.files}
    name = entry.name
    if current == entry.planned:
        if entry.state == BEGUN:
            journal.applied(entry)
        prove(journal, entry, result)
        result["recovered"] = f"the change of the killed run {name} was completed and proven"
        return
    put_back(journal, entry)
    if current == before:
        result["recovered"] = f"the killed run {name} had changed nothing"
        return
    result["changed"] = True
    left = "; ".join(f"{item['path']} was left: {item['reason']}" for item in entry.left)
    result["recovered"] = f"the killed run {name} was undone" + (f"; {left}" if left else "")


def restart(note, config_path):
    """Restart the unit and wait until CRI serves.

    :param config_path: registry directory that the daemon must report; None accepts any.
    :returns: why it does not serve within the time, empty when it does.
    """
    unit, deadline = note["unit"], time.monotonic() + note["health_timeout"]
    old_pid = read_units([unit]).get(unit, {}).get("MainPID")
    rc, _out, err = run_command(["systemctl", "restart", "--no-block", "--", unit])
    if rc:
        return f"systemctl restart {unit} failed: {err.strip()}"
    reason = "the daemon was not started yet"
    while time.monotonic() < deadline:
        time.sleep(POLL_S)
        properties = read_units([unit]).get(unit, {})
        if properties.get("ActiveState") == "failed":
            return f"{unit} failed to start"
        if properties.get("MainPID") in ("0", old_pid) or properties.get("ActiveState") != "active":
            reason = f"{unit} is {properties.get('ActiveState', 'unknown')}"
            continue
        if stopped := sorted(set(note["dependents"]) - set(active_dependents(properties))):
            reason = f"{', '.join(stopped)} did not come back with {unit}"
            continue
        cri = ask_cri(note["socket"])
        if cri["serving"] and set(note["conditions"]) <= set(cri["conditions"]):
            loaded = cri["loaded_config_path"]
            if None not in (loaded, config_path) and loaded != config_path:
                return f"the daemon serves with config_path {loaded!r}, not {config_path!r}"
            return ""
        missing = ", ".join(sorted(set(note["conditions"]) - set(cri["conditions"])))
        reason = cri["error"] or f"CRI does not report {missing}, as it did before"
        if cri["code"] == "UNIMPLEMENTED":
            return f"{unit} runs, but its CRI plugin did not load: {reason}"
    return f"CRI did not serve within {note['health_timeout']} s: {reason}"


def complain_forgotten(before, socket):
    """Return which containers run on unknown to CRI, as with another C(root) or C(state); empty when it knows all."""
    running = {key for key, item in before.items() if start_ticks(item["pid"]) == item["started"]}
    try:
        with CriClient(socket) as client:
            forgotten = running - {item["id"] for item in client.containers()} if running else set()
    except CriError as error:
        return f"CRI served, but did not list its containers: {error}"
    names = ", ".join(sorted(before[key]["name"] for key in forgotten))
    return f"CRI does not know containers any more whose processes run on: {names}" if names else ""


def lost_containers(before, socket):
    """Return the names of containers whose process ended with the restart; one that ended with code 0 is not lost."""
    gone = {key: item for key, item in before.items() if start_ticks(item["pid"]) != item["started"]}
    lost = []
    for key, item in sorted(gone.items()):
        try:
            with CriClient(socket) as client:
                if client.container_status(key)["exit_code"] == 0:
                    continue
        except CriError:
            continue
        lost.append(item["name"])
    return lost


def read_log(unit, since):
    """Return the telling lines that a unit logged since a time (seconds since the epoch), a few."""
    _rc, out, _err = run_command(
        ["journalctl", "-u", unit, "--since", f"@{since}", "-n", "400", "-o", "cat", "--no-pager", "-q"]
    )
    return telling_lines(out)
