# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A setting that stands in the way is a finding where it does, and nowhere else."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_observations import Node, Wanted
from ansible_collections.portcullis.fleet.plugins.plugin_utils.os_matrix import OsMatrix
from ansible_collections.portcullis.fleet.plugins.plugin_utils.requirements import evaluate_node
from ansible_collections.portcullis.fleet.plugins.plugin_utils.settings_requirements import SETTINGS_ROWS

from .kernel_problems import calico
from .probes import BUSYBOX, probe_with
from .settings_problems import CALICO, DEAD, FLANNEL, MATRIX, SETTINGS_PROBLEMS, cni, manager

OWN = {row[0] for row in SETTINGS_ROWS}


def found_on(changes: dict, **node: object) -> list[dict]:
    """The findings about settings of a node; C(engine) and C(os_matrix) are what was asked for."""
    asked = {name: node.pop(name) for name in ("engine", "os_matrix") if name in node}
    path = "/etc/containerd/certs.d"
    wanted = Wanted(**{"engine": "native", "registry_config_path": path, "images": (BUSYBOX,), **asked})
    judged = Node(**{"name": "w1", "in_cluster": True, "probe": probe_with(**changes), "wanted": wanted, **node})
    return [item for item in evaluate_node(judged) if item["id"] in OWN]


@pytest.mark.parametrize(("finding_id", "node", "changes", "words"), SETTINGS_PROBLEMS.values(), ids=SETTINGS_PROBLEMS)
def test_each_problem_is_one_finding_that_says_what_was_found(finding_id, node, changes, words):
    (found,) = found_on(changes, **node)

    assert found["id"] == finding_id
    assert words in found["observed"]


ALL_OFF = manager("interface-name:cali*;interface-name:tunl*,interface-name:vxlan.calico")


@pytest.mark.parametrize(
    ("node", "changes"),
    [
        ({"calico": calico()}, {"settings__network_manager": ALL_OFF}),
        ({"calico": calico("v3.27.0", "ipip", "vxlan")}, {"settings__network_manager": ALL_OFF}),
        ({}, {"settings__network_manager": manager(), "settings__cni__files": [FLANNEL]}),
        ({"in_cluster": False}, {"settings__network_manager": manager(), "settings__cni__files": [CALICO, FLANNEL]}),
        ({"kubelet_version": "v1.24.0"}, {"settings__kubelet__flags": {}}),
        ({"kubelet_version": "v1.23.0"}, {"settings__kubelet__flags": {"network-plugin": "cni"}}),
        ({"kubelet_version": "v1.23.0"}, {"settings__kubelet__flags": {"container-runtime": "remote"}}),
        ({"kubelet_version": "v1.23.0"}, {"settings__kubelet": None}),
        ({"calico": calico()}, {"settings__network_manager": manager(kept_off=("cali0a1b", "veth0"))}),
        (
            {"calico": calico()},
            {"settings__network_manager": manager("interface-name:cali*", managed=("tunl0", "eth0"))},
        ),
        ({}, {"settings__kubelet__flags": {"allow-privileged": "true"}}),
        (
            {"kubelet_version": "v1.34.0"},
            {"containerd__config__systemd_cgroup": {"runc": False}, "containerd__cri__version": "2.2.9"},
        ),
        (
            {"kubelet_version": ""},
            {"settings__kubelet": {"flags": {}, "config": {}, "complete": False}},
        ),
        ({}, {"containerd__config__default_runtime": "kata"}),
        ({"kubelet_version": "v1.35.0"}, {"kernel_features__cgroup": {"version": "1"}}),
        (
            {"kubelet_version": "v1.35.0"},
            {
                "kernel_features__cgroup": {"version": "1"},
                "kubelet": DEAD,
                "settings__kubelet__config": {"cgroupDriver": "systemd", "failCgroupV1": "false"},
            },
        ),
        ({"kubelet_version": "v1.34.0"}, {"kernel_features__cgroup": {"version": "hybrid"}, "kubelet": DEAD}),
        ({}, {"settings__cni__files": [cni("10-canal.conflist", "calico", "portmap", "bandwidth"), FLANNEL]}),
        ({}, {"settings__cni__files": [CALICO, cni("87-podman.conflist", "bridge", "portmap")]}),
        ({}, {"settings__cni__files": [cni("00-multus.conf", "multus"), CALICO]}),
        # Where the daemon looks for programs is not known then, and its configuration is a finding itself.
        (
            {},
            {
                "containerd__config": {},
                "settings__cni__files": [cni("10-calico.conflist", "calico", missing=["calico"])],
            },
        ),
        ({}, {"settings__cni__files": [cni("05-x.conflist", "aws-cni", "cilium-cni"), cni("10-aws.conf", "aws-cni")]}),
        ({}, {"settings__cni__files": [cni("00-lo.conf", "loopback"), CALICO]}),
        ({}, {"settings__cni__files": [CALICO, cni("99-x.conf", error="broken")]}),
        ({}, {"settings__cni__files": []}),
        ({"engine": "runtime_enforcer"}, {}),
        ({"engine": "runtime_enforcer"}, {"containerd__cri__serving": False, "settings__nri__listening": False}),
        ({"engine": "native", "os_matrix": MATRIX}, {}),
        (
            {"engine": "secure_workload", "os_matrix": OsMatrix({"secure_workload": {"debian": ["12"]}}, "", "")},
            {"settings__cni__files": [CALICO]},
        ),
    ],
    ids=[
        "NetworkManager keeps off",
        "and off tunnels",
        "NetworkManager without Calico",
        "a plain host",
        "newer kubelets know CNI alone",
        "cni",
        "another runtime than docker",
        "kubelet is a part of k3s",
        "udev keeps it off",
        "what Calico does not use",
        "allowed",
        "containerd says the driver",
        "no driver is set",
        "a runtime without the option",
        "it runs on v1, so it was told to",
        "told to start on v1",
        "older kubelets start on v1",
        "canal is calico and flannel by design",
        "podman's own bridge",
        "multus calls the next",
        "no configuration to go by",
        "chained by design",
        "loopback is no network",
        "what is broken behind the first",
        "no file",
        "NRI listens",
        "a CRI that does not serve is another finding",
        "no list for the engine",
        "the operating system is listed",
    ],
)
def test_what_is_as_it_may_be(node, changes):
    assert found_on(changes, **node) == []


def test_crio_needs_no_containerd():
    """What a run would change is containerd's; a CRI-O that does not answer is a finding."""
    crio = {"socket": "/var/run/crio/crio.sock", "version": "1.34.1", "error": ""}
    absent = {"containerd": {"present": False, "other_runtime": "crio"}}
    wanted = Wanted(engine="native", registry_config_path="", images=(BUSYBOX,))

    def ids(answer: dict) -> list[str]:
        probe = probe_with(**absent, settings__crio=answer)
        return [item["id"] for item in evaluate_node(Node("w1", True, probe, wanted))]

    assert ids(crio) == []
    assert ids({**crio, "version": "", "error": "UNAVAILABLE: no such file"}) == ["containerd.missing"]


def test_a_probe_of_before_settings_were_read_is_judged_without_them():
    probe = probe_with()
    del probe["settings"]
    wanted = Wanted(engine="runtime_enforcer", registry_config_path="", images=(BUSYBOX,))

    assert [item["id"] for item in evaluate_node(Node("w1", True, probe, wanted)) if item["id"] in OWN] == []
