# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a node, in words: a predicate over its probe for each requirement (requirements.py).

A predicate says what it found, or returns None. Nothing here talks to a node.
"""

from __future__ import annotations

import dataclasses
import re

from ansible_collections.portcullis.fleet.plugins.module_utils.packet_filters import unpacked
from ansible_collections.portcullis.fleet.plugins.plugin_utils.calico_kube_proxy import proxy_conflicts
from ansible_collections.portcullis.fleet.plugins.plugin_utils.containerd_gate import judge_restart
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_judge import Judged, judge_packet_filters
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_known import Felix, Known, felix_of
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_marks import SECURE_WORKLOAD_BITS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_owners import (
    FELIX,
    SECURE_WORKLOAD,
    running_software,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_rules import NATIVE
from ansible_collections.portcullis.fleet.plugins.plugin_utils.netfilter_state import PacketFilters, read_packet_filters
from ansible_collections.portcullis.fleet.plugins.plugin_utils.network_requirements import Calico
from ansible_collections.portcullis.fleet.plugins.plugin_utils.os_matrix import OsMatrix
from ansible_collections.portcullis.fleet.plugins.plugin_utils.report_text import one_line

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
# States of a unit that somebody wants to run. Source: systemd, unit-def.c.
UNIT_IN_USE = ("active", "activating", "reloading", "deactivating", "failed")
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
    # Whether a changed configuration is followed by a restart of containerd, and what that may take with it.
    restarts_containerd: bool = True
    accept_restart_of: tuple[str, ...] = ()
    # The run is over: what it should have mended must be mended.
    proven: bool = False
    os_matrix: OsMatrix | None = None
    # The mode of kube-proxy that the run is about to set, empty where it sets none.
    proxy_mode: str = ""


@dataclasses.dataclass(frozen=True)
class Node:
    """One node as the checks see it: its probe, whether it belongs to the cluster, and the clock around the probe."""

    name: str
    in_cluster: bool
    probe: dict
    wanted: Wanted
    controller_epoch_s: dict | None = None
    # What the cluster says of Felix here; None where it does not run or the cluster was not read.
    calico: Calico | None = None
    # kube-proxy's mode as the cluster configures it, empty where that is not known.
    proxy_mode: str = ""
    # Whether the cluster has none, since the network plugin takes its place.
    proxy_replaced: bool = False
    # As the cluster knows it, such as v1.34.4; empty where it does not.
    kubelet_version: str = ""
    # Whether the API server has it as Ready, which kubelet reports itself.
    is_ready: bool = False

    @property
    def containerd(self) -> dict:
        """The probe's containerd section."""
        return self.probe["containerd"]

    @property
    def uses_containerd(self) -> bool:
        """Whether there is a containerd to judge. On a plain host one that is installed but off is none."""
        if not self.containerd["present"]:
            return False
        is_in_use = self.containerd["unit_state"] in UNIT_IN_USE or self.containerd["cri"]["serving"]
        return self.in_cluster or is_in_use

    @property
    def is_root(self) -> bool:
        """Whether the probe could see the processes, sockets and files of root."""
        return self.probe["system"]["euid"] == 0

    @property
    def sees_containerd(self) -> bool:
        """Whether there is a containerd and what the probe says of it can be believed."""
        return self.is_root and self.uses_containerd

    @property
    def sees_units(self) -> bool:
        """Whether systemd answered."""
        return "units" not in self.probe["unseen"]


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
    return None if node.is_root else "the probe ran without root"


def unseen_sections(node: Node) -> str | None:
    """What the probe could not read; what root could have read is another finding."""
    unseen = {name: reason for name, reason in node.probe["unseen"].items() if name != "root"}
    return "; ".join(f"{name}: {one_line(reason)}" for name, reason in sorted(unseen.items())) or None


def no_containerd(node: Node) -> str | None:
    """A node of the cluster without containerd. CRI-O needs nothing of what a run would change."""
    if not node.in_cluster or not node.is_root or node.uses_containerd:
        return None
    other = node.containerd.get("other_runtime")
    crio = (node.probe.get("settings") or {}).get("crio")
    if crio:
        return f"CRI-O does not answer: {crio['error']}" if crio["error"] else None
    return f"kubelet uses {other}" if other else "no containerd process and no binary on the usual path"


