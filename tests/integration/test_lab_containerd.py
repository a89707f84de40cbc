"""The lab's nodes with other lines of containerd, and its registry as a mirror for each."""

import json
from collections.abc import Iterator

import pytest

from tests.integration.pods import busybox, pod_ip
from tests.lab import Lab, Node, Topology, containerd
from tests.lab.registry import Registry

# These two are built in every run (and then cached): the last 1.x, and a 2.x in wide use.
USUAL = ("1.7", "2.2")
LINES = [line if line in USUAL else pytest.param(line, marks=pytest.mark.full) for line in containerd.LINES]
CERTS = "/etc/containerd/certs.d"
HOSTS = f"""\
[host."http://{Registry.ADDRESS}"]
capabilities = ["pull", "resolve"]
"""


def node_with(line: str) -> Node:
    """A node without images whose containerd reads hosts.toml files."""
    plugin = "io.containerd.cri.v1.images" if line.startswith("2.") else "io.containerd.grpc.v1.cri"
    registry = f'\n[plugins."{plugin}".registry]\nconfig_path = "{CERTS}"\n'
    config = containerd.default_config(line) + registry
    return Node(name=f"c{line.replace('.', '')}", containerd=line, config_toml=config, images=())


@pytest.fixture(scope="module")
def lines() -> Iterator[Lab]:
    """A lab with a node of each usual line; `having` adds the others."""
    lab = Lab.open("labctrd")
    lab.down()
    try:
        lab.up(Topology(nodes=tuple(map(node_with, ("debian", *USUAL)))))
        yield lab
    finally:
        lab.down()


def having(lab: Lab, line: str) -> str:
    """The node with this line, added when it is first asked for; Docker's images come from the lab's registry."""
    node = node_with(line)
    if node.name not in lab.nodes:
        lab.node_add(node)
    lab.registry()
    lab.ssh(node.name, ["mkdir", "-p", f"{CERTS}/docker.io"])
    lab.ssh(node.name, ["tee", f"{CERTS}/docker.io/hosts.toml"], stdin=HOSTS)
    return node.name


@pytest.mark.parametrize("line", LINES)
def test_a_node_of_each_line(lines: Lab, line: str):
    """It is ready with the release of its line, as upstream installs it, and pods outlive a restart."""
    node = having(lines, line)
    info = json.loads(lines.kubectl("get", "node", node, "-o", "json").stdout)["status"]["nodeInfo"]
    lines.kubectl("apply", "-f", "-", stdin=busybox(f"on-{node}", node, "sleep", "3600"))
    assert pod_ip(lines, f"on-{node}")

    unit = lines.ssh(node, ["systemctl", "show", "containerd", "--property=KillMode,Delegate,FragmentPath,ExecStart"])
    assert info["containerRuntimeVersion"] == f"containerd://{containerd.version(line)[1:]}"
    assert "KillMode=process\n" in unit.stdout
    assert "Delegate=yes\n" in unit.stdout
    assert "FragmentPath=/usr/local/lib/systemd/system/containerd.service\n" in unit.stdout
    assert "path=/usr/local/bin/containerd ;" in unit.stdout
    assert lines.ssh(node, ["sh", "-c", "ls /usr/bin/containerd* /usr/bin/ctr"], check=False).stdout == ""

    pids = lines.ssh(node, ["pidof", "sleep"]).stdout
    lines.ssh(node, ["systemctl", "restart", "containerd"])
    assert lines.ssh(node, ["pidof", "sleep"]).stdout == pids
    assert lines.kubectl("exec", f"on-{node}", "--", "hostname").stdout == f"on-{node}\n"
    assert lines.ssh(node, ["systemctl", "--failed", "--quiet", "--plain"]).stdout == ""


@pytest.mark.parametrize("line", ["debian", *LINES])
def test_a_pull_through_the_mirror(lines: Lab, line: str):
    """A pod's image comes from the lab's registry, which is told whose mirror it is, and by whom."""
    node = having(lines, line)
    registry = lines.registry()
    registry.push(f"team/{node}:1")
    lines.kubectl("apply", "-f", "-", stdin=busybox(f"pulls-{node}", node, "sleep", "3600", image=f"team/{node}:1"))
    assert pod_ip(lines, f"pulls-{node}")

    target = f"/v2/team/{node}/manifests/1?ns=docker.io"
    asked = [request for request in registry.requests() if request.target == target]
    assert {request.client for request in asked} == {lines.address(node).node}
    assert {request.status for request in asked} == {200}
    assert all(request.agent.startswith("containerd/") for request in asked)


def test_the_registry_is_only_in_the_lab(lines: Lab):
    """It is started once, and does not listen on the host."""
    first = lines.registry().requests()

    assert lines.registry().requests() == first
    assert lines.run("ss", "-Hltn", "sport", "=", ":5000").stdout.split()[3] == Registry.ADDRESS
    assert lines.problems() == []
