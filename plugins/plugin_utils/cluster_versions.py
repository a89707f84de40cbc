# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether versions go together: Calico and Kubernetes, Istio and Kubernetes, kube-proxy's IPVS mode and Kubernetes.

What was tested is data (calico_matrix.yml), which users replace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, WARNING, finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import Version, parse_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.matrix_file import MatrixError, date_of, read_matrix_file

BUILT_IN = Path(__file__).with_name("calico_matrix.yml")
VARIABLE = "portcullis_calico_matrix"
REQUIREMENT = "calico/Supported versions"
# kube-proxy's IPVS mode with Calico. Source: the requirement text.
IPVS_SINCE = (1, 9, 3)
# The MutatingAdmissionWebhook API that older Istio needs is gone. Source: the requirement text.
ISTIO_2_SINCE, ISTIO_2 = (1, 16), (1, 2)


@dataclass(frozen=True)
class Row:
    """What one version was tested with. fails_up_to: the newest Kubernetes with which it does not work, or None."""

    oldest: Version
    newest: Version
    fails_up_to: Version | None = None

    def __str__(self) -> str:
        return f"{shown(self.oldest)} to {shown(self.newest)}"


@dataclass(frozen=True)
class Matrix:
    """The rows by version, and where and when they were written."""

    calico: dict[Version, Row]
    istio: dict[Version, Row]
    as_of: str
    place: str


def shown(version: tuple[int, ...]) -> str:
    """A version as people write it."""
    return ".".join(map(str, version))


def read_matrix(path: str = "") -> Matrix:
    """Read the file of versions, the collection's own without a path.

    :raises MatrixError: it is not there, or not what it has to be.
    """
    content, where = read_matrix_file(path, BUILT_IN, "calico")
    tables = {name: _rows(content.get(name) or {}, f"{where}: {name}") for name in ("calico", "istio")}
    return Matrix(tables["calico"], tables["istio"], date_of(content), where.name)


def _rows(items: object, where: str) -> dict[Version, Row]:
    if not isinstance(items, dict):
        raise MatrixError(f"{where} is no mapping of versions")
    return {_version(key, where): _row(value, f"{where}: {key}") for key, value in items.items()}


def _row(value: object, where: str) -> Row:
    if not isinstance(value, dict) or set(value) - {"tested", "fails_up_to"}:
        raise MatrixError(f"{where}: {value!r}, expected tested and, where known, fails_up_to")
    tested = value.get("tested")
    if not isinstance(tested, list) or len(tested) != 2:
        raise MatrixError(f"{where}: tested is {tested!r}, expected the oldest and the newest version")
    oldest, newest = (_version(item, f"{where}: tested") for item in tested)
    fails = value.get("fails_up_to")
    return Row(oldest, newest, None if fails is None else _version(fails, f"{where}: fails_up_to"))


def _version(value: object, where: str) -> Version:
    match = re.fullmatch(r"(\d+)\.(\d+)", value) if isinstance(value, str) else None
    if not match:
        raise MatrixError(f'{where}: {value!r} is no version such as "1.30", in quotes')
    return int(match[1]), int(match[2])


def calico_findings(version: Version | None, kubernetes: str, matrix: Matrix) -> Iterator[dict]:
    """Whether this Calico was tested with this Kubernetes.

    :param version: Calico's, None where nothing tells it. :param kubernetes: the API server's, such as C(v1.34.4).
    """
    running = parse_version(kubernetes)
    if running is None:
        return
    row = matrix.calico.get(version) if version else None
    if row is None:
        observed = f"Calico {shown(version)} is not in {matrix.place}" if version else "nothing tells Calico's version"
        yield finding(
            "calico.version_unknown",
            severity=WARNING,
            requirement=REQUIREMENT,
            observed=f"{observed} (of {matrix.as_of})",
            expected="a version of Calico of which it is known with which Kubernetes it was tested",
            remedy=f"look up Calico's system requirements, add a row to a copy of the file and name it in {VARIABLE}; "
            "or waive it: calico.version_unknown",
        )
        return
    fails = row.fails_up_to is not None and running <= row.fails_up_to
    if fails or not row.oldest <= running <= row.newest:
        better = [other for other, item in matrix.calico.items() if item.oldest <= running <= item.newest]
        wanted = f" to {shown(max(better))}" if better else ""
        yield finding(
            "calico.kubernetes_fails" if fails else "calico.kubernetes_untested",
            severity=BLOCKER if fails else WARNING,
            requirement=REQUIREMENT,
            observed=f"Calico {shown(version)} on Kubernetes {shown(running)}: "
            + (f"does not work up to {shown(row.fails_up_to)}" if fails else "not tested together"),
            expected=f"Kubernetes {row} ({matrix.place} of {matrix.as_of})",
            remedy=f"change Calico{wanted}, or Kubernetes"
            + ("" if fails else "; it may work all the same: then waive it: calico.kubernetes_untested"),
        )


def ipvs_findings(modes: set[str], kubernetes: str) -> Iterator[dict]:
    """IPVS mode on a Kubernetes that is too old for it.

    :param modes: kube-proxy's, configured and live.
    """
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)", kubernetes)
    if "ipvs" in modes and match and tuple(map(int, match.groups())) < IPVS_SINCE:
        yield finding(
            "kube_proxy.ipvs_version",
            severity=BLOCKER,
            requirement="calico/Supported kube-proxy modes",
            observed=f"kube-proxy in ipvs mode on Kubernetes {kubernetes}",
            expected=f"Kubernetes {shown(IPVS_SINCE)} or newer for ipvs",
            remedy="set kube-proxy's mode to iptables, or upgrade Kubernetes",
        )


def istio_findings(version: Version | None, kubernetes: str, matrix: Matrix) -> Iterator[dict]:
    """Whether this Istio goes with application layer policy on this Kubernetes.

    :param version: Istio's, None where there is none or nothing tells it.
    """
    running = parse_version(kubernetes)
    if running is None or version is None:
        return
    row = matrix.istio.get(version)
    fails = running >= ISTIO_2_SINCE and version < ISTIO_2
    if fails or row is None or not row.oldest <= running <= row.newest:
        known = ", ".join(f"{shown(each)} on Kubernetes {item}" for each, item in sorted(matrix.istio.items()))
        yield finding(
            "istio.version",
            severity=BLOCKER if fails else WARNING,
            requirement="calico/Application layer policy requirements",
            observed=f"application layer policy with Istio {shown(version)} on Kubernetes {shown(running)}",
            expected=f"Istio {known} ({matrix.place} of {matrix.as_of})",
            remedy="upgrade Istio to 1.2 or newer"
            if fails
            else f"try it and waive it: istio.version; or change Istio, or the rows by {VARIABLE}",
        )
