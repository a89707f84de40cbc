# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images on a node with containerd: full references, pulls through CRI, imports from archives."""

from __future__ import annotations

import re
import subprocess

from .cri import CriClient, CriError
from .host import SEARCH_PATH

NAMESPACE = "k8s.io"
DEFAULT_REGISTRY = "docker.io"


class ImageError(Exception):
    """The image could not be provided; the text says what was tried and what to do."""


def normalise(name):
    """Return the full reference that CRI uses (distribution/reference: ParseNormalizedNamed)."""
    first, slash, rest = name.partition("/")
    has_registry = slash and (re.search(r"[.:]", first) or first == "localhost")
    registry, path = (first, rest) if has_registry else (DEFAULT_REGISTRY, name)
    if registry == DEFAULT_REGISTRY and "/" not in path:
        path = "library/" + path
    if "@" not in path and ":" not in path.rpartition("/")[2]:
        path += ":latest"
    return f"{registry}/{path}"


def pull(socket, name, timeout_s):
    """Pull through CRI and return the image as CRI has it afterwards."""
    try:
        with CriClient(socket) as client:
            client.pull_image(name, timeout_s=timeout_s)
            image = client.image_status(name)
    except CriError as error:
        raise ImageError(
            f"{name} is not on the node and cannot be pulled: {error}; let the node reach the registry, write a mirror "
            "below the registry directory, or give an archive of the image"
        ) from error
    if image is None:
        raise ImageError(f"{name} was pulled, but CRI does not have it; is another run or garbage collection at work?")
    return image


def import_archive(socket, name, archive, timeout_s):
    """Import an archive into the namespace of Kubernetes and return the image as CRI has it afterwards."""
    argv = ["ctr", "--address", socket, "--namespace", NAMESPACE, "images", "import", archive]
    try:
        done = subprocess.run(
            argv,
            env={"PATH": SEARCH_PATH, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    except FileNotFoundError as error:
        raise ImageError("ctr is not on the node; it comes with containerd, install it to import images") from error
    except subprocess.TimeoutExpired as error:
        raise ImageError(f"ctr did not import the archive of {name} within {timeout_s} s") from error
    output = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode:
        raise ImageError(f"ctr could not import the archive of {name}: {output}; is it an OCI or docker archive?")
    try:
        with CriClient(socket) as client:
            image = client.image_status(name)
    except CriError as error:
        raise ImageError(f"the archive was imported, but CRI does not answer: {error}") from error
    if image is None:
        raise ImageError(f"the archive was imported, but it holds no {name}: {output}; give an archive of that image")
    return image
