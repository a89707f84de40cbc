# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One entry of the node's journal and its form on disk: name C(SEQUENCE-KIND-STATE.json), body JSON in version 1.

The body holds everything but sequence, kind and state, which only the name says, and a checksum of itself.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import NamedTuple

from .files import Snapshot, sha256

VERSION = 1

BEGUN = "begun"
APPLIED = "applied"
COMMITTED = "committed"
ROLLED_BACK = "rolled_back"
STATES = (BEGUN, APPLIED, COMMITTED, ROLLED_BACK)
UNFINISHED = (BEGUN, APPLIED)

_KIND = re.compile(r"[a-z0-9_]+")
_NAME = re.compile(r"(?P<sequence>[0-9]{10})-(?P<kind>[a-z0-9_]+)-(?P<state>[a-z_]+)\.json")
_DIGEST = re.compile(r"[0-9a-f]{64}|")


class EntryName(NamedTuple):
    """What the name of an entry's file says."""

    sequence: int
    kind: str
    state: str

    def __str__(self):
        return "{:010d}-{}-{}.json".format(*self)


@dataclass
class Entry:
    """One change. The journal keeps C(state) true; nothing else of an entry changes.

    files: Snapshot of each file before. planned: SHA-256 of each path after, "" for a file that will be removed.
    begun_at: UTC, for people only. left: [{path, reason}] of files that a roll back did not touch; only known to its
    caller.
    """

    sequence: int
    kind: str
    state: str
    begun_at: str
    files: list
    planned: dict
    note: dict
    left: list = field(default_factory=list)

    @property
    def name(self):
        """The file name of the entry in its present state."""
        return str(EntryName(self.sequence, self.kind, self.state))


def new_entry(kind, files, planned, note, *, sequence, begun_at):
    """Return an Entry in state begun.

    :raises ValueError: arguments that do not belong together.
    """
    paths = [snapshot.path for snapshot in files]
    if not _KIND.fullmatch(kind):
        raise ValueError(f"kind: expected lower case letters, digits and underscores, got {kind!r}")
    if len(set(paths)) != len(paths):
        raise ValueError(f"files: expected each path once, got {paths!r}")
    if set(planned) != set(paths):
        raise ValueError(
            f"planned: expected the real paths of the snapshots, {sorted(paths)!r}, got {sorted(planned)!r}"
        )
    for path, digest in planned.items():
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f'planned: expected a SHA-256 or "" for {path}, got {digest!r}')
    return Entry(sequence, kind, BEGUN, begun_at, list(files), dict(planned), dict(note))


def parse_name(name):
    """Return the EntryName of a file name.

    :raises ValueError: not the name of an entry.
    """
    match = _NAME.fullmatch(name)
    if not match or match.group("state") not in STATES:
        raise ValueError("expected the name SEQUENCE-KIND-STATE.json with a state of {}".format(", ".join(STATES)))
    return EntryName(int(match.group("sequence")), match.group("kind"), match.group("state"))


def encode(entry):
    """Return the body of an entry as bytes."""
    body = {
        "version": VERSION,
        "begun_at": entry.begun_at,
        "files": [_encode_file(snapshot, entry.planned[snapshot.path]) for snapshot in entry.files],
        "note": entry.note,
    }
    return json.dumps(dict(body, checksum=_checksum(body)), indent=1, sort_keys=True).encode("ascii") + b"\n"


def decode(body, name):
    """Return the Entry of a body; C(name) is its EntryName.

    :raises ValueError: damaged, or from a newer version; the text says which.
    """
    try:
        data = json.loads(body.decode("ascii"))
        version = data["version"]
        if version == VERSION:
            if data.pop("checksum") != _checksum(data):
                raise ValueError("the checksum differs from the content")
            files = [_decode_file(item) for item in data["files"]]
            planned = {item["path"]: item["planned_sha256"] for item in data["files"]}
            return Entry(name.sequence, name.kind, name.state, data["begun_at"], files, planned, data["note"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is damaged ({error})") from error
    raise ValueError(f"expected version {VERSION}, found {version!r}: written by a newer collection")


def _checksum(body):
    return sha256(json.dumps(body, sort_keys=True).encode("ascii"))


def _encode_file(snapshot, planned_sha256):
    content = snapshot.content
    return {
        "path": snapshot.path,
        "content_base64": None if content is None else base64.b64encode(content).decode("ascii"),
        "sha256": snapshot.sha256,
        "mode": snapshot.mode,
        "uid": snapshot.uid,
        "gid": snapshot.gid,
        "planned_sha256": planned_sha256,
    }


def _decode_file(item):
    encoded = item["content_base64"]
    content = None if encoded is None else base64.b64decode(encoded, validate=True)
    if item["sha256"] != ("" if content is None else sha256(content)):
        raise ValueError("the content kept for {} differs from its SHA-256".format(item["path"]))
    return Snapshot(item["path"], content, item["sha256"], item["mode"], item["uid"], item["gid"])
