# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import time

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import containerd_node
from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_node import (
    active_dependents,
    ask_cri,
    expand,
    find_binary,
    find_daemon,
    find_marks,
    imports_in,
    is_of_session,
    kubelet_endpoint,
    listener,
    loaded_config_path,
    read_files,
    read_sources,
    registry_keys,
    running_containers,
    socket_of,
    start_ticks,
    unit_of,
    version_of,
)

from tests.unit.plugins.module_utils.containerd_sandbox import AVAILABLE, Sandbox


def test_imports_are_followed_first_in_first_out(tmp_path):
    """The main file, then what it imports, then what those import; a file is read once."""
    (tmp_path / "d").mkdir()
    main = tmp_path / "config.toml"
    main.write_text(f'imports = ["{tmp_path}/d/*.toml", "b.toml"]\n')
    (tmp_path / "d" / "2.toml").write_text("")
    (tmp_path / "d" / "1.toml").write_text('imports = ["deep.toml"]\n')
    (tmp_path / "d" / ".hidden.toml").write_text("")
    (tmp_path / "d" / "deep.toml").write_text(f'imports = ["{main}"]\n')

    found = read_files(str(main))

    names = [os.path.relpath(item["path"], tmp_path) for item in found["files"]]
    assert names == ["config.toml", "d/.hidden.toml", "d/1.toml", "d/2.toml", "d/deep.toml", "b.toml"]
    assert found["files"][-1]["content"] is None
    assert found["relative_globs"] == []


def test_relative_globs_are_reported(tmp_path):
    """Older daemons look them up elsewhere, so the controller must know."""
    main = tmp_path / "config.toml"
    main.write_text('imports = ["d/*.toml"]\n')

    assert read_files(str(main))["relative_globs"] == [f"{main}: d/*.toml"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(None, [], id="absent"),
        pytest.param(b"\xff\xfe", [], id="not-text"),
        pytest.param(b"imports = [\n", [], id="not-toml"),
        pytest.param(b'imports = ["a"]\n', ["a"], id="one"),
        pytest.param(b'[x]\nimports = ["a"]\n', [], id="of-another-table"),
    ],
)
def test_imports_in(content, expected):
    """Only the imports of the root table count."""
    assert imports_in(content) == expected


REGISTRY = '[plugins."io.containerd.grpc.v1.cri".registry]\n'


@pytest.mark.parametrize(
    ("text", "named", "legacy"),
    [
        pytest.param(REGISTRY + 'config_path = "/c"\n', {"/c"}, False, id="path"),
        pytest.param(REGISTRY + "config_path = ''\n", set(), False, id="empty-path"),
        pytest.param(REGISTRY.replace("registry]", "registry.mirrors.a]"), set(), True, id="mirrors"),
        pytest.param(REGISTRY + "configs.a.tls = {}\n", set(), True, id="tls"),
        pytest.param(REGISTRY + 'configs.a.auth.auth = "x"\n', set(), False, id="auth"),
        pytest.param("[x\n", set(), False, id="not-toml"),
    ],
)
def test_registry_keys(text, named, legacy):
    """Whether hosts.toml files matter is known without judging the configuration."""
    assert registry_keys([{"content": base64.b64encode(text.encode()).decode()}]) == (named, legacy)


def test_expand_wildcard_directories(tmp_path):
    """A wildcard may stand in a directory's name, and [^x] negates."""
    for name in ("a1", "a2", "b1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.toml").write_text("")

    assert expand(f"{tmp_path}/a[^1]/*.toml") == [f"{tmp_path}/a2/x.toml"]
    assert expand(f"{tmp_path}/none/*.toml") == []


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param([b'[grpc]\naddress = "/run/a.sock"\n'], "/run/a.sock", id="grpc"),
        pytest.param([b'[plugins."io.containerd.server.v1.grpc"]\naddress = "/b"\n'], "/b", id="version-4"),
        pytest.param([b'[grpc]\naddress = "/a"\n', b'[grpc]\naddress = "/c"\n'], "/c", id="last-wins"),
        pytest.param([b'[grpc]\naddress = "/a"\n', b'[grpc]\naddress = ""\n'], "/a", id="empty-does-not"),
        pytest.param([b"[grpc\n"], "", id="not-toml"),
    ],
)
def test_socket_of(texts, expected):
    """The socket is where the files put it."""
    assert socket_of([{"content": base64.b64encode(text).decode()} for text in texts]) == expected


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        pytest.param({"config": '{"registry": {"configPath": "/c"}}'}, "/c", id="1.6"),
        pytest.param({"config": '{"registry": null}'}, None, id="no-registry"),
        pytest.param({"config": "{"}, None, id="damaged"),
        pytest.param({}, None, id="not-reported"),
    ],
)
def test_loaded_config_path(info, expected):
    """What a daemon does not report is unknown, not empty."""
    assert loaded_config_path(info) == expected


