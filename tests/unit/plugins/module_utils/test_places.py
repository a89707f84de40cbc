# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import places
from ansible_collections.portcullis.fleet.plugins.module_utils.journal import Journal, JournalError
from ansible_collections.portcullis.fleet.plugins.module_utils.places import complain_places, mount_points


def test_places_that_can_be_written(tmp_path):
    """A file that is there, one in directories that are not, and a link that leads to neither."""
    (tmp_path / "a.toml").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "gone" / "b.toml")

    paths = [str(tmp_path / name) for name in ("a.toml", "x/y/hosts.toml", "link")]
    assert complain_places(paths, str(tmp_path / "certs.d")) == ""
    assert complain_places(paths, None) == ""
    assert sorted(os.listdir(tmp_path)) == ["a.toml", "link"]


@pytest.mark.parametrize("below", ["docker.io", "docker.io/more"])
def test_a_file_in_the_place_of_a_directory(tmp_path, below):
    """Neither a hosts.toml nor a registry directory can be below it."""
    (tmp_path / "docker.io").write_text("")

    assert "docker.io is not a directory" in complain_places([str(tmp_path / below / "hosts.toml")], None)
    assert "as the registry directory needs" in complain_places([], str(tmp_path / below))


def test_a_file_that_is_a_mount(tmp_path, monkeypatch):
    """rename(2) answers EBUSY; the path in mountinfo is escaped."""
    path = tmp_path / "a file"
    path.write_text("")
    escaped = str(path).replace(" ", "\\040")
    line = f"36 35 98:0 /x {escaped} rw - ext4 /dev/root rw\n"
    monkeypatch.setattr(places, "read_text", lambda _path: line)

    assert mount_points(line) == {str(path)}
    assert "is a mount of its own" in complain_places([str(path)], None)


def test_immutable_and_read_only(tmp_path, monkeypatch):
    """Both are told before anything is written, with what to do."""
    path = tmp_path / "a"
    path.write_text("")

    def set_flags(_descriptor, _call, flags, _mutate):
        flags[0] = 0x10

    monkeypatch.setattr(places.fcntl, "ioctl", set_flags)
    assert "chattr -i" in complain_places([str(path)], None)
    monkeypatch.setattr(places.os, "statvfs", lambda _path: os.statvfs_result([0] * 8 + [os.ST_RDONLY, 255]))
    # A directory that is mounted onto itself has the device of the one above it, so that os.path.ismount says no.
    monkeypatch.setattr(places, "read_text", lambda _path: f"36 35 98:0 / {tmp_path} ro - ext4 /dev/root rw\n")
    assert f"mounted read-only at {tmp_path}: mount it writable" in complain_places([str(path)], None)


def test_a_journal_that_cannot_be_used(tmp_path):
    """It is found out without making it."""
    Journal(tmp_path / "lib" / "journal").check()
    (tmp_path / "file").write_text("")

    assert os.listdir(tmp_path) == ["file"]
    with pytest.raises(JournalError, match="file is not a directory"):
        Journal(tmp_path / "file" / "journal").check()
    with pytest.raises(JournalError, match="must be a directory of user"):
        Journal(tmp_path / "file").check()


def test_without_root_the_way_to_have_it_is_said_in_check_mode_too(tmp_path, monkeypatch):
    """Neither that the journal shall be removed nor that all is well."""
    (tmp_path / "journal").mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "access", lambda path, _mode: False)

    assert "for user 1000 to write" in complain_places([str(tmp_path / "x")], None)
    with pytest.raises(JournalError, match="is root's, and this is user 1000: set become: true"):
        Journal(tmp_path / "journal").check()
