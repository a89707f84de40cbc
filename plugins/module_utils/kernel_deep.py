# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Load modules to try what they provide, and unload them again, also when the process that asked for it is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time

from .host import read_text, run_command
from .kernel_evidence import ABSENT, State, parse_loaded
from .sandbox import close_all_but

# A network namespace that is going away holds its modules for a while.
UNLOAD_TIMEOUT_S = 10
UNLOAD_AGAIN_S = 0.1


@contextlib.contextmanager
def loaded_for_a_while(names, dependencies):
    """Load modules, and unload at the end what was not loaded before: those, and what they needed.

    What somebody else uses by then stays. While they are loaded some of them show links on the machine (tunl0, dummy0).

    :param dependencies: of kernel_evidence.parse_dependencies.
    :returns: C({name: State}) of those that cannot be loaded.
    """
    before = _loaded()
    wanted = sorted(set(names) - before)
    ours = set(wanted).union(*(dependencies.get(name, ()) for name in wanted)) - before
    # What needs others needs all that they need, and them: so it has more of them.
    pid, answers, alive = _start_guard(wanted, sorted(ours, key=lambda name: -len(dependencies.get(name, ()))))
    try:
        with os.fdopen(answers, encoding="utf-8") as stream:
            refused = json.loads(stream.read() or "{}")
        yield {name: State(*found) for name, found in refused.items()}
    finally:
        os.close(alive)
        os.waitpid(pid, 0)


def _loaded():
    return parse_loaded(read_text("/proc/modules") or "")


def _why_not(name):
    rc, _out, err = run_command(["modprobe", "--", name])
    return State(ABSENT, f"modprobe {name}: {' '.join(err.split()) or f'exit status {rc}'}")


def _start_guard(wanted, ours):
    """Start a process that loads modules, and unloads them as soon as this one closes a pipe, or ends.

    It loads them itself, so that no modprobe is still at work when it unloads.

    :returns: its pid, what it says of modules that cannot be loaded, and the end of the pipe to close.
    """
    answers, answer = os.pipe()
    end, alive = os.pipe()
    pid = os.fork()
    if pid:
        os.close(answer)
        os.close(end)
        return pid, answers, alive
    try:
        os.setsid()  # not to be killed with the group of the one that it outlives
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        close_all_but(answer, end)
        # Nobody reads the answer of one whose parent was killed.
        with contextlib.suppress(OSError), os.fdopen(answer, "w", encoding="utf-8") as stream:
            json.dump(load(wanted), stream)
        os.read(end, 1)
        unload(ours)
    finally:
        os._exit(0)


def load(names):
    """Load modules: C({name: State}) of those that cannot be."""
    run_command(["modprobe", "-a", "-q", "--", *names])
    return {name: _why_not(name) for name in sorted(set(names) - _loaded())}


def unload(names):
    """Unload modules; gives up on those in use when for C(UNLOAD_TIMEOUT_S) none went.

    :param names: in an order in which none is needed by one after it.
    """
    deadline = time.monotonic() + UNLOAD_TIMEOUT_S
    before = _loaded()
    left = [name for name in names if name in before]
    while left and time.monotonic() < deadline:
        run_command(["rmmod", *left])
        now = _loaded()
        gone, left = len(left), [name for name in left if name in now]
        if len(left) < gone:
            deadline = time.monotonic() + UNLOAD_TIMEOUT_S
        else:
            time.sleep(UNLOAD_AGAIN_S)
