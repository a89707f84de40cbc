"""Image archives."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

from tests.lab import oci


def members(archive: bytes) -> dict[str, bytes]:
    """The files of a tar."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}


def test_archive_refers_to_its_blobs():
    """Index, manifest, configuration and layer are found by digest, under every name."""
    files = members(oci.archive(["a:1", "b:2"], b"layer", {"Cmd": ["x"]}))
    index = json.loads(files["index.json"])

    def blob(entry: dict) -> bytes:
        data = files["blobs/" + entry["digest"].replace(":", "/")]
        assert hashlib.sha256(data).hexdigest() == entry["digest"].removeprefix("sha256:")
        assert len(data) == entry["size"]
        return data

    assert [entry["annotations"]["io.containerd.image.name"] for entry in index["manifests"]] == ["a:1", "b:2"]
    manifest = json.loads(blob(index["manifests"][0]))
    assert blob(manifest["layers"][0]) == b"layer"
    config = json.loads(blob(manifest["config"]))
    assert config["config"] == {"Cmd": ["x"]}
    assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]


def test_layer(tmp_path: Path):
    """Files keep their mode; parents come first; a parent that is a link is not made a directory."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    data = oci.layer({"usr/bin/program": program}, {"bin": "usr/bin", "usr/bin/sh": "program"})

    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        entries = {entry.name: entry for entry in tar}
    assert list(entries) == ["usr", "usr/bin", "usr/bin/program", "bin", "usr/bin/sh"]
    assert entries["usr/bin/program"].mode == 0o755
    assert entries["bin"].linkname == "usr/bin"


def test_same_input_same_bytes(tmp_path: Path):
    """The digest names what went in, not when."""
    file = tmp_path / "file"
    file.write_text("x")

    assert oci.layer({"a": file}, {}) == oci.layer({"a": file}, {})
