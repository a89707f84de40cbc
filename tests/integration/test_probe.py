"""The probe on a real node: it sees what is there, and leaves nothing but what it read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.node_observations import Node, Wanted
from ansible_collections.portcullis.fleet.plugins.plugin_utils.requirements import evaluate_node

from tests.integration.fleet import Fleet, run_ansible

# What a reader could change without meaning to: tables registered by a look at them, modules, links, files.
TRACES = (
    "cat /proc/net/ip_tables_names /proc/net/ip6_tables_names /proc/modules 2>/dev/null; ls /sys/class/net;"
    "find /etc -xdev -newer /proc/1/cmdline -type f | sort; ls -A /var/lib /root /tmp; ps -e -o comm= | sort | uniq -c"
)


def probe(fleet: Fleet, node: str, *arguments: str) -> dict:
    """The probe of one node, by an ad hoc run of the module."""
    inventory = str(fleet.lab.inventory_path)
    argv = ["ansible", node, "-i", inventory, "-b", "-m", "portcullis.fleet.node_probe", *arguments]
    code, output = run_ansible(argv)
    assert code == 0, output
    return json.loads(output.partition("=>")[2])["probe"]


def findings(fleet: Fleet, node: str, *arguments: str, config_path: str = "") -> dict[str, str]:
    """What the checks make of a node's probe: what was observed, by id."""
    wanted = Wanted("native", config_path, ("docker.io/library/busybox:1.33",))
    judged = Node(node, fleet.lab.nodes[node].cluster, probe(fleet, node, *arguments), wanted)
    return {item["id"]: item["observed"] for item in evaluate_node(judged)}


@pytest.fixture
def broken(fleet: Fleet) -> Iterator[Callable[[str, str, str], None]]:
    """Break a node by a script, and mend it by another afterwards."""
    with fleet.altering() as (alter, nodes):
        yield alter
    for node in nodes:
        wait_until_serving(fleet, node)


def wait_until_serving(fleet: Fleet, node: str) -> None:
    """Return when the node's CRI serves, as it must within 30 s."""
    deadline = time.monotonic() + 30
    while not probe(fleet, node)["containerd"]["cri"]["serving"]:
        assert time.monotonic() < deadline, f"CRI of {node} does not serve"
        time.sleep(0.5)


def test_the_probe_sees_a_node_of_the_cluster_as_it_is(fleet: Fleet):
    found = probe(fleet, "w1")

    assert found["system"]["container"] == "systemd-nspawn"
    assert found["system"]["hostname"] == "w1"
    assert found["containerd"]["config"]["version"] == 2
    assert found["containerd"]["config_error"] == ""
    assert found["containerd"]["cri"]["conditions"]["RuntimeReady"] is True
    assert found["containerd"]["cri"]["images"] == {"docker.io/library/busybox:1.33": True}
    assert found["kube_proxy"] == {"mode": "iptables", "error": ""}
    assert found["kubelet"] == {"active": True, "healthy": True, "error": ""}
    assert found["packet_filters"] == []
    assert found["kernel_features"]["unseen"] == ""
    assert found["kernel_features"]["features"]["iptables_match.set"]["state"] == "works"
    assert found["unseen"] == {}


def test_the_probe_changes_nothing(fleet: Fleet):
    probe(fleet, "w1")
    before = fleet.shell("w1", TRACES)

    probe(fleet, "w1")

    assert fleet.shell("w1", TRACES) == before


def test_the_probe_asks_for_the_images_that_it_is_given(fleet: Fleet):
    found = probe(fleet, "w1", "-a", "images=docker.io/library/absent:1")

    assert found["containerd"]["cri"]["images"] == {"docker.io/library/absent:1": False}


def test_a_plain_host_has_no_kubelet_and_no_kube_proxy(fleet: Fleet):
    found = probe(fleet, "h1")

    assert found["kubelet"]["healthy"] is False
    assert found["kube_proxy"]["mode"] == ""
    assert found["containerd"]["cri"]["serving"] is True


@pytest.mark.parametrize("node", ["cp1", "w1", "h1"])
def test_a_sound_node_is_not_accused(fleet: Fleet, node: str):
    mended_by_a_run = {"containerd.config_path", "containerd.mirrors_present"}

    assert set(findings(fleet, node)) <= mended_by_a_run


@pytest.mark.parametrize(
    ("systemctl", "words"),
    [
        ("echo Failed to connect to bus: Host is down >&2; exit 1", "Failed to connect to bus"),
        ("exit 0", "answered for 0 of"),
        pytest.param("sleep 11", "no answer within 10 s", marks=pytest.mark.full),
    ],
    ids=["no bus", "silent", "hangs"],
)
def test_systemd_that_does_not_answer_is_a_finding(fleet: Fleet, broken, systemctl: str, words: str):
    broken(
        "w2",
        f"printf '#!/bin/sh\\n{systemctl}\\n' > /run/systemctl; chmod +x /run/systemctl; "
        "mount --bind /run/systemctl /usr/bin/systemctl",
        "umount /usr/bin/systemctl; rm /run/systemctl",
    )
    found = findings(fleet, "w2")

    assert words in found.pop("node.unseen")
    assert set(found) <= {"containerd.config_path"}


