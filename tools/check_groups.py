# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks that no clause of the requirement texts asks for, by what asks for them instead."""

from __future__ import annotations

GROUPS: dict[str, tuple[str, ...]] = {
    "Ansible cannot read or change the node otherwise": (
        "node.no_become",
        "node.no_python",
        "node.not_root",
        "node.probe_failed",
        "node.unreachable",
    ),
    "the run itself needs it: a place for its journal and images, and clocks that agree": (
        "disk.not_writable",
        "disk.space",
        "time.drift",
        "time.not_synchronised",
        "time.skew",
    ),
    "no node of the cluster may be forgotten": (
        "inventory.node_missing",
        "inventory.not_compared",
        "inventory.not_in_cluster",
    ),
    "what a run has come to, in the report": ("run.phase",),
    "a change of the cluster that the user asks for is refused before any node is changed": (
        "felix.refused",
        "kube_proxy.refused",
    ),
    "containerd_config refuses an edit or a restart that it cannot prove safe": (
        "containerd.byte_order_mark",
        "containerd.changed_since",
        "containerd.config_ambiguous",
        "containerd.config_encoding",
        "containerd.config_owned",
        "containerd.config_path_overridden",
        "containerd.config_template",
        "containerd.config_version",
        "containerd.cri_disabled",
        "containerd.edit_unsafe",
        "containerd.hosts_conflict",
        "containerd.hosts_directory",
        "containerd.hosts_file_missing",
        "containerd.hosts_owned",
        "containerd.hosts_unsupported",
        "containerd.import_missing",
        "containerd.import_relative",
        "containerd.import_version",
        "containerd.kill_mode",
        "containerd.mirrors_not_convertible",
        "containerd.nri_disabled",
        "containerd.nri_unsupported",
        "containerd.nri_validator_unsupported",
        "containerd.restarts_others",
        "containerd.setting_ignored",
        "containerd.setting_incomplete",
        "containerd.setting_overridden",
        "containerd.setting_unsafe",
        "containerd.source_cannot_say",
        "containerd.unit_not_active",
        "containerd.unit_unreadable",
        "containerd.version_unknown",
    ),
    "notes on how kube-proxy is installed, which are no findings": ("kube_proxy.modules_mount",),
}
