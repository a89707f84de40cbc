"""Calico's settings in a real cluster: found by preflight, mended by the command of each finding."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster import Cluster
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_requirements import evaluate_cluster

from tests.integration.calico import calico_node, custom, definition, in_cluster
from tests.integration.fleet import NAMESPACE, Fleet
from tests.lab import Lab

DEFINITIONS = [definition("felixconfigurations", "FelixConfiguration"), definition("ippools", "IPPool")]
CONTAINER = {
    "name": "calico-node",
    "image": "registry.invalid/calico/node:v3.31.0",
    "env": [{"name": "FELIX_CHAININSERTMODE", "value": "Insert"}],
}
# No node has this label, so that nothing is started.
CALICO_NODE = calico_node(nodeSelector={"of-no-node": "true"}, containers=[CONTAINER])
OBJECTS = [
    custom("FelixConfiguration", "default", chainInsertMode="Append", iptablesRefreshInterval="90s"),
    custom("IPPool", "overlapping", cidr="10.96.0.0/16"),
    CALICO_NODE,
]


@pytest.fixture
def calico(lab: Lab) -> Iterator[Lab]:
    """The lab's cluster with the objects of a Calico that runs nowhere."""
    with in_cluster(lab, DEFINITIONS, OBJECTS):
        yield lab


def findings(lab: Lab) -> dict[str, dict]:
    """What the checks make of the cluster, by id; the inventory is not looked at."""
    probe = Cluster(str(lab.kubeconfig)).probe(NAMESPACE)
    found = evaluate_cluster(probe, {}, "secure_workload")
    return {item["id"]: item for item in found if not item["id"].startswith("inventory.")}


def test_settings_of_calico_are_found_and_the_commands_mend_them(calico: Lab, fleet: Fleet):
    run = fleet.site("-e", "portcullis_engine=secure_workload", playbook="preflight.yml")
    expected = {"felix.chain_insert_mode", "felix.refresh_interval", "felix.overridden", "calico.pool_overlaps"}

    assert run.code != 0
    assert {name for name, node in run.findings if not node} == expected
    assert "chainInsertMode Insert (environment: DaemonSet calico-node, over Append" in " ".join(run.output.split())

    for name in ("felix.chain_insert_mode", "felix.refresh_interval"):
        remedy = findings(calico)[name]["remedy"].partition(" (Felix restarts")[0]
        for command in remedy.split("; then "):
            calico.kubectl(*shlex.split(command)[1:])

    assert set(findings(calico)) == {"calico.pool_overlaps"}


def test_a_cluster_without_calico_has_no_finding_of_it(lab: Lab):
    assert findings(lab) == {}
