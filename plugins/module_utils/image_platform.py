# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""For which machines an image is, and which of them a node can run.

Names are Go's (https://go.dev/doc/install/source#environment), as images have them; what runs where is containerd's
rule (https://github.com/containerd/platforms/blob/v1.0.0-rc.1/compare.go, platformVector).
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LINUX = "linux"
_OF_MACHINE = {
    "x86_64": ("amd64", ""),
    "i386": ("386", ""),
    "i686": ("386", ""),
    "aarch64": ("arm64", ""),
    "armv8l": ("arm", "v8"),
    "armv7l": ("arm", "v7"),
    "armv6l": ("arm", "v6"),
    "loongarch64": ("loong64", ""),
}
# The 32-bit programs that a 64-bit processor runs.
_ALSO_RUNS = {"amd64": "386", "arm64": "arm"}
_DEFAULT_ARM = "v7"


class Platform(NamedTuple):
    """C(variant) is a version of the instruction set, empty for most."""

    os: str
    architecture: str
    variant: str

    def __str__(self):
        return "/".join(filter(None, self))


def platform_of(value):
    """Return the Platform out of an image's configuration or of a descriptor's C(platform)."""
    words = (value.get(key) for key in Platform._fields)
    return Platform(*(word if isinstance(word, str) else "" for word in words))


def node_platform(machine):
    """Return the Platform of a node by its C(uname -m)."""
    return Platform(_LINUX, *_OF_MACHINE.get(machine, (machine, "")))


def runs_on(image, node):
    """Say whether a node can run an image; arguments are Platforms."""
    if image.os != node.os:
        return False
    if image.architecture != node.architecture:
        return image.architecture == _ALSO_RUNS.get(node.architecture)
    return node.architecture != "arm" or _arm_version(image) <= _arm_version(node)


def _arm_version(platform):
    return int(re.sub(r"\D", "", platform.variant or _DEFAULT_ARM) or 0)
