"""The one setting of the host that labs change: how many inotify instances a user may have.

Debian's default of 128 is for all of root's programs, in all namespaces; a node uses about 15. The old value comes
back when the last lab goes down.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.paths import state_home

_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
_WANTED = 8192


def _record() -> Path:
    return state_home() / ".max_user_instances"


@contextmanager
def _locked() -> Iterator[None]:
    descriptor = os.open(state_home(), os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def raise_limit() -> None:
    """Make room for a lab, whose state directory is there already."""
    with _locked():
        found = int(_LIMIT.read_text())
        if found < _WANTED:
            _record().write_text(f"{found}\n")
            _LIMIT.write_text(str(_WANTED))


def restore_limit() -> None:
    """Put the old value back, unless another lab exists or someone else has changed it since; twice is harmless."""
    if not _record().exists():
        return
    with _locked():
        if not _record().exists() or any(entry.is_dir() for entry in state_home().iterdir()):
            return
        if int(_LIMIT.read_text()) == _WANTED:
            _LIMIT.write_text(_record().read_text())
        _record().unlink()
