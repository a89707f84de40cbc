# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a change in a child process that dies of SIGKILL before one of its system calls, for each of them."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

_MAX_STEPS = 1000
# What the interpreter's functions for system calls belong to; buffered files write from _io.
_MODULES = ("posix", "_io", "fcntl")


def killed_at_each_step(root: Path, prepare: Callable[[Path], None], change: Callable[[Path], None]) -> Iterator[Path]:
    """Yield, per step, a fresh directory where `change` was killed before that step; last one where it finished."""
    for step in itertools.count():
        assert step < _MAX_STEPS, "the change does not end"
        directory = root / f"step{step}"
        directory.mkdir()
        prepare(directory)
        pid = os.fork()
        if not pid:
            _run_and_exit(step, change, directory)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0, "the change failed by itself"
        yield directory
        if not os.WIFSIGNALED(status):
            return


def _run_and_exit(step: int, change: Callable[[Path], None], directory: Path) -> None:
    """Never returns: the child must not run the test of its parent."""
    steps = itertools.count()

    def profile(_frame: object, event: str, function: object) -> None:
        if event != "c_call":
            return
        owner = getattr(function, "__module__", None) or type(getattr(function, "__self__", None)).__module__
        if owner in _MODULES and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.setprofile(profile)
        change(directory)
        sys.setprofile(None)
        os._exit(0)
    except BaseException as error:
        sys.setprofile(None)
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
