# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a registry's directory is called."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.module_utils.registry_names import directory_names


@pytest.mark.parametrize(
    ("registry", "names"),
    [
        pytest.param("docker.io", ["docker.io"], id="host"),
        pytest.param("r:5000", ["r_5000_", "r:5000"], id="port"),
        pytest.param("_default", ["_default"], id="default"),
    ],
)
def test_directory_names(registry, names):
    """They come in the order in which containerd looks."""
    assert directory_names(registry) == names
