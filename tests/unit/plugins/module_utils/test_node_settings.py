# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of a node's settings, from files of our own below another root."""

from __future__ import annotations

import socket as socket_module

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
    root.put("/run/udev/data/n2", "I:1\nE:NM_UNMANAGED=1\n")

    found = read_network_manager(ACTIVE, root.path)

    assert [item["section"] for item in found["settings"]] == ["device", "keyfile"]
    assert (found["managed"], found["kept_off"]) == (["eth0"], ["cali1"])
    assert read_network_manager({}, root.path) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[keyfile]\nunmanaged-devices+=type:veth\n", [{"unmanaged-devices+": "type:veth"}]),
        ("[keyfile]\n# unmanaged-devices=a\n", []),
        ("[connection]\nipv6.ip6-privacy=0\n", []),
        ("unmanaged-devices=a", []),
        ("[.config]\nenable=false\n[keyfile]\nunmanaged-devices=a\n", []),
        ("[.config]\nenable=nm-version-min:1.2\n[keyfile]\nunmanaged-devices=a\n", [{"unmanaged-devices": "a"}]),
        ("[keyfile]\n  unmanaged-devices = a ; b\n", [{"unmanaged-devices": "a ; b"}]),
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
        (
            '{"kind":"KubeletConfiguration","failCgroupV1":false,"cgroupDriver":"systemd"}',
            {"cgroupDriver": "systemd", "failCgroupV1": "false"},
        ),
        ('{"cgroupDriver": null, "x": {"failCgroupV1": false}}', {}),
        ("{kind: KubeletConfiguration, cgroupDriver: systemd}", {"cgroupDriver": "systemd"}),
        ("# cgroupDriver: systemd\n", {}),
        ("cgroupDriver: 'systemd' # as containerd\n", {"cgroupDriver": "systemd"}),
        ("", {}),
    ],
)
def test_keys_of_a_kubelets_file(text, expected):
    assert scalars(text) == expected


def test_a_kubelet_without_a_process():
    assert read_kubelet("") is read_kubelet("0") is read_kubelet("4194999") is None


@pytest.mark.parametrize("argv", [["/bin/sh", "-c", "kubelet"], ["/usr/local/bin/k3s", "server"], []])
def test_another_program_is_no_kubelet(monkeypatch, argv):
    monkeypatch.setattr(node_settings, "command_line", lambda pid: argv)

    assert read_kubelet("12") is None


def test_flags_of_a_kubelet(root, monkeypatch):
    argv = ["/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml", "--network-plugin", "cni", "--token=secret"]
    monkeypatch.setattr(node_settings, "command_line", lambda pid: argv)
    root.put("/var/lib/kubelet/config.yaml", "cgroupDriver: systemd\n")

    found = read_kubelet("12", root.path)
    assert (found["flags"], found["config"]) == ({"network-plugin": "cni"}, {"cgroupDriver": "systemd"})
    assert found["complete"]
    argv += ["--cgroup-driver=cgroupfs", "--cgroup-driver", "systemd"]  # kubeadm's own, and KUBELET_EXTRA_ARGS
    assert read_kubelet("12", root.path)["flags"]["cgroup-driver"] == "systemd"
    argv.append("--config-dir=/etc/kubelet.d")
    assert not read_kubelet("12", root.path)["complete"]
    del argv[-1], argv[1]
    assert read_kubelet("12", root.path)["complete"]
    argv.append("--config=/none")
    assert not read_kubelet("12", root.path)["complete"]


@pytest.mark.parametrize(
    ("name", "text", "types", "error"),
    [
        ("a.conf", '{"name": "n", "type": "bridge"}', ["bridge"], ""),
        ("a.json", '{"name": "n", "type": "bridge", "ipam": null}', ["bridge"], ""),
        (
            "a.conflist",
            '{"name": "n", "plugins": [{"type": "calico"}, {"type": "portmap"}]}',
            ["calico", "portmap"],
            "",
        ),
        ("a.conflist", '{"plugins": []}', [], "calls no plugin"),
        ("a.conflist", '{"name": "n", "type": "bridge"}', [], "has no plugins"),
        ("a.conf", '{"name": "n", "plugins": [{"type": "bridge"}]}', [], "has no type"),
        ("a.conf", "[]", [], "'list' object has no attribute 'get'"),
        ("a.conflist", '{"plugins": 3}', [], "'int' object is not iterable"),
        ("a.conflist", '{"plugins": [null]}', [], "'NoneType' object is not subscriptable"),
        ("a.conf", "", [], "Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_a_network_configuration(name, text, types, error):
    found = cni_file(name, text)

    assert (found["types"], found["error"]) == (types, error)


def test_network_configurations_in_the_runtimes_order(root):
    """Only names that a runtime loads; a plugin without a program is told."""
    root.put("/srv/net/10-a.conflist", '{"name": "n", "plugins": [{"type": "bridge"}, {"type": "gone"}]}')
    root.put("/srv/net/20-b.conf", '{"name": "n", "type": "bridge", "ipam": {"type": "host-local"}}')
    root.put("/srv/net/README", "")
    root.put("/usr/lib/cni/bridge", "")

    found = read_cni({"conf_dir": "/srv/net", "bin_dirs": ["/opt/cni/bin", "/usr/lib/cni"]}, root.path)

    assert [(item["name"], item["missing"]) for item in found["files"]] == [
        ("10-a.conflist", ["gone"]),
        ("20-b.conf", ["host-local"]),
    ]
    assert read_cni({}, root.path)["files"] == []


SOCKETS = """Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 21001 /run/nri/nri.sock
0000000000000000: 00000003 00000000 00000000 0001 03 21002 /run/old.sock
0000000000000000: 00000003 00000000 00000000 0001 03 21003
0000000000000000: 00000002 00000000 00010000 0005 01 21004 @/org/abstract
"""


@pytest.mark.parametrize(
    ("socket", "listening"),
    [("/run/nri/nri.sock", True), ("/var/run/nri/nri.sock", True), ("", True), ("/run/old.sock", False)],
)
def test_who_listens_is_asked_of_the_kernel(root, socket, listening):
    root.put("/proc/net/unix", SOCKETS)

    assert read_nri({"socket_path": socket} if socket else {}, root.path)["listening"] is listening


def test_a_socket_of_this_machine(tmp_path):
    path = str(tmp_path / "nri.sock")
    with socket_module.socket(socket_module.AF_UNIX) as listener:
        listener.bind(path)
        assert not read_nri({"socket_path": path})["listening"]
        listener.listen(1)
        assert read_nri({"socket_path": path})["listening"]
    assert not read_nri({"socket_path": path})["listening"]


def test_a_crio_that_does_not_answer(tmp_path):
    assert read_crio(str(tmp_path / "crio.sock"))["error"]
