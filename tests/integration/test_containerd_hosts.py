# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option hosts of containerd_config on a node of the lab: real pulls through the files that it writes."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.integration.conftest import LINES_UNDER_TEST
from tests.integration.target import ANSIBLE, DIRECTORY, NODE, Target
from tests.lab import containerd
from tests.lab.registry import Registry
from tests.lab.topology import Node

pytestmark = pytest.mark.once("2.2")

FILE = f"{DIRECTORY}/docker.io/hosts.toml"
PKI = "/root/pki"
REFERER = "https://a-secret.example/hunter22"
EVERYTHING = "find /etc -xdev -printf '%p %y %m\\n' | sort; find /etc -xdev -type f | sort | xargs -d '\\n' sha256sum"


def mirror(url: str, **endpoint: object) -> str:
    """The arguments that make an address a mirror of Docker Hub."""
    return json.dumps({"hosts": [{"registry": "docker.io", "endpoints": [{"url": url, **endpoint}]}]})


ABSENT = json.dumps({"hosts": [{"registry": "docker.io", "state": "absent"}]})


@pytest.fixture(scope="module", params=LINES_UNDER_TEST)
def node(lab, request):
    """A node of its own for each line of containerd, which uses a registry directory already and has no images."""
    plugin = "io.containerd.cri.v1.images" if request.param.startswith("2.") else "io.containerd.grpc.v1.cri"
    registry = f'\n[plugins."{plugin}".registry]\nconfig_path = "{DIRECTORY}"\n'
    config = containerd.default_config(request.param) + registry
    lab.node_add(Node(name=NODE, containerd=request.param, config_toml=config, images=()))
    try:
        yield Target(lab)
    finally:
        lab.node_remove(NODE)


@pytest.fixture
def target(node):
    """The node without a hosts.toml, before and after, whose daemon is never restarted."""
    registry, everything, pid = node.lab.registry(), node.sh(EVERYTHING), node.daemon_pid()
    node.sh(f"mkdir -p {PKI}")
    for name, text in zip(("ca.pem", "client.pem", "client.key"), (registry.ca, *registry.client), strict=True):
        node.lab.ssh(NODE, ["tee", f"{PKI}/{name}"], stdin=text)
    yield node
    assert node.daemon_pid() == pid, "the daemon was restarted"
    node.sh(f"rm -rf {DIRECTORY} /var/lib/portcullis {PKI}")
    assert node.sh(EVERYTHING) == everything


def pull(target: Target, name: str) -> dict:
    """Have CRI pull an image that only the lab's registry has."""
    target.lab.registry().push(f"{name}:1")
    return target.run("containerd_image", f"name=docker.io/{name}:1 timeout=30")


def asked(target: Target, name: str, address: str) -> set[tuple[int, str]]:
    """Status and Referer of the requests for an image, as a mirror of Docker Hub is asked."""
    found = target.lab.registry().requests(address)
    return {(item.status, item.referer) for item in found if item.target == f"/v2/{name}/manifests/1?ns=docker.io"}


def test_a_pull_through_a_new_file(target):
    """Check mode predicts, no restart is needed, the second run changes nothing, and both ways back are exact."""
    before, arguments = target.sh(EVERYTHING), mirror(f"http://{Registry.ADDRESS}")

    predicted = target.configure(arguments, check_mode=True)
    assert target.sh(EVERYTHING) == before, "check mode changed something"
    changed = target.configure(arguments)
    text = target.sh(f"cat {FILE}")
    pulled = pull(target, "team/hosts")
    again = target.configure(arguments)

    assert predicted["diff"] == changed["diff"]
    assert predicted["hosts"] == changed["hosts"] == [{"registry": "docker.io", "file": FILE, "action": "written"}]
    assert changed["changed"] and not changed["restarted"] and "warnings" not in changed, changed
    assert pulled["changed"] and {status for status, _referer in asked(target, "team/hosts", Registry.ADDRESS)} == {200}
    assert not again["changed"] and again["hosts"][0]["action"] == "left"
    assert target.sh(f"cat {FILE}") == text

    taken_back = target.configure(ABSENT)
    assert target.sh(EVERYTHING) == before
    nothing = target.configure(ABSENT)
    assert (taken_back["hosts"][0]["action"], nothing["hosts"][0]["action"]) == ("removed", "left")
    assert taken_back["changed"] and not nothing["changed"]

    target.configure(arguments)
    undone = target.configure("state=absent")
    assert undone["changed"] and not undone["restarted"]
    assert target.sh(EVERYTHING) == before


