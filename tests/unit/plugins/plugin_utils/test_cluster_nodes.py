"""A host is found among the nodes by what the user says, by its name, or by its address."""

from __future__ import annotations

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_nodes import NotANodeError, node_names


def node(name: str, *addresses: str) -> dict:
    found = [{"type": "InternalIP", "address": address} for address in addresses]
    return {"metadata": {"name": name}, "spec": {}, "status": {"addresses": found}}


NODES = [node("ip-10-0-0-1", "10.0.0.1"), node("w2", "10.0.0.2"), node("w3", "10.0.0.3")]


@pytest.mark.parametrize(
    ("host", "variables", "expected"),
    [
        ("w2", {}, "w2"),
        ("10.0.0.3", {}, "w3"),
        ("first", {"ansible_host": "10.0.0.1"}, "ip-10-0-0-1"),
        ("first", {"portcullis_node_name": "w3", "ansible_host": "10.0.0.1"}, "w3"),
        ("w2", {"ansible_host": "10.0.0.3"}, "w2"),
    ],
)
def test_a_host_is_a_node_by_its_variable_its_name_or_its_address(host: str, variables: dict, expected: str):
    assert node_names([host], {host: variables}, NODES) == {host: expected}


@pytest.mark.parametrize(("host", "variables"), [("w9", {}), ("w2", {"portcullis_node_name": "gone"})])
def test_a_host_that_is_no_node_is_refused_with_what_to_set(host: str, variables: dict):
    with pytest.raises(NotANodeError, match=f"{host}: no node of the cluster, which has .*w2, w3: set the option node"):
        node_names([host], {host: variables}, NODES)
