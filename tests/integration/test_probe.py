"""The probe on a real node: it sees what is there, and leaves nothing but what it read."""

from __future__ import annotations

import json

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
