"""Nodes with a kernel of their own: they join, their kernel has what container nodes lack, the probe leaves no trace.

Booting the two takes 20 to 60 s, each test up to 60 s: all are for `make test-full`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.fleet import Fleet, run_ansible
from tests.integration.pods import busybox, pod_ip
from tests.lab import Lab, Node
from tests.lab.containerd import default_config
from tests.lab.run import wait

pytestmark = pytest.mark.full

IN_CLUSTER, PLAIN = "v1", "v2"
# With the directory that a run would set: so nothing is left to find.
CONFIG_TOML = (
    default_config("debian") + '  [plugins."io.containerd.grpc.v1.cri".registry]\n'
    '    config_path = "/etc/containerd/certs.d"\n'
)
STATE = (Path(__file__).parent / "node_state.py").read_text(encoding="utf-8")
MODULES = ("ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh", "wireguard", "ipip", "vxlan", "xt_set", "xt_ipvs", "cls_bpf")
PROXY_MODE = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:10249/proxyMode').read().decode())"
KILLED_AT = (0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9)
"""In parts of the time that a whole probe takes."""
TIMED = 'a=$(date +%s%N); python3 "$1" >/dev/null; b=$(date +%s%N); echo "$(((b - a) / 1000000))e-3"'
KILLED = 'python3 "$1" >/dev/null 2>&1 & sleep "$2"; kill -KILL "$!"'  # fails when the probe was over before


@pytest.fixture(scope="module")
def machines(lab: Lab) -> Iterator[Lab]:
    """The lab with a machine in its cluster and one beside it."""
    names = []
    try:
        for node in (
            Node(name=IN_CLUSTER, kind="vm", config_toml=CONFIG_TOML),
            Node(name=PLAIN, kind="vm", cluster=False),
        ):
            names.append(node.name)
            lab.node_add(node)
        yield lab
    finally:
        for name in names:
            lab.node_remove(name)


def state(lab: Lab, name: str) -> dict:
    """What node_state.py sees."""
    return json.loads(lab.ssh(name, ["python3", "-"], stdin=STATE).stdout)


def settled(lab: Lab, name: str) -> dict:
    """The state of a node once nothing changes any more, within 60 s: a kubelet and a kube-proxy have work at first."""
    deadline = time.monotonic() + 60
    before = state(lab, name)
    while (now := state(lab, name)) != before:
        assert time.monotonic() < deadline, f"{name} does not settle: {differences(before, now)}"
        before = now
    return before


def differences(before: dict, after: dict) -> list[str]:
    """What is not the same, a line each."""
    found = []
    for section, value in before.items():
        one, other = (entry if isinstance(entry, dict) else {"": entry} for entry in (value, after[section]))
        found += [
            f"{section} {key}: {one.get(key)} -> {other.get(key)}"
            for key in sorted({*one, *other})
            if one.get(key) != other.get(key)
        ]
    return found


def test_a_machine_is_a_node_like_the_others(machines: Lab):
    """Ready, with its own kernel, and its pods and those of other nodes reach each other."""
    items = json.loads(machines.kubectl("get", "nodes", "-o", "json").stdout)["items"]
    kernels = {item["metadata"]["name"]: item["status"]["nodeInfo"]["kernelVersion"] for item in items}
    assert kernels[IN_CLUSTER] != kernels["w1"]

    for name, node in (("on-machine", IN_CLUSTER), ("elsewhere", "w1")):
        machines.kubectl("apply", "-f", "-", stdin=busybox(name, node, "httpd", "-f", "-vv", "-p", "80"))
    try:
        addresses = {name: pod_ip(machines, name) for name in ("on-machine", "elsewhere")}
        for client, server in (("on-machine", "elsewhere"), ("elsewhere", "on-machine")):
            url = f"http://{addresses[server]}/etc/hostname"
            answer = machines.kubectl("exec", client, "--", "wget", "-q", "-O", "-", url)
            assert answer.stdout == f"{server}\n"
            assert f"[::ffff:{addresses[client]}]" in machines.kubectl("logs", server).stdout
        confined = machines.kubectl("exec", "on-machine", "--", "cat", "/proc/self/attr/current").stdout
        assert confined == "cri-containerd.apparmor.d (enforce)\n"
    finally:
        machines.kubectl("delete", "pod", "on-machine", "elsewhere", "--ignore-not-found")


def test_preflight_has_nothing_to_say_of_a_clean_machine(machines: Lab, fleet: Fleet):
    run = fleet.site(playbook="preflight.yml")
    found = {(problem, node) for problem, node in run.findings if node in (IN_CLUSTER, PLAIN)}

    # The machine in the cluster has it set as a run would set it.
    assert found == {("containerd.config_path", PLAIN)}


@pytest.mark.parametrize("name", [PLAIN, IN_CLUSTER])
def test_the_probe_changes_nothing(machines: Lab, monkeypatch: pytest.MonkeyPatch, name: str):
    """Not when it is the first to look, and not when it is killed, at whatever moment."""
    inventory = str(machines.inventory_path)
    monkeypatch.setenv("ANSIBLE_KEEP_REMOTE_FILES", "1")
    # For the directory that Ansible makes.
    assert run_ansible(["ansible", name, "-i", inventory, "-m", "ansible.builtin.ping"])[0] == 0
    before = settled(machines, name)
    code, output = run_ansible(["ansible", name, "-i", inventory, "-m", "portcullis.fleet.node_probe"])
    assert code == 0, output
    assert differences(before, state(machines, name)) == []

    find = ["find", "/root/.ansible/tmp", "-name", "AnsiballZ_node_probe.py"]
    (module,) = machines.ssh(name, find).stdout.split()
    duration_s = float(machines.ssh(name, ["sh", "-c", TIMED, "sh", module]).stdout)
    killed = []
    for part in KILLED_AT:
        script = [*("sh", "-c", KILLED, "sh", module), f"{part * duration_s:.2f}"]
        killed.append(machines.ssh(name, script, check=False).returncode == 0)
        # What the probe had started ends with it, if not at once.
        deadline = time.monotonic() + 10
        while (left := differences(before, state(machines, name))) and time.monotonic() < deadline:
            time.sleep(0.5)
        assert left == [], f"killed after {part:.0%} of {duration_s:.1f} s"
    assert killed.count(True) > len(KILLED_AT) / 2


def test_what_the_probe_loads_to_try_it_is_unloaded(machines: Lab):
    """Nothing of it is left, and what modprobe is told not to load is not there, though its file is."""
    barred = "/etc/modprobe.d/portcullis-test.conf"
    machines.ssh(PLAIN, ["sh", "-c", f"echo install ipip /bin/false > {barred}"])
    inventory = str(machines.inventory_path)
    before = settled(machines, PLAIN)
    argv = ["ansible", PLAIN, "-i", inventory, "-m", "portcullis.fleet.node_probe", "-a", "probe_deep=true"]
    code, output = run_ansible(argv)
    assert code == 0, output
    features = json.loads(output.partition("=>")[2])["probe"]["kernel_features"]["features"]

    assert differences(before, state(machines, PLAIN)) == []
    machines.ssh(PLAIN, ["rm", barred])
    tried = ("ipvs", "wireguard", "vxlan", "iptables_match.set", "iptables_match.ipvs", "nft.fib", "tc.bpf")
    assert {name: features[name]["state"] for name in tried} == dict.fromkeys(tried, "works")
    assert features["ipip"]["state"] == "absent"
    assert barred in features["ipip"]["evidence"]


def test_the_kernel_has_what_container_nodes_lack(machines: Lab):
    modules = machines.ssh(PLAIN, ["sh", "-c", f"for m in {' '.join(MODULES)}; do modprobe $m || echo $m; done"])
    assert modules.stdout == ""

    lsm = machines.ssh(PLAIN, ["cat", "/sys/kernel/security/lsm"]).stdout.strip().split(",")
    assert {"apparmor", "bpf"} <= set(lsm)
    assert machines.ssh(PLAIN, ["stat", "-fc", "%T", "/sys/fs/cgroup"]).stdout == "cgroup2fs\n"
    assert machines.ssh(PLAIN, ["test", "-e", "/sys/kernel/btf/vmlinux"]).returncode == 0
    machines.ssh(PLAIN, ["sysctl", "-w", "net.ipv4.conf.all.rp_filter=2"])


@pytest.mark.parametrize("unit", ["firewalld", "NetworkManager", "ufw"])
def test_what_a_test_may_start(machines: Lab, unit: str):
    """Nothing starts it; a test may, and SSH stays open."""
    is_enabled = machines.ssh(PLAIN, ["systemctl", "is-enabled", unit], check=False)
    assert is_enabled.stdout == "disabled\n"

    machines.ssh(PLAIN, ["systemctl", "start", unit])
    assert machines.ssh(PLAIN, ["systemctl", "is-active", unit]).stdout == "active\n"
    machines.ssh(PLAIN, ["systemctl", "stop", unit])


def test_a_machine_keeps_its_changes_through_a_reboot(machines: Lab):
    machines.ssh(PLAIN, ["sh", "-c", "echo changed >> /etc/hosts; sync"])
    boot_id = ["cat", "/proc/sys/kernel/random/boot_id"]
    before = machines.ssh(PLAIN, boot_id).stdout
    machines.ssh(PLAIN, ["systemctl", "reboot"], check=False)

    def back() -> bool:
        found = machines.ssh(PLAIN, boot_id, check=False, timeout_s=20)
        return found.returncode == 0 and found.stdout != before

    wait(f"{PLAIN} is back", back, timeout_s=120, interval_s=1)
    assert machines.ssh(PLAIN, ["tail", "-n1", "/etc/hosts"]).stdout == "changed\n"
    assert machines.problems() == []


@pytest.fixture
def ipvs(machines: Lab) -> Iterator[None]:
    """kube-proxy of the machine in mode ipvs, those of the other nodes as before."""

    def switch(old: str, new: str) -> None:
        config_map = machines.kubectl("-n", "kube-system", "get", "configmap", "kube-proxy", "-o", "json").stdout
        machines.kubectl("replace", "-f", "-", stdin=config_map.replace(f"mode: {old}", f"mode: {new}"))
        where = f"--field-selector=spec.nodeName={IN_CLUSTER}"
        machines.kubectl("-n", "kube-system", "delete", "pod", "-l", "k8s-app=kube-proxy", where)

    switch("iptables", "ipvs")
    yield
    switch("ipvs", "iptables")


def test_kube_proxy_runs_in_mode_ipvs(machines: Lab, ipvs: None):
    """The service of the API server is a virtual server of the kernel."""

    def mode() -> str:
        return machines.ssh(IN_CLUSTER, ["python3", "-c", PROXY_MODE], check=False).stdout

    wait("kube-proxy says ipvs", lambda: mode() == "ipvs\n", timeout_s=60, interval_s=1)
    # 10.96.0.1:443
    seen = ["grep", "-c", "0A600001:01BB", "/proc/net/ip_vs"]
    wait("it serves", lambda: machines.ssh(IN_CLUSTER, seen, check=False).stdout == "1\n", timeout_s=60, interval_s=1)
    assert machines.ssh("w1", ["python3", "-c", PROXY_MODE]).stdout == "iptables\n"
