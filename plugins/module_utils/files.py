# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configuration files as a whole: read with owner and mode, replaced in one step, put back byte for byte.

A reader sees the old file or the new one, never a part: the bytes go to a temporary file in the same directory, are
synced, and take the name with rename(2); the directory is synced after. Symbolic links are followed, so that a
linked configuration stays a link.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import os
import stat
import tempfile
from pathlib import Path
from typing import NamedTuple

# A configuration file is kilobytes; what is larger than this is not one, and would fill memory and journal.
MAX_BYTES = 32 * 1024 * 1024

# The leading dot and the ending keep a temporary file out of every glob that daemons read (*.toml, *.conf, kubelet's
# manifests); the mark lets `remove_leftovers` tell what a killed writer left.
TEMPORARY_MARK = ".portcullis-"

# Signatures of the old content: the kernel makes them for the new file, a copied one would make it unreadable.
_XATTRS_OF_CONTENT = ("security.ima", "security.evm")
_ACL = "system.posix_acl_access"


class ContentChanged(Exception):  # noqa: N818 - an event, not a fault
    """The file is not the one that was read: somebody else wrote, created or removed it meanwhile."""


class Snapshot(NamedTuple):
    """A file at one moment. An absent file has content None, sha256 "" and None for mode, uid and gid."""

    path: str
    content: bytes | None
    sha256: str
    mode: int | None
    uid: int | None
    gid: int | None


def sha256(content):
    """Return the SHA-256 of bytes as hexadecimal text."""
    return hashlib.sha256(content).hexdigest()


def read_snapshot(path):
    """Return the Snapshot of a file; its path is the real one, after symbolic links.

    :raises OSError: unreadable, not a regular file, or over MAX_BYTES; C(filename) is set.
    """
    real = os.path.realpath(str(path))
    try:
        # O_NONBLOCK: a FIFO in the place of a file must not hang the caller. O_NOFOLLOW: what is still a link after
        # realpath is a loop.
        fd = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        return Snapshot(real, None, "", None, None, None)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            kind = stat.filemode(status.st_mode)
            raise OSError(errno.EINVAL, f"expected a regular file, found {kind}: move it away", real)
        with os.fdopen(fd, "rb", closefd=False) as file:
            content = file.read(MAX_BYTES + 1)
    finally:
        os.close(fd)
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"expected at most {MAX_BYTES} bytes, found more", real)
    return Snapshot(real, content, sha256(content), stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)


def write_atomic(path, content, *, mode=None, uid=None, gid=None, expected_sha256=None):
    """Replace or create a file in one step; on any failure the old file stays and the temporary one is removed.

    :param content: all bytes of the new file.
    :param mode: None keeps the mode of an existing file; a new one gets 0644.
    :param uid: None keeps the owner of an existing file; a new one belongs to the caller. The same for C(gid).
    :param expected_sha256: what the caller read; "" means that the file must not exist; None accepts anything.
    :raises ContentChanged: the file differs from C(expected_sha256).
    :raises OSError: disk full, read-only, no such directory, not a regular file; C(filename) is the file.
    """
    before = read_snapshot(path)
    _require_unchanged(before, expected_sha256)
    real = Path(before.path)
    try:
        fd, temporary = tempfile.mkstemp(prefix=_temporary_prefix(real.name), dir=str(real.parent))
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(content)
                file.flush()
                _apply_metadata(fd, before, mode, uid, gid)
                os.fsync(fd)
            _require_unchanged(read_snapshot(real), expected_sha256)
            os.replace(temporary, real)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                Path(temporary).unlink()
            raise
        fsync_directory(real.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(real)) from error


def restore(snapshot):
    """Put bytes, mode and owner of a snapshot back, or remove the file when it was absent; a no-op when it is so.

    :raises ContentChanged: somebody else wrote the file at the same time.
    :raises OSError: as write_atomic.
    """
    current = read_snapshot(snapshot.path)
    if current[1:] == snapshot[1:]:
        return
    if snapshot.content is None:
        real = Path(current.path)
        real.unlink()
        fsync_directory(real.parent)
        return
    write_atomic(
        snapshot.path,
        snapshot.content,
        mode=snapshot.mode,
        uid=snapshot.uid,
        gid=snapshot.gid,
        expected_sha256=current.sha256,
    )


