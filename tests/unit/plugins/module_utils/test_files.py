# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import errno
import os
import stat
import struct
import tempfile
from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import files
from ansible_collections.portcullis.fleet.plugins.module_utils.files import (
    ContentChanged,
    Snapshot,
    fsync_directory,
    read_snapshot,
    remove_leftovers,
    restore,
    sha256,
    write_atomic,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.killing import killed_at_each_step
from tests.unit.mounting import needs_root, tmpfs

# An ACL that lets user 1 read: version 2, then entries of (tag, permissions, id).
ACL = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in [(0x01, 6, 2**32 - 1), (0x02, 4, 1), (0x04, 4, 2**32 - 1), (0x10, 4, 2**32 - 1), (0x20, 0, 2**32 - 1)]
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "config.toml"


def state(path):
    status = path.stat()
    return path.read_bytes(), stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid


def test_new_file(path):
    """A new file belongs to the caller, has mode 0644 whatever the umask, and nothing lies beside it."""
    previous = os.umask(0o077)
    try:
        write_atomic(path, b"new")
    finally:
        os.umask(previous)

    assert state(path) == (b"new", 0o644, os.geteuid(), os.getegid())
    assert os.listdir(path.parent) == [path.name]


def test_explicit_mode(path):
    write_atomic(path, b"secret", mode=0o600)

    assert state(path)[1] == 0o600


@needs_root
def test_keeps_mode_and_owner(path):
    """What the caller does not name stays, set-id bits included."""
    path.write_bytes(b"old")
    os.chown(path, 12, 34)
    path.chmod(0o4640)

    write_atomic(path, b"new")

    assert state(path) == (b"new", 0o4640, 12, 34)


@needs_root
def test_explicit_owner_wins(path):
    path.write_bytes(b"old")

    write_atomic(path, b"new", mode=0o600, uid=1, gid=2)

    assert state(path) == (b"new", 0o600, 1, 2)


def set_xattr_or_skip(path, name, value):
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"{path.parent} takes no attribute {name}: {error.strerror}")


def test_keeps_extended_attributes(path):
    path.write_bytes(b"old")
    set_xattr_or_skip(path, "user.note", b"kept\0")

    write_atomic(path, b"new")

    assert os.getxattr(path, "user.note") == b"kept\0"


@needs_root
def test_keeps_acl(path):
    """The ACL and the mode, which show each other's bits, are both as before."""
    path.write_bytes(b"old")
    set_xattr_or_skip(path, "system.posix_acl_access", ACL)
    before = state(path)[1:]

    write_atomic(path, b"new")

    assert os.getxattr(path, "system.posix_acl_access") == ACL
    assert state(path)[1:] == before


@needs_root
def test_default_acl_of_the_directory_does_not_open_the_file(path):
    """The old file had no ACL: the directory's default, which a new file inherits, is not added."""
    path.write_bytes(b"old")
    path.chmod(0o600)
    set_xattr_or_skip(path.parent, "system.posix_acl_default", ACL)

    write_atomic(path, b"new")

    assert "system.posix_acl_access" not in os.listxattr(path)
    assert state(path)[1] == 0o600


@needs_root
def test_leaves_out_signatures_of_the_old_content(path):
    """security.ima is a hash of the content: on the new one it would make the file unreadable."""
    path.write_bytes(b"old")
    set_xattr_or_skip(path, "security.ima", b"\x01" + b"0" * 20)

    write_atomic(path, b"new")

    assert "security.ima" not in os.listxattr(path)


def test_symbolic_link_stays_one(tmp_path):
    """The target is replaced, in its directory; links and their chain stay."""
    target = tmp_path / "real" / "config.toml"
    target.parent.mkdir()
    target.write_bytes(b"old")
    (tmp_path / "second").symlink_to("real/config.toml")
    link = tmp_path / "first"
    link.symlink_to("second")

    snapshot = read_snapshot(link)
    write_atomic(link, b"new", expected_sha256=snapshot.sha256)

    assert snapshot.path == str(target)
    assert (link.readlink(), link.read_bytes()) == (Path("second"), b"new")
    restore(snapshot)
    assert (link.readlink(), target.read_bytes()) == (Path("second"), b"old")


def test_dangling_link_is_followed(tmp_path):
    """A link to a file that does not exist yet creates that file."""
    link = tmp_path / "link"
    link.symlink_to("target")

    assert read_snapshot(link) == Snapshot(str(tmp_path / "target"), None, "", None, None, None)
    write_atomic(link, b"new", expected_sha256="")
    assert (tmp_path / "target").read_bytes() == b"new"


