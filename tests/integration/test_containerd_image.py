# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""containerd_image on a node of the lab: pulls from the lab's registry, imports, architectures, pins, faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import LINES_UNDER_TEST
from tests.integration.target import ANSIBLE, NODE, Target
from tests.lab import containerd, oci
from tests.lab.topology import Node

CERTS = "/etc/containerd/certs.d"
CTR = "ctr -n k8s.io"
WRAPPER = "/usr/local/sbin/ctr"
# Neither answers nor hangs up, and ends with its standard input.
SILENT = """
import socket, sys
listener = socket.create_server(("10.77.0.1", 5999))
sys.stdin.read()
"""

# Debian's 1.6 knows no pinned images, so the newer line shows more.
pytestmark = pytest.mark.once("2.2")


class ImageTarget(Target):
    """A node whose images of docker.io come from the lab's registry."""

    def provide(self, *arguments: str, check_mode: bool = False) -> dict:
        return self.run("containerd_image", *arguments, check_mode=check_mode)

    def hosts(self, registry: str, text: str) -> None:
        self.sh(f"mkdir -p {CERTS}/{registry}")
        self.lab.ssh(NODE, ["tee", f"{CERTS}/{registry}/hosts.toml"], stdin=text)

    def images(self) -> str:
        """The names, what they stand for, and their labels."""
        return self.sh(f"{CTR} images ls 2>/dev/null | sort")

    def left_over(self) -> str:
        """Archives, unfinished downloads and leases that should not be there."""
        found = "find / -xdev -name 'portcullis-image-archive*' -not -path '/proc/*'"
        return self.sh(
            f"{found}; {CTR} content active 2>/dev/null | sed 1d; {CTR} leases ls 2>/dev/null | sed 1d"
        ).strip()

    def wrap_ctr(self, script: str) -> None:
        self.lab.ssh(NODE, ["install", "-m", "755", "/dev/stdin", WRAPPER], stdin=f"#!/bin/sh\n{script}\n")


@pytest.fixture(scope="module", params=LINES_UNDER_TEST)
def node(lab, request) -> Iterator[ImageTarget]:
    """A plain host with containerd for each line; images that it has are the lab's own."""
    plugin = "io.containerd.cri.v1.images" if request.param.startswith("2.") else "io.containerd.grpc.v1.cri"
    config = containerd.default_config(request.param) + f'\n[plugins."{plugin}".registry]\nconfig_path = "{CERTS}"\n'
    lab.node_add(Node(name=NODE, containerd=request.param, cluster=False, config_toml=config, images=()))
    try:
        target = ImageTarget(lab)
        target.hosts("docker.io", f'[host."http://{lab.registry().ADDRESS}"]\ncapabilities = ["pull", "resolve"]\n')
        yield target
    finally:
        lab.node_remove(NODE)


@pytest.fixture
def target(node) -> Iterator[ImageTarget]:
    """The node without other images than before."""
    before = node.sh(f"{CTR} images ls -q")
    yield node
    node.sh(f"rm -f {WRAPPER}")
    for name in set(node.sh(f"{CTR} images ls -q").split()) - set(before.split()):
        node.sh(f"{CTR} images rm --sync {name}")
    assert node.left_over() == ""


def archive(*names: str, architectures: tuple[str, ...] = ("amd64",), text: str = "") -> bytes:
    """A small image; different texts make different images."""
    layer = oci.layer({"bin/busybox": Path("/bin/busybox")}, {"bin/sh": "busybox"})
    return oci.archive(names, layer, {"Cmd": ["sh"], "Env": [f"TEXT={text}"]}, architectures)


@pytest.fixture
def saved(tmp_path):
    """Write an archive; the argument that names it."""

    def write(content: bytes) -> str:
        (tmp_path / "image.tar").write_bytes(content)
        return f"archive={tmp_path}/image.tar"

    return write


def test_a_pull_by_tag_and_by_digest(target):
    """Check mode predicts, the second run changes nothing, and the digest is the registry's."""
    registry = target.lab.registry()
    digest = registry.push("team/pulled:1", archive("a", architectures=("arm64", "amd64")))
    before = target.images()

    predicted = target.provide("name=team/pulled:1", check_mode=True)
    assert target.images() == before
    changed = target.provide("name=team/pulled:1")
    again = target.provide("name=docker.io/team/pulled:1")
    by_digest = [target.provide(f"name=team/pulled{tag}@{digest}") for tag in ("", ":1")]

    assert (predicted["changed"], predicted["source"], predicted["image_id"]) == (True, "registry", "")
    assert (changed["changed"], changed["source"], changed["name"]) == (True, "registry", "docker.io/team/pulled:1")
    assert (again["changed"], again["source"]) == (False, "node")
    assert [result["changed"] for result in by_digest] == [False, False], "a pull gives both names"
    assert {result["name"] for result in by_digest} == {f"docker.io/team/pulled@{digest}"}
    for result in (changed, again, *by_digest):
        assert (result["digest"], result["architecture"]) == (digest, "linux/amd64")
        assert result["image_id"] == changed["image_id"] != ""
    assert any("ns=docker.io" in request.target for request in registry.requests())