def cri_not_serving(node: Node) -> str | None:
    """A runtime that is dead, or up with a dead CRI plugin: the second is what a wrong edit causes."""
    if not node.sees_containerd or node.containerd["cri"]["serving"]:
        return None
    cri = node.containerd["cri"]
    why = cri["error"] or "conditions " + ", ".join(
        f"{key}={value}" for key, value in sorted(cri["conditions"].items())
    )
    name = node.containerd.get("unit_name", "containerd.service")
    return f"{name} is {node.containerd['unit_state'] or 'unknown'}; CRI at {cri['socket']}: {why}"


def old_containerd(node: Node) -> str | None:
    """A daemon older than any that was measured."""
    version = node.containerd["cri"]["version"] if node.sees_containerd else ""
    return f"containerd {version}" if version and (version_tuple(version) or ()) < CONTAINERD_MINIMUM else None


def broken_config(node: Node) -> str | None:
    """A configuration that the daemon's own parser refuses: the next restart would be the last."""
    if not node.sees_containerd or not node.containerd["config_error"]:
        return None
    return f"{node.containerd['config_file']}: {node.containerd['config_error']}"


def stale_daemon(node: Node) -> str | None:
    """A file that was edited after the daemon started, so what runs is not what is written."""
    if not node.sees_containerd or not node.containerd["config_changed_after_start"]:
        return None
    return f"{node.containerd['config_file']} was changed after containerd started"


def replaced_binary(node: Node) -> str | None:
    """An upgrade without a restart: the next restart starts a daemon that nobody has seen at work here."""
    if not node.sees_containerd or not node.containerd.get("binary_replaced"):
        return None
    version = node.containerd["cri"]["version"]
    return f"{node.containerd['binary']} was replaced after containerd {version} started".replace("  ", " ")


def legacy_registry_tables(node: Node) -> str | None:
    """Mirrors or registry TLS in config.toml, which no daemon accepts beside C(config_path)."""
    if not node.sees_containerd:
        return None
    config = node.containerd["config"]
    names = [f"registry.mirrors.{name}" for name in config.get("mirrors", [])]
    names += [f"registry.configs.{name}.tls" for name in config.get("tls", [])]
    return f"{node.containerd['config_file']} has {', '.join(names)}" if names else None


def other_config_path(node: Node) -> str | None:
    """An effective C(config_path) that is empty, or not the one that the user asked for."""
    if not node.sees_containerd or not node.containerd["config"]:
        return None
    effective, wanted = node.containerd["config"]["config_path"], node.wanted.registry_config_path
    if effective and (not wanted or effective == wanted):
        return None
    return f"effective registry config_path is {effective or 'not set'}"


def needs_edit(node: Node) -> bool:
    """Whether a run edits containerd's configuration."""
    return bool(other_config_path(node) or legacy_registry_tables(node))


def restart_findings(node: Node) -> list[dict]:
    """What forbids the restart that an edit needs, as the change itself judges it (containerd_gate)."""
    # A saved probe may be older than these keys.
    if "unit" not in node.containerd or not node.sees_units or not node.containerd["cri"]["serving"]:
        return []
    restarts = node.wanted.restarts_containerd and needs_edit(node)
    found = judge_restart(node.containerd, node.wanted.accept_restart_of) if restarts else []
    return [{**item, "node": node.name} for item in found]


def missing_images(node: Node) -> str | None:
    """Images that are not on the node."""
    if not node.sees_containerd or not node.containerd["cri"]["serving"]:
        return None
    missing = sorted(name for name in node.wanted.images if not node.containerd["cri"]["images"].get(name))
    return "not on the node: " + ", ".join(missing) if missing else None


def packet_filter_managers(node: Node) -> str | None:
    """Packet-filter managers at work on a node of the cluster; a plain host may have its own firewall."""
    found = node.probe["packet_filters"] if node.in_cluster and node.sees_units else []
    return "; ".join(item["evidence"] for item in found) or None


