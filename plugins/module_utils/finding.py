# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The finding: one thing that a check saw and did not expect, in words that a person can act on."""

from __future__ import annotations

BLOCKER = "blocker"
WARNING = "warning"
SEVERITIES = (BLOCKER, WARNING)


def finding(finding_id, *, severity, requirement, observed, expected, remedy, node=""):
    """Return a finding as the dict that modules return and reports hold.

    :param finding_id: stable C(area.fact) name, such as C(containerd.cri_not_serving); waivers refer to it.
    :param severity: C(blocker) stops a run before it changes anything, C(warning) does not.
    :param requirement: the source of the rule as C(document/clause): secure-workload, calico, runtime-enforcer,
        native, ansible.
    :param observed: what is there. :param expected: what should be. :param remedy: the command, option or step.
    :param node: inventory name of the node, empty for the fleet or the cluster as a whole.
    :raises ValueError: for an unknown severity.
    """
    if severity not in SEVERITIES:
        raise ValueError(f"severity must be one of {', '.join(SEVERITIES)}, got {severity!r}")
    return {
        "id": finding_id,
        "severity": severity,
        "requirement": requirement,
        "node": node,
        "observed": observed,
        "expected": expected,
        "remedy": remedy,
    }
