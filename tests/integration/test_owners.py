# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""containerd_config where another program makes the configuration: its source is edited, its unit restarted.

The owner is a stand-in (owner_stub.py), the daemon, systemd, CRI and the pod are real.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.target import ANSIBLE, BUSYBOX
from tests.lab.topology import Node

NODE = "owned"
LINE = "2.2"
STUB = Path(__file__).with_name("owner_stub.py")
K3S = "/var/lib/rancher/k3s/agent/etc/containerd"
MICROK8S = "/var/snap/microk8s/7000/args"
NRI_SOCKET = "grep -c /run/nri/nri.sock /proc/net/unix || true"
UNITS = {"k3s": "k3s.service", "k0s": "k0sworker.service", "microk8s": "snap.microk8s.daemon-containerd.service"}
REGISTRY = "\n[plugins.'io.containerd.cri.v1.images'.registry]\n  config_path = '{}'\n"
# What the daemon does not take: refused when it is tried, and the reason of a roll-back when it is not.
BROKEN = {"table": ["plugins", "io.containerd.cri.v1.runtime"], "key": "max_container_log_line_size", "value": "many"}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "owned"},
    "spec": {
        "nodeName": NODE,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sleep", "86400"]}],
    },
}


class Owned:
    """The node, and the owner of its configuration."""

    def __init__(self, lab):
        self.lab = lab
        self.unit = ""

    def sh(self, script: str) -> str:
        return self.lab.ssh(NODE, ["sh", "-ec", script]).stdout

    def write(self, path: str, text: str) -> None:
        self.lab.ssh(NODE, ["sh", "-ec", f"mkdir -p {Path(path).parent}; cat > {path}"], stdin=text)

    def read(self, path: str) -> str | None:
        return self.sh(f"cat {path}") if self.sh(f"test -e {path} && echo yes || true") else None

    def own(self, owner: str, base: str) -> None:
        """Let an owner start containerd instead of its own unit."""
        self.unit = UNITS[owner]
        self.write("/usr/local/lib/owner-base.toml", base)
        self.write(
            f"/etc/systemd/system/{self.unit}",
            "[Service]\nDelegate=yes\nKillMode=process\nRestart=always\nRestartSec=1\n"
            f"ExecStart=/usr/bin/python3 /usr/local/lib/owner_stub.py {owner} /usr/local/bin/containerd "
            "/usr/local/lib/owner-base.toml\n",
        )
        self.sh(f"systemctl daemon-reload; systemctl stop containerd; systemctl start {self.unit}")
        self.wait()

    def wait(self) -> None:
        self.sh("timeout 30 sh -c 'until ctr version >/dev/null 2>&1; do sleep 0.1; done'")

    def disown(self) -> None:
        self.sh(
            f"systemctl stop {self.unit}; rm -rf /etc/systemd/system/{self.unit} /etc/rancher /etc/k0s "
            "/var/lib/rancher /var/snap/microk8s; systemctl daemon-reload; systemctl start containerd"
        )

    def configure(self, check_mode: bool = False, **arguments) -> dict:
        argv = [str(ANSIBLE), NODE, "-i", str(self.lab.inventory_path), "-m", "portcullis.fleet.containerd_config"]
        argv += ["-a", json.dumps(arguments), "--diff", *(["--check"] if check_mode else [])]
        environment = {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.json", "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1"}
        environment |= {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=180, check=False)
        hosts = json.loads(done.stdout[done.stdout.index("{") :])["plays"][0]["tasks"][0]["hosts"]
        assert NODE in hosts, done.stderr
        return hosts[NODE]

    def state(self) -> str:
        """Return what a change would change: sources, generated files, and who runs."""
        files = "find /etc /var/lib/rancher /var/snap -type f 2>/dev/null | sort | xargs -d '\\n' sha256sum"
        return self.sh(f"{files}; systemctl show -p MainPID {self.unit}")


@pytest.fixture(scope="module")
def node(lab):
    """A node of the cluster with a pod that must outlive everything."""
    lab.node_add(Node(name=NODE, containerd=LINE))
    try:
        lab.kubectl("apply", "-f", "-", stdin=json.dumps(POD))
        lab.kubectl("wait", "--for=condition=Ready", "pod/owned", "--timeout=60s", timeout_s=70)
        found = Owned(lab)
        found.write("/usr/local/lib/owner_stub.py", STUB.read_text(encoding="utf-8"))
        yield found
    finally:
        lab.kubectl("delete", "pod", "owned", "--ignore-not-found", "--wait=false")
        lab.node_remove(NODE)


@pytest.fixture
def owned(node):
    """The node, given back to its own unit afterwards, with the pod's process untouched."""
    pids = node.sh("pidof sleep").strip()
    yield node
    node.disown()
    assert node.sh("pidof sleep").strip() == pids, "the pod's process did not survive the test"


def base_of(node: Owned) -> str:
    """Return the node's own configuration, which the kubelet gets along with."""
    return node.sh("cat /etc/containerd/config.toml")


def k3s_base(node: Owned, imports: bool = True) -> str:
    """Return what k3s renders; since 2026 it imports a directory (k3s-io/k3s#13680)."""
    head = "# File generated by k3s. DO NOT EDIT. Use config-v3.toml.tmpl instead.\n"
    line = f'imports = ["{K3S}/config-v3.toml.d/*.toml"]\n' if imports else ""
    return head + line + base_of(node) + REGISTRY.format(f"{K3S}/certs.d")


def test_without_the_option_nothing_is_touched(owned):
    """The file is not edited, since the edit would be gone with the next start; the finding says what to do."""
    owned.own("k3s", k3s_base(owned))
    before = owned.state()

    result = owned.configure(nri="disabled")

    assert [item["id"] for item in result["findings"]] == ["containerd.config_owned"]
    assert "allow_owner_source" in result["findings"][0]["remedy"]
    assert owned.state() == before
    owned.sh(f"echo '# mine' >> {K3S}/config.toml; systemctl restart {owned.unit}")
    owned.wait()
    assert "# mine" not in owned.read(f"{K3S}/config.toml"), "the stand-in does not do what k3s does"


@pytest.mark.parametrize(
    ("imports", "source"),
    [
        pytest.param(True, f"{K3S}/config-v3.toml.d/portcullis.toml", id="drop-in"),
        pytest.param(False, f"{K3S}/config-v3.toml.tmpl", id="template", marks=pytest.mark.full),
    ],
)
def test_k3s(owned, imports, source):
    """Check mode predicts, the source is written, the unit restarted, CRI proven; repeat and undo are exact."""
    owned.own("k3s", k3s_base(owned, imports))
    before, listening = owned.state(), owned.sh(NRI_SOCKET).strip()
    arguments = {"nri": "disabled", "allow_owner_source": True}

    predicted = owned.configure(check_mode=True, **arguments)
    assert owned.state() == before
    changed = owned.configure(**arguments)

    assert (changed["changed"], changed["restarted"], changed["cri_ready"]) == (True, True, True), changed
    assert (changed["owner"], changed["owner_source"], changed["validated"]) == ("k3s", source, "daemon")
    assert predicted["diff"] == changed["diff"] and [item["before_header"] for item in changed["diff"]] == [source]
    assert changed["effective_config_path"] == f"{K3S}/certs.d"
    assert (listening, owned.sh(NRI_SOCKET).strip()) == ("1", "0")
    assert not owned.configure(**arguments)["changed"]

    on = owned.configure(nri="enabled", allow_owner_source=True)
    assert (on["changed"], owned.sh(NRI_SOCKET).strip()) == (True, "1")
    undone = owned.configure(state="absent", allow_owner_source=True)

    assert (undone["changed"], undone["restarted"], undone["cri_ready"]) == (True, True, True), undone
    assert owned.read(source) is None
    assert owned.state().splitlines()[:-1] == before.splitlines()[:-1]


def test_a_broken_source_is_refused_or_rolled_back(owned):
    """Tried in the sandbox it is never live; untried, the previous source is put back and CRI serves again."""
    owned.own("k3s", k3s_base(owned))
    before = owned.state()
    arguments = {"settings": [BROKEN], "allow_owner_source": True, "health_timeout": 20}

    refused = owned.configure(**arguments)
    assert owned.state() == before
    rolled_back = owned.configure(validate="none", **arguments)

    assert refused["failed"] and not refused["changed"] and "nothing was changed" in refused["msg"]
    assert rolled_back["failed"] and rolled_back["rolled_back"] and rolled_back["cri_ready"], rolled_back
    assert f"{owned.unit} was restarted: CRI serves again" in rolled_back["msg"]
    assert owned.state().splitlines()[:-1] == before.splitlines()[:-1]


def test_registries_of_k3s(owned):
    """registries.yaml is edited, and k3s makes the hosts.toml of it with the restart; what was there stays."""
    path, there = "/etc/rancher/k3s/registries.yaml", "# ours\nmirrors:\n  quay.io:\n    endpoint:\n      - https://q\n"
    owned.write(path, there)
    owned.own("k3s", k3s_base(owned))
    hosts = [{"registry": "docker.io", "endpoints": [{"url": "http://10.77.0.1:5000"}]}]

    changed = owned.configure(hosts=hosts, allow_owner_source=True)

    assert (changed["changed"], changed["restarted"], changed["cri_ready"]) == (True, True, True), changed
    assert changed["hosts"] == [{"registry": "docker.io", "file": path, "action": "merged"}]
    assert owned.read(path).startswith(there)
    assert '[host."http://10.77.0.1:5000/v2"]' in owned.read(f"{K3S}/certs.d/docker.io/hosts.toml")
    assert "https://q/v2" in owned.read(f"{K3S}/certs.d/quay.io/hosts.toml")
    assert not owned.configure(hosts=hosts, allow_owner_source=True)["changed"]
    undone = owned.configure(state="absent", allow_owner_source=True)
    assert (undone["changed"], undone["restarted"], owned.read(path)) == (True, True, there)


@pytest.mark.full
def test_k0s(owned):
    """The registry directory of a drop-in is what the daemon loads; a drop-in of the administrator stays."""
    owned.write("/etc/k0s/containerd.d/10-mine.toml", 'version = 3\n[debug]\nlevel = "info"\n')
    owned.own("k0s", 'imports = ["/etc/k0s/containerd.d/*.toml"]\n' + base_of(owned))
    before = owned.state()
    arguments = {"registry_config_path": "/etc/k0s/containerd.d/certs.d", "allow_owner_source": True}

    refused = owned.configure(registry_config_path="/etc/k0s/containerd.d/certs.d")
    changed = owned.configure(**arguments)

    assert [item["id"] for item in refused["findings"]] == ["containerd.config_owned"]
    assert (changed["owner"], changed["changed"], changed["cri_ready"]) == ("k0s", True, True), changed
    assert changed["effective_config_path"] == "/etc/k0s/containerd.d/certs.d"
    assert "certs.d" in owned.read("/etc/k0s/containerd.d/portcullis.toml")
    assert not owned.configure(**arguments)["changed"]
    assert owned.configure(state="absent", allow_owner_source=True)["changed"]
    assert owned.state().splitlines()[:-1] == before.splitlines()[:-1]


@pytest.mark.full
def test_microk8s(owned):
    """The template keeps its variables, and the file that comes of it has what was asked for."""
    base = base_of(owned).replace("'overlayfs'", "'${SNAPSHOTTER}'")
    owned.own("microk8s", base + REGISTRY.format("${SNAP_DATA}/args/certs.d"))
    template, before = f"{MICROK8S}/containerd-template.toml", owned.state()

    kept = owned.configure(allow_owner_source=True)
    changed = owned.configure(registry_config_path="/etc/certs.d", nri="disabled", allow_owner_source=True)

    assert (kept["changed"], kept["effective_config_path"]) == (False, f"{MICROK8S}/certs.d"), kept
    assert (changed["changed"], changed["cri_ready"], changed["owner_source"]) == (True, True, template), changed
    assert "config_path = '/etc/certs.d'" in owned.read(f"{MICROK8S}/containerd.toml")
    assert owned.sh(NRI_SOCKET).strip() == "0"
    assert owned.configure(state="absent", allow_owner_source=True)["changed"]
    assert owned.state().splitlines()[:-1] == before.splitlines()[:-1]
