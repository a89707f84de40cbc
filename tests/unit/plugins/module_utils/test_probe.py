"""What the probe reads, from the texts that a node gives; a whole probe of this machine."""

from __future__ import annotations

import http.server
import json
import shutil
import subprocess
import threading
import time

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import containerd_node, host, probe

# systemctl show --property=... of systemd 252, two units.
UNITS = """\
Id=containerd.service
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
MainPID=412

Id=ufw.service
LoadState=loaded
ActiveState=active
SubState=exited
UnitFileState=enabled
MainPID=0
"""
OS_RELEASE = """\
PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
ID=debian
VERSION_ID='12'
# a comment
"""


def test_units_are_read_from_their_blocks():
    units = host.parse_units(UNITS)

    assert set(units) == {"containerd.service", "ufw.service"}
    assert units["containerd.service"]["MainPID"] == "412"


def test_no_output_is_no_unit():
    assert host.parse_units("") == {}


def test_os_release_is_read_in_every_quoting():
    expected = {"id": "debian", "version_id": "12", "variant_id": "", "pretty_name": "Debian GNU/Linux 12 (bookworm)"}

    assert host.parse_os_release(OS_RELEASE) == expected


def test_an_os_release_that_says_nothing_gives_empty_words():
    assert host.parse_os_release("") == {"id": "", "version_id": "", "variant_id": "", "pretty_name": ""}


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        (["containerd", "--config", "/a"], "/a"),
        (["containerd", "--config=/a"], "/a"),
        (["containerd", "-c", "/a"], "/a"),
        (["containerd", "-c=/a"], "/a"),
        (["containerd", "--config"], ""),
        (["containerd", "--log-level", "debug"], ""),
        ([], ""),
    ],
)
def test_a_flag_is_found_in_every_spelling(argv, value):
    assert host.flag_value(argv, "config", "c") == value


@pytest.mark.parametrize(
    ("ufw_conf", "names"),
    [
        pytest.param("ENABLED=yes\nLOGLEVEL=low\n", ["ufw"], id="on"),
        pytest.param('ENABLED="yes" # since May\n', ["ufw"], id="quoted"),
        pytest.param("ENABLED=no\nENABLED=YES\n", ["ufw"], id="the last counts"),
        pytest.param("ENABLED=no\n", [], id="off"),
        pytest.param("ENABLED=yes\nENABLED=no\n", [], id="off at last"),
        pytest.param("# ENABLED=yes starts it at boot\nENABLED=no\n", [], id="comment"),
        pytest.param(None, [], id="no file"),
    ],
)
def test_ufw_counts_only_where_it_is_switched_on(ufw_conf, names, tmp_path, monkeypatch):
    path = tmp_path / "ufw.conf"
    if ufw_conf is not None:
        path.write_text(ufw_conf)
    monkeypatch.setattr(probe, "UFW_CONFIG", str(path))

    assert [item["name"] for item in probe.probe_packet_filters(host.parse_units(UNITS))] == names


def test_a_command_that_is_not_there_is_a_result_with_its_reason():
    rc, out, err = host.run_command(["/nonexistent/command"])

    assert (rc, out) == (127, "")
    assert "No such file" in err


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((127, "", "no answer within 10 s"), "systemctl show failed: no answer within 10 s"),
        ((1, "", "Failed to connect to bus: Host is down\n"), "systemctl show failed: Failed to connect to bus"),
        ((1, "", ""), "exit status 1"),
        ((0, "", ""), "answered for 0 of 2 units"),
        ((0, UNITS.partition("\n\n")[0], ""), "answered for 1 of 2 units"),
    ],
    ids=["hangs", "no bus", "silent", "nothing", "half"],
)
def test_systemd_that_does_not_answer_is_said_and_gives_no_units(answer, reason, monkeypatch):
    monkeypatch.setattr(probe, "run_command", lambda argv: answer)
    units, why = probe.read_units(["containerd.service", "ufw.service"])

    assert units == {}
    assert reason in why
    assert probe.probe_packet_filters(units) is None