def test_a_digest_that_the_registry_has_not(target):
    """The failure says which one; nothing is left."""
    target.lab.registry().push("team/other:1", archive("a"))
    before = target.images()
    result = target.provide("name=team/other:1@sha256:" + "0" * 64, "timeout=60")

    assert result["failed"]
    assert "docker.io/team/other@sha256:" + "0" * 64 + " is not on the node and cannot be pulled" in result["msg"]
    assert target.images() == before


def test_a_pull_over_tls(target):
    """The registry's authority comes from hosts.toml, as for every pull of the node."""
    registry = target.lab.registry()
    registry.push("team/tls:1", archive("a", text="tls"))
    name = f"name={registry.TLS_ADDRESS}/team/tls:1"
    unknown = target.provide(name)
    target.lab.ssh(NODE, ["tee", "/etc/containerd/ca.crt"], stdin=registry.ca)
    target.hosts(registry.TLS_ADDRESS, f'[host."https://{registry.TLS_ADDRESS}"]\nca = "/etc/containerd/ca.crt"\n')
    known = target.provide(name)

    assert unknown["failed"] and "unknown authority" in unknown["msg"]
    assert known["changed"] and known["source"] == "registry", known


def test_another_architecture(target):
    """containerd pulls it and says nothing; here it fails, what came is gone, and what was there is left."""
    registry = target.lab.registry()
    registry.push("team/arm:1", archive("a", architectures=("arm64",)))
    registry.push("team/none:1", archive("a", architectures=("arm64", "s390x")))
    before = target.images()

    pulled = target.provide("name=team/arm:1")
    no_platform = target.provide("name=team/none:1")
    assert target.images() == before
    target.sh(f"{CTR} images pull --all-platforms --hosts-dir {CERTS} docker.io/team/arm:1")
    target.wait_for("ctr -n k8s.io images ls -q | grep ^sha256:")
    with_it = target.images()
    there = target.provide("name=team/arm:1")

    assert pulled["failed"] and "is for linux/arm64, expected linux/amd64" in pulled["msg"]
    assert no_platform["failed"] and "has no image for linux/amd64" in no_platform["msg"]
    assert there["failed"] and target.images() == with_it
    if "is on the node" in there["msg"]:
        assert "exec format error" in there["msg"] and "crictl rmi docker.io/team/arm:1" in there["msg"]


def test_an_import(target, saved):
    """Only the wanted image comes, for the node's platform, also by digest; one that is there is left."""
    both = ("docker.io/team/a:1", "docker.io/team/b:1")
    present = f"name=team/a:1 {saved(archive(*both, architectures=('arm64', 'amd64')))}"
    before = target.images()

    predicted = target.provide(present, check_mode=True)
    assert target.images() == before
    changed = target.provide(present)
    again = target.provide(present)
    digest = changed["digest"]
    by_digest = target.provide(present.replace("team/a:1", f"team/c@{digest}"))

    assert (predicted["changed"], predicted["source"]) == (True, "archive")
    assert (changed["changed"], changed["source"], changed["architecture"]) == (True, "archive", "linux/amd64")
    assert (again["changed"], again["source"], again["digest"]) == (False, "node", digest)
    assert by_digest["changed"] and by_digest["digest"] == digest, by_digest
    names = {line.split()[0] for line in target.images().splitlines()} - {
        line.split()[0] for line in before.splitlines()
    }
    assert names == {"docker.io/team/a:1", f"docker.io/team/c@{digest}", changed["image_id"]}