def test_link_loop_is_an_error(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    with pytest.raises(OSError, match="symbolic links") as caught:
        read_snapshot(tmp_path / "a")
    assert caught.value.errno == errno.ELOOP


@pytest.mark.parametrize("kind", ["directory", "fifo", "device"])
def test_refuses_what_is_not_a_file(tmp_path, kind):
    """Reading a FIFO or a device would hang or never end."""
    path = tmp_path / "thing"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path = Path("/dev/zero")

    for action in (lambda: read_snapshot(path), lambda: write_atomic(path, b"x")):
        with pytest.raises(OSError, match="expected a regular file") as caught:
            action()
        assert caught.value.filename == str(path)


def test_refuses_a_file_that_is_too_large(path):
    with path.open("wb") as file:
        file.truncate(files.MAX_BYTES + 1)

    with pytest.raises(OSError, match="expected at most 33554432 bytes"):
        read_snapshot(path)


@pytest.mark.parametrize(
    ("existing", "expected"),
    [
        pytest.param(b"theirs", sha256(b"mine"), id="changed"),
        pytest.param(None, sha256(b"mine"), id="removed"),
        pytest.param(b"theirs", "", id="created"),
    ],
)
def test_refuses_a_file_that_somebody_changed(path, existing, expected):
    """Nothing is written over another's edit, and no temporary file is left."""
    if existing is not None:
        path.write_bytes(existing)

    with pytest.raises(ContentChanged, match="read it again and repeat"):
        write_atomic(path, b"mine", expected_sha256=expected)

    assert os.listdir(path.parent) == ([path.name] if existing else [])
    assert existing is None or path.read_bytes() == existing


def test_refuses_a_file_that_changes_while_it_writes(path, monkeypatch):
    """The hash is compared again at the last moment."""
    path.write_bytes(b"old")
    monkeypatch.setattr(files, "_apply_metadata", lambda *_: path.write_bytes(b"theirs"))

    with pytest.raises(ContentChanged):
        write_atomic(path, b"mine", expected_sha256=sha256(b"old"))

    assert path.read_bytes() == b"theirs"
    assert os.listdir(path.parent) == [path.name]


@needs_root
def test_full_disk_leaves_the_old_file(tmp_path):
    """No space for the new content: the old one stays, the temporary file is gone, the error names the file."""
    with tmpfs(tmp_path, "size=64k"):
        path = tmp_path / "config.toml"
        path.write_bytes(b"old")

        with pytest.raises(OSError, match="No space left on device") as caught:
            write_atomic(path, b"x" * 100_000)

        assert caught.value.filename == str(path)
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == [path.name]


@needs_root
def test_no_inode_leaves_the_old_file(tmp_path):
    with tmpfs(tmp_path, "nr_inodes=2"):
        path = tmp_path / "config.toml"
        path.write_bytes(b"old")

        with pytest.raises(OSError, match="No space left on device"):
            write_atomic(path, b"new")

        assert path.read_bytes() == b"old"


@needs_root
def test_read_only_file_system(tmp_path):
    """The error names the file and the reason; the file is still readable."""
    with tmpfs(tmp_path) as remount_read_only:
        path = tmp_path / "config.toml"
        path.write_bytes(b"old")
        remount_read_only()

        with pytest.raises(OSError, match="Read-only file system") as caught:
            write_atomic(path, b"new")

        assert caught.value.filename == str(path)
        assert read_snapshot(path).content == b"old"


def test_missing_directory_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        write_atomic(tmp_path / "no" / "config.toml", b"x")

    assert caught.value.filename == str(tmp_path / "no" / "config.toml")


@settings(deadline=None)
@given(st.none() | st.binary(max_size=5000), st.none() | st.binary(max_size=5000), st.sampled_from([0o600, 0o644]))
def test_restore_after_any_change_is_the_identity(before, after, mode):
    """Bytes, mode and owner, and the absence of a file, come back; restoring twice changes nothing more."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "config.toml"
        if before is not None:
            path.write_bytes(before)
            path.chmod(mode)
        snapshot = read_snapshot(path)
        if after is not None:
            write_atomic(path, after, mode=0o640, expected_sha256=snapshot.sha256)
        elif before is not None:
            path.unlink()

        restore(snapshot)
        restored = path.stat() if before is not None else None
        restore(snapshot)

        assert read_snapshot(path) == snapshot
        assert os.listdir(directory) == ([path.name] if before is not None else [])
        assert restored is None or path.stat().st_ino == restored.st_ino


@needs_root
def test_restore_brings_owner_and_mode_back_when_the_bytes_are_the_same(path):
    path.write_bytes(b"old")
    snapshot = read_snapshot(path)
    os.chown(path, 5, 6)
    path.chmod(0o666)

    restore(snapshot)

    assert read_snapshot(path) == snapshot


def test_leftovers_of_one_file_only(tmp_path):
    """Temporary files of killed writers go; other hidden files and those of other targets stay."""
    for name in ["a.toml", ".a.toml", ".a.toml.portcullis-x1", ".b.toml.portcullis-x2", "a.toml.portcullis-x3"]:
        (tmp_path / name).touch()

    assert remove_leftovers(tmp_path, "a.toml") == [str(tmp_path / ".a.toml.portcullis-x1")]
    assert remove_leftovers(tmp_path) == [str(tmp_path / ".b.toml.portcullis-x2")]
    assert sorted(os.listdir(tmp_path)) == [".a.toml", "a.toml", "a.toml.portcullis-x3"]
    assert remove_leftovers(tmp_path / "no") == []


def test_killed_at_each_step_of_a_write(tmp_path):
    """After kill -9 at any system call the file is the old or the new one, whole, with its mode."""
    seen = set()

    def prepare(directory):
        (directory / "config.toml").write_bytes(b"old" * 1000)
        (directory / "config.toml").chmod(0o600)

    def change(directory):
        write_atomic(directory / "config.toml", b"new" * 2000, expected_sha256=sha256(b"old" * 1000))

    for directory in killed_at_each_step(tmp_path, prepare, change):
        content, mode, _, _ = state(directory / "config.toml")
        assert content in (b"old" * 1000, b"new" * 2000)
        assert mode == 0o600
        seen.add(content[:3])
        remove_leftovers(directory, "config.toml")
        assert os.listdir(directory) == ["config.toml"]
    assert seen == {b"old", b"new"}


def test_fsync_of_a_missing_directory_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        fsync_directory(tmp_path / "no")
