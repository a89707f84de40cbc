# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Windows nodes, which nothing but the API server tells of: Node objects as AKS and EKS have them."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster import node_summary
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_requirements import inventory_findings
from ansible_collections.portcullis.fleet.plugins.plugin_utils.windows_requirements import (
    IMAGE,
    IMAGES_NAMED,
    is_windows,
    windows_findings,
)

INFO = {
    "kernelVersion": "10.0.20348.2700",
    "osImage": "Windows Server 2022 Datacenter",
    "containerRuntimeVersion": "containerd://1.7.20+azure",
    "kubeletVersion": "v1.29.7",
    "machineID": "akswin000",
}


def windows_node(images: list | None = None, **info: str) -> dict:
    """The summary of a Windows node."""
    named = [{"names": [IMAGE]}] if images is None else images
    return node_summary(
        {
            "metadata": {"name": "win1", "labels": {"kubernetes.io/os": "windows"}},
            "spec": {},
            "status": {"nodeInfo": {**INFO, **info}, "images": named, "addresses": [], "conditions": []},
        }
    )


def ids(node: dict, engine: str = "secure_workload") -> list[str]:
    return [item["id"] for item in windows_findings([node], engine)]


def test_a_node_as_the_text_wants_it_is_told_to_be_left_alone():
    (found,) = windows_findings([windows_node()], "secure_workload")

    assert (found["id"], found["severity"], found["node"]) == ("windows.not_covered", "warning", "win1")


@pytest.mark.parametrize(
    ("info", "finding_id", "words"),
    [
        ({"kernelVersion": "10.0.17763.5820"}, None, ""),
        ({"kernelVersion": "10.0.26100.1"}, "windows.build", "build 26100"),
        ({"kernelVersion": "", "osImage": ""}, "windows.build", "an unknown Windows, build unknown"),
        ({"kubeletVersion": "v1.26.15"}, "windows.kubernetes", "kubelet v1.26.15"),
        ({"kubeletVersion": "v1.27.0-eks-1"}, None, ""),
        ({"containerRuntimeVersion": "docker://20.10.9"}, "windows.runtime", "docker://20.10.9"),
        ({"containerRuntimeVersion": "containerd://1.5.9"}, "windows.runtime", "containerd://1.5.9"),
        ({"containerRuntimeVersion": ""}, "windows.runtime", "unknown"),
    ],
)
def test_what_the_text_wants_of_a_node(info, finding_id, words):
    found = windows_findings([windows_node(**info)], "secure_workload")[1:]

    assert [item["id"] for item in found] == ([finding_id] if finding_id else [])
    assert not found or words in found[0]["observed"]


def test_an_image_is_missed_only_where_the_node_names_all_it_has():
    """kubelet reports fifty images at the most."""
    others = [{"names": [f"r.example/{number}:1"]} for number in range(IMAGES_NAMED)]

    assert ids(windows_node(others[:-1])) == ["windows.not_covered", "windows.image_missing"]
    assert ids(windows_node(others)) == ["windows.not_covered"]
    assert ids(windows_node([{"names": None}])) == ["windows.not_covered", "windows.image_missing"]


@pytest.mark.parametrize("engine", ["native", "runtime_enforcer"])
def test_other_engines_have_no_agent_there_and_ask_nothing_more(engine):
    assert ids(windows_node([], kubeletVersion="v1.20.0"), engine) == ["windows.not_covered"]


def test_the_inventory_need_not_have_it():
    linux = node_summary({"metadata": {"name": "w1"}, "spec": {}, "status": {}})

    assert not is_windows(linux)
    assert [item["node"] for item in inventory_findings({}, [windows_node(), linux])] == ["w1"]
