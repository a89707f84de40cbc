# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Application layer policy: asked for only where it is used."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_mesh import (
    mesh_findings,
    read_mesh,
    uses_application_layer,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import Reader
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_versions import read_matrix

from .network_samples import calico_node, felix

USED = felix(policySyncPathPrefix="/var/run/nodeagent")


def istiod(image: str, name: str = "istiod") -> dict:
    """A Deployment of Istio."""
    return {"metadata": {"name": name}, "spec": {"template": {"spec": {"containers": [{"name": "x", "image": image}]}}}}


def server(*flags: str) -> dict:
    """A pod of kube-apiserver."""
    return {
        "metadata": {"name": "kube-apiserver-cp1"},
        "spec": {"containers": [{"name": "x", "command": ["x", *flags]}]},
    }


def found(*calico: dict, istio: tuple[dict, ...] = (), flags: tuple[str, ...] = (), kubernetes: str = "v1.22.0"):
    """Ids and severities in such a cluster, None where nothing was asked."""
    lists = {"pods": [server(*flags)], "deployments": list(istio)}
    mesh = read_mesh(Reader(lambda *_where: (404, {}), lambda kind, **_options: (200, lists[kind.plural])), calico)
    if mesh is None:
        return None
    return [(item["id"], item["severity"]) for item in mesh_findings(mesh, kubernetes, read_matrix())]


@pytest.mark.parametrize(
    ("calico", "used"),
    [
        (USED, True),
        (felix(annotations={"config.projectcalico.org/PolicySyncPathPrefix": "/x"}), True),
        (calico_node(FELIX_POLICYSYNCPATHPREFIX="/x"), True),
        (felix(policySyncPathPrefix=""), False),
        (felix(chainInsertMode="Append"), False),
        (calico_node(FELIX_POLICYSYNCPATHPREFIX=""), False),
        (calico_node(), False),
    ],
)
def test_it_is_used_where_felix_serves_policy_to_proxies(calico, used):
    assert uses_application_layer([calico]) is used


def test_without_it_nothing_is_asked():
    assert found(felix(), istio=(istiod("istio/pilot:1.1.0"),), flags=("--disable-admission-plugins=x",)) is None


@pytest.mark.parametrize(
    ("istio", "kubernetes", "expected"),
    [
        ((istiod("istio/pilot:1.10.2"),), "v1.22.0", []),
        ((istiod("localhost:5000/istio/pilot:1.9.0-distroless@sha256:00"),), "v1.20.0", []),
        ((istiod("istio/pilot:1.9.0"),), "v1.22.0", [("istio.version", "warning")]),
        ((istiod("istio/pilot:1.1.7", "istio-pilot"),), "v1.16.0", [("istio.version", "blocker")]),
        ((istiod("x:1.1.7", "istio-ingressgateway"), istiod("istio/pilot:1.10.2", "istiod-canary")), "v1.20.0", []),
        ((istiod("istio/pilot@sha256:00"),), "v1.22.0", []),
        ((), "v1.22.0", []),
    ],
)
def test_istio_is_judged_by_its_version(istio, kubernetes, expected):
    assert found(USED, istio=istio, kubernetes=kubernetes) == expected


@pytest.mark.parametrize(
    ("flags", "is_off"),
    [
        (("--disable-admission-plugins=PodSecurity,MutatingAdmissionWebhook",), True),
        (("--disable-admission-plugins", "MutatingAdmissionWebhook"), True),
        (("--disable-admission-plugins=PodSecurity", "--enable-admission-plugins=MutatingAdmissionWebhook"), False),
        ((), False),
    ],
)
def test_webhooks_that_are_switched_off_are_said(flags, is_off):
    assert found(USED, flags=flags) == ([("cluster.mutating_webhooks_off", "blocker")] if is_off else [])