def test_active_dependents(monkeypatch):
    """Only units that run are restarted with containerd."""
    asked = []

    def answer(argv):
        asked.append(argv)
        return 0, "Id=docker.service\nActiveState=active\n\nId=off.service\nActiveState=inactive\n", ""

    monkeypatch.setattr(containerd_node, "run_command", answer)

    assert active_dependents({"RequiredBy": "off.service", "ConsistsOf": "docker.service"}) == ["docker.service"]
    assert active_dependents({"RequiredBy": "", "BoundBy": ""}) == []
    assert len(asked) == 1


@pytest.mark.skipif(not shutil.which("busybox"), reason="no program here that goes by several names")
def test_a_program_of_several_names_keeps_the_one_it_was_started_by(tmp_path):
    """k3s is containerd by the name that it is called; asked as k3s it would give the version of Kubernetes."""
    program, link = tmp_path / "k3s", tmp_path / "sleep"
    shutil.copy(shutil.which("busybox"), program)
    link.symlink_to("k3s")
    with subprocess.Popen([str(link), "60"]) as process:
        try:
            deadline = time.monotonic() + 10
            # The kernel closes the pipe that Popen waits for before it shows the new arguments.
            while time.monotonic() < deadline and containerd_node.command_line(process.pid)[0] != str(link):
                time.sleep(0.01)
            found = find_binary(process.pid)
        finally:
            process.kill()

    assert found == str(link)


def test_read_sources(tmp_path):
    """Only beside a file of k3s or RKE2, MicroK8s or k0s there are any; a missing one is said to be missing."""
    directory = tmp_path / "agent" / "etc" / "containerd"
    directory.mkdir(parents=True)
    (directory / "config-v3.toml.tmpl").write_text("{{")

    found = {item["path"]: item["content"] for item in read_sources(str(directory / "config.toml"))}

    assert found[str(directory / "config-v3.toml.tmpl")] == base64.b64encode(b"{{").decode()
    assert found[str(directory / "config.toml.tmpl")] is None
    assert {"/etc/rancher/k3s/registries.yaml", "/etc/rancher/rke2/registries.yaml"} < set(found)
    assert read_sources("/etc/containerd/config.toml") == []


def test_find_marks(tmp_path):
    """A backup beside the file, and Spegel's below a registry directory, are seen whatever else is read."""
    main, certs = tmp_path / "config.toml", tmp_path / "certs.d"
    (certs / "_backup").mkdir(parents=True)
    main.write_text(f'[plugins.cri.registry]\nconfig_path = "{certs}"\n')
    (tmp_path / "config.toml.bak").write_text("")

    assert find_marks(read_files(str(main)), "/none") == [f"{main}.bak", str(certs / "_backup")]
    assert find_marks(read_files(str(tmp_path / "other.toml")), str(certs)) == [str(certs / "_backup")]


def test_version_of(monkeypatch):
    """The version is the one in what the binary prints; a binary that fails has none."""
    printed = "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1\n"
    monkeypatch.setattr(containerd_node, "run_command", lambda argv: (0, printed, ""))

    assert version_of("/usr/bin/containerd") == "1.6.20~ds1"
    assert version_of("") == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("0::/system.slice/containerd.service\n", "containerd.service", id="v2"),
        pytest.param("4:memory:/x\n1:name=systemd:/system.slice/k3s.service\n", "k3s.service", id="v1"),
        pytest.param("0::/n1/system.slice/k8s-containerd.service/payload\n", "k8s-containerd.service", id="nested"),
        pytest.param("0::/init.scope\n", "", id="no-service"),
        pytest.param("", "", id="gone"),
    ],
)
def test_unit_of(text, expected):
    """The unit that runs a process is in its cgroup."""
    assert unit_of(text) == expected


