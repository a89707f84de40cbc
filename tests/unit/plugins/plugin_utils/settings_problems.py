# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What provokes each check of a node's settings: its finding, the node, what is wrong with the probe."""

from __future__ import annotations

from ansible_collections.portcullis.fleet.plugins.plugin_utils.os_matrix import OsMatrix

from .kernel_problems import calico

MATRIX = OsMatrix({"secure_workload": {"rhel": ["9"]}}, "2026-11", "os_matrix.yml")


def cni(name: str, *types: str, error: str = "", missing: tuple[str, ...] = ()) -> dict:
    """One network configuration as the probe has it."""
    return {"name": name, "network": "n", "types": list(types), "missing": list(missing), "error": error}


CALICO = cni("10-calico.conflist", "calico", "bandwidth", "portmap")
FLANNEL = cni("20-flannel.conflist", "flannel", "portmap")


def manager(value: str = "", *, managed: tuple[str, ...] = (), kept_off: tuple[str, ...] = ()) -> dict:
    """NetworkManager at work, with one setting."""
    values = {"unmanaged-devices": value}
    settings = [{"file": "/etc/NetworkManager/conf.d/a.conf", "section": "keyfile", "values": values}]
    return {"settings": settings if value else [], "managed": list(managed), "kept_off": list(kept_off)}


DEAD = {"active": True, "healthy": False, "error": "refused"}

# id, fields of the node (engine, os_matrix of Wanted), changes of the probe, words of the finding
SETTINGS_PROBLEMS = {
    "NetworkManager without a setting": (
        "node.network_manager",
        {"calico": calico()},
        {"settings__network_manager": manager()},
        "leave cali* to it",
    ),
    "NetworkManager keeps off cali* only": (
        "node.network_manager",
        {"calico": calico("v3.27.0", "ipip", "vxlan")},
        {"settings__network_manager": manager("interface-name:cali*")},
        "leave tunl0, vxlan.calico to it",
    ),
    "a live device is managed": (
        "node.network_manager",
        {"calico": calico()},
        {"settings__network_manager": manager("interface-name:cali*", managed=("eth0", "cali12ab34cd56e"))},
        "NetworkManager manages cali12ab34cd56e",
    ),
    "operating system": (
        "node.operating_system",
        {"engine": "secure_workload", "os_matrix": MATRIX},
        {},
        "Debian GNU/Linux 12 (bookworm) is not in os_matrix.yml (as of 2026-11)",
    ),
    "kubenet": (
        "kubelet.network_plugin",
        {"kubelet_version": "v1.23.17"},
        {"settings__kubelet__flags": {"network-plugin": "kubenet"}},
        "--network-plugin=kubenet",
    ),
    "no network plugin": ("kubelet.network_plugin", {"kubelet_version": "v1.23.17"}, {}, "--network-plugin=none"),
    "the kernel's bridge comes first": (
        "cni.second_provider",
        {},
        {"settings__cni__files": [cni("10-containerd-net.conflist", "bridge", "portmap"), FLANNEL]},
        "pods get bridge (10-containerd-net.conflist); beside it lie 20-flannel.conflist (flannel)",
    ),
    "kubelet's own driver": (
        "kubelet.cgroup_driver",
        {"kubelet_version": "v1.30.0"},
        {"settings__kubelet__config": {}},
        "kubelet's driver is cgroupfs, containerd's systemd",
    ),
    "CRI-O without NRI": (
        "nri.not_listening",
        {"engine": "runtime_enforcer"},
        {
            "containerd": {"present": False, "other_runtime": "crio"},
            "settings__crio": {"socket": "/var/run/crio/crio.sock", "version": "1.29.4", "error": ""},
            "settings__nri__listening": False,
        },
        "CRI-O 1.29.4",
    ),
    "privileged": (
        "kubelet.privileged_refused",
        {},
        {"settings__kubelet__flags": {"allow-privileged": "false"}},
        "--allow-privileged=false",
    ),
    "drivers": (
        "kubelet.cgroup_driver",
        {"kubelet_version": "v1.34.4"},
        {"containerd__config__systemd_cgroup": {"runc": False}},
        "kubelet's driver is systemd, containerd's cgroupfs (runtime runc)",
    ),
    "cgroup v1": (
        "kubelet.cgroup_version",
        {"kubelet_version": "v1.35.0"},
        {"kernel_features__cgroup": {"version": "1", "mounts": {}}, "kubelet": DEAD},
        "kubelet v1.35.0 starts on v2 only",
    ),
    "two providers": (
        "cni.second_provider",
        {},
        {"settings__cni__files": [CALICO, FLANNEL]},
        "pods get calico (10-calico.conflist); beside it lie 20-flannel.conflist (flannel)",
    ),
    "broken file": (
        "cni.invalid",
        {},
        {"settings__cni__files": [cni("05-a.conf", error="Expecting value: line 1 column 1 (char 0)"), CALICO]},
        "05-a.conf: Expecting value",
    ),
    "no program": (
        "cni.missing_binary",
        {},
        {"settings__cni__files": [cni("10-calico.conflist", "calico", missing=("calico",))]},
        "calls calico, which /opt/cni/bin does not have",
    ),
    "no NRI": (
        "nri.not_listening",
        {"engine": "runtime_enforcer"},
        {"settings__nri__listening": False},
        "nothing listens on /var/run/nri/nri.sock",
    ),
}
