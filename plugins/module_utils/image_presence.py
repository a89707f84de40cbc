# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which images are on a node, as CRI tells it. Reads only."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from .cri import CriClient, CriError
from .image_platform import node_platform, platform_of, runs_on
from .image_reference import parse_reference


class Image(NamedTuple):
    """An image that CRI has."""

    id: str
    platform: Any
    """A Platform; None where containerd does not say."""
    pinned: bool
    names: tuple[str, ...]
    """All that lead to it: tags, digests and the id."""


def this_node():
    """Return the Platform of the machine that this runs on."""
    return node_platform(os.uname().machine)


def find_image(client, name):
    """Return the Image that CRI has by a name, or None.

    :raises CriError: CRI does not answer.
    """
    found = client.image_status(name, verbose=True)
    if found is None:
        return None
    try:
        platform = platform_of(json.loads(found["info"]["info"])["imageSpec"])
    except (KeyError, TypeError, ValueError, AttributeError):
        platform = None
    names = (*found["repo_tags"], *found["repo_digests"], found["id"])
    return Image(found["id"], platform if platform and platform.architecture else None, found["pinned"], names)


def is_as_wanted(image, pinned, node):
    """Say whether nothing is left to do: C(image) may be None, C(pinned) None means whatever it is."""
    return bool(image) and not complain_platform(image, node) and pinned in (None, image.pinned)


def find_as_wanted(address, wanted):
    """Return the names of C(wanted), each C({name, pinned}), that are on the node as they shall be.

    None of them when CRI does not answer, or when a name is none: who provides them says why.
    """
    node = this_node()
    try:
        with CriClient(address) as client:
            return [
                item["name"]
                for item in wanted
                if is_as_wanted(find_image(client, parse_reference(item["name"]).name), item["pinned"], node)
            ]
    except (CriError, ValueError):
        return []


def complain_platform(image, node):
    """Say that the node cannot run an image; empty when it can, or when containerd does not say for what it is."""
    if image.platform is None or runs_on(image.platform, node):
        return ""
    return f"it is for {image.platform}, expected {node}: its programs would end with an exec format error"
