# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CRI client against the real containerd of this machine, which runs in namespaces of its own."""

from __future__ import annotations

import io
import json
import os
import select
import signal
import tarfile
import time
from pathlib import Path

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import _http2
from ansible_collections.portcullis.fleet.plugins.module_utils._grpc import Channel
from ansible_collections.portcullis.fleet.plugins.module_utils._protobuf import (
    INT64,
    STRING,
    Field,
    decode_message,
    encode_message,
)
from ansible_collections.portcullis.fleet.plugins.module_utils.cri import CriClient, CriError

from tests.lab import cgroups, oci
from tests.unit.containerd_daemon import missing_for_containerd, running_containerd

pytestmark = pytest.mark.skipif(bool(missing_for_containerd()), reason=missing_for_containerd() or "containerd is here")

BUSYBOX = Path("/bin/busybox")
PAUSE = "localhost/pause:1"
CONFIG = f"""
version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true  # without CAP_SYS_RESOURCE nobody may lower it
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/run/cni"
conf_dir = "/run/cni.d"
"""
CGROUP = f"portcullis-cri-{os.getpid()}"
IMAGES_TIMEOUT_S = 30

# The calls that make a container, which the client has not. Numbers: api.proto of runtime.v1.
HOST_NETWORK = 2
METADATA = {1: Field("name", STRING), 2: Field("uid", STRING), 3: Field("namespace", STRING)}
SECURITY_CONTEXT = {1: Field("namespace_options", {1: Field("network", INT64)})}
SANDBOX = {
    1: Field("metadata", METADATA),
    8: Field("linux", {1: Field("cgroup_parent", STRING), 2: Field("security_context", SECURITY_CONTEXT)}),
}
CONTAINER = {
    1: Field("metadata", {1: Field("name", STRING)}),
    2: Field("image", {1: Field("image", STRING)}),
    3: Field("command", STRING, repeated=True),
}
SANDBOX_CONFIG = {
    "metadata": {"name": "pod", "uid": "uid-1", "namespace": "default"},
    "linux": {
        "cgroup_parent": f"/{CGROUP}",
        "security_context": {"namespace_options": {"network": HOST_NETWORK}},
    },
}


def image_archive(name, text):
    layer = oci.layer({"bin/busybox": BUSYBOX}, {})
    return oci.archive([name], layer, {"Entrypoint": ["/bin/busybox", "sleep", "600"], "Env": [f"TEXT={text}"]})


def merged(archives):
    """Return one OCI archive with the images of several."""
    members, manifests = {}, []
    for archive in archives:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar.getmembers():
                members[member.name] = tar.extractfile(member).read()
            manifests += json.loads(members["index.json"])["manifests"]
    members["index.json"] = json.dumps({"schemaVersion": 2, "manifests": manifests}).encode()
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return output.getvalue()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with running_containerd(tmp_path_factory.mktemp("containerd"), CONFIG) as running:
        running.ctr("images", "import", "-", stdin=image_archive(PAUSE, "pause"))
        yield running


@pytest.fixture
def client(daemon):
    with CriClient(daemon.address) as opened:
        yield opened


def wait_for_images(client, count):
    """CRI learns of an import from an event, a moment later."""
    deadline = time.monotonic() + IMAGES_TIMEOUT_S
    while len(client.images()) < count:
        assert time.monotonic() < deadline, f"{len(client.images())} of {count} images"
        time.sleep(0.1)


def test_version(client):
    version = client.version()

    assert version["runtime_name"] == "containerd"
    assert version["runtime_version"].lstrip("v")[0].isdigit()
    assert version["runtime_api_version"] == "v1"


def test_status(client):
    """The runtime is ready; its network is not, because no CNI configuration is there."""
    status = client.status()
    conditions = {condition["type"]: condition for condition in status["conditions"]}

    assert status["info"] == {}
    assert conditions["RuntimeReady"]["status"] is True
    assert conditions["NetworkReady"]["status"] is False
    assert conditions["NetworkReady"]["reason"] == "NetworkPluginNotReady"


def test_verbose_status_has_the_effective_configuration(client):
    config = json.loads(client.status(verbose=True)["info"]["config"])

    assert config["sandboxImage"] == PAUSE


def test_images(client):
    """An imported image is listed, found by name and by id, and has the size of its blobs."""
    wait_for_images(client, 1)
    image = client.image_status(PAUSE)

    assert image["repo_tags"] == [PAUSE]
    assert image["size_bytes"] > BUSYBOX.stat().st_size // 2
    assert client.image_status(image["id"]) == image
    assert image in client.images()


def test_absent_image(client):
    assert client.image_status("localhost/nothing:1") is None


def test_failed_pull_gives_the_words_of_the_runtime(client):
    """The namespace has no network: the message of containerd arrives whole."""
    with pytest.raises(CriError) as caught:
        client.pull_image("127.0.0.1:1/nothing:1", timeout_s=30)

    assert 'failed to resolve reference "127.0.0.1:1/nothing:1"' in caught.value.message


def wait_until_stopped(pid: int) -> None:
    """On a busy machine a thread may go on for a while after the signal (proc(5): the state is behind the name)."""
    for _ in range(200):
        texts = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
        if {text.rpartition(")")[2].split()[0] for text in texts} == {"T"}:
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} does not stop")


