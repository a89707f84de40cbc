"""What talks between nodes, on a real cluster: ports by a real exchange, pods that see each other's addresses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils import flat_network_run
from ansible_collections.portcullis.fleet.plugins.plugin_utils.flat_network import (
    client_pod,
    host_port_pod,
    server_pod,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.flat_requirements import flat_findings

from tests.integration.calico import calico_node, custom, definition, in_cluster
from tests.integration.fleet import BIN, ROOT, Fleet, Run, run_ansible
from tests.integration.test_probe import TRACES
from tests.lab import Lab

BUSYBOX = "docker.io/library/busybox:1.33"
PLURALS = {"FelixConfiguration": "felixconfigurations", "IPPool": "ippools", "BGPConfiguration": "bgpconfigurations"}
DEFINITIONS = [definition(plural, kind) for kind, plural in PLURALS.items()]
# A Calico with every tunnel; its pods wait for a scheduler that there is not.
CALICO_NODE = calico_node(
    schedulerName="nobody",
    nodeSelector={"kubernetes.io/os": "linux"},
    containers=[{"name": "calico-node", "image": "registry.invalid/calico/node:v3.27.0"}],
)
OBJECTS = [
    custom("FelixConfiguration", "default", wireguardEnabled=True),
    custom("IPPool", "first", cidr="10.244.0.0/17", ipipMode="Always", vxlanMode="Never"),
    custom("IPPool", "second", cidr="10.244.128.0/17", ipipMode="Never", vxlanMode="Always"),
    CALICO_NODE,
]
TRIED = (
    "ports tried between 3 nodes: TCP 179 (BGP) 6 pairs, protocol 4 (IP-in-IP) 6 pairs, UDP 4789 (VXLAN) 6 pairs, "
    "UDP 51820 (WireGuard) 6 pairs, TCP 6443 (API server) 3 pairs"
)
HOLD_179 = "import socket, time; held = socket.create_server(('', 179)); time.sleep(300)"
LISTEN_ON_179 = f'python3 -c "{HOLD_179}" >/dev/null 2>&1 </dev/null & echo $! >/run/on179; sleep 0.5'


@pytest.fixture
def calico(lab: Lab) -> Iterator[Lab]:
    """The lab's cluster with the objects of a Calico."""
    with in_cluster(lab, DEFINITIONS, OBJECTS):
        yield lab


@pytest.fixture
def altered(fleet: Fleet) -> Iterator[Callable[[str, str, str], None]]:
    """Alter a node by a script, and undo it by another afterwards."""
    with fleet.altering() as (alter, _nodes):
        yield alter


def rule(table: str, chain: str, words: str) -> tuple[str, str]:
    """The scripts that put a rule first and take it away."""
    return f"iptables -t {table} -I {chain} 1 {words}", f"iptables -t {table} -D {chain} {words}"


def between(run: Run) -> set[tuple[str, str]]:
    """The findings of what was tried between nodes."""
    return {(name, node) for name, node in run.findings if name.startswith("network.")}


def observed(run: Run, finding_id: str) -> set[str]:
    """What was observed in findings with this id."""
    return {
        variant["observed"]
        for problem in run.report["findings"]
        if problem["id"] == finding_id
        for variant in problem["observed"]
    }


def watchers(fleet: Fleet, node: str) -> str:
    """The doors of watchers on a node."""
    return fleet.shell(node, "grep portcullis-ports /proc/net/unix || true")


def test_a_blocked_and_a_taken_port_are_found_and_no_other(calico: Lab, fleet: Fleet, altered):
    altered("w2", *rule("filter", "INPUT", "-p udp --dport 4789 -j DROP"))
    altered("w1", LISTEN_ON_179, "kill $(cat /run/on179); rm /run/on179")
    run = fleet.site("--tags", "ports", playbook="preflight.yml")

    assert run.code != 0
    assert between(run) == {("network.port_unreachable", "w2"), ("network.port_taken", "w1")}
    assert observed(run, "network.port_unreachable") == {"UDP 4789 (VXLAN) from cp1, w1: sent, and did not arrive"}
    assert TRIED in " ".join(run.output.split())
    assert set(fleet.on_all(lambda name: watchers(fleet, name)).values()) == {""}


@pytest.mark.full
def test_ports_that_are_open_have_no_finding(calico: Lab, fleet: Fleet):
    run = fleet.site("--tags", "ports", playbook="preflight.yml")

    # Kernels that lack a tunnel are found by other checks.
    assert between(run) == set()
    assert TRIED in " ".join(run.output.split())


@pytest.mark.full
@pytest.mark.parametrize(
    ("blocked", "seen"),
    [
        (("w1", "OUTPUT", "-p 4 -j DROP"), "protocol 4 (IP-in-IP) to w2, cp1: Operation not permitted"),
        (("w1", "INPUT", "-p 4 -j DROP"), "protocol 4 (IP-in-IP) from cp1, w2: sent, and did not arrive"),
        (
            ("w2", "INPUT", "-p tcp --dport 179 -j REJECT --reject-with tcp-reset"),
            "TCP 179 (BGP) from cp1, w1: rejected on the way",
        ),
        (("cp1", "INPUT", "-p tcp --dport 179 -j DROP"), "TCP 179 (BGP) from w1, w2: no answer within 3 s"),
        (
            ("w2", "OUTPUT", "-p tcp --dport 6443 --syn -j REJECT"),
            "TCP 6443 (API server) to 10.77.0.1: connection refused",
        ),
    ],
    ids=["IPIP out", "IPIP in", "a reset", "a drop", "API server"],
)
def test_each_way_of_blocking_is_found(calico: Lab, fleet: Fleet, altered, blocked: tuple, seen: str):
    node, *words = blocked
    altered(node, *rule("filter", *words))
    run = fleet.site("--tags", "ports", playbook="preflight.yml")

    assert between(run) == {("network.port_unreachable", node)}
    assert observed(run, "network.port_unreachable") == {seen}


