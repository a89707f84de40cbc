"""kube-proxy changes its mode node by node on a real cluster; nothing switches early, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import wait_until
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import CONFIG_MAPS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_twin import HISTORY, MOVING

from tests.integration.fleet import Fleet, run_ansible
from tests.integration.kube_proxy import FOREIGN, FOREIGN_RULES, NAME, NAMESPACE, NO_FOREIGN, Client, Proxy
from tests.lab import Lab
from tests.lab.topology import Node

KUBE_PROXYS = "iptables-save | grep -E -e '-(A|D) KUBE-S(ERVICES|VC)' ; nft list tables | grep -w 'kube-proxy$'"
# kube-proxy itself empties the former mode's rules when it starts, and makes the new ones about a second later.
GAP_LIMIT_S = 5


@pytest.fixture
def proxy(lab: Lab, tmp_path: Path) -> Iterator[Proxy]:
    found = Proxy(lab, tmp_path)
    yield found
    found.restore()


@pytest.fixture
def client(lab: Lab) -> Iterator[Client]:
    found = None
    try:
        found = Client(lab, "w1", "w2")
        yield found
    finally:
        if found:
            found.remove()


@pytest.fixture
def foreign(lab: Lab) -> Iterator[dict[str, str]]:
    """Rules of others on every node, as the kernel has them."""
    nodes = ("cp1", "w1", "w2")
    found = {node: lab.ssh(node, ["sh", "-c", f"{FOREIGN}; {FOREIGN_RULES}"]).stdout for node in nodes}
    yield found
    for node in nodes:
        lab.ssh(node, ["sh", "-c", NO_FOREIGN])


def rules_of(lab: Lab, node: str) -> str:
    return lab.ssh(node, ["sh", "-c", KUBE_PROXYS], check=False).stdout


def test_to_nftables_and_back(proxy: Proxy, fleet: Fleet, client: Client, foreign: dict, capsys: pytest.CaptureFixture):
    """A run is killed in the middle of a node, pods are deleted meanwhile; the way back is a run of site.yml."""
    lab = proxy.lab
    run = proxy.begin(mode="nftables")
    try:
        assert wait_until(lambda: proxy.label("cp1") == MOVING, 30)
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    for node in ("w1", "w2"):
        proxy.delete_pod(node)
    assert {node: proxy.mode(node) for node in ("w1", "w2")} == {"w1": "iptables", "w2": "iptables"}
    assert proxy.config_map()["data"] == proxy.before[1]

    code, output = proxy.run(mode="nftables")
    assert code == 0, output
    assert set(proxy.modes().values()) == {"nftables"}
    spec, data, ours = proxy.state()
    assert (spec, ours) == (proxy.before[0], [])
    old, new = proxy.before[1]["config.conf"], data["config.conf"]
    assert new == old.replace("mode: iptables", "mode: nftables")
    for node in proxy.nodes:
        assert rules_of(lab, node) == "table ip kube-proxy\ntable ip6 kube-proxy\n"
        assert lab.ssh(node, ["sh", "-c", FOREIGN_RULES]).stdout == foreign[node]

    code, output = proxy.run(mode="nftables")
    assert code == 0, output
    assert "changed=0" in output
    assert "changed=1" not in output

    run = fleet.site("-e", "portcullis_kube_proxy_state=absent")
    assert run.code == 0, run.output
    assert set(run.states.values()) <= {"proven", "changed", "unchanged"}
    assert proxy.state() == proxy.before
    assert not proxy.config_map()["metadata"].get("annotations")
    assert set(proxy.modes().values()) == {"iptables"}
    for node in proxy.nodes:
        assert "table" not in rules_of(lab, node)
        assert lab.ssh(node, ["sh", "-c", FOREIGN_RULES]).stdout == foreign[node]
    gap_s = client.longest_gap_s()
    with capsys.disabled():
        print(f"\na client in a pod saw no answer for at most {gap_s:.2f} s")
    assert gap_s < GAP_LIMIT_S


@pytest.mark.full
def test_a_node_that_is_added_in_the_middle_does_not_switch_early_and_is_waited_for(proxy: Proxy):
    code, output = module(proxy, "w1", config={"mode": "nftables"})
    assert code == 0, output
    proxy.lab.node_add(Node(name="w9"))
    try:
        assert wait_until(lambda: proxy.mode("w9") == "iptables", 60)
        for node in ("w2", "cp1"):
            code, output = module(proxy, node, config={"mode": "nftables"})
            assert code == 0, output
        assert '"w9"' in output[output.index("waits_for") :]
        assert proxy.config_map()["data"] == proxy.before[1]
        assert proxy.mode("w9") == "iptables"
    finally:
        proxy.lab.node_remove("w9")


@pytest.mark.full
def test_a_configuration_that_was_edited_by_hand_is_brought_into_force(proxy: Proxy):
    """Any restart would switch a node; a run does it in waves, and proves each."""
    config_map = proxy.config_map()
    text = config_map["data"]["config.conf"].replace("mode: iptables", "mode: nftables")
    time.sleep(1)  # the API server notes seconds
    proxy.api.patch(CONFIG_MAPS, NAME, {"data": {"config.conf": text}}, NAMESPACE)
    try:
        code, output = proxy.run(mode="nftables")
        assert code == 0, output
        assert set(proxy.modes().values()) == {"nftables"}
        assert proxy.config_map()["data"]["config.conf"] == text
        code, output = proxy.run(mode="nftables")
        assert code == 0, output
        assert "changed=1" not in output
    finally:
        code, output = proxy.run(mode="iptables")
        assert code == 0, output
        proxy.api.patch(CONFIG_MAPS, NAME, {"metadata": {"annotations": {HISTORY: None}}}, NAMESPACE)


def module(proxy: Proxy, node: str, **arguments: object) -> tuple[int, str]:
    """Run the module alone, as a user does for one node."""
    given = json.dumps({"kubeconfig": str(proxy.lab.kubeconfig), **arguments})
    argv = [
        "ansible",
        "-i",
        str(proxy.lab.inventory_path),
        node,
        "-m",
        "portcullis.fleet.kube_proxy_config",
        "-a",
        given,
    ]
    return run_ansible(argv)


def test_what_would_have_no_effect_or_stop_kube_proxy_is_refused_before_anything_is_written(proxy: Proxy):
    for config, message in (
        ({"mod": "nftables"}, "config: mod: kube-proxy knows no such field and ignores it: mode is meant?"),
        ({"mode": "nft"}, "mode"),
        ({"iptables": {"syncPeriod": 0}}, "iptables.syncPeriod"),
        ({}, "config: nothing is to be set"),
    ):
        code, output = module(proxy, "w1", config=config, step="start")
        assert code != 0
        assert message in output
    assert proxy.state() == proxy.before


def test_check_mode_shows_the_edit_and_writes_nothing(proxy: Proxy):
    code, output = proxy.run("present", "--check", "--diff", mode="nftables")
    assert code == 0, output
    assert "-mode: iptables\n+mode: nftables" in output
    assert "changed=2" in output
    assert proxy.state() == proxy.before


def test_a_node_that_is_worse_off_is_put_back_and_the_run_stops(proxy: Proxy):
    """The lab's nodes have no IPVS, so kube-proxy ends there."""
    proxy.timeout = 10
    code, output = proxy.run(mode="ipvs")
    assert code != 0
    assert "the node was put back to mode iptables" in output
    assert proxy.modes() == dict.fromkeys(proxy.nodes, "iptables")
    assert proxy.label("cp1") == proxy.label("w1") == ""
    assert proxy.config_map()["data"] == proxy.before[1]

    code, output = module(proxy, "w1", config={"mode": "nftables"}, step="start")
    assert code != 0
    assert "another change is under way, of mode to mode ipvs" in output


def test_site_refuses_a_change_that_cannot_be_had_before_any_node_is_changed(proxy: Proxy, fleet: Fleet):
    config = {"portcullis_kube_proxy_config": {"hostnameOverride": "other"}}
    run = fleet.site("-e", json.dumps(config))
    assert run.code != 0
    assert ("kube_proxy.refused", "") in run.findings
    assert set(run.states.values()) == {"not_reached"}
    assert proxy.state() == proxy.before
