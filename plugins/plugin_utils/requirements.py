# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node must be: a table of checks over a probe.

A check is data and one predicate: C(observe) looks at a node and says in words what is wrong, or returns None. Adding
a requirement is adding a row. Nothing here talks to a node, so a probe that was saved elsewhere is judged the same.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING, finding

ENGINES = ("native", "runtime_enforcer", "secure_workload")
# Architectures of Calico's node requirements (x86-64, arm64, ppc64le, s390x) that each engine is built for.
ARCHITECTURES = {
    "native": ("x86_64", "aarch64"),
    "runtime_enforcer": ("x86_64", "aarch64"),
    "secure_workload": ("x86_64", "aarch64", "ppc64le", "s390x"),
}
# Lowest kernel by engine and architecture. native: bpf_send_signal is there from 5.3 (weakest tier);
# runtime_enforcer: fmod_ret on x86-64 from 5.8, on arm64 from 6.4; secure_workload: Calico's text, 3.10.
KERNELS = {
    "native": {"": (5, 3)},
    "runtime_enforcer": {"": (5, 8), "aarch64": (6, 4)},
    "secure_workload": {"": (3, 10)},
}
# registry config_path is a key of containerd 1.5 and newer; 1.6 is the oldest line that is still measured.
CONTAINERD_MINIMUM = (1, 6)
PROBE_VERSION = 1
# States of a unit that somebody wants to run. Source: systemd, unit-def.c.
UNIT_IN_USE = ("active", "activating", "reloading", "deactivating", "failed")
# The directory of the text's example; what containerd_config writes where none is set.
DEFAULT_CONFIG_PATH = "/etc/containerd/certs.d"
MIB = 1024 * 1024
# The journal keeps previous contents, the agent and its cache are a few megabytes, an image import unpacks.
DISK_NEEDED = {"/etc": 4 * MIB, "/var/lib/portcullis": 64 * MIB, "/var/lib/containerd": 256 * MIB}
DISK_NEEDED_ELSEWHERE = 16 * MIB
INODES_NEEDED = 200
# Kubernetes' certificates and tokens are checked to the second; event order between nodes needs about as much.
SKEW_WARNING_S = 1.0
SKEW_BLOCKER_S = 60.0


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What the run was asked for."""

    engine: str
    # Empty: whatever the node uses already is kept.
    registry_config_path: str
    images: tuple[str, ...]
    # The run is over: what it should have mended must be mended.
    proven: bool = False


@dataclasses.dataclass(frozen=True)
class Node:
    """One node as the checks see it: its probe, whether it belongs to the cluster, and the clock around the probe."""

    name: str
    in_cluster: bool
    probe: dict
    wanted: Wanted
    controller_epoch_s: dict | None = None

    @property
    def containerd(self) -> dict:
        """The probe's containerd section."""
        return self.probe["containerd"]

    @property
    def uses_containerd(self) -> bool:
        """Whether there is a containerd to judge. On a plain host one that is installed but off is none."""
        present = self.containerd["present"]
        return present and (self.in_cluster or self.containerd["unit_state"] in UNIT_IN_USE)


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
            "config_path": node.wanted.registry_config_path or DEFAULT_CONFIG_PATH,
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


