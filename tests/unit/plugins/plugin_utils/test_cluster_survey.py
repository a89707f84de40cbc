# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is read of a cluster beside its network, from a server of ours that answers as an API server does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .answering_cluster import FORBIDDEN, answering_cluster, groups

DEFAULT = "/api/v1/namespaces/default/"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
SERVICE = {"spec": {"ports": [{"name": "https", "port": 443, "targetPort": 6443}]}}
SLICE = {
    "ports": [{"name": "https", "port": 6443}],
    "endpoints": [{"addresses": ["192.0.2.2"]}, {"addresses": ["192.0.2.1"], "conditions": {"ready": True}}],
}


@pytest.fixture
def survey_of(tmp_path: Path) -> Iterator[Callable[[dict], tuple[dict, list[str]]]]:
    """Read the survey of a cluster with these answers by path: what was read, and what was asked."""
    with answering_cluster(tmp_path) as (cluster, answers, asked):

        def read(given: dict) -> tuple[dict, list[str]]:
            answers.update(given)
            return cluster.survey(cluster.reader(), "agents"), asked

        yield read


def test_the_real_port_of_the_api_servers_is_that_of_their_endpoints(survey_of):
    slices = {"items": [SLICE, {**SLICE, "endpoints": [{"addresses": ["2001:db8::1"]}]}], "metadata": {}}
    found, _asked = survey_of({"/apis": groups("apps"), DEFAULT + "services/kubernetes": SERVICE, SLICES: slices})

    assert found["api_server"] == {
        "service_port": 443,
        "target_port": 6443,
        "endpoints": [{"address": name, "port": 6443} for name in ("192.0.2.1", "192.0.2.2", "2001:db8::1")],
    }
    assert found["unseen"] == {}


def test_endpoints_count_where_there_are_no_slices(survey_of):
    subsets = [{"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 8443}]}]
    answers = {"/apis": groups("apps"), DEFAULT + "endpoints/kubernetes": {"subsets": subsets}}
    found, _asked = survey_of(answers)

    assert found["api_server"] == {
        "service_port": None,
        "target_port": None,
        "endpoints": [{"address": "192.0.2.1", "port": 8443}],
    }


def test_what_is_refused_is_named_and_no_error(survey_of):
    found, _asked = survey_of({"/apis": groups("apps"), SLICES: FORBIDDEN, DEFAULT + "services/kubernetes": FORBIDDEN})

    assert found["api_server"] == {"service_port": None, "target_port": None, "endpoints": []}
    assert set(found["unseen"]) == {"endpointslices", "services default/kubernetes"}