@pytest.mark.parametrize(
    ("argv", "config", "expected"),
    [
        pytest.param(["kubelet", "--container-runtime-endpoint=unix:///run/a.sock"], "", "/run/a.sock", id="flag"),
        pytest.param(["kubelet"], "containerRuntimeEndpoint: unix:///run/b.sock\n", "/run/b.sock", id="config"),
        pytest.param(["kubelet"], 'x: 1\ncontainerRuntimeEndpoint: "/run/c.sock" # c\n', "/run/c.sock", id="quoted"),
        pytest.param(["kubelet"], "kind: KubeletConfiguration\n", "", id="not-said"),
    ],
)
def test_kubelet_endpoint(argv, config, expected, tmp_path):
    """kubelet says which runtime it uses, by flag or configuration."""
    path = tmp_path / "config.yaml"
    path.write_text(config)

    assert kubelet_endpoint([*argv, f"--config={path}"]) == expected


def test_listener(tmp_path):
    """The process behind a socket is known by its credentials."""
    path = str(tmp_path / "s.sock")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        assert listener(path) == os.getpid()
    assert listener(str(tmp_path / "none.sock")) == 0


def test_a_daemon_of_another_unit_is_found(monkeypatch):
    """kubelet's endpoint leads to the containerd that matters, also beside a containerd.service."""
    units = {
        "containerd.service": "Id=containerd.service\nMainPID=11\n",
        "kubelet.service": "Id=kubelet.service\nMainPID=22\n",
        "k8s-containerd.service": "Id=k8s-containerd.service\nMainPID=33\nKillMode=process\n",
    }
    texts = {
        "/proc/22/cmdline": "kubelet\0--container-runtime-endpoint\0unix:///run/k8s-containerd/containerd.sock\0",
        "/proc/33/cgroup": "0::/system.slice/k8s-containerd.service\n",
    }
    show = lambda argv: (0, "\n".join(units[name] for name in argv[argv.index("--") + 1 :]), "")  # noqa: E731
    monkeypatch.setattr(containerd_node, "run_command", show)
    monkeypatch.setattr(containerd_node, "read_text", texts.get)
    monkeypatch.setattr(containerd_node, "listener", {"/run/k8s-containerd/containerd.sock": 33}.get)

    name, unit, pid = find_daemon()

    assert (name, unit["KillMode"], pid) == ("k8s-containerd.service", "process", 33)


def test_a_daemon_in_the_cgroup_of_ssh_is_of_no_unit(monkeypatch):
    """A unit that holds the daemon without having started it must not be restarted in its place."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as daemon:
        texts = {f"/proc/{daemon.pid}/cgroup": "0::/system.slice/ssh.service\n"}
        show = f"Id=ssh.service\nActiveState=active\nMainPID={os.getpid()}\n"
        monkeypatch.setattr(containerd_node, "run_command", lambda argv: (0, show, ""))
        monkeypatch.setattr(containerd_node, "read_text", texts.get)
        monkeypatch.setattr(containerd_node, "listener", lambda path: daemon.pid)

        assert find_daemon() == ("containerd.service", {}, daemon.pid)
        daemon.kill()


def test_a_child_of_the_units_process_belongs_to_it():
    """k3s starts its containerd itself, in its own session."""
    with subprocess.Popen(["sleep", "60"]) as child:
        assert is_of_session(child.pid, os.getpid())
        assert not is_of_session(child.pid, 0)
        child.kill()
    assert not is_of_session(child.pid, os.getpid())


def test_start_ticks():
    """A process is told by pid and start time; a pid without a process has none."""
    assert start_ticks(os.getpid()) > 0
    assert start_ticks(2**22 + 1) is None


@pytest.mark.skipif(not AVAILABLE, reason="needs containerd and root")
def test_a_real_daemon_says_what_it_loaded(tmp_path):
    """CRI of the real daemon reports its readiness, its version and the registry directory in use."""
    config = b'version = 2\n[plugins."io.containerd.grpc.v1.cri".registry]\nconfig_path = "/c"\n'
    with Sandbox(tmp_path, config) as daemon:
        found = ask_cri(daemon.socket)
        containers = running_containers(daemon.socket)

    assert found["serving"] and "RuntimeReady" in found["conditions"]
    assert found["version"]
    assert found["loaded_config_path"] == "/c"
    assert containers == {}


def test_no_daemon(tmp_path):
    """Nothing behind the socket is an answer, too."""
    found = ask_cri(str(tmp_path / "none.sock"))

    assert (found["serving"], found["code"]) == (False, "UNAVAILABLE")