def version_tuple(text: str, *, parts: int = 2) -> tuple[int, ...] | None:
    """The leading numbers of a version such as C(6.1.0-31-cloud) or C(v1.7.24~ds1), None when it has none."""
    match = re.match(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?", text)
    return tuple(int(group or 0) for group in match.groups()[:parts]) if match else None


def minimum_kernel(node: Node) -> tuple[int, int]:
    """The lowest kernel of the node's engine on its architecture."""
    table = KERNELS[node.wanted.engine]
    return table.get(node.probe["system"]["architecture"], table[""])


def wrong_architecture(node: Node) -> str | None:
    """The architecture or byte order that the engine is not built for."""
    system = node.probe["system"]
    if system["architecture"] not in ARCHITECTURES[node.wanted.engine]:
        return f"architecture {system['architecture']}"
    return (
        f"{system['byteorder']}-endian" if system["byteorder"] != "little" and node.wanted.engine == "native" else None
    )


def old_kernel(node: Node) -> str | None:
    """A kernel below the engine's lowest."""
    release = node.probe["system"]["kernel"]
    version = version_tuple(release)
    return f"kernel {release}" if version is None or version < minimum_kernel(node) else None


def not_root(node: Node) -> str | None:
    """A probe that could not see everything."""
    return "the probe ran without root" if node.probe["system"]["euid"] != 0 else None


def no_containerd(node: Node) -> str | None:
    """A node of the cluster without containerd."""
    return (
        "no containerd process and no binary on the usual path"
        if node.in_cluster and not node.uses_containerd
        else None
    )


def cri_not_serving(node: Node) -> str | None:
    """A runtime that is dead, or up with a dead CRI plugin: the second is what a wrong edit causes."""
    if not node.uses_containerd or node.containerd["cri"]["serving"]:
        return None
    cri = node.containerd["cri"]
    why = cri["error"] or "conditions " + ", ".join(
        f"{key}={value}" for key, value in sorted(cri["conditions"].items())
    )
    unit = node.containerd["unit_state"] or "not a systemd unit"
    return f"containerd.service is {unit}; CRI at {cri['socket']}: {why}"


def old_containerd(node: Node) -> str | None:
    """A daemon older than any that was measured."""
    version = node.containerd["cri"]["version"] if node.uses_containerd else ""
    return f"containerd {version}" if version and (version_tuple(version) or ()) < CONTAINERD_MINIMUM else None


def broken_config(node: Node) -> str | None:
    """A configuration that the daemon's own parser refuses: the next restart would be the last."""
    if not node.uses_containerd or not node.containerd["config_error"]:
        return None
    return f"{node.containerd['config_file']}: {node.containerd['config_error']}"


def stale_daemon(node: Node) -> str | None:
    """A file that was edited after the daemon started, so what runs is not what is written."""
    if not node.uses_containerd or not node.containerd["config_changed_after_start"]:
        return None
    return f"{node.containerd['config_file']} was changed after containerd started"


def legacy_registry_tables(node: Node) -> str | None:
    """Mirrors or registry TLS in config.toml, which no daemon accepts beside C(config_path)."""
    if not node.uses_containerd:
        return None
    config = node.containerd["config"]
    names = [f"registry.mirrors.{name}" for name in config.get("mirrors", [])]
    names += [f"registry.configs.{name}.tls" for name in config.get("tls", [])]
    return f"{node.containerd['config_file']} has {', '.join(names)}" if names else None


def other_config_path(node: Node) -> str | None:
    """An effective C(config_path) that is empty, or not the one that the user asked for."""
    if not node.uses_containerd or not node.containerd["config"]:
        return None
    effective, wanted = node.containerd["config"]["config_path"], node.wanted.registry_config_path
    if effective and (not wanted or effective == wanted):
        return None
    return f"effective registry config_path is {effective or 'not set'}"


def missing_images(node: Node) -> str | None:
    """Images that are not on the node."""
    if not node.uses_containerd or not node.containerd["cri"]["serving"]:
        return None
    missing = sorted(name for name in node.wanted.images if not node.containerd["cri"]["images"].get(name))
    return "not on the node: " + ", ".join(missing) if missing else None


def packet_filter_managers(node: Node) -> str | None:
    """Packet-filter managers at work on a node of the cluster; a plain host may have its own firewall."""
    found = node.probe["packet_filters"] if node.in_cluster else []
    return "; ".join(item["evidence"] for item in found) or None


def kubelet_down(node: Node) -> str | None:
    """A node of the cluster whose kubelet does not say that it is healthy."""
    kubelet = node.probe["kubelet"]
    if not node.in_cluster or kubelet["healthy"]:
        return None
    return f"kubelet.service {'is' if kubelet['active'] else 'is not'} active; healthz: {kubelet['error']}"


def kube_proxy_unknown(node: Node) -> str | None:
    """A node of the cluster whose live kube-proxy mode cannot be read."""
    proxy = node.probe["kube_proxy"]
    return f"no answer: {proxy['error']}" if node.in_cluster and not proxy["mode"] else None


def clock_skew_s(node: Node) -> float:
    """Seconds by which the node's clock is outside the time in which it was read; 0 when that is not known."""
    if not node.controller_epoch_s:
        return 0.0
    epoch = node.probe["time"]["epoch_s"]
    return max(0.0, node.controller_epoch_s["before"] - epoch, epoch - node.controller_epoch_s["after"])


def clock_far_off(node: Node) -> str | None:
    """A clock with which certificates and tokens fail."""
    skew = clock_skew_s(node)
    return f"clock is {skew:.0f} s off the controller's" if skew > SKEW_BLOCKER_S else None


def clock_off(node: Node) -> str | None:
    """A clock that drifts."""
    skew = clock_skew_s(node)
    return f"clock is {skew:.1f} s off the controller's" if SKEW_WARNING_S < skew <= SKEW_BLOCKER_S else None


def clock_not_synchronised(node: Node) -> str | None:
    """A clock that nothing disciplines. A container's clock is its host's and is judged by its skew alone."""
    clock = node.probe["time"]
    if node.probe["system"]["container"] or clock["synchronised"] is not False or clock["service"]:
        return None
    return "the kernel says unsynchronised and no time service is active"


def little_disk(node: Node) -> str | None:
    """Paths with too little room for what will be written."""
    short = []
    for disk in node.probe["disks"]:
        if disk["path"] == "/var/lib/containerd" and not node.uses_containerd:
            continue
        needed = DISK_NEEDED.get(disk["path"], DISK_NEEDED_ELSEWHERE)
        if disk["read_only"]:
            short.append(f"{disk['path']} is on a read-only file system")
        elif disk["free_bytes"] < needed:
            short.append(f"{disk['path']} has {disk['free_bytes'] // MIB} MiB free of {needed // MIB} MiB needed")
        elif disk["free_inodes"] is not None and disk["free_inodes"] < INODES_NEEDED:
            short.append(f"{disk['path']} has {disk['free_inodes']} inodes free of {INODES_NEEDED} needed")
    return "; ".join(short) or None


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
        "on the node: journalctl -u containerd, mend what it says, systemctl restart containerd",
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
        "on the node: systemctl disable --now the unit, then restart kube-proxy and the network plugin",
        packet_filter_managers,
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
        "disk.space",
        BLOCKER,
        "ansible/Fleet",
        "room for the journal, the images and the agent",
        "free space on the node: unused images (crictl rmi --prune), old journals",
        little_disk,
    ),
)


