# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the settings of a node must be: rows of the table of checks (requirements.py), a predicate for each.

Only what this cluster and engine use is demanded. A probe that is older than a section has nothing wrong with it.
"""

from __future__ import annotations

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cni_providers import chosen, leftovers, providers_in
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kernel_observations import encapsulates, uses_wireguard
from ansible_collections.portcullis.fleet.plugins.plugin_utils.network_manager import PODS_DEVICE, claimed, of_kinds
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_observations import Node, version_tuple
from ansible_collections.portcullis.fleet.plugins.plugin_utils.os_matrix import is_listed

NODE = "calico/Node Requirements"
PLUG_IN = "calico/Plug-in"
# Kubelets up to here have dockershim, whose flag --network-plugin is; with any other runtime CNI is the only way.
# Source: Kubernetes 1.24, removal of dockershim.
LAST_NETWORK_PLUGIN = (1, 23)
OTHER_RUNTIME = "remote"
# kubelet's own, where neither flag nor file says. Source: KubeletConfiguration, cgroupDriver.
DEFAULT_DRIVER = "cgroupfs"
# From here kubelet asks the runtime for the cgroup driver, which containerd answers from 2.0 on. Source: Kubernetes,
# feature gate KubeletCgroupDriverFromCRI.
ASKS_FOR_DRIVER, ANSWERS_DRIVER = (1, 31), (2, 0)
# From here kubelet does not start on cgroup v1 unless it is told to. Source: Kubernetes, failCgroupV1.
REFUSES_CGROUP_V1 = (1, 35)


def _settings(node: Node, section: str) -> dict | None:
    """A section of what was read of the node's settings, where the node is one of the cluster and root could look."""
    settings = node.probe.get("settings") or {}
    return settings.get(section) if node.in_cluster and node.is_root else None


def _files(node: Node) -> list[dict]:
    """The network configurations of a containerd that says where it looks for them and for programs."""
    cni = _settings(node, "cni")
    return cni["files"] if cni and node.uses_containerd and node.containerd["config"] else []


def _has_calico(node: Node) -> bool:
    first = chosen(_files(node))
    return node.calico is not None or bool(first and "calico" in providers_in(first))


def calico_devices(node: Node) -> list[str]:
    """The devices that Calico makes on this node, one of each kind."""
    found = [PODS_DEVICE] if _has_calico(node) else []
    if encapsulates(node, "ipip"):
        found.append("tunl0")
    if encapsulates(node, "vxlan"):
        found.append("vxlan.calico")
    return [*found, *(["wireguard.cali"] if uses_wireguard(node) else [])]


def devices_of_network_manager(node: Node) -> str | None:
    """Devices of Calico that NetworkManager manages, or would when they come up."""
    manager = _settings(node, "network_manager")
    devices = calico_devices(node)
    if not manager or not devices:
        return None
    live = of_kinds(manager["managed"], devices)
    if live:
        return f"NetworkManager manages {', '.join(live[:3])}{' and more' if len(live) > 3 else ''}"
    # udev's rules go by kind, so one such device tells of all.
    devices = [name for name in devices if not of_kinds(manager["kept_off"], [name])]
    names = ["cali*" if name == PODS_DEVICE else name for name in claimed(manager["settings"], devices)]
    return f"NetworkManager is active and its files leave {', '.join(names)} to it" if names else None


def other_network_plugin(node: Node) -> str | None:
    """A kubelet that can have another network plugin than CNI, and has: one up to 1.23, with dockershim."""
    kubelet = _settings(node, "kubelet")
    version = version_tuple(node.kubelet_version)
    if not kubelet or version is None or version > LAST_NETWORK_PLUGIN:
        return None
    plugin = kubelet["flags"].get("network-plugin", "")
    if kubelet["flags"].get("container-runtime") == OTHER_RUNTIME:
        return None
    return None if plugin == "cni" else f"kubelet {node.kubelet_version} runs with --network-plugin={plugin or 'none'}"


def no_privileged_pods(node: Node) -> str | None:
    """A kubelet that is told to refuse privileged pods. From 1.15 on there is no such flag, and admission decides."""
    kubelet = _settings(node, "kubelet")
    refuses = kubelet and kubelet["flags"].get("allow-privileged", "").lower() == "false"
    return "kubelet runs with --allow-privileged=false" if refuses else None


def cgroup_drivers_differ(node: Node) -> str | None:
    """A kubelet and a containerd that name the cgroups of pods by different rules: pods fail, or lose their limits."""
    kubelet, config = _settings(node, "kubelet"), node.containerd.get("config") or {}
    runtime = config.get("systemd_cgroup", {}).get(config.get("default_runtime", ""))
    if not kubelet or runtime is None or not node.uses_containerd:
        return None
    is_asked = (version_tuple(node.kubelet_version) or (0, 0)) >= ASKS_FOR_DRIVER
    if is_asked and (version_tuple(node.containerd["cri"]["version"]) or (0, 0)) >= ANSWERS_DRIVER:
        return None
    wanted = kubelet["flags"].get("cgroup-driver") or kubelet["config"].get("cgroupDriver")
    wanted = wanted or (DEFAULT_DRIVER if kubelet["complete"] else None)
    found = "systemd" if runtime else "cgroupfs"
    if wanted in (None, found):
        return None
    return f"kubelet's driver is {wanted}, containerd's {found} (runtime {config['default_runtime']})"


