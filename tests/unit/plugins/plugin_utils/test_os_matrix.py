# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of operating systems, ours and a user's."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.matrix_file import MatrixError
from ansible_collections.portcullis.fleet.plugins.plugin_utils.os_matrix import is_listed, read_os_matrix


def system(name: str, version: str, variant: str = "") -> dict:
    return {"id": name, "version_id": version, "variant_id": variant, "pretty_name": ""}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (system("rhel", "9.4"), True),
        (system("rhel", "10.0"), False),
        (system("rhel", "90"), False),
        (system("ubuntu", "22.04"), True),
        (system("ubuntu", "22.10"), False),
        (system("debian", "12"), True),
        (system("debian", ""), False),
        (system("rhcos", "4.16"), True),
        (system("rhel", "9.6", "coreos"), True),
        (system("", ""), False),
        (system("talos", "v1.10"), False),
    ],
)
def test_our_own_list(found, expected):
    matrix = read_os_matrix()

    assert is_listed(matrix, "secure_workload", found) is expected
    assert is_listed(matrix, "native", found)
    assert matrix.as_of


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "cannot be read"),
        ("secure_workload: [", "cannot be read"),
        ("- a", "has no mapping secure_workload"),
        ("secure_workload: {debian: 12}", 'expected ID: ["version", ...]'),
        ("secure_workload: {}\nnative: 3", 'expected ID: ["version", ...]'),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path, text, reason):
    file = tmp_path / "mine.yml"
    if text is not None:
        file.write_text(text)

    with pytest.raises(MatrixError, match=r"mine\.yml") as raised:
        read_os_matrix(str(file))
    assert reason in str(raised.value)


def test_a_users_file_replaces_ours(tmp_path):
    file = tmp_path / "mine.yml"
    file.write_text("as_of: 2027-01\nsecure_workload: {talos: [v1.10]}\n")
    matrix = read_os_matrix(str(file))

    assert is_listed(matrix, "secure_workload", system("talos", "v1.10"))
    assert not is_listed(matrix, "secure_workload", system("debian", "12"))
