# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images on the real containerd of this machine (Debian's 1.6, which knows no pins), in namespaces of its own."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import threading

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils import (
    containerd_images,
    containerd_store,
    image_presence,
)
from ansible_collections.portcullis.fleet.plugins.module_utils._protobuf import decode_message
from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_images import (
    ImageError,
    complain_pins,
    complaint_of_ctr,
    provide,
    read_digest,
    set_pin,
    without_secrets,
)
from ansible_collections.portcullis.fleet.plugins.module_utils.containerd_store import (
    PINNED_LABEL,
    ImageStore,
    StoreError,
)
from ansible_collections.portcullis.fleet.plugins.module_utils.cri import CriClient
from ansible_collections.portcullis.fleet.plugins.module_utils.image_archive import read_archive
from ansible_collections.portcullis.fleet.plugins.module_utils.image_platform import Platform, node_platform
from ansible_collections.portcullis.fleet.plugins.module_utils.image_presence import (
    Image,
    complain_platform,
    find_as_wanted,
    find_image,
    is_as_wanted,
    this_node,
)
from ansible_collections.portcullis.fleet.plugins.module_utils.image_reference import parse_reference

from tests.lab import oci
from tests.unit.containerd_daemon import missing_for_containerd, running_containerd

NODE = this_node()
OTHER = "s390x" if NODE.architecture != "s390x" else "amd64"
AMD64 = node_platform("x86_64")
CONFIG = 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nrestrict_oom_score_adj = true\n'
needs_containerd = pytest.mark.skipif(
    bool(missing_for_containerd()), reason=missing_for_containerd() or "containerd is here"
)


def archive(names: list[str], *architectures: str, text: str = "") -> bytes:
    layer = oci.layer({}, {"bin": f"usr/{text or 'bin'}"})
    return oci.archive(names, layer, {}, architectures or (NODE.architecture,))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with running_containerd(tmp_path_factory.mktemp("containerd"), CONFIG) as running:
        yield running


@pytest.fixture
def address(daemon):
    """A daemon without images."""
    with ImageStore(daemon.address) as store:
        for name in store.records():
            store.remove(name)
    return str(daemon.address)


@pytest.fixture
def load(address, tmp_path):
    """Provide an image out of an archive's octets."""

    def run(name: str, content: bytes, timeout_s: float = 30) -> Image:
        path = tmp_path / "archive"
        path.write_bytes(content)
        return provide(address, parse_reference(name), str(path), timeout_s)

    return run


def names(address: str) -> set[str]:
    with ImageStore(address) as store:
        return {name for name in store.records() if not name.startswith("sha256:")}


@needs_containerd
def test_an_import_brings_one_image(address, load, tmp_path):
    """The other names of the archive do not come with it; CRI has the image at once."""
    image = load("r.example/a:1", gzip.compress(archive(["r.example/a:1", "r.example/b:1"])))

    assert names(address) == {"r.example/a:1"}
    assert image.platform == NODE
    assert image.names == ("r.example/a:1", image.id)
    assert read_digest(address, image, "r.example/a:1").startswith("sha256:")


@needs_containerd
def test_an_import_never_moves_another_name(address, load):
    """The archive holds another image under a name that the node has."""
    old = load("r.example/b:1", archive(["r.example/b:1"], text="old"))
    load("r.example/a:1", archive(["r.example/a:1", "r.example/b:1"]))

    with CriClient(address) as client:
        assert find_image(client, "r.example/b:1") == old


@needs_containerd
def test_an_import_by_digest(address, load, tmp_path):
    """CRI knows the image by repository and digest, as after a pull."""
    content = archive(["r.example/a:1"], OTHER, NODE.architecture)
    (tmp_path / "index").write_bytes(content)
    digest = read_archive(str(tmp_path / "index"))[0].digest
    image = load(f"r.example/a:1@{digest}", content)

    assert image.names[0] == f"r.example/a@{digest}"
    assert read_digest(address, image, image.names[0]) == digest
    assert image.platform == NODE


@needs_containerd
def test_an_import_of_docker_save(address, load):
    """One of the image's tags comes; the digest is the one that containerd makes."""
    layer = oci.layer({}, {"bin": "usr/bin"})
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}
    files = {
        "manifest.json": json.dumps(
            [{"Config": "c.json", "RepoTags": ["team/a:1", "team/a:2"], "Layers": ["l/layer.tar"]}]
        ).encode(),
        "c.json": json.dumps(
            {"architecture": NODE.architecture, "os": "linux", "config": {}, "rootfs": rootfs}
        ).encode(),
        "l/layer.tar": layer,
        "repositories": b"{}",
    }
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as content:
        for name, octets in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(octets)
            content.addfile(info, io.BytesIO(octets))
    image = load("team/a:2", output.getvalue())

    assert names(address) == {"docker.io/team/a:2"}
    assert image.platform == NODE
    assert read_digest(address, image, "docker.io/team/a:2").startswith("sha256:")