# Probes that did not come back: the fault, what it is called, what mends it.
PROBE_FAULTS = (
    ("unreachable", "node.unreachable", "the node answers over SSH", "check the node's address, key and network"),
    ("no_python", "node.no_python", "Python 3.8 or newer", "install python3, or set ansible_python_interpreter"),
    ("failed", "node.probe_failed", "node_probe runs", "run ansible NODE -b -m portcullis.fleet.node_probe -vvv"),
)
LEAVES_OUT = frozenset(item.id for item in CHECKS if item.leaves_out) | {fault[1] for fault in PROBE_FAULTS}


def probe_of(result: dict) -> dict:
    """The probe in what node_probe registered; a probe that was saved alone is one already."""
    return result.get("probe", result)


def probe_fault(name: str, result: dict) -> dict | None:
    """The finding of a node whose probe did not come back.

    :param result: what node_probe registered: C(unreachable), or C(failed) with C(no_python) where that is why.
    """
    for key, finding_id, expected, remedy in PROBE_FAULTS:
        if result.get(key):
            return finding(
                finding_id,
                severity=BLOCKER,
                requirement="ansible/Fleet",
                node=name,
                observed=" ".join(str(result.get("msg", "no answer")).split()),
                expected=expected,
                remedy=remedy,
            )
    return None


def left_out(findings: list[dict]) -> set[str]:
    """The nodes that a run cannot change, by their findings."""
    return {item["node"] for item in findings if item["id"] in LEAVES_OUT}


def evaluate_node(node: Node) -> list[dict]:
    """All findings of one node, in the order of the table.

    :raises ValueError: for a probe of a version that this code does not know.
    """
    version = node.probe.get("probe_version")
    if version != PROBE_VERSION:
        raise ValueError(f"the probe of {node.name} has version {version!r}, this collection reads {PROBE_VERSION}")
    found = (check.evaluate(node) for check in CHECKS)
    return [item for item in found if item]
