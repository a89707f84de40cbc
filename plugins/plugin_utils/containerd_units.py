# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the unit of a containerd says about a restart, from the properties that systemd has in effect.

Drop-ins, defaults and templates are systemd's business: only C(systemctl show) is judged (systemd.unit(5),
systemd.service(5)).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

# One command as C(systemctl show) prints it: { path=... ; argv[]=... ; ignore_errors=no ; ...
_COMMAND = re.compile(r"^\{ path=.* ; argv\[\]=(?P<argv>.*) ; ignore_errors=(?P<ignored>yes|no) ;", re.MULTILINE)
_UNUSABLE = ("bad-setting", "error", "masked")


def judge_load(name: str, unit: Mapping[str, str]) -> tuple[str, str, str] | None:
    """Return observed, expected and remedy where systemd could not start the unit again, None where it could.

    It keeps a daemon that runs although its file is no unit any more.
    """
    state = unit.get("LoadState", "")
    if state not in _UNUSABLE and not (state == "not-found" and unit.get("ActiveState") == "active"):
        return None
    path = unit.get("FragmentPath") or name
    return (
        f"systemd cannot use {path} as a unit: LoadState={state}",
        f"a unit {name} that systemd loads, so that it starts containerd again",
        f"correct or restore the file (systemd-analyze verify {path} says what is wrong), then systemctl daemon-reload",
    )


def restart_cautions(name: str, unit: Mapping[str, str]) -> Iterator[str]:
    """Yield what to know of a unit before it is restarted."""
    if unit.get("Restart") == "no":
        yield f"{name} has Restart=no: after a crash of containerd nobody starts it again"
    for command in _COMMAND.finditer(unit.get("ExecStartPre", "")):
        if command["ignored"] == "no":
            yield f"{name} does not start where its ExecStartPre={command['argv']} fails, since it has no - before it"
    if unit.get("NeedDaemonReload") == "yes":
        yield f"the files of {name} were changed since systemd read them: systemctl daemon-reload would bring that in"