@needs_containerd
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (archive(["r.example/a:1"], OTHER), f"is for linux/{OTHER}, expected {NODE}"),
        (archive(["r.example/b:1"]), "holds no r.example/a:1, but r.example/b:1"),
        (b"garbage", "no tar"),
        (archive(["r.example/a:1"])[:5000], "damaged"),
    ],
    ids=["architecture", "other name", "garbage", "truncated"],
)
def test_an_archive_that_cannot_provide_it(address, load, content: bytes, reason: str):
    """Nothing is left on the node."""
    with pytest.raises(ImageError, match=reason):
        load("r.example/a:1", content)
    assert names(address) == set()


@needs_containerd
def test_what_a_failure_leaves_is_taken_away(address, load, monkeypatch):
    """An image that turns out wrong after it came is gone again, with all its names; what was there stays."""
    load("r.example/kept:1", archive(["r.example/kept:1"]))
    monkeypatch.setattr(containerd_images, "complain_platform", lambda image, node: "it is for another machine")
    with pytest.raises(ImageError, match=r"r.example/a:1 was provided, but it is for another machine"):
        load("r.example/a:1", archive(["r.example/a:1"], text="other"))

    assert names(address) == {"r.example/kept:1"}
    with ImageStore(address) as store:
        assert len(store.records()) == 2, "the name and its id"


@needs_containerd
def test_what_was_there_under_another_name_stays(address, load, monkeypatch):
    """The wrong image and one that was there are the same one: only the new name goes."""
    old = load("r.example/old:1", archive(["r.example/old:1"]))
    monkeypatch.setattr(containerd_images, "complain_platform", lambda image, node: "it is for another machine")
    with pytest.raises(ImageError):
        load("r.example/new:1", archive(["r.example/new:1"]))
    monkeypatch.undo()

    with CriClient(address) as client:
        assert find_image(client, "r.example/old:1") == old
        assert find_image(client, "r.example/new:1") is None


@needs_containerd
def test_content_that_is_not_what_its_digest_says(address, load):
    """containerd's own words are in the message, and the next run is not disturbed."""
    content = archive(["r.example/a:1"])
    position = content.index(b"usr/bin")
    damaged = content[:position] + b"usr/bum" + content[position + 7 :]
    with pytest.raises(ImageError, match=r"ctr could not import the archive of r.example/a:1"):
        load("r.example/a:1", damaged)

    assert names(address) == set()
    assert load("r.example/a:1", content)