def replace(snapshot, content, mode=None):
    """Replace, create or remove one file, if it still is what the snapshot says; C(mode) is as in write_atomic."""
    if content is None:
        if read_snapshot(snapshot.path).sha256 != snapshot.sha256:
            raise ContentChanged(f"{snapshot.path} changed since it was read; run again")
        restore(Snapshot(snapshot.path, None, "", None, None, None))
        return
    os.makedirs(os.path.dirname(snapshot.path), mode=0o755, exist_ok=True)
    write_atomic(snapshot.path, content, mode=mode, expected_sha256=snapshot.sha256)


def missing_directories(path):
    """Return the directories above a path that do not exist yet."""
    missing = []
    parent = os.path.dirname(path)
    while not os.path.isdir(parent):
        missing.append(parent)
        parent = os.path.dirname(parent)
    return missing


def remove_directories(paths):
    """Remove directories that a change had made, the deepest first; what holds anything stays."""
    for path in sorted(paths, reverse=True):
        with contextlib.suppress(OSError):
            os.rmdir(path)


def remove_leftovers(directory, name=""):
    """Remove the temporary files that killed writers of C(name) left in a directory; return their paths.

    The caller makes sure that no writer of that file is at work, by holding the journal's lock. An empty name means
    every file of the directory.
    """
    prefix = _temporary_prefix(name) if name else "."
    removed = []
    with contextlib.suppress(FileNotFoundError):
        for item in sorted(Path(directory).iterdir()):
            if item.name.startswith(prefix) and TEMPORARY_MARK in item.name:
                item.unlink()
                removed.append(str(item))
    return removed


def fsync_directory(directory):
    """Make the names in a directory durable: without it a rename can be lost with the power."""
    fd = os.open(str(directory), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _temporary_prefix(name):
    return f".{name}{TEMPORARY_MARK}"


def _require_unchanged(current, expected_sha256):
    if expected_sha256 is None or current.sha256 == expected_sha256:
        return
    raise ContentChanged(
        f"{current.path} changed since it was read: expected {_described(expected_sha256)}, "
        f"found {_described(current.sha256)}; read it again and repeat"
    )


def _described(digest):
    return "SHA-256 " + digest if digest else "no file"


def _apply_metadata(fd, before, mode, uid, gid):
    """Give the temporary file its owner, extended attributes and mode.

    In this order: chown drops capabilities and set-id bits, an ACL rewrites the group bits, chmod has the last word.
    """
    exists = before.content is not None
    os.fchown(
        fd,
        uid if uid is not None else before.uid if exists else os.geteuid(),
        gid if gid is not None else before.gid if exists else os.getegid(),
    )
    if exists:
        _copy_xattrs(before.path, fd)
    os.fchmod(fd, mode if mode is not None else before.mode if exists else 0o644)


def _copy_xattrs(source, fd):
    wanted, present = _xattrs(source), _xattrs(fd)
    for name in wanted:
        if present.get(name) != wanted[name]:
            os.setxattr(fd, name, wanted[name])
    if _ACL in present and _ACL not in wanted:
        os.removexattr(fd, _ACL)  # came from the directory's default ACL; the old file had none


def _xattrs(target):
    try:
        names = os.listxattr(target)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return {}
        raise
    return {name: os.getxattr(target, name) for name in names if name not in _XATTRS_OF_CONTENT}


def encoded(content):
    """Return a file's bytes as base64 text, as which they travel in JSON; None, for no file, stays None."""
    return None if content is None else base64.b64encode(content).decode("ascii")


def decoded(text):
    """Return the bytes of base64 text, None for None."""
    return None if text is None else base64.b64decode(text)
