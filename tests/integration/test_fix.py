"""--tags fix on real nodes: what is mended is proven gone, and all of it is given back."""

from __future__ import annotations

import time

import pytest

from tests.integration.fleet import Fleet, run_ansible

MANAGER = "packet_filter.other_manager"
STATE = (
    "systemctl is-active nftables; systemctl is-enabled nftables; find /etc -xdev -name '*nftables*'; "
    "ls /etc/sysctl.d; cat /proc/sys/net/ipv4/conf/all/rp_filter"
)


@pytest.fixture
def node(fleet: Fleet):
    """w1 with nftables.service at work, which flushes the rules of everybody when it starts and stops."""
    fleet.shell("w1", "systemctl enable --now nftables")
    wait_for_kube_proxy(fleet)
    yield "w1"
    fleet.shell("w1", "systemctl disable --now nftables; rm -f /etc/sysctl.d/99-zz-portcullis.conf")
    wait_for_kube_proxy(fleet)


def wait_for_kube_proxy(fleet: Fleet) -> None:
    """Return when kube-proxy's rules are there, which it looks for every 30 s."""
    deadline = time.monotonic() + 90
    while "KUBE-SERVICES" not in fleet.shell("w1", "iptables-save -t nat"):
        assert time.monotonic() < deadline, "kube-proxy does not write its rules"
        time.sleep(2)


def give_back(fleet: Fleet, *arguments: str) -> str:
    """Run node_fix with state=absent on w1."""
    inventory = str(fleet.lab.inventory_path)
    code, output = run_ansible(
        ["ansible", "w1", "-i", inventory, "-b", "-m", "portcullis.fleet.node_fix", "-a", "state=absent", *arguments]
    )
    assert code == 0, output
    return output


@pytest.mark.full
def test_a_packet_filter_manager_is_switched_off_and_given_back(fleet: Fleet, node: str):
    before, files = fleet.shell(node, STATE, check=False), fleet.fingerprints()
    predicted = fleet.site("--tags", "fix", "--check", "--diff")

    assert predicted.code == 0, predicted.output
    assert predicted.states[node] == "would_change"
    assert fleet.fingerprints() == files

    done = fleet.site("--tags", "fix", "--diff")

    assert done.code == 0, done.output
    assert (done.states[node], done.states["w2"]) == ("changed", "unchanged")
    assert (MANAGER, node) not in done.findings
    assert done.report["changes"][0]["diff"] == predicted.report["changes"][0]["diff"]
    assert "inactive\ndisabled" in fleet.shell(node, STATE, check=False)
    assert "KUBE-SERVICES" in fleet.shell(node, "iptables-save -t nat")
    after = fleet.fingerprints()
    assert set(fleet.site("--tags", "fix").changed.values()) == {0}
    assert fleet.fingerprints() == after

    assert "CHANGED" in give_back(fleet)
    assert fleet.shell(node, STATE, check=False) == before
    assert "CHANGED" not in give_back(fleet)


@pytest.mark.full
def test_an_etc_that_cannot_be_written_is_said_before_anything_is_changed(fleet: Fleet):
    fleet.shell("w2", "mount --bind /etc/sysctl.d /etc/sysctl.d; mount -o remount,ro,bind /etc/sysctl.d")
    wish = '{"findings": [{"id": "kernel.rp_filter", "node": "w2", "observed": ""}]}'
    try:
        code, output = run_ansible(
            ["ansible", "w2", "-i", str(fleet.lab.inventory_path), "-b", "-m", "portcullis.fleet.node_fix", "-a", wish]
        )
    finally:
        fleet.shell("w2", "umount /etc/sysctl.d")

    assert code != 0
    assert "mounted read-only at /etc/sysctl.d" in output
    assert "nothing was changed" in output
    assert fleet.shell("w2", "ls /var/lib/portcullis/journal 2>/dev/null | grep node_fix", check=False) == ""
