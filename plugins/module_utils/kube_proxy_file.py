# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""kube-proxy's flags in files of this node: read, written with a journal, put back where the new mode does not come.

k3s, RKE2 and MicroK8s run kube-proxy as a part of their service, which has to be restarted for it.
"""

from __future__ import annotations

import glob
import re
import time

from . import kube_proxy_leftovers, kube_proxy_live
from .files import ContentChanged, decoded, encoded, read_snapshot, replace, sha256
from .host import read_text, run_command
from .journal import COMMITTED, Journal

KIND = "kube_proxy_file"
LOCK_TIMEOUT_S = 30
POLL_S = 0.5
# The service that runs here, by the file that it reads.
UNITS = {
    "/etc/rancher/k3s/config.yaml": ("k3s.service", "k3s-agent.service"),
    "/etc/rancher/rke2/config.yaml": ("rke2-server.service", "rke2-agent.service"),
    "/var/snap/microk8s/current/args/kube-proxy": ("snap.microk8s.daemon-kubelite.service",),
}


class FileError(Exception):
    """The files were not changed, or were put back: what was found, and what to do."""


def read(path):
    """Return C({files, unit, command_line}).

    :param path: one of UNITS.
    :returns: files: C([{path, content, sha256}]) in the order in which they are read, content in base64, the first one
        also where it is not there. command_line: flags of kube-proxy that the service's own command line sets.
    """
    paths = [path, *sorted(glob.glob(f"{path}.d/*.yaml") + glob.glob(f"{path}.d/*.yml"))]
    snapshots = [read_snapshot(item) for item in (paths if path.endswith(".yaml") else paths[:1])]
    unit = active_unit(path)
    return {
        "files": [
            {"path": item.path, "content": encoded(item.content or b""), "sha256": item.sha256} for item in snapshots
        ],
        "unit": unit,
        "command_line": command_line_flags(unit) if unit else [],
    }


def active_unit(path):
    """The service that reads the file and is active here, empty when none is."""
    return next((unit for unit in UNITS[path] if properties(unit).get("ActiveState") == "active"), "")


def properties(unit):
    """What systemd says of a unit."""
    text = run_command(("systemctl", "show", "--property=ActiveState,MainPID,ActiveEnterTimestampMonotonic", unit))[1]
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def command_line_flags(unit):
    """The values of C(--kube-proxy-arg) on the command line of a service."""
    words = (read_text(f"/proc/{properties(unit).get('MainPID', '0')}/cmdline") or "").split("\0")
    text = " ".join(words)
    return re.findall(r"--kube-proxy-arg[= ](\S+)", text)


def write(writes, unit, proof):
    """Write files, restart the service, and prove the mode; or put the files back.

    :param writes: C([{path, content, expected_sha256}]), content in base64. :param proof: C({mode, metrics_address,
        address, port, timeout_s}). :returns: C({removed, left}) of what the former mode has left.
    :raises FileError: nothing is changed, or the files are as they were; the message says which.
    """
    journal = Journal()
    with journal.lock(LOCK_TIMEOUT_S):
        recover(journal)
        snapshots = [read_snapshot(item["path"]) for item in writes]
        for item, snapshot in zip(writes, snapshots):
            if snapshot.sha256 != item["expected_sha256"]:
                raise FileError(f"{snapshot.path} was changed by somebody else since it was read: run again")
        contents = [decoded(item["content"]) for item in writes]
        planned = {snapshot.path: sha256(content) for snapshot, content in zip(snapshots, contents)}
        entry = journal.begin(KIND, snapshots, planned, {"unit": unit})
        try:
            for snapshot, content in zip(snapshots, contents):
                replace(snapshot, content, 0o600 if snapshot.mode is None else None)
        except (OSError, ContentChanged) as error:
            journal.roll_back(entry)
            raise FileError(f"{error}; nothing was changed, and {unit} was not restarted") from error
        journal.applied(entry)
        reason = restart_and_prove(unit, proof)
        if reason:
            journal.roll_back(entry)
            former = {**proof, "mode": proof["mode_before"]}
            again = restart_and_prove(unit, former) if proof["mode_before"] else restart(unit, proof["timeout_s"])
            raise FileError(f"{reason}; the files were put back{f', and {again}' if again else ''}")
        journal.commit(entry)
    removed, left = kube_proxy_leftovers.clean(proof["mode"], check_mode=False)
    return {"removed": removed, "left": left}


def undo(unit, timeout_s, check_mode):
    """Give back what was there before the first change; whether there was anything to give back.

    :raises FileError: somebody else has changed a file since.
    """
    journal = Journal()
    with journal.lock(LOCK_TIMEOUT_S):
        recover(journal)
        entries = [entry for entry in journal.history(KIND) if entry.state == COMMITTED]
        if not entries or check_mode:
            return bool(entries)
        for entry in entries:
            left = journal.roll_back(entry).left
            if left:
                told = "; ".join(f"{item['path']}: {item['reason']}" for item in left)
                raise FileError(f"{told}: set what it has to be with state: present")
        reason = restart(unit, timeout_s)
        if reason:
            raise FileError(f"the files were put back, and {reason}")
    return True


def recover(journal):
    """Put back what a run that was killed has left unproven."""
    for entry in journal.unfinished(KIND):
        journal.roll_back(entry)
        restart(entry.note["unit"], LOCK_TIMEOUT_S)


def restart(unit, timeout_s):
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


def restart_and_prove(unit, proof):
    """Restart a service and wait for a mode; why it is not in force, else empty."""
    reason = restart(unit, proof["timeout_s"])
    if reason:
        return reason
    service = proof["address"], proof["port"]
    mode, in_kernel, _answers = kube_proxy_live.wait_for_mode(
        proof["mode"], proof["metrics_address"], service, proof["timeout_s"]
    )
    if mode != proof["mode"]:
        return (
            f"kube-proxy's live mode is {mode or 'not to be had'}, not {proof['mode']}, within {proof['timeout_s']} s"
        )
    return "" if in_kernel else f"kube-proxy says {mode}, and the kernel has no such rules"
