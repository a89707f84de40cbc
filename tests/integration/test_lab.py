"""The lab itself, with labs of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.pods import busybox, pod_ip
from tests.lab import Lab, LabError, Node, Topology
from tests.lab.run import wait
from tests.lab.state import Process

ROOT = Path(__file__).resolve().parents[2]
NAME = "labtest"
SMALL = Topology(nodes=(Node(name="n1"),))


@dataclass(frozen=True)
class Traces:
    """What a lab could leave on the machine. Others may use the machine at the same time, so by the lab's name."""

    mounts: frozenset[str]
    links: frozenset[str]
    cgroups: frozenset[str]
    processes: frozenset[int]
    state: bool


def traces(name: str) -> Traces:
    """Look for them now."""
    mark = f"portcullis-{name}-"
    state = Lab.open(name).directory
    links = json.loads(subprocess.check_output(["ip", "-json", "link"], text=True))
    mounts = [
        line for line in Path("/proc/self/mountinfo").read_text().splitlines() if mark in line or str(state) in line
    ]
    found = {
        int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and belongs(path, mark, str(state))
    }
    cgroups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{mark}*")]
    return Traces(
        frozenset(mounts),
        frozenset(link["ifname"] for link in links),
        frozenset(cgroups),
        frozenset(found - {os.getpid()}),
        state.exists(),
    )


