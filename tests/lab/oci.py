"""OCI image archives without a registry or a daemon.

Format: https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md. An archive is a tar of
`oci-layout`, `index.json` and `blobs/sha256/*`; containerd reads an image's name from the annotation
`io.containerd.image.name` of its entry in the index.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_PREFIX = "application/vnd.oci.image."


def _member(name: str, size: int = 0, mode: int = 0o644) -> tarfile.TarInfo:
    """Times and owners are zero, so that the same input gives the same digest."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, mode
    return info


def layer(files: Mapping[str, Path], links: Mapping[str, str]) -> bytes:
    """A layer's tar: `files` maps names in the image to files here, `links` maps names to symbolic link targets."""
    buffer = io.BytesIO()
    parents = {str(parent) for name in [*files, *links] for parent in Path(name).parents} - {"."}
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for parent in sorted(parents - set(links)):
            info = _member(parent, mode=0o1777 if parent == "tmp" else 0o755)
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
        for name, source in sorted(files.items()):
            data = source.read_bytes()
            tar.addfile(_member(name, len(data), source.stat().st_mode & 0o777), io.BytesIO(data))
        for name, target in sorted(links.items()):
            info = _member(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return buffer.getvalue()


def archive(
    names: Sequence[str], layer_tar: bytes, config: Mapping[str, object], architectures: Sequence[str] = ("amd64",)
) -> bytes:
    """The archive of a one-layer image under each of `names`; `config` is the image's `config` object.

    With several `architectures` each name is that of an index with a manifest for each.
    """
    blobs: dict[str, bytes] = {}

    def add(kind: str, data: bytes) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": _PREFIX + kind, "digest": f"sha256:{digest}", "size": len(data)}

    def add_json(kind: str, value: object) -> dict[str, object]:
        return add(kind, json.dumps(value, sort_keys=True).encode())

    def add_image(architecture: str) -> dict[str, object]:
        platform = {"architecture": architecture, "os": "linux"}
        config_entry = add_json("config.v1+json", {**platform, "config": dict(config), "rootfs": rootfs})
        manifest = {"schemaVersion": 2, "mediaType": _PREFIX + "manifest.v1+json"}
        entry = add_json("manifest.v1+json", {**manifest, "config": config_entry, "layers": [layer_entry]})
        return {**entry, "platform": platform}

    layer_entry = add("layer.v1.tar", layer_tar)
    rootfs = {"type": "layers", "diff_ids": [layer_entry["digest"]]}
    manifests = [add_image(architecture) for architecture in architectures]
    index = {"schemaVersion": 2, "mediaType": _PREFIX + "index.v1+json", "manifests": manifests}
    entry = manifests[0] if len(manifests) == 1 else add_json("index.v1+json", index)
    entries = [{**entry, "annotations": {"io.containerd.image.name": name}} for name in names]
    files = {
        "oci-layout": json.dumps({"imageLayoutVersion": "1.0.0"}).encode(),
        "index.json": json.dumps({"schemaVersion": 2, "manifests": entries}).encode(),
        **{f"blobs/sha256/{digest}": data for digest, data in blobs.items()},
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in files.items():
            tar.addfile(_member(name, len(data)), io.BytesIO(data))
    return buffer.getvalue()
