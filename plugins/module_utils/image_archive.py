# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Archives of images: what they hold, and a copy with one image only.

Formats: the OCI layout in a tar (https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md) and that of
C(docker save) (https://github.com/moby/docker-image-spec/blob/v1.3.1/spec.md). An archive with both is read as the
former, as containerd does.
"""

from __future__ import annotations

import io
import json
import lzma
import tarfile
import zlib
from typing import Any, NamedTuple

from .image_platform import platform_of, runs_on
from .image_reference import parse_reference

NAME_ANNOTATION = "io.containerd.image.name"
REF_ANNOTATION = "org.opencontainers.image.ref.name"
_OCI_MARK, _OCI_INDEX, _DOCKER_INDEX = "oci-layout", "index.json", "manifest.json"
# Manifests and configurations are a few thousand octets; registries refuse manifests of more than 4 MiB.
_MAX_JSON = 16 * 1024 * 1024
_DAMAGED = (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError)


class ArchiveError(ValueError):
    """The archive cannot be used; the text says why."""


class Entry(NamedTuple):
    """An image in an archive."""

    names: tuple[str, ...]
    """As the archive has them: full, or only a tag."""
    digest: str
    """Of the manifest or the index. Empty in archives of C(docker save), which know none."""
    platforms: tuple[Any, ...]
    """The Platforms that are in the archive, without those of attestations."""
    record: Any
    """The JSON object that stands for it in the archive's index."""


def read_archive(path):
    """Return the Entries of an archive.

    :raises ArchiveError: no such archive, damaged, or in another format.
    """
    try:
        with tarfile.open(path, "r:*") as archive:
            members = _members(archive)
            if _OCI_MARK in members:
                return [_oci_entry(archive, members, item) for item in _json(archive, members, _OCI_INDEX)["manifests"]]
            if _DOCKER_INDEX in members:
                return [_docker_entry(archive, members, item) for item in _json(archive, members, _DOCKER_INDEX)]
    except _DAMAGED as error:
        raise ArchiveError(f"it is damaged, or no tar (plain or with gzip, bzip2 or xz): {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ArchiveError(f"its index has another form than an image's: {error!r}") from error
    raise ArchiveError(
        f"expected {_OCI_MARK} or {_DOCKER_INDEX} in it: save the image in the OCI layout or with docker save"
    )


def select_entry(entries, reference, node):
    """Return the Entry that is the image of a Reference and that runs on a node (a Platform).

    :raises ArchiveError: there is none; the text says what the archive holds.
    """
    if reference.digest:
        found = [entry for entry in entries if entry.digest == reference.digest]
        held = sorted({entry.digest or "an image of docker save, which has no digest" for entry in entries})
        what = f"{reference.repository} with the digest {reference.digest}"
    else:
        found = [entry for entry in entries if any(_is_named(name, reference) for name in entry.names)]
        held = sorted({name for entry in entries for name in entry.names or ("an image without a name",)})
        what = reference.name
    if not found:
        raise ArchiveError(f"it holds no {what}, but {', '.join(held) or 'no image at all'}")
    for entry in found:
        if any(runs_on(platform, node) for platform in entry.platforms):
            return entry
    there = sorted({str(platform) for entry in found for platform in entry.platforms})
    raise ArchiveError(
        f"its {what} is for {', '.join(there) or 'no platform'}, expected {node}: save it again for the node's platform"
    )


def copy_entry(path, output, entry, name):
    """Write an archive again, with one image under one name, to a file object that cannot seek.

    The name replaces the archive's own, so that nothing else on the node can change.

    :raises ArchiveError: the archive cannot be read.
    :raises BrokenPipeError: nobody reads the output any more.
    """
    try:
        with tarfile.open(path, "r:*") as archive, tarfile.open(fileobj=output, mode="w|") as copy:
            members = _members(archive)
            for member_name, member in members.items():
                if member_name not in (_OCI_INDEX, _DOCKER_INDEX):
                    copy.addfile(member, archive.extractfile(member) if member.isreg() else None)
            is_oci = _OCI_MARK in members
            octets = json.dumps(_oci_index(entry, name) if is_oci else _docker_index(entry, name)).encode()
            info = tarfile.TarInfo(_OCI_INDEX if is_oci else _DOCKER_INDEX)
            info.size = len(octets)
            copy.addfile(info, io.BytesIO(octets))
    except BrokenPipeError:
        raise
    except _DAMAGED as error:
        raise ArchiveError(f"it cannot be read: {error}") from error


def _oci_index(entry, name):
    return {"schemaVersion": 2, "manifests": [{**entry.record, "annotations": {NAME_ANNOTATION: name}}]}


def _docker_index(entry, name):
    return [{**entry.record, "RepoTags": [name]}]


def _clean(name):
    return name[2:] if name.startswith("./") else name


def _members(archive):
    """Return all members by name; reading them all finds an archive that ends too early."""
    return {_clean(member.name): member for member in archive.getmembers()}


def _json(archive, members, name):
    member = members.get(name)
    stream = archive.extractfile(member) if member else None
    if stream is None:
        raise ArchiveError(f"it is incomplete: {name} is missing")
    if member.size > _MAX_JSON:
        raise ArchiveError(f"expected at most {_MAX_JSON} octets in {name}, found {member.size}")
    octets = stream.read()
    try:
        return json.loads(octets)
    except ValueError as error:
        raise ArchiveError(f"{name} in it is no JSON: {error}") from error


def _blob(digest):
    return f"blobs/{digest.replace(':', '/')}"


def _oci_entry(archive, members, record):
    annotations = record.get("annotations") or {}
    name = annotations.get(NAME_ANNOTATION) or annotations.get(REF_ANNOTATION)
    platforms = _oci_platforms(archive, members, record)
    return Entry((name,) if name else (), record["digest"], tuple(platforms), record)


def _oci_platforms(archive, members, record):
    manifest = _json(archive, members, _blob(record["digest"]))
    if "manifests" in manifest:
        found = []
        for item in manifest["manifests"]:
            # An archive may hold only some of an index's images.
            if _blob(item["digest"]) in members and (item.get("platform") or {}).get("os") != "unknown":
                found += _oci_platforms(archive, members, item)
        return found
    return [platform_of(_json(archive, members, _blob(manifest["config"]["digest"])))]


def _docker_entry(archive, members, record):
    platform = platform_of(_json(archive, members, record["Config"]))
    return Entry(tuple(record.get("RepoTags") or ()), "", (platform,), record)


def _is_named(name, reference):
    """Say whether an archive's name is that of a reference; a name without a repository is the tag of any."""
    if not any(mark in name for mark in "/:@"):
        return name == reference.tag
    try:
        return parse_reference(name)._replace(digest="") == reference
    except ValueError:
        return False
