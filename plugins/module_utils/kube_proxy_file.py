# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube-proxy's flags in files of this node: read, written with a journal, put back where the new mode does not come.

k3s, RKE2 and MicroK8s run kube-proxy as a part of their service, which has to be restarted for it. What is begun and
not ended in the journal is a change, or, where it holds no file, a restart that is due after files were put back.
"""

from __future__ import annotations

import os
import re
import time

from . import kube_proxy_leftovers, kube_proxy_live
from .files import ContentChanged, decoded, encoded, read_snapshot, replace, sha256
from .host import flag_value, parse_units, read_text, run_command
from .journal import BEGUN, COMMITTED, Journal

KIND = "kube_proxy_file"
LOCK_TIMEOUT_S = 30
POLL_S = 0.5
# The service that runs here, by the file that it reads.
UNITS = {
    "/etc/rancher/k3s/config.yaml": ("k3s.service", "k3s-agent.service"),
    "/etc/rancher/rke2/config.yaml": ("rke2-server.service", "rke2-agent.service"),
    "/var/snap/microk8s/current/args/kube-proxy": ("snap.microk8s.daemon-kubelite.service",),
}
# What names another file to read. Source: k3s-io/k3s pkg/configfilearg/defaultparser.go; RKE2 has its own.
VARIABLES = {"/etc/rancher/k3s/config.yaml": "K3S_CONFIG_FILE", "/etc/rancher/rke2/config.yaml": "RKE2_CONFIG_FILE"}
PROPERTIES = "Id,ActiveState,ActiveEnterTimestampMonotonic,ExecStart,Environment,EnvironmentFiles"


class FileError(Exception):
    """The files were not changed, or were put back: what was found, and what to do."""


def read(path):
    """Return C({files, unit, command_line, other_file, unfinished}).

    :param path: one of UNITS.
    :returns: files: C([{path, content, sha256}]) in the order in which they are read, content in base64, the first one
        also where it is not there. command_line: flags of kube-proxy that the service's own command line sets.
        other_file: what the service reads instead, empty when it is these. unfinished: whether a run was killed.
    """
    snapshots = [read_snapshot(item) for item in (path, *drop_ins(path))]
    unit = active_unit(path)
    found = properties(unit) if unit else {}
    started = found.get("ExecStart", "").partition("argv[]=")[2].partition(" ; ")[0]
    return {
        "files": [
            {"path": item.path, "content": encoded(item.content or b""), "sha256": item.sha256} for item in snapshots
        ],
        "unit": unit,
        # Not from /proc: k3s writes over its command line there, which may hold credentials.
        "command_line": re.findall(r"--?kube-proxy-arg[= ]['\"]?([^\s'\"]+)", started),
        "other_file": other_file(path, started.split(), found),
        "unfinished": bool(Journal().unfinished(KIND)),
    }


def drop_ins(path):
    """The paths of drop-ins in the order in which k3s reads them. Source: dotDFiles of pkg/configfilearg/parser.go."""
    folder = f"{path}.d"
    if not path.endswith(".yaml") or not os.path.isdir(folder):
        return []
    names = sorted(name for name in os.listdir(folder) if name.lower().endswith((".yaml", ".yml")))
    return [item for item in (os.path.join(folder, name) for name in names) if not os.path.isdir(item)]


def other_file(path, words, found):
    """The file that a service is told to read by its environment or command line, empty when it is this path."""
    files = re.findall(r"^(\S+) \(ignore_errors=", found.get("EnvironmentFiles", ""), re.MULTILINE)
    texts = [found.get("Environment", ""), *(read_text(item) or "" for item in files)]
    named = re.findall(rf"(?<!\S){VARIABLES[path]}=['\"]?([^\s'\"]+)", "\n".join(texts)) if path in VARIABLES else []
    told = named[-1] if named else flag_value(words, "config", "c")
    return "" if told == path else told


def active_unit(path):
    """The service that reads the file and is active here, empty when none is."""
    return next((unit for unit in UNITS[path] if properties(unit).get("ActiveState") == "active"), "")


def properties(unit):
    """What systemd says of a unit."""
    text = run_command(("systemctl", "show", f"--property={PROPERTIES}", unit))[1]
    return next(iter(parse_units(text).values()), {})


def write(writes, unit, proof):
    """Write files, restart the service, and prove the mode; or put the files back.

    :param writes: C([{path, content, expected_sha256}]), content in base64. :param proof: C({mode, metrics_address,
        address, port, timeout_s, must_answer, before}); address and port are a Service's, before is C({mode,
        metrics_address}) of what runs now. :returns: C({removed, left}) of what the former mode has left.
    :raises FileError: nothing is changed, or the files are as they were; the message says which.
    """
    journal = Journal()
    with journal.lock(LOCK_TIMEOUT_S):
        _recover(journal)
        snapshots = [read_snapshot(item["path"]) for item in writes]
        for item, snapshot in zip(writes, snapshots):
            if snapshot.sha256 != item["expected_sha256"]:
                raise FileError(f"{snapshot.path} was changed by somebody else since it was read: run again")
        contents = [decoded(item["content"]) for item in writes]
        planned = {snapshot.path: sha256(content) for snapshot, content in zip(snapshots, contents)}
        entry = journal.begin(KIND, snapshots, planned, {"unit": unit, "proof": proof})
        try:
            for snapshot, content in zip(snapshots, contents):
                replace(snapshot, content, 0o600 if snapshot.mode is None else None)
        except (OSError, ContentChanged) as error:
            journal.roll_back(entry)
            raise FileError(f"{error}; nothing was changed, and {unit} was not restarted") from error
        return _prove(journal, entry)


def undo(timeout_s, check_mode):
    """Give back what was there before the first change.

    :returns: C({changed, removed, left}). :raises FileError: somebody else has changed a file since, and nothing is
        touched; or the former mode does not come.
    """
    journal = Journal()
    if check_mode:
        changed = bool(journal.unfinished(KIND) or _committed(journal))
        return {"changed": changed, "removed": [], "left": []}
    with journal.lock(LOCK_TIMEOUT_S):
        recovered = _recover(journal)
        entries = _committed(journal)
        if not entries:
            return {"changed": recovered, "removed": [], "left": []}
        _refuse_changed(entries)
        first = entries[-1].note["proof"]
        proof = {**first, **first["before"], "timeout_s": timeout_s}
        due = journal.begin(KIND, [], {}, {"unit": entries[0].note["unit"], "proof": proof, "undo": True})
        return {"changed": True, **_go_back(journal, due)}


def recover():
    """Prove what a run that was killed has written, or put it back; whether there was anything to do.

    :raises FileError: it was put back, or the former mode does not come.
    """
    journal = Journal()
    with journal.lock(LOCK_TIMEOUT_S):
        return _recover(journal)


def _recover(journal):
    entries = journal.unfinished(KIND)
    changes, due = ([entry for entry in entries if bool(entry.files) is has_files] for has_files in (True, False))
    for entry in changes:
        is_written = all(read_snapshot(path).sha256 == digest for path, digest in entry.planned.items())
        if due or (entry.state == BEGUN and not is_written):
            journal.roll_back(entry)  # it was being put back, or the service was not restarted for it yet
        elif is_written:
            _prove(journal, entry)
        else:
            _put_back(journal, entry)
    for entry in due:
        _go_back(journal, entry)
    return bool(entries)


def _prove(journal, entry):
    """Restart the service for what was written, and commit it once it is in force; or put it back and fail."""
    if entry.state == BEGUN:
        journal.applied(entry)
    proof = entry.note["proof"]
    reason = _restart_and_prove(entry.note["unit"], proof)
    if reason:
        try:
            _put_back(journal, entry)
        except FileError as error:
            raise FileError(f"{reason}; {error}") from error
        raise FileError(f"{reason}; the files were put back")
    removed, left = kube_proxy_leftovers.clean(proof["mode"], check_mode=False)
    journal.commit(entry)
    return {"removed": removed, "left": left}


def _put_back(journal, entry):
    """Give the node the files and the mode that it had.

    :raises FileError: somebody else has changed a file since, or the former mode does not come.
    """
    proof = entry.note["proof"]
    note = {**entry.note, "proof": {**proof, **proof["before"]}, "undo": False}
    # Before the files: a run that is killed behind them leaves a service that still has to be restarted.
    due = journal.begin(KIND, [], {}, note)
    left = journal.roll_back(entry).left
    _go_back(journal, due)
    if left:
        raise FileError("; ".join(f"{item['path']} was left: {item['reason']}" for item in left))


def _go_back(journal, due):
    """Make the restart that is due after files were put back, and remove what the other mode has left.

    It is made once: a service that does not come up then would not come up the next time.
    """
    if due.note["undo"]:
        for entry in _committed(journal):
            journal.roll_back(entry)
    proof = due.note["proof"]
    reason = _restart_and_prove(due.note["unit"], proof)
    removed, left = ([], []) if reason else kube_proxy_leftovers.clean(proof["mode"], check_mode=False)
    journal.roll_back(due)
    if reason:
        raise FileError(f"the files were put back, and {reason}")
    return {"removed": removed, "left": left}


def _committed(journal):
    return [entry for entry in journal.history(KIND) if entry.state == COMMITTED]


def _refuse_changed(entries):
    newest = {path: digest for entry in reversed(entries) for path, digest in entry.planned.items()}
    changed = sorted(path for path, digest in newest.items() if read_snapshot(path).sha256 != digest)
    if changed:
        raise FileError(
            f"{', '.join(changed)}: changed by somebody else since: nothing was touched; set what it has to be with "
            "state: present"
        )


def _restart(unit, timeout_s):
    """Restart a service; why it is not active again in time, else empty."""
    before = properties(unit).get("ActiveEnterTimestampMonotonic")
    rc, _out, error = run_command(("systemctl", "restart", "--no-block", unit))
    if rc:
        return f"{unit} could not be restarted: {error.strip()}"
    deadline = time.monotonic() + timeout_s
    while True:
        now = properties(unit)
        if now.get("ActiveState") == "active" and now.get("ActiveEnterTimestampMonotonic") != before:
            return ""
        if time.monotonic() > deadline:
            return f"{unit} was not active again within {timeout_s} s: look at journalctl -u {unit}"
        time.sleep(POLL_S)


def _restart_and_prove(unit, proof):
    """Restart a service and wait for a mode; why it is not in force, else empty."""
    reason = _restart(unit, proof["timeout_s"])
    if reason:
        return reason
    service, within = (proof["address"], proof["port"]), f"within {proof['timeout_s']} s"
    mode, in_kernel, answers = kube_proxy_live.wait_for_mode(
        proof["mode"], proof["metrics_address"], service, proof["timeout_s"]
    )
    if mode != proof["mode"]:
        return f"kube-proxy's live mode is {mode or 'not to be had'}, not {proof['mode']}, {within}"
    if not in_kernel:
        return f"kube-proxy says {mode}, and the kernel has no such rules"
    if proof["must_answer"] and not answers:
        return f"the Service {service[0]}, which answered before, does not answer any more {within}"
    return ""
