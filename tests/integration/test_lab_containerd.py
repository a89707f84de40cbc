"""The lab's nodes with other lines of containerd."""

import json
from collections.abc import Iterator

import pytest

from tests.integration.pods import busybox, pod_ip
from tests.lab import Lab, Node, Topology, containerd

# These two are built in every run (and then cached): the last 1.x, and a 2.x in wide use.
USUAL = ("1.7", "2.2")
LINES = [line if line in USUAL else pytest.param(line, marks=pytest.mark.full) for line in containerd.LINES]


def name(line: str) -> str:
    """The node with this line."""
    return f"c{line.replace('.', '')}"


@pytest.fixture(scope="module")
def lines() -> Iterator[Lab]:
    """A lab with a node of each usual line; `having` adds the others."""
    lab = Lab.open("labctrd")
    lab.down()
    try:
        lab.up(Topology(nodes=tuple(Node(name=name(line), containerd=line) for line in USUAL)))
        yield lab
    finally:
        lab.down()


def having(lab: Lab, line: str) -> str:
    """The node with this line, added when it is first asked for."""
    if name(line) not in lab.nodes:
        lab.node_add(Node(name=name(line), containerd=line))
    return name(line)


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
