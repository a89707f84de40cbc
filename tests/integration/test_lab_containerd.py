"""The lab's nodes with other lines of containerd, and its registry as a mirror for each."""

import json
import subprocess
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


def pull_over_tls(lab: Lab, node: str, address: str, keys: str) -> bool:
    """Whether the node pulls from an address of the registry with these keys in its hosts.toml file."""
    hosts = f'[host."https://{address}"]\ncapabilities = ["pull", "resolve"]\n{keys}\n'
    lab.ssh(node, ["mkdir", "-p", f"{CERTS}/{address}"])
    lab.ssh(node, ["tee", f"{CERTS}/{address}/hosts.toml"], stdin=hosts)
    image = f"{address}/library/busybox:1.33"
    lab.ssh(node, ["ctr", "images", "rm", "--sync", image])
    pulled = lab.ssh(node, ["ctr", "images", "pull", "--hosts-dir", CERTS, image], check=False)
    return pulled.returncode == 0


@pytest.mark.parametrize("line", ["debian", *LINES])
def test_a_pull_over_tls(lines: Lab, line: str):
    """The authority must be known, the second address wants a client certificate, and a header is seen in the log."""
    node = having(lines, line)
    registry = lines.registry()
    files = {"ca.crt": registry.ca, "client.crt": registry.client[0], "client.key": registry.client[1]}
    for name, text in files.items():
        lines.ssh(node, ["tee", f"/etc/containerd/{name}"], stdin=text)
    known = 'ca = "/etc/containerd/ca.crt"'
    client = f'{known}\nclient = [["/etc/containerd/client.crt", "/etc/containerd/client.key"]]'
    header = f'{client}\n[host."https://{registry.MTLS_ADDRESS}".header]\nReferer = "from-{node}"'

    assert not pull_over_tls(lines, node, registry.TLS_ADDRESS, "")
    assert pull_over_tls(lines, node, registry.TLS_ADDRESS, known)
    assert not pull_over_tls(lines, node, registry.MTLS_ADDRESS, known)
    assert pull_over_tls(lines, node, registry.MTLS_ADDRESS, header)

    def asked(address: str) -> list[tuple[int, str]]:
        found = [one for one in registry.requests(address) if one.client == lines.address(node).node]
        return [(one.status, one.referer) for one in found if "/manifests/" in one.target]

    assert set(asked(registry.TLS_ADDRESS)) == {(200, "")}
    assert set(asked(registry.MTLS_ADDRESS)) == {(200, f"from-{node}")}


def test_the_registry_is_only_in_the_lab(lines: Lab):
    """It is started once, and does not listen on the host."""
    first = lines.registry().requests()

    assert lines.registry().requests() == first
    for address in (Registry.ADDRESS, Registry.TLS_ADDRESS, Registry.MTLS_ADDRESS):
        sockets = ["ss", "-Hltn", "sport", "=", f":{address.rpartition(':')[2]}"]
        assert lines.run(*sockets).stdout.split()[3] == address
        assert address not in subprocess.run(sockets, capture_output=True, text=True, check=True).stdout
    assert lines.problems() == []