def test_a_command_that_hangs_is_a_result_with_its_reason(monkeypatch):
    monkeypatch.setattr(host, "COMMAND_TIMEOUT_S", 0.1)

    assert host.run_command(["sleep", "60"]) == (127, "", "no answer within 0.1 s")


@pytest.fixture
def daemon(tmp_path):
    """Something that runs from a file of its own, like a containerd."""
    binary = tmp_path / "containerd"
    shutil.copy(shutil.which("sleep"), binary)
    process = subprocess.Popen([str(binary), "60"])
    yield binary, process.pid
    process.kill()
    process.wait()


def test_a_binary_that_is_as_it_was_is_not_replaced(daemon):
    binary, pid = daemon

    assert probe.find_binary(pid) == str(binary)
    assert probe.is_replaced(pid, [str(binary), "60"]) is False
    assert probe.is_replaced(pid, ["containerd"]) is False
    assert probe.is_replaced(pid, ["/usr/bin/env"]) is False  # a wrapper, older than the process


@pytest.mark.parametrize("keep_old", [False, True], ids=["renamed over, as dpkg does", "the old one moved aside"])
def test_a_binary_that_was_replaced_since_the_start_is_seen(daemon, keep_old, tmp_path):
    binary, pid = daemon
    time.sleep(0.05)  # the start is known to a clock tick
    if keep_old:
        binary.rename(tmp_path / "containerd.old")
    new = tmp_path / "new"
    shutil.copy(shutil.which("sleep"), new)
    new.rename(binary)

    assert probe.find_binary(pid) == str(tmp_path / "containerd.old" if keep_old else binary)
    assert probe.is_replaced(pid, [str(binary), "60"]) is True