def test_daemon_that_hangs(daemon):
    """A stopped process still has its socket, and connections to it open: only the deadline ends the call."""
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        wait_until_stopped(daemon.pid)
        with CriClient(daemon.address, timeout_s=0.3) as client, pytest.raises(CriError) as caught:
            client.version()
    finally:
        os.kill(daemon.pid, signal.SIGCONT)

    assert caught.value.code_name == "DEADLINE_EXCEEDED"
    assert "within 0.3 s" in caught.value.message


def test_unknown_container(client):
    with pytest.raises(CriError) as caught:
        client.container_status("nothing")

    assert (caught.value.code, caught.value.code_name) == (5, "NOT_FOUND")


@pytest.fixture
def container(daemon):
    """A running container in a sandbox: (sandbox id, container id)."""
    channel = Channel(daemon.address)

    def call(method, values, request, response):
        octets = channel.unary(f"/runtime.v1.RuntimeService/{method}", encode_message(values, request), 60)
        return decode_message(octets, response)

    sandbox_id = None
    try:
        sandbox_id = call(
            "RunPodSandbox", {"config": SANDBOX_CONFIG}, {1: Field("config", SANDBOX)}, {1: Field("id", STRING)}
        )["id"]
        config = {
            "metadata": {"name": "app"},
            "image": {"image": PAUSE},
            "command": ["/bin/busybox", "sleep", "500"],
        }
        container_id = call(
            "CreateContainer",
            {"pod_sandbox_id": sandbox_id, "config": config, "sandbox_config": SANDBOX_CONFIG},
            {
                1: Field("pod_sandbox_id", STRING),
                2: Field("config", CONTAINER),
                3: Field("sandbox_config", SANDBOX),
            },
            {1: Field("id", STRING)},
        )["id"]
        call("StartContainer", {"id": container_id}, {1: Field("id", STRING)}, {})
        yield sandbox_id, container_id
    finally:
        if sandbox_id:
            call("StopPodSandbox", {"id": sandbox_id}, {1: Field("id", STRING)}, {})
            call("RemovePodSandbox", {"id": sandbox_id}, {1: Field("id", STRING)}, {})
        channel.close()
        cgroups.remove([str(hierarchy.mountpoint / CGROUP) for hierarchy in cgroups.hierarchies()])


def test_containers(client, container):
    """A running container is listed and has a pid."""
    sandbox_id, container_id = container
    (listed,) = client.containers()
    status = client.container_status(container_id, verbose=True)

    assert (listed["id"], listed["pod_sandbox_id"], listed["name"]) == (container_id, sandbox_id, "app")
    assert (listed["image"], listed["state"]) == (PAUSE, "CONTAINER_RUNNING")
    assert listed["created_at_ns"] == status["created_at_ns"] < status["started_at_ns"]
    assert (status["state"], status["exit_code"], status["finished_at_ns"]) == ("CONTAINER_RUNNING", 0, 0)
    assert json.loads(status["info"]["info"])["pid"] > 1


def test_a_thousand_images_under_flow_control(daemon, client, monkeypatch):
    """The response is larger than the window, so that grpc-go waits for our WINDOW_UPDATEs."""
    monkeypatch.setattr(_http2, "_WINDOW", 66000)
    names = [f"localhost/{'x' * 150}/image:{number}" for number in range(1000)]
    archives = [oci.archive([name], b"", {"Env": [f"NUMBER={number}"]}) for number, name in enumerate(names)]

    daemon.ctr("images", "import", "--no-unpack", "-", stdin=merged(archives))
    wait_for_images(client, 1001)
    images = client.images()

    assert {tag for image in images for tag in image["repo_tags"]} == {PAUSE, *names}
    assert len(str(images)) > 4 * 66000


@pytest.mark.parametrize(
    "config",
    [
        pytest.param('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n', id="disabled"),
        pytest.param(
            CONFIG
            + '[plugins."io.containerd.grpc.v1.cri".registry]\nconfig_path = "/etc/containerd/certs.d"\n'
            + '[plugins."io.containerd.grpc.v1.cri".registry.mirrors."docker.io"]\nendpoint = ["https://localhost"]\n',
            id="mirrors-beside-config_path",
        ),
    ],
)
def test_daemon_that_runs_without_cri(tmp_path, config):
    """The daemon is up and CRI is dead: the error says so."""
    with (
        running_containerd(tmp_path, config) as running,
        CriClient(running.address) as client,
        pytest.raises(CriError) as caught,
    ):
        client.version()

    assert caught.value.code_name == "UNIMPLEMENTED"
    assert "serves no CRI" in caught.value.message


def test_daemon_that_is_killed(tmp_path):
    """A call to a daemon that has died fails with its reason, also on a connection that was good before."""
    with running_containerd(tmp_path, CONFIG) as running, CriClient(running.address) as client:
        client.version()
        handle = os.pidfd_open(running.pid)
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        ended, _, _ = select.select([handle], [], [], 10)
        os.close(handle)
        assert ended
        with pytest.raises(CriError) as caught:
            client.version()

    assert caught.value.code_name == "UNAVAILABLE"
