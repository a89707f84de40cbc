# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of images, read as Docker and CRI read them.

Grammar: https://github.com/distribution/reference/blob/v0.6.0/reference.go, normalize.go beside it for the defaults.
"""

from __future__ import annotations

import re
from typing import NamedTuple

DEFAULT_REGISTRY = "docker.io"
DEFAULT_TAG = "latest"
MASK = "********"
# Of github.com/opencontainers/go-digest: hexadecimal digits by algorithm.
DIGEST_LENGTHS = {"sha256": 64, "sha384": 96, "sha512": 128}
_MAX_REPOSITORY = 255
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_REGISTRY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?")
_PATH_PART = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST_LIKE = re.compile(r"[A-Za-z][\w+.-]*:[0-9A-Za-z]*", re.ASCII)
_ID = re.compile(r"sha256:[0-9a-f]+|[0-9a-f]{64}")


class Reference(NamedTuple):
    """A full name. C(tag) or C(digest) may be empty, not both."""

    registry: str
    path: str
    tag: str
    digest: str

    @property
    def repository(self):
        """The name without tag and digest."""
        return f"{self.registry}/{self.path}"

    @property
    def name(self):
        """The name that CRI knows the image by: beside a digest it drops the tag."""
        return f"{self.repository}@{self.digest}" if self.digest else f"{self.repository}:{self.tag}"


def parse_reference(text):
    """Return the Reference that a text names.

    :raises ValueError: with one line that says what is wrong; credentials that stand in the text are not in it.
    """
    problem, reference = _parse(text)
    if problem:
        raise ValueError(f"image {without_credentials(text)!r}: {problem}")
    return reference


def without_credentials(text):
    """Return a reference without what stands before an C(@) that begins no digest."""
    rest, at, digest = text.rpartition("@")
    if not _DIGEST_LIKE.fullmatch(digest):
        return MASK + at + digest if at else text
    return without_credentials(rest) + at + digest


def _parse(text):
    """Return (problem, None) or ("", Reference)."""
    if _ID.fullmatch(text):
        return (
            "an image ID cannot be pulled or found in an archive: give a name with a tag or a digest, as in "
            "docker.io/library/busybox@sha256:..."
        ), None
    if "://" in text:
        return "a reference has no scheme: leave out what stands before ://", None
    rest, at, digest = text.partition("@")
    problem = _complain_digest(digest) if at else ""
    if problem:
        return problem, None
    repository, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        repository, colon, tag = rest, "", "" if digest else DEFAULT_TAG
    registry, path = _split_registry(repository)
    problem = _complain_repository(registry, path) or (_complain_tag(tag) if colon else "")
    return problem, None if problem else Reference(registry, path, tag, digest)


def _split_registry(repository):
    first, slash, rest = repository.partition("/")
    if not slash or not (re.search(r"[.:]", first) or first == "localhost"):
        first, rest = DEFAULT_REGISTRY, repository
    if first in (DEFAULT_REGISTRY, "index.docker.io"):
        return DEFAULT_REGISTRY, rest if "/" in rest else f"library/{rest}"
    return first, rest


def _complain_repository(registry, path):
    if not _REGISTRY.fullmatch(registry):
        return f"expected the registry as host or host:port, got {registry!r}"
    if path != path.lower():
        return f"a repository is in lower case: {path.lower()!r}, not {path!r}"
    if len(path) > _MAX_REPOSITORY:
        return f"expected a repository of at most {_MAX_REPOSITORY} characters, got {len(path)}"
    wrong = next((part for part in path.split("/") if not _PATH_PART.fullmatch(part)), None)
    if wrong is None:
        return ""
    what = repr(wrong) if wrong else "nothing"
    return f"expected a-z and 0-9, with . _ or - between them, in every part of the repository, got {what}"


def _complain_tag(tag):
    if not tag:
        return "the tag after : is empty: give one, or leave the colon out"
    if not _TAG.fullmatch(tag):
        return f"expected a tag of at most 128 letters, digits, . _ and -, not starting with . or -, got {tag!r}"
    return ""


def _complain_digest(digest):
    algorithm, _colon, digits = digest.partition(":")
    if algorithm not in DIGEST_LENGTHS:
        return f"expected a digest after @ that begins with {', '.join(f'{name}:' for name in DIGEST_LENGTHS)}"
    if len(digits) != DIGEST_LENGTHS[algorithm]:
        return f"expected {DIGEST_LENGTHS[algorithm]} hexadecimal digits after {algorithm}:, got {len(digits)}"
    if not re.fullmatch(r"[0-9a-f]+", digits):
        return f"expected hexadecimal digits 0-9 and a-f after {algorithm}:, got {digits!r}"
    return ""
