"""The cluster's own kube-proxy loads a configuration in a pod, and says what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy

import pytest
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_api import ClusterApi
from ansible_collections.portcullis.fleet.plugins.plugin_utils.cluster_reader import CONFIG_MAPS, DAEMON_SETS, PODS
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_candidate import (
    candidate_pod,
    check,
    proxy_container,
)
from ansible_collections.portcullis.fleet.plugins.plugin_utils.kube_proxy_edit import edit_configuration

from tests.lab import Lab

NAMESPACE, NAME, KEY = "kube-system", "portcullis-candidate-test", "config.conf"


@pytest.fixture
def judge(lab: Lab) -> Iterator[Callable[..., tuple[str, str]]]:
    """What is said of a configuration, the cluster's own with these fields, when kube-proxy is started like this."""
    api = ClusterApi(str(lab.kubeconfig))
    daemon_set, original = (api.get(kind, "kube-proxy", NAMESPACE) for kind in (DAEMON_SETS, CONFIG_MAPS))
    copy = {"metadata": {"name": NAME, "namespace": NAMESPACE}, "data": {KEY: ""}}
    api.create(CONFIG_MAPS, copy, NAMESPACE)

    def run(config: dict, command: list[str] | None = None) -> tuple[str, str]:
        text = edit_configuration(original["data"][KEY], config)
        api.patch(CONFIG_MAPS, NAME, {"data": {KEY: text}}, NAMESPACE)
        changed = deepcopy(daemon_set)
        if command:
            proxy_container(changed).update(command=command)
        return check(api, candidate_pod(changed, NAME, KEY, "w1"), NAMESPACE, 30)

    try:
        yield run
        assert not [pod for pod in api.list(PODS, namespace=NAMESPACE) if pod["metadata"]["name"].startswith(NAME)]
    finally:
        api.delete(CONFIG_MAPS, NAME, NAMESPACE)


def test_what_kube_proxy_says_is_told_from_what_keeps_it_from_looking(judge: Callable):
    assert judge({"mode": "nftables"}) == ("", "")
    # Its decoder is lenient: the schema is for these.
    assert judge({"modee": "nftables"}) == ("", "")

    refusal, untried = judge({"mode": "userspace"})
    assert ('Invalid value: \\"userspace\\"' in refusal, untried) == (True, "")
    assert judge({"mode": "userspace"}, ["/bin/sh", "-c", "exec /usr/local/bin/kube-proxy --config=/x"])[0] != ""

    refusal, untried = judge({"mode": "nftables"}, ["/gone/kube-proxy", "--config=/x"])
    assert (refusal, untried.startswith("StartError: ")) == ("", True)