def test_a_binary_whose_link_cannot_be_read_is_looked_for_on_the_path(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    (tmp_path / "containerd").touch(mode=0o755)
    monkeypatch.setattr(containerd_node, "SEARCH_PATH", f"{tmp_path}/none:{tmp_path}")
    monkeypatch.setattr(containerd_node.os, "readlink", refuse)

    assert probe.find_binary(42) == str(tmp_path / "containerd")


@pytest.fixture
def node_daemon(daemon, monkeypatch):
    """A node whose kubelet uses the daemon; what its binary is run as."""
    binary, pid = daemon
    runs = []

    def run(argv, executable=None):
        runs.append((argv, executable))
        return (0, "version = 2\n", "") if executable.startswith("/proc/") else (1, "", "a\nunknown key\n")

    unit = {"Id": "k3s.service", "ActiveState": "active", "MainPID": "7", "KillMode": "process"}
    monkeypatch.setattr(probe, "find_daemon", lambda: ("k3s.service", unit, pid))
    monkeypatch.setattr(probe, "command_line", lambda pid: ["containerd", "-c", "/k3s/config.toml", "-a", "/none.sock"])
    monkeypatch.setattr(probe, "run_command", run)
    return binary, pid, runs


def test_the_daemon_that_kubelet_uses_is_probed_whatever_its_unit_is_called(node_daemon):
    _binary, pid, runs = node_daemon
    found = probe.probe_containerd([])

    assert (found["present"], found["unit_name"], found["unit_state"]) == (True, "k3s.service", "active")
    assert (found["config_file"], found["config_directory"]) == ("/k3s/config.toml", "/k3s")
    assert (found["config_error"], found["binary_replaced"]) == ("", False)
    assert found["cri"]["socket"] == "/none.sock"
    assert runs == [(["containerd", "--config", "/k3s/config.toml", "config", "dump"], f"/proc/{pid}/exe")]


def test_a_replaced_binary_that_refuses_the_configuration_is_heard_before_it_is_started(node_daemon):
    binary, pid, runs = node_daemon
    binary.unlink()
    shutil.copy(shutil.which("sleep"), binary)
    found = probe.probe_containerd([])

    assert (found["binary"], found["binary_replaced"]) == (str(binary), True)
    assert found["config"]["version"] == 2
    assert found["config_error"] == "unknown key"
    assert [executable for _argv, executable in runs] == [f"/proc/{pid}/exe", str(binary)]


def test_a_removed_binary_still_gives_the_configuration_of_what_runs(node_daemon):
    binary = node_daemon[0]
    binary.unlink()
    found = probe.probe_containerd([])

    assert (found["binary_replaced"], found["config_error"]) == (True, "")


def test_another_runtime_is_no_containerd(daemon, monkeypatch):
    monkeypatch.setattr(probe, "find_daemon", lambda: ("crio.service", {}, daemon[1]))
    monkeypatch.setattr(probe, "command_line", lambda pid: ["/usr/bin/crio", ""])
    monkeypatch.setattr(probe, "find_binary", lambda pid: "/usr/bin/crio")

    assert probe.probe_containerd([]) == {"present": False, "other_runtime": "crio"}


def test_no_daemon_and_no_binary_is_no_containerd(monkeypatch):
    monkeypatch.setattr(probe, "find_daemon", lambda: ("containerd.service", {}, 0))
    monkeypatch.setattr(probe, "find_binary", lambda pid: "")

    assert probe.probe_containerd([]) == {"present": False, "other_runtime": ""}


def test_free_space_of_a_path_that_is_not_there_yet_is_that_of_its_parent(tmp_path):
    disk = probe.probe_disk(str(tmp_path / "a/b/c"))

    assert disk["path"] == str(tmp_path / "a/b/c")
    assert disk["free_bytes"] > 0
    assert (disk["read_only"], disk["obstacle"]) == (False, "")


def test_what_is_in_the_place_of_a_directory_is_named(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "link").symlink_to(tmp_path)

    assert probe.probe_disk(str(tmp_path / "file"))["obstacle"] == str(tmp_path / "file")
    assert probe.probe_disk(str(tmp_path / "file/a/b"))["obstacle"] == str(tmp_path / "file")
    assert probe.probe_disk(str(tmp_path / "dangling"))["obstacle"] == str(tmp_path / "dangling")
    assert probe.probe_disk(str(tmp_path / "link"))["obstacle"] == ""


@pytest.fixture
def kube_proxy(monkeypatch):
    """Something that answers like kube-proxy's metrics endpoint, on a port of the kernel's choice."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            pages = {"/proxyMode": b"nftables", "/": b"<!doctype html>"}
            self.send_response(200 if self.path in pages else 404)
            self.end_headers()
            self.wfile.write(pages.get(self.path, b"404 page not found"))

        def log_message(self, format, *args):
            """Say nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_live_mode_is_what_kube_proxy_answers(kube_proxy, monkeypatch):
    monkeypatch.setattr(probe, "KUBE_PROXY_MODE", (kube_proxy, "/proxyMode"))

    assert probe.probe_kube_proxy() == {"mode": "nftables", "error": ""}


def test_any_other_answer_is_no_mode(kube_proxy, monkeypatch):
    monkeypatch.setattr(probe, "KUBE_PROXY_MODE", (kube_proxy, "/healthz"))

    assert probe.probe_kube_proxy() == {"mode": "", "error": "404 page not found"}


def test_what_another_program_answers_is_no_mode(kube_proxy, monkeypatch):
    monkeypatch.setattr(probe, "KUBE_PROXY_MODE", (kube_proxy, "/"))

    found = probe.probe_kube_proxy()
    assert (found["mode"], found["error"]) == ("", "an answer that is no mode: '<!doctype html>'")


def test_a_port_where_nobody_listens_gives_the_reason(kube_proxy, monkeypatch):
    monkeypatch.setattr(probe, "KUBELET_HEALTH", (1, "/healthz"))
    found = probe.probe_kubelet({})

    assert (found["active"], found["healthy"]) == (False, False)
    assert "refused" in found["error"]


def test_a_probe_of_any_machine_is_json_and_has_every_section():
    found = probe.collect(["docker.io/library/busybox:1.33"], ["/etc", "/var/lib/portcullis"])

    assert json.loads(json.dumps(found)) == found
    assert found["probe_version"] == probe.PROBE_VERSION
    added = [found["containerd"]["config_directory"]] if found["containerd"]["present"] else []
    assert [disk["path"] for disk in found["disks"]] == ["/etc", "/var/lib/portcullis", *added]
    assert found["time"]["error"] == ""
    assert {"system", "containerd", "packet_filters", "kube_proxy", "kubelet", "unseen", "duration_ms"} <= set(found)
