# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What archives of images hold, and the copy that has one image only."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import tarfile

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.image_archive import (
    NAME_ANNOTATION,
    REF_ANNOTATION,
    ArchiveError,
    copy_entry,
    read_archive,
    select_entry,
)
from ansible_collections.portcullis.fleet.plugins.module_utils.image_platform import Platform, node_platform
from ansible_collections.portcullis.fleet.plugins.module_utils.image_reference import parse_reference
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.lab import oci

AMD64, ARM64 = Platform("linux", "amd64", ""), Platform("linux", "arm64", "")
NODE = node_platform("x86_64")
LAYER = oci.layer({}, {"bin": "usr/bin"})


def tar(files: dict[str, object]) -> bytes:
    """An archive of JSON files and of octets."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as archive:
        for name, value in files.items():
            content = value if isinstance(value, bytes) else json.dumps(value).encode()
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return output.getvalue()


def unpacked(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive.getmembers()}


def oci_files(names: list[str], architectures: tuple[str, ...] = ("amd64",)) -> dict[str, bytes]:
    return unpacked(oci.archive(names, LAYER, {}, architectures))


def annotated(annotations: dict[str, str], **files: object) -> bytes:
    """An archive whose one image has other annotations."""
    content = oci_files(["x"])
    index = json.loads(content["index.json"])
    index["manifests"][0]["annotations"] = annotations
    return tar({**content, **files, "index.json": index})


# As `docker save` of Docker 24 writes it.
DOCKER = {
    "cfg.json": {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}},
    "arm.json": {"architecture": "arm", "variant": "v7", "os": "linux"},
    "manifest.json": [
        {"Config": "cfg.json", "RepoTags": ["busybox:1.33", "r.example/b:2"], "Layers": []},
        {"Config": "arm.json", "RepoTags": None, "Layers": []},
    ],
    "repositories": {},
}


@pytest.fixture
def path(tmp_path):
    """Write an archive and return where it is."""

    def write(content: bytes) -> str:
        (tmp_path / "archive").write_bytes(content)
        return str(tmp_path / "archive")

    return write


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress], ids=["plain", "gzip", "xz"])
def test_read_oci(path, pack):
    """Names, digests and platforms, out of an index for several platforms too."""
    entries = read_archive(path(pack(oci.archive(["r.example/a:1", "r.example/b:1"], LAYER, {}, ("arm64", "amd64")))))

    assert [entry.names for entry in entries] == [("r.example/a:1",), ("r.example/b:1",)]
    assert {entry.platforms for entry in entries} == {(ARM64, AMD64)}
    assert len({entry.digest for entry in entries}) == 1


def test_read_docker(path):
    """An image of `docker save` has names and a platform, and no digest."""
    entries = read_archive(path(tar(DOCKER)))

    assert [entry[:3] for entry in entries] == [
        (("busybox:1.33", "r.example/b:2"), "", (AMD64,)),
        ((), "", (Platform("linux", "arm", "v7"),)),
    ]


def test_an_archive_in_both_formats_is_read_as_containerd_does(path):
    """`docker save` of Docker 25 writes both; the OCI layout has the digests."""
    both = annotated({NAME_ANNOTATION: "r.example/a:1"}, **DOCKER)

    assert read_archive(path(both))[0].digest.startswith("sha256:")


def test_a_part_of_an_index(path):
    """Only images count that are in the archive, and attestations never do."""
    files = oci_files(["r.example/a:1"], ("arm64", "amd64"))
    entry = json.loads(files["index.json"])["manifests"][0]
    blob = f"blobs/{entry['digest'].replace(':', '/')}"
    index = json.loads(files[blob])
    del files[f"blobs/{index['manifests'][0]['digest'].replace(':', '/')}"]
    index["manifests"].append({**index["manifests"][1], "platform": {"os": "unknown", "architecture": "unknown"}})

    assert read_archive(path(tar({**files, blob: index})))[0].platforms == (AMD64,)


DAMAGED = {
    "empty": (b"", "it is damaged, or no tar"),
    "garbage": (os.urandom(4096), "it is damaged, or no tar"),
    "gzip of garbage": (gzip.compress(b"x" * 4096), "it is damaged, or no tar"),
    "half a gzip": (gzip.compress(oci.archive(["a"], os.urandom(9999), {}))[:3000], "it is damaged, or no tar"),
    "half a tar": (oci.archive(["a"], os.urandom(99999), {})[:40000], "it is damaged, or no tar"),
    "another tar": (tar({"a": b"b"}), "expected oci-layout or manifest.json in it"),
    "no index": (tar({"oci-layout": {}}), "it is incomplete: index.json is missing"),
    "no blobs": (
        tar({k: v for k, v in oci_files(["a"]).items() if "blobs" not in k}),
        "it is incomplete: blobs/sha256/",
    ),
    "no JSON": (tar({"oci-layout": {}, "index.json": b"\x80{"}), "index.json in it is no JSON"),
    "other JSON": (tar({"oci-layout": {}, "index.json": []}), "its index has another form"),
    "other items": (tar({"manifest.json": [[]]}), "its index has another form"),
}


@pytest.mark.parametrize(("content", "reason"), DAMAGED.values(), ids=DAMAGED)
def test_archives_that_are_refused(path, content: bytes, reason: str):
    """The text says what is wrong with the archive."""
    with pytest.raises(ArchiveError, match=reason):
        read_archive(path(content))


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_a_damaged_archive_is_an_archive_error(path, data):
    """Whatever was cut off or overwritten, no other error comes out."""
    content = bytearray(oci.archive(["r.example/a:1"], LAYER, {}, ("arm64", "amd64")))
    for position in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=8)):
        content[position] = data.draw(st.integers(0, 255))
    try:
        read_archive(path(bytes(content[: data.draw(st.integers(0, len(content)))])))
    except ArchiveError as error:
        assert str(error)


def chosen(content: bytes, name: str, path, node: Platform = NODE):
    return select_entry(read_archive(path(content)), parse_reference(name), node)


NAMED = {
    "in full": (annotated({NAME_ANNOTATION: "docker.io/library/busybox:1.33"}), "busybox:1.33"),
    "in short": (annotated({NAME_ANNOTATION: "busybox:1.33"}), "docker.io/library/busybox:1.33"),
    "by skopeo": (annotated({REF_ANNOTATION: "r.example/app:1"}), "r.example/app:1"),
    "only the tag": (annotated({REF_ANNOTATION: "1"}), "r.example/app:1"),
    "docker": (tar(DOCKER), "r.example/b:2"),
}


@pytest.mark.parametrize(("content", "name"), NAMED.values(), ids=NAMED)
def test_an_image_by_its_name(path, content: bytes, name: str):
    """However the archive spells it."""
    assert chosen(content, name, path)


def test_an_image_by_its_digest(path):
    """The digest says what it is, so its name in the archive does not matter."""
    content = oci.archive(["x.example/y:3"], LAYER, {})
    digest = read_archive(path(content))[0].digest

    assert chosen(content, f"r.example/app:1@{digest}", path).digest == digest


WRONG = "r.example/app@sha256:" + "0" * 64
NOT_THERE = {
    "name": (
        oci.archive(["r.example/a:1"], LAYER, {}),
        "r.example/a:2",
        "it holds no r.example/a:2, but r.example/a:1",
    ),
    "other registry": (
        tar(DOCKER),
        "r.example/busybox:1.33",
        "but an image without a name, busybox:1.33, r.example/b:2",
    ),
    "other tag": (annotated({REF_ANNOTATION: "1"}), "r.example/app:2", "it holds no r.example/app:2, but 1"),
    "no name": (annotated({}), "a:1", "but an image without a name"),
    "no reference": (annotated({NAME_ANNOTATION: "A::"}), "a:1", "but A::"),
    "nothing": (tar({"oci-layout": {}, "index.json": {"manifests": []}}), "a:1", "but no image at all"),
    "digest": (oci.archive(["r.example/app:1"], LAYER, {}), WRONG, rf"digest {WRONG[14:]}, but sha256:[0-9a-f]{{64}}$"),
    "docker by digest": (tar(DOCKER), WRONG, rf"digest {WRONG[14:]}, but an image of docker save, which has no digest"),
    "architecture": (
        oci.archive(["r.example/a:1"], LAYER, {}, ("arm64", "s390x")),
        "r.example/a:1",
        "its r.example/a:1 is for linux/arm64, linux/s390x, expected linux/amd64: save it again",
    ),
}


@pytest.mark.parametrize(("content", "name", "reason"), NOT_THERE.values(), ids=NOT_THERE)
def test_an_image_that_is_not_there(path, content: bytes, name: str, reason: str):
    """The text says what was looked for, with its digest, and what there is."""
    with pytest.raises(ArchiveError, match=reason):
        chosen(content, name, path)


def test_of_two_with_one_name_the_one_for_the_node(path):
    """An archive that lists its platforms side by side instead of in an index."""
    arm, amd = (oci_files(["r.example/a:1"], (one,)) for one in ("arm64", "amd64"))
    manifests = [json.loads(files["index.json"])["manifests"][0] for files in (arm, amd)]
    both = tar({**arm, **amd, "index.json": {"manifests": manifests}})

    assert chosen(both, "r.example/a:1", path).platforms == (AMD64,)
    assert chosen(both, "r.example/a:1", path, node_platform("aarch64")).platforms == (ARM64,)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (oci.archive(["r.example/a:1", "r.example/b:1"], LAYER, {}), "r.example/b:1"),
        (annotated({REF_ANNOTATION: "1"}), "r.example/b:1"),
        (tar(DOCKER), "r.example/b:2"),
        (gzip.compress(tar(DOCKER)), "r.example/b:2"),
        (annotated({NAME_ANNOTATION: "r.example/b:2"}, **DOCKER), "r.example/b:2"),
    ],
    ids=["oci", "only the tag", "docker", "compressed", "both formats"],
)
def test_the_copy_holds_one_image_under_one_name(path, content: bytes, name: str):
    """Everything else is as it was, so that digests are the same."""
    entry = chosen(content, name, path)
    output = io.BytesIO()
    copy_entry(path(content), output, entry, name)
    copied = path(output.getvalue())

    assert [(found.names, found.digest) for found in read_archive(copied)] == [((name,), entry.digest)]
    before = unpacked(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    indexes = ("index.json", "manifest.json")
    unchanged = {key: value for key, value in before.items() if key not in indexes}
    assert {key: value for key, value in unpacked(output.getvalue()).items() if key not in indexes} == unchanged
