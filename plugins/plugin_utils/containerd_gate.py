# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether containerd on a node may be changed and restarted now, judged from what the node said."""

from __future__ import annotations

from ..module_utils.finding import BLOCKER, finding
from .containerd_effective import Daemon
from .containerd_owners import Owner

REQUIREMENT = "ansible/containerd_config"
# Units that may restart with containerd: kubelet takes its running pods over.
HARMLESS_DEPENDENTS = ("kubelet.service",)
# Types of systemd.kill(5) that leave the shims, and with them the pods, alone.
SPARING_KILL_MODES = ("process", "none")


def judge_change(facts: dict, daemon: Daemon, owner: Owner, will_restart: bool) -> list[dict]:
    """Return the findings that forbid a change of the configuration, and the restart that it needs."""
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
    if not facts["cri"]["serving"]:
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
    return findings + (judge_restart(facts) if will_restart else [])


def judge_restart(facts: dict) -> list[dict]:
    """Return the findings that forbid a restart; of the facts it needs C(unit_name), C(unit) and C(dependents)."""
    name, unit = facts["unit_name"], facts["unit"]
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
    if unit.get("KillMode") not in SPARING_KILL_MODES:
        findings.append(
            _blocker(
                "containerd.kill_mode",
                f"{name} has KillMode={unit.get('KillMode')}",
                "KillMode=process, since a restart otherwise kills the shim of every pod",
                f"systemctl edit {name}: [Service] KillMode=process; or restart=never on a drained node",
            )
        )
    dependents = [name for name in facts["dependents"] if name not in HARMLESS_DEPENDENTS]
    if dependents:
        findings.append(
            _blocker(
                "containerd.restarts_others",
                f"{', '.join(dependents)} would be restarted together with {name}",
                f"no active unit that requires, is bound to or is part of {name}",
                f"write with restart=never and restart {name} in a maintenance window of those units",
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