def test_a_containerd_that_was_upgraded_without_a_restart_is_a_warning(fleet: Fleet, broken):
    broken(
        "h1",
        "cp -p /usr/bin/containerd /usr/bin/containerd.new; mv /usr/bin/containerd.new /usr/bin/containerd",
        "systemctl restart containerd",
    )
    found = findings(fleet, "h1")

    assert "/usr/bin/containerd was replaced" in found.pop("containerd.binary_replaced")
    assert set(found) <= {"containerd.config_path"}


def test_a_containerd_that_was_started_by_hand_is_found_before_the_change(fleet: Fleet, broken):
    broken(
        "w2",
        "systemctl stop containerd; setsid containerd >/dev/null 2>&1 </dev/null & echo $! > /run/by-hand.pid; "
        "for i in $(seq 50); do ctr version >/dev/null 2>&1 && break; sleep 0.2; done",
        "kill $(cat /run/by-hand.pid); rm /run/by-hand.pid; systemctl start containerd",
    )
    wait_until_serving(fleet, "w2")
    found = findings(fleet, "w2", config_path="/etc/other/certs.d")

    assert "containerd.service is not the unit" in found.pop("containerd.unit_not_active")
    assert set(found) == {"containerd.config_path"}


def test_a_containerd_of_another_unit_is_the_one_that_is_judged(fleet: Fleet, broken):
    broken(
        "w2",
        "systemctl stop containerd; systemd-run --unit=k8s-containerd -p KillMode=process -p Delegate=yes"
        " /usr/bin/containerd --config /etc/containerd/config.toml",
        "systemctl stop k8s-containerd; systemctl start containerd",
    )
    wait_until_serving(fleet, "w2")
    found = probe(fleet, "w2")["containerd"]

    assert (found["unit_name"], found["unit_state"]) == ("k8s-containerd.service", "active")
    assert set(findings(fleet, "w2", config_path="/etc/other/certs.d")) == {"containerd.config_path"}


def test_directories_that_cannot_be_written_are_a_finding(fleet: Fleet, broken):
    broken(
        "h1",
        "rm -rf /var/lib/portcullis; touch /var/lib/portcullis; mount --bind /etc/containerd /etc/containerd; "
        "mount -o remount,ro,bind /etc/containerd",
        "umount /etc/containerd; rm /var/lib/portcullis",
    )
    found = findings(fleet, "h1", config_path="/etc/other/certs.d")

    assert found["disk.not_writable"] == (
        "/var/lib/portcullis: /var/lib/portcullis is there and is not a directory; "
        "/etc/containerd is on a read-only file system"
    )


def test_without_root_only_that_is_said(fleet: Fleet, monkeypatch):
    monkeypatch.setenv("ANSIBLE_PIPELINING", "1")
    as_nobody = ("--become-method=su", "--become-user=nobody", "-e", "ansible_become_flags='-s /bin/sh'")

    assert set(findings(fleet, "w2", *as_nobody)) == {"node.not_root"}


def test_a_missing_sudo_is_said(fleet: Fleet, monkeypatch):
    monkeypatch.setenv("ANSIBLE_BECOME_ALLOW_SAME_USER", "1")
    inventory = str(fleet.lab.inventory_path)
    code, output = run_ansible(["ansible", "h1", "-i", inventory, "-b", "-m", "portcullis.fleet.node_probe"])

    assert code != 0
    assert "no sudo on h1: ansible_become needs it" in output


CALICO_FIRST = '{"name": "k8s-pod-network", "plugins": [{"type": "calico", "ipam": {"type": "calico-ipam"}}]}'


def test_settings_that_stand_in_a_network_plugins_way_are_found(fleet: Fleet, broken):
    """Calico's file decides, without its programs, and NetworkManager runs; then the lab's own file decides again."""
    broken(
        "w2",
        f"echo '{CALICO_FIRST}' > /etc/cni/net.d/00-calico.conflist; "
        "systemd-run --unit=NetworkManager sleep infinity; "
        "mkdir -p /etc/NetworkManager/conf.d; "
        "printf '[keyfile]\\nunmanaged-devices=interface-name:tunl*\\n' > /etc/NetworkManager/conf.d/10-own.conf",
        "systemctl stop NetworkManager; rm -rf /etc/NetworkManager; rm -f /etc/cni/net.d/*calico.conflist",
    )
    found = findings(fleet, "w2")

    assert (
        found.pop("cni.missing_binary")
        == "00-calico.conflist calls calico, calico-ipam, which /usr/lib/cni does not have"
    )
    assert found.pop("node.network_manager") == "NetworkManager is active and its files leave cali* to it"
    assert set(found) <= {"containerd.config_path"}

    fleet.shell("w2", "mv /etc/cni/net.d/00-calico.conflist /etc/cni/net.d/99-calico.conflist")
    found = findings(fleet, "w2")
    assert found.pop("cni.second_provider").startswith("pods get bridge (10-lab.conflist); beside it lie 99-calico")
    assert set(found) <= {"containerd.config_path"}