def test_a_watcher_whose_run_was_killed_ends_by_itself(fleet: Fleet):
    before = fleet.shell("w1", TRACES)
    ports = [{"protocol": "udp", "port": 4789}, {"protocol": "tcp", "port": 179}]
    words = json.dumps({"step": "watch", "nonce": "ab" * 8, "number": 1, "deadline_s": 2, "ports": ports})
    argv = ["ansible", "w1", "-i", str(fleet.lab.inventory_path), "-b", "-m", "portcullis.fleet.node_reachability"]
    code, output = run_ansible([*argv, "-a", words])

    assert code == 0, output
    deadline = time.monotonic() + 5
    while watchers(fleet, "w1"):
        assert time.monotonic() < deadline, "the watcher does not end"
        time.sleep(0.2)
    assert fleet.shell("w1", TRACES) == before


def namespaces(lab: Lab) -> list[str]:
    """The namespaces of proofs."""
    selector = "app.kubernetes.io/component=flat-network"
    return lab.kubectl("get", "namespaces", "-l", selector, "-o", "name").stdout.split()


def test_pods_of_the_proof_are_admitted_where_little_is(lab: Lab):
    """A cluster may enforce the level restricted where no label says otherwise."""
    name = "restricted-proof"
    lab.kubectl("create", "namespace", name)
    try:
        lab.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
        dry_run = ("-n", name, "create", "--dry-run=server", "-f", "-")
        for pod in (server_pod(0, "w1", BUSYBOX), client_pod(0, "w1", BUSYBOX, {"p0.0": "http://10.0.0.1"})):
            lab.kubectl(*dry_run, stdin=json.dumps(pod))
        refused = lab.kubectl(*dry_run, stdin=json.dumps(host_port_pod(0, "w1", BUSYBOX)), check=False)
    finally:
        lab.kubectl("delete", "namespace", name, "--wait=false")

    assert "hostPort" in refused.stderr


@pytest.mark.full
def test_a_flat_network_is_proven_and_nothing_stays(fleet: Fleet):
    run = fleet.site("--tags", "flat_network", playbook="preflight.yml")
    said = " ".join(run.output.split())

    assert run.code == 0, run.output
    assert between(run) == set()
    assert "flat network: 9 pairs of pods on 3 of 3 nodes (cp1, w1, w2)" in said
    assert "NodePort Cluster: 9 of 9 answered, 0 with the pod's own address" in said
    assert namespaces(fleet.lab) == []


@pytest.mark.full
def test_a_node_that_masquerades_its_pods_is_found(fleet: Fleet, altered):
    pods = fleet.lab.address("w1").pods
    altered("w1", *rule("nat", "POSTROUTING", f"-s {pods} -d 10.244.0.0/16 ! -o cni0 -j MASQUERADE"))
    run = fleet.site("--tags", "flat_network", "-e", "portcullis_engine=secure_workload", playbook="preflight.yml")

    assert run.code != 0
    assert between(run) == {("network.source_masqueraded", "w1")}
    address = fleet.lab.address("w1").node
    assert observed(run, "network.source_masqueraded") == {
        f"pods on cp1, w2 see pods on w1 as {address}, this node's own address"
    }


@pytest.mark.full
def test_pods_that_are_cut_off_are_found_and_nothing_stays(fleet: Fleet, altered):
    altered("w2", *rule("filter", "FORWARD", f"-d {fleet.lab.address('w2').pods} -p tcp --syn ! -i cni0 -j DROP"))
    run = fleet.site("--tags", "flat_network", playbook="preflight.yml")

    assert run.code == 0, run.output
    assert between(run) == {("network.pods_unreachable", "w2")}
    assert namespaces(fleet.lab) == []


@pytest.mark.full
def test_what_a_killed_proof_left_ends_and_the_next_one_removes_it(fleet: Fleet, monkeypatch: pytest.MonkeyPatch):
    lab = fleet.lab
    argv = [str(BIN / "ansible-playbook"), "-i", str(lab.inventory_path), "playbooks/preflight.yml"]
    argv += ["--tags", "flat_network", "-e", f"portcullis_report_path={fleet.folder}"]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True) as process:
        deadline = time.monotonic() + 60
        while not namespaces(lab):
            assert time.monotonic() < deadline, "no proof began"
            time.sleep(0.2)
        os.killpg(process.pid, signal.SIGKILL)
    (left,) = namespaces(lab)
    pods = json.loads(lab.kubectl("-n", left.partition("/")[2], "get", "pods", "-o", "json").stdout)["items"]
    assert all(pod["spec"]["activeDeadlineSeconds"] <= 300 for pod in pods)

    monkeypatch.setattr(flat_network_run, "STALE_AFTER_S", 0)
    cluster = flat_network_run.FlatNetwork(str(lab.kubeconfig))
    proof = cluster.prove({name: lab.address(name).node for name in ("w1", "w2")}, BUSYBOX)

    assert len(proof["pairs"]) == 4
    assert flat_findings({**proof, "of": 3, "hosts": {}, "addresses": {}}) == []
    deadline = time.monotonic() + 60
    while namespaces(lab):
        assert time.monotonic() < deadline, "the namespace of the killed proof stays"
        time.sleep(0.5)