def packet_filter_findings(node: Node) -> list[dict]:
    """What is wrong with the rules themselves on a node of the cluster, by netfilter_judge."""
    # A saved probe may be older than the rules.
    rules = node.probe.get("packet_filter_rules")
    if not rules or not node.in_cluster or not node.is_root:
        return []
    running = running_software(rules["programs"], rules["units"])
    filters = read_packet_filters(
        saves=map(unpacked, rules["saves"]),
        nft_json="".join(map(unpacked, rules["nft_json"])),
        ip_rules=map(unpacked, rules["ip_rules"]),
        running=running,
    )
    proxy_mode = node.probe["kube_proxy"]["mode"]
    known = Known(running=running, proxy_mode=proxy_mode, felix=_felix(node, filters, proxy_mode))
    reserved = {SECURE_WORKLOAD: SECURE_WORKLOAD_BITS} if node.wanted.engine == "secure_workload" else {}
    fits_int32 = node.calico.fits_int32 if node.calico else True
    found = judge_packet_filters(Judged(filters, known, reserved, fits_int32))
    # The settings that make it so are a finding of the cluster's.
    told = "packet_filter.backends_differ" if _modes_conflict(node, proxy_mode) else ""
    return [{**item, "node": node.name} for item in found if item["id"] != told]


def _modes_conflict(node: Node, proxy_mode: str) -> bool:
    """Whether Felix's configuration and kube-proxy's mode want two backends."""
    conflicts = proxy_conflicts(node.calico.version, node.calico.config, proxy_mode) if node.calico else {}
    return not {"calico.nftables_mode", "calico.nftables_version"}.isdisjoint(conflicts)


def _felix(node: Node, filters: PacketFilters, proxy_mode: str) -> Felix:
    """Felix as the cluster configures it; where it chooses the backend itself, by what it wrote on the node."""
    ipvs = proxy_mode == "ipvs"
    if node.calico is None:
        return Felix(ipvs=ipvs)
    backends = filters.backends(FELIX)
    nftables = NATIVE in backends if backends else None
    return felix_of(node.calico.version, node.calico.config, nftables=nftables, ipvs=ipvs)


def packet_filter_rules_unseen(node: Node) -> str | None:
    """Rules of a node of the cluster that could not be read, so that nothing is known of their order and marks."""
    rules = node.probe.get("packet_filter_rules") or {}
    return rules.get("unseen") or None if node.in_cluster and node.is_root else None


def kubelet_down(node: Node) -> str | None:
    """A node of the cluster whose kubelet does not say that it is healthy.

    Where nothing listens (healthzPort 0, or another address) the API server tells: kubelet reports Ready to it.
    """
    kubelet = node.probe["kubelet"]
    is_elsewhere = kubelet["active"] and node.is_ready and "refused" in kubelet["error"]
    if not node.in_cluster or kubelet["healthy"] or is_elsewhere:
        return None
    return f"kubelet.service {'is' if kubelet['active'] else 'is not'} active; healthz: {kubelet['error']}"


def kube_proxy_unknown(node: Node) -> str | None:
    """A node of the cluster whose live kube-proxy mode cannot be read."""
    proxy = node.probe["kube_proxy"]
    is_expected = node.in_cluster and not node.proxy_replaced
    return f"no answer: {proxy['error']}" if is_expected and not proxy["mode"] else None


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
    if node.probe["system"]["container"] or not node.sees_units:
        return None
    if clock["synchronised"] is not False or clock["service"]:
        return None
    return "the kernel says unsynchronised and no time service is active"


def disks_to_write(node: Node) -> list[dict]:
    """The directories that a run would write to on this node."""
    skipped = set() if node.uses_containerd else {"/var/lib/containerd"}
    if not needs_edit(node):
        skipped.add(node.containerd.get("config_directory"))
    return [disk for disk in node.probe["disks"] if disk["path"] not in skipped]


def unwritable_disk(node: Node) -> str | None:
    """Directories that cannot be written, whatever room there is."""
    found = []
    for disk in disks_to_write(node):
        if disk.get("obstacle"):
            found.append(f"{disk['path']}: {disk['obstacle']} is there and is not a directory")
        elif disk["read_only"]:
            found.append(f"{disk['path']} is on a read-only file system")
    return "; ".join(found) or None


def little_disk(node: Node) -> str | None:
    """Directories with too little room for what will be written."""
    short = []
    for disk in disks_to_write(node):
        is_config = disk["path"] == node.containerd.get("config_directory")
        needed = DISK_NEEDED.get("/etc" if is_config else disk["path"], DISK_NEEDED_ELSEWHERE)
        if disk["read_only"]:
            continue
        if disk["free_bytes"] < needed:
            short.append(f"{disk['path']} has {disk['free_bytes'] // MIB} MiB free of {needed // MIB} MiB needed")
        elif disk["free_inodes"] is not None and disk["free_inodes"] < INODES_NEEDED:
            short.append(f"{disk['path']} has {disk['free_inodes']} inodes free of {INODES_NEEDED} needed")
    return "; ".join(short) or None