@needs_containerd
def test_a_ctr_that_hangs(address, load, monkeypatch, tmp_path):
    """It is ended with the time, and the writer with it."""
    (tmp_path / "ctr").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "ctr").chmod(0o755)
    monkeypatch.setattr(containerd_images, "SEARCH_PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ImageError, match=r"did not import the archive of r.example/a:1 within 0.3 s"):
        load("r.example/a:1", archive(["r.example/a:1"], text="x" * 200000), 0.3)

    assert threading.active_count() == 1


@needs_containerd
def test_no_ctr(address, load, monkeypatch, tmp_path):
    monkeypatch.setattr(containerd_images, "SEARCH_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="ctr is not on the node; it comes with containerd"):
        load("r.example/a:1", archive(["r.example/a:1"]))


@needs_containerd
def test_a_pull_that_fails(address):
    """What was tried, and all that can be done."""
    with pytest.raises(ImageError) as caught:
        provide(address, parse_reference("r.invalid/a:1"), None, 20)
    for words in ("r.invalid/a:1 is not on the node and cannot be pulled", "write a mirror", "give an archive"):
        assert words in str(caught.value)
    assert names(address) == set()


@needs_containerd
def test_a_pin_that_cri_does_not_follow_is_put_back(address, load, monkeypatch):
    """As on a containerd that knows none."""
    monkeypatch.setattr(containerd_images, "FOLLOW_TIMEOUT_S", 0.5)
    image = load("r.example/a:1", archive(["r.example/a:1"]))
    with pytest.raises(ImageError, match=rf"label {PINNED_LABEL} was set, but within 0.5 s CRI did not report"):
        set_pin(address, image, "r.example/a:1", True)

    with ImageStore(address) as store:
        assert PINNED_LABEL not in store.records(["r.example/a:1"])["r.example/a:1"][1]


@needs_containerd
def test_labels(address, load):
    """One label changes, the others and the target stay."""
    load("r.example/a:1", archive(["r.example/a:1"]))
    with ImageStore(address) as store:
        before = store.records()
        store.set_label("r.example/a:1", "example/x", "y")
        digest, labels = store.records(["r.example/a:1"])["r.example/a:1"]
        store.set_label("r.example/a:1", "example/x", "")

        assert (digest, labels) == (before["r.example/a:1"][0], {**before["r.example/a:1"][1], "example/x": "y"})
        assert store.records() == before
        with pytest.raises(StoreError, match=r"NOT_FOUND: .*r.example/none:1"):
            store.set_label("r.example/none:1", "a", "b")


def test_an_update_always_has_a_target(monkeypatch):
    """Without one containerd 1.7 to 2.4 end with a panic: seen on 2.2.9."""
    sent = []
    monkeypatch.setattr(containerd_store.Channel, "unary", lambda _self, *arguments: sent.append(arguments) or b"")
    ImageStore("/nonexistent").set_label("r.example/a:1", "label", "")

    method, message, _timeout, metadata = sent[0]
    assert method == "/containerd.services.images.v1.Images/Update"
    assert metadata == {"containerd-namespace": "k8s.io"}
    request = decode_message(message, containerd_store._UPDATE_REQUEST)
    assert request["image"]["target"] is not None
    assert request["update_mask"] == {"paths": ["labels.label"]}


@needs_containerd
def test_find_as_wanted(address, load, monkeypatch):
    """By the names as they were given; nothing when CRI does not answer."""
    load("docker.io/library/a:1", archive(["a:1"]))
    wanted = [
        {"name": "a:1", "pinned": None},
        {"name": "docker.io/a:1", "pinned": False},
        {"name": "library/a:1", "pinned": True},
        {"name": "b:1", "pinned": None},
    ]

    assert find_as_wanted(address, wanted) == ["a:1", "docker.io/a:1"]
    assert find_as_wanted(address + "x", wanted) == []
    monkeypatch.setattr(image_presence, "this_node", lambda: Platform("linux", OTHER, ""))
    assert find_as_wanted(address, wanted) == []


@pytest.mark.parametrize(
    "info", [{}, {"info": "{"}, {"info": "{}"}, {"info": '{"imageSpec": []}'}, {"info": '{"imageSpec": {}}'}]
)
def test_a_containerd_that_does_not_say_for_what_an_image_is(info):
    """Then nothing is held against it."""

    class Client:
        def image_status(self, name, verbose):
            return {"id": "i", "repo_tags": [], "repo_digests": [], "pinned": False, "info": info}

    image = find_image(Client(), "a:1")
    assert image.platform is None
    assert is_as_wanted(image, None, AMD64)


@pytest.mark.parametrize(
    ("pinned", "wanted", "good"),
    [(False, None, True), (True, None, True), (True, True, True), (False, True, False), (True, False, False)],
)
def test_pins_as_wanted(pinned: bool, wanted: bool | None, good: bool):
    image = Image("i", AMD64, pinned, ())

    assert is_as_wanted(image, wanted, AMD64) is good
    assert not is_as_wanted(None, wanted, AMD64)


def test_complain_platform():
    """What was found and expected, and what would come of it."""
    image = Image("i", Platform("linux", "arm64", "v8"), False, ())

    assert complain_platform(image, AMD64) == (
        "it is for linux/arm64/v8, expected linux/amd64: its programs would end with an exec format error"
    )
    assert complain_platform(image, node_platform("aarch64")) == ""


@pytest.mark.parametrize(
    ("version", "old"),
    [("1.6.20~ds1", True), ("v1.5.18", True), ("1.6.22", False), ("v1.7.0", False), ("v2.2.9", False), ("?", False)],
)
def test_versions_that_know_no_pins(version: str, old: bool):
    assert bool(complain_pins(version)) is old


def test_complaint_of_ctr():
    """ctr 2.2.9 prints the daemon's warnings, and how far it came."""
    output = 'time="2026-12-01T00:09:04Z" level=warning msg="DEPRECATION: ..."\na:1\tsaved\nctr: failed to ingest: no'

    assert complaint_of_ctr(output) == "ctr: failed to ingest: no"
    assert complaint_of_ctr("panic: x") == "panic: x"


def test_without_secrets():
    """Redirects to a storage are signed in their query, and proxies may have a user."""
    text = (
        'failed to do request: Get "https://s3.example/blob?X-Amz-Signature=abc&e=1": proxyconnect '
        'http://me:pw@proxy:3128: Head "https://r.example/v2/a/manifests/1?ns=docker.io"'
    )

    assert without_secrets(text) == (
        'failed to do request: Get "https://s3.example/blob?********&********": proxyconnect '
        'http://********@proxy:3128: Head "https://r.example/v2/a/manifests/1?ns=docker.io"'
    )
