"""Settings of Felix go through a cluster wave by wave; a stand-in of Felix (felix_stand_in.py) is on real nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import wait_until
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import DAEMON_SETS

from tests.integration.calico import custom
from tests.integration.felix import FIELDS, KNOB, Felix
from tests.integration.fleet import BIN, ROOT, Fleet
from tests.lab import Lab

USERS = custom("FelixConfiguration", "default", logSeverityScreen="Info", iptablesRefreshInterval="90s")
APPEND = {"chainInsertMode": "Append", "iptablesRefreshInterval": "0s"}


@pytest.fixture(scope="module")
def running(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Felix]:
    found = Felix(lab, tmp_path_factory.mktemp("felix"), version="v3.31.0", fields=FIELDS, environment={})
    yield found
    found.remove()


@pytest.fixture
def felix(running: Felix) -> Iterator[Felix]:
    """With a default of the user's, and nothing else."""
    apply(running, USERS)
    wait_until(lambda: set(modes(running).values()) == {"Insert"}, 20)
    yield running
    for node in running.nodes:
        running.shell(node, f"rm -f {KNOB} /etc/calico/felix.cfg")
    for name in running.objects():
        running.lab.kubectl("delete", "felixconfiguration", name, "--ignore-not-found")


def apply(felix: Felix, *items: dict) -> None:
    felix.lab.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))


def modes(felix: Felix) -> dict[str, str]:
    return {node: felix.mode(node) for node in felix.nodes}


def spec(felix: Felix, name: str = "default") -> dict:
    return felix.objects()[name]["spec"]


def test_append_as_secure_workload_asks_for_it_and_the_way_back(felix: Felix, fleet: Fleet):
    """By site.yml: what the run mends stops it not. Nothing restarts at the end, and a second run changes nothing."""
    run = fleet.site("-e", "portcullis_engine=secure_workload portcullis_felix_profile=secure_workload")
    assert run.code == 0, run.output
    # The planned mask is one more option that has not its default.
    assert {name for name, _node in run.findings if name.startswith("felix.")} == {"felix.not_default"}
    assert set(modes(felix).values()) == {"Append"}
    assert set(felix.objects()) == {"default"}
    assert {**APPEND, "logSeverityScreen": "Info"}.items() <= spec(felix).items()
    ages = {node: felix.age_s(node) for node in felix.nodes}

    code, output = felix.run(profile="secure_workload", variant="append")
    assert code == 0, output
    assert "changed=1" not in output
    assert all(felix.age_s(node) >= age for node, age in ages.items()), "Felix was restarted for nothing"

    code, output = felix.run(state="absent")
    assert code == 0, output
    assert spec(felix) == USERS["spec"]
    assert set(modes(felix).values()) == {"Insert"}


@pytest.mark.full
def test_the_other_variant(felix: Felix):
    code, output = felix.run(profile="secure_workload", variant="return")
    assert code == 0, output
    assert all("Policy explicitly accepted packet" in felix.rules(node) for node in felix.nodes)
    assert all(line.endswith("-j RETURN") for node in felix.nodes for line in accepted(felix, node))


def accepted(felix: Felix, node: str) -> list[str]:
    return [line for line in felix.rules(node).splitlines() if "explicitly accepted" in line or "KX7AGNd6" in line]


def test_a_wave_that_fails_is_put_back_and_the_run_stops(felix: Felix):
    """w1 does not take the setting: cp1, of the first wave, keeps it, and default is not touched."""
    felix.shell("w1", f"echo '{json.dumps({'ignore': ['chainInsertMode']})}' > {KNOB}")
    code, output = felix.run(settings={"chainInsertMode": "Append"}, timeout=8)
    assert code != 0
    assert "chainInsertMode is Insert in the live rules" in output
    assert spec(felix) == USERS["spec"]
    assert "node.w1" not in felix.objects()
    assert felix.mode("cp1") == "Append"

    felix.shell("w1", f"rm {KNOB}")
    code, output = felix.run(settings={"chainInsertMode": "Append"})
    assert code == 0, output
    assert set(modes(felix).values()) == {"Append"}
    assert set(felix.objects()) == {"default"}


def test_what_has_no_effect_or_harms_is_refused_before_anything_is_written(felix: Felix):
    for settings, words in (
        ({"chainInsertmode": "Append"}, "it is spelt chainInsertMode"),
        ({"iptablesRefreshInterval": "0"}, '"0s"'),
        ({"iptablesRefreshInterval": "1.5s"}, '"1500ms"'),
        ({"iptablesMarkMask": 0x30000}, "is too little"),
        ({"iptablesMarkMask": 0xFFFF}, "of kube-proxy"),
    ):
        code, output = felix.module("cp1", settings=settings, step="start")
        assert code != 0
        assert words in " ".join(output.replace("\\", "").split())
    assert set(felix.objects()) == {"default"}
    assert spec(felix) == USERS["spec"]


