"""Objects are read and written by kind, against the lab's API server; every request is counted."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import (
    ClusterApi,
    ConflictError,
    RefusedError,
    wait_until,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import (
    CONFIG_MAPS,
    DAEMON_SETS,
    NODES,
    Resource,
)

from tests.integration.calico import GROUP, custom, definition, in_cluster
from tests.lab import Lab

FELIX = Resource(GROUP, "v1", "felixconfigurations", "FelixConfiguration")
NAME = "cluster-api-test"


@pytest.fixture
def api(lab: Lab) -> Iterator[ClusterApi]:
    """A connection; the ConfigMap of these tests is gone afterwards."""
    found = ClusterApi(str(lab.kubeconfig))
    yield found
    found.delete(CONFIG_MAPS, NAME, "default")


def config_map(**data: str) -> dict:
    return {"metadata": {"name": NAME}, "data": data}


def test_an_object_is_made_read_changed_and_deleted(api: ClusterApi):
    made = api.create(CONFIG_MAPS, config_map(a="1"), "default")
    made["data"]["a"] = "2"
    api.replace(CONFIG_MAPS, made)
    api.patch(CONFIG_MAPS, NAME, {"metadata": {"labels": {"one": "two"}}, "data": {"b": "3"}}, "default")
    found = api.get(CONFIG_MAPS, NAME, "default")
    api.delete(CONFIG_MAPS, NAME, "default")
    assert (found["data"], found["metadata"]["labels"]) == ({"a": "2", "b": "3"}, {"one": "two"})
    assert api.get(CONFIG_MAPS, NAME, "default") is None
    assert api.calls == 6


def test_what_is_made_twice_or_has_changed_meanwhile_is_a_conflict(api: ClusterApi):
    old = api.create(CONFIG_MAPS, config_map(a="1"), "default")
    with pytest.raises(ConflictError, match="already exists"):
        api.create(CONFIG_MAPS, config_map(a="1"), "default")
    api.patch(CONFIG_MAPS, NAME, {"data": {"a": "2"}}, "default")
    with pytest.raises(ConflictError, match=r"does not replace ConfigMap default/cluster-api-test: .*modified"):
        api.replace(CONFIG_MAPS, old)
    with pytest.raises(ConflictError):
        api.delete(CONFIG_MAPS, NAME, "default", preconditions={"resourceVersion": old["metadata"]["resourceVersion"]})


def test_a_change_starts_anew_after_a_conflict(api: ClusterApi):
    api.create(CONFIG_MAPS, config_map(a="1"), "default")
    seen = []

    def change(found: dict) -> dict:
        seen.append(found["data"]["a"])
        if len(seen) == 1:
            api.patch(CONFIG_MAPS, NAME, {"data": {"a": "of another"}}, "default")
        return {**found, "data": {"a": found["data"]["a"] + "!"}}

    assert api.update(CONFIG_MAPS, NAME, "default", change)["data"] == {"a": "of another!"}
    assert seen == ["1", "of another"]
    assert api.update(CONFIG_MAPS, NAME, "default", lambda found: None)["data"] == {"a": "of another!"}


def test_a_dry_run_stores_nothing(api: ClusterApi):
    api.create(CONFIG_MAPS, config_map(a="1"), "default", dry_run=True)
    assert api.get(CONFIG_MAPS, NAME, "default") is None


def test_objects_of_a_group_with_and_without_a_namespace(lab: Lab, api: ClusterApi):
    with in_cluster(
        lab, [definition("felixconfigurations", "FelixConfiguration")], [custom("FelixConfiguration", "default")]
    ):
        api.create(FELIX, custom("FelixConfiguration", "node.w1", chainInsertMode="Append"))
        api.patch(FELIX, "node.w1", {"metadata": {"annotations": {"a/b": "c"}}, "spec": {"chainInsertMode": None}})
        _default, found = api.list(FELIX)
        assert (found["spec"], found["metadata"]["annotations"]) == ({}, {"a/b": "c"})
        api.delete(FELIX, "node.w1")
        assert wait_until(lambda: len(api.list(FELIX)) == 1, 5)
    names = {item["metadata"]["name"] for item in api.list(DAEMON_SETS, namespace="kube-system")}
    assert "kube-proxy" in names
    assert {item["metadata"]["name"] for item in api.list(NODES)} >= {"cp1", "w1"}


def test_a_refusal_names_what_was_asked_in_the_servers_words(api: ClusterApi):
    with pytest.raises(RefusedError, match=r"does not create ConfigMap default/Not_A_Name: .*Invalid value") as caught:
        api.create(CONFIG_MAPS, {"metadata": {"name": "Not_A_Name"}}, "default")
    assert caught.value.status == 422
    with pytest.raises(RefusedError, match="does not list nothings"):
        api.list(Resource("none.example.org", "v1", "nothings", "Nothing"))
    with pytest.raises(RefusedError, match="default/absent is not there"):
        api.update(CONFIG_MAPS, "absent", "default", json.loads)
