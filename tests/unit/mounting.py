# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small file system on a directory, to fill it or to make it read-only."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount and to give files to others")

_MS_RDONLY, _MS_REMOUNT, _MNT_DETACH = 1, 32, 2


@contextlib.contextmanager
def tmpfs(directory: Path, options: str = "") -> Iterator[Callable[[], None]]:
    """Mount a tmpfs for the time of the context; yield a function that makes it read-only."""
    libc = ctypes.CDLL(None, use_errno=True)

    def mount(flags: int) -> int:
        return libc.mount(b"tmpfs", bytes(directory), b"tmpfs", flags, options.encode())

    def remount_read_only() -> None:
        assert mount(_MS_REMOUNT | _MS_RDONLY) == 0, os.strerror(ctypes.get_errno())

    if mount(0):
        pytest.skip(f"no file system can be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        yield remount_read_only
    finally:
        assert libc.umount2(bytes(directory), _MNT_DETACH) == 0
