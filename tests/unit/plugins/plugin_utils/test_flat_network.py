# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The proof of a flat network: which nodes take part, what its pods are, what their answers mean."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.flat_network import (
    CONTROL_PLANE,
    ZONE,
    can_take_part,
    client_pod,
    host_port_pod,
    parse_answers,
    plain_address,
    pod_addresses,
    pod_fault,
    sample_nodes,
    server_pod,
    termination_message,
    url_of,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.flat_requirements import flat_findings, tried_words

IMAGE = "docker.io/library/busybox:1.33"
NAMES = ("cp1", "w1", "w2")
POD = {"cp1": "10.244.1.5", "w1": "10.244.2.5", "w2": "10.244.3.5"}
NODE = {"10.0.0.11": "cp1", "10.0.0.12": "w1", "10.0.0.13": "w2"}


def nodes(count: int, zones: int = 1) -> list[dict]:
    """A cluster with one node of the control plane."""
    return [
        {
            "name": f"n{number}",
            "ready": True,
            "labels": {ZONE: f"z{number % zones}", **({CONTROL_PLANE[0]: ""} if number == 0 else {})},
        }
        for number in range(count)
    ]


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (1, 1), (3, 3), (8, 8), (9, 10), (100, 16), (5000, 28)])
def test_the_sample_grows_with_the_logarithm(count: int, expected: int):
    found = sample_nodes(nodes(count))

    assert len(found) == len(set(found)) == min(count, expected)
    assert found == sample_nodes(nodes(count))


def test_every_zone_and_the_control_plane_are_in_the_sample():
    found = sample_nodes(nodes(300, zones=5))

    assert {int(name[1:]) % 5 for name in found} == set(range(5))
    assert "n0" in found


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"ready": False}, False),
        ({"labels": {"kubernetes.io/os": "windows"}}, False),
        ({"labels": {"kubernetes.io/os": "linux"}}, True),
    ],
)
def test_only_nodes_that_can_run_the_pods_take_part(change: dict, expected: bool):
    assert can_take_part({**nodes(1)[0], **change}) is expected


@pytest.mark.parametrize(
    "pod",
    [server_pod(0, "w1", IMAGE), client_pod(0, "w1", IMAGE, {"p0.0": url_of("10.244.1.5")})],
    ids=["server", "client"],
)
def test_the_pods_satisfy_the_restricted_level_and_end_by_themselves(pod: dict):
    """Source: kubernetes.io, Pod Security Standards."""
    spec = pod["spec"]
    (container,) = spec["containers"]

    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert all("hostPort" not in port for port in container.get("ports", []))
    assert {"name": "work", "emptyDir": {"sizeLimit": "8Mi"}} in spec["volumes"]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert 0 < spec["activeDeadlineSeconds"] <= 300
    assert spec["automountServiceAccountToken"] is False


def test_a_port_of_the_node_is_tried_by_a_pod_of_its_own():
    assert host_port_pod(0, "w1", IMAGE)["spec"]["containers"][0]["ports"][0]["hostPort"] > 1024


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[::ffff:10.244.1.7]", "10.244.1.7"),
        ("10.244.1.7", "10.244.1.7"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("", ""),
        ("<html>", ""),
    ],
)
def test_an_address_has_one_form(text: str, expected: str):
    assert plain_address(text) == expected


def test_answers_are_read_by_their_key():
    text = "p0.0 [::ffff:10.244.1.7]\nh1 \nn1.Local 10.0.0.12\n"

    assert parse_answers(text) == {"p0.0": "10.244.1.7", "h1": "", "n1.Local": "10.0.0.12"}


def status(**found: object) -> dict:
    """A pod in a state."""
    return {"status": found}


def container(**state: object) -> dict:
    """A pod whose container is in a state."""
    return status(phase="Pending", containerStatuses=[{"state": state}])


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (status(), ""),
        ({}, ""),
        (status(phase="Pending"), ""),
        (container(waiting={"reason": "ContainerCreating"}), ""),
        (
            container(waiting={"reason": "ImagePullBackOff", "message": "Back-off pulling"}),
            "ImagePullBackOff: Back-off pulling",
        ),
        (
            status(phase="Failed", reason="OutOfpods", message="Node didn't have enough"),
            "OutOfpods: Node didn't have enough",
        ),
        (status(phase="Failed"), "it failed"),
    ],
    ids=["new", "without a status", "pending", "creating", "no image", "no room", "without words"],
)
def test_a_pod_that_will_not_run_says_why(pod: dict, expected: str):
    assert pod_fault(pod) == expected


def test_what_a_pod_left_is_known_when_it_has_ended():
    assert termination_message(container(running={})) is None
    assert termination_message(container(terminated={"exitCode": 0, "message": "p0.0 x\n"})) == "p0.0 x\n"
    assert termination_message(container(terminated={"exitCode": 1})) == ""


