# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which operating systems an engine's agent is said to run on: data (os_matrix.yml), which users replace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ansible_collections.portcullis.fleet.plugins.plugin_utils.matrix_file import MatrixError, date_of, read_matrix_file

BUILT_IN = Path(__file__).with_name("os_matrix.yml")


@dataclass(frozen=True)
class OsMatrix:
    """The versions by engine and operating system, and where and when they were written."""

    engines: dict[str, dict[str, list[str]]]
    as_of: str
    place: str


def read_os_matrix(path: str = "") -> OsMatrix:
    """Read a file, the collection's own without a path.

    :raises MatrixError: it is not there, or not what it has to be.
    """
    content, where = read_matrix_file(path, BUILT_IN, "secure_workload")
    engines = {name: _systems(item, f"{where}: {name}") for name, item in content.items() if name != "as_of"}
    return OsMatrix(engines, date_of(content), where.name)


def _systems(item: object, where: str) -> dict[str, list[str]]:
    if not isinstance(item, dict) or not all(isinstance(versions, list) for versions in item.values()):
        raise MatrixError(f'{where}: expected ID: ["version", ...] for each operating system')
    return {str(name): [str(version) for version in versions] for name, versions in item.items()}


def is_listed(matrix: OsMatrix, engine: str, system: dict) -> bool:
    """Whether an operating system (C({id, version_id, variant_id}) of os-release) is in an engine's list.

    An engine without a list runs wherever its kernel does. RHEL CoreOS calls itself rhcos or, from 4.18 on, a variant
    of rhel.
    """
    listed = matrix.engines.get(engine)
    if listed is None:
        return True
    names = [system["id"], *(["rhcos"] if system["variant_id"] == "coreos" else [])]
    version = system["version_id"]
    return any(
        version == known or version.startswith(f"{known}.") for name in names for known in listed.get(name, [])
    ) or ("rhcos" in names[1:] and "rhcos" in listed)
