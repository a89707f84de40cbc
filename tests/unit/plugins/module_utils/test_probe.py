"""What the probe reads, from the texts that a node gives; a whole probe of this machine."""

from __future__ import annotations

import http.server
import json
import threading

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import probe

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
    units = probe.parse_units(UNITS)

    assert set(units) == {"containerd.service", "ufw.service"}
    assert units["containerd.service"]["MainPID"] == "412"


def test_no_output_is_no_unit():
    assert probe.parse_units("") == {}


def test_os_release_is_read_in_every_quoting():
    expected = {"id": "debian", "version_id": "12", "pretty_name": "Debian GNU/Linux 12 (bookworm)"}

    assert probe.parse_os_release(OS_RELEASE) == expected


def test_an_os_release_that_says_nothing_gives_empty_words():
    assert probe.parse_os_release("") == {"id": "", "version_id": "", "pretty_name": ""}


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
    assert probe.flag_value(argv, "config", "c") == value


@pytest.mark.parametrize(
    ("ufw_conf", "names"),
    [("ENABLED=yes\nLOGLEVEL=low\n", ["ufw"]), ("ENABLED=no\n", []), (None, [])],
    ids=["on", "off", "no file"],
)
def test_ufw_counts_only_where_it_is_switched_on(ufw_conf, names, tmp_path, monkeypatch):
    path = tmp_path / "ufw.conf"
    if ufw_conf is not None:
        path.write_text(ufw_conf)
    monkeypatch.setattr(probe, "UFW_CONFIG", str(path))

    assert [item["name"] for item in probe.probe_packet_filters(probe.parse_units(UNITS))] == names


def test_a_command_that_is_not_there_is_a_result_with_its_reason():
    rc, out, err = probe.run_command(["/nonexistent/command"])

    assert (rc, out) == (127, "")
    assert "No such file" in err


def test_free_space_of_a_path_that_is_not_there_yet_is_that_of_its_parent(tmp_path):
    disk = probe.probe_disk(str(tmp_path / "a/b/c"))

    assert disk["path"] == str(tmp_path / "a/b/c")
    assert disk["free_bytes"] > 0
    assert disk["read_only"] is False


@pytest.fixture
def kube_proxy(monkeypatch):
    """Something that answers like kube-proxy's metrics endpoint, on a port of the kernel's choice."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            known = self.path == "/proxyMode"
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(b"nftables" if known else b"404 page not found")

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


def test_a_port_where_nobody_listens_gives_the_reason(kube_proxy, monkeypatch):
    monkeypatch.setattr(probe, "KUBELET_HEALTH", (1, "/healthz"))
    found = probe.probe_kubelet({})

    assert (found["active"], found["healthy"]) == (False, False)
    assert "refused" in found["error"]


def test_a_probe_of_any_machine_is_json_and_has_every_section():
    found = probe.collect(["docker.io/library/busybox:1.33"], ["/etc", "/var/lib/portcullis"])

    assert json.loads(json.dumps(found)) == found
    assert found["probe_version"] == probe.PROBE_VERSION
    assert [disk["path"] for disk in found["disks"]] == ["/etc", "/var/lib/portcullis"]
    assert found["time"]["error"] == ""
    assert {"system", "containerd", "packet_filters", "kube_proxy", "kubelet", "unseen", "duration_ms"} <= set(found)
