# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Steps on the running system of a node, each taken and taken back; twice is as once, so a killed run can be finished.

C(unit) is stopped and disabled, C(module) loaded, C(sysctl) set, C(reload) has a daemon read its files again.
"""

from __future__ import annotations

import contextlib
import os
import time

from .host import read_text, run_command
from .node_fix_plan import ENABLED, is_active, loaded_modules, read_units, sysctl_path

# systemd kills what does not stop after 90 s (DefaultTimeoutStopSec), which has to be seen to have worked.
UNIT_TIMEOUT_S = 120
POLL_S = 0.2
# What a unit is in between.
CHANGING = ("activating", "deactivating", "reloading")


class StepError(Exception):
    """A step could not be taken, or not be taken back; the text says why."""


def read_unit(name):
    """Return the properties of a unit.

    :raises StepError: systemd does not answer.
    """
    units, reason = read_units([name])
    if reason:
        raise StepError(reason)
    return units.get(name, {})


def call(*argv):
    """Run a command.

    :raises StepError: it failed, in its own words.
    """
    rc, out, err = run_command(list(argv))
    if rc:
        raise StepError(f"{' '.join(argv)}: {(err or out).strip() or f'exit status {rc}'}")


def switch_unit(verb, name, is_on):
    """Start or stop a unit and wait until it is so."""
    if is_on:
        call("systemctl", "reset-failed", "--", name)
    call("systemctl", verb, "--no-block", "--", name)
    deadline = time.monotonic() + UNIT_TIMEOUT_S
    while True:
        state = read_unit(name).get("ActiveState", "")
        # A job that has just been queued has not changed the state yet; a oneshot unit without RemainAfterExit ends.
        if (state == "active") is is_on and state not in CHANGING:
            return
        if is_on and state == "failed":
            raise StepError(f"{name} failed to start: journalctl -u {name}")
        if time.monotonic() > deadline:
            raise StepError(f"{name} is {state} {UNIT_TIMEOUT_S} s after systemctl {verb}")
        time.sleep(POLL_S)


def take_unit(step):
    """Disable a unit that is enabled, and stop it."""
    if step["enabled"] and read_unit(step["name"]).get("UnitFileState") in ENABLED:
        call("systemctl", "disable", "--", step["name"])
    # Of a run that was killed it may still be on its way.
    if read_unit(step["name"]).get("ActiveState") in ("active", *CHANGING):
        switch_unit("stop", step["name"], False)


def differs_unit(step):
    """Return whether a unit is not as it was before: active, and enabled where it was."""
    unit = read_unit(step["name"])
    return unit.get("ActiveState") != "active" or any(not os.path.lexists(path) for path in step["links"])


def untake_unit(step):
    """Enable a unit as it was, by the very links that it had, and start it."""
    state = read_unit(step["name"]).get("LoadState")
    if state != "loaded":
        words = "somebody masked it since" if state == "masked" else "not on the node any more"
        raise StepError(f"{step['name']} is {state}: {words}")
    lost = {path: target for path, target in step["links"].items() if not os.path.lexists(path)}
    if lost:
        # Debian keeps a second record for a unit that has an init script too.
        flag = ["--runtime"] if step["enabled"] == "enabled-runtime" else []
        call("systemctl", "enable", *flag, "--", step["name"])
    for path, target in lost.items():
        with contextlib.suppress(FileExistsError):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.symlink(target, path)
    if lost:
        call("systemctl", "daemon-reload")
    if not is_active({step["name"]: read_unit(step["name"])}, step["name"]):
        switch_unit("start", step["name"], True)


def take_module(step):
    """Load a module and what it needs."""
    if step["name"] not in loaded_modules():
        call("modprobe", step["name"])


def differs_module(step):
    """Return whether the module, or one that came with it, is there."""
    loaded = loaded_modules()
    return any(name in loaded for name in (step["name"], *step["brings"]))


def untake_module(step):
    """Unload what was loaded and nobody uses."""
    names = [step["name"], *step["brings"]]
    for name in names:
        if loaded_modules().get(name) == 0:
            call("rmmod", name)
    used = [name for name in names if loaded_modules().get(name)]
    if used:
        raise StepError(f"in use, so still loaded: {', '.join(used)}")


def write_sysctl(name, value):
    """Set a kernel parameter."""
    try:
        with open(sysctl_path(name), "w", encoding="ascii") as stream:
            stream.write(value + "\n")
    except OSError as error:
        raise StepError(f"cannot set {name} to {value}: {error}") from error


def take_sysctl(step):
    """Give a kernel parameter its new value."""
    write_sysctl(step["name"], step["after"])


def differs_sysctl(step):
    """Return whether a kernel parameter has the value that it was given."""
    return (read_text(sysctl_path(step["name"])) or "").strip() == step["after"]


def untake_sysctl(step):
    """Give a kernel parameter its previous value, unless somebody gave it another one since."""
    if differs_sysctl(step):
        write_sysctl(step["name"], step["before"])
        return
    current = (read_text(sysctl_path(step["name"])) or "").strip()
    if current != step["before"]:
        raise StepError(f"{step['name']} is {current}: somebody else changed it since")


def take_reload(step):
    """Have a daemon that runs read its configuration again."""
    if is_active({step["name"]: read_unit(step["name"])}, step["name"]):
        call("systemctl", "reload", "--", step["name"])


def differs_reload(_step):
    """A daemon that reads its files again is not a change by itself."""
    return False


TAKE = {"module": take_module, "reload": take_reload, "sysctl": take_sysctl, "unit": take_unit}
UNTAKE = {"module": untake_module, "reload": take_reload, "sysctl": untake_sysctl, "unit": untake_unit}
DIFFERS = {"module": differs_module, "reload": differs_reload, "sysctl": differs_sysctl, "unit": differs_unit}
# A manager's stop reads the file that switches it off; everything else comes after the files.
BEFORE_FILES = ("unit",)


def take(step):
    """Take a step.

    :raises StepError: it could not be taken.
    """
    TAKE[step["kind"]](step)


def untake(step):
    """Take a step back.

    :returns: why something of it stays, empty when nothing does.
    """
    try:
        UNTAKE[step["kind"]](step)
    except StepError as error:
        return str(error)
    return ""


def can_be_untaken(step):
    """Return whether taking the step back changes anything.

    :raises StepError: systemd does not answer.
    """
    return DIFFERS[step["kind"]](step)


def describe(step):
    """Return C((before, after)) of a step in words, None for one that is no change by itself."""
    name = step["name"]
    if step["kind"] == "unit":
        return (
            (f"{name}: active, enabled", f"{name}: inactive, disabled")
            if step["enabled"]
            else (
                f"{name}: active",
                f"{name}: inactive",
            )
        )
    if step["kind"] == "sysctl":
        return f"{name} = {step['before']}", f"{name} = {step['after']}"
    return (f"{name}: not loaded", f"{name}: loaded") if step["kind"] == "module" else None
