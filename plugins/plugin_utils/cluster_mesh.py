# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calico's application layer policy: whether it is used, and what it then needs of Istio and of the API server.

It is used where Felix serves policy to proxies (policySyncPathPrefix); without that nothing of it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ansible_collections.portcullis.fleet.plugins.module_utils.finding import BLOCKER, finding
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import DEPLOYMENTS, PODS, Reader
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_versions import Matrix, istio_findings
from ansible_collections.portcullis.fleet.plugins.plugin_utils.felix_parameters import parse_version
from ansible_collections.portcullis.fleet.plugins.plugin_utils.manifests import (
    as_list,
    as_mapping,
    mappings,
    name_of,
    pod_spec,
)

SETTING = "policysyncpathprefix"
ISTIO_NAMESPACE = "istio-system"
ISTIO_NAMES = re.compile(r"istiod\b|istio-pilot\b")
API_SERVER_LABEL = "component=kube-apiserver"
PLUGIN = "MutatingAdmissionWebhook"


def uses_application_layer(calico: Iterable[dict]) -> bool:
    """Whether Felix is told to serve policy to proxies.

    :param calico: objects of Calico as cluster_objects reads them.
    """
    for item in calico:
        for each in mappings(item):
            for key, value in each.items():
                if str(key).lower().rpartition("/")[2] == SETTING and value:
                    return True
            if name_of(each).lower() == f"felix_{SETTING}" and (each.get("value") or each.get("valueFrom")):
                return True
    return False


def read_mesh(reader: Reader, calico: Iterable[dict]) -> dict | None:
    """C({istio, disabled_on}): Istio's version as text, "" without one; API servers that have the plugin switched off.

    None where application layer policy is not used. API servers that are no pods (k3s, managed ones) are not seen.
    """
    if not uses_application_layer(calico):
        return None
    servers = reader.list(PODS, namespace="kube-system", label_selector=API_SERVER_LABEL, limit=50)
    return {
        "istio": next(_istio_versions(reader), ""),
        "disabled_on": sorted(name_of(item) for item in servers if PLUGIN in _disabled_plugins(item)),
    }


def _istio_versions(reader: Reader) -> Iterator[str]:
    for item in reader.list(DEPLOYMENTS, namespace=ISTIO_NAMESPACE):
        for container in map(as_mapping, as_list(pod_spec(item).get("containers"))):
            tag = str(container.get("image") or "").partition("@")[0].rpartition("/")[2].partition(":")[2]
            if ISTIO_NAMES.match(name_of(item)) and parse_version(tag):
                yield tag


def _disabled_plugins(pod: dict) -> set[str]:
    words = [
        str(word)
        for container in map(as_mapping, as_list(pod_spec(pod).get("containers")))
        for word in [*as_list(container.get("command")), *as_list(container.get("args"))]
    ]
    found = re.findall(r"--disable-admission-plugins[= ]([\w,]+)", " ".join(words))
    return {name for text in found for name in text.split(",")}


def mesh_findings(mesh: dict, kubernetes: str, matrix: Matrix) -> Iterator[dict]:
    """What application layer policy lacks."""
    yield from istio_findings(parse_version(mesh["istio"]), kubernetes, matrix)
    if mesh["disabled_on"]:
        yield finding(
            "cluster.mutating_webhooks_off",
            severity=BLOCKER,
            requirement="calico/Application layer policy requirements",
            observed=f"{', '.join(mesh['disabled_on'])} runs with --disable-admission-plugins={PLUGIN}",
            expected=f"{PLUGIN} enabled, since application layer policy is used (policySyncPathPrefix)",
            remedy=f"take {PLUGIN} out of --disable-admission-plugins of every kube-apiserver "
            "(/etc/kubernetes/manifests/kube-apiserver.yaml)",
        )
