"""Topologies: what is read, and what is refused before anything starts."""

import pytest

from tests.lab import topology
from tests.lab.errors import LabError
from tests.lab.topology import Node, Topology

FULL = """
proxy_mode: nftables
nodes:
  - name: cp1
    labels: {node-role.kubernetes.io/control-plane: ""}
    taints: ["node-role.kubernetes.io/control-plane:NoSchedule"]
  - name: w1
    config_toml: |
      version = 2
    images: []
  - {name: w2, containerd: 2.2}
  - name: h1
    cluster: false
    containerd: none
"""


def test_parse_full():
    """Every option arrives in its field."""
    found = topology.parse(FULL)

    assert found.proxy_mode == "nftables"
    assert [node.name for node in found.nodes] == ["cp1", "w1", "w2", "h1"]
    assert found.nodes[0].control_plane
    assert found.nodes[0].taints == ("node-role.kubernetes.io/control-plane:NoSchedule",)
    assert found.nodes[1].config_toml == "version = 2\n"
    assert found.nodes[1].images == ()
    assert found.nodes[2].containerd == "2.2"
    assert (found.nodes[3].cluster, found.nodes[3].containerd) == (False, "none")


def test_ipvs_needs_kernels_of_their_own():
    """All nodes of the cluster are machines; a plain host runs no kube-proxy."""
    nodes = "nodes: [{name: v1, kind: vm}, {name: h1, cluster: false}]"
    found = topology.parse(nodes + "\nproxy_mode: ipvs")

    assert [node.kind for node in found.nodes] == ["vm", "container"]


def test_default_has_every_group():
    """The default lab serves tests of clusters and of plain hosts."""
    nodes = topology.DEFAULT.nodes

    assert sum(node.control_plane for node in nodes) == 1
    assert sum(node.cluster for node in nodes) == 3
    assert sum(not node.cluster for node in nodes) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("nodes: [{name: w1, lables: {a: b}}]", "unknown key lables; expected: name, kind", id="node key"),
        pytest.param("nodes: [{name: w1}]\nmode: x", "unknown key mode; expected: nodes, proxy_mode", id="key"),
        pytest.param("nodes: [{name: w1}, {name: w1}]", "more than once: w1", id="doubled name"),
        pytest.param("nodes: []", "a list of at least one node", id="no nodes"),
        pytest.param("- a", "a mapping with `nodes`", id="a list"),
        pytest.param("nodes: [", "not YAML", id="not YAML"),
        pytest.param("nodes: [w1]", "a mapping with `name`", id="node is a string"),
        pytest.param("nodes: [{name: W1}]", "'W1': expected 1 to 12 of a-z", id="capital"),
        pytest.param("nodes: [{name: 1}]", "node 1: expected 1 to 12", id="name is a number"),
        pytest.param("nodes: [{name: w1, kind: vm2}]", "kind: found 'vm2', expected one of: container, vm", id="kind"),
        pytest.param("nodes: [{name: w1, taints: a:NoSchedule}]", "expected a list of strings", id="taints a string"),
        pytest.param("nodes: [{name: w1, taints: ['a:Never']}]", "'a:Never': expected key[=value]:Effect", id="effect"),
        pytest.param("nodes: [{name: w1, labels: {a: 1}}]", "expected two strings; quote the value", id="label"),
        pytest.param("nodes: [{name: w1, labels: [a]}]", "labels: found ['a'], expected a mapping", id="label list"),
        pytest.param("nodes: [{name: w1, containerd: none}]", "a cluster node needs a containerd", id="no containerd"),
        pytest.param("nodes: [{name: w1, containerd: 1.5}]", "found '1.5', expected one of: debian, none", id="line"),
        pytest.param("nodes: [{name: w1, cluster: false, taints: ['a:NoSchedule']}]", "a plain host", id="plain taint"),
        pytest.param("nodes: [{name: w1, cluster: 'no'}]", "cluster: found 'no', expected true or false", id="bool"),
        pytest.param("nodes: [{name: w1, images: [nginx]}]", "images: found 'nginx', expected", id="image"),
        pytest.param("nodes: [{name: w1, config_toml: 3}]", "config_toml: found 3, expected a text", id="toml"),
        pytest.param("nodes: [{name: w1}]\nproxy_mode: ip", "proxy_mode: found 'ip'", id="proxy mode"),
        pytest.param(
            "nodes: [{name: v1, kind: vm}, {name: w1}]\nproxy_mode: ipvs",
            "proxy_mode ipvs: w1 has the host's kernel, which may lack IPVS; expected `kind: vm`",
            id="ipvs on a container node",
        ),
    ],
)
def test_parse_refuses(text: str, expected: str):
    """The error names the key, what was found and what was expected."""
    with pytest.raises(LabError) as caught:
        topology.parse(text)

    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a:NoSchedule", {"key": "a", "effect": "NoSchedule"}, id="key"),
        pytest.param("a/b=c:NoExecute", {"key": "a/b", "value": "c", "effect": "NoExecute"}, id="value"),
        pytest.param("a=:NoExecute", {"key": "a", "effect": "NoExecute"}, id="empty value"),
    ],
)
def test_parse_taint(text: str, expected: dict):
    """Taints are written as kubectl takes them."""
    assert topology.parse_taint(text) == expected


def test_node_is_immutable():
    """A topology that was checked stays as it was checked."""
    with pytest.raises(AttributeError):
        Topology(nodes=(Node(name="w1"),)).nodes[0].name = "w2"