@pytest.mark.parametrize(
    ("name", "address", "endpoint"),
    [
        pytest.param("team/ca", Registry.TLS_ADDRESS, {"ca": f"{PKI}/ca.pem"}, id="ca"),
        pytest.param("team/skip", Registry.TLS_ADDRESS, {"skip_verify": True}, id="skip-verify"),
        pytest.param(
            "team/client",
            Registry.MTLS_ADDRESS,
            {"ca": [f"{PKI}/ca.pem"], "client": [[f"{PKI}/client.pem", f"{PKI}/client.key"]]},
            id="client",
        ),
    ],
)
def test_a_pull_over_tls(target, name, address, endpoint):
    """Authority, client certificate and header take effect; the same address without them is no use."""
    target.configure(mirror(f"https://{address}"))
    refused = target.run("containerd_image", f"name=docker.io/{name}:1 timeout=20")
    changed = target.configure(mirror(f"https://{address}", header={"Referer": REFERER}, **endpoint))
    pulled = pull(target, name)

    assert refused["failed"] and "certificate" in refused["msg"]
    assert changed["changed"] and changed["hosts"][0]["action"] == "written", changed
    assert pulled["changed"], pulled
    assert asked(target, name, address) == {(200, REFERER)}


def test_a_certificate_that_is_not_there(target):
    """It is found before a pull fails, and nothing is written."""
    result = target.configure(mirror(f"https://{Registry.TLS_ADDRESS}", ca=f"{PKI}/none.pem"))

    assert result["failed"] and [item["id"] for item in result["findings"]] == ["containerd.hosts_file_missing"]
    assert f"{PKI}/none.pem" in result["msg"]
    assert target.sh(f"ls {DIRECTORY} 2>/dev/null || true") == ""


def test_a_file_of_somebody_else(target):
    """It gets what is missing, every byte stays, the pull works, and it is given back; what contradicts is refused."""
    url = f"https://{Registry.TLS_ADDRESS}"
    theirs = f"# kept\n\n[host.'{url}']\n  capabilities = ['pull', 'resolve'] # why\n"
    target.sh(f"mkdir -p {DIRECTORY}/docker.io")
    target.lab.ssh(NODE, ["tee", FILE], stdin=theirs)
    before = target.sh(EVERYTHING)

    contradiction = target.configure(mirror(url, capabilities=["pull"]))
    assert target.sh(EVERYTHING) == before
    changed = target.configure(mirror(url, ca=f"{PKI}/ca.pem"))
    pulled = pull(target, "team/merged")
    text = target.sh(f"cat {FILE}")
    other = target.configure(mirror(url, skip_verify=True))

    assert f"{FILE} line 4: " in contradiction["msg"] and '["pull"]' in contradiction["msg"]
    assert changed["hosts"][0]["action"] == "merged" and pulled["changed"]
    assert text == theirs + f"  ca = '{PKI}/ca.pem'\n"
    assert other["hosts"][0]["action"] == "merged"
    assert target.sh(f"cat {FILE}") == theirs + "  skip_verify = true\n"
    assert target.configure(ABSENT)["hosts"][0]["action"] == "restored"
    assert target.sh(EVERYTHING) == before


def test_no_secret_is_shown(target):
    """Not in a diff, a result or an error, of a first, a second and a refused run, however verbose."""
    arguments = mirror("https://m.example", header={"X-Token": "hunter22", "X-Short": "q7", "X-List": ["hunter33"]})
    other = mirror("https://m.example", header={"X-Token": "hunter44"})
    theirs = b'[host."https://u:hunter55@m.example".header]\n# X-Old = "hunter66"\nX-Token = """hunter\n77"""\n'
    shown = []

    def run(text: str) -> None:
        argv = [str(ANSIBLE), NODE, "-i", str(target.lab.inventory_path), "-m", "portcullis.fleet.containerd_config"]
        done = subprocess.run(
            [*argv, "-a", text, "--diff", "-vvv"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        shown.append(done.stdout + done.stderr)

    for text in (arguments, arguments, other):
        run(text)
    assert target.sh(f"stat -c %a {FILE}") == "600\n"
    target.lab.ssh(NODE, ["tee", FILE], stdin=theirs.decode())
    run(other)
    run(json.dumps({"hosts": [{"registry": "a", "server": "https://u:hunter88@a"}]}))
    run(json.dumps({"hosts": [{"registry": "a", "endpoints": [{"url": "https://a", "headers": {"A": "hunter99"}}]}]}))

    assert all("hunter" not in text and '"q7"' not in text for text in shown), "\n".join(shown)
    assert "X-Token" in shown[0] and "hosts_conflict" in shown[3]
