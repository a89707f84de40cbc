# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node must be: a table of checks over a probe.

A check is data and one predicate: C(observe) looks at a node and says in words what is wrong, or returns None. Adding
a requirement is adding a row. Nothing here talks to a node, so a probe that was saved elsewhere is judged the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING, finding
from ansible_collections.portcullis.fleet.plugins.module_utils.registry_names import DEFAULT_DIRECTORY
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kernel_requirements import KERNEL_ROWS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_observations import (
    ARCHITECTURES,
    Node,
    broken_config,
    clock_far_off,
    clock_not_synchronised,
    clock_off,
    cri_not_serving,
    kube_proxy_unknown,
    kubelet_down,
    legacy_registry_tables,
    little_disk,
    minimum_kernel,
    missing_images,
    no_containerd,
    not_root,
    old_containerd,
    old_kernel,
    other_config_path,
    packet_filter_findings,
    packet_filter_managers,
    packet_filter_rules_unseen,
    replaced_binary,
    restart_findings,
    stale_daemon,
    unseen_sections,
    unwritable_disk,
    wrong_architecture,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import one_line
from ansible_collections.portcullis.fleet.plugins.plugin_utils.settings_requirements import SETTINGS_ROWS

PROBE_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Check:
    """One requirement.

    C(expected) and C(remedy) may name C({engine}), C({architectures}), C({kernel}) and C({config_path}), and never the
    node: what is the same on many nodes shall read the same.
    """

    id: str
    severity: str
    requirement: str
    expected: str
    remedy: str
    observe: Callable[[Node], str | None]
    # What to do when it is still so after the run that should have mended it; then it is a blocker.
    remedy_after_run: str = ""
    # Waived, such a blocker leaves its node out of the change: nothing could be changed and proven there.
    leaves_out: bool = False

    def evaluate(self, node: Node) -> dict | None:
        """The finding for this node, or None when it is as expected."""
        observed = self.observe(node)
        if observed is None:
            return None
        words = {
            "config_path": node.wanted.registry_config_path or DEFAULT_DIRECTORY,
            "engine": node.wanted.engine,
            "architectures": " or ".join(ARCHITECTURES[node.wanted.engine]),
            "kernel": ".".join(str(part) for part in minimum_kernel(node)),
        }
        mend = self.remedy_after_run if node.wanted.proven else ""
        return finding(
            self.id,
            severity=BLOCKER if mend else self.severity,
            requirement=self.requirement,
            node=node.name,
            observed=observed,
            expected=self.expected.format(**words),
            remedy=(mend or self.remedy).format(**words),
        )


CHECKS = (
    Check(
        "node.architecture",
        BLOCKER,
        "calico/Node Requirements",
        "{architectures} for engine {engine}",
        "choose another engine with portcullis_engine, or take the node out of the run",
        wrong_architecture,
    ),
    Check(
        "node.kernel",
        BLOCKER,
        "calico/Node Requirements",
        "kernel {kernel} or newer for engine {engine}",
        "boot a newer kernel, or choose another engine with portcullis_engine",
        old_kernel,
    ),
    Check(
        "node.not_root",
        BLOCKER,
        "ansible/Privileges",
        "root on the node",
        "set ansible_become: true for the node, or connect as root",
        not_root,
        leaves_out=True,
    ),
    Check(
        "node.unseen",
        BLOCKER,
        "calico/Node Requirements",
        "systemd answers, since it tells whether a packet-filter manager is at work",
        "on the node: mend what makes systemctl show fail (systemctl daemon-reexec, or a reboot)",
        unseen_sections,
        leaves_out=True,
    ),
    Check(
        "containerd.missing",
        BLOCKER,
        "secure-workload/Requirements and Prerequisites",
        "containerd on every node of the cluster",
        "install containerd, or move the node out of control_plane and workers",
        no_containerd,
        leaves_out=True,
    ),
    Check(
        "containerd.cri_not_serving",
        BLOCKER,
        "secure-workload/Requirements and Prerequisites",
        "CRI answers and RuntimeReady is true",
        "on the node: journalctl -u containerd, mend what it says, systemctl restart containerd; where mirrors beside "
        "config_path are the cause, ansible NODE -b -m portcullis.fleet.containerd_config repairs it",
        cri_not_serving,
        leaves_out=True,
    ),
    Check(
        "containerd.version",
        BLOCKER,
        "secure-workload/Requirements and Prerequisites",
        "containerd 1.6 or newer",
        "upgrade containerd",
        old_containerd,
    ),
    Check(
        "containerd.config_invalid",
        BLOCKER,
        "secure-workload/Requirements and Prerequisites",
        "a configuration that the daemon accepts",
        "on the node: containerd config dump names the line; mend it before anything restarts the daemon",
        broken_config,
        leaves_out=True,
    ),
    Check(
        "containerd.config_not_loaded",
        WARNING,
        "secure-workload/Requirements and Prerequisites",
        "the daemon runs with the configuration that is on disk",
        "look at the last edit, then on the node: systemctl restart containerd",
        stale_daemon,
    ),
    Check(
        "containerd.binary_replaced",
        WARNING,
        "secure-workload/Requirements and Prerequisites",
        "the daemon that runs is the one that a restart starts",
        "finish the upgrade of containerd before the run, on the node: systemctl restart containerd",
        replaced_binary,
    ),
    Check(
        "containerd.mirrors_present",
        WARNING,
        "secure-workload/Requirements and Prerequisites",
        "no registry.mirrors and no registry.configs.*.tls where config_path is set",
        "nothing: site.yml moves them to hosts.toml files (role containerd)",
        legacy_registry_tables,
        remedy_after_run="run site.yml --diff for the node: what has no equivalent in hosts.toml is named there",
    ),
    Check(
        "containerd.config_path",
        WARNING,
        "secure-workload/Requirements and Prerequisites",
        "registry config_path = {config_path}",
        "nothing: site.yml sets it (role containerd)",
        other_config_path,
        remedy_after_run="run site.yml --diff for the node; a drop-in named in imports may win over the main file",
    ),
    Check(
        "image.missing",
        WARNING,
        "secure-workload/Requirements and Prerequisites",
        "the images are on the node",
        "nothing if the node reaches the registry: site.yml pulls them; else name an archive in portcullis_images",
        missing_images,
        remedy_after_run="run site.yml for the node and look at what portcullis.fleet.containerd_image says",
    ),
    Check(
        "packet_filter.other_manager",
        BLOCKER,
        "calico/Node Requirements",
        "no firewalld, ufw or other packet-filter manager on a node of the cluster",
        "run playbooks/site.yml --tags fix, or on the node: systemctl disable --now the unit (ufw disable), then "
        "restart kube-proxy and the network plugin",
        packet_filter_managers,
    ),
    Check(
        "packet_filter.rules_unseen",
        WARNING,
        "calico/Node Requirements",
        "the rules of iptables and nftables, to see marks and order",
        "install iptables and nftables on the node, or waive it: packet_filter.rules_unseen",
        packet_filter_rules_unseen,
    ),
    Check(
        "kubelet.not_healthy",
        BLOCKER,
        "calico/Kubernetes Requirements",
        "kubelet runs and answers ok at 127.0.0.1:10248/healthz",
        "on the node: journalctl -u kubelet, mend what it says, systemctl restart kubelet",
        kubelet_down,
    ),
    Check(
        "kube_proxy.mode_unknown",
        WARNING,
        "calico/Supported kube-proxy modes",
        "a mode from 127.0.0.1:10249/proxyMode",
        "check the node's kube-proxy pod; nothing to do where the network plugin replaces kube-proxy",
        kube_proxy_unknown,
    ),
    Check(
        "time.skew",
        BLOCKER,
        "ansible/Fleet",
        "within 60 s of the controller",
        "start a time service on the node (chronyc makestep)",
        clock_far_off,
    ),
    Check(
        "time.drift",
        WARNING,
        "ansible/Fleet",
        "within 1 s of the controller",
        "check the node's time service (chronyc tracking)",
        clock_off,
    ),
    Check(
        "time.not_synchronised",
        WARNING,
        "ansible/Fleet",
        "a time service keeps the clock",
        "install and start chrony",
        clock_not_synchronised,
    ),
    Check(
        "disk.not_writable",
        BLOCKER,
        "ansible/Fleet",
        "directories that can be made and written",
        "on the node: mount it read-write (mount -o remount,rw), or move away what is in its place",
        unwritable_disk,
        leaves_out=True,
    ),
    Check(
        "disk.space",
        BLOCKER,
        "ansible/Fleet",
        "room for the journal, the images and the agent",
        "free space on the node: unused images (crictl rmi --prune), old journals",
        little_disk,
    ),
    *(Check(*row) for row in (*KERNEL_ROWS, *SETTINGS_ROWS)),
)


# Probes that did not come back: the fault, what it is called, what mends it.
PROBE_FAULTS = (
    ("unreachable", "node.unreachable", "the node answers over SSH", "check the node's address, key and network"),
    ("no_become", "node.no_become", "the program of ansible_become_method", "install it, or set ansible_become_method"),
    ("no_python", "node.no_python", "Python 3.8 or newer", "install python3, or set ansible_python_interpreter"),
    ("failed", "node.probe_failed", "node_probe runs", "run ansible NODE -b -m portcullis.fleet.node_probe -vvv"),
)
LEAVES_OUT = frozenset(item.id for item in CHECKS if item.leaves_out) | {fault[1] for fault in PROBE_FAULTS}


def probe_of(result: dict) -> dict:
    """The probe in what node_probe registered; a probe that was saved alone is one already."""
    return result.get("probe", result)


def probe_fault(name: str, result: dict) -> dict | None:
    """The finding of a node whose probe did not come back.

    :param result: what node_probe registered: C(unreachable), or C(failed) with C(no_python) or C(no_become) where that
        is why.
    """
    for key, finding_id, expected, remedy in PROBE_FAULTS:
        if result.get(key):
            return finding(
                finding_id,
                severity=BLOCKER,
                requirement="ansible/Fleet",
                node=name,
                observed=one_line(result.get("msg", "no answer")),
                expected=expected,
                remedy=remedy,
            )
    return None


def left_out(findings: list[dict]) -> set[str]:
    """The nodes that a run cannot change, by their findings."""
    return {item["node"] for item in findings if item["id"] in LEAVES_OUT}


def evaluate_node(node: Node) -> list[dict]:
    """All findings of one node, in the order of the table.

    :raises ValueError: for a probe of a version that this code does not know, or that lacks what each has.
    """
    version = node.probe.get("probe_version")
    if version != PROBE_VERSION:
        raise ValueError(f"the probe of {node.name} has version {version!r}, this collection reads {PROBE_VERSION}")
    try:
        found = [check.evaluate(node) for check in CHECKS]
        return [item for item in found if item] + restart_findings(node) + packet_filter_findings(node)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the probe of {node.name} is not one of node_probe's: {error!r}") from error