@pytest.mark.full
def test_a_file_of_a_node_that_outranks_it_is_named_and_the_node_is_put_back(felix: Felix):
    felix.shell("cp1", "mkdir -p /etc/calico; printf '[global]\\nChainInsertMode = insert\\n' > /etc/calico/felix.cfg")
    wait_until(lambda: felix.mode("cp1") == "Insert", 10)
    code, output = felix.run(settings={"chainInsertMode": "Append"}, timeout=8)
    assert code != 0
    assert "chainInsertMode is Insert in the live rules" in output or "felix.cfg" in output
    assert set(felix.objects()) == {"default"}


def test_a_run_that_is_killed_is_gone_on_with_and_another_change_meanwhile_is_refused(felix: Felix):
    variables = json.dumps({"portcullis_felix_settings": APPEND})
    argv = ["ansible-playbook", "-i", str(felix.lab.inventory_path), str(felix.playbook), "-e", variables]
    run = subprocess.Popen(
        [str(BIN / argv[0]), *argv[1:]], cwd=ROOT, start_new_session=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert wait_until(lambda: "node.cp1" in felix.objects(), 30)
        time.sleep(1)
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    code, output = felix.run(settings={"chainInsertMode": "Append", "iptablesRefreshInterval": "60s"})
    assert code != 0
    assert "is under way" in output
    assert spec(felix) == USERS["spec"]

    code, output = felix.run(settings=APPEND)
    assert code == 0, output
    assert set(modes(felix).values()) == {"Append"}
    assert set(felix.objects()) == {"default"}


def test_check_mode_writes_nothing(felix: Felix):
    code, output = felix.run("--check", "--diff", settings=APPEND)
    assert code == 0, output
    assert "Append" in output
    assert set(felix.objects()) == {"default"}
    assert spec(felix) == USERS["spec"]


@pytest.fixture
def with_variable(running: Felix) -> Iterator[Felix]:
    """calico-node sets the insert mode by itself."""
    set_environment(running, "FELIX_CHAININSERTMODE=insert")
    yield running
    set_environment(running, "FELIX_CHAININSERTMODE-")
    for name in running.objects():
        running.lab.kubectl("delete", "felixconfiguration", name, "--ignore-not-found")


def set_environment(felix: Felix, change: str) -> None:
    daemon_set = ("-n", "kube-system", "daemonset/calico-node")
    felix.lab.kubectl("set", "env", *daemon_set, change)
    felix.lab.kubectl("rollout", "status", *daemon_set, "--timeout=60s", timeout_s=70)


def daemon_set(felix: Felix) -> dict:
    return felix.api.get(DAEMON_SETS, "calico-node", "kube-system")


@pytest.mark.full
def test_the_environment_outranks_every_object(with_variable: Felix):
    """It is named, and taken out node by node where that is allowed; it comes back with what it was."""
    felix, before = with_variable, daemon_set(with_variable)["spec"]
    apply(felix, USERS)
    code, output = felix.run(settings={"chainInsertMode": "Append"})
    assert code != 0
    assert "FELIX_CHAININSERTMODE" in output
    assert daemon_set(felix)["spec"] == before

    code, output = felix.run(settings={"chainInsertMode": "Append"}, manage_env=True)
    assert code == 0, output
    assert set(modes(felix).values()) == {"Append"}
    assert spec(felix) == {**USERS["spec"], "chainInsertMode": "Append"}
    assert "FELIX_CHAININSERTMODE" not in json.dumps(daemon_set(felix)["spec"])
    assert daemon_set(felix)["spec"]["updateStrategy"] == before["updateStrategy"]

    for _run in range(2):
        code, output = felix.run(state="absent")
        assert code == 0, output
    assert daemon_set(felix)["spec"] == before
    assert set(felix.objects()) == {"default"}
    assert spec(felix) == USERS["spec"]
    assert set(modes(felix).values()) == {"Insert"}


@pytest.mark.full
def test_one_object_with_a_selector_carries_it_from_3_32_on(felix: Felix):
    information = custom("ClusterInformation", "default", calicoVersion="v3.32.0")
    apply(felix, information)
    try:
        code, output = felix.module("cp1", settings={"chainInsertMode": "Append"})
        assert code == 0, output
        assert modes(felix) == {"cp1": "Append", "w1": "Insert", "w2": "Insert"}
        assert set(felix.objects()) == {"default", "portcullis"}
        code, output = felix.run(settings={"chainInsertMode": "Append"})
        assert code == 0, output
        assert set(modes(felix).values()) == {"Append"}
        assert set(felix.objects()) == {"default"}
    finally:
        information["spec"]["calicoVersion"] = "v3.31.0"
        apply(felix, information)


@pytest.mark.full
def test_calico_node_is_restarted_after_a_change_of_kube_proxys_mode(felix: Felix):
    """Felix looks at kube-proxy's mode when it starts."""
    (old,) = felix.pods("w1")
    proxy = {"config": {"mode": "nftables"}}
    try:
        code, output = felix.module("w1", name="kube_proxy_config", **proxy)
        assert code == 0, output
        assert f'"restarted": "{old}"' in output
        assert felix.pods("w1") != [old]
    finally:
        code, output = felix.module("w1", name="kube_proxy_config", state="absent")
        assert code == 0, output