def belongs(process: Path, mark: str, state: str) -> bool:
    """Whether a process is in a lab's cgroups or has its directory in its command line, and has not ended.

    One that has ended stays in sight until the machine's own PID 1 asks for its exit code.
    """
    try:
        if (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return False
        return mark in (process / "cgroup").read_text() or state in (process / "cmdline").read_text(errors="replace")
    except OSError:
        return False


@pytest.fixture(scope="module")
def own() -> Iterator[Lab]:
    """A default lab for the tests that only look."""
    lab = Lab.open(NAME)
    lab.down()
    try:
        assert lab.up()
        yield lab
    finally:
        lab.down()


@pytest.fixture
def small() -> Iterator[Lab]:
    """A lab of one node, for the tests that break it; brought up by a user with a strict umask."""
    lab = Lab.open("labsmall")
    lab.down()
    umask = os.umask(0o077)
    try:
        lab.up(SMALL)
        yield lab
    finally:
        os.umask(umask)
        lab.down()


def test_nodes_are_ready(own: Lab):
    """Three cluster nodes with their roles; the plain host is not among them."""
    nodes = json.loads(own.kubectl("get", "nodes", "-o", "json").stdout)["items"]
    by_name = {node["metadata"]["name"]: node for node in nodes}

    assert sorted(by_name) == ["cp1", "w1", "w2"]
    for node in nodes:
        ready = [entry["status"] for entry in node["status"]["conditions"] if entry["type"] == "Ready"]
        assert ready == ["True"]
        assert node["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://1.6.")
    assert by_name["cp1"]["spec"]["taints"] == [
        {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
    ]


def test_pods_reach_each_other_across_nodes(own: Lab):
    """With their own addresses: the server sees the client pod's, not its node's. Needs exec and logs as well."""
    own.kubectl("apply", "-f", "-", stdin=busybox("server", "w1", "httpd", "-f", "-vv", "-p", "80"))
    own.kubectl("apply", "-f", "-", stdin=busybox("client", "w2", "sleep", "3600"))
    server, client = pod_ip(own, "server"), pod_ip(own, "client")
    answer = own.kubectl("exec", "client", "--", "wget", "-q", "-O", "-", f"http://{server}/etc/hostname")

    assert answer.stdout == "server\n"
    assert f"[::ffff:{client}]" in own.kubectl("logs", "server").stdout


def test_services_work(own: Lab):
    """kube-proxy leads a service's address to its pod."""
    own.kubectl("apply", "-f", "-", stdin=busybox("backend", "w1", "httpd", "-f", "-p", "80"))
    own.kubectl("apply", "-f", "-", stdin=busybox("caller", "w2", "sleep", "3600"))
    pod_ip(own, "backend"), pod_ip(own, "caller")
    own.kubectl("expose", "pod", "backend", "--port=80")
    address = own.kubectl("get", "service", "backend", "-o", "jsonpath={.spec.clusterIP}").stdout
    call = ("exec", "caller", "--", "timeout", "2", "wget", "-q", "-O", "-", f"http://{address}/etc/hostname")

    wait("the service answers", lambda: own.kubectl(*call, check=False).stdout == "backend\n", timeout_s=20)


def test_kube_proxy_says_its_mode(own: Lab):
    """On every cluster node, at the address that is not reachable from elsewhere."""
    script = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:10249/proxyMode').read().decode())"

    for name in ("cp1", "w1", "w2"):
        assert own.ssh(name, ["python3", "-c", script]).stdout == "iptables\n"


def test_pod_security_refuses(own: Lab):
    """The API server admits as a real one does."""
    own.kubectl("create", "namespace", "tight")
    own.kubectl("label", "namespace", "tight", "pod-security.kubernetes.io/enforce=restricted")
    pod = busybox("bad", "w1", "sleep", "1", securityContext={"privileged": True})
    refused = own.kubectl("apply", "-n", "tight", "-f", "-", stdin=pod, check=False)

    assert refused.returncode == 1
    assert 'violates PodSecurity "restricted:latest"' in refused.stderr


def test_a_kubelet_may_not_give_itself_roles(own: Lab):
    """Node authorisation and NodeRestriction are on."""
    kubectl = ["kubectl", "--kubeconfig=/etc/kubernetes/kubelet.conf"]
    refused = own.ssh("w1", [*kubectl, "label", "node", "w1", "node-role.kubernetes.io/a="], check=False)

    assert refused.returncode == 1
    assert "is not allowed to modify labels: node-role.kubernetes.io/a" in refused.stderr


def test_ansible_reaches_every_node(own: Lab):
    """The inventory works from outside as it stands."""
    ansible = Path(sys.executable).parent / "ansible"
    done = subprocess.run(
        [ansible, "-i", own.inventory_path, "all", "-m", "ansible.builtin.ping"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == 4


def test_firewalld_waits_for_a_test(own: Lab):
    """It is installed, nothing starts it, it works when a test does, and SSH stays open."""
    status = ["sh", "-c", "systemctl is-enabled firewalld; systemctl is-active firewalld"]
    assert own.ssh("h1", status, check=False).stdout == "disabled\ninactive\n"

    own.ssh("h1", ["systemctl", "start", "firewalld"])
    assert own.ssh("h1", ["firewall-cmd", "--state"]).stdout == "running\n"
    assert "table inet firewalld" in own.ssh("h1", ["nft", "list", "tables"]).stdout

    own.ssh("h1", ["systemctl", "stop", "firewalld"])
    assert "firewalld" not in own.ssh("h1", ["nft", "list", "tables"]).stdout


def test_up_again_does_nothing(own: Lab):
    """The same processes, and not a byte of the state changed."""
    file = own.directory / "state.json"
    before = file.read_bytes()

    assert Lab.open(NAME).up() is False
    assert Lab.open(NAME).down(unless_whole=True) is False
    assert file.read_bytes() == before
    with pytest.raises(LabError, match="another topology"):
        Lab.open(NAME).up(SMALL)


def test_node_add_and_remove(own: Lab):
    """A node joins with labels and taints, and leaves nothing: object, route, cgroup, files, inventory."""
    own.node_add(Node(name="w3", labels={"zone": "a"}, taints=("only=this:NoExecute",), images=()))
    node = json.loads(own.kubectl("get", "node", "w3", "-o", "json").stdout)
    assert node["metadata"]["labels"]["zone"] == "a"
    assert {"key": "only", "value": "this", "effect": "NoExecute"} in node["spec"]["taints"]
    assert "busybox" not in own.ssh("w3", ["ctr", "-n", "k8s.io", "images", "list", "-q"]).stdout
    assert "w3" in own.inventory_path.read_text()

    own.node_remove("w3")

    assert own.kubectl("get", "node", "w3", check=False).returncode == 1
    assert "w3" not in own.inventory_path.read_text()
    assert not (own.directory / "nodes/w3").exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/portcullis-{NAME}-*/node-w3"))
    assert "10.244.5." not in own.run("ip", "route").stdout
    assert own.problems() == []


def test_a_node_comes_back_after_a_reboot(own: Lab):
    """The machine boots again, with its files and its pods."""
    own.ssh("w2", ["touch", "/root/still-here"])
    booted = own.ssh("w2", ["cat", "/proc/1/stat"]).stdout.split()[21]
    own.ssh("w2", ["systemctl", "reboot"], check=False)

    def back() -> bool:
        found = own.ssh("w2", ["cat", "/proc/1/stat", "/root/still-here"], check=False)
        return found.returncode == 0 and found.stdout.split()[21] != booted

    wait("w2 is back", back, timeout_s=60, interval_s=0.5)
    wait("its kubelet runs", lambda: _active(own, "w2", "kubelet"), timeout_s=30)


def _active(lab: Lab, node: str, unit: str) -> bool:
    return lab.ssh(node, ["systemctl", "is-active", unit], check=False).stdout == "active\n"


def test_down_leaves_nothing(own: Lab):
    """Mounts, links, cgroups, processes and state; the last of the tests of this lab."""
    before = traces(NAME)

    assert before.processes
    assert before.cgroups
    assert own.down()
    assert traces(NAME) == Traces(frozenset(), before.links, frozenset(), frozenset(), False)
    assert own.down() is False


def test_node_options(small: Lab):
    """An own config.toml as it stands, a host without containerd, and no image but what a node needs."""
    text = 'version = 2\n# mine\n[plugins."io.containerd.grpc.v1.cri".registry]\n  config_path = "/etc/mine"\n'
    small.node_add(Node(name="n2", config_toml=text))
    small.node_add(Node(name="h2", cluster=False, containerd="none"))

    assert small.ssh("n2", ["cat", "/etc/containerd/config.toml"]).stdout == text
    assert small.ssh("h2", ["sh", "-c", "command -v containerd ctr runc"], check=False).stdout == ""
    assert small.ssh("h2", ["systemctl", "--failed", "--quiet", "--plain"]).stdout == ""
    small.kubectl("apply", "-f", "-", stdin=busybox("p", "n2", "sleep", "3600"))
    assert pod_ip(small, "p")


def test_all_ends_with_pid_1(small: Lab):
    """kill -9 of the namespace's PID 1 leaves cgroups, which `down` removes."""
    init = small._store.state.init
    assert isinstance(init, Process)
    links = traces(small.name).links
    os.kill(init.pid, signal.SIGKILL)
    wait("all processes end", lambda: not traces(small.name).processes, timeout_s=20)

    left = traces(small.name)
    assert (left.mounts, left.links) == (frozenset(), links)
    with pytest.raises(LabError, match="has ended: run `down`"):
        Lab.open(small.name).up()
    assert small.down()
    assert traces(small.name) == Traces(frozenset(), links, frozenset(), frozenset(), False)


def test_a_dead_part_is_named(small: Lab):
    """`up` repairs nothing silently."""
    small.run("kill", "-KILL", str(small._store.state.processes["kube-scheduler"].pid))

    wait("it has ended", lambda: small.problems() == ["kube-scheduler has ended"], timeout_s=10)

    with pytest.raises(LabError, match="kube-scheduler has ended: run `down`"):
        Lab.open(small.name).up()
    assert small.down(unless_whole=True)
    assert small.problems() == ["lab labsmall does not exist"]


@pytest.mark.parametrize("after_s", [0.15, 0.25, 0.4, 0.7, 1.2, 2.5, 5.0])
def test_killed_up_leaves_nothing_after_down(after_s: float):
    """kill -9 of `up` at any moment, then `down`."""
    name = "labkilled"
    before = traces(name)
    command = [sys.executable, "-m", "tests.lab", "up", "--name", name]
    program = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    time.sleep(after_s)
    program.kill()
    program.wait(timeout=30)
    lab = Lab.open(name)
    if lab.exists and lab.problems():
        with pytest.raises(LabError, match="run `down`"):
            lab.up()

    lab.down()
    assert traces(name) == before


def test_failing_node_is_explained(small: Lab, monkeypatch: pytest.MonkeyPatch):
    """The error ends with what the failing component said last."""
    monkeypatch.setattr("tests.lab.lab._READY_TIMEOUT_S", 8)

    with pytest.raises(LabError) as caught:
        small.node_add(Node(name="n3", config_toml="version = \n"))
    assert "n3: its kubelet has not reported" in str(caught.value)
    assert "n3: kubelet:" in str(caught.value)


def test_two_labs_at_once(small: Lab):
    """The same inner addresses, different ports; both answer."""
    other = Lab.open("labother")
    other.down()
    try:
        other.up(SMALL)

        assert other.address("n1") == small.address("n1")
        assert other.port["n1"] != small.port["n1"]
        for lab in (other, small):
            assert lab.kubectl("get", "nodes", "-o", "name").stdout == "node/n1\n"
    finally:
        other.down()
