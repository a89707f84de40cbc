# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which images run on which machines."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.image_platform import (
    Platform,
    node_platform,
    platform_of,
    runs_on,
)


@pytest.mark.parametrize(
    ("machine", "image", "runs"),
    [
        ("x86_64", "linux/amd64", True),
        ("x86_64", "linux/386", True),
        ("x86_64", "linux/arm64", False),
        ("x86_64", "windows/amd64", False),
        ("i686", "linux/amd64", False),
        ("i686", "linux/386", True),
        ("aarch64", "linux/arm64/v8", True),
        ("aarch64", "linux/arm64", True),
        ("aarch64", "linux/arm/v7", True),
        ("aarch64", "linux/amd64", False),
        ("armv7l", "linux/arm/v6", True),
        ("armv7l", "linux/arm", True),
        ("armv7l", "linux/arm64", False),
        ("armv6l", "linux/arm/v7", False),
        ("armv6l", "linux/arm", False),
        ("armv6l", "linux/arm/v5", True),
        ("s390x", "linux/s390x", True),
        ("ppc64le", "linux/ppc64le", True),
        ("riscv64", "linux/amd64", False),
        ("loongarch64", "linux/loong64", True),
    ],
)
def test_runs_on(machine: str, image: str, runs: bool):
    """A 64-bit processor runs its 32-bit programs too, an older ARM not those of a newer one."""
    system, architecture, variant = f"{image}/".split("/")[:3]

    assert runs_on(Platform(system, architecture, variant), node_platform(machine)) is runs


@pytest.mark.parametrize("value", [{}, {"os": None, "architecture": 7}, {"os": "linux", "architecture": ""}])
def test_what_does_not_say_runs_nowhere(value):
    """A configuration without a platform is none of a node's."""
    assert not runs_on(platform_of(value), node_platform("x86_64"))


def test_text():
    assert str(Platform("linux", "arm", "v7")) == "linux/arm/v7"
    assert str(platform_of({"os": "linux", "architecture": "amd64"})) == "linux/amd64"
