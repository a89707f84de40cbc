# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of a node's settings, from files of our own below another root."""

from __future__ import annotations

import os

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import node_settings
from ansible_collections.portcullis.fleet.plugins.module_utils.node_settings import (
    cni_file,
    device_settings,
    network_manager_files,
    read_cni,
    read_crio,
    read_kubelet,
    read_network_manager,
    read_nri,
    scalars,
)

ACTIVE = {"NetworkManager.service": {"ActiveState": "active"}}
LIB, RUN, ETC = node_settings.NETWORK_MANAGER_DIRECTORIES


@pytest.fixture
def root(tmp_path):
    """Write files below a root: C(root.put(path, text))."""

    class Root:
        path = str(tmp_path)

        @staticmethod
        def put(path: str, text: str) -> None:
            file = tmp_path / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    return Root


def test_files_of_network_manager_in_their_order(root):
    """Packages, this boot, the main file, the administrator; a name hides the same name before it."""
    for path in (f"{LIB}/10-a.conf", f"{LIB}/20-b.conf", f"{RUN}/15-c.conf", f"{ETC}/20-b.conf", f"{ETC}/x.txt"):
        root.put(path, "")

    assert network_manager_files(root.path) == [
        f"{LIB}/10-a.conf",
        f"{RUN}/15-c.conf",
        node_settings.NETWORK_MANAGER_MAIN,
        f"{ETC}/20-b.conf",
    ]


def test_network_manager_and_the_devices_that_it_manages(root):
    root.put(f"{ETC}/calico.conf", "[keyfile]\nunmanaged-devices=interface-name:cali*;interface-name:tunl*\n")
    root.put(node_settings.NETWORK_MANAGER_MAIN, "[main]\nplugins=keyfile\n[device]\nmanaged=1\n")
    for index, (name, managed) in enumerate({"eth0": "true", "cali1": "false"}.items(), 1):
        root.put(f"/sys/class/net/{name}/ifindex", f"{index}\n")
        root.put(f"/run/NetworkManager/devices/{index}", f"[device]\nmanaged={managed}\n")
    root.put("/sys/class/net/new/ifindex", "9\n")

    found = read_network_manager(ACTIVE, root.path)

    assert [item["section"] for item in found["settings"]] == ["device", "keyfile"]
    assert found["managed"] == ["eth0"]
    assert read_network_manager({}, root.path) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[keyfile]\nunmanaged-devices+=type:veth\n", [{"unmanaged-devices+": "type:veth"}]),
        ("[keyfile]\n# unmanaged-devices=a\n", []),
        ("[connection]\nipv6.ip6-privacy=0\n", []),
        ("unmanaged-devices=a", []),
        ("[keyfile\n", []),
        ("[802-1x]\npassword=secret\n", []),
    ],
)
def test_only_what_concerns_devices_leaves_the_node(text, expected):
    assert [item["values"] for item in device_settings("f", text)] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "kind: KubeletConfiguration\ncgroupDriver: systemd\nfailCgroupV1: false\n",
            {"cgroupDriver": "systemd", "failCgroupV1": "false"},
        ),
        ('{"kind": "KubeletConfiguration",\n  "cgroupDriver": "cgroupfs"}', {"cgroupDriver": "cgroupfs"}),
        ("# cgroupDriver: systemd\n", {}),
        ("cgroupDriver: 'systemd' # as containerd\n", {"cgroupDriver": "systemd"}),
        ("", {}),
    ],
)
def test_keys_of_a_kubelets_file(text, expected):
    assert scalars(text) == expected


def test_a_kubelet_without_a_process():
    empty = {"flags": {}, "config": {}}

    assert read_kubelet("") == read_kubelet("0") == read_kubelet("4194999") == empty


def test_flags_of_a_kubelet(root, monkeypatch):
    argv = ["/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml", "--network-plugin", "cni", "--token=secret"]
    monkeypatch.setattr(node_settings, "command_line", lambda pid: argv)
    root.put("/var/lib/kubelet/config.yaml", "cgroupDriver: systemd\n")

    assert read_kubelet("12", root.path) == {"flags": {"network-plugin": "cni"}, "config": {"cgroupDriver": "systemd"}}


@pytest.mark.parametrize(
    ("text", "types", "error"),
    [
        ('{"name": "n", "type": "bridge"}', ["bridge"], ""),
        ('{"name": "n", "plugins": [{"type": "calico"}, {"type": "portmap"}]}', ["calico", "portmap"], ""),
        ('{"plugins": []}', [], ""),
        ('{"name": "n"}', [], "a plugin without a type"),
        ("[]", [], "'list' object has no attribute 'get'"),
        ('{"plugins": 3}', [], "'int' object is not iterable"),
        ("", [], "Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_a_network_configuration(text, types, error):
    found = cni_file(text)

    assert (found["types"], found["error"]) == (types, error)


def test_network_configurations_in_the_runtimes_order(root):
    """Only names that a runtime loads; a plugin without a program is told."""
    for name in ("20-b.conf", "10-a.conflist", "README"):
        root.put(f"/srv/net/{name}", '{"name": "n", "plugins": [{"type": "bridge"}, {"type": "gone"}]}')
    root.put("/usr/lib/cni/bridge", "")

    found = read_cni({"conf_dir": "/srv/net", "bin_dirs": ["/opt/cni/bin", "/usr/lib/cni"]}, root.path)

    assert [(item["name"], item["missing"]) for item in found["files"]] == [
        ("10-a.conflist", ["gone"]),
        ("20-b.conf", ["gone"]),
    ]
    assert read_cni({}, root.path)["files"] == []


def test_nobody_listens(tmp_path):
    socket = os.path.join(tmp_path, "nri.sock")

    assert read_nri({"socket_path": socket}) == {"socket": socket, "listening": False}
    assert read_crio(socket)["error"]
