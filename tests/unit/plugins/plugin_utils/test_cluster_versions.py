# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which versions go together: the file, and what is found of a cluster."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_versions import (
    calico_findings,
    ipvs_findings,
    istio_findings,
    read_matrix,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.matrix_file import MatrixError

MATRIX = read_matrix()


def brief(found) -> list[tuple[str, str]]:
    """Id and severity of each finding."""
    return [(item["id"], item["severity"]) for item in found]


@pytest.mark.parametrize(
    ("version", "kubernetes", "expected"),
    [
        ((3, 25), "v1.23.17", []),
        ((3, 25), "v1.26.0", []),
        ((3, 25), "v1.15.12", [("calico.kubernetes_fails", "blocker")]),
        ((3, 25), "v1.9.0", [("calico.kubernetes_fails", "blocker")]),
        ((3, 25), "v1.16.0", [("calico.kubernetes_untested", "warning")]),
        ((3, 25), "v1.18.20", [("calico.kubernetes_untested", "warning")]),
        ((3, 25), "v1.34.4", [("calico.kubernetes_untested", "warning")]),
        ((3, 31), "v1.34.4-eks-1a2b", []),
        ((3, 31), "v1.34.4+k3s1", []),
        ((3, 31), "v1.20.1", [("calico.kubernetes_fails", "blocker")]),
        ((3, 30), "v1.30.9", [("calico.kubernetes_untested", "warning")]),
        ((3, 13), "v1.9.1", [("calico.kubernetes_untested", "warning")]),
        ((3, 99), "v1.34.4", [("calico.version_unknown", "warning")]),
        (None, "v1.34.4", [("calico.version_unknown", "warning")]),
        ((3, 25), "", []),
    ],
)
def test_a_calico_is_judged_by_its_row(version, kubernetes, expected):
    assert brief(calico_findings(version, kubernetes, MATRIX)) == expected


def test_an_untested_pair_names_the_range_its_date_and_a_calico_that_was_tested():
    (found,) = calico_findings((3, 25), "v1.34.4", MATRIX)

    assert found["observed"] == "Calico 3.25 on Kubernetes 1.34: not tested together"
    assert found["expected"] == f"Kubernetes 1.23 to 1.26 (calico_matrix.yml of {MATRIX.as_of})"
    assert "change Calico to 3.32" in found["remedy"]


@pytest.mark.parametrize(
    ("modes", "kubernetes", "ids"),
    [
        ({"ipvs", "iptables"}, "v1.9.2", ["kube_proxy.ipvs_version"]),
        ({"ipvs"}, "v1.9.3", []),
        ({"ipvs"}, "v1.10.0", []),
        ({"ipvs"}, "v1.34.4", []),
        ({"iptables"}, "v1.9.2", []),
        ({"ipvs"}, "", []),
    ],
)
def test_ipvs_needs_kubernetes_1_9_3(modes, kubernetes, ids):
    assert [item["id"] for item in ipvs_findings(modes, kubernetes)] == ids


@pytest.mark.parametrize(
    ("version", "kubernetes", "expected"),
    [
        ((1, 9), "v1.17.0", []),
        ((1, 9), "v1.21.0", [("istio.version", "warning")]),
        ((1, 10), "v1.18.0", []),
        ((1, 10), "v1.22.0", []),
        ((1, 10), "v1.34.4", [("istio.version", "warning")]),
        ((1, 1), "v1.16.0", [("istio.version", "blocker")]),
        ((1, 1), "v1.15.0", [("istio.version", "warning")]),
        ((1, 5), "v1.16.0", [("istio.version", "warning")]),
        (None, "v1.34.4", []),
    ],
)
def test_an_istio_is_judged_by_its_row(version, kubernetes, expected):
    assert brief(istio_findings(version, kubernetes, MATRIX)) == expected


def test_a_file_of_the_users_own_replaces_the_rows(tmp_path):
    path = tmp_path / "mine.yml"
    path.write_text('as_of: 2027-01-01\ncalico:\n  "3.99": {tested: ["1.34", "1.40"]}\n', encoding="utf-8")
    matrix = read_matrix(str(path))

    assert brief(calico_findings((3, 99), "v1.34.4", matrix)) == []
    (found,) = calico_findings((3, 31), "v1.34.4", matrix)
    assert found["observed"] == "Calico 3.31 is not in mine.yml (of 2027-01-01)"
    assert brief(istio_findings((1, 10), "v1.22.0", matrix)) == [("istio.version", "warning")]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("calico: {3.30: {tested: ['1.31', '1.35']}}", "3.3 is no version"),
        ("calico: {'3.30': {tested: [1.31, '1.35']}}", '1.31 is no version such as "1.30", in quotes'),
        ("calico: {'3.30': {tested: ['1.31']}}", "the oldest and the newest"),
        ("calico: {'3.30': {testd: ['1.31', '1.32']}}", "expected tested"),
        ("calico: {'3.30': {tested: ['1.31', '1.32'], fails_up_to: '1'}}", "fails_up_to: '1' is no version"),
        ("calico: {'3.30': }", "None, expected tested"),
        ("istio: {}", "no mapping calico"),
        ("calico: []", "no mapping calico"),
        ("calico: {}\nistio: [1]", "istio is no mapping"),
        ("[", "cannot be read"),
        ("", "no mapping calico"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place(tmp_path, text, reason):
    path = tmp_path / "mine.yml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(MatrixError) as raised:
        read_matrix(str(path))
    assert reason in str(raised.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(MatrixError, match="cannot be read"):
        read_matrix(str(tmp_path / "none.yml"))
