# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Load modules to try what they provide, and unload them again, also when the process that asked for it is killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time

from .host import read_text, run_command
from .kernel_evidence import ABSENT, State, module_name, parse_loaded
from .sandbox import close_all_but

# A network namespace that is going away holds its modules for a while.
UNLOAD_TIMEOUT_S = 10
UNLOAD_AGAIN_S = 0.1
DEPENDENCIES = re.compile(r"^(\S+?):(.*)$", re.MULTILINE)
FILE_NAME = re.compile(r"([^/\s]+)\.ko\S*")


def parse_dependencies(text):
    """C({module: names of all that it needs}) of modules.dep, which lists what is needed by what is needed, too."""
    found = {}
    for path, rest in DEPENDENCIES.findall(text):
        names = [module_name(name) for name in FILE_NAME.findall(path)]
        if names:
            found[names[0]] = frozenset(module_name(name) for name in FILE_NAME.findall(rest))
    return found


@contextlib.contextmanager
def loaded_for_a_while(names, dependencies):
    """Load modules, and unload at the end what was not loaded before: those, and what they needed.

    What somebody else uses by then stays. While they are loaded some of them show links on the machine (tunl0, dummy0).

    :param dependencies: of parse_dependencies.
    :returns: C({name: State}) of those that cannot be loaded.
    """
    before = _loaded()
    wanted = sorted(set(names) - before)
    ours = set(wanted).union(*(dependencies.get(name, ()) for name in wanted)) - before
    guard, alive = _start_guard(ours)
    try:
        run_command(["modprobe", "-a", "-q", "--", *wanted])
        yield {name: _why_not(name) for name in sorted(set(wanted) - _loaded())}
    finally:
        os.close(alive)
        os.waitpid(guard, 0)


def _loaded():
    return parse_loaded(read_text("/proc/modules") or "")


def _why_not(name):
    rc, _out, err = run_command(["modprobe", "--", name])
    return State(ABSENT, f"modprobe {name}: {' '.join(err.split()) or f'exit status {rc}'}")


def _start_guard(names):
    """Start a process that unloads modules as soon as this one closes a pipe, or ends.

    :returns: its pid, and the end of the pipe to close.
    """
    end, alive = os.pipe()
    pid = os.fork()
    if pid:
        os.close(end)
        return pid, alive
    try:
        os.setsid()  # not to be killed with the group of the one that it outlives
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        close_all_but(end)
        os.read(end, 1)
        unload(names)
    finally:
        os._exit(0)


def unload(names):
    """Unload modules, those first that no other needs; gives up after C(UNLOAD_TIMEOUT_S) on those in use."""
    deadline = time.monotonic() + UNLOAD_TIMEOUT_S
    left = set(names) & _loaded()
    while left and time.monotonic() < deadline:
        run_command(["rmmod", *sorted(left)])
        before, left = left, set(names) & _loaded()
        if left == before:
            time.sleep(UNLOAD_AGAIN_S)
