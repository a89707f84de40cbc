# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the files of a plan can be written, found out without writing, so that check mode knows too."""

from __future__ import annotations

import array
import fcntl
import os
import re

from .host import read_text

# ioctl_iflags(2) and chattr(1)
_FS_IOC_GETFLAGS = 0x80086601
_UNCHANGEABLE = 0x10 | 0x20  # immutable, append only


def complain_places(paths, config_path):
    """Return the first reason why one of the files cannot be replaced or made, empty when all can.

    :param paths: of files that are to be written or removed.
    :param config_path: the registry directory that becomes effective, empty or None for none.
    """
    mounts = read_mounts()
    for path in map(os.path.realpath, paths):
        if reason := complain_directory(os.path.dirname(path), path) or complain_file(path, mounts):
            return reason
    # containerd fails every pull of a registry where anything but "no such file" comes of looking.
    return (
        complain_directory(os.path.realpath(config_path), "the registry directory", only_kind=True)
        if config_path
        else ""
    )


def complain_directory(directory, path, only_kind=False):
    """Return why nothing can be made in a directory, or where it is to be made; empty when it can."""
    while not os.path.lexists(directory):
        directory = os.path.dirname(directory)
    if not os.path.isdir(directory):
        return f"{directory} is not a directory, as {path} needs: move it away"
    if only_kind:
        return ""
    if os.statvfs(directory).f_flag & os.ST_RDONLY:
        return f"{path} is on a file system that is mounted read-only at {mount_of(directory)}: mount it writable"
    if not os.access(directory, os.W_OK | os.X_OK):
        return f"{path} is not for user {os.geteuid()} to write, since {directory} is not: set become: true"
    return complain_flags(directory)


def complain_file(path, mounts):
    """Return why a file that is there cannot be replaced."""
    if path in mounts:
        return (
            f"{path} is a mount of its own, so it cannot be replaced in one step: unmount it, or change the file that "
            "is mounted there"
        )
    return complain_flags(path) if os.path.exists(path) else ""


def complain_flags(path):
    """Return that a file or directory is immutable; file systems without such flags have none."""
    flags = array.array("i", [0, 0])  # the kernel writes an int where the number of the call says long
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, _FS_IOC_GETFLAGS, flags, True)
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    is_fixed = flags[0] & _UNCHANGEABLE
    return (
        f"{path} is immutable or append-only (lsattr -d {path}): chattr -i -a {path}, or ask who set it"
        if is_fixed
        else ""
    )


def read_mounts():
    """Return the mount points of this process."""
    return mount_points(read_text("/proc/self/mountinfo") or "")


def mount_points(mountinfo):
    """Return the mount points of a text of proc(5) mountinfo, whose field 5 has octal escapes."""
    fields = [line.split(" ") for line in mountinfo.splitlines()]
    return {
        re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), line[4]) for line in fields if len(line) > 4
    }


def mount_of(path):
    """Return the mount point that a directory is at or below; a bind mount looks like no mount to C(ismount)."""
    mounts = read_mounts()
    while path not in mounts and path != "/":
        path = os.path.dirname(path)
    return path