GOOD = archive("docker.io/team/a:1")
ARCHIVES = {
    "garbage": (b"x" * 9999, "name=team/a:1", "no tar"),
    "truncated": (GOOD[: len(GOOD) // 2], "name=team/a:1", "damaged"),
    "other name": (GOOD, "name=team/b:1", "it holds no docker.io/team/b:1, but docker.io/team/a:1"),
    "digest": (GOOD, "name=team/a@sha256:" + "0" * 64, "the digest sha256:" + "0" * 64 + ", but sha256:"),
    "architecture": (
        archive("docker.io/team/a:1", architectures=("arm64",)),
        "name=team/a:1",
        "is for linux/arm64, expected linux/amd64",
    ),
}


@pytest.mark.parametrize(("content", "name", "reason"), ARCHIVES.values(), ids=ARCHIVES)
def test_archives_that_cannot_provide_it(target, saved, content, name, reason):
    """Known in check mode, before anything is copied."""
    before = target.images()
    results = [target.provide(name, saved(content), check_mode=mode) for mode in (True, False)]

    assert all(result["failed"] and reason in result["msg"] for result in results), results
    assert target.images() == before


def test_pins(target):
    """A pin is CRI's pin, also after a restart of the daemon; containerd 1.6.20 has none, and says so."""
    target.lab.registry().push("team/pin:1", archive("a", text="pin"))
    present, pin = "name=team/pin:1", "name=team/pin:1 pinned=true"
    predicted = target.provide(pin, check_mode=True)
    if "1.6.20" in target.sh("containerd --version"):
        result = target.provide(pin)
        assert all(one["failed"] and "knows no pinned images" in one["msg"] for one in (predicted, result))
        assert "team/pin" not in target.images()
        return
    new = target.provide(pin)
    again = target.provide(pin)
    target.sh("systemctl restart containerd")
    left_alone = target.provide(present)
    off_predicted = target.provide("name=team/pin:1 pinned=false", check_mode=True)
    assert "io.cri-containerd.pinned=pinned" in target.sh(f"{CTR} images ls name==docker.io/team/pin:1")
    off = target.provide("name=team/pin:1 pinned=false")
    off_again = target.provide("name=team/pin:1 pinned=false")
    there = target.provide(pin)

    results = (predicted, new, again, left_alone, off_predicted, off, off_again, there)
    changes = [(result["changed"], result["pinned"]) for result in results]
    assert changes == [
        (True, True),
        (True, True),
        (False, True),
        (False, True),
        (True, False),
        (True, False),
        (False, False),
        (True, True),
    ]
    assert [result["source"] for result in (new, there)] == ["registry", "node"]


def test_a_registry_that_does_not_answer(target):
    """The time is kept, containerd cleans up, and the text says what may help."""
    target.hosts("10.77.0.1:5999", '[host."http://10.77.0.1:5999"]\n')
    argv = target.lab.run_command([sys.executable, "-c", SILENT])
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as server:
        target.lab.run("sh", "-c", "until ss -Hltn sport = :5999 | grep -q .; do sleep 0.1; done")
        before = target.images()
        result = target.provide("name=10.77.0.1:5999/a/b:1 timeout=3")
        server.communicate(timeout=10)

    assert result["failed"]
    assert "was not pulled within 3 s" in result["msg"], result["msg"]
    assert target.images() == before


def test_credentials_of_an_endpoint_are_not_in_the_message(target):
    """A URL in hosts.toml may have a user."""
    target.hosts("r.example", '[host."http://me:hunter2@10.77.0.1:1"]\n')
    result = target.provide("name=r.example/a:1 timeout=20")

    assert result["failed"] and "cannot be pulled" in result["msg"]
    assert "hunter2" not in json.dumps(result)


def test_no_room_for_the_archive(target, saved):
    """The copy does not fit where Ansible puts it: said with the place, nothing is left."""
    target.sh("mkdir -p /root/.ansible/tmp; mount -t tmpfs -o size=1m tmpfs /root/.ansible/tmp")
    try:
        result = target.provide("name=team/a:1", saved(GOOD))
        assert target.sh("find /root/.ansible/tmp -name 'portcullis-*'") == ""
    finally:
        target.sh("umount /root/.ansible/tmp")

    assert result["failed"]
    assert "the archive (2 MiB) could not be copied to /root/.ansible/tmp/" in result["msg"], result["msg"]
    assert "make room there, or set ansible_remote_tmp" in result["msg"]


def test_a_full_disk(target, saved):
    """containerd's own words and what to do; nothing is left, and with room the next run succeeds."""
    target.lab.registry().push("team/full:1", archive("a", text="full"))
    store, before = "/var/lib/containerd/io.containerd.content.v1.content", target.images()
    target.sh(f"mount -t tmpfs -o size=1m tmpfs {store}; mkdir {store}/ingest")
    try:
        results = [target.provide("name=team/a:1", saved(GOOD)), target.provide("name=team/full:1")]
    finally:
        target.sh(f"umount {store}")
    assert target.images() == before
    after = [target.provide("name=team/a:1", saved(GOOD)), target.provide("name=team/full:1")]

    for result in results:
        assert result["failed"], result
        assert "no space left on device" in result["msg"] and "make room on the node" in result["msg"], result["msg"]
        assert "level=" not in result["msg"]
    assert [result.get("failed") for result in after] == [None, None], after


def test_a_killed_module(target, saved):
    """kill -9 in the middle of the import: nothing is left, and the next run succeeds."""
    target.wrap_ctr("echo $PPID >/run/module; exec sleep 30")
    process = target.start("containerd_image", "name=team/a:1", saved(GOOD))
    target.sh(f"kill -9 {target.wait_for('cat /run/module')}; rm /run/module {WRAPPER}")
    killed = target.result(process)
    assert target.left_over() == ""
    next_run = target.provide("name=team/a:1", saved(GOOD))

    assert killed["failed"]
    assert next_run["changed"] and not next_run.get("failed"), next_run


def test_a_lost_connection(target, saved):
    """The archive is removed without the controller; the next run succeeds."""
    target.wrap_ctr("echo $PPID >/run/module; sleep 2; exec " + target.sh("command -v ctr").strip() + ' "$@"')
    process = target.start("containerd_image", "name=team/a:1", saved(GOOD))
    module = target.wait_for("cat /run/module")
    session = """
        pid=MODULE
        until grep -qx sshd /proc/$pid/comm; do pid=$(sed -n 's/^PPid:\\s*//p' /proc/$pid/status); done
        kill -9 $pid
    """
    target.sh(session.replace("MODULE", module))
    lost = target.result(process)
    target.wait_for(f"[ -e /proc/{module} ] || echo ended")
    assert target.left_over() == ""
    target.sh(f"rm /run/module {WRAPPER}")

    assert lost.get("unreachable") or lost.get("failed")
    assert not target.provide("name=team/a:1", saved(GOOD)).get("failed")


def test_an_abandoned_archive_is_removed(target, saved):
    """What a run left that lost its connection while it copied; a younger one may still be in use."""
    place = "/root/.ansible/tmp/ansible-tmp-{}"
    for name, age in (("old", "-d '7 hours ago'"), ("new", "")):
        where = place.format(name)
        target.sh(f"mkdir -p {where}; touch {age} {where}/portcullis-image-archive")
    try:
        target.provide("name=team/a:1", saved(GOOD))
        assert target.left_over() == place.format("new") + "/portcullis-image-archive"
    finally:
        target.sh(f"rm -r {place.format('old')} {place.format('new')}")


def test_two_runs_at_once(target, saved):
    """Both succeed."""
    argument = saved(GOOD)
    runs = [target.start("containerd_image", "name=team/a:1", argument) for _ in range(2)]
    results = [target.result(run) for run in runs]

    assert not any(result.get("failed") for result in results), results


def test_the_role_asks_again_only_for_what_is_not_as_wanted(target, tmp_path):
    """However a name is spelled; a pin that is wanted and missing counts."""
    registry = target.lab.registry()
    digest = registry.push("library/small:1", archive("a", text="role"))
    registry.push("team/wrong:1", archive("a", text="wrong"))
    pins = "1.6.20" not in target.sh("containerd --version")
    wanted = [{"name": "small:1"}, {"name": f"docker.io/small@{digest}", **({"pinned": True} if pins else {})}]

    def role(items: list[dict]) -> list[dict]:
        play = {"hosts": NODE, "gather_facts": False, "become": True, "roles": ["portcullis.fleet.containerd"]}
        play["vars"] = {"portcullis_images": items}
        (tmp_path / "play.yml").write_text(json.dumps([play]))
        environment = {"ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.json", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            [ANSIBLE.with_name("ansible-playbook"), "-i", target.lab.inventory_path, tmp_path / "play.yml"],
            env={**environment, "HOME": os.environ["HOME"]},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        tasks = json.loads(done.stdout[done.stdout.index("{") :])["plays"][0]["tasks"]
        return [task["hosts"][NODE] for task in tasks if NODE in task["hosts"]]

    first, second = role(wanted), role(wanted)
    assert [item["item"]["name"] for item in first[-1]["results"]] == [item["name"] for item in wanted]
    assert not first[-1].get("failed"), first
    assert len(second) == 2, "the argument check, and one task that finds all as wanted"
    assert second[-1]["images"] == [item["name"] for item in wanted]
    if pins:
        asked = role([{"name": "small:1", "pinned": False}])[-1]["results"]
        assert [(item["changed"], item["pinned"]) for item in asked] == [(True, False)]