def cgroup_v1_refused(node: Node) -> str | None:
    """A node with cgroup v1 for a kubelet that does not start on it. One that runs well was told to."""
    version = version_tuple(node.kubelet_version)
    cgroup = (node.probe.get("kernel_features") or {}).get("cgroup", {}).get("version", "")
    if not node.in_cluster or version is None or version < REFUSES_CGROUP_V1 or cgroup not in {"1", "hybrid"}:
        return None
    is_told = ((_settings(node, "kubelet") or {}).get("config") or {}).get("failCgroupV1") == "false"
    if is_told or node.probe["kubelet"]["healthy"]:
        return None
    return f"cgroup {'v1' if cgroup == '1' else cgroup}, and kubelet {node.kubelet_version} starts on v2 only"


def second_provider(node: Node) -> str | None:
    """Files of another network provider beside those of the one that pods get."""
    files = _files(node)
    first, others = chosen(files), leftovers(files)
    if not first or not others:
        return None
    names = ", ".join(f"{item['name']} ({'+'.join(providers_in(item))})" for item in others)
    own = providers_in(first) or first["types"][:1]
    return f"pods get {'+'.join(own)} ({first['name']}); beside it lie {names}"


def broken_network_file(node: Node) -> str | None:
    """A network configuration that the runtime cannot use, where it is the first of its directory."""
    files = _files(node)
    return f"{files[0]['name']}: {files[0]['error']}" if files and files[0]["error"] else None


def missing_plugins(node: Node) -> str | None:
    """Plugins that the deciding file calls and that are not there: no pod with an address of its own starts."""
    first = chosen(_files(node))
    if not first or not first["missing"]:
        return None
    programs = ", ".join(_settings(node, "cni")["programs"])
    return f"{first['name']} calls {', '.join(first['missing'])}, which {programs} does not have"


def no_nri(node: Node) -> str | None:
    """A node where the agent of Runtime Enforcer cannot be told of containers before they start."""
    nri = _settings(node, "nri")
    if node.wanted.engine != "runtime_enforcer" or not nri or nri["listening"]:
        return None
    crio = _settings(node, "crio") or {}
    if node.uses_containerd and node.containerd["cri"]["serving"]:
        return f"nothing listens on {nri['socket']}, containerd {node.containerd['cri']['version']}"
    return f"nothing listens on {nri['socket']}, CRI-O {crio['version']}" if crio.get("version") else None


def unlisted_system(node: Node) -> str | None:
    """An operating system that is not in the list of the engine's agent."""
    matrix, system = node.wanted.os_matrix, node.probe["system"]["os"]
    if matrix is None or is_listed(matrix, node.wanted.engine, system):
        return None
    name = system["pretty_name"] or f"{system['id']} {system['version_id']}".strip() or "no os-release"
    return f"{name} is not in {matrix.place} (as of {matrix.as_of})"


# id, severity, requirement, expected, remedy, predicate, and what to do when it is still so after a run.
SETTINGS_ROWS = (
    (
        "node.network_manager",
        WARNING,
        NODE,
        "NetworkManager leaves Calico's interfaces alone",
        "run playbooks/site.yml --tags fix, which writes /etc/NetworkManager/conf.d/calico.conf",
        devices_of_network_manager,
    ),
    (
        "node.operating_system",
        WARNING,
        "secure-workload/Requirements and Prerequisites",
        "an operating system of the agent's support matrix",
        "compare with the matrix of your release; waive it (portcullis_accept), or replace the list with "
        "portcullis_os_matrix",
        unlisted_system,
    ),
    (
        "kubelet.network_plugin",
        BLOCKER,
        PLUG_IN,
        "--network-plugin=cni, for a kubelet up to 1.23",
        "on the node: set --network-plugin=cni among kubelet's arguments and restart it",
        other_network_plugin,
    ),
    (
        "kubelet.privileged_refused",
        BLOCKER,
        "calico/Privileges",
        "kubelet lets privileged pods run",
        "on the node: remove --allow-privileged=false from kubelet's arguments and restart it",
        no_privileged_pods,
    ),
    (
        "kubelet.cgroup_driver",
        BLOCKER,
        "calico/Kubernetes Requirements",
        "kubelet and containerd use the same cgroup driver",
        "set SystemdCgroup of containerd's runtime (portcullis_containerd_settings) and kubelet's cgroupDriver alike",
        cgroup_drivers_differ,
    ),
    (
        "kubelet.cgroup_version",
        BLOCKER,
        "calico/Kubernetes Requirements",
        "cgroup v2 for kubelet 1.35 and newer",
        "boot the node with cgroup v2 (systemd.unified_cgroup_hierarchy=1), or set failCgroupV1: false for kubelet",
        cgroup_v1_refused,
    ),
    (
        "cni.second_provider",
        WARNING,
        "calico/Other network providers",
        "files of one network provider",
        "on the node: move the other provider's files out of the directory, and remove what else is left of it",
        second_provider,
    ),
    (
        "cni.invalid",
        BLOCKER,
        PLUG_IN,
        "a network configuration that the runtime can use comes first",
        "on the node: mend or remove the file",
        broken_network_file,
    ),
    (
        "cni.missing_binary",
        BLOCKER,
        PLUG_IN,
        "a program for each plugin that the network configuration calls",
        "install the plugins there, or restart the network plugin's pod, which copies its own",
        missing_plugins,
    ),
    (
        "nri.not_listening",
        WARNING,
        "runtime-enforcer/Require the agent before a workload starts",
        "a runtime that takes NRI plugins: containerd 1.7 or CRI-O 1.26 and newer, with NRI on",
        "containerd: set portcullis_containerd_nri: enabled and run site.yml (1.6 has to be upgraded first); CRI-O: "
        "set enable_nri = true in [crio.nri] and restart it, on OpenShift by a MachineConfig",
        no_nri,
        "set portcullis_containerd_nri: enabled and run site.yml for the node",
    ),
)
