# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether containerd on a node may be changed and restarted now, judged from what the node said."""

from __future__ import annotations

import re
from collections.abc import Collection

from ..module_utils.finding import BLOCKER, finding
from .containerd_effective import Daemon
from .containerd_owners import Owner
from .containerd_units import judge_load

REQUIREMENT = "ansible/containerd_config"
# Units that may restart with containerd: kubelet takes its running pods over.
HARMLESS_DEPENDENTS = ("kubelet.service",)
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]+\.[a-z]+")
# What the option accept_restart_of calls the containers that a restart kills.
PODS = "pods"
# Types of systemd.kill(5) that leave the shims, and with them the pods, alone.
SPARING_KILL_MODES = ("process", "none")


def check_accepted(names: Collection[str]) -> str:
    """Return why what a restart may take with it cannot be meant, empty when it can."""
    wrong = [name for name in names if name != PODS and not (isinstance(name, str) and _UNIT.fullmatch(name))]
    return (
        f"accept_restart_of: got {wrong[0]!r}, expected {PODS} or the full name of a unit, such as docker.service"
        if wrong
        else ""
    )


def judge_change(
    facts: dict,
    daemon: Daemon,
    owner: Owner,
    will_restart: bool,
    *,
    accepted: Collection[str] = (),
    will_be_tried: bool = False,
) -> list[dict]:
    """Return the findings that forbid a change of the configuration, and the restart that it needs.

    :param accepted: what a restart may take with it, see C(judge_restart).
    :param will_be_tried: whether the daemon tries the files in a sandbox first. That can prove that a change brings a
        CRI back that does not serve; without it the change would be a guess.
    """
    findings = []
    if owner.remedy:
        findings.append(
            _blocker(
                "containerd.config_owned",
                f"{facts['config_file']} is written by {owner.name}: {owner.evidence}",
                "a file that stays as it is edited",
                owner.remedy,
            )
        )
    if not facts["cri"]["serving"] and not will_be_tried:
        findings.append(
            _blocker(
                "containerd.cri_not_serving",
                f"CRI at {facts['socket']} does not serve: {facts['cri']['error']}",
                "CRI serving before the change, so that a failure afterwards has one cause",
                f"repair containerd first: journalctl -u {facts['unit_name']} shows why its CRI plugin did not load",
            )
        )
    if facts["relative_globs"] and not daemon.globs_from_parent:
        findings.append(
            _blocker(
                "containerd.import_relative",
                f"relative imports with a wildcard: {', '.join(facts['relative_globs'])}",
                "absolute imports, since this containerd looks them up in its working directory",
                "write the imports with their full path",
            )
        )
    return findings + (judge_restart(facts, accepted) if will_restart else [])


def judge_restart(facts: dict, accepted: Collection[str] = ()) -> list[dict]:
    """Return the findings that forbid a restart.

    :param facts: of what a node said, C(unit_name), C(unit) and C(dependents).
    :param accepted: names of units that may restart too, and PODS where the containers may end.
    """
    name, unit = facts["unit_name"], facts["unit"]
    if unusable := judge_load(name, unit):
        return [_blocker("containerd.unit_unreadable", *unusable)]
    if unit.get("ActiveState") != "active" or unit.get("MainPID", "0") == "0":
        return [
            _blocker(
                "containerd.unit_not_active",
                f"{name} is {unit.get('ActiveState') or 'not the unit of the containerd that runs'}",
                f"{name} active, so that it can be restarted and put back",
                f"start {name}, or write with restart=never and restart the daemon yourself",
            )
        ]
    findings = []
    if unit.get("KillMode") not in SPARING_KILL_MODES and PODS not in accepted:
        findings.append(
            _blocker(
                "containerd.kill_mode",
                f"{name} has KillMode={unit.get('KillMode')}",
                "KillMode=process, since a restart otherwise kills the shim of every pod",
                f"systemctl edit {name}: [Service] KillMode=process; or, on a drained node, accept_restart_of={PODS}",
            )
        )
    dependents = [name for name in facts["dependents"] if name not in (*HARMLESS_DEPENDENTS, *accepted)]
    if dependents:
        findings.append(
            _blocker(
                "containerd.restarts_others",
                f"{', '.join(dependents)} would be restarted together with {name}",
                f"no active unit that requires, is bound to or is part of {name}",
                f"name them in accept_restart_of, or write with restart=never and restart {name} when they may restart",
            )
        )
    return findings


def _blocker(finding_id: str, observed: str, expected: str, remedy: str) -> dict:
    return finding(
        finding_id,
        severity=BLOCKER,
        requirement=REQUIREMENT,
        observed=observed,
        expected=expected,
        remedy=remedy,
    )