def test_all_addresses_of_a_pod_count():
    assert pod_addresses(status(podIP="10.0.0.1")) == ["10.0.0.1"]
    both = [{"ip": "10.0.0.1"}, {"ip": "2001:db8::1"}]
    assert pod_addresses(status(podIP="10.0.0.1", podIPs=both)) == ["10.0.0.1", "2001:db8::1"]
    assert pod_addresses({}) == []


def proof(**changes: object) -> dict:
    """What flat_network returns of three nodes whose network is flat."""
    pairs = [
        {"source": source, "target": target, "address": POD[target], "seen": POD[source], "own": [POD[source]]}
        for source in NAMES
        for target in NAMES
    ]
    hosts = {name: name for name in NAMES}
    base = {"pairs": pairs, "host_ports": [], "node_ports": [], "unstarted": {}, "notes": {}, "left": ""}
    return {**base, "of": 3, "hosts": hosts, "addresses": NODE, **changes}


def seen_as(address: str, source: str, target: str = "") -> dict:
    """A proof in which pods of a node are seen from this address by those on other nodes."""
    found = proof()
    for item in found["pairs"]:
        if item["source"] == source != item["target"] and target in ("", item["target"]):
            item["seen"] = address
    return found


def test_a_flat_network_has_no_finding():
    assert flat_findings(proof(), "secure_workload") == []


@pytest.mark.parametrize(("engine", "severity"), [("secure_workload", "blocker"), ("native", "warning")])
def test_a_node_that_masquerades_its_pods_is_found(engine: str, severity: str):
    (found,) = flat_findings(seen_as("10.0.0.12", "w1"), engine)

    assert (found["id"], found["node"], found["severity"]) == ("network.source_masqueraded", "w1", severity)
    assert found["observed"] == "pods on cp1, w2 see pods on w1 as 10.0.0.12, this node's own address"


def test_a_node_that_masquerades_what_comes_in_is_found():
    found = proof()
    for item in found["pairs"]:
        if item["target"] == "w2" != item["source"]:
            item["seen"] = "10.0.0.13"
    (finding,) = flat_findings(found)

    assert (finding["node"], finding["observed"]) == (
        "w2",
        "pods on w2 see pods on cp1, w1 as 10.0.0.13, this node's own address",
    )


def test_an_address_of_nobody_is_the_sources_matter():
    (found,) = flat_findings(seen_as("10.244.2.1", "w1"))

    assert (found["node"], found["observed"]) == ("w1", "pods on cp1, w2 see pods on w1 as 10.244.2.1, not theirs")


def test_pods_that_nobody_reaches_are_found():
    found = proof()
    for item in found["pairs"]:
        if item["target"] == "w2" != item["source"]:
            item["seen"] = ""
    (finding,) = flat_findings(found)

    assert (finding["id"], finding["node"]) == ("network.pods_unreachable", "w2")
    assert finding["observed"] == "pods on this node are not reached by pods on cp1, w1 (TCP, tried twice)"


def test_pods_that_reach_nobody_are_found():
    (found,) = flat_findings(seen_as("", "w1"))

    assert found["node"] == "w1"
    assert found["observed"] == "pods on this node do not reach pods on cp1, w2 (TCP, tried twice)"


def test_either_address_of_a_pod_is_its_own():
    found = seen_as("2001:db8::7", "w1")
    for item in found["pairs"]:
        item["own"] = [*item["own"], "2001:db8::7"]

    assert flat_findings(found) == []


def test_a_node_without_a_pod_is_not_proven():
    (found,) = flat_findings(proof(unstarted={"w2": "ImagePullBackOff: no such image"}), "secure_workload")

    assert (found["id"], found["node"], found["severity"]) == ("network.flat_unproven", "w2", "warning")
    assert "ImagePullBackOff" in found["observed"]


def test_findings_carry_the_name_in_the_inventory():
    found = seen_as("10.0.0.12", "w1") | {"hosts": {"w1": "worker-1.example"}}

    assert flat_findings(found)[0]["node"] == "worker-1.example"


def test_the_line_says_which_pairs_were_tried():
    called = {"source": "w1", "target": "w2", "port": 31000, "own": ["10.244.2.5"]}
    node_ports = [
        {**called, "policy": "Cluster", "seen": "10.0.0.13"},
        {**called, "policy": "Local", "seen": "10.244.2.5"},
    ]

    assert tried_words(proof(node_ports=node_ports, notes={"hostPort": "denied"})) == (
        "flat network: 9 pairs of pods on 3 of 3 nodes (cp1, w1, w2); "
        "NodePort Cluster: 1 of 1 answered, 0 with the pod's own address; "
        "NodePort Local: 1 of 1 answered, 1 with the pod's own address; hostPort not tried: denied"
    )
